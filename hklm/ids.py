"""Token ids as NumPy arrays: checked on the host before compiled code reads them, and laid out."""

from collections.abc import Iterator

import numpy as np

from hklm.errors import InputError

BLOCK = 1 << 20  # ids checked at a time, so that a memory map is never read whole


def check_ids(ids, vocab_size: int):
  """Refuses ids that a model of this vocabulary cannot read.

  Compiled code would clamp them, or give NaN, in silence.

  Args:
    ids: integers `[N]`, an array or a memory map.
    vocab_size: V; ids run from 0 to V - 1.

  Raises:
    InputError: not one-dimensional, not integers, or an id out of range (with its position).

  >>> check_ids(np.array([0, 5, 2]), 5)
  Traceback (most recent call last):
  hklm.errors.InputError: id 5 at position 1 is outside the vocabulary of 5; needed: 0 to 4
  """
  ids = np.asanyarray(ids)
  if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
    raise InputError(f"ids are {ids.dtype} of shape {list(ids.shape)}; needed: integers [N]")
  for start in range(0, len(ids), BLOCK):
    block = ids[start:start + BLOCK]
    bad = np.flatnonzero((block < 0) | (block >= vocab_size))
    if len(bad):
      raise InputError(f"id {block[bad[0]]} at position {start + bad[0]} is outside the vocabulary "
                       f"of {vocab_size}; needed: 0 to {vocab_size - 1}")


def cover(ids: np.ndarray, streams: int,
          window: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Windows of S streams that together score each of the N - 1 targets exactly once.

  Stream s has the targets from `s * ceil((N - 1) / S)` on; the last streams may be shorter, even
  empty. All windows have one shape, for one compilation; what is padded (with id 0) is masked.

  Args:
    ids: `[N]`, an array or memory map.
    streams: S.
    window: T, targets in a window.

  Returns:
    An iterator over `(tokens, mask)`: int32 `[T + 1, S]`, bool `[T, S]`. `mask[t, s]` says that
    `tokens[t + 1, s]` is a target with its input `tokens[t, s]`.

  Raises:
    InputError: fewer than 2 ids.

  >>> for tokens, mask in cover(np.arange(1, 7), streams=2, window=2):
  ...   print(tokens.T.tolist(), mask.T.astype(int).tolist())
  [[1, 2, 3], [4, 5, 6]] [[1, 1], [1, 1]]
  [[3, 4, 0], [0, 0, 0]] [[1, 0], [0, 0]]
  """
  if streams < 1 or window < 1:
    raise InputError(f"found {streams} streams and a window of {window}, needed at least 1 each")
  if len(ids) < 2:
    raise InputError(f"nothing to score: found {len(ids)} tokens, needed at least 2, the first of "
                     "which is only read")
  return _cover(ids, streams, window)


def _cover(ids, streams, window):
  targets = len(ids) - 1
  each = -(-targets // streams)
  starts = np.arange(streams) * each
  ends = np.minimum(starts + each, targets)
  for start in range(0, each, window):
    places = start + np.arange(window + 1)[:, None] + starts
    mask = places[:-1] < ends
    # A stream reads one token more than it has targets, and nothing if it has none.
    read = np.concatenate([mask[:1], mask])
    tokens = np.zeros(places.shape, np.int32)
    tokens[read] = ids[places[read]]
    yield tokens, mask
