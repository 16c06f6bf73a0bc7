"""Lines of text, scored: what every token, word and line costs, and where in the text it is.

Dimension letters: N tokens of a line.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hklm.data.base import Encoding, Tokenizer
from hklm.errors import InputError
from hklm.inference import places
from hklm.inference.predictions import Predictions, predict_lines
from hklm.inference.streams import Reader, predict_stream
from hklm.model import LanguageModel

STARTS = ("eol", "state", "none")
_ROWS = 1 << 12  # rows that are made at a time
_BATCH = 1 << 20  # characters of lines that are scored side by side


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


class ScoredLine(NamedTuple):
  """A line as arrays.

  Attributes:
    number: its index, from 0.
    text: its characters, without the end of the line.
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

  def tokens(self) -> Iterator[TokenScore]:
    """A row a token."""
    reductions = self.entropies[:-1] - self.entropies[1:]
    columns = (self.starts, self.ends, self.byte_starts, self.byte_ends, self.surprisals,
               self.entropies[:-1], reductions, np.maximum(reductions, 0), self.ranks,
               self.unknown, self.words)
    for start in range(0, len(self.symbols), _ROWS):  # a long line's numbers are no objects at once
      block = slice(start, start + _ROWS)
      rows = zip(self.symbols[block], *(column[block].tolist() for column in columns), strict=True)
      for index, row in enumerate(rows, start):
        yield TokenScore(self.number, index, *row)

  def by_word(self) -> Iterator[WordScore]:
    """A row a word."""
    borders = np.flatnonzero(np.diff(self.words, prepend=-1, append=-1))
    for first, after in itertools.pairwise(borders.tolist()):
      reduction = float(self.entropies[first] - self.entropies[after])
      start, end = int(self.starts[first]), int(self.ends[after - 1])
      text = self.text[start:end]
      start += len(text) - len(text.lstrip())
      byte_end = int(self.byte_ends[after - 1])
      ending = self.ended and after == len(self.words)
      yield WordScore(
          self.number, int(self.words[first]), self.symbols[-1] if ending else text.strip(),
          start, end, byte_end - len(self.text[start:end].encode("utf-8", "surrogatepass")),
          byte_end, math.fsum(self.surprisals[first:after]), float(self.entropies[first]),
          reduction, max(reduction, 0.0), after - first, bool(self.unknown[first:after].any()))


def score(lm: LanguageModel, params, tokenizer: Tokenizer, lines: Sequence[str],
          start: str = "eol") -> list[TokenScore]:
  """One row a token; each line by itself, its end the last token where the tokenizer has one.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    tokenizer: the run's tokenizer.
    lines: texts without line feeds, any number of any length.
    start: what is before the first token: `eol`, the end of a line; `state`, nothing, and the
      initial state predicts it; `none`, nothing, and its figures are not available.

  Returns:
    Rows in the order of the lines; see `scored_lines` for more lines than memory has room for.

  Raises:
    InputError: a result that is not finite, a line that the tokenizer refuses, a line feed, a
      string in place of lines.

  >>> import hklm, jax, jax.numpy as jnp
  >>> from hklm.data import tokenizers
  >>> tokenizer = tokenizers.build(hklm.TokenizerConfig("char"), ["abc\\n"])
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> for row in score(lm, zeros, tokenizer, ["ab", ""]):
  ...   print(*row[:5], round(row.surprisal_bits, 6))
  0 0 a 0 1 2.0
  0 1 b 1 2 2.0
  0 2 \\n 2 2 2.0
  1 0 \\n 0 0 2.0
  """
  if isinstance(lines, str):
    raise InputError(f"found the string {lines[:40]!r}; needed: a list of lines")
  return [row for line in scored_lines(lm, params, tokenizer, lines, start)
          for row in line.tokens()]


def scored_lines(lm: LanguageModel, params, tokenizer: Tokenizer, lines: Iterable[str],
                 start: str = "eol", carried: bool = False, reader: Reader | None = None
                 ) -> Iterator[ScoredLine]:
  """The same, line by line: about a million characters at a time are in memory.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    tokenizer: the run's tokenizer.
    lines: texts without line feeds.
    start: as for `score`; with `carried`, of the first line alone.
    carried: whether a line is read after the one before it, as one text.
    reader: of `carried`, how it is read; None: by the model as it is.

  Yields:
    A `ScoredLine` for each, in their order.

  Raises:
    InputError: as `score`.
  """
  first = first_id(tokenizer, start)
  numbered = enumerate(lines)
  if carried:
    yield from _carried(lm, params, tokenizer, numbered, start, first, reader)
    return
  if reader is not None:
    raise InputError("found a reader for lines that are read each by itself; needed: carried=True")
  for batch in _batches(numbered):
    encodings = [encoded(tokenizer, text, number) for number, text in batch]
    ids = [encoding.ids for encoding in encodings]
    for (number, text), encoding, its in zip(
        batch, encodings, predict_lines(lm, params, ids, first), strict=True):
      yield _line(tokenizer, number, text, encoding, _without_first(its) if start == "none"
                  else its)


def first_id(tokenizer: Tokenizer, start: str) -> int | None:
  """The id that is fed first, if one is.

  Args:
    tokenizer: the run's tokenizer.
    start: one of `STARTS`.

  Raises:
    InputError: another start; no end of a line, where that is to be fed.
  """
  if start not in STARTS:
    raise InputError(f"--start={start} is unknown; needed: {', '.join(STARTS)}")
  if start != "eol":
    return None
  if tokenizer.end_of_line is None:
    raise InputError("--start=eol: the tokenizer knows no end of line, because the text that it "
                     "was made from had none; needed: --start=state or --start=none")
  return tokenizer.end_of_line


def _batches(numbered):
  """Lists of numbered lines with about `_BATCH` characters."""
  batch, size = [], 0
  for number, text in numbered:
    batch.append((number, text))
    size += len(text) + 1
    if size >= _BATCH:
      yield batch
      batch, size = [], 0
  if batch:
    yield batch


def encoded(tokenizer: Tokenizer, text: str, number: int) -> Encoding:
  """Ids and stretches of a line and its end.

  Args:
    tokenizer: the run's tokenizer.
    text: the line, without its line feed.
    number: of the line, for the message.

  Raises:
    InputError: a line feed; what the tokenizer refuses.
  """
  if "\n" in text:
    raise InputError(f"line {number}, counted from 0: found a line feed at position "
                     f"{text.index(chr(10))}; needed: one line a text")
  try:
    return tokenizer.encode_with_offsets(text if tokenizer.end_of_line is None else text + "\n")
  except InputError as error:
    raise InputError(f"line {number}, counted from 0: {error}") from error


def _carried(lm, params, tokenizer, numbered, start, first, reader):
  lines = ((number, text, encoded(tokenizer, text, number)) for number, text in numbered)
  lines, kept = itertools.tee(lines)
  ids = (encoding.ids for *_, encoding in lines)
  predictions = predict_stream(lm, params, ids, first, reader)
  for (number, text, encoding), its in zip(kept, predictions, strict=True):
    hidden = number == 0 and start == "none"
    yield _line(tokenizer, number, text, encoding, _without_first(its) if hidden else its)


def _without_first(its) -> Predictions:
  """What nothing predicted is not available."""
  nats, entropies, ranks = (values.copy() for values in its)
  nats[:1] = entropies[:1] = np.nan
  ranks[:1] = 0
  return Predictions(nats, entropies, ranks)


def _line(tokenizer, number, text, encoding, its) -> ScoredLine:
  ids = encoding.ids
  ended = tokenizer.end_of_line is not None  # then it is the last id of every line
  characters, byte_places = places.both(text, encoding, tokenizer.reads_bytes)
  starts, ends = (np.minimum(found, len(text)) for found in characters)
  byte_starts, byte_ends = (np.minimum(found, places.size(text)) for found in byte_places)
  unknown = (np.zeros(len(ids), bool) if tokenizer.unknown is None
             else np.asarray(ids) == tokenizer.unknown)
  spell = functools.cache(tokenizer.symbol)
  return ScoredLine(
      number, text, [spell(int(token)) for token in ids], starts, ends, byte_starts, byte_ends,
      its.nats / math.log(2), its.entropies / math.log(2), its.ranks, unknown,
      places.words(text, starts), ended)
