"""Public functions that take weights from files: those that are pure, each with a call; the others.

What reads a file is given its path: a mapped file is nothing that a check can copy.
"""

import io
import mmap
import os
import pickle
from collections.abc import Callable

import numpy as np

from hklm.interop import archives, array_files, pickles, standins, state_dicts, torch_files, weights
from tests.interop import torch_files as written
from tests.purity.library_makers import Call, call

TENSOR = standins.Tensor(standins.Storage("FloatStorage", "0", 4), 0, (2, 2), (2, 1))


def mapped(path: str) -> mmap.mmap:
  with open(path, "rb") as file:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def of_file(function: Callable, data: bytes) -> Callable[[str], Call]:
  """The call of a function with the path of a file that holds these bytes."""
  def made_in(folder):
    path = os.path.join(folder, "weights")
    with open(path, "wb") as file:
      file.write(data)
    return call(function, path)
  return made_in


def npz() -> bytes:
  file = io.BytesIO()
  np.savez(file, weight=np.ones([2, 3]))
  return file.getvalue()


SAFETENSORS = (b'\x3a\0\0\0\0\0\0\0{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}  '
               b"\0\0\0\0")
STATE_DICT = {"weight": written.tensor(np.ones([2, 3], np.float32))}


PURE: dict[str, Callable[[], Call]] = {
    "interop.pickles.read": lambda: call(
        lambda data: pickles.read(io.BytesIO(data)), pickle.dumps({"a": [1, (2, "b")]})),
    "interop.standins.count_of": lambda: call(standins.count_of, 3),
    "interop.standins.key_of": lambda: call(standins.key_of, "a"),
    "interop.standins.rebuilt": lambda: call(
        standins.rebuilt, standins.Global("torch.Size"), ((2, 3),)),
    "interop.state_dicts.state_dict": lambda: call(
        state_dicts.state_dict, {"model": {"weight_hh": TENSOR}, "epoch": 3}),
    "interop.state_dicts.symbols": lambda: call(state_dicts.symbols, {"itos": ["a", "b"]}),
    "interop.weights.release": lambda: call(weights.release, {"weight": np.ones([2, 3])}),
    "interop.torch_files.TorchFile.array": lambda: call(
        lambda tensor: torch_files.TorchFile(
            None, (), lambda key: memoryview(bytes(16))).array("weight", tensor), TENSOR),
}

READING: dict[str, Callable[[str], Call]] = {
    "interop.archives.Archive": of_file(lambda path: archives.Archive(mapped(path)).names, npz()),
    "interop.archives.Archive.bytes": of_file(
        lambda path: bytes(archives.Archive(mapped(path)).bytes("weight.npy")), npz()),
    "interop.array_files.read_npz": of_file(
        lambda path: array_files.read_npz(archives.Archive(mapped(path))), npz()),
    "interop.array_files.read_safetensors": of_file(
        lambda path: array_files.read_safetensors(mapped(path)), SAFETENSORS),
    "interop.torch_files.read_archive": of_file(
        lambda path: torch_files.read_archive(archives.Archive(mapped(path))).value,
        written.zipped(STATE_DICT)),
    "interop.torch_files.read_pickles": of_file(
        lambda path: torch_files.read_pickles(mapped(path)).value, written.old(STATE_DICT)),
    "interop.weights.read": of_file(weights.read, written.zipped(STATE_DICT)),
}
