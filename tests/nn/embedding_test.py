"""Lookup against indexing, and one-hot vectors against a lookup."""

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
