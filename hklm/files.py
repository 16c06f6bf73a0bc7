"""Files and folders that are at their path whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator
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


@contextlib.contextmanager
def whole_folder(path: str) -> Iterator[str]:
  """A folder to fill, at its path when all is there; an older one stays until then.

  Args:
    path: where; what it lies in is made.

  Yields:
    The folder to fill.

  Raises:
    OSError: it cannot be made.

  >>> with tempfile.TemporaryDirectory() as folder:
  ...   with whole_folder(f"{folder}/new") as new, open(f"{new}/file", "wb") as file:
  ...     _ = file.write(b"text")
  ...   os.listdir(folder), os.listdir(f"{folder}/new")
  (['new'], ['file'])
  """
  parent, name = os.path.split(os.path.realpath(path))
  os.makedirs(parent, exist_ok=True)
  with tempfile.TemporaryDirectory(prefix=".hklm.", dir=parent) as folder:
    new = os.path.join(folder, name)
    os.mkdir(new)  # with the usual permissions, which the temporary folder has not
    yield new
    path = os.path.join(parent, name)
    if os.path.isdir(path):
      os.rename(path, os.path.join(folder, f"{name}.older"))  # goes with the folder
    os.rename(new, path)


@contextlib.contextmanager
def written_folder(path: str, flag: str, names: Collection[str], overwrite: bool = False
                   ) -> Iterator[str]:
  """The same, of a folder that the user has named.

  Args:
    path: where.
    flag: the flag that names it, for messages.
    names: of the files that it gets; a folder with others is never replaced.
    overwrite: whether an older one may be replaced.

  Yields:
    The folder to fill.

  Raises:
    InputError: something is there and may not be replaced; it cannot be written.

  >>> with written_folder("/", "output", ("file",), overwrite=True):
  ...   pass
  Traceback (most recent call last):
  hklm.errors.InputError: --output=/ is there and is not what export wrote; needed: another \
--output
  """
  found = os.listdir(path) if os.path.isdir(path) else [""] if os.path.lexists(path) else []
  if not set(found) <= set(names):
    raise InputError(f"--{flag}={path} is there and is not what export wrote; needed: another "
                     f"--{flag}")
  if found and not overwrite:
    raise InputError(f"--{flag}={path} is there; give --overwrite to replace it, or another "
                     f"--{flag}")
  try:
    with whole_folder(path) as new:
      yield new
  except OSError as error:
    raise InputError(f"--{flag}={path}: cannot be written ({error.strerror}); needed: a folder "
                     "that can be made there, and room for it") from error
