"""Pickles read as data: nothing that a pickle names is imported, nothing it asks for is called.

A pickle is a program for a stack machine. Here is one that knows containers, strings, numbers and
torch's way to write a tensor; whatever else a pickle makes (modules, optimizers, classes of the
model's author, calls of any function) becomes a `StandIn` that keeps what it was given. Standard
Python's `pickletools` takes the bytes apart, and checks every length against what is there.
"""

import contextlib
import pickletools
from typing import Any, BinaryIO, NamedTuple

from hklm.errors import InputError
from hklm.interop.standins import Global, StandIn, Storage, count_of, key_of, rebuilt

# A vocabulary of 300000 words takes 2 million operations; each may cost 72 bytes of memory.
_MOST_OPERATIONS = 10_000_000
_BYTES_OF_OPERATION = 72
_LONGEST_NAME = 1000  # of a class or function; names are copied


class Pickled(NamedTuple):
  """What a pickle holds.

  Attributes:
    value: Python's containers, strings and numbers, and the classes of `hklm.interop.standins`.
    storages: where its tensors lie, by key.
    calls: what it wanted called but for torch's functions and Python's containers, for messages.
  """

  value: Any
  storages: dict[str, Storage]
  calls: tuple[str, ...]


def read(file: BinaryIO) -> Pickled:
  """Reads the next pickle of a file.

  Args:
    file: at the pickle's first byte; afterwards behind its last.

  Raises:
    InputError: no pickle, a damaged one, or one that takes more than 10 million operations.

  >>> import io, pickle
  >>> read(io.BytesIO(pickle.dumps({"a": [1, 2.5]}))).value
  {'a': [1, 2.5]}
  """
  machine = _Machine()
  done = 0
  try:
    for operation, argument, _ in pickletools.genops(file):
      machine.spend(1)
      _OPERATIONS[operation.name](machine, argument)
      done += 1
    return Pickled(machine.stack.pop(), machine.storages, tuple(machine.calls))
  except InputError:
    raise
  except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
    raise InputError(f"found a damaged pickle, at its operation {done}; needed: a whole file; copy "
                     "or download it again") from None


class _Machine:
  """What the operations work on: a stack, in parts at marks, and what may be needed again."""

  def __init__(self):
    self.stack, self.outer, self.memo = [], [], {}
    self.storages, self.calls = {}, {}
    self.spent = 0

  def spend(self, operations: int) -> None:
    self.spent += operations
    if self.spent > _MOST_OPERATIONS:
      raise InputError(f"found a pickle of more than {_MOST_OPERATIONS} operations; needed: "
                       "tensors, and little beside them")

  def since_mark(self) -> list:
    items, self.stack = self.stack, self.outer.pop()
    return items

  def call(self, function: Any, args: Any) -> None:
    # One value, in the file once, may be given to any number of calls that copy it.
    if isinstance(args, tuple) and args:
      if isinstance(args[0], str):
        self.spend(len(args[0]) // _BYTES_OF_OPERATION)
      elif isinstance(args[0], list):
        self.spend(len(args[0]))
    made = rebuilt(function, args)
    if isinstance(made, StandIn) and not made.made_by.startswith(("torch.", "numpy.")):
      self.calls.setdefault(made.made_by)
    self.stack.append(made)

  def persistent(self, saved: tuple) -> Any:
    """What torch keeps outside the pickle: storages, and the source text of modules."""
    if saved[0] == "module":
      return saved[1]
    if len(saved) > 6:  # it may be any length, again and again
      raise ValueError(len(saved))
    what, kind, key, _, elements, *view = saved
    if what != "storage" or not isinstance(kind, Global) or not isinstance(key, str):
      raise ValueError(what)
    start = count_of(view[0][1]) if view and view[0] is not None else 0
    storage = Storage(kind.name.rpartition(".")[2], key, count_of(elements), start)
    self.storages.setdefault(key, storage)
    return storage


def _put_items(target: Any, items: list) -> None:
  if isinstance(target, StandIn):
    target = target.items
  if not isinstance(target, dict) or len(items) % 2:
    raise TypeError(target)
  for key, value in zip(items[::2], items[1::2], strict=True):
    target[key_of(key)] = value


def _put_values(target: Any, values: list) -> None:
  if isinstance(target, StandIn):
    target = target.values
  if not isinstance(target, list):
    raise TypeError(target)
  target.extend(values)


# The operations: each a function of the machine and the operation's argument.


def _push(machine, argument):
  machine.stack.append(argument)


def _push_text(machine, argument):
  """Bytes of Python 2, where words were bytes: most often UTF-8."""
  with contextlib.suppress(UnicodeError):  # else they stay Latin-1
    argument = argument.encode("latin-1").decode("utf-8")
  machine.stack.append(argument)


def _pushing(make):
  return lambda machine, argument: machine.stack.append(make())


def _gathering(make):
  def gather(machine, argument):
    items = machine.since_mark()
    machine.stack.append(make(items))
  return gather


def _tuple_of(size):
  def gather(machine, argument):
    items = [machine.stack.pop() for _ in range(size)]
    machine.stack.append(tuple(reversed(items)))
  return gather


def _dict_of(items):
  made = {}
  _put_items(made, items)
  return made


def _mark(machine, argument):
  machine.outer.append(machine.stack)
  machine.stack = []


def _pop(machine, argument):
  if machine.stack:
    machine.stack.pop()
  else:
    machine.since_mark()


def _memoize(machine, argument):
  machine.memo[len(machine.memo) if argument is None else argument] = machine.stack[-1]


def _append(machine, argument):
  value = machine.stack.pop()
  _put_values(machine.stack[-1], [value])


def _appends(machine, argument):
  values = machine.since_mark()
  _put_values(machine.stack[-1], values)


def _set_item(machine, argument):
  value, key = machine.stack.pop(), machine.stack.pop()
  _put_items(machine.stack[-1], [key, value])


def _set_items(machine, argument):
  items = machine.since_mark()
  _put_items(machine.stack[-1], items)


def _named(module, name):
  if not isinstance(name, str) or not isinstance(module, str):
    raise TypeError(name)
  if len(module) + len(name) > _LONGEST_NAME:
    raise ValueError(len(name))
  return Global(f"{module}.{name}")


def _global(machine, argument):
  machine.stack.append(_named(*argument.split(" ", 1)))


def _stack_global(machine, argument):
  name, module = machine.stack.pop(), machine.stack.pop()
  machine.stack.append(_named(module, name))


def _reduce(machine, argument):
  args, function = machine.stack.pop(), machine.stack.pop()
  machine.call(function, args)


def _new_with_keywords(machine, argument):
  keywords, args, function = (machine.stack.pop() for _ in range(3))
  if not isinstance(keywords, dict):
    raise TypeError(function)
  machine.stack.append(StandIn(getattr(function, "name", ""), (args, keywords)))


def _instance(machine, argument):
  args = tuple(machine.since_mark())
  machine.call(_named(*argument.split(" ", 1)), args)


def _object(machine, argument):
  function, *args = machine.since_mark()
  machine.call(function, tuple(args))


def _build(machine, argument):
  state = machine.stack.pop()
  if isinstance(machine.stack[-1], StandIn):
    machine.stack[-1].state = state


def _persistent(machine, argument):
  machine.stack.append(machine.persistent(machine.stack.pop()))


def _nothing(machine, argument):
  pass


_OPERATIONS = {
    **dict.fromkeys(
        ["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
         "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
         "BINBYTES8", "BYTEARRAY8"], _push),
    **dict.fromkeys(["STRING", "BINSTRING", "SHORT_BINSTRING"], _push_text),
    "NONE": _pushing(lambda: None), "NEWTRUE": _pushing(lambda: True),
    "NEWFALSE": _pushing(lambda: False), "EMPTY_TUPLE": _pushing(tuple),
    "EMPTY_LIST": _pushing(list), "EMPTY_DICT": _pushing(dict), "EMPTY_SET": _pushing(list),
    "TUPLE": _gathering(tuple), "LIST": _gathering(list), "FROZENSET": _gathering(list),
    "DICT": _gathering(_dict_of), "TUPLE1": _tuple_of(1), "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3), "MARK": _mark, "POP": _pop,
    "POP_MARK": lambda machine, argument: machine.since_mark(),
    "DUP": lambda machine, argument: machine.stack.append(machine.stack[-1]),
    **dict.fromkeys(["GET", "BINGET", "LONG_BINGET"],
                    lambda machine, argument: machine.stack.append(machine.memo[argument])),
    **dict.fromkeys(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"], _memoize),
    "APPEND": _append, "APPENDS": _appends, "ADDITEMS": _appends, "SETITEM": _set_item,
    "SETITEMS": _set_items, "GLOBAL": _global, "STACK_GLOBAL": _stack_global, "REDUCE": _reduce,
    "NEWOBJ": _reduce, "NEWOBJ_EX": _new_with_keywords, "INST": _instance, "OBJ": _object,
    "BUILD": _build, "BINPERSID": _persistent, "PROTO": _nothing, "FRAME": _nothing,
    "STOP": _nothing,
}
