"""Corpora to ids on disk."""

import hashlib
import tempfile
from typing import NamedTuple

import numpy as np

from hklm.data.base import Tokenizer, id_dtype
from hklm.data.corpora import Corpus
from hklm.errors import InputError

_EXAMPLES = 10


class Tokens(NamedTuple):
  """A corpus as ids, with what is needed to report figures per character and per byte.

  Attributes:
    ids: `[N]`, of type `id_dtype(vocab_size)`, read-only.
    characters: of the text (line ends normalised). Of raw bytes: those that are not UTF-8
      continuation bytes.
    bytes: of the text in UTF-8, or of the raw bytes.
    scored_characters: those after the end of the first token: what the N - 1 others stand for.
    scored_bytes: the same in bytes.
    unknown_tokens: how many tokens are the unknown word.
    unknown_examples: up to 10 different spellings that became it, the first met.
    documents: how many documents the text is taken from.
    fingerprint: SHA-256 of the ids, hexadecimal.
  """

  ids: np.ndarray
  characters: int
  bytes: int
  scored_characters: int
  scored_bytes: int
  unknown_tokens: int
  unknown_examples: tuple[str, ...]
  documents: int
  fingerprint: str


def encode_corpus(tokenizer: Tokenizer, corpus: Corpus) -> Tokens:
  """Streams a corpus through a tokenizer into an anonymous file, then maps it into memory.

  The file has no name, so that nothing is left behind however the process ends; it lies in the
  folder that `TMPDIR` names. Neither the text nor the ids are ever held whole.

  Args:
    tokenizer: any of this package.
    corpus: any; read as bytes if `tokenizer.reads_bytes`.

  Returns:
    Ids and counts. A corpus without tokens gives none, and no error.

  Raises:
    InputError: a document that cannot be read; a character or word that the tokenizer lacks; a full
      disk.

  >>> from hklm.data import corpora, tokenizers
  >>> corpus = corpora.corpus_of("to be or not to be")
  >>> tokenizer = tokenizers.WordTokenizer(("to", "be"))
  >>> tokens = encode_corpus(tokenizer, corpus)
  >>> tokens.ids.tolist(), tokens.scored_characters, tokens.unknown_examples
  ([2, 3, 0, 0, 2, 3], 16, ('or', 'not'))
  """
  raw = tokenizer.reads_bytes
  dtype = id_dtype(tokenizer.vocab_size)
  count = unknown = 0
  size = np.zeros(2, np.int64)  # characters and bytes
  first_end = None  # of the first token
  examples = {}  # a set that keeps its order
  with tempfile.TemporaryFile() as file:
    digest = hashlib.sha256()
    for chunk in corpus.chunks(raw):
      ids = tokenizer.encode(chunk, at=int(size[0]))
      if first_end is None and len(ids):
        first_end = size + _size(chunk[:tokenizer.encode_with_offsets(chunk).ends[0]])
      if tokenizer.unknown is not None:
        found = np.count_nonzero(ids == tokenizer.unknown)
        unknown += found
        if found and len(examples) < _EXAMPLES:
          examples |= _unknown_words(tokenizer, chunk)
      count += len(ids)
      size += _size(chunk)
      _write(file, ids)
      digest.update(ids.data)
    file.flush()
    # numpy cannot map an empty file
    ids = np.memmap(file, dtype, mode="r") if count else np.zeros(0, dtype)
  scored = size - first_end if count else np.zeros(2, np.int64)
  return Tokens(ids, *size.tolist(), *scored.tolist(), int(unknown),
                tuple(examples)[:_EXAMPLES], corpus.documents, digest.hexdigest())


def _size(text: str | bytes) -> np.ndarray:
  """Characters and bytes of a text."""
  if isinstance(text, str):
    return np.array([len(text), len(text.encode("utf-8", "surrogatepass"))])
  continuation = (np.frombuffer(text, np.uint8) & 0xC0) == 0x80
  return np.array([len(text) - np.count_nonzero(continuation), len(text)])


def _unknown_words(tokenizer: Tokenizer, text: str) -> dict[str, None]:
  ids, starts, ends = tokenizer.encode_with_offsets(text)
  places = np.flatnonzero(ids == tokenizer.unknown)
  return dict.fromkeys(text[starts[i]:ends[i]] for i in places)


def _write(file, ids: np.ndarray) -> None:
  try:
    file.write(ids.data)
  except OSError as error:
    raise InputError(f"cannot write ids in {tempfile.gettempdir()} ({error.strerror}); set TMPDIR "
                     "to a folder with more room") from None
