"""Windows of random length, in shapes of which there are only a few."""

import dataclasses
import functools

import numpy as np

from hklm.data.streams import Streams, Window

LEAST, SPREAD = 5, 5.0  # the shortest window, the standard deviation of lengths
HALVED = 0.05  # chance of a window of about half the length
GRAIN, OVER = 10, 20  # ids come in multiples of GRAIN steps, up to OVER more than T


@dataclasses.dataclass(frozen=True, eq=False)
class RandomStreams:
  """B contiguous streams side by side, in windows of about T targets.

  Merity et al. 2017, section 5, with the numbers of their code. A window has
  `max(5, int(Normal(s, 5)))` targets, at most T + 20, where s is T with probability 0.95, else
  T / 2; the last of an epoch has what is left. Its ids are padded to the next multiple of 10 steps
  (T + 20 at most), so that no more than T / 10 + 3 shapes are compiled. Lengths depend on seed and
  epoch alone: any window can be had by its number, so that a run can resume.

  Attributes:
    streams: the streams; their `length` is T.
    seed: of the lengths.

  >>> windows = RandomStreams(Streams(np.arange(201), batch_size=2, length=12), seed=0)
  >>> [windows.at(n).length for n in range(windows.updates_in(1))]
  [9, 10, 8, 11, 11, 18, 8, 13, 12]
  >>> windows.at(0).ids.shape  # of 10 steps, the last of them padding
  (11, 2)
  """

  streams: Streams
  seed: int

  @property
  def left_out(self) -> int:
    """Targets at the end that no stream has, in an epoch."""
    return self.streams.left_out

  def at(self, number: int) -> Window:
    """The window that update `number`, from 0, reads: one after the other, epoch after epoch."""
    starts, lengths = self._plan(number + 1)
    start, length = int(starts[number]), int(lengths[number])
    longest = self.streams.length + OVER
    ids = self.streams.read(start, length)
    steps = min(-(-length // GRAIN) * GRAIN, longest)
    return Window(np.pad(ids, [(0, steps - length), (0, 0)]), length, start == 0,
                  start + length == self.streams.targets)

  def updates_in(self, epochs: int) -> int:
    """Windows in so many epochs, the first ones."""
    starts, _ = self._plan(0, epochs + 1)
    return int(np.flatnonzero(starts == 0)[epochs])

  def _plan(self, windows: int, epochs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of the windows of so many epochs or more, in which are so many windows."""
    # Epochs are doubled, so that all that is drawn on the way is no more than is drawn at last.
    epochs = 1 << (epochs - 1).bit_length()
    while len((plan := _drawn(self.streams.targets, self.streams.length, self.seed, epochs))[0]
              ) < windows:
      epochs *= 2
    return plan


@functools.lru_cache(maxsize=64)
def _drawn(targets, length, seed, epochs):
  """Of each window of the first `epochs` epochs: the number of its first target, its length."""
  starts, lengths = [], []
  for epoch in range(epochs):
    draw = np.random.default_rng((seed, epoch))
    ends = np.zeros(1, int)
    while ends[-1] < targets:
      more = targets // length + 8
      about = np.where(draw.random(more) < HALVED, length / 2, length)
      drawn = np.clip(draw.normal(about, SPREAD).astype(int), LEAST, length + OVER)
      ends = np.append(ends, ends[-1] + np.cumsum(drawn))
    ends = np.append(ends[ends < targets], targets)
    starts.append(ends[:-1])
    lengths.append(np.diff(ends))
  return np.concatenate(starts), np.concatenate(lengths)
