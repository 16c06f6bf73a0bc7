"""Files that are at their path whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from typing import IO

from hklm.errors import InputError


@contextlib.contextmanager
def whole(path: str) -> Iterator[IO[bytes]]:
  """A file to write, at its path when all is written; an older file there stays until then.

  Args:
    path: where. A link leads there; a device or pipe is written to.

  Yields:
    It, open for bytes.

  Raises:
    OSError: it cannot be written.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   with whole(f"{folder}/file") as file:
  ...     _ = file.write(b"text")
  ...   os.listdir(folder)
  ['file']
  """
  path = os.path.realpath(path)  # a link stays one
  if os.path.exists(path) and not os.path.isfile(path):  # a device, as /dev/stdout; not a folder
    with open(path, "wb") as file:
      yield file
    return
  unfinished = f"{path}.{os.getpid()}.tmp"
  try:
    with open(unfinished, "wb") as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(unfinished, path)
  finally:  # half of it takes room on a full disk
    with contextlib.suppress(OSError):  # it is not there any more, or its folder is not
      os.remove(unfinished)


@contextlib.contextmanager
def written_whole(path: str, flag: str) -> Iterator[IO[bytes]]:
  """The same, of a file that the user has named.

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
  try:
    with whole(path) as file:
      yield file
  except OSError as error:
    raise InputError(f"--{flag}={path}: cannot be written ({error.strerror}); needed: a file in a "
                     "folder that is there, and room for it") from error
