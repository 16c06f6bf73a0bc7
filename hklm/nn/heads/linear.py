"""One softmax over all tokens."""

import haiku as hk
import jax

from hklm.losses import sharded_nats
from hklm.nn.product import times


class LinearHead(hk.Module):
  """`logits = W h + b`, with a table of its own or the embedding's (Press and Wolf 2017)."""

  def __init__(self, vocab_size: int, inits: dict[str, hk.initializers.Initializer], dtype,
               bias: bool = True, name: str = "head"):
    super().__init__(name=name)
    self._vocab_size, self._inits, self._dtype, self._bias = vocab_size, inits, dtype, bias

  def __call__(self, h: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """Scores every token.

    Args:
      h: `[..., D]`.
      table: the tied `[V, D]`, or None for a table of its own.

    Returns:
      `[..., V]`.
    """
    table, bias = self.parameters(h.shape[-1], table)
    logits = times(h, table)
    return logits if bias is None else logits + bias

  def nats(self, h: jax.Array, targets: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """What targets `[T, B]` cost, `[T, B]`, the logits of h `[T, B, D]` made in blocks."""
    return sharded_nats(h, *self.parameters(h.shape[-1], table), targets)

  def parameters(self, size: int, table: jax.Array | None = None
                 ) -> tuple[jax.Array, jax.Array | None]:
    """`W [V, D]`, the tied table if there is one, and `b [V]` or None; D is `size`."""
    if table is None:
      table = hk.get_parameter("w", [self._vocab_size, size], self._dtype, self._inits["output"])
    bias = None
    if self._bias:
      bias = hk.get_parameter("b", [self._vocab_size], self._dtype, self._inits["output_bias"])
    return table, bias
