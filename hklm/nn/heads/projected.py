"""A head that reads less than the stack puts out."""

import abc
from typing import Protocol

import haiku as hk
import jax

from hklm.nn.product import times


class Head(Protocol):
  """What every head is; see `hklm.nn.heads`."""

  @abc.abstractmethod
  def __call__(self, h: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """Logits `[..., V]` of h `[..., D]`."""

  @abc.abstractmethod
  def nats(self, h: jax.Array, targets: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """What targets `[T, B]` cost, `[T, B]`, after h `[T, B, D]`."""


class Projected(hk.Module):
  """Another head, over `W h` (the down-projection of Melis et al. 2018, which has no bias).

  It lets the width of the stack differ from that of a tied table.
  """

  def __init__(self, head: Head, size: int, init: hk.initializers.Initializer, dtype,
               name: str = "projection"):
    super().__init__(name=name)
    self._head, self._size, self._init, self._dtype = head, size, init, dtype

  def __call__(self, h: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """Scores every token.

    Args:
      h: `[..., D]`.
      table: the tied `[V, E]`, or None for a table of its own.

    Returns:
      `[..., V]`.
    """
    return self._head(self._projected(h), table)

  def nats(self, h: jax.Array, targets: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """What targets `[T, B]` cost, `[T, B]`, after h `[T, B, D]`."""
    return self._head.nats(self._projected(h), targets, table)

  def _projected(self, h):
    w = hk.get_parameter("w", [self._size, h.shape[-1]], self._dtype, self._init)
    return times(h, w)
