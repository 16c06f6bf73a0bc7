"""What the flags may say. Whatever is wrong is refused before anything is measured."""

import os
import tempfile
from collections.abc import Sequence

from experiments.speed import machine, workloads
from experiments.speed.workloads import Workload
from hklm.errors import InputError

_SIZES = "NAME:V,E,H,layers,B,T"
_AXES = {"T": "steps", "B": "batch_size", "H": "hidden_size", "V": "vocab_size",
         "layers": "num_layers"}
AXES = tuple(_AXES)
_MOST_LAYERS = 4


def parse_workload(given: str) -> Workload:
  """A workload from `NAME:V,E,H,layers,B,T`.

  Raises:
    InputError: not of this form, or a size below 1.

  >>> print(parse_workload("tiny:11,4,5,1,2,3"))
  tiny: V 11, E 4, H 5, layers 1, B 2, T 3
  """
  name, _, rest = given.partition(":")
  try:
    sizes = [int(size) for size in rest.split(",")]
  except ValueError:
    sizes = []
  if not name or "," in name or len(sizes) != 6:
    raise InputError(f"--workload={given} cannot be read; needed: {_SIZES}, six whole numbers")
  if min(sizes) < 1:
    raise InputError(f"--workload={given}: {min(sizes)} is out of range; needed: 1 or more")
  return Workload(name, *sizes)


def named_workloads(given: Sequence[str]) -> dict[str, Workload]:
  """The workloads that `--workload` adds, then the built-in ones, by name."""
  named = {}
  for work in map(parse_workload, given):
    if work.name in named or work.name in workloads.NAMED:
      raise InputError(f"--workload={work.name}:... takes a name that is taken; needed: another "
                       "NAME")
    named[work.name] = work
  return named | workloads.NAMED


def chosen(flag: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
  """The names that a flag lists, each once.

  >>> chosen("measures", ["train", "speed"], ["train", "lstm"])
  Traceback (most recent call last):
  hklm.errors.InputError: --measures=speed is unknown; needed: some of train, lstm
  """
  for name in given or [""]:
    if name not in known:
      raise InputError(f"--{flag}={name} is unknown; needed: some of {', '.join(known)}")
  return list(dict.fromkeys(given))


def grown(work: Workload, axis: str) -> list[Workload]:
  """The workload with one size doubled from a quarter to four times; with 1 to 4 layers.

  >>> [its.name for its in grown(Workload("tiny", 11, 4, 6, 1, 2, 3), "H")]
  ['H=1', 'H=3', 'H=6', 'H=12', 'H=24']
  """
  size = getattr(work, _AXES[axis])
  sizes = range(1, _MOST_LAYERS + 1)
  if axis != "layers":
    sizes = dict.fromkeys(max(1, size * times // 4) for times in (1, 2, 4, 8, 16))
  return [work._replace(name=f"{axis}={its}", **{_AXES[axis]: its}) for its in sizes]


def axis_size(work: Workload, axis: str) -> int:
  """The size that `grown` changes."""
  return getattr(work, _AXES[axis])


def check_memory(work: Workload):
  """Refuses sizes that outgrow the machine in float32, whoever computes.

  Counted are parameters, their gradients, and each layer's outputs; ids are of the same size.
  """
  outputs = (work.steps + 1) * work.batch_size * (1 + work.num_layers * work.hidden_size)
  needed, found = 8 * work.parameters() + 4 * outputs, machine.memory_bytes()
  if needed > found:
    raise InputError(f"{work}: parameters, gradients and outputs take {needed / 2**30:,.0f} GiB, "
                     f"the machine has {found / 2**30:,.0f}; lower V, E, H, B or T in --workload")


def check_file(flag: str, path: str):
  """Refuses a file that could not be written in the end."""
  if os.path.exists(path) and not os.path.isfile(path):
    raise InputError(f"--{flag}={path} is there and is no file; needed: the name of a file")
  try:
    with tempfile.TemporaryFile(dir=os.path.dirname(path) or "."):
      pass
  except OSError as error:
    raise InputError(f"--{flag}={path} cannot be written ({error.strerror}); needed: a file in a "
                     "folder that can be written to") from error
