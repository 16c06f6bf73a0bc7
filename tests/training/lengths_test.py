"""Padded windows, sums over time and random resets: the update against NumPy, and two ways."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.data.random_streams import RandomStreams
from hklm.data.streams import Streams
from hklm.training import loop, optimizers, step
from tests import oracle
from tests.inference import compilations
from tests.training import updates
from tests.training.loop_test import Recorder

T, B, V, RATE = 6, 4, 5, 0.5
MODEL = hklm.ModelConfig(vocab_size=V, embedding_size=3, hidden_size=4, initial_state="learned",
                         dtype="float64")
WINDOW = updates.windows(1, T, B, V)[0]
START = np.ones(B, bool)


def update_of(window, length=None, model=MODEL, state=None, reset=START, **changes):
  """What SGD at RATE adds, divided by -RATE; the state after; the metrics."""
  config = TrainConfig(model, batch_size=B, **changes)
  optimizer = updates.sgd(RATE, clip=changes.get("clip", 0.0))
  lm, made = updates.started(model, optimizer, config, B)
  state = state or made
  before = updates.kept(state.params)
  after, metrics = step.make_update(lm, optimizer, config)(state, window, reset, length)
  moved = jax.tree.map(lambda a, b: (a - b) / RATE, before, updates.kept(after.params))
  return moved, after, metrics


def padded(window, steps):
  """The same with ids after it that play no part."""
  return np.concatenate([window, np.full([steps, B], V - 1, np.int32)])


class LengthTest(oracle.X64TestCase):

  @parameterized.parameters({}, {"loss": "sum", "accumulate": 2, "clip": 0.05})
  def test_a_padded_window_is_the_window_at_a_rate_by_its_length(self, **changes):
    bptt = 8
    plain, state, metrics = update_of(WINDOW, **changes)
    found, padded_state, padded_metrics = update_of(padded(WINDOW, 3), T, bptt=bptt, **changes)
    self.assert_close(found, jax.tree.map(lambda leaf: leaf * T / bptt, plain))
    self.assert_close(padded_state.state, state.state)
    self.assert_close(padded_metrics, metrics)
    self.assertEqual(int(padded_metrics.tokens), T * B)

  def test_penalties_too_are_of_live_steps_alone(self):
    model = dataclasses.replace(MODEL, activation_penalty=2.0, change_penalty=3.0)
    plain, *_ = update_of(WINDOW, model=model)
    found, *_ = update_of(padded(WINDOW, 2), T, model, bptt=T)
    self.assert_close(found, plain)


@functools.cache
def numpy_sum():
  """The gradient of the sum over time of the mean over the batch, and its norm."""
  _, state = updates.started(MODEL, updates.sgd(RATE), TrainConfig(), B)
  mean = updates.numpy_gradient(MODEL, state.params, WINDOW,
                                lambda truth, row: truth.initial_state())
  gradient = jax.tree.map(lambda leaf: T * leaf, mean)
  return gradient, np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(gradient)))


class SumTest(oracle.X64TestCase):

  @parameterized.parameters({}, {"accumulate": 2}, {"accumulate": 2, "remat_steps": 4})
  def test_it_descends_the_sum_over_time_of_the_mean_over_the_batch(self, **changes):
    expected, norm = numpy_sum()
    found, _, metrics = update_of(WINDOW, loss="sum", **changes)
    self.assert_close(found, expected, 1e-7)
    self.assert_close(metrics.gradient_norm, norm, 1e-8)
    self.assertEqual(int(metrics.tokens), T * B)

  def test_the_gradient_of_the_sum_is_what_is_clipped(self):
    expected, norm = numpy_sum()
    self.assertGreater(norm / 2, norm / T)  # by which the mean would not be clipped
    found, *_ = update_of(WINDOW, loss="sum", clip=float(norm / 2))
    self.assert_close(found, jax.tree.map(lambda leaf: leaf / 2, expected), 1e-7)


class ResetTest(oracle.X64TestCase):

  def carried(self, rate, number, reset):
    """Which rows of the state after update `number` are those after a start anew."""
    config = TrainConfig(MODEL, batch_size=len(reset), reset_rate=rate)
    optimizer = updates.sgd(RATE)
    lm, state = updates.started(MODEL, optimizer, config, len(reset))
    old = oracle.random_like(state.state, seed=1)
    window = np.zeros([2, len(reset)], np.int32)
    fresh, kept = (lm.unroll(state.params, None, window[:-1], its)[1].output
                   for its in (lm.initial_state(state.params, len(reset)), old))
    fresh, kept = np.array(fresh), np.array(kept)
    state = state._replace(state=old, step=jnp.int32(number))
    after, _ = step.make_update(lm, optimizer, config)(state, window, reset)
    found = np.abs(np.array(after.state.output) - fresh).max(axis=1) < 1e-12
    self.assert_close(after.state.output, np.where(found[:, None], fresh, kept))
    return found

  def test_so_many_streams_start_anew_others_with_every_update(self):
    none = np.zeros(400, bool)
    first, second = (self.carried(0.3, number, none) for number in (0, 1))
    for found in (first, second):
      self.assertBetween(found.mean(), 0.2, 0.4)
    both = (first & second).mean()  # 0.09 where they have nothing to do with each other
    self.assertBetween(both, 0.03, 0.15)
    np.testing.assert_array_equal(self.carried(0.3, 1, none), second)

  def test_who_starts_an_epoch_starts_anew_in_any_case(self):
    reset = np.arange(400) % 2 == 0
    found = self.carried(0.3, 0, reset)
    self.assertTrue(found[reset].all())
    self.assertBetween(found[~reset].mean(), 0.15, 0.45)

  def test_without_a_rate_all_go_on(self):
    self.assertFalse(self.carried(0.0, 0, np.zeros(4, bool)).any())


class CompilationTest(absltest.TestCase):

  def test_a_program_for_each_of_a_few_lengths_and_none_in_a_second_epoch(self):
    length = 12
    config = hklm.TrainConfig(
        hklm.ModelConfig(vocab_size=5, embedding_size=3, hidden_size=2), batch_size=2, bptt=length,
        random_bptt=True)
    windows = RandomStreams(Streams(np.arange(2000) % 5, 2, length), seed=0)
    lengths = [windows.at(n).length for n in range(windows.updates_in(1))]
    self.assertGreater(len(set(lengths)), 10)
    lm = hklm.language_model(config.model)
    steps = windows.updates_in(2)
    optimizer = optimizers.optimizer(config, steps, windows.updates_in)
    update = step.make_update(lm, optimizer, config)
    state = step.init(lm, optimizer, 2, 0, config)
    hooks = Recorder(validates=False).hooks._replace(save=lambda state, progress: None)
    state, progress = loop.run(update, state, loop.Progress(), windows, len(lengths), hooks)
    self.assertBetween(update._cache_size(), 2, length / 10 + 3)
    with compilations.counted() as names:
      loop.run(update, state, progress, windows, steps, hooks)
    self.assertEmpty(names)


if __name__ == "__main__":
  absltest.main()
