"""Dropout masks: their share, scale, repetition, and when there are none."""

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn.dropout import dropout

SHAPE = (30, 4, 50)


def transformed(rate, per_step):
  return hk.transform(lambda x: dropout(x, rate, per_step))


class DropoutTest(chex.TestCase):

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.product(rate=[0.05, 0.5, 0.9], per_step=[False, True])
  def test_survivors_are_scaled_and_the_rest_is_zero(self, rate, per_step):
    x = np.random.RandomState(0).normal(size=SHAPE).astype(np.float32)
    y = np.asarray(self.variant(transformed(rate, per_step).apply)({}, jax.random.key(1), x))
    kept = y != 0
    np.testing.assert_allclose(y[kept], x[kept] / (1 - rate), rtol=1e-6)
    draws = kept if per_step else kept[0]
    self.assertAlmostEqual(draws.mean(), 1 - rate,
                           delta=5 * (rate * (1 - rate) / draws.size) ** 0.5)
    self.assertEqual(bool((kept == kept[0]).all()), not per_step)

  @parameterized.product(per_step=[False, True], key=[False, True])
  def test_rate_0_is_the_identity_and_draws_nothing(self, per_step, key):
    f = transformed(0.0, per_step)
    x = jnp.asarray(np.random.RandomState(0).normal(size=SHAPE))
    key = jax.random.key(1) if key else None
    np.testing.assert_array_equal(f.apply({}, key, x), x)
    self.assertEmpty(jax.make_jaxpr(f.apply)({}, key, x).eqns)

  @parameterized.parameters(False, True)
  def test_no_key_is_the_identity(self, per_step):
    x = jnp.asarray(np.random.RandomState(0).normal(size=SHAPE))
    np.testing.assert_array_equal(transformed(0.5, per_step).apply({}, None, x), x)

  @parameterized.parameters(False, True)
  def test_a_key_decides(self, per_step):
    f, x = transformed(0.5, per_step), jnp.ones(SHAPE)
    first, again, other = (f.apply({}, jax.random.key(seed), x) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    self.assertTrue(bool((first != other).any()))

  def test_two_calls_draw_two_masks(self):
    f = hk.transform(lambda x: (dropout(x, 0.5, True), dropout(x, 0.5, True)))
    first, second = f.apply({}, jax.random.key(0), jnp.ones(SHAPE))
    both = np.asarray((first > 0) & (second > 0))
    self.assertAlmostEqual(both.mean(), 0.25, delta=5 * (0.25 * 0.75 / both.size) ** 0.5)

  @parameterized.parameters("float32", "bfloat16")
  def test_dtype_is_kept(self, dtype):
    with jax.enable_x64(True):
      y = transformed(0.3, True).apply({}, jax.random.key(0), jnp.ones([2, 2, 2], dtype))
      self.assertEqual(y.dtype, jnp.dtype(dtype))


if __name__ == "__main__":
  absltest.main()
