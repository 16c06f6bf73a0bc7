"""Tokenizers with an id for each character, or for each byte."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np

from hklm.data import base
from hklm.errors import InputError


@dataclasses.dataclass(frozen=True)
class CharTokenizer(base.Tokenizer):
  """One id a character (a code point).

  There is no unknown symbol: a character that is not in the alphabet is an error.

  Attributes:
    alphabet: all characters, in the order of their ids; `build` makes it ascending.

  >>> tokenizer = CharTokenizer("abc")
  >>> tokenizer.encode("cab").tolist(), tokenizer.decode([2, 0, 1])
  ([2, 0, 1], 'cab')
  >>> tokenizer.encode("bad")
  Traceback (most recent call last):
  hklm.errors.InputError: found 'd' (U+0064) at position 2, which is not among the 3 characters \
of the vocabulary; leave it out, train on text that has it, or with --tokenizer=byte
  """

  alphabet: str
  kind: ClassVar[str] = "char"

  def __post_init__(self):
    if not self.alphabet:
      raise InputError("found no text, needed at least one character; check --corpus")
    if len(set(self.alphabet)) < len(self.alphabet):
      raise InputError("tokenizer: a character is in the alphabet twice")

  @classmethod
  def build(cls, chunks: Iterable[str]) -> "CharTokenizer":
    """The tokenizer of all characters that occur in a text.

    >>> CharTokenizer.build(["hello", "hat"]).alphabet
    'aehlot'
    """
    return cls("".join(sorted(set().union(*map(set, chunks)))))

  @property
  def vocab_size(self) -> int:
    return len(self.alphabet)

  @functools.cached_property
  def end_of_line(self) -> int | None:
    return self.alphabet.index("\n") if "\n" in self.alphabet else None

  @functools.cached_property
  def _id_of_code(self) -> np.ndarray:
    """Id of each code point, -1 for none; the last row stands for all greater code points."""
    codes = _codes(self.alphabet)
    table = np.full(codes.max() + 2, -1, np.int32)
    table[codes] = np.arange(len(codes))
    return table

  def encode(self, text: str, at: int = 0) -> np.ndarray:
    codes = _codes(text)
    ids = self._id_of_code[np.minimum(codes, len(self._id_of_code) - 1)]
    unseen = np.flatnonzero(ids < 0)
    if unseen.size:
      raise InputError(
          f"found {base.describe(text[unseen[0]])} at position {at + unseen[0]}, which is not "
          f"among the {self.vocab_size} characters of the vocabulary; leave it out, train on text "
          "that has it, or with --tokenizer=byte")
    return ids.astype(base.id_dtype(self.vocab_size))

  def encode_with_offsets(self, text: str, at: int = 0) -> base.Encoding:
    """Ids of a text; token n is the character `text[n]`."""
    starts = np.arange(len(text))
    return base.Encoding(self.encode(text, at), starts, starts + 1)

  def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
    for token in ids:
      yield self.alphabet[self._check(token)]

  def symbol(self, token: int) -> str:
    return base.printable(self.alphabet[self._check(token)])


@dataclasses.dataclass(frozen=True)
class ByteTokenizer(base.Tokenizer):
  """256 ids: a token is a byte, of a file as it is, or of a string's UTF-8.

  Nothing is unknown to it: it reads any file, in any encoding.

  >>> ByteTokenizer().encode("é").tolist(), ByteTokenizer().decode([195, 169])
  ([195, 169], 'é')
  """

  kind: ClassVar[str] = "byte"
  reads_bytes: ClassVar[bool] = True
  vocab_size: ClassVar[int] = 256
  end_of_line: ClassVar[int] = ord("\n")

  def encode(self, text: str | bytes, at: int = 0) -> np.ndarray:
    data = base.utf8(text, at) if isinstance(text, str) else text
    return np.frombuffer(data, np.uint8)

  def encode_with_offsets(self, text: str | bytes, at: int = 0) -> base.Encoding:
    """Ids of a text; offsets count bytes (of a string's UTF-8), not characters."""
    ids = self.encode(text, at)
    starts = np.arange(len(ids))
    return base.Encoding(ids, starts, starts + 1)

  def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
    """Text, a piece an id; see `base.decode_utf8` for split and invalid code points."""
    return base.decode_utf8(bytes([self._check(token)]) for token in ids)

  def symbol(self, token: int) -> str:
    return base.printable(bytes([self._check(token)]))


def _codes(text: str) -> np.ndarray:
  """Code points `[N]`; lone surrogates are code points like others."""
  return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
