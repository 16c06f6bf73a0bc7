"""Byte-level byte-pair encoding, trained and run by the `tokenizers` library.

Sennrich et al. 2016 (merges), Radford et al. 2019 (bytes in place of characters, so that nothing is
unknown). Pieces never cross a line feed: lines tokenize independently.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np

from hklm.config import TokenizerConfig
from hklm.data import base, cuts
from hklm.errors import InputError

DEFAULT_VOCAB_SIZE = 4096
_BLOCK = 1 << 15  # characters: the library needs about 250 bytes for each one in its hands
_DIFFERENT = 1_500_000  # bytes of different words: training needs 80 to 130 for each one


def _letter_of_byte() -> dict[int, str]:
  """GPT-2's spelling of bytes: printable Latin-1 as it is, the others from U+0100 on."""
  plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1),
           *range(ord("®"), ord("ÿ") + 1)]
  others = [byte for byte in range(256) if byte not in plain]
  return {byte: chr(byte) for byte in plain} | {b: chr(256 + n) for n, b in enumerate(others)}


_LETTERS = _letter_of_byte()
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


@dataclasses.dataclass(frozen=True)
class BpeTokenizer(base.Tokenizer):
  """One id a piece of bytes; `decode(encode(text)) == text` for every text.

  Attributes:
    pieces: every token in the order of its id, spelled in GPT-2's letters for bytes.
    merges: pairs of pieces that are joined, the earliest first.

  >>> config = TokenizerConfig("bpe", vocab_size=258)
  >>> tokenizer = BpeTokenizer.build(config, ["low lower lowest"])
  >>> tokenizer.merges
  (('l', 'o'), ('lo', 'w'))
  >>> ids = tokenizer.encode("low 🙂")
  >>> len(ids), tokenizer.decode(ids)
  (6, 'low 🙂')
  """

  pieces: tuple[str, ...]
  merges: tuple[tuple[str, str], ...]
  kind: ClassVar[str] = "bpe"

  def __post_init__(self):
    known = set(self.pieces)
    if len(known) < len(self.pieces) or not known >= set(_BYTES):
      raise InputError("tokenizer: the pieces repeat one, or lack one of the 256 bytes")
    for piece in self.pieces:
      if not piece or not set(piece) <= set(_BYTES):
        raise InputError(f"tokenizer: found the piece {piece!r}, needed letters for bytes")
    for merge in self.merges:
      if len(merge) != 2 or not known >= {*merge, "".join(merge)}:
        raise InputError(f"tokenizer: found the merge {merge!r}, needed two pieces that make one")

  @classmethod
  def build(cls, config: TokenizerConfig, chunks: Iterable[str]) -> "BpeTokenizer":
    """Trains on the first `config.bpe_sample` characters of a text.

    On fewer where they have over 1.5 MB of different words, so that training stays under 250 MB.
    A small text may have fewer pairs to merge than `config.vocab_size` asks for.
    """
    from tokenizers import trainers
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size or DEFAULT_VOCAB_SIZE, initial_alphabet=sorted(_BYTES),
        show_progress=False)
    library = _library({}, ())
    library.train_from_iterator(_sample(chunks, config.bpe_sample), trainer)
    ids = library.get_vocab()
    model = json.loads(library.to_str())["model"]
    return cls(tuple(sorted(ids, key=ids.get)), tuple(map(tuple, model["merges"])))

  @property
  def vocab_size(self) -> int:
    return len(self.pieces)

  @functools.cached_property
  def end_of_line(self) -> int:
    return self.pieces.index(_LETTERS[ord("\n")])

  @functools.cached_property
  def _model(self):
    return _library({piece: i for i, piece in enumerate(self.pieces)}, self.merges)

  @functools.cached_property
  def _lengths(self) -> np.ndarray:
    """Bytes in each piece: a letter stands for a byte."""
    return np.array([len(piece) for piece in self.pieces])

  def encode(self, text: str, at: int = 0) -> np.ndarray:
    base.utf8(text, at)  # refuses what the library would refuse less clearly
    blocks = list(cuts.cut([text], size=_BLOCK))
    ids = [encoding.ids for encoding in self._model.encode_batch_fast(blocks)]
    return np.array([i for block in ids for i in block], base.id_dtype(self.vocab_size))

  def encode_with_offsets(self, text: str, at: int = 0) -> base.Encoding:
    """Ids of a text; offsets count characters.

    The stretches follow each other without gaps or overlaps: joined they are the text. A character
    split over several tokens belongs to the last of them, where it is complete; the others' are
    empty there. `decode_stream` gives the same pieces.

    >>> tokenizer = BpeTokenizer.build(TokenizerConfig("bpe", vocab_size=256), [])
    >>> tokenizer.encode_with_offsets("aé").ends.tolist()
    [1, 1, 2]
    """
    ids = self.encode(text, at)
    text = np.frombuffer(base.utf8(text), np.uint8)
    begins = np.append((text & 0xC0) != 0x80, True)  # at each byte: does a character begin here?
    complete = np.cumsum(begins) - 1  # how many characters are complete before it
    ends = complete[np.cumsum(self._lengths[ids])]
    return base.Encoding(ids, np.concatenate([[0], ends[:-1]])[:len(ids)], ends)

  def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
    """Text, a piece an id; see `base.decode_utf8` for split and invalid code points."""
    return base.decode_utf8(self._bytes(token) for token in ids)

  def symbol(self, token: int) -> str:
    return base.printable(self._bytes(token))

  def _bytes(self, token: int) -> bytes:
    return bytes(_BYTES[letter] for letter in self.pieces[self._check(token)])


def _library(ids: dict[str, int], merges: tuple[tuple[str, str], ...]):
  """The `tokenizers` object. Imported here: it is slow, and only BPE needs it."""
  import tokenizers
  from tokenizers import models, pre_tokenizers
  library = tokenizers.Tokenizer(models.BPE(ids, list(merges)))
  library.pre_tokenizer = pre_tokenizers.Sequence([
      pre_tokenizers.Split("\n", "isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
  ])
  return library


def _sample(chunks: Iterable[str], size: int) -> Iterator[str]:
  """The text to train on, in blocks the library can hold many of.

  Its first `size` characters; fewer where the different words alone fill `_DIFFERENT` bytes, as in
  a text without spaces, since training takes memory for each different word.
  """
  seen = set()
  room = _DIFFERENT
  for chunk in chunks:
    for block in cuts.cut([chunk[:size]], size=_BLOCK):
      new = set(re.findall(r"\w+|[^\w\s]+", block)) - seen
      seen |= new
      room -= sum(len(word.encode()) + 1 for word in new)
      if room < 0:
        return
      yield block
    size -= len(chunk)
    if size <= 0:
      return
