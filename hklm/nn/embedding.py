"""Tokens to vectors."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
from jax import lax

from hklm.nn import varying
from hklm.nn.dropout import window_key
from hklm.nn.lstm import FORWARD_MODE
from hklm.nn.reverse_only import reverse_only


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

  def __call__(self, tokens: jax.Array, forward_mode: bool = True) -> jax.Array:
    """Tokens `[...]` to vectors `[..., E]`, or `[..., V]` one-hot.

    Args:
      tokens: ids; NaN for one that is none.
      forward_mode: whether `jax.jvp` works too; without it, the gradient of a table that is used
        for nothing else takes less memory.
    """
    tokens = _wide(tokens)
    if not self._size:
      return jax.nn.one_hot(tokens, self._vocab_size, dtype=self._dtype)
    if forward_mode:
      return _rows(self.table, tokens)
    return _rows_reverse(*varying.alike(reverse_only(self.table, FORWARD_MODE), tokens))

  def lookup(self, tokens: jax.Array, forward_mode: bool = True) -> Lookup | jax.Array:
    """As a call, but a `Lookup` where a layer above should multiply that out itself."""
    # Its products with W are, forward and backward, 2 of width V in place of 3 of width E.
    if 2 * self._vocab_size >= 3 * self._size:
      return self(tokens, forward_mode)
    tokens = _wide(tokens)
    tokens = jnp.where(tokens < 0, tokens + self._vocab_size, tokens)  # from the end, as `take`
    one_hot = jax.nn.one_hot(tokens, self._vocab_size, dtype=self._dtype)
    known = (tokens >= 0) & (tokens < self._vocab_size)
    return Lookup(jnp.where(known[..., None], one_hot, jnp.nan), self.table)


def row_dropout(x: jax.Array, tokens: jax.Array, vocab_size: int, rate: float) -> jax.Array:
  """Vectors of tokens, as if whole rows of their table had dropout (Gal and Ghahramani 2016, 4.2).

  Args:
    x: `[T, B, E]`.
    tokens: ids `[T, B]`.
    vocab_size: V.
    rate: the share of rows that are zero, drawn once; what stays is scaled by 1 / (1 - rate).
  """
  key = window_key(rate)
  if key is None:
    return x
  keep = jax.random.bernoulli(key, 1 - rate, [vocab_size])[_wide(tokens)]  # [T, B]
  return jnp.where(keep[..., None], x / (1 - rate), jnp.zeros_like(x))


def _rows(table, tokens):
  return jnp.take(table, tokens, axis=0, mode="fill")


# The gradient adds slopes to a table of zeros. XLA makes constants early, and on a CPU would keep
# those zeros [V, E] beside the logits all through the backward pass; here they are made of a zero
# that is there only when the slopes are (XLA of jax 0.10 sees through it). glibc keeps freed memory
# for the next step up to 32 MiB: with V 10,000, E = H 200 and 400 tokens the step takes 28 MiB in
# place of 36, and 43 ms in place of 55, of which 9,800 page faults were the rest.
_rows_reverse = jax.custom_vjp(_rows)


def _rows_forward(table, tokens):
  return _rows(table, tokens), (table, tokens)


def _rows_backward(kept, slopes):
  table, tokens = kept
  zero, slopes = lax.optimization_barrier(varying.alike(jnp.zeros([], table.dtype), slopes))
  return jnp.broadcast_to(zero, table.shape).at[tokens].add(slopes, mode="drop"), None


_rows_reverse.defvjp(_rows_forward, _rows_backward)


def _wide(tokens):
  """Ids in int32 or wider: V itself may be none of a narrow type's numbers."""
  return tokens.astype(jnp.promote_types(tokens.dtype, jnp.int32))
