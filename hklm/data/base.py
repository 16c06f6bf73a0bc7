"""What every tokenizer is: an immutable value that turns text into ids and back."""

import abc
import codecs
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

import numpy as np

from hklm.errors import InputError

FORMAT_VERSION = 1


class Encoding(NamedTuple):
  """Ids of a text and the stretch of the original text each one stands for.

  Attributes:
    ids: `[N]`, the tokens.
    starts: `[N]` int64, where each token's stretch starts.
    ends: `[N]` int64, where it ends (exclusive).
  """

  ids: np.ndarray
  starts: np.ndarray
  ends: np.ndarray


def id_dtype(vocab_size: int) -> np.dtype:
  """The smallest unsigned integer type that holds the ids `0 .. vocab_size - 1`.

  >>> [id_dtype(v).name for v in (256, 257, 65536, 65537)]
  ['uint8', 'uint16', 'uint16', 'uint32']
  """
  for dtype in (np.uint8, np.uint16):
    if vocab_size <= np.iinfo(dtype).max + 1:
      return np.dtype(dtype)
  return np.dtype(np.uint32)


class Tokenizer(abc.ABC):
  """The contract. Subclasses are frozen dataclasses: equal by content, safe to share.

  Attributes:
    kind: `char`, `byte`, `word` or `bpe`.
    reads_bytes: whether it reads a file's raw bytes instead of decoded text.
    vocab_size: V, the number of ids.
    unknown: id of the unknown word, or None where there is none.
    end_of_line: id of the end of a line, or None where there is none.
  """

  kind: ClassVar[str]
  added: ClassVar[tuple[str, ...]] = ()  # fields that JSON has only where they are not the default
  reads_bytes: ClassVar[bool] = False
  unknown: int | None = None
  end_of_line: int | None = None

  @property
  @abc.abstractmethod
  def vocab_size(self) -> int:
    """V, the number of ids."""

  @abc.abstractmethod
  def encode(self, text: str, at: int = 0) -> np.ndarray:
    """Ids of a text.

    Args:
      text: any string, the empty one included.
      at: where `text` starts in the text it was cut from; only for positions in messages.

    Returns:
      `[N]` of type `id_dtype(vocab_size)`.

    Raises:
      InputError: a character or word that the vocabulary lacks, where nothing stands for it.
    """

  @abc.abstractmethod
  def encode_with_offsets(self, text: str, at: int = 0) -> Encoding:
    """Ids of a text with the offsets of each one's stretch of `text`; `at` as for `encode`."""

  @abc.abstractmethod
  def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
    """Text, a piece an id, as soon as it is certain."""

  @abc.abstractmethod
  def symbol(self, token: int) -> str:
    """A printable spelling of one id."""

  def decode(self, ids: Iterable[int]) -> str:
    """The text of ids: the pieces of `decode_stream`, joined."""
    return "".join(self.decode_stream(ids))

  def to_json(self) -> dict:
    """All there is to know, as JSON values; `hklm.data.tokenizers.from_json` reads it back."""
    fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)
              if field.name not in self.added or getattr(self, field.name) != field.default}
    return {"format": FORMAT_VERSION, "kind": self.kind, **fields}

  @functools.cached_property
  def fingerprint(self) -> str:
    """SHA-256 of the content, in hexadecimal: equal exactly when the tokenizers are."""
    content = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode("ascii")).hexdigest()

  def _check(self, token: int) -> int:
    if not 0 <= token < self.vocab_size:  # a negative index would quietly read from the end
      raise InputError(f"found id {token}, needed 0 to {self.vocab_size - 1}: these ids belong to "
                       "another tokenizer")
    return int(token)


def decode_utf8(pieces: Iterable[bytes]) -> Iterator[str]:
  """Decodes UTF-8 whose code points may be split over pieces.

  Args:
    pieces: the bytes of one token each.

  Yields:
    One string a piece: "" while a code point is incomplete. What can never become valid is U+FFFD,
    and so is a code point that is still incomplete after the last piece (one string more).

  >>> list(decode_utf8([b"a", b"\\xc3", b"\\xa9", b"\\xe2"]))
  ['a', '', 'é', '', '\\ufffd']
  """
  decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
  for piece in pieces:
    yield decoder.decode(piece)
  if tail := decoder.decode(b"", final=True):
    yield tail


def utf8(text: str, at: int = 0) -> bytes:
  """UTF-8 of a text; a lone surrogate, which has none, is refused by position."""
  try:
    return text.encode("utf-8")
  except UnicodeEncodeError as error:
    raise InputError(f"found {describe(text[error.start])} at position {at + error.start}: half a "
                     "surrogate pair is not text; check --encoding") from None


def describe(character: str) -> str:
  """A character with its code point, for messages.

  >>> print(describe("é"), describe(chr(10)))
  'é' (U+00E9) '\\n' (U+000A)
  """
  return f"{character!r} (U+{ord(character):04X})"


def printable(text: str | bytes) -> str:
  """Text on one line: what cannot be printed is escaped.

  >>> print(printable("tab\\t"), printable(b"\\xc3\\xa9"), printable(b"\\xc3"))
  tab\\t é \\xc3
  """
  if isinstance(text, bytes):
    text = text.decode("utf-8", errors="backslashreplace")
  return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
