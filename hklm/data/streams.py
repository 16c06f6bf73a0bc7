"""Ids to windows: contiguous streams for training.

Everything is time-major. Windows overlap by one token: `inputs = w[:-1]`, `targets = w[1:]`.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from hklm.errors import InputError


class Window(NamedTuple):
  """What one update reads.

  Attributes:
    ids: int32 `[t + 1, B]`.
    length: how many of its t steps are live, the first ones; None: all.
    first: whether an epoch starts with it.
    last: whether an epoch ends with it.
  """

  ids: np.ndarray
  length: int | None
  first: bool
  last: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Streams:
  """B contiguous streams side by side, in windows of T targets.

  Of N ids every stream has `L = (N - 1) // B` targets: stream b is `ids[b L : b L + L + 1]`. It
  shares its last token, a target only, with the first of the next. Window i follows window i - 1 in
  every stream, so that a recurrent state carries over; any window can be had by its number, so that
  a run can resume.

  Attributes:
    ids: `[N]`, an array or memory map.
    batch_size: B.
    length: T, targets in a window; the last window may have fewer.
    columns: which of the B streams windows have, and are read; None: all.

  Raises:
    InputError: fewer than `B * T + 1` ids.

  >>> streams = Streams(np.arange(12), batch_size=2, length=3)
  >>> len(streams), streams.left_out
  (2, 1)
  >>> streams[0].T.tolist()
  [[0, 1, 2, 3], [5, 6, 7, 8]]
  >>> streams[1].T.tolist()
  [[3, 4, 5], [8, 9, 10]]
  >>> Streams(np.arange(12), batch_size=2, length=3, columns=range(1, 2))[1].T.tolist()
  [[8, 9, 10]]
  """

  ids: np.ndarray
  batch_size: int
  length: int
  columns: range | None = None

  def __post_init__(self):
    if self.batch_size < 1 or self.length < 1:
      raise InputError(f"found --batch_size={self.batch_size} --bptt={self.length}, needed at "
                       "least 1 each")
    needed = self.batch_size * self.length + 1
    if len(self.ids) < needed:
      raise InputError(
          f"found {len(self.ids)} tokens, needed {needed} for --batch_size={self.batch_size} "
          f"--bptt={self.length}; lower one of them, or give more text")

  @property
  def targets(self) -> int:
    """L, targets in each stream."""
    return (len(self.ids) - 1) // self.batch_size

  @property
  def left_out(self) -> int:
    """Targets at the end that no stream has, in an epoch."""
    return len(self.ids) - 1 - self.batch_size * self.targets

  def __len__(self) -> int:
    return -(-self.targets // self.length)

  def __getitem__(self, window: int) -> np.ndarray:
    """Window number `window`: int32 `[t + 1, B]` (or the columns of it), t = T but for the last."""
    if not 0 <= window < len(self):
      raise IndexError(f"found window {window}, needed 0 to {len(self) - 1}")
    start = window * self.length
    return self.read(start, min(self.length, self.targets - start))

  def at(self, number: int) -> Window:
    """The window that update `number`, from 0, reads: one after the other, epoch after epoch.

    >>> window = Streams(np.arange(12), batch_size=2, length=3).at(3)
    >>> window.ids.T.tolist(), window.length, window.first, window.last
    ([[3, 4, 5], [8, 9, 10]], None, False, True)
    """
    place = number % len(self)
    return Window(self[place], None, place == 0, place == len(self) - 1)

  def updates_in(self, epochs: int) -> int:
    """Windows in so many epochs."""
    return epochs * len(self)

  def read(self, start: int, count: int) -> np.ndarray:
    """So many targets of each stream from number `start` on, and the id before: `[count + 1, B]`.

    >>> Streams(np.arange(12), batch_size=2, length=3).read(3, 1).tolist()
    [[3, 8], [4, 9]]
    """
    times = np.arange(start, start + count + 1)
    columns = range(self.batch_size) if self.columns is None else self.columns
    starts = np.array(columns) * self.targets
    return self.ids[times[:, None] + starts].astype(np.int32)
