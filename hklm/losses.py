"""What a model is charged for a token: softmax cross-entropy together with the output matrix.

Dimension letters: N tokens, V vocabulary, D what the output matrix reads.

Left to itself, autodiff keeps several arrays `[N, V]` and scatters into one. The rules here keep
`softmax(l) - onehot(y)`, for logits `l = W h + b` and targets y, or nothing of that shape where it
would be large: logits are made a block of the vocabulary at a time, and again for the derivative.
"""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from hklm.nn import sharded, varying

WHOLE_BYTES = 128 * 2**20  # logits [N, V] of up to this size are made all at once,
BLOCK_BYTES = 16 * 2**20  # larger ones in blocks of about this size, or of h's if that is more


class Loss(NamedTuple):
  """Unreduced losses, each `[T, B]`.

  Attributes:
    nats: `-log p(target)`.
    penalty: what regularisation adds for training; 0 for a plain model.
  """

  nats: jax.Array
  penalty: jax.Array


def token_nats(logits: jax.Array, targets: jax.Array) -> jax.Array:
  """`-log softmax(logits)[target]`, in nats.

  Args:
    logits: `[..., V]`.
    targets: ids `[...]`; one outside 0 to V - 1 gives NaN (ids are checked on the host).

  Returns:
    `[...]`, in float32 or wider: sums of bfloat16 losses would lose most of their digits.

  >>> token_nats(jnp.zeros([2, 4]), jnp.array([0, 3])).tolist()  # log 4
  [1.3862943649291992, 1.3862943649291992]
  """
  return _nats(_wide(logits), targets)


def linear_nats(h: jax.Array, table: jax.Array, bias: jax.Array | None, targets: jax.Array,
                columns: int = 0) -> jax.Array:
  """`-log softmax(W h + b)[target]`, in nats.

  Args:
    h: `[..., D]`.
    table: `W [V, D]`.
    bias: `b [V]`, or None.
    targets: ids `[...]`; one outside 0 to V - 1 gives NaN (ids are checked on the host).
    columns: ids whose logits are made at a time, at most V; 0: as many as is good.

  Returns:
    `[...]`, in float32 or wider: sums of bfloat16 losses would lose most of their digits.

  >>> h, table = jnp.ones([2, 3]), jnp.zeros([4, 3])
  >>> linear_nats(h, table, None, jnp.array([0, 3])).tolist()  # log 4
  [1.3862943649291992, 1.3862943649291992]
  """
  chex.assert_shape(h, (*targets.shape, table.shape[1]))
  columns = columns or _columns(targets.size, table)
  # Flat: with more dimensions, the derivative would multiply transposed copies.
  flat, ids = h.reshape(targets.size, h.shape[-1]), targets.reshape(-1)
  if not 1 <= columns <= len(table):
    raise ValueError(f"columns={columns} is out of range; needed: 0 to {len(table)}, the ids")
  if columns == len(table):
    logits = flat @ table.T
    nats = token_nats(logits if bias is None else lax.optimization_barrier(logits + bias), ids)
  else:
    largest, total, chosen = _sums(flat, table, bias, ids, columns)
    nats = jnp.log(total) - (chosen - largest)
  return nats.reshape(targets.shape)


def sharded_nats(h: jax.Array, table: jax.Array, bias: jax.Array | None, targets: jax.Array
                 ) -> jax.Array:
  """`linear_nats`, on a mesh of devices by each for its own rows and its part of the vocabulary.

  Args:
    h: `[T, B, D]`.
    table: `W [V, D]`.
    bias: `b [V]`, or None.
    targets: ids `[T, B]`; one outside 0 to V - 1 gives NaN.

  Returns:
    `[T, B]`, in float32 or wider.

  >>> sharded_nats(jnp.ones([1, 2, 3]), jnp.zeros([4, 3]), None, jnp.array([[0, 3]])).tolist()
  [[1.3862943649291992, 1.3862943649291992]]
  """
  B, parts = targets.shape[1], sharded.parts(sharded.VOCAB)
  cut = parts > 1 and not (len(table) % parts or B % sharded.parts(sharded.DATA))
  rows = P(sharded.VOCAB) if cut else sharded.SHARED
  return sharded.by_device(
      _nats_of_part if cut else linear_nats, (sharded.STEPS, rows, rows, sharded.STEPS),
      sharded.STEPS, B)(h, table, bias, targets)


def _nats_of_part(h, table, bias, targets):
  """Where a device has some rows of the table: no logit leaves it, only `[N]` sums do."""
  flat, ids = h.reshape(targets.size, h.shape[-1]), targets.reshape(-1)
  first = lax.axis_index(sharded.VOCAB) * len(table)
  place = ids - first
  columns = min(_columns(targets.size, table), len(table))
  largest, total, chosen = _sums(flat, table, bias, place, columns)
  most = lax.pmax(lax.stop_gradient(largest), sharded.VOCAB)
  mine = (place >= 0) & (place < len(table))
  total, chosen, found = lax.psum(
      (total * jnp.exp(largest - most), jnp.where(mine, chosen, 0), mine), sharded.VOCAB)
  nats = jnp.log(total) - (chosen - most)
  return jnp.where(found, nats, jnp.nan).reshape(targets.shape)


def _columns(N, table):
  """V, or the width of a block. Below D, a block would be narrow and h the larger array."""
  V, D = table.shape
  size = max(table.dtype.itemsize, 4)
  if N * V * size <= WHOLE_BYTES:
    return V
  blocks = -(-V // max(BLOCK_BYTES // (N * size), D))
  return -(-V // blocks)


def _wide(logits):
  return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


@jax.custom_jvp
def _nats(logits, targets):
  """`log(sum_v exp(l_v - m)) - (l_y - m)`, m the largest: exact where logits are huge."""
  nats, _, _ = _parts(logits, targets)
  return nats


@_nats.defjvp
def _slope(primals, tangents):
  (logits, targets), (moved, _) = primals, tangents
  nats, exponentials, total = _parts(logits, targets)
  hit = jnp.arange(logits.shape[-1]) == targets[..., None]
  return nats, ((exponentials / total[..., None] - hit) * moved).sum(axis=-1)


def _parts(logits, targets):
  """Nats `[N]`, `exp(l - m)` `[N, V]` and its sums `[N]`."""
  largest = logits.max(axis=-1, keepdims=True)
  chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1, mode="clip")
  # Once all that is wanted of the logits is there, the exponentials may be written over them.
  largest, chosen = lax.optimization_barrier((largest, chosen))
  exponentials = jnp.exp(logits - largest)
  total = exponentials.sum(axis=-1)
  nats = jnp.log(total) - (chosen - largest)[..., 0]
  # An int32: V itself may be none of a narrow type's numbers.
  valid = (targets >= 0) & (targets < jnp.int32(logits.shape[-1]))
  return jnp.where(valid, nats, jnp.nan), exponentials, total


@functools.partial(jax.custom_jvp, nondiff_argnums=(4,))
def _sums(h, table, bias, targets, columns):
  """The parts of `_nats`, from block to block: m, `sum_v exp(l_v - m)` and `l_y`, each `[N]`.

  The sum is scaled anew where a block has a larger m (Milakov and Gimelshein 2018, algorithm 3).
  """

  def add(sums, first):
    largest, total, chosen = sums
    logits, start = _block(h, table, bias, first, columns)
    now = jnp.maximum(largest, logits.max(axis=1))
    total = total * jnp.exp(largest - now) + jnp.exp(logits - now[:, None]).sum(axis=1)
    place = targets - start
    found = jnp.take_along_axis(logits, place[:, None], axis=1, mode="clip")[:, 0]
    chosen = jnp.where((first <= targets) & (place < columns), found, chosen)
    return (now, total, chosen), None

  dtype = jnp.result_type(jnp.float32, *jax.tree.leaves((h, table, bias)))
  # Not -inf: a block of nothing else would make NaN of it.
  of_none = (jnp.finfo(dtype).min, 0.0, jnp.nan)
  sums = tuple(jnp.full(len(h), value, dtype) for value in of_none)
  sums, *_ = varying.alike(sums, h, table, bias, targets)
  return lax.scan(add, sums, jnp.arange(0, len(table), columns))[0]


@_sums.defjvp
def _sums_slopes(columns, primals, tangents):
  """`sum_v exp(l_v - m) dl_v` and `dl_y`; nats do not depend on m, which counts as a constant."""
  (*inputs, targets), (*moves, _) = primals, tangents
  largest, total, chosen = _sums(*primals, columns)

  @functools.partial(jax.checkpoint, prevent_cse=False)  # in a scan there is nothing to prevent
  def add(slopes, first):
    logits, moved, start = jax.jvp(
        lambda *inputs: _block(*inputs, first, columns), inputs, moves, has_aux=True)
    ids = start + jnp.arange(columns)
    hit = jnp.where(ids < first, -1, ids) == targets[:, None]
    return (slopes[0] + (jnp.exp(logits - largest[:, None]) * moved).sum(axis=1),
            slopes[1] + jnp.where(hit, moved, 0).sum(axis=1)), None

  zeros = jnp.zeros_like(total)
  slopes, _ = lax.scan(add, (zeros, zeros), jnp.arange(0, len(inputs[1]), columns))
  return (largest, total, chosen), (zeros, *slopes)


def _block(h, table, bias, first, columns):
  """Logits `[N, columns]`, and which id is their first.

  The last block begins early, to be as wide as the others; what it has twice is -inf there.
  """
  start = jnp.minimum(first, len(table) - columns)
  part = functools.partial(lax.dynamic_slice_in_dim, start_index=start, slice_size=columns)
  seen = start + jnp.arange(columns) < first
  b = jnp.where(seen, -jnp.inf, 0 if bias is None else part(bias))
  return _wide(h @ part(table).T + b), start
