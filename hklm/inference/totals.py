"""Sums over lines that were scored: perplexities, bits per character, and how sure they are.

Counts and sums travel; divisions come last. Dimension letters: G groups of tokens, R resamples.
"""

import math
from typing import NamedTuple

import numpy as np

from hklm.inference.scored import ScoredLine

BLOCK = 1000  # tokens of one text that are drawn together
RESAMPLES = 1000
_COUNTS = ("bits", "tokens", "words", "characters", "bytes", "word_bits")


class Sums(NamedTuple):
  """Of tokens whose surprisal is available.

  Attributes:
    bits: their surprisal.
    tokens: how many.
    words: how many of the words that white space separates have no other tokens.
    characters: that they stand for, the end of a line being one.
    bytes: the same, in UTF-8.
    word_bits: the surprisal of those words and of the ends of lines.
  """

  bits: float
  tokens: int
  words: int
  characters: int
  bytes: int
  word_bits: float

  @property
  def perplexity(self) -> float:
    """2 to the bits per token."""
    return _power(self.bits, self.tokens)

  @property
  def perplexity_per_word(self) -> float:
    """2 to `word_bits` per word."""
    return _power(self.word_bits, self.words)

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
    self._groups = []  # arrays [4, 6]: with or without ends, unknown ones; the counts
    self._open = np.zeros([4, len(_COUNTS), 0])  # tokens of a block that is not full
    self._line = np.zeros([4, len(_COUNTS)])  # of the parts of a line that has not ended
    self.lines = self.unavailable = self.unknown = 0
    self.unknown_examples = ()  # up to 10 different spellings, the first met

  def add(self, line: ScoredLine) -> np.ndarray:
    """Counts a line, or a part of one, in; returns the line's sums so far, float64 `[4, 6]`."""
    each, kept, whole = _counted(line)
    self.lines += line.last
    self.unknown += int(line.unknown.sum())
    self.unavailable += int(np.isnan(line.surprisals).sum())
    if len(self.unknown_examples) < 10:
      spelled = (line.text[line.starts[n]:line.ends[n]] for n in np.flatnonzero(line.unknown))
      self.unknown_examples = tuple(dict.fromkeys([*self.unknown_examples, *spelled]))[:10]
    sums = self._line + _of_words(kept @ each.T, whole @ each.T)
    self._line = np.zeros_like(sums) if line.last else sums
    if not self._by_block:
      if line.last:
        self._groups.append(sums)
      return sums
    for start in range(0, each.shape[-1], BLOCK):  # a long line's counts [4, 6, N] are large
      its = slice(start, start + BLOCK)
      counts = _of_words(kept[:, None, its] * each[:, its], whole[:, None, its] * each[:, its])
      self._open = np.concatenate([self._open, counts], axis=-1)
      if self._open.shape[-1] >= BLOCK:
        self._groups.append(self._open[..., :BLOCK].sum(axis=-1))
        self._open = self._open[..., BLOCK:]
    return sums

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
    groups = np.array(self._all()).reshape(-1, 4, len(_COUNTS))[:, _place(ends, unknown)]  # [G, 6]
    if len(groups) < 2:
      return Interval(math.nan, math.nan)
    generator = np.random.default_rng(0)
    shares = np.full(len(groups), 1 / len(groups))
    drawn = (generator.multinomial(len(groups), shares) @ groups for _ in range(RESAMPLES))
    found = np.array([getattr(_sums(row), figure) for row in drawn])
    found = found[~np.isnan(found)]  # of resamples that have what it is divided by
    if not len(found):
      return Interval(math.nan, math.nan)
    if np.isinf(found).any():  # between a number and infinity there is none
      return Interval(*(float(np.percentile(found, percent, method=method))
                        for percent, method in ((2.5, "lower"), (97.5, "higher"))))
    return Interval(*np.percentile(found, [2.5, 97.5]).tolist())

  def _all(self):
    rest = [self._open.sum(axis=-1)] if self._open.shape[-1] else []
    return self._groups + rest


def sums_of(counts: np.ndarray, ends: bool = True, unknown: bool = True) -> Sums:
  """`Sums` of what `Totals.add` returns."""
  return _sums(counts[_place(ends, unknown)])


def _sums(row) -> Sums:
  return Sums(float(row[0]), *(int(count) for count in row[1:-1]), float(row[-1]))


def _place(ends, unknown):
  return 2 * (not ends) + (not unknown)


def _counted(line: ScoredLine) -> np.ndarray:
  """What is counted of each token, `[6, N]`, its characters and bytes with the gap before it; which
  are kept `[4, N]`; which of those are not of a word of which some are not, `[4, N]`."""
  N = len(line.surprisals)
  size = np.array([len(line.text), len(line.text.encode("utf-8", "surrogatepass"))])
  ends = np.array([line.ends, line.byte_ends])  # [2, N]
  if line.ended:
    ends[:, -1] = size + 1
  elif N:
    ends[:, -1] = size
  lengths = np.diff(ends, prepend=0)
  begins = np.diff(line.words, prepend=-1) > 0
  in_words = line.words < len(line.text.split())  # what is behind the last word is none
  if line.ended:
    in_words[-1] = False
  there = ~np.isnan(line.surprisals)
  bits = np.where(there, line.surprisals, 0.0)
  each = np.array([bits, np.ones(N), begins & in_words, *lengths, bits])
  is_end = np.zeros(N, bool)
  is_end[N - 1:] = line.ended
  kept = [there & (with_ends | ~is_end) & (with_unknown | ~line.unknown)
          for with_ends in (True, False) for with_unknown in (True, False)]
  whole = [its & ~(np.isin(line.words, line.words[~its & in_words]) & in_words) for its in kept]
  return each, np.array(kept), np.array(whole)


def _of_words(kept, whole):
  """Counts `[4, 6, ...]`; words and their bits are those of words that are whole."""
  found = kept.copy()
  places = [_COUNTS.index("words"), _COUNTS.index("word_bits")]
  found[:, places] = whole[:, places]
  return found


def _power(bits, count):
  if not count:
    return math.nan
  try:
    return 2 ** (bits / count)
  except OverflowError:
    return math.inf
