"""`.npz` and `.safetensors`: arrays by name, as views of the mapped file."""

import io
import json
import math
import mmap
import warnings

import ml_dtypes
import numpy as np

from hklm.errors import InputError
from hklm.interop.archives import Archive

# Bytes before the values: 100000 tensors, with 100 for each. They take 20 times that as an object.
_MOST_HEADER = 10_000_000
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32",
           "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16",
           "U8": "uint8", "BOOL": "bool", "BF16": ml_dtypes.bfloat16}


def read_npz(archive: Archive) -> dict[str, np.ndarray]:
  """The arrays that `numpy.savez` or `numpy.savez_compressed` wrote.

  Two-byte values without a type, which NumPy makes of bfloat16, are bfloat16 again.

  Raises:
    InputError: a member is damaged, too small for its shape, or holds anything but numbers and
      strings.
  """
  return {name.removesuffix(".npy"): _npy(name.removesuffix(".npy"), archive.bytes(name))
          for name in archive.names}


def _npy(name: str, data: memoryview) -> np.ndarray:
  file = io.BytesIO(data[:1 << 16])
  try:
    readers = {(1, 0): np.lib.format.read_array_header_1_0,
               (2, 0): np.lib.format.read_array_header_2_0}
    with warnings.catch_warnings(action="ignore"):  # that Python 2 wrote it
      shape, fortran, dtype = readers[np.lib.format.read_magic(file)](file)
  except Exception:  # it is parsed as Python's source: whatever that raises
    raise InputError(f"array {name!r}: found no header of NumPy's; needed: what numpy.savez "
                     "writes") from None
  if dtype.str[1:] == "V2" and dtype.names is None and dtype.subdtype is None:
    dtype = np.dtype(ml_dtypes.bfloat16)
  numbers = (dtype.kind in "biuf" and dtype.itemsize <= 8) or dtype == ml_dtypes.bfloat16
  if not numbers and (dtype.kind != "U" or not dtype.itemsize):
    raise InputError(f"array {name!r}: found the type {str(dtype)[:40]!r}; needed: numbers")
  return _view(name, dtype, shape, data[file.tell():], "F" if fortran else "C")


def read_safetensors(data: mmap.mmap) -> dict[str, np.ndarray]:
  """The tensors of a file whose header says where in the rest each one lies.

  Raises:
    InputError: a header that is no such one, tensors that lie in each other, are not whole, or of
      a type that NumPy and hklm lack.
  """
  size = int.from_bytes(data[:8], "little")
  if size > min(len(data) - 8, _MOST_HEADER):
    raise InputError(f"found a header of {size} bytes in a file of {len(data)}; needed: a whole "
                     f"file of safetensors, with at most {_MOST_HEADER}; copy or download it again")
  try:
    header = json.loads(data[8:8 + size], object_pairs_hook=_once)
    header.pop("__metadata__", None)
    entries = {name: (str(entry["dtype"]), tuple(entry["shape"]), *entry["data_offsets"])
               for name, entry in header.items()}
    counts = [count for _, shape, begin, end in entries.values() for count in (*shape, begin, end)]
    if not all(type(count) is int and 0 <= count < 1 << 48 for count in counts):
      raise ValueError(counts)
  except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
    raise InputError("found no header of safetensors; needed: a whole file; copy or download it "
                     "again") from None
  values = memoryview(data)[8 + size:]
  arrays = {}
  last = 0
  for name, (kind, shape, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
    if kind not in _DTYPES:
      raise InputError(f"tensor {name!r}: found the type {kind[:40]!r}; needed: one of "
                       f"{', '.join(_DTYPES)}")
    if begin != last or end < begin or end > len(values):
      raise InputError(
          f"tensor {name!r}: found it at bytes {begin} to {end} of {len(values)}; needed: its "
          f"beginning at {last}, and a whole file; copy or download it again")
    last = end
    arrays[name] = _view(name, np.dtype(_DTYPES[kind]), shape, values[begin:end])
  if last != len(values):
    raise InputError(f"found {len(values) - last} bytes after the last tensor; needed: none")
  return {name: arrays[name] for name in entries}


def _once(pairs: list) -> dict:
  made = dict(pairs)
  if len(made) < len(pairs):
    raise ValueError(pairs)
  return made


def _view(name: str, dtype: np.dtype, shape: tuple[int, ...], data: memoryview,
          order: str = "C") -> np.ndarray:
  # Before these numbers are multiplied or written: they may have any number of digits.
  if len(shape) > 32 or not all(type(count) is int and 0 <= count < 1 << 48 for count in shape) or (
      math.prod(max(1, count) for count in shape) >= 1 << 48):
    raise InputError(f"tensor {name!r} of shape that no array has: found {len(shape)} axes; "
                     "needed: at most 32, of counts from 0 on, and values that fit into a file")
  needed = math.prod(shape) * dtype.itemsize
  if len(data) != needed:
    raise InputError(f"tensor {name!r} of shape {list(shape)}: found {len(data)} bytes of values; "
                     f"needed: {needed}")
  if not needed:
    return np.zeros(shape, dtype)
  array = np.ndarray(shape, dtype, data, order=order)
  return array if dtype.isnative else array.astype(dtype.newbyteorder("="))
