"""Weights and vocabulary from a file of another library; what it is shows in its first bytes.

Read are files of `torch.save` (state dicts, checkpoints, whole modules; in both of its formats),
`.safetensors` and `.npz`. Arrays are views of the mapped file: a large one costs no memory until
it is used.
Nothing that a file names is imported or called.
"""

import mmap
import os
import stat
import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hklm.errors import InputError
from hklm.interop import array_files, state_dicts, torch_files
from hklm.interop.archives import Archive

# What people have instead, by how it begins, and what to do about it.
_OTHERS = (
    (b"version https://git-lfs", "a pointer of git-lfs; needed: the file itself: git lfs pull"),
    (b"\x1f\x8b", "a gzip file; needed: what is in it: gunzip it"),
    (b"\x93NUMPY", "a single array; needed: all weights by name, in an .npz of numpy.savez"),
    (b"\x89HDF", "an HDF5 file; needed: its arrays by name, in an .npz of numpy.savez"),
    (b"BZh", "a bzip2 file; needed: what is in it: bunzip2 it"),
    (b"\xfd7zXZ", "an xz file; needed: what is in it: unxz it"),
)


class Weights(NamedTuple):
  """What a file holds.

  Attributes:
    tensors: arrays by name, not to be written to.
    symbols: the vocabulary that lies beside them, in the order of ids; None: there is none.
  """

  tensors: dict[str, np.ndarray]
  symbols: tuple[str, ...] | None


def read(path: str, symbols: bool = True) -> Weights:
  """Reads weights, whatever the file is called.

  From a checkpoint with more in it, the one state dict or module with recurrent weights is taken,
  see `hklm.interop.state_dicts`; the vocabulary is a `tokens`, `itos` or `idx2word` anywhere in it.

  Args:
    path: a file.
    symbols: whether to look for a vocabulary; without, several that differ do no harm.

  Raises:
    InputError: no such file, none that can be read, a damaged one; the message names the tensor.

  >>> import numpy, os, tempfile
  >>> folder = tempfile.TemporaryDirectory()
  >>> path = os.path.join(folder.name, "weights")
  >>> with open(path, "wb") as file:
  ...   numpy.savez(file, bias=numpy.zeros(3), tokens=["a", "b"])
  >>> read(path)
  Weights(tensors={'bias': array([0., 0., 0.])}, symbols=('a', 'b'))
  """
  path = os.path.abspath(os.path.expanduser(path))
  try:
    weights = _read(_mapped(path), symbols)
    if not weights.tensors:
      raise InputError("found no tensor in it; needed: weights")
    for name, array in weights.tensors.items():
      array.flags.writeable = False  # copies too: all are alike
      if not name.isprintable() or len(name) > 1000:
        raise InputError(f"found a tensor called {name[:100]!a}; needed: printable names")
    "".join(weights.symbols or ()).encode()
    return weights
  except InputError as error:
    raise InputError(f"{path}: {str(error)[:2000]}") from None  # a name in it may be any length
  except UnicodeEncodeError:
    raise InputError(f"{path}: found a vocabulary that is no text; needed: valid Unicode") from None


def release(tensors: Mapping[str, np.ndarray]):
  """Gives back the memory that the parts of a file read so far take; they can be read again.

  Args:
    tensors: as `read` gave them.

  >>> release({"bias": np.zeros(3)})  # of no file: nothing happens
  """
  for array in tensors.values():
    base = array
    while isinstance(base, np.ndarray):
      base = base.base
    if isinstance(base, mmap.mmap):
      base.madvise(mmap.MADV_DONTNEED)


def _mapped(path: str) -> mmap.mmap:
  try:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
      what = "a folder" if stat.S_ISDIR(mode) else "a pipe or device"
      raise InputError(f"found {what}; needed: a file of weights")
    with open(path, "rb") as file:
      if not os.fstat(file.fileno()).st_size:
        raise InputError("found an empty file; needed: weights")
      return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
  except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
    if isinstance(error, InputError):
      raise
    raise InputError(f"cannot be read ({getattr(error, 'strerror', error)}); needed: a file of "
                     "weights") from None


def _read(data: mmap.mmap, symbols: bool) -> Weights:
  start = data[:512]
  if start.startswith(b"PK\3\4"):
    archive = Archive(data)
    if all(name.endswith(".npy") for name in archive.names):
      return _from_arrays(array_files.read_npz(archive), symbols)
    return _from_torch(torch_files.read_archive(archive), symbols)
  if start[8:9] == b"{" and start[4:8] == bytes(4):
    return Weights(array_files.read_safetensors(data), None)
  if start.startswith(b"\x80"):
    return _from_torch(torch_files.read_pickles(data), symbols)
  for beginning, what in _OTHERS:
    if start.startswith(beginning):
      raise InputError(f"found {what}")
  if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
    raise InputError("found a web page; needed: the file that it is about; download it again")
  if start[257:262] == b"ustar":
    raise InputError("found a tar archive (torch before 0.1.10 wrote such ones); needed: a file of "
                     "torch.save; load and save it with torch")
  if b"V 1" in start and b"torch." in start:
    raise InputError("found a file of Torch7 (Lua); needed: its arrays by name, in an .npz of "
                     "numpy.savez")
  raise InputError(f"found a file that begins with {start[:12]!r}; needed: a file of torch.save, "
                   ".safetensors or .npz")


def _from_torch(file: torch_files.TorchFile, symbols: bool) -> Weights:
  try:
    tensors = state_dicts.state_dict(file.value)
  except InputError as error:
    if file.calls:
      raise InputError(f"{error} (it names {', '.join(map(repr, file.calls[:3]))})") from None
    raise
  return Weights({name: file.array(name, tensor) for name, tensor in tensors.items()},
                 state_dicts.symbols(file.value) if symbols else None)


def _from_arrays(arrays: dict[str, np.ndarray], symbols: bool) -> Weights:
  texts = {name: array for name, array in arrays.items() if array.dtype.kind == "U"}
  for name, array in texts.items():
    if name not in state_dicts.SYMBOLS or array.ndim != 1:
      raise InputError(f"array {name!r} of shape {list(array.shape)}: found strings; needed: "
                       f"numbers, or a vocabulary called {', '.join(state_dicts.SYMBOLS)}")
    if (np.frombuffer(array.tobytes(), np.uint32) > sys.maxunicode).any():
      raise InputError(f"array {name!r}: found a vocabulary that is no text; needed: strings")
  found = {tuple(array.tolist()) for array in texts.values()} if symbols else {}
  if len(found) > 1:
    raise InputError(f"found the vocabularies {', '.join(texts)}, which differ; needed: one")
  return Weights({name: array for name, array in arrays.items() if name not in texts},
                 next(iter(found), None))
