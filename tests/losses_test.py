"""Token losses against NumPy in float64, and at the edges."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm import losses
from tests import oracle


class TokenNatsTest(oracle.X64TestCase):

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(((), 1), ((5,), 3), ((4, 3), 7))
  def test_agrees_with_numpy(self, shape, size):
    draw = np.random.RandomState(0)
    logits = 3 * draw.normal(size=[*shape, size])
    targets = draw.randint(size, size=shape)
    expected = np.empty(shape)
    for place in np.ndindex(*shape):
      expected[place] = oracle.nats(logits[place], targets[place])
    nats = self.variant(losses.token_nats)(logits, jnp.asarray(targets))
    self.assertEqual(nats.dtype, jnp.float64)
    self.assert_close(nats, expected, 1e-13)

  @chex.variants(with_jit=True, without_jit=True)
  def test_a_constant_changes_nothing(self):
    logits = np.random.RandomState(0).normal(size=[4, 5])
    targets = np.array([0, 1, 4, 2])
    nats = self.variant(losses.token_nats)
    self.assert_close(nats(logits + 100.0, targets), nats(logits, targets), 1e-12)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters("float32", "float64")
  def test_huge_logits_stay_finite(self, dtype):
    logits = jnp.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]], dtype)
    nats = self.variant(losses.token_nats)
    rounding = 1e4 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(nats(logits, jnp.array([0, 0])), [0.0, np.log(3.0)], atol=rounding)
    np.testing.assert_array_equal(nats(logits, jnp.array([1, 2]))[0], 2e4)
    gradient = jax.grad(lambda x: nats(x, jnp.array([1, 2])).sum())(logits)
    np.testing.assert_allclose(gradient, [[1, -1, 0], [1 / 3, 1 / 3, -2 / 3]], rtol=1e-6)

  @chex.variants(with_jit=True, without_jit=True)
  def test_probabilities_of_all_targets_add_up_to_one(self):
    logits = np.random.RandomState(1).normal(size=[6])
    nats = self.variant(losses.token_nats)(np.tile(logits, [6, 1]), np.arange(6))
    self.assert_close(np.exp(-np.asarray(nats)).sum(), 1.0, 1e-14)

  @chex.variants(with_jit=True, without_jit=True)
  def test_gradient_is_softmax_minus_one_hot(self):
    logits = np.random.RandomState(2).normal(size=[3, 4])
    targets = np.array([3, 0, 1])
    gradient = self.variant(jax.grad(lambda x: losses.token_nats(x, targets).sum()))(logits)
    odds = np.exp(logits)
    self.assert_close(gradient, odds / odds.sum(-1, keepdims=True) - np.eye(4)[targets], 1e-13)

  @chex.variants(with_jit=True, without_jit=True)
  def test_an_id_that_is_not_in_the_vocabulary_gives_nan(self):
    nats = self.variant(losses.token_nats)(np.zeros([3, 4]), np.array([3, 4, 4000]))
    np.testing.assert_array_equal(np.isnan(nats), [False, True, True])

  @chex.variants(with_jit=True, without_jit=True)
  def test_bfloat16_logits_lose_no_more_than_they_have_lost(self):
    logits = np.random.RandomState(3).normal(size=[5, 4])
    targets = np.array([3, 0, 1, 2, 2])
    nats = self.variant(losses.token_nats)
    for dtype, wide in ((jnp.bfloat16, jnp.float32), (jnp.float32, jnp.float32),
                        (jnp.float64, jnp.float64)):
      narrow = jnp.asarray(logits, dtype)
      found = nats(narrow, targets)
      self.assertEqual(found.dtype, wide)
      exact = np.asarray(narrow).astype(np.float64)
      expected = [oracle.nats(row, target) for row, target in zip(exact, targets, strict=True)]
      np.testing.assert_allclose(found, expected, rtol=1e-5)


if __name__ == "__main__":
  absltest.main()
