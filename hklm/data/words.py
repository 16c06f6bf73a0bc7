"""A tokenizer with an id for each word."""

import collections
import dataclasses
import functools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np

from hklm.config import TokenizerConfig
from hklm.data import base
from hklm.errors import InputError


@dataclasses.dataclass(frozen=True)
class WordTokenizer(base.Tokenizer):
  """One id a word, where words are what white space separates.

  The control symbols come first (the unknown word, then the end of a line), unless `control_ids`
  says where they are; then the words, those of `build` the most frequent first. A control symbol is
  not a word: where the text has the characters `<unk>`, that is a word like others, unless
  `symbols_in_text` says that the text was prepared so.

  Decoding joins words by single spaces: other white space is lost.

  Attributes:
    words: the ordinary words, in the order of their ids; they have those that the control symbols
      leave.
    unknown_symbol: spelling of the unknown word; empty: an unseen word is an error.
    end_of_line_symbol: spelling of the end of a line, one at each line feed; empty: line feeds are
      only white space.
    lowercase: words are looked up in lower case.
    split_punctuation: every punctuation mark and symbol (Unicode categories P and S) is a word of
      its own, except the underscore, and hyphens and apostrophes inside a word.
    symbols_in_text: the words `<unk>` and `<eos>` in the text are the control symbols.
    control_ids: the ids of the control symbols that there are, the unknown word's first; empty: the
      first ids.

  >>> tokenizer = WordTokenizer(("the", "cat"))
  >>> tokenizer.encode("the dog\\n").tolist(), tokenizer.decode([2, 0, 1])
  ([2, 0, 1], 'the <unk>\\n')
  """

  words: tuple[str, ...]
  unknown_symbol: str = "<unk>"
  end_of_line_symbol: str = "<eos>"
  lowercase: bool = False
  split_punctuation: bool = False
  symbols_in_text: bool = False
  control_ids: tuple[int, ...] = ()
  kind: ClassVar[str] = "word"
  added: ClassVar[tuple[str, ...]] = ("control_ids",)

  def __post_init__(self):
    for word in (*self.words, *self._controls):
      if word.split() != [word]:
        raise InputError(f"tokenizer: found the word {word!r}, needed characters without space")
    if len(set(self.words)) < len(self.words) or len(set(self._controls)) < len(self._controls):
      raise InputError("tokenizer: two words or two control symbols have the same spelling")
    count = len(self._controls)
    if self.control_ids and (len(set(self.control_ids)) != count or len(self.control_ids) != count
                             or not all(0 <= i < self.vocab_size for i in self.control_ids)):
      raise InputError(f"tokenizer: found control_ids {self.control_ids!r:.80}, needed an id below "
                       f"{self.vocab_size} for each of {count} control symbols")
    if self.control_ids == tuple(range(count)):  # what is the same is equal
      object.__setattr__(self, "control_ids", ())

  @classmethod
  def build(cls, config: TokenizerConfig, chunks: Iterable[str]) -> "WordTokenizer":
    """The tokenizer of a text's words, limited as `config` says; ties go by spelling.

    Raises:
      InputError: no words; or a limit without an unknown symbol to stand for what it drops.

    >>> config = TokenizerConfig("word", vocab_size=4)
    >>> WordTokenizer.build(config, ["a rose is a rose\\n"]).words
    ('a', 'rose')
    """
    if not config.unknown and (config.min_count > 1 or config.vocab_size):
      raise InputError(
          f"--min_count={config.min_count} --vocab_size={config.vocab_size} drop words, and "
          "--unknown is empty: name a symbol for them, or drop the limits")
    rules = cls((), config.unknown, config.end_of_line, config.lowercase,
                config.split_punctuation, config.symbols_in_text)
    counts = collections.Counter()
    for chunk in chunks:
      for word, count in collections.Counter(rules._pattern.findall(chunk)).items():
        if word not in rules._control_ids:
          counts[word.lower() if config.lowercase else word] += count
    if not counts:
      raise InputError("found no words, needed at least one; check --corpus")
    words = sorted(counts, key=lambda word: (-counts[word], word))
    words = [word for word in words if counts[word] >= config.min_count]
    if config.vocab_size:
      room = config.vocab_size - len(rules._controls)
      if room < 1:
        raise InputError(f"--vocab_size={config.vocab_size} leaves no room for words beside "
                         f"{len(rules._controls)} control symbols; raise it")
      words = words[:room]
    return dataclasses.replace(rules, words=tuple(words))

  @property
  def vocab_size(self) -> int:
    return len(self._controls) + len(self.words)

  @property
  def unknown(self) -> int | None:
    return self._places[0] if self.unknown_symbol else None

  @property
  def end_of_line(self) -> int | None:
    return self._places[-1] if self.end_of_line_symbol else None

  @property
  def _controls(self) -> tuple[str, ...]:
    return tuple(filter(None, (self.unknown_symbol, self.end_of_line_symbol)))

  @functools.cached_property
  def _places(self) -> tuple[int, ...]:
    """The id of each control symbol."""
    return self.control_ids or tuple(range(len(self._controls)))

  @functools.cached_property
  def _spellings(self) -> tuple[str, ...]:
    """Of every id."""
    spellings = list(self.words)
    for place, symbol in sorted(zip(self._places, self._controls, strict=True)):
      spellings.insert(place, symbol)
    return tuple(spellings)

  @functools.cached_property
  def _control_ids(self) -> dict[str, int]:
    """Ids of what in the text means a control symbol."""
    ids = {"\n": self.end_of_line} if self.end_of_line_symbol else {}
    if self.symbols_in_text:
      ids.update(zip(self._controls, self._places, strict=True))
    return ids

  @functools.cached_property
  def _ids(self) -> dict[str, int]:
    """Ids of what the text is split into. Words have no white space, so "\\n" is free."""
    places = set(self._places)
    free = (i for i in range(self.vocab_size) if i not in places)
    return dict(zip(self.words, free, strict=True)) | self._control_ids

  @functools.cached_property
  def _pattern(self) -> re.Pattern:
    parts = [r"\n"] if self.end_of_line_symbol else []
    if self.split_punctuation:
      if self.symbols_in_text and self._controls:  # whole, before their brackets are split off
        parts.append(rf"(?<!\S)(?:{'|'.join(map(re.escape, self._controls))})(?!\S)")
      inner = rf"[^\s{_punctuation()}]+"
      parts.append(rf"{inner}(?:['\u2019-]{inner})*|[{_punctuation()}]")
    else:
      parts.append(r"\S+")
    return re.compile("|".join(parts))

  def _look_up(self, words: list[str]) -> list[int | None]:
    ids, controls, unknown = self._ids, self._control_ids, self.unknown
    if self.lowercase:
      words = [word if word in controls else word.lower() for word in words]
    return [ids.get(word, unknown) for word in words]

  def encode(self, text: str, at: int = 0) -> np.ndarray:
    ids = self._look_up(self._pattern.findall(text))
    if self.unknown is None and None in ids:
      for match in self._pattern.finditer(text):
        if self._look_up([match.group()]) == [None]:
          raise InputError(f"found the word {match.group()!r} at position {at + match.start()}, "
                           f"which is not among the {self.vocab_size} of the vocabulary; leave it "
                           "out, or train with a symbol for --unknown")
    return np.array(ids, base.id_dtype(self.vocab_size))

  def encode_with_offsets(self, text: str, at: int = 0) -> base.Encoding:
    """Ids of a text; offsets are of the words as spelled there, an end of line's of its "\\n".

    >>> WordTokenizer(("hi",), lowercase=True).encode_with_offsets(" Hi you").starts.tolist()
    [1, 4]
    """
    spans = np.array([match.span() for match in self._pattern.finditer(text)], np.int64)
    starts, ends = spans.reshape(-1, 2).T
    return base.Encoding(self.encode(text, at), starts, ends)

  def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
    glue = ""
    for token in ids:
      if token == self.end_of_line:
        yield "\n"
        glue = ""
      else:
        yield glue + self._word(token)
        glue = " "

  def symbol(self, token: int) -> str:
    return base.printable(self._word(token))

  def _word(self, token: int) -> str:
    return self._spellings[self._check(token)]


@functools.cache
def _punctuation() -> str:
  """All punctuation marks and symbols, escaped for the inside of a character class.

  `\\w` would not do: accents and vowel signs that are code points of their own are not in it, and
  would be torn off their letters.
  """
  marks = (c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c)[0] in "PS")
  return re.escape("".join(marks).replace("_", ""))
