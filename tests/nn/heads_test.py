"""The output layer against matrix products."""

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn import heads, initializers
from tests import oracle

V, D = 5, 3


def head(bias, tied):
  def run(h, table):
    linear = heads.LinearHead(V, initializers.parse("normal:1", D), h.dtype, bias)
    table = table if tied else None
    return linear(h, table), linear.parameters(D, table)

  return hk.without_apply_rng(hk.transform(run))


class LinearHeadTest(oracle.X64TestCase):

  @parameterized.product(bias=[False, True], tied=[False, True], shape=[(), (2,), (4, 2)])
  def test_agrees_with_numpy(self, bias, tied, shape):
    draw = np.random.RandomState(0)
    h, table = draw.normal(size=[*shape, D]), draw.normal(size=[V, D])
    f = head(bias, tied)
    params = oracle.random_like(jax.eval_shape(f.init, jax.random.key(0), h, table))
    own = params.get("head", {})
    self.assertEqual({name: leaf.shape for name, leaf in own.items()},
                     {**({} if tied else {"w": (V, D)}), **({"b": (V,)} if bias else {})})
    w = table if tied else np.asarray(own["w"])
    expected = np.einsum("vd,...d->...v", w, h) + (np.asarray(own["b"]) if bias else 0.0)
    logits, parameters = f.apply(params, h, table)
    self.assert_close(logits, expected, 1e-14)
    chex.assert_trees_all_equal(parameters, (w, own.get("b")))

  @parameterized.parameters("float32", "bfloat16")
  def test_dtype(self, dtype):
    h, table = jnp.ones([2, D], dtype), jnp.ones([V, D], dtype)
    params = head(True, False).init(jax.random.key(0), h, table)
    for leaf in jax.tree.leaves((params, head(True, False).apply(params, h, table)[0])):
      self.assertEqual(leaf.dtype, jnp.dtype(dtype))


if __name__ == "__main__":
  absltest.main()
