"""A corpus: the text of one or many documents, read in bounded memory as often as needed."""

import dataclasses
import hashlib
import io
import itertools
from collections.abc import Iterator, Sequence

from hklm.data import cuts, sources
from hklm.errors import InputError


@dataclasses.dataclass(frozen=True)
class Corpus:
  """Documents in a row, or a part of that row. Holds no text: every method reads it anew.

  Between two documents stands one line feed, which every tokenizer knows as the end of a line
  (also where the first of them ends in one: then a blank line parts them).
  As text (`raw=False`), a document is decoded, loses its byte-order mark, and has LF in place of CR
  and CRLF. As bytes (`raw=True`), it is what the file holds.

  Attributes:
    sources: the documents.
    encoding: of all of them.
    start: where the part starts, in characters of the text, or in bytes of a raw part.
    stop: where it stops (exclusive); None: at the end.
    raw: what `start` and `stop` count: bytes, characters, or (None, the whole corpus) nothing.

  >>> corpus = corpus_of("0123456789")
  >>> corpus.length()
  10
  >>> [list(part.chunks()) for part in corpus.split(0.2, 0.1)]
  [['0123456'], ['78'], ['9']]
  """

  sources: tuple[sources.Source, ...]
  encoding: str = "utf-8"
  start: int = 0
  stop: int | None = None
  raw: bool | None = None

  @property
  def documents(self) -> int:
    """How many documents the text is taken from (a part counts those of its whole)."""
    return len(self.sources)

  def chunks(self, raw: bool = False) -> Iterator[str] | Iterator[bytes]:
    """The text in pieces of at most half a million characters, none empty.

    Text is cut only where no token is, so that the pieces' tokens are those of the whole text; see
    `hklm.data.cuts`. Bytes are cut anywhere.

    Args:
      raw: bytes as they are, in place of text.

    Raises:
      InputError: a document that cannot be read, decompressed or decoded.
    """
    return self._blocks(raw) if raw else cuts.cut(self._blocks(raw))

  def length(self, raw: bool = False) -> int:
    """How many characters, or bytes."""
    return sum(map(len, self._blocks(raw)))

  def fingerprint(self, raw: bool = False) -> str:
    """SHA-256, in hexadecimal, of the bytes, or of the text in UTF-8.

    >>> corpus_of("abc").fingerprint()[:8]
    'ba7816bf'
    """
    digest = hashlib.sha256()
    for block in self._blocks(raw):
      digest.update(block if raw else block.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()

  def part(self, start: int, stop: int, raw: bool = False) -> "Corpus":
    """The characters, or bytes, `start` to `stop` (exclusive) of this corpus.

    Raises:
      ValueError: places outside the corpus, or counted otherwise than this part's own.

    >>> corpus_of("to be or not").part(3, 5).length()
    2
    """
    length = self.length(raw)
    if not 0 <= start <= stop <= length:
      raise ValueError(f"found places {start} to {stop}, needed 0 <= start <= stop <= {length}")
    return self._part(start, stop, raw)

  def split(self, valid_fraction: float, test_fraction: float, raw: bool = False,
            at_lines: bool = False) -> tuple["Corpus", "Corpus", "Corpus"]:
    """Parts for training, validation and test, in this order.

    Of N characters (or bytes) the test part has the last `floor(test_fraction * N)`, validation the
    `floor(valid_fraction * N)` before.

    Args:
      valid_fraction: at least 0.
      test_fraction: at least 0; both together below 1.
      raw: count bytes.
      at_lines: move both borders forward to the next line's start, so that no line (and no word) is
        cut. Where no line starts in the next half million characters, to the next space.

    Raises:
      InputError: other fractions.
    """
    if min(valid_fraction, test_fraction) < 0 or not valid_fraction + test_fraction < 1:
      raise InputError(f"found --valid_fraction={valid_fraction} --test_fraction={test_fraction}, "
                       "needed: none below 0, and together below 1")
    if raw and at_lines:
      raise ValueError("bytes have no lines: at_lines needs raw=False")
    length = self.length(raw)
    test = length - int(test_fraction * length)
    valid = test - int(valid_fraction * length)
    if at_lines:
      valid, test = self._line_start(valid, length), self._line_start(test, length)
    borders = (0, valid, test, length)
    return tuple(self._part(start, stop, raw) for start, stop in itertools.pairwise(borders))

  def _line_start(self, place: int, length: int) -> int:
    if place in (0, length):
      return place
    stop = min(place + cuts.LIMIT, length)
    text = "".join(self._part(place - 1, stop, raw=False)._blocks(raw=False))
    if moved := cuts.next_cut(text, 1):
      return place - 1 + moved
    return length if stop == length else place

  def _part(self, start: int, stop: int, raw: bool) -> "Corpus":
    return dataclasses.replace(self, start=self.start + start, stop=self.start + stop, raw=raw)

  def _blocks(self, raw: bool) -> Iterator[str] | Iterator[bytes]:
    if self.raw not in (None, raw):
      counts = "bytes" if self.raw else "characters"
      raise ValueError(f"the borders of this part count {counts}: use raw={self.raw}")
    return _between(self._joined(raw), self.start, self.stop)

  def _joined(self, raw: bool) -> Iterator[str] | Iterator[bytes]:
    for number, source in enumerate(self.sources):
      if number:
        yield b"\n" if raw else "\n"
      yield from source.read_bytes() if raw else source.read_text(self.encoding)


def open_corpus(paths: str | Sequence[str], encoding: str = "utf-8") -> Corpus:
  """The corpus of files and folders, checked to be there, in the order given.

  Args:
    paths: each a file (`.gz`: decompressed), a folder (all its files, hidden ones left out, in the
      order of their paths), or `-` for standard input.
    encoding: of the files, by its Python name.

  Raises:
    InputError: an unknown encoding; a path that is missing, empty or not readable, in full.

  >>> open_corpus("no/such/file")  # doctest: +ELLIPSIS
  Traceback (most recent call last):
  hklm.errors.InputError: /...no/such/file: No such file or directory; needed: a text file, a .gz \
file, a folder, or - for standard input; see --corpus
  """
  sources.check_encoding(encoding)
  paths = [paths] if isinstance(paths, str) else paths
  found = tuple(source for path in paths for source in sources.find(path))
  if not found:
    raise InputError("found no path, needed at least one; see --corpus")
  return Corpus(found, encoding)


def corpus_of(text: str, name: str = "text") -> Corpus:
  """The corpus of a string, as one document."""
  data = text.encode("utf-8")
  return Corpus((sources.Source(name, lambda: io.BytesIO(data)),))


def builtin_corpus() -> Corpus:
  """Python's own documentation of its language, `pydoc_data.topics`: no download.

  About 460,000 characters of English, a topic after the other in the order of their names, with
  a blank line between them. The text differs from one Python version to the next.

  >>> builtin_corpus().length() > 400_000
  True
  """
  try:
    from pydoc_data import topics
  except ImportError:
    raise InputError("this Python lacks its documentation (pydoc_data), the built-in corpus; give "
                     "a text with --corpus") from None
  text = "\n\n".join(topic.strip("\n") for _, topic in sorted(topics.topics.items()))
  return corpus_of(text + "\n", name="pydoc_data.topics")


def _between(blocks, start: int, stop: int | None):
  """The stretch `start` to `stop` of a text given in blocks; reads no further."""
  place = 0
  for block in blocks:
    if stop is not None and place >= stop:
      return
    piece = block[max(start - place, 0):None if stop is None else stop - place]
    if piece:
      yield piece
    place += len(block)
