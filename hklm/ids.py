"""Token ids as NumPy arrays: checked on the host, once, before compiled code reads them."""

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
