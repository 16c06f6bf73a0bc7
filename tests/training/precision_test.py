"""Updates in bfloat16 of float32 parameters: near those of NumPy, and nothing small is lost."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.errors import InputError
from hklm.training import gradients, precision, step
from tests import oracle
from tests.training import updates

T, B, V = 6, 4, 5
MODEL = hklm.ModelConfig(vocab_size=V, embedding_size=3, hidden_size=4, initial_state="learned")
WINDOWS, RESETS = updates.windows(3, T, B, V), updates.resets(3, B)
MIXED = TrainConfig(compute_dtype="bfloat16", batch_size=B)
EPSILON = 2.0**-8  # half of the distance between neighbours at 1


def first_move(model, config, rate=1.0):
  """Parameters before and after an update by plain SGD."""
  _, state = updates.started(model, updates.sgd(rate), config, B)
  states, _ = updates.run(model, updates.sgd(rate), config, WINDOWS[:1], RESETS[:1])
  return updates.kept(state.params), states[0].params


class GradientTest(parameterized.TestCase):

  def test_gradient_is_numpys_within_bfloat16s_precision(self):
    before, after = first_move(MODEL, MIXED)
    expected = updates.numpy_gradient(MODEL, before, WINDOWS[0],
                                      lambda truth, row: truth.initial_state())
    differences = []
    for old, new, leaf in zip(*map(jax.tree.leaves, (before, after, expected)), strict=True):
      differences.append(np.abs((old - new) - leaf).max() / np.abs(leaf).max())
    self.assertLess(max(differences), 8 * EPSILON)
    self.assertGreater(max(differences), EPSILON / 8)  # so it was not computed in float32

  @parameterized.parameters((300, 1, {"remat_steps": 1}), (1, 300, {"accumulate": 300}))
  def test_sums_over_chunks_and_parts_do_not_stall(self, T, B, changes):
    """300 equal terms, closed form: logits are 0, the bias moves by `1/V - [v = target]` a token.

    bfloat16 would not get beyond 256 of them.
    """
    config = TrainConfig(compute_dtype="bfloat16", batch_size=B, **changes)
    lm = precision.computing(hklm.language_model(MODEL), config)
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32),
                          jax.eval_shape(lm.init, jax.random.key(0)))
    gradient, nats, _ = jax.jit(gradients.make_gradient(lm, config))(
        params, jax.random.key(0), np.full([T + 1, B], 2, np.int32), np.ones(B, bool),
        lm.initial_state(params, B))
    np.testing.assert_allclose(gradient["head"]["b"], [0.2, 0.2, -0.8, 0.2, 0.2], rtol=EPSILON)
    np.testing.assert_allclose(nats, 300 * np.log(V), rtol=1e-6)  # summed in float32


class TypesTest(parameterized.TestCase):

  @parameterized.parameters({}, {"accumulate": 2, "remat_steps": 2})
  def test_parameters_stay_float32_and_the_state_is_bfloat16(self, **changes):
    config = TrainConfig(batch_size=B, compute_dtype="bfloat16", average="polyak", **changes)
    optimizer = updates.sgd(0.1, optimizer="adam", clip=0.1)
    lm, state = updates.started(MODEL, optimizer, config, B)
    types = jax.tree.map(lambda leaf: leaf.dtype, state)
    update = step.make_update(lm, optimizer, config)
    for window, reset in zip(WINDOWS, RESETS, strict=True):
      state, metrics = update(state, window, reset)
    self.assertEqual(jax.tree.map(lambda leaf: leaf.dtype, state), types)
    self.assertEqual(update._cache_size(), 1)
    for leaf in jax.tree.leaves((state.params, state.opt_state, state.average)):
      self.assertIn(leaf.dtype, (jnp.float32, jnp.int32))
    for leaf in jax.tree.leaves(state.state):
      self.assertEqual(leaf.dtype, jnp.bfloat16)
    self.assertEqual(metrics.nats.dtype, jnp.float32)
    hklm.evaluate(lm, step.evaluated(state), [0, 1, 2])  # by the float32 functions

  def test_a_small_move_is_not_lost(self):
    moves = {}
    low = dataclasses.replace(MODEL, dtype="bfloat16")
    for name, model, config in (("mixed", MODEL, MIXED), ("bfloat16", low, TrainConfig())):
      before, after = (params["head"]["w"].astype(np.float64)
                       for params in first_move(model, config, rate=1e-4))
      moves[name] = before - after
    gradient = np.subtract(*(params["head"]["w"] for params in first_move(MODEL, MIXED)))
    np.testing.assert_allclose(moves["mixed"], 1e-4 * gradient, atol=2e-7)  # of numbers near 1
    self.assertGreater(np.mean(moves["mixed"] != 0), 0.8)
    np.testing.assert_array_equal(moves["bfloat16"], 0)

  def test_an_own_cell_that_has_no_name_to_import(self):
    def cell(layer, size):
      return oracle.gru(layer, size)

    model = hklm.ModelConfig(vocab_size=V, embedding_size=3, hidden_size=4)
    states, _ = updates.run(model, updates.sgd(0.5), MIXED, WINDOWS, RESETS, cell)
    whole, _ = updates.run(model, updates.sgd(0.5), TrainConfig(), WINDOWS, RESETS, cell)
    self.assertEqual(states[-1].state.output.dtype, jnp.bfloat16)
    for found, leaf in zip(*(jax.tree.leaves(s[-1].params) for s in (states, whole)), strict=True):
      self.assertEqual(found.dtype, np.float32)
      np.testing.assert_allclose(found, leaf, atol=0.02)
    with self.assertRaisesRegex(InputError, "^--cell="):
      step.make_update(hklm.language_model(model, cell), updates.sgd(0.5), MIXED)


class CurveTest(absltest.TestCase):

  def test_the_loss_falls_as_in_float32(self):
    model = hklm.ModelConfig(vocab_size=V, embedding_size=8, hidden_size=16)
    optimizer = updates.sgd(0.02, optimizer="adam")
    window = np.tile(np.arange(T + 1, dtype=np.int32)[:, None] % V, B)
    curves = [[float(told.nats) / (T * B) for told in updates.run(
        model, optimizer, config, [window] * 40, [np.ones(B, bool)] * 40)[1]]
              for config in (TrainConfig(), MIXED)]
    np.testing.assert_allclose(curves[1], curves[0], rtol=0.05, atol=0.01)
    self.assertLess(curves[1][-1], 0.1 * curves[1][0])


if __name__ == "__main__":
  absltest.main()
