"""Tokens to vectors."""

import haiku as hk
import jax
import jax.numpy as jnp


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
    if not self._size:
      return jax.nn.one_hot(tokens, self._vocab_size, dtype=self._dtype)
    return jnp.take(self.table, tokens, axis=0, mode="fill")
