"""Gradient accumulation: parts of a batch make the update of the whole one, in less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.training import step
from tests import oracle
from tests.training import updates

T, B, V, CLIP = 3, 4, 5, 0.1
WINDOWS, RESETS = updates.windows(4, T, B, V), updates.resets(4, B)


def model(dtype, **changes):
  return hklm.ModelConfig(vocab_size=V, embedding_size=3, hidden_size=4, num_layers=2,
                          initial_state="learned", dtype=dtype, **changes)


@functools.cache
def trained(config, accumulate, cell=None):
  optimizer = updates.sgd(0.5, optimizer="momentum", clip=CLIP, weight_decay=0.01)
  return updates.run(config, optimizer, TrainConfig(batch_size=B, accumulate=accumulate), WINDOWS,
                     RESETS, cell)


class EqualityTest(oracle.X64TestCase):

  @parameterized.product(accumulate=[2, 4], case=[("float64", 1e-12), ("float32", 1e-6)])
  def test_updates_are_those_of_the_whole_batch(self, accumulate, case):
    dtype, tolerance = case
    whole, parts = (trained(model(dtype), n) for n in (1, accumulate))
    self.assert_close(parts, whole, tolerance)
    for metrics in whole[1]:
      self.assertGreater(metrics.gradient_norm, 2 * CLIP)  # so it is clipped
    self.assertGreater(np.abs(whole[0][-1].params["lstm_0"]["c_0"]
                              - whole[0][0].params["lstm_0"]["c_0"]).min(), 1e-5)

  def test_of_an_own_cell_too(self):
    config = hklm.ModelConfig(vocab_size=V, embedding_size=3, hidden_size=4, dtype="float64")
    whole, parts = (trained(config, n, oracle.own_cell) for n in (1, 2))
    self.assert_close(parts, whole)

  def test_parts_descend_the_mean_of_numpy(self):
    config, rate = model("float64"), 0.5
    optimizer = updates.sgd(rate)
    lm, state = updates.started(config, optimizer, TrainConfig(), B)
    before = updates.kept(state.params)
    update = step.make_update(lm, optimizer, TrainConfig(batch_size=B, accumulate=2))
    state, _ = update(state, WINDOWS[0], RESETS[0])
    expected = updates.numpy_gradient(config, before, WINDOWS[0],
                                      lambda truth, row: truth.initial_state())
    found = jax.tree.map(lambda a, b: (a - b) / rate, before, updates.kept(state.params))
    self.assert_close(found, expected, 1e-8)

  def test_bfloat16_parameters_keep_their_type(self):
    states, metrics = trained(model("bfloat16"), 2)
    for leaf in jax.tree.leaves((states[-1].params, states[-1].opt_state[1:])):
      if jnp.issubdtype(leaf.dtype, jnp.floating):
        self.assertEqual(leaf.dtype, jnp.bfloat16)
    self.assertEqual(metrics[-1].nats.dtype, np.float32)


class PartsTest(parameterized.TestCase):

  @parameterized.parameters(1, 2)
  def test_each_part_has_its_own_key(self, accumulate):
    config = model("float32", input_dropout=0.5, layer_dropout=0.5)
    lm, state = updates.started(config, updates.sgd(0.5), TrainConfig(), B)
    state = state._replace(step=jnp.int32(7))
    key, expected = jax.random.fold_in(state.key, 7), []
    for n in range(accumulate):
      rows = slice(n, None, accumulate)
      part = key if accumulate == 1 else jax.random.fold_in(key, n)
      start = lm.initial_state(state.params, B // accumulate)
      expected.append(lm.unroll(state.params, part, WINDOWS[0][:-1, rows], start)[1])
    expected = jax.tree.map(lambda *parts: np.stack(parts, 1).reshape(B, -1), *expected)
    update = step.make_update(lm, updates.sgd(0.5), TrainConfig(batch_size=B,
                                                                accumulate=accumulate))
    state, _ = update(state, WINDOWS[0], RESETS[0])
    for found, leaf in zip(jax.tree.leaves(state.state), jax.tree.leaves(expected), strict=True):
      np.testing.assert_allclose(found, leaf, atol=1e-6)

  def test_activations_of_a_part_alone_are_there_at_a_time(self):
    config = hklm.ModelConfig(vocab_size=10, embedding_size=8, hidden_size=32)
    whole, parts = (updates.temporaries(config, TrainConfig(batch_size=64, accumulate=n), 32, 64)
                    for n in (1, 8))
    self.assertLess(parts, 0.25 * whole)

  def test_a_window_that_has_no_equal_parts_is_refused(self):
    lm, state = updates.started(model("float32"), updates.sgd(0.5), TrainConfig(), B)
    update = step.make_update(lm, updates.sgd(0.5), TrainConfig(batch_size=3, accumulate=3))
    with self.assertRaises(AssertionError):
      update(state, WINDOWS[0], RESETS[0])


if __name__ == "__main__":
  absltest.main()
