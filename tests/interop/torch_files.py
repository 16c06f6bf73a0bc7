"""Files as `torch.save` writes them, made without torch, from what is known of the two formats.

A value may hold `Tensor`, `Called` and `Made` besides Python's own: they are pickled under the
names they are given, whether or not such a module is here.
"""

import collections
import io
import pickle
import struct
import zipfile
from typing import Any

import numpy as np

KINDS = {"float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage",
         "bfloat16": "BFloat16Storage", "int64": "LongStorage", "int32": "IntStorage",
         "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage",
         "bool": "BoolStorage", "complex64": "ComplexFloatStorage"}


class Name:
  """A class or function by its name."""

  def __init__(self, module: str, name: str):
    self.module, self.name = module, name

  def __call__(self):
    raise AssertionError("only its name is written")


class Called:
  """What a function is to return."""

  def __init__(self, function: Name, *args: Any, state: Any = None):
    self.function, self.args, self.state = function, args, state


class Made:
  """An object of a class, by its attributes."""

  def __init__(self, kind: Name, state: Any):
    self.kind, self.state = kind, state


class Storage:
  """Values that several tensors may share; `start`: the first one of the part that they count from.

  Such parts are in the older format only.
  """

  def __init__(self, values: np.ndarray, kind: str | None = None, start: int | None = None):
    self.values = np.ascontiguousarray(values).reshape(-1)
    self.kind = kind or KINDS[str(values.dtype)]
    self.start = start


REBUILD = Name("torch._utils", "_rebuild_tensor_v2")


def tensor(values: np.ndarray) -> Called:
  strides = np.empty(values.shape, np.int8).strides
  return view(Storage(values), 0, values.shape, strides)


def view(storage: Storage, offset: int, size, stride) -> Called:
  return Called(REBUILD, storage, offset, tuple(size), tuple(stride), False,
                collections.OrderedDict())


def parameter(values: np.ndarray) -> Called:
  return Called(Name("torch._utils", "_rebuild_parameter"), tensor(values), True,
                collections.OrderedDict())


def module(kind: str, parameters=(), modules=(), **attributes: Any) -> Made:
  return Made(Name(*kind.rsplit(".", 1)), attributes | {
      "training": False, "_parameters": collections.OrderedDict(parameters),
      "_buffers": collections.OrderedDict(), "_modules": collections.OrderedDict(modules)})


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
  """A zip archive of any members."""
  file = io.BytesIO()
  with zipfile.ZipFile(file, "w", compression) as made:
    for name, data in members.items():
      made.writestr(name, data)
  return file.getvalue()


def npy(array: np.ndarray) -> bytes:
  file = io.BytesIO()
  np.save(file, array)
  return file.getvalue()


class _Pickler(pickle._Pickler):  # the one written in Python, which can be told of new types
  dispatch = pickle._Pickler.dispatch.copy()

  def __init__(self, file, protocol):
    super().__init__(file, protocol)
    self.storages = []

  def persistent_id(self, obj):
    if not isinstance(obj, Storage):
      return None
    if obj not in self.storages:
      self.storages.append(obj)
    return self.saved(obj)

  def saved(self, storage):
    return ("storage", Name("torch", storage.kind), str(self.storages.index(storage)), "cpu",
            len(storage.values))

  def save_name(self, obj):
    self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())

  def save_called(self, obj):
    self.save_reduce(obj.function, obj.args, obj.state, obj=obj)

  def save_made(self, obj):
    self.save(obj.kind)
    self.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
    self.memoize(obj)
    self.save(obj.state)
    self.write(pickle.BUILD)

  dispatch |= {Name: save_name, Called: save_called, Made: save_made}


class _OldPickler(_Pickler):

  def saved(self, storage):
    part = None if storage.start is None else (
        f"part {id(storage)}", storage.start, len(storage.values) - storage.start)
    return (*super().saved(storage), part)


def zipped(value: Any, order: str = "little", protocol: int = 2,
           compression: int = zipfile.ZIP_STORED) -> bytes:
  """The format since torch 1.6."""
  objects = io.BytesIO()
  pickler = _Pickler(objects, protocol)
  pickler.dump(value)
  file = io.BytesIO()
  with zipfile.ZipFile(file, "w", compression) as archive:
    archive.writestr("archive/data.pkl", objects.getvalue())
    archive.writestr("archive/byteorder", order)
    for number, storage in enumerate(pickler.storages):
      values = storage.values
      if order == "big":
        values = values.view(f"u{values.itemsize}").byteswap()
      archive.writestr(f"archive/data/{number}", values.tobytes())
    archive.writestr("archive/version", "3\n")
  return file.getvalue()


def old(value: Any) -> bytes:
  """The format before that."""
  file = io.BytesIO()
  for part in (0x1950a86a20f9469cfc6c, 1001, {"protocol_version": 1001, "little_endian": True}):
    pickle.dump(part, file, 2)
  pickler = _OldPickler(file, 2)
  pickler.dump(value)
  pickle.dump([str(number) for number in range(len(pickler.storages))], file, 2)
  for storage in pickler.storages:
    file.write(struct.pack("<q", len(storage.values)) + storage.values.tobytes())
  return file.getvalue()


FORMATS = {"zipped": zipped, "old": old}
