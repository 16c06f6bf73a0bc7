"""What a pickle can hold here: names, storages, tensors, and stand-ins for everything else.

`rebuilt` knows the functions by which torch writes a tensor, and Python's containers. It does what
they would do to the values alone; it never looks for the functions themselves.
"""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

from hklm.errors import InputError

_MOST_VALUES = 1 << 48  # in a tensor, or before it in its storage; more is no file's


@dataclasses.dataclass(frozen=True)
class Global:
  """A class or function by its name in the file, such as `torch.FloatStorage`: only the name."""

  name: str


@dataclasses.dataclass(frozen=True)
class Storage:
  """Where values of tensors lie.

  Attributes:
    kind: the name of torch's class, such as FloatStorage.
    key: its name in the file.
    elements: how many values it holds.
    start: the first value of it that tensors count from: not 0 in files of torch before 0.4.
  """

  kind: str
  key: str
  elements: int
  start: int = 0


@dataclasses.dataclass(frozen=True)
class Tensor:
  """Values in a storage.

  Attributes:
    storage: where they lie.
    offset: the first of them.
    size, stride: per axis, in values.
    dtype: torch's name of it, such as float32; None: what the storage's kind says.
    lazy: it stands for the conjugate or the negative of what lies there.
  """

  storage: Storage
  offset: int
  size: tuple[int, ...]
  stride: tuple[int, ...]
  dtype: str | None = None
  lazy: bool = False


@dataclasses.dataclass(eq=False)
class StandIn:
  """An object of a class that is not known here, or what a function would have returned.

  Attributes:
    made_by: the class or function, by name.
    args: what it was given.
    state: most often its attributes, by name.
    items, values: what was put into it, had it been a dict or a list.
  """

  made_by: str
  args: Any = ()
  state: Any = None
  items: dict = dataclasses.field(default_factory=dict)
  values: list = dataclasses.field(default_factory=list)


def key_of(value: Any) -> Hashable:
  """A key as it is, or in a wrapper: to hash a deeply nested one, or huge numbers, is not safe."""
  if isinstance(value, str | bytes | None) or (
      type(value) is int and abs(value) < 1 << 63):
    return value
  return value if isinstance(value, bool | StandIn) else StandIn("a key", (value,))


def count_of(value: Any) -> int:
  """A number of values in a file, for granted.

  Raises:
    InputError: no number, below 0, or more than any file has.
  """
  if type(value) is not int or not 0 <= value < _MOST_VALUES:
    raise InputError("found a tensor whose sizes are no counts of values; needed: tensors of known "
                     "shape")
  return value


def _counts(values: Any) -> tuple[int, ...]:
  counts = tuple(count_of(value) for value in values)
  product = 1
  for count in counts:
    product = count_of(product * max(1, count))
  return counts


def _tensor(args: tuple, dtype: Any = None, metadata: Any = None) -> Tensor:
  storage, offset, size, stride = args[:4]
  if isinstance(storage, StandIn):
    raise InputError("found a tensor that Python's pickle has written; needed: what torch.save "
                     "writes")
  if not isinstance(storage, Storage):
    raise TypeError(storage)
  if len(size) != len(stride) or len(size) > 32:  # before anything is done per axis
    raise InputError(f"found a tensor of {len(size)} axes with {len(stride)} strides; needed: as "
                     "many, at most 32")
  strides = tuple(count_of(value) for value in stride)
  size = _counts(size)
  name = dtype.name.removeprefix("torch.") if isinstance(dtype, Global) else None
  return Tensor(storage, count_of(offset), size, strides, name, bool(metadata))


def _optional(args: tuple, place: int) -> Any:
  return args[place] if len(args) > place else None


def _first(args: tuple) -> Any:
  """A parameter or variable is the tensor in it."""
  return args[0] if args else StandIn("an empty parameter")


def _subclassed(args: tuple) -> Any:
  function, kind, given = args[:3]
  rebuild = _REBUILT.get(function.name)
  if rebuild is None or not function.name.startswith("torch._utils."):  # no containers: they copy
    return StandIn(kind.name, given)
  return rebuild(given)


def _dict(args: tuple) -> dict:
  """Python 2 gives the pairs of an ordered dict as a list; a counter gets a dict."""
  made = {}
  if args and isinstance(args[0], list):
    for key, value in args[0]:
      made[key_of(key)] = value
  return args[0] if args and isinstance(args[0], dict) else made


def _list(args: tuple) -> list:
  return args[0] if args and isinstance(args[0], list) else []


_REBUILT: dict[str, Callable[[tuple], Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": lambda args: _tensor(args, None, _optional(args, 6)),
    "torch._utils._rebuild_tensor_v3": lambda args: _tensor(args, args[6], _optional(args, 7)),
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _subclassed,
    "torch.nn.parameter.Parameter": _first,
    "torch.autograd.variable.Variable": _first,
    "torch.Size": _first,
    "collections.OrderedDict": _dict,
    "collections.defaultdict": _dict,
    "collections.Counter": _dict,
    "_codecs.encode": lambda args: str.encode(args[0], "latin-1"),  # bytes of Python 3
    "builtins.set": _list,
    "builtins.frozenset": _list,
    "__builtin__.set": _list,
    "__builtin__.frozenset": _list,
}


def rebuilt(function: Any, args: Any) -> Any:
  """What stands for the result of a call.

  Args:
    function: a `Global`, or whatever a pickle has where a function should be.
    args: its arguments.

  Raises:
    InputError: a tensor whose sizes are none.
    TypeError, ValueError, LookupError: no function, or arguments that this one cannot have.

  >>> rebuilt(Global("os.system"), ("rm -r /",)).made_by
  'os.system'
  """
  if not isinstance(function, Global | StandIn) or not isinstance(args, tuple):
    raise TypeError(function)
  if not isinstance(function, Global):
    return StandIn("what a call returned", args)
  known = _REBUILT.get(function.name)
  return known(args) if known else StandIn(function.name, args)
