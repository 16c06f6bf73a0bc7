"""Where a text may be cut so that its parts have the same tokens as the whole.

That is just after a line feed, where every tokenizer ends a token; or, in lines too long to hold,
before a single space between two other characters, where no word ends or starts differently and a
byte-level BPE piece starts. Only where there is no such place for `LIMIT` characters a cut may fall
anywhere.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

CHUNK = 1 << 18  # characters: the size of pieces
LIMIT = 1 << 19  # characters: the longest piece
PART = 1 << 16  # characters of a line that are held together, where there is a place to cut


class Part(NamedTuple):
  """A stretch of a line, most often all of it; `last`: whether the line ends with it."""

  text: str
  last: bool


def lines(pieces: Iterable[str], size: int = PART) -> Iterator[Part]:
  """The lines of a text, without their line feeds; nothing but a line feed ends one.

  Args:
    pieces: the text, cut anywhere.
    size: longer lines are in several parts, as `cut` cuts them, of twice as many at most.

  Yields:
    Parts, only that of an empty line empty.

  >>> [tuple(part) for part in lines(["to b", "e\\n\\nor not"], size=3)]
  [('to', False), (' be', True), ('', True), ('or', False), (' not', True)]
  """
  held = ""
  for piece in pieces:
    *ended, held = (held + piece).split("\n")
    for line in ended:
      *parts, last = cut([line], size, 2 * size) if line else [""]
      yield from (Part(part, False) for part in parts)
      yield Part(last, True)
    if len(held) > size:
      *parts, held = cut([held], size, 2 * size)
      yield from (Part(part, False) for part in parts)
  if held:
    yield Part(held, True)


def whole(parts: Iterable[Part]) -> Iterator[str]:
  """The lines of `lines`, put together.

  >>> list(whole(lines(["to b", "e\\n\\nor not"], size=3)))
  ['to be', '', 'or not']
  """
  held = []
  for text, last in parts:
    held.append(text)
    if last:
      yield "".join(held)
      held = []


def cut(pieces: Iterable[str], size: int = CHUNK, limit: int = LIMIT) -> Iterator[str]:
  """The same text in pieces that tokenize as the whole does.

  Args:
    pieces: a text, cut anywhere.
    size: pieces have at most this many characters, where there is a place to cut.
    limit: where there is none, they have at most this many.

  Yields:
    Pieces, none of them empty.

  >>> list(cut(["one\\ntwo th", "ree\\nfour"], size=8))
  ['one\\n', 'two', ' three\\n', 'four']
  """
  held = ""
  for piece in pieces:
    held += piece
    while len(held) > size:
      end = last_cut(held, size) or next_cut(held[:limit], size)
      if not end and len(held) <= limit:
        break
      end = end or limit
      yield held[:end]
      held = held[end:]
  if held:
    yield held


def last_cut(text: str, stop: int) -> int:
  """The last place to cut at or before `stop`: after a line feed, or else before a space.

  Args:
    text: with at least one character after `stop`.
    stop: above 0.

  Returns:
    The place, or 0 if there is none.

  >>> last_cut("ab\\ncd ef", 6), last_cut("ab cd ef", 4), last_cut("ab  cd", 5)
  (3, 2, 0)
  """
  if end := text.rfind("\n", 0, stop) + 1:
    return end
  space = text.rfind(" ", 1, stop + 1)
  while space > 0 and not _splits(text, space):
    space = text.rfind(" ", 1, space)
  return max(space, 0)


def next_cut(text: str, start: int) -> int:
  """The first place to cut at or after `start`: after a line feed, or else before a space.

  A line feed that ends the text does not count: nothing would be left after it.

  Args:
    text: with at least one character before `start`.
    start: above 0.

  Returns:
    The place, or 0 if there is none.

  >>> next_cut("ab cd\\nef\\n", 2), next_cut("ab cd\\n", 1), next_cut("abcd", 2)
  (6, 2, 0)
  """
  if end := text.find("\n", start - 1, len(text) - 1) + 1:
    return end
  space = text.find(" ", start)
  while space > 0 and not _splits(text, space):
    space = text.find(" ", space + 1)
  return max(space, 0)


def _splits(text: str, space: int) -> bool:
  around = text[space - 1:space] + text[space + 1:space + 2]
  return len(around) == 2 and not any(map(str.isspace, around))
