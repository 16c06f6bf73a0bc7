"""A mixture of softmaxes.

Dimension letters: K components, E the width of the table.
"""

import haiku as hk
import jax
import jax.numpy as jnp
from jax import lax

from hklm.nn.dropout import dropout
from hklm.nn.heads.linear import LinearHead
from hklm.nn.product import times


class MixtureHead(hk.Module):
  """Yang et al. 2018, section 2.3, in log space:

      pi = softmax(W_pi h)
      z_k = tanh(W_k h + b_k)
      p = sum_k pi_k softmax(W z_k + b)
  """

  def __init__(self, linear: LinearHead, components: int, size: int,
               inits: dict[str, hk.initializers.Initializer], dtype, rate: float = 0.0,
               per_step: bool = False, name: str = "mixture"):
    """`linear`: W, perhaps tied, and b; `components`: K; `size`: E; dropout on all z."""
    super().__init__(name=name)
    self._linear, self._components, self._size = linear, components, size
    self._inits, self._dtype, self._rate, self._per_step = inits, dtype, rate, per_step

  def __call__(self, h: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """The log-probability of every token.

    Args:
      h: `[..., D]`.
      table: the tied `[V, E]`, or None for a table of its own.

    Returns:
      `[..., V]`.
    """
    z, log_pi = self._parts(h)
    table, bias = self._linear.parameters(self._size, table)

    def log_p(z, log_pi):
      logits = times(z, table)
      return log_pi[..., None] + _log_softmax(logits if bias is None else logits + bias)

    # One after the other: K arrays [..., V] would be there at once.
    first = log_p(z[0], log_pi[0])
    total, _ = lax.scan(lambda total, its: (jnp.logaddexp(total, log_p(*its)), None), first,
                        (z[1:], log_pi[1:]))
    return total.astype(h.dtype)

  def nats(self, h: jax.Array, targets: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """What targets `[T, B]` cost, `[T, B]`, the logits of h `[T, B, D]` made in blocks.

    Of each softmax only the target's probability is wanted: they are read like longer windows.
    """
    z, log_pi = self._parts(h)
    K, T, B, E = z.shape
    nats = self._linear.nats(z.reshape(K * T, B, E), jnp.tile(targets, [K, 1]), table)
    return -jax.nn.logsumexp(log_pi - nats.reshape(K, T, B), axis=0)

  def _parts(self, h):
    """`z [K, ..., E]` and `log pi [K, ...]`."""
    K, E, D = self._components, self._size, h.shape[-1]
    w_pi = hk.get_parameter("w_pi", [K, D], self._dtype, self._inits["output"])
    w_k = hk.get_parameter("w_k", [K * E, D], self._dtype, self._inits["output"])
    b_k = hk.get_parameter("b_k", [K * E], self._dtype, self._inits["output_bias"])
    z = dropout(jnp.tanh(times(h, w_k) + b_k), self._rate, self._per_step)
    z = z.reshape(*h.shape[:-1], K, E)
    return jnp.moveaxis(z, -2, 0), jnp.moveaxis(_log_softmax(times(h, w_pi)), -1, 0)


def _log_softmax(logits):
  return jax.nn.log_softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))
