"""What `torch.save` writes, in both of its formats, as an object and views of the mapped file.

Since torch 1.6 a file is a zip archive: `NAME/data.pkl` is the object, with tensors that say which
`NAME/data/KEY` holds their values, in the order of bytes that `NAME/byteorder` names. Before, it
was pickles in a row (a magic number, a version, facts about the system, the object, a list of
keys) and then, key by key, how many values there are (8 bytes) and the values, little-endian.
"""

import dataclasses
import functools
import io
import math
import mmap
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from hklm.errors import InputError
from hklm.interop import pickles
from hklm.interop.archives import Archive
from hklm.interop.standins import Tensor

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_KINDS = {"FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16",
          "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
          "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
          "BoolStorage": "bool", "UntypedStorage": "uint8", "_UntypedStorage": "uint8"}
_UNSIGNED = ("uint16", "uint32", "uint64")  # these have no class of storage
_DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16)} | {
    name: np.dtype(name) for name in (*_KINDS.values(), *_UNSIGNED) if name != "bfloat16"}


@dataclasses.dataclass(frozen=True)
class TorchFile:
  """A file of torch's.

  Attributes:
    value: the object that was saved, as `hklm.interop.pickles` gives it.
    calls: names of functions and classes, not torch's, that stand-ins are there for.
    storage: gives the bytes of a storage by its key, always the same ones; None where there is
      none, as in a damaged file.
    swapped: whether the values are big-endian.
    turned: those storages as little-endian ones that were asked for, by key and bytes of a value.
  """

  value: Any
  calls: tuple[str, ...]
  storage: Callable[[str], memoryview | None]
  swapped: bool = False
  turned: dict[tuple[str, int], np.ndarray] = dataclasses.field(default_factory=dict)

  def array(self, name: str, tensor: Tensor) -> np.ndarray:
    """A tensor's values: a view of the file that cannot be written to.

    Args:
      name: of the tensor, for messages.

    Raises:
      InputError: values that are not there, or of a type that NumPy and hklm lack.
    """
    storage = tensor.storage
    kind = tensor.dtype or _KINDS.get(storage.kind, storage.kind)
    if kind not in _DTYPES or tensor.lazy:
      what = f"a conjugate or negative of {kind!r}" if tensor.lazy else f"the type {kind!r}"
      raise InputError(f"tensor {name!r}: found {what}; needed: real numbers as they are")
    dtype = _DTYPES[kind]
    needed = storage.elements * _DTYPES[_KINDS.get(storage.kind, kind)].itemsize
    try:
      found = self.storage(storage.key)
    except InputError as error:
      raise InputError(f"tensor {name!r}: {error}") from None
    if found is None or len(found) != needed:
      raise InputError(
          f"tensor {name!r} of shape {list(tensor.size)}: found "
          f"{'none' if found is None else len(found)} of the {needed} bytes that its values are "
          "in; needed: a whole file; copy or download it again")
    held = needed // dtype.itemsize
    if self.swapped:  # once for all tensors in it
      place = storage.key, dtype.itemsize
      if place not in self.turned:
        self.turned[place] = np.frombuffer(found, f"u{dtype.itemsize}", held).byteswap()
      found = self.turned[place]
    if not math.prod(tensor.size):
      return np.zeros(tensor.size, dtype)
    first = storage.start + tensor.offset
    last = first + sum((size - 1) * stride for size, stride in zip(
        tensor.size, tensor.stride, strict=True))
    if last >= held or math.prod(tensor.size) > held:
      raise InputError(
          f"tensor {name!r} of shape {list(tensor.size)}: found a storage of {held} values; "
          f"needed: values {first} to {last} of it, and as many as the shape has")
    strides = tuple(stride * dtype.itemsize for stride in tensor.stride)
    return np.ndarray(tensor.size, dtype, found, first * dtype.itemsize, strides)


def read_archive(archive: Archive) -> TorchFile:
  """The newer format: views of the archive's members.

  Raises:
    InputError: a member is missing or damaged, the pickle cannot be read, a TorchScript program.
  """
  objects = [name for name in archive.names if name.rpartition("/")[2] == "data.pkl"]
  if len(objects) != 1:
    raise InputError(f"found a zip archive with {len(objects)} members data.pkl; needed: one, as "
                     "torch.save writes it")
  prefix = objects[0].removesuffix("data.pkl")
  if f"{prefix}constants.pkl" in archive.names:
    raise InputError("found a TorchScript program; needed: weights; in PyTorch, "
                     "torch.save(torch.jit.load(FILE).state_dict(), NEW)")
  order = b"little"
  if f"{prefix}byteorder" in archive.names:
    order = bytes(archive.bytes(f"{prefix}byteorder"))
    if order not in (b"little", b"big"):
      raise InputError(f"found the order of bytes {order[:20]!r}; needed: little or big")
  saved = pickles.read(io.BytesIO(archive.bytes(objects[0])))
  names = set(archive.names)

  @functools.cache  # an optimizer's are never looked at; a compressed one is expanded once
  def storage(key):
    name = f"{prefix}data/{key}"
    return archive.bytes(name) if name in names else None

  return TorchFile(saved.value, saved.calls, storage, order == b"big")


def read_pickles(data: mmap.mmap) -> TorchFile:
  """The older format.

  Raises:
    InputError: the pickles cannot be read, or are not torch's.
  """
  data.seek(0)
  magic, _, calls = pickles.read(data)
  if type(magic) is not int or magic != _MAGIC:
    calls = f" that names {', '.join(map(repr, calls[:3]))}" if calls else ""
    raise InputError(f"found a pickle{calls}, but not one of torch's; needed: what torch.save "
                     "writes, or arrays in .npz or .safetensors")
  version = pickles.read(data).value
  if type(version) is not int or version != _VERSION:
    raise InputError(f"found another version of torch's files; needed: {_VERSION}")
  pickles.read(data)  # sizes of C's numbers; the values are little-endian whatever it says
  saved = pickles.read(data)
  keys = pickles.read(data).value
  if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
    raise InputError("found no list of storages after the object; needed: what torch.save writes")
  storages = {}
  place = data.tell()
  for key in keys:
    storage = saved.storages.get(key)
    if storage is None or storage.kind not in _KINDS or len(data) < place + 8:
      break  # no later one can be found; whoever needs one is told
    size, = struct.unpack_from("<Q", data, place)
    size *= _DTYPES[_KINDS[storage.kind]].itemsize
    place += 8
    storages[key] = memoryview(data)[place:place + size]
    place += size
  return TorchFile(saved.value, saved.calls, storages.get)
