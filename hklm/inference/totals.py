"""Sums over lines that were scored: perplexities, bits per character, and how sure they are.

Counts and sums travel; divisions come last. Dimension letters: G groups of tokens, R resamples.
"""

import math
from typing import NamedTuple

import numpy as np

from hklm.inference.score import ScoredLine

BLOCK = 1000  # tokens of one text that are drawn together
RESAMPLES = 1000
_COUNTS = ("bits", "tokens", "words", "characters", "bytes")


class Sums(NamedTuple):
  """Of tokens whose surprisal is available.

  Attributes:
    bits: their surprisal.
    tokens: how many.
    words: how many words white space separates.
    characters: that they stand for, the end of a line being one.
    bytes: the same, in UTF-8.
  """

  bits: float
  tokens: int
  words: int
  characters: int
  bytes: int

  @property
  def perplexity(self) -> float:
    """2 to the bits per token."""
    return _power(self.bits, self.tokens)

  @property
  def perplexity_per_word(self) -> float:
    """2 to the bits per word; for a model of words, the same if every one is a token."""
    return _power(self.bits, self.words)

  @property
  def bits_per_character(self) -> float:
    return self.bits / self.characters if self.characters else math.nan

  @property
  def bits_per_byte(self) -> float:
    return self.bits / self.bytes if self.bytes else math.nan


class Interval(NamedTuple):
  """Where the figure of 95 % of resamples lies; NaN where there is no second group to draw."""

  low: float
  high: float


class Totals:
  """Adds up lines, as they come; with and without the ends of lines and unknown words."""

  def __init__(self, by_block: bool = False):
    """Nothing yet.

    Args:
      by_block: whether `interval` draws blocks of `BLOCK` tokens, as of lines that were read as one
        text, and not lines.
    """
    self._by_block = by_block
    self._groups = []  # arrays [4, 5]: with or without ends, unknown ones; the five counts
    self._open = np.zeros([4, len(_COUNTS), 0])  # tokens of a block that is not full
    self.lines = self.unavailable = 0
    self.unknown_examples = ()  # up to 10 different spellings, the first met

  def add(self, line: ScoredLine) -> np.ndarray:
    """Counts a line in; returns its own sums, float64 `[4, 5]`."""
    counts = _counted(line)  # [4, 5, N]
    self.lines += 1
    self.unavailable += int(np.isnan(line.surprisals).sum())
    if len(self.unknown_examples) < 10:
      spelled = (line.text[line.starts[n]:line.ends[n]] for n in np.flatnonzero(line.unknown))
      self.unknown_examples = tuple(dict.fromkeys([*self.unknown_examples, *spelled]))[:10]
    if not self._by_block:
      self._groups.append(counts.sum(axis=-1))
      return self._groups[-1]
    self._open = np.concatenate([self._open, counts], axis=-1)
    while self._open.shape[-1] >= BLOCK:
      self._groups.append(self._open[..., :BLOCK].sum(axis=-1))
      self._open = self._open[..., BLOCK:]
    return counts.sum(axis=-1)

  def sums(self, ends: bool = True, unknown: bool = True) -> Sums:
    """What all lines have together.

    Args:
      ends: whether the ends of lines count.
      unknown: whether unknown words count.
    """
    return sums_of(sum(self._all(), np.zeros([4, len(_COUNTS)])), ends, unknown)

  def interval(self, figure: str, ends: bool = True, unknown: bool = True) -> Interval:
    """The percentile interval of the bootstrap (Efron 1979): groups are drawn with replacement.

    Args:
      figure: the name of a property of `Sums`.
      ends: whether the ends of lines count.
      unknown: whether unknown words count.
    """
    groups = np.array(self._all()).reshape(-1, 4, len(_COUNTS))[:, _place(ends, unknown)]  # [G, 5]
    if len(groups) < 2:
      return Interval(math.nan, math.nan)
    generator = np.random.default_rng(0)
    shares = np.full(len(groups), 1 / len(groups))
    drawn = (generator.multinomial(len(groups), shares) @ groups for _ in range(RESAMPLES))
    found = [getattr(_sums(row), figure) for row in drawn]
    return Interval(*np.nanpercentile(found, [2.5, 97.5]).tolist())

  def _all(self):
    rest = [self._open.sum(axis=-1)] if self._open.shape[-1] else []
    return self._groups + rest


def sums_of(counts: np.ndarray, ends: bool = True, unknown: bool = True) -> Sums:
  """`Sums` of what `Totals.add` returns."""
  return _sums(counts[_place(ends, unknown)])


def _sums(row) -> Sums:
  return Sums(float(row[0]), *(int(count) for count in row[1:]))


def _place(ends, unknown):
  return 2 * (not ends) + (not unknown)


def _counted(line: ScoredLine) -> np.ndarray:
  """Counts of each token, `[4, 5, N]`: its characters and bytes with the gap before it."""
  N = len(line.surprisals)
  size = np.array([len(line.text), len(line.text.encode("utf-8", "surrogatepass"))])
  ends = np.array([line.ends, line.byte_ends])  # [2, N]
  if line.ended:
    ends[:, -1] = size + 1
  elif N:
    ends[:, -1] = size
  lengths = np.diff(ends, prepend=0)
  words = np.diff(line.words, prepend=-1) > 0
  if line.ended:
    words[-1] = False
  each = np.array([line.surprisals, np.ones(N), words, *lengths])  # [5, N]
  there = ~np.isnan(line.surprisals)
  is_end = np.zeros(N, bool)
  is_end[N - 1:] = line.ended
  kept = [there & (with_ends | ~is_end) & (with_unknown | ~line.unknown)
          for with_ends in (True, False) for with_unknown in (True, False)]
  return np.where(np.array(kept)[:, None], each, 0.0)


def _power(bits, count):
  if not count:
    return math.nan
  try:
    return 2 ** (bits / count)
  except OverflowError:
    return math.inf
