"""`lstm_impl`: which path a model takes, and that the paths have the same numbers."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from tests import oracle
from tests.oracle import B, ready

ON_A_CPU = jax.default_backend() == "cpu"


def outcome(model, impl, dtype="float64"):
  """Losses, the state after, and the gradient, from a learned or given state, with holes."""
  model = oracle.replaced(model, lstm_impl=impl)
  _, params, state, inputs, targets, _, holes = ready(model)
  lm = hklm.language_model(oracle.replaced(model, dtype=dtype).config)
  params, state = jax.tree.map(lambda leaf: leaf.astype(dtype), (params, state))
  key = jax.random.key(1) if model.drops else None

  def total(params, state):
    given, after = lm.loss(params, key, inputs, targets, state)
    held, masked_after = lm.loss(params, key, inputs, targets, lm.initial_state(params, B), holes)
    sums = given.nats.sum() + held.nats.sum() + jnp.sin(masked_after.output).sum()
    return sums, (given.nats, held.nats, after, masked_after)

  gradient = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)
  return oracle.as_numpy(jax.jit(gradient)(params, state))


def is_fused(config, length):
  """Whether reading so many tokens goes through the path with a derivative of its own."""
  lm = hklm.language_model(config)
  params = jax.eval_shape(lm.init, jax.random.key(0))
  state = jax.eval_shape(lambda p: lm.initial_state(p, B), params)
  tokens = jax.ShapeDtypeStruct([length, B], jnp.int32)
  return "custom_vjp" in str(jax.make_jaxpr(lambda *args: lm.unroll(args[0], None, *args[1:]))(
      params, tokens, state))


class SameNumbersTest(oracle.X64TestCase):

  @oracle.over_lstms
  def test_float64(self, model):
    self.assert_close(outcome(model, "fused"), outcome(model, "scan"), 1e-10)

  @oracle.over_lstms
  def test_float32(self, model):
    found, expected = outcome(model, "fused", "float32"), outcome(model, "scan", "float32")
    self.assertEqual({leaf.dtype for leaf in jax.tree.leaves(found)}, {np.dtype("float32")})
    self.assert_close(found, expected, 1e-5)

  def test_an_id_that_is_not_in_the_vocabulary_gives_nan(self):
    for impl in ("fused", "scan"):
      lm = hklm.language_model(hklm.ModelConfig(
          vocab_size=5, embedding_size=16, hidden_size=3, lstm_impl=impl))
      params = lm.init(jax.random.key(0))
      logits, _ = lm.unroll(params, None, jnp.array([[4, 2], [5, 2], [1, 2]]),
                            lm.initial_state(params, 2))
      unknown = np.isnan(logits).all(axis=2)
      np.testing.assert_array_equal(unknown, [[False, False], [True, False], [True, False]])

  @parameterized.parameters("fused", "scan")
  def test_narrow_ids_and_padding_behind_a_mask(self, impl):
    """As a byte text is stored; V, 256, is none of uint8. What is masked may be -1."""
    lm = hklm.language_model(hklm.ModelConfig(
        vocab_size=256, embedding_size=384, hidden_size=3, lstm_impl=impl))
    params = lm.init(jax.random.key(0))

    def total(params, tokens, mask=None):
      return lm.loss(params, None, tokens, tokens, lm.initial_state(params, 1), mask)[0].nats.sum()

    tokens = jnp.array([[0], [255], [7]])
    self.assertEqual(total(params, tokens.astype(jnp.uint8)), total(params, tokens))
    padded = jnp.array([[0], [255], [-1]])
    gradient = jax.grad(total)(params, padded, padded >= 0)
    self.assertTrue(all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient)))


class ChoiceTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    if not ON_A_CPU or os.environ.get("LSTM_IMPL"):
      self.skipTest("what auto chooses on a CPU, if it may")

  def test_auto_is_fused_except_for_a_single_step(self):
    config = hklm.ModelConfig(vocab_size=4, embedding_size=3, hidden_size=2)
    self.assertTrue(is_fused(config, 2))
    self.assertFalse(is_fused(config, 1))

  def test_scan_and_cells_of_ones_own_are_scanned(self):
    for changes in ({"lstm_impl": "scan"}, {"cell": "tests.oracle:gru"}):
      config = hklm.ModelConfig(vocab_size=4, embedding_size=3, hidden_size=2, **changes)
      self.assertFalse(is_fused(config, 2))

  def test_cudnn_needs_an_nvidia_gpu(self):
    with self.assertRaisesRegex(InputError, "--lstm_impl=cudnn needs an NVIDIA GPU"):
      hklm.language_model(hklm.ModelConfig(vocab_size=4, lstm_impl="cudnn"))
    with self.assertRaisesRegex(InputError, "--lstm_impl=torch is unknown; needed: auto, scan"):
      hklm.ModelConfig(lstm_impl="torch")

  @parameterized.parameters(
      (lambda f, p: jax.jit(lambda p: jax.jvp(f, (p,), (p,))[1])(p),),
      (lambda f, p: jax.jvp(f, (p,), (p,))[1],), (lambda f, p: jax.linearize(f, p)[1](p),))
  def test_forward_mode_of_a_model_names_the_switch(self, forward):
    def slope(impl):
      config = hklm.ModelConfig(vocab_size=4, embedding_size=3, hidden_size=2, lstm_impl=impl)
      lm = hklm.language_model(config)
      params, tokens = lm.init(jax.random.key(0)), jnp.zeros([3, 1], jnp.int32)

      def loss(p):
        return lm.loss(p, None, tokens, tokens, lm.initial_state(p, 1))[0].nats.sum()

      return forward(loss, params)

    self.assertTrue(all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope("scan"))))
    with self.assertRaisesRegex(TypeError, "lstm_impl=scan"):
      slope("auto")


if __name__ == "__main__":
  absltest.main()
