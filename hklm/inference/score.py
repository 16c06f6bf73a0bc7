"""Lines of text, scored: what every token, word and line costs, and where in the text it is.

Dimension letters: N tokens of a line.
"""

import collections
import functools
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hklm.data.base import Encoding, Tokenizer
from hklm.data.cuts import Part
from hklm.errors import InputError
from hklm.inference import places
from hklm.inference.predictions import Predictions, predict_lines
from hklm.inference.scored import Before, ScoredLine, TokenScore
from hklm.inference.streams import Reader, predict_stream
from hklm.model import LanguageModel

STARTS = ("eol", "state", "none")
_BATCH = 1 << 20  # characters of lines that are scored side by side


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
  parts = (Part(line, True) for line in lines)
  return scored_parts(lm, params, tokenizer, parts, start, carried, reader)


def scored_parts(lm: LanguageModel, params, tokenizer: Tokenizer, parts: Iterable[Part],
                 start: str = "eol", carried: bool = False, reader: Reader | None = None
                 ) -> Iterator[ScoredLine]:
  """The same of lines of any length, the long ones in parts, in memory that no line's length needs.

  A line in parts is read by itself, from part to part with the state carried.

  Args:
    lm, params, tokenizer, start, carried, reader: as for `scored_lines`.
    parts: of lines, as `hklm.data.cuts.lines` cuts them.

  Yields:
    A `ScoredLine` for each part, in their order.

  Raises:
    InputError: as `score`.
  """
  first = first_id(tokenizer, start)
  if reader is not None and not carried:
    raise InputError("found a reader for lines that are read each by itself; needed: carried=True")
  placed = _placed(tokenizer, parts)
  if carried:
    yield from _carried(lm, params, tokenizer, placed, start, first, reader)
    return
  batch, size = [], 0
  for part in placed:
    if part.last:
      batch.append(part)
      size += len(part.text) + 1
    if batch and not (part.last and size < _BATCH):
      yield from _side_by_side(lm, params, tokenizer, batch, start, first)
      batch, size = [], 0
    if not part.last:
      line = itertools.chain([part], _rest_of_line(placed))
      yield from _carried(lm, params, tokenizer, line, start, first)
  yield from _side_by_side(lm, params, tokenizer, batch, start, first)


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


class _Placed(NamedTuple):
  """A part of a line, encoded: its fields are those of `ScoredLine`."""

  number: int
  text: str
  last: bool
  before: Before
  encoding: Encoding


def _placed(tokenizer, parts) -> Iterator[_Placed]:
  number, before = 0, Before()
  for text, last in parts:
    encoding = encoded(tokenizer, text, number, last, before.characters)
    yield _Placed(number, text, last, before, encoding)
    if last:
      number, before = number + 1, Before()
    else:
      amounts = (len(encoding.ids), len(text), places.size(text), len(text.split()))
      before = Before(*map(operator.add, before, amounts))


def _rest_of_line(placed):
  for part in placed:
    yield part
    if part.last:
      return


def encoded(tokenizer: Tokenizer, text: str, number: int, last: bool = True, at: int = 0
            ) -> Encoding:
  """Ids and stretches of a line and its end.

  Args:
    tokenizer: the run's tokenizer.
    text: the line, or a part of it, without its line feed.
    number: of the line, for the message.
    last: whether the line ends with this part.
    at: where the part starts in its line, for the message.

  Raises:
    InputError: a line feed; what the tokenizer refuses.
  """
  if "\n" in text:
    raise InputError(f"line {number}, counted from 0: found a line feed at position "
                     f"{text.index(chr(10))}; needed: one line a text")
  try:
    ended = last and tokenizer.end_of_line is not None
    return tokenizer.encode_with_offsets(text + "\n" * ended, at)
  except InputError as error:
    raise InputError(f"line {number}, counted from 0: {error}") from error


def _side_by_side(lm, params, tokenizer, lines, start, first):
  """Whole lines, each by itself."""
  predictions = predict_lines(lm, params, [line.encoding.ids for line in lines], first)
  for line, its in zip(lines, predictions, strict=True):
    yield _scored(tokenizer, line, _without_first(its) if start == "none" else its)


def _carried(lm, params, tokenizer, parts, start, first, reader=None):
  """Parts as one text, be they of a line or of many."""
  unread = collections.deque()  # parts without predictions; `tee` would hold 57 that have theirs

  def ids():
    for part in parts:
      unread.append(part)
      yield part.encoding.ids

  names = ((unread[0].number, unread[0].before.tokens) for _ in itertools.repeat(None))
  for n, its in enumerate(predict_stream(lm, params, ids(), first, reader, names)):
    hidden = n == 0 and start == "none"
    yield _scored(tokenizer, unread.popleft(), _without_first(its) if hidden else its)


def _without_first(its) -> Predictions:
  """What nothing predicted is not available."""
  nats, entropies, ranks = (values.copy() for values in its)
  nats[:1] = entropies[:1] = np.nan
  ranks[:1] = 0
  return Predictions(nats, entropies, ranks)


def _scored(tokenizer, part, its) -> ScoredLine:
  number, text, last, before, encoding = part
  ids = encoding.ids
  ended = last and tokenizer.end_of_line is not None  # then it is the last id of every line
  characters, byte_places = places.both(text, encoding, tokenizer.reads_bytes)
  starts, ends = (np.minimum(found, len(text)) for found in characters)
  byte_starts, byte_ends = (np.minimum(found, places.size(text)) for found in byte_places)
  unknown = (np.zeros(len(ids), bool) if tokenizer.unknown is None
             else np.asarray(ids) == tokenizer.unknown)
  spell = functools.cache(tokenizer.symbol)
  return ScoredLine(
      number, text, [spell(int(token)) for token in ids], starts, ends, byte_starts, byte_ends,
      its.nats / math.log(2), its.entropies / math.log(2), its.ranks, unknown,
      places.words(text, starts), ended, last, before)
