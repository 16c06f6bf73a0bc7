"""Ids to windows: contiguous streams for training.

Everything is time-major. Windows overlap by one token: `inputs = w[:-1]`, `targets = w[1:]`.
"""

import dataclasses

import numpy as np

from hklm.errors import InputError


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
    times = np.arange(start, min(start + self.length, self.targets) + 1)
    columns = range(self.batch_size) if self.columns is None else self.columns
    starts = np.array(columns) * self.targets
    return self.ids[times[:, None] + starts].astype(np.int32)
