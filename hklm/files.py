"""Files that are at their path whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from typing import IO

from hklm.errors import InputError


@contextlib.contextmanager
def written_whole(path: str, flag: str) -> Iterator[IO[bytes]]:
  """A file to write, at its path when all is written; an older file there stays until then.

  Args:
    path: where.
    flag: the flag that names it, for the message.

  Yields:
    It, open for bytes.

  Raises:
    InputError: it cannot be written.

  >>> with written_whole("no/such/folder/file", "output") as file:
  ...   pass
  Traceback (most recent call last):
  hklm.errors.InputError: --output=no/such/folder/file: cannot be written (No such file or \
directory); needed: a file in a folder that is there, and room for it
  """
  unfinished = f"{path}.{os.getpid()}.tmp"
  try:
    with open(unfinished, "wb") as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(unfinished, path)
  except OSError as error:
    raise InputError(f"--{flag}={path}: cannot be written ({error.strerror}); needed: a file in a "
                     "folder that is there, and room for it") from error
  finally:
    if os.path.exists(unfinished):
      os.remove(unfinished)
