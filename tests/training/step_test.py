"""The pure update: its gradient by finite differences of a NumPy model, its state, its buffers."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.config.training import OPTIMIZERS
from hklm.training import step
from tests import oracle
from tests.inference import compilations
from tests.training import updates
from tests.training.updates import kept, numpy_gradient

T, B = 3, 2
RATE = 0.5
TINY = hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2, initial_state="learned",
                        dtype="float64")
DRAW = np.random.RandomState(0)
WINDOWS = [DRAW.randint(4, size=[T + 1, B]).astype(np.int32) for _ in range(3)]
NONE, ALL = np.zeros(B, bool), np.ones(B, bool)


def sgd(**changes):
  return updates.sgd(RATE, **changes)


def started(config=TINY, optimizer=None, seed=0):
  """The functions and the state before the first update, every parameter drawn anew."""
  lm = hklm.language_model(config)
  state = step.init(lm, optimizer or sgd(), B, seed)
  return lm, state._replace(params=oracle.random_like(state.params))


def moved(before, after):
  """The gradient that plain SGD followed."""
  return jax.tree.map(lambda a, b: (np.asarray(a) - np.asarray(b)) / RATE, before, after)


class GradientTest(oracle.X64TestCase):

  def test_first_update_descends_the_mean_and_the_initial_state_learns(self):
    lm, state = started()
    before = kept(state.params)
    state, metrics = step.make_update(lm, sgd())(state, WINDOWS[0], ALL)
    expected = numpy_gradient(TINY, before, WINDOWS[0], lambda truth, row: truth.initial_state())
    self.assert_close(moved(before, kept(state.params)), expected, 1e-8)
    self.assertGreater(np.abs(expected["lstm_0"]["c_0"]).min(), 1e-4)
    norm = np.sqrt(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(expected)))
    self.assert_close(metrics.gradient_norm, norm, 1e-8)

  def test_metrics_are_the_sum_and_the_count(self):
    lm, state = started()
    truth = oracle.NumpyModel(TINY, state.params)
    expected = sum(truth.loss(WINDOWS[0][:-1, row], WINDOWS[0][1:, row],
                              truth.initial_state()).sum() for row in range(B))
    _, metrics = step.make_update(lm, sgd())(state, WINDOWS[0], ALL)
    self.assert_close(metrics.nats, expected)
    self.assertEqual(metrics.tokens, T * B)

  @parameterized.parameters([NONE], [np.array([True, False])])
  def test_carried_state_goes_on_and_gives_no_gradient(self, reset):
    lm, state = started()
    update = step.make_update(lm, sgd())
    state, _ = update(state, WINDOWS[0], ALL)
    before, carried = kept(state.params), kept(state.state)
    state, _ = update(state, WINDOWS[1], reset)

    def start(truth, row):
      return truth.initial_state() if reset[row] else oracle.numpy_start(carried, row)

    expected = numpy_gradient(TINY, before, WINDOWS[1], start)
    found = moved(before, kept(state.params))
    self.assert_close(found, expected, 1e-8)
    if reset.any():
      self.assertGreater(np.abs(found["lstm_0"]["c_0"]).min(), 1e-4)
    else:
      np.testing.assert_array_equal(found["lstm_0"]["c_0"], 0.0)

  def test_state_is_that_of_unrolling(self):
    lm, state = started()
    update = step.make_update(lm, sgd())
    expected = lm.initial_state(state.params, B)
    for window, reset in zip(WINDOWS, (ALL, NONE, NONE), strict=True):
      params = jax.tree.map(jnp.array, state.params)
      _, expected = lm.unroll(params, None, window[:-1], expected)
      state, _ = update(state, window, reset)
      self.assert_close(state.state, expected)
    self.assertEqual(state.step, 3)

  def test_rate_factor_scales_the_move(self):
    moves = []
    for factor in (1.0, 0.25):
      lm, state = started()
      before = kept(state.params)
      state = state._replace(rate_factor=jnp.float32(factor))
      state, _ = step.make_update(lm, sgd())(state, WINDOWS[0], ALL)
      moves.append(moved(before, kept(state.params)))
    self.assert_close(moves[1], jax.tree.map(lambda leaf: leaf / 4, moves[0]))

  def test_gradient_norm_is_that_before_clipping(self):
    norms = []
    for clip in (0.0, 1e-3):
      lm, state = started(optimizer=sgd(clip=clip))
      before = kept(state.params)
      state, metrics = step.make_update(lm, sgd(clip=clip))(state, WINDOWS[0], ALL)
      norms.append(float(metrics.gradient_norm))
    self.assertEqual(norms[0], norms[1])
    length = np.sqrt(sum(np.sum(leaf**2)
                         for leaf in jax.tree.leaves(moved(before, kept(state.params)))))
    self.assertAlmostEqual(length, 1e-3, places=8)


class OptimizersTest(parameterized.TestCase):

  @parameterized.parameters(*OPTIMIZERS)
  def test_every_optimiser_of_the_flag_trains(self, name):
    config = hklm.ModelConfig(vocab_size=4, embedding_size=3, hidden_size=4)
    rate = {"sgd": 1.0, "momentum": 0.3}.get(name, 0.05)
    optimizer = sgd(optimizer=name, learning_rate=rate, weight_decay=1e-4, clip=5.0,
                    clip_elementwise=1.0)
    lm = hklm.language_model(config)
    state = step.init(lm, optimizer, B, seed=0)
    update, losses = step.make_update(lm, optimizer), []
    for _ in range(30):
      state, metrics = update(state, np.tile(np.arange(4, dtype=np.int32)[:, None], B), ALL)
      losses.append(float(metrics.nats))
    self.assertLess(losses[-1], 0.5 * losses[0])
    chex.assert_tree_all_finite(state.params)


@functools.cache
def dropping(learning_rate):
  """A model with dropout, its optimiser and its update."""
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=4, embedding_size=4, hidden_size=8, output_dropout=0.5))
  optimizer = sgd(optimizer="momentum", learning_rate=learning_rate)
  return lm, optimizer, step.make_update(lm, optimizer)


class RandomnessTest(parameterized.TestCase):

  def trained(self, seed, count=3):
    lm, optimizer, update = dropping(0.1)
    state = step.init(lm, optimizer, B, seed)
    for window in WINDOWS[:count]:
      state, _ = update(state, window, NONE)
    return kept(state.params)

  def test_same_seed_same_bits_and_another_seed_other_parameters(self):
    chex.assert_trees_all_equal(self.trained(0), self.trained(0))
    for count in (0, 3):
      weights = [self.trained(seed, count)["head"]["w"] for seed in (0, 1)]
      self.assertGreater(np.abs(weights[0] - weights[1]).min(), 0)

  def test_dropout_masks_differ_from_update_to_update(self):
    lm, optimizer, update = dropping(1e-30)  # the parameters stay as they are
    state, losses = step.init(lm, optimizer, B, seed=0), set()
    for _ in range(4):
      state, metrics = update(state, WINDOWS[0], ALL)
      losses.add(float(metrics.nats))
    self.assertLen(losses, 4)


class BuffersTest(parameterized.TestCase):

  @parameterized.parameters("zeros", "learned")
  def test_the_state_given_is_donated_and_nothing_else(self, initial_state):
    config = hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2, num_layers=2,
                              initial_state=initial_state)
    optimizer = sgd(optimizer="adam")
    lm = hklm.language_model(config)
    given = step.init(lm, optimizer, B, seed=0)
    window, reset = jnp.asarray(WINDOWS[0]), jnp.asarray(ALL)
    update = step.make_update(lm, optimizer)
    state, _ = update(given, window, reset)
    self.assertTrue(all(leaf.is_deleted() for leaf in jax.tree.leaves(given.params)))
    self.assertFalse(window.is_deleted() or reset.is_deleted())
    # between updates the new state's parameters are there for whoever reads them
    before = hklm.evaluate(lm, state.params, [0, 1, 2, 3])
    self.assertEqual(hklm.evaluate(lm, state.params, [0, 1, 2, 3]), before)
    state, _ = update(state, window, reset)
    self.assertNotEqual(hklm.evaluate(lm, state.params, [0, 1, 2, 3]), before)

  def test_one_program_for_each_window_length(self):
    lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=3))
    state = step.init(lm, sgd(), B, seed=0)
    update = step.make_update(lm, sgd())
    with compilations.counted() as names:
      for n, window in enumerate([*WINDOWS, *WINDOWS, WINDOWS[0][:2], WINDOWS[1], WINDOWS[1][:2]]):
        state, _ = update(state, window, NONE if n else ALL)
    self.assertLen(names, 2)


if __name__ == "__main__":
  absltest.main()
