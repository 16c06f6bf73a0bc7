"""Tokens to vectors."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp


class Lookup(NamedTuple):
  """Vectors `one_hot @ table` not yet multiplied out, for whoever multiplies them again.

  With few ids, `one_hot @ (table @ W)` is cheaper than `(one_hot @ table) @ W`, and so is its
  derivative.

  Attributes:
    one_hot: `[T, B, V]`.
    table: `[V, E]`.
  """

  one_hot: jax.Array
  table: jax.Array


class Embedding(hk.Module):
  """A table of vectors, `x = E[token]`, or one-hot vectors where its width is 0."""

  def __init__(self, vocab_size: int, size: int, init: hk.initializers.Initializer, dtype,
               name: str = "embedding"):
    super().__init__(name=name)
    self._vocab_size, self._size, self._init, self._dtype = vocab_size, size, init, dtype

  @property
  def table(self) -> jax.Array:
    """`[V, E]`."""
    return hk.get_parameter("table", [self._vocab_size, self._size], self._dtype, self._init)

  def __call__(self, tokens: jax.Array) -> jax.Array:
    """Tokens `[...]` to vectors `[..., E]`, or `[..., V]` one-hot."""
    tokens = _wide(tokens)
    if not self._size:
      return jax.nn.one_hot(tokens, self._vocab_size, dtype=self._dtype)
    return jnp.take(self.table, tokens, axis=0, mode="fill")

  def lookup(self, tokens: jax.Array) -> Lookup | jax.Array:
    """As a call, but a `Lookup` where a layer above should multiply that out itself."""
    # Its products with W are, forward and backward, 2 of width V in place of 3 of width E.
    if 2 * self._vocab_size >= 3 * self._size:
      return self(tokens)
    tokens = _wide(tokens)
    tokens = jnp.where(tokens < 0, tokens + self._vocab_size, tokens)  # from the end, as `take`
    one_hot = jax.nn.one_hot(tokens, self._vocab_size, dtype=self._dtype)
    known = (tokens >= 0) & (tokens < self._vocab_size)
    return Lookup(jnp.where(known[..., None], one_hot, jnp.nan), self.table)


def _wide(tokens):
  """Ids in int32 or wider: V itself may be none of a narrow type's numbers."""
  return tokens.astype(jnp.promote_types(tokens.dtype, jnp.int32))
