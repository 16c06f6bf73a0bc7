"""Adaptive softmax: rare tokens in clusters, which have narrow tables.

Dimension letters: C cutoffs.
"""

from collections.abc import Sequence

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.losses import sharded_nats
from hklm.nn.product import times

SHRINK = 4  # each cluster's table is so many times narrower than the one before


class AdaptiveHead(hk.Module):
  """Grave et al. 2017, as PyTorch's `AdaptiveLogSoftmaxWithLoss`, with `div_value=4`.

  Tokens have ids in the order of their frequency. For one below the first cutoff, or cluster n
  with the ids from c_n to c_{n+1} - 1, of which `u` is one:

      p(token) = softmax(W h + b)[token]
      p(u) = softmax(W h + b)[c_1 + n - 1] softmax(U_n P_n h)[u - c_n],   P_n [D / 4^n, D]

  It saves parameters and, in training, memory; every cluster is computed for every token.
  """

  def __init__(self, vocab_size: int, cutoffs: Sequence[int],
               inits: dict[str, hk.initializers.Initializer], dtype, bias: bool = True,
               name: str = "head"):
    """`cutoffs`: c_1 to c_C, rising, the first id of each cluster."""
    super().__init__(name=name)
    self._cutoffs, self._ends = tuple(cutoffs), (*cutoffs[1:], vocab_size)
    self._inits, self._dtype, self._bias = inits, dtype, bias

  def __call__(self, h: jax.Array, table: None = None) -> jax.Array:
    """The log-probability of every token.

    Args:
      h: `[..., D]`.
      table: None: there is none that could be tied.

    Returns:
      `[..., V]`.
    """
    w, b, tails = self._parameters(h.shape[-1])
    logits = times(h, w)
    first = _log_softmax(logits if b is None else logits + b)  # [..., c_1 + C]
    common = self._cutoffs[0]
    parts = [first[..., :common]]
    for n, (down, own) in enumerate(tails):
      cluster = first[..., common + n, None]
      parts.append(cluster + _log_softmax(times(times(h, down), own)))
    return jnp.concatenate(parts, axis=-1).astype(h.dtype)

  def nats(self, h: jax.Array, targets: jax.Array, table: None = None) -> jax.Array:
    """What targets `[T, B]` cost, `[T, B]`, after h `[T, B, D]`."""
    w, b, tails = self._parameters(h.shape[-1])
    targets = targets.astype(jnp.promote_types(targets.dtype, jnp.int32))
    cluster = jnp.searchsorted(jnp.array(self._cutoffs), targets, side="right")  # 0: common
    nats = sharded_nats(h, w, b, jnp.where(cluster > 0, self._cutoffs[0] + cluster - 1, targets))
    for n, (low, (down, own)) in enumerate(zip(self._cutoffs, tails, strict=True), 1):
      inside = cluster == n
      its = sharded_nats(times(h, down), own, None, jnp.where(inside, targets - low, 0))
      nats += jnp.where(inside, its, jnp.zeros_like(its))
    return nats

  def _parameters(self, size):
    """`W [c_1 + C, D]`, `b` or None, and `P_n`, `U_n` of each cluster."""
    def matrix(name, *shape):
      return hk.get_parameter(name, shape, self._dtype, self._inits["output"])

    rows = self._cutoffs[0] + len(self._cutoffs)
    w, b = matrix("w", rows, size), None
    if self._bias:
      b = hk.get_parameter("b", [rows], self._dtype, self._inits["output_bias"])
    tails = []
    for n, (low, end) in enumerate(zip(self._cutoffs, self._ends, strict=True), 1):
      narrow = size // SHRINK**n
      tails.append((matrix(f"p_{n}", narrow, size), matrix(f"u_{n}", end - low, narrow)))
    return w, b, tails


def _log_softmax(logits):
  return jax.nn.log_softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))
