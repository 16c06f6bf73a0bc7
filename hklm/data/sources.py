"""Where bytes come from: files, compressed files, standard input; and how they become text."""

import codecs
import contextlib
import dataclasses
import functools
import gzip
import io
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from hklm.errors import InputError

_BLOCK = 1 << 18  # bytes


@dataclasses.dataclass(frozen=True)
class Source:
  """One document: can be read from its start, any number of times.

  Attributes:
    name: for messages: the full path.
    open: gives a new reader of its (uncompressed) bytes.
  """

  name: str
  open: Callable[[], BinaryIO]

  def read_bytes(self) -> Iterator[bytes]:
    """The bytes as they are, in blocks.

    Raises:
      InputError: when the file cannot be read, or not be decompressed.
    """
    try:
      with self.open() as file:
        while block := file.read(_BLOCK):
          yield block
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
      raise InputError(f"{self.name}: found broken gzip data ({error}), needed a whole .gz file; "
                       "see --corpus") from None
    except OSError as error:
      raise InputError(f"{self.name}: cannot be read ({error.strerror}); see --corpus") from None

  def read_text(self, encoding: str) -> Iterator[str]:
    """The text, in blocks, none empty: without byte-order mark, every line end as "\\n".

    Raises:
      InputError: a byte that is not valid in the encoding, by its offset.
    """
    # Wrapped, the decoder holds back a CR at a block's end until it sees whether LF follows.
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=True)
    read = 0
    at_start = True
    for block in self._and_end():
      read += len(block)
      try:
        text = decoder.decode(block, final=not block)
      except UnicodeDecodeError as error:
        # The decoder sees this block after bytes it kept from the one before.
        offset = read - len(error.object) + error.start
        raise InputError(
            f"{self.name}: found byte 0x{error.object[error.start]:02x} at byte offset {offset}, "
            f"which is not valid {encoding}; change --encoding, or train with --tokenizer=byte"
        ) from None
      except UnicodeError as error:
        raise InputError(f"{self.name}: not valid {encoding} ({error}); change --encoding, or "
                         "train with --tokenizer=byte") from None
      if at_start and text:
        text = text.removeprefix("\ufeff")
        at_start = False
      if text:
        yield text

  def _and_end(self) -> Iterator[bytes]:
    yield from self.read_bytes()
    yield b""


def find(path: str) -> list[Source]:
  """The documents at a path, checked to be there and not empty.

  Args:
    path: a file (`.gz`: decompressed), a folder (all files below it in the order of their paths,
      hidden ones left out), or `-` for standard input.

  Raises:
    InputError: nothing there, nothing in it, or not readable; the message has the full path.
  """
  if not path:  # as from an unset shell variable; it would mean the current folder
    raise InputError("found an empty path, needed a file, a folder or -; see --corpus")
  if path == "-":
    sources = [_spool("standard input", lambda: contextlib.nullcontext(sys.stdin.buffer))]
  else:
    path = os.path.abspath(os.path.expanduser(path))
    try:
      mode = os.stat(path).st_mode
    except OSError as error:
      raise InputError(f"{path}: {error.strerror}; needed: a text file, a .gz file, a folder, or - "
                       "for standard input; see --corpus") from None
    if stat.S_ISDIR(mode):
      sources = [_file(name) for name in _files_below(path)]
    elif stat.S_ISREG(mode):
      sources = [_file(path)]
    else:  # a pipe can be read only once
      sources = [_spool(path, functools.partial(open, path, "rb"))]
  if not sources:
    raise InputError(f"{path}: found a folder without files, needed at least one that is not "
                     "hidden; see --corpus")
  for source in sources:
    if next(source.read_bytes(), b"") == b"":
      raise InputError(f"{source.name}: found an empty file, needed text; see --corpus")
  return sources


@contextlib.contextmanager
def naming(flag: str) -> Iterator[None]:
  """What reads text knows of `--corpus` alone; within, mistakes name the flag that gave the text.

  Args:
    flag: as it is given, with its dashes.

  >>> with naming("--input"):
  ...   find("")
  Traceback (most recent call last):
  hklm.errors.InputError: found an empty path, needed a file, a folder or -; see --input
  """
  try:
    yield
  except InputError as error:
    raise InputError(str(error).replace("--corpus", flag)) from error


def check_encoding(encoding: str) -> None:
  """Refuses the name of an encoding that Python does not know.

  >>> check_encoding("utf-9")
  Traceback (most recent call last):
  hklm.errors.InputError: --encoding=utf-9 is unknown; needed: a name such as utf-8, latin-1, utf-16
  """
  try:
    io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # knows text encodings from other codecs
  except (LookupError, ValueError):
    raise InputError(f"--encoding={encoding} is unknown; needed: a name such as utf-8, latin-1, "
                     "utf-16") from None


def _file(path: str) -> Source:
  return Source(path, functools.partial(gzip.open if path.endswith(".gz") else open, path, "rb"))


def _files_below(folder: str) -> list[str]:
  found = []
  for parent, folders, names in os.walk(folder):
    folders[:] = [name for name in folders if not name.startswith(".")]
    paths = (os.path.join(parent, name) for name in names if not name.startswith("."))
    found += filter(os.path.isfile, paths)
  return sorted(found)


def _spool(name: str, open_once: Callable[[], contextlib.AbstractContextManager]) -> Source:
  """Keeps what can be read once in an anonymous file, which disappears with the process."""
  with contextlib.ExitStack() as stack:
    try:
      copy = stack.enter_context(tempfile.TemporaryFile())
      with open_once() as file:
        shutil.copyfileobj(file, copy, _BLOCK)
    except OSError as error:
      raise InputError(f"{name}: cannot be copied to {tempfile.gettempdir()} ({error.strerror}); "
                       "see --corpus") from None
    stack.pop_all()  # all went well: stays open for the readers
  return Source(name, lambda: io.BufferedReader(_Reader(copy)))


class _Reader(io.RawIOBase):
  """A reader with a position of its own in a file that several share."""

  def __init__(self, file: BinaryIO):
    self._file = file
    self._position = 0

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    self._file.seek(self._position)
    count = self._file.readinto(buffer)
    self._position += count
    return count
