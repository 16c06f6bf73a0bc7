"""What was found of a line: as arrays, and as rows, one a token or one a word.

Dimension letters: N tokens of a line.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_ROWS = 1 << 12  # rows that are made at a time


class TokenScore(NamedTuple):
  """A token of a line. What is not available is NaN, of the rank 0.

  Attributes:
    line: the line's index, from 0.
    index: the token's index in its line, from 0.
    token: its printable spelling.
    char_start: offset of its first character in the line.
    char_end: offset after its last character.
    byte_start: the same in the line's UTF-8.
    byte_end: the same.
    surprisal_bits: `-log2 p(token | what is before it)`.
    entropy_bits: of the distribution that it was drawn from.
    entropy_reduction_bits: that, less the entropy after the token; it may be negative.
    entropy_reduction_bits_max0: the same, or 0 where it is negative (Hale 2006).
    rank: 1 and how many tokens were more probable.
    unknown: whether it stands for a word that the vocabulary lacks.
    word: the index of its word in the line: words are what white space separates, and have the
      white space before them; what is after the last, and the end of the line, come as one more.
  """

  line: int
  index: int
  token: str
  char_start: int
  char_end: int
  byte_start: int
  byte_end: int
  surprisal_bits: float
  entropy_bits: float
  entropy_reduction_bits: float
  entropy_reduction_bits_max0: float
  rank: int
  unknown: bool
  word: int


class WordScore(NamedTuple):
  """A word of a line: the sum over its tokens.

  Attributes:
    line, char_start, char_end, byte_start, byte_end: as in `TokenScore`.
    word: the word's index in its line, as there.
    text: its characters, without the white space before it; of the end of a line, its spelling.
    surprisal_bits: `-log2 p(its tokens | what is before them)`.
    entropy_bits, entropy_reduction_bits, entropy_reduction_bits_max0: as in `TokenScore`, before
      its first token and after its last.
    tokens: how many.
    unknown: whether one of them is unknown.
  """

  line: int
  word: int
  text: str
  char_start: int
  char_end: int
  byte_start: int
  byte_end: int
  surprisal_bits: float
  entropy_bits: float
  entropy_reduction_bits: float
  entropy_reduction_bits_max0: float
  tokens: int
  unknown: bool


class Before(NamedTuple):
  """How much of a line is before a part of it."""

  tokens: int = 0
  characters: int = 0
  bytes: int = 0
  words: int = 0


class ScoredLine(NamedTuple):
  """A line as arrays; or a part of one, in which offsets and words count from the part's start.

  Attributes:
    number: the line's index, from 0.
    text: the characters, without the end of the line.
    symbols: `[N]`, the tokens' printable spellings.
    starts: offsets of the tokens' first characters, int64 `[N]`.
    ends: after their last, int64 `[N]`.
    byte_starts: the same in the line's UTF-8, int64 `[N]`.
    byte_ends: the same, int64 `[N]`.
    surprisals: bits, float64 `[N]`; NaN where not available.
    entropies: bits, of what is predicted before each token and after the last, float64 `[N + 1]`.
    ranks: int64 `[N]`; 0 where not available.
    unknown: bool `[N]`.
    words: int64 `[N]`, as `TokenScore.word`.
    ended: whether the last token is the end of the line.
    last: whether the line ends with this part.
    before: how much of the line is before this part.
  """

  number: int
  text: str
  symbols: list[str]
  starts: np.ndarray
  ends: np.ndarray
  byte_starts: np.ndarray
  byte_ends: np.ndarray
  surprisals: np.ndarray
  entropies: np.ndarray
  ranks: np.ndarray
  unknown: np.ndarray
  words: np.ndarray
  ended: bool
  last: bool = True
  before: Before = Before()

  def tokens(self) -> Iterator[TokenScore]:
    """A row a token."""
    reductions = self.entropies[:-1] - self.entropies[1:]
    tokens, characters, in_bytes, words = self.before
    columns = (characters + self.starts, characters + self.ends, in_bytes + self.byte_starts,
               in_bytes + self.byte_ends, self.surprisals, self.entropies[:-1], reductions,
               np.maximum(reductions, 0), self.ranks, self.unknown, words + self.words)
    for start in range(0, len(self.symbols), _ROWS):  # a long line's numbers are no objects at once
      block = slice(start, start + _ROWS)
      rows = zip(self.symbols[block], *(column[block].tolist() for column in columns), strict=True)
      for index, row in enumerate(rows, tokens + start):
        yield TokenScore(self.number, index, *row)

  def by_word(self) -> Iterator[WordScore]:
    """A row a word."""
    _, characters, in_bytes, words = self.before
    borders = np.flatnonzero(np.diff(self.words, prepend=-1, append=-1))
    for first, after in itertools.pairwise(borders.tolist()):
      reduction = float(self.entropies[first] - self.entropies[after])
      start, end = int(self.starts[first]), int(self.ends[after - 1])
      text = self.text[start:end]
      start += len(text) - len(text.lstrip())
      byte_end = int(self.byte_ends[after - 1])
      ending = self.ended and after == len(self.words)
      yield WordScore(
          self.number, words + int(self.words[first]),
          self.symbols[-1] if ending else text.strip(), characters + start, characters + end,
          in_bytes + byte_end - len(self.text[start:end].encode("utf-8", "surrogatepass")),
          in_bytes + byte_end, math.fsum(self.surprisals[first:after]),
          float(self.entropies[first]), reduction, max(reduction, 0.0), after - first,
          bool(self.unknown[first:after].any()))
