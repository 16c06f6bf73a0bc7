"""Lookup against indexing, and one-hot vectors against a lookup."""

import unittest

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn.embedding import Embedding, Lookup
from tests import oracle

V = 6


def embed(size, dtype=jnp.float64):
  return hk.without_apply_rng(hk.transform(
      lambda tokens: Embedding(V, size, hk.initializers.RandomNormal(), dtype)(tokens)))


class EmbeddingTest(oracle.X64TestCase):

  @parameterized.parameters(((),), ((3,),), ((4, 2),))
  def test_looks_rows_up(self, shape):
    table = np.random.RandomState(0).normal(size=[V, 3])
    tokens = np.random.RandomState(1).randint(V, size=shape)
    x = embed(3).apply({"embedding": {"table": table}}, jnp.asarray(tokens))
    np.testing.assert_array_equal(x, table[tokens])

  def test_one_hot_vectors_have_no_parameters_and_select_rows(self):
    tokens = np.array([[0, 5], [2, 2]])
    params = embed(0).init(jax.random.key(0), tokens)
    self.assertEmpty(params)
    x = embed(0).apply(params, tokens)
    np.testing.assert_array_equal(x, np.eye(V)[tokens])

  def test_an_id_that_is_not_in_the_table_gives_nan(self):
    table = np.ones([V, 3])
    x = embed(3).apply({"embedding": {"table": table}}, np.array([V - 1, V, 1000]))
    np.testing.assert_array_equal(np.isnan(x).all(axis=-1), [False, True, True])

  @parameterized.parameters(True, False)
  def test_its_gradient_adds_up_what_rows_are_given(self, forward_mode):
    """Ids -1 and V - 1 are one row, V and above none."""
    draw = np.random.RandomState(0)
    tokens = np.array([[0, 3, 3], [-1, V - 1, V]])
    table, slopes = draw.normal(size=[V, 3]), draw.normal(size=[2, 3, 3])
    rows = hk.without_apply_rng(hk.transform(
        lambda tokens: Embedding(V, 3, jnp.zeros, jnp.float64)(tokens, forward_mode)))

    def total(table):
      return (jnp.asarray(slopes) * jnp.sin(rows.apply({"embedding": {"table": table}}, tokens))
              )[:, :2].sum() + jnp.nansum(rows.apply({"embedding": {"table": table}}, tokens)[:, 2])

    expected, curved = np.zeros([V, 3]), np.zeros([V, 3])
    np.add.at(expected, tokens[:, :2] % V, (slopes * np.cos(table[tokens % V]))[:, :2])
    np.add.at(expected, [3], 1.0)
    np.add.at(curved, tokens[:, :2] % V, (-slopes * np.sin(table[tokens % V]))[:, :2])
    np.testing.assert_allclose(jax.grad(total)(table), expected, rtol=1e-13)
    second = jax.jit(jax.grad(lambda table: jax.grad(total)(table).sum()))(table)
    np.testing.assert_allclose(second, curved, rtol=1e-13)

  @unittest.skipIf(jax.__version_info__ < (0, 11), "its XLA drops barriers before it plans memory")
  def test_the_gradients_zeros_are_no_array_of_their_own_while_slopes_are_made(self):
    """As where a loss takes much memory and is done with it before the lookup's turn comes."""
    tokens, w = np.arange(64) % 50, np.ones([8, 4000])
    table = np.ones([4000, 8])

    def temporaries(forward_mode):
      def loss(table):
        rows = hk.without_apply_rng(hk.transform(
            lambda: Embedding(4000, 8, jnp.zeros, jnp.float64)(tokens, forward_mode)))
        return jnp.exp(rows.apply({"embedding": {"table": table}}) @ w).max(axis=1).sum()

      step = jax.jit(lambda table: table - jax.grad(loss)(table), donate_argnums=0)
      return step.lower(table).compile().memory_analysis().temp_size_in_bytes

    self.assertLessEqual(temporaries(False), temporaries(True) - 0.9 * table.nbytes)

  def test_without_forward_mode_it_is_refused_by_name(self):
    def rows(table):
      return hk.without_apply_rng(hk.transform(lambda: Embedding(V, 3, jnp.zeros, jnp.float64)(
          np.array([1]), forward_mode=False))).apply({"embedding": {"table": table}})

    table = np.ones([V, 3])
    with self.assertRaisesRegex(TypeError, "needed: lstm_impl=scan"):
      jax.jvp(rows, (table,), (table,))

  @parameterized.parameters((2, True), (3, False), (4, False))
  def test_few_ids_are_left_to_be_multiplied_out(self, ids, left):
    """Where 2 V < 3 E, E being 2."""
    tokens = np.array([[0, ids - 1, ids, -1]])

    def both(tokens):
      embedding = Embedding(ids, 2, hk.initializers.RandomNormal(), jnp.float64)
      return embedding(tokens), embedding.lookup(tokens)

    table = np.random.RandomState(0).normal(size=[ids, 2])
    (x, found), _ = hk.transform_with_state(both).apply(
        {"embedding": {"table": table}}, {}, None, tokens)
    self.assertEqual(isinstance(found, Lookup), left)
    if left:
      found = found.one_hot @ found.table
    np.testing.assert_array_equal(found, x)

  @parameterized.parameters(("uint8", 256), ("uint8", 300), ("int8", 200))
  def test_ids_of_a_type_that_v_does_not_fit(self, dtype, ids):
    """As they come from disk; a table as wide as V is not read at once."""
    def both(tokens):
      embedding = Embedding(ids, ids, hk.initializers.RandomNormal(), jnp.float64)
      return Embedding(ids, 0, None, jnp.float64)(tokens), embedding.lookup(tokens).one_hot

    tokens = np.array([0, 44, 100], dtype)
    for found in hk.testing.transform_and_run(both)(tokens):
      np.testing.assert_array_equal(found, np.arange(ids) == tokens[:, None])

  @parameterized.product(size=[0, 3], dtype=["float32", "bfloat16"])
  def test_dtype(self, size, dtype):
    f = embed(size, jnp.dtype(dtype))
    tokens = np.array([1, 2])
    params = f.init(jax.random.key(0), tokens)
    for leaf in jax.tree.leaves((params, f.apply(params, tokens))):
      self.assertEqual(leaf.dtype, jnp.dtype(dtype))

  def test_gradient_reaches_only_the_rows_read(self):
    tokens = np.array([1, 4, 4])
    params = {"embedding": {"table": np.ones([V, 2])}}
    gradient = jax.grad(lambda p: embed(2).apply(p, tokens).sum())(params)["embedding"]["table"]
    np.testing.assert_array_equal(gradient[:, 0], [0, 1, 0, 0, 2, 0])


if __name__ == "__main__":
  absltest.main()
