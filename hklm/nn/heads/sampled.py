"""A softmax that training estimates from a sample of the tokens.

Dimension letters: S ids of a sample.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from hklm.nn import sharded
from hklm.nn.heads.linear import LinearHead


class SampledHead:
  """A linear head; where there is a key, what targets cost is estimated by importance sampling.

  Bengio and Senecal 2008, Jean et al. 2015. For logits l, a target y and S distinct ids i, of which
  each is in the sample with chance q_i, known exactly:

      nats = -l_y + log(exp(l_y) + sum over i != y of exp(l_i) / q_i)

  The sum is that over all other ids in expectation, and that itself if S is V. The sample is the
  same for all targets of a window; frequent ids are likelier in it, as if frequencies followed
  Zipf's law in the order of ids.
  """

  def __init__(self, linear: LinearHead, vocab_size: int, sampled_tokens: int):
    """`sampled_tokens`: S, or more."""
    self._linear, self._chances = linear, chances(vocab_size, sampled_tokens)

  def __call__(self, h: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """The linear head's logits `[..., V]` of h `[..., D]`."""
    return self._linear(h, table)

  def nats(self, h: jax.Array, targets: jax.Array, table: jax.Array | None = None) -> jax.Array:
    """What targets `[T, B]` cost after h `[T, B, D]`: estimated with a key, exact without."""
    key = hk.maybe_next_rng_key()
    if key is None:
      return self._linear.nats(h, targets, table)
    table, bias = self._linear.parameters(h.shape[-1], table)
    return sampled_nats(h, table, bias, targets, draw(key, self._chances), self._chances)


def chances(vocab_size: int, sampled_tokens: int) -> np.ndarray:
  """The chance of each id to be in a sample: `min(1, c log((i + 2) / (i + 1)))`, with sum S.

  Args:
    vocab_size: V.
    sampled_tokens: S; more than V count as V.

  Returns:
    float64 `[V]`, falling.

  >>> chances(4, 2).round(3).tolist()
  [0.861, 0.504, 0.357, 0.277]
  >>> chances(4, 4).tolist()
  [1.0, 1.0, 1.0, 1.0]
  """
  S = min(sampled_tokens, vocab_size)
  zipf = np.log1p(1 / np.arange(1, vocab_size + 1))
  left = np.cumsum(zipf[::-1])[::-1]  # of an id and all after it
  wanted = S - np.arange(vocab_size)  # of them, if all before it are certain
  certain = int(np.argmax(wanted * zipf <= left))
  result = np.ones(vocab_size)
  result[certain:] = wanted[certain] * zipf[certain:] / left[certain]
  return result


def draw(key: jax.Array, chances: np.ndarray) -> jax.Array:
  """Distinct ids, each with its chance exactly: systematic sampling (Madow 1949).

  The chances laid end to end make a line of length S; the sample is what lies at u, u + 1, u + 2
  and so on, for one random u in [0, 1). No id is longer than 1, so that none is met twice.

  Args:
    key: of this sample.
    chances: at most 1 each, with a whole sum S.

  Returns:
    `[S]`, rising.

  >>> draw(jax.random.key(0), np.ones(3)).tolist()
  [0, 1, 2]
  """
  ends = np.cumsum(chances)
  S = round(ends[-1])
  ends[-1] = S  # not a rounding error less
  # Split: a float32 cannot tell apart the ends of rare ids after thousands of others.
  whole = np.floor(ends)
  u = jax.random.uniform(key, dtype=jnp.float32)
  points = whole.astype(np.int32) + ((ends - whole).astype(np.float32) > u)  # up to the end
  return jnp.searchsorted(points, jnp.arange(S), side="right")


def sampled_nats(h: jax.Array, table: jax.Array, bias: jax.Array | None, targets: jax.Array,
                 ids: jax.Array, chances: jax.Array | np.ndarray) -> jax.Array:
  """An estimate of `linear_nats`; see `SampledHead`.

  Args:
    h: `[T, B, D]`.
    table: `W [V, D]`.
    bias: `b [V]`, or None.
    targets: ids `[T, B]`; one outside 0 to V - 1 gives NaN.
    ids: the sample, `[S]`, distinct.
    chances: of every id to be in it, `[V]`.

  Returns:
    `[T, B]`, in float32 or wider.

  >>> h, table, everything = jnp.ones([1, 2, 3]), jnp.zeros([4, 3]), np.ones(4)
  >>> sampled_nats(h, table, None, jnp.array([[0, 3]]), jnp.arange(4), everything).tolist()
  [[1.3862943649291992, 1.3862943649291992]]
  """
  V = len(table)
  targets = targets.astype(jnp.promote_types(targets.dtype, jnp.int32))
  own = (_wide(h) * _wide(table[targets])).sum(axis=-1)  # l_y
  offsets = -jnp.log(jnp.asarray(chances, own.dtype)[ids])
  if bias is not None:
    own, offsets = own + _wide(bias[targets]), offsets + _wide(bias[ids])
  # log of the sum over i != y
  others = sharded.by_device(
      _others, (sharded.STEPS, *[sharded.SHARED] * 3, sharded.STEPS), sharded.STEPS,
      targets.shape[1])(h, table[ids], offsets, ids, targets)
  nats = jnp.logaddexp(0, others - own)
  return jnp.where((targets >= 0) & (targets < V), nats, jnp.nan)


def _others(h, rows, offsets, ids, targets):
  flat = h.reshape(targets.size, h.shape[-1])
  logits = _wide(flat @ rows.T) + offsets  # [N, S]
  # Not -inf: where the target is all there is in the sample, that would make NaN of the gradient.
  logits = jnp.where(ids == targets.reshape(-1, 1), jnp.finfo(logits.dtype).min, logits)
  return jax.nn.logsumexp(logits, axis=1).reshape(targets.shape)


def _wide(x):
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))
