"""Objects taken apart: what one is, what it holds, and how it is put back as it was."""

import array
import collections
import contextlib
import contextvars
import copy
import decimal
import enum
import fractions
import functools
import hashlib
import io
import pathlib
import random
import re
import reprlib
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

NODES = 200_000  # objects looked at before giving up
ATOMS = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis),
         type(NotImplemented), decimal.Decimal, fractions.Fraction, pathlib.PurePath, re.Pattern)
GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
# Their objects are not looked into: the machine beneath, whose caches are nobody's trace.
MACHINE = frozenset({"jax", "jaxlib", "numpy", "ml_dtypes", "haiku", "absl"})
OPAQUE = "not looked into"
ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()


class TooLarge(Exception):
  """More objects hang together than are looked at."""


class Parts(NamedTuple):
  """An object taken apart.

  Attributes:
    leaf: what it is apart from what it holds; equal for equal things.
    held: pairs of a label and an object that it holds.
    put_back: makes the object what it was when it was taken apart; None where nothing can change
      or nothing can be done.
    fixed: whether it cannot change, so that an equal one is as good.
  """

  leaf: Any
  held: tuple[tuple[str, Any], ...] = ()
  put_back: Callable[[], None] | None = None
  fixed: bool = False


def top(name: str | None) -> str:
  """The package that a module's name begins with."""
  return name.partition(".")[0] if isinstance(name, str) else ""


def is_a(thing, kinds) -> bool:
  """As `isinstance`, but by what an object is, not by what it says it is."""
  return issubclass(type(thing), kinds)


def take_apart(thing, enter: Callable[[type], bool] = lambda kind: True) -> Parts:
  """What an object is and holds.

  Args:
    thing: anything.
    enter: whether to look into instances of a class that is neither known here nor a container.

  >>> take_apart([1, 2]).held
  (('[0]', 1), ('[1]', 2))
  >>> take_apart(float("nan")).leaf == take_apart(float("nan")).leaf
  True
  """
  try:
    return _taken_apart(thing, enter)
  except (Exception, SystemExit):  # an object of the user's may answer anything with an error
    return Parts((OPAQUE, named(type(thing))), fixed=True)


def named(kind: type) -> tuple[str, str]:
  """A class by its name: one made anew by each call is the same class."""
  return str(type.__dict__["__module__"].__get__(kind)), type.__dict__["__qualname__"].__get__(kind)


def _taken_apart(thing, enter) -> Parts:
  kind = type(thing)
  if isinstance(thing, enum.Enum):
    return Parts((named(kind), thing.name), fixed=True)
  if any(kind is atom for atom in ATOMS) or isinstance(thing, pathlib.PurePath):
    exact = kind in (float, complex, decimal.Decimal)  # NaN is like NaN, 0. unlike -0.
    return Parts((named(kind), repr(thing) if exact else thing), fixed=True)
  if isinstance(thing, (int, float, complex, str, bytes)):  # of a class of the user's
    base = next(base for base in kind.__mro__ if base in ATOMS)
    return Parts((named(kind), base.__repr__(thing)), _labels(attributes(thing)), fixed=True)
  for family, apart in _FAMILIES:
    if isinstance(thing, family):
      return apart(thing)
  machine = top(kind.__module__) in MACHINE
  if machine and hasattr(thing, "fun"):  # custom derivatives: the rules are the user's
    names = ("fun", "fwd", "bwd", "jvp", "vmap_rule")
    return Parts(named(kind),
                 tuple((f".{n}", getattr(thing, n)) for n in names if hasattr(thing, n)))
  if machine and callable(thing) and hasattr(thing, "__wrapped__"):  # what jit makes
    return Parts(named(kind), (("", thing.__wrapped__),))
  if isinstance(thing, np.dtype) or kind.__name__ == "PyTreeDef":
    return Parts((named(kind), re.sub("0x[0-9a-f]+", "0x", str(thing))), fixed=True)
  closed = machine and top(kind.__module__) != "numpy" and not hasattr(kind, "__next__")
  if closed or top(kind.__module__) == "unittest" or not enter(kind):
    return Parts((OPAQUE, named(kind)), fixed=True)
  return _instance(thing)


def _labels(attributes: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
  return tuple((f".{name}", value) for name, value in attributes.items())


def _array(thing: jax.Array) -> Parts:
  if isinstance(thing, jax.core.Tracer):
    return Parts(("tracer", str(thing.aval)), fixed=True)
  if thing.is_deleted():
    return Parts("deleted array", fixed=True)
  if jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
    thing = jax.random.key_data(thing)
  if not thing.is_fully_addressable:
    return Parts(("array on other hosts", thing.dtype, thing.shape), fixed=True)
  return Parts(("array", *_digest(np.asarray(thing))), fixed=True)


def _digest(values: np.ndarray):
  content = np.ascontiguousarray(values).view(np.uint8) if values.size else b""
  return str(values.dtype), values.shape, hashlib.blake2b(content).digest()


def _masked(thing) -> Parts:
  saved = thing.copy()
  def put_back():
    thing.mask = np.ma.nomask
    np.copyto(thing.data, saved.data)
    thing.mask = saved.mask
  return Parts((named(type(thing)), *_digest(np.atleast_1d(thing.data)),
                *_digest(np.atleast_1d(np.ma.getmaskarray(thing)))), (), put_back)


def _ndarray(thing: np.ndarray) -> Parts:
  extras, writeable = attributes(thing), thing.flags.writeable
  leaf = named(type(thing)), thing.shape, writeable
  held = _labels(extras)
  if thing.dtype.hasobject:
    held += tuple((f".flat[{i}]", item) for i, item in enumerate(thing.ravel().tolist()))
  else:
    leaf += _digest(np.atleast_1d(np.asarray(thing)))
  saved = np.array(thing, copy=True) if writeable else None
  def put_back():
    if saved is not None:
      thing.flags.writeable = True
      thing.shape = saved.shape
      np.copyto(thing, saved)
    _attributes_back(thing, extras)
  return Parts(leaf, held, put_back, fixed=not writeable)


def attributes(thing) -> dict[str, Any]:
  """Attributes of an instance: its `__dict__` and the slots of its classes."""
  found = dict(getattr(thing, "__dict__", {}))
  for cls in type(thing).__mro__:
    slots = cls.__dict__.get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else tuple(slots):
      if name in ("__dict__", "__weakref__"):
        continue
      mangled = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") else name
      with contextlib.suppress(AttributeError):
        found[mangled] = object.__getattribute__(thing, mangled)
  return found


def _attributes_back(thing, saved: dict[str, Any]):
  for name in attributes(thing).keys() - saved.keys():
    (delattr if is_a(thing, threading.local) else object.__delattr__)(thing, name)
  for name, value in saved.items():
    set_attribute(thing, name, value)


def set_attribute(thing, name: str, value):
  """Binds an attribute, also where the object says that it does not change."""
  (setattr if is_a(thing, threading.local) else object.__setattr__)(thing, name, value)


def _container(thing, content, put_back) -> Parts:
  """A container with what it holds and the attributes that a subclass may add."""
  extras = attributes(thing) if type(thing) not in (list, dict, set, bytearray) else {}
  held = (*content, *_labels(extras))
  def back():
    put_back()
    if extras:
      _attributes_back(thing, extras)
  return Parts((named(type(thing)), len(content)), held, back)


def _list(thing) -> Parts:
  saved = list(thing)
  def put_back():
    thing[:] = saved
  return _container(thing, [(f"[{i}]", item) for i, item in enumerate(saved)], put_back)


def _deque(thing) -> Parts:
  saved = list(thing)
  def put_back():
    thing.clear()
    thing.extend(saved)
  return _container(thing, [(f"[{i}]", item) for i, item in enumerate(saved)], put_back)


def _tuple(thing) -> Parts:
  names = getattr(type(thing), "_fields", None)
  labels = [f".{n}" for n in names] if names else [f"[{i}]" for i in range(len(thing))]
  held = tuple(zip(labels, tuple(thing), strict=False))
  return Parts((type(thing).__qualname__, len(thing)), held, fixed=True)


def _dict(thing) -> Parts:
  saved, plain = dict(thing), dict
  if isinstance(thing, collections.OrderedDict):  # it keeps an order of its own
    plain = collections.OrderedDict
    saved = dict(plain.items(thing))
  def put_back():
    plain.clear(thing)
    plain.update(thing, saved)
  content, used = [], set()
  for number, (key, value) in enumerate(saved.items()):
    label = f"[{reprlib.repr(key)}]" if type(key) in (*ATOMS, tuple) else f"[{type(key).__name__}]"
    label += f" #{number}" if label in used else ""
    used.add(label)
    content += [(f" key {label}", key), (label, value)]
  return _container(thing, content, put_back)


def _set(thing) -> Parts:
  leaf = (named(type(thing)), frozenset(map(fingerprint, thing)))  # its order says nothing
  if isinstance(thing, frozenset):
    return Parts(leaf, fixed=True)
  saved = set(thing)
  def put_back():
    thing.clear()
    thing.update(saved)
  return Parts(leaf, (), put_back)


def _buffer(thing) -> Parts:
  saved = thing[:]
  def put_back():
    thing[:] = saved
  return Parts((named(type(thing)), bytes(thing)), (), put_back)


def _view(thing) -> Parts:
  return Parts((type(thing), len(thing)), (("", tuple(thing)),))


def _proxy(thing) -> Parts:
  return Parts("proxy", (("", tuple(thing.items())),))


def _function(thing) -> Parts:
  if top(thing.__globals__.get("__name__")) in MACHINE and "<locals>" not in (
      thing.__code__.co_qualname):
    return Parts(("function", thing.__code__), fixed=True)
  cells = dict(zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True))
  saved, code = (thing.__defaults__, thing.__kwdefaults__, dict(thing.__dict__)), thing.__code__
  held = [(f" closure cell `{name}`", cell) for name, cell in cells.items()]
  held += [(" default", value) for value in saved[0] or ()]
  held += [(f" default `{name}`", value) for name, value in (saved[1] or {}).items()]
  held += [(f".{name}", value) for name, value in saved[2].items()
           if not name.startswith("__") or name == "__wrapped__"]
  def put_back():
    thing.__code__ = code
    thing.__defaults__, thing.__kwdefaults__ = saved[:2]
    thing.__dict__.clear()
    thing.__dict__.update(saved[2])
  return Parts(("function", code), tuple(held), put_back)


def _cell(thing) -> Parts:
  try:
    saved = thing.cell_contents
  except ValueError:
    saved = ABSENT
  def put_back():
    if saved is not ABSENT:
      thing.cell_contents = saved
    elif take_apart(thing).held[0][1] is not ABSENT:
      del thing.cell_contents
  return Parts("cell", (("", saved),), put_back)


def _method(thing) -> Parts:
  return Parts("method", ((" self", thing.__self__), (f".{thing.__name__}", thing.__func__)))


def _builtin(thing) -> Parts:
  owner = thing.__self__
  held = () if owner is None or isinstance(owner, types.ModuleType) else ((".__self__", owner),)
  return Parts(("builtin", thing.__qualname__), held)


def _partial(thing) -> Parts:
  held = (("", thing.func), (" arguments", thing.args), (" keywords", thing.keywords))
  return Parts("partial", held)


def _generator(thing) -> Parts:
  name = {types.GeneratorType: "gi", types.CoroutineType: "cr"}.get(type(thing), "ag")
  frame = getattr(thing, f"{name}_frame")
  if frame is None:
    return Parts((type(thing), "finished"))
  held = tuple((f" local `{key}`", value) for key, value in frame.f_locals.items())
  return Parts((type(thing), thing.__qualname__, frame.f_lasti), held)


def _numpy_generator(thing) -> Parts:
  if thing is np.random.mtrand._rand:  # that of the whole process: watched as such
    return Parts("the generator of `numpy.random`", fixed=True)
  source = thing.bit_generator if isinstance(thing, np.random.Generator) else thing
  if isinstance(thing, np.random.RandomState):
    saved = thing.get_state(legacy=False)
    return Parts((type(thing), fingerprint(saved)), (), lambda: thing.set_state(saved))
  saved = source.state
  def put_back():
    source.state = saved
  return Parts((type(thing), fingerprint(saved)), (), put_back)


def _python_generator(thing) -> Parts:
  if isinstance(thing, random.SystemRandom):  # it has no state
    return Parts(type(thing), fixed=True)
  if thing is random._inst:  # that of the whole process: watched as such
    return Parts("the generator of `random`", fixed=True)
  saved = thing.getstate()
  return Parts((type(thing), saved), (), lambda: thing.setstate(saved))


def _text_buffer(thing) -> Parts:
  if thing.closed:
    return Parts((type(thing), "closed"))
  saved = thing.getvalue(), thing.tell()
  def put_back():
    thing.seek(0)
    thing.truncate()
    thing.write(saved[0])
    thing.seek(saved[1])
  return Parts((type(thing), *saved), (), put_back)


def _context_variable(thing) -> Parts:
  saved = thing.get(ABSENT)
  return Parts((type(thing), thing.name), (("", saved),),
               None if saved is ABSENT else lambda: thing.set(saved))


def _class(thing) -> Parts:
  return Parts(("class", thing.__module__, thing.__qualname__), fixed=True)


def _instance(thing) -> Parts:
  """An object of a class that is not known here: its attributes, and what a copy is made from."""
  kind, saved = type(thing), attributes(thing)
  held = [*_labels(saved)]
  rebuilt = _reduced(thing)
  if rebuilt is not None:
    held.append(("", rebuilt))
  parameters = getattr(kind, "__dataclass_params__", None)
  def put_back():
    if type(thing) is not kind:
      object.__setattr__(thing, "__class__", kind)
    _attributes_back(thing, saved)
  return Parts(named(kind), tuple(held), put_back if saved or hasattr(thing, "__dict__") else None,
               fixed=bool(getattr(parameters, "frozen", False)))


def _reduced(thing):
  """What `copy` and `pickle` would take of an object that keeps more than its attributes."""
  kind = type(thing)
  custom = any(getattr(kind, name) is not getattr(object, name)
               for name in ("__reduce__", "__reduce_ex__", "__getstate__"))
  if not custom and not hasattr(kind, "__next__"):
    return None
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # copying iterators is deprecated
      return thing.__reduce__() if hasattr(kind, "__next__") else thing.__reduce_ex__(4)
  except Exception:
    return repr(thing) if top(kind.__module__) == "itertools" else None


# The first that fits counts.
_FAMILIES = (
    (jax.Array, _array),
    (np.ma.MaskedArray, _masked),
    (np.ndarray, _ndarray),
    (np.generic, lambda thing: Parts((type(thing), thing.tobytes()), fixed=True)),
    (list, _list),
    (tuple, _tuple),
    (dict, _dict),
    ((set, frozenset), _set),
    (collections.deque, _deque),
    ((bytearray, array.array), _buffer),
    (types.MappingProxyType, _proxy),
    ((type({}.keys()), type({}.values()), type({}.items())), _view),
    (memoryview, lambda thing: Parts(("memoryview", thing.format, thing.tobytes()))),
    (re.Match, lambda thing: Parts((re.Match, thing.re, thing.string, thing.regs), fixed=True)),
    (types.FunctionType, _function),
    (types.CellType, _cell),
    (types.MethodType, _method),
    (types.BuiltinFunctionType, _builtin),
    (functools.partial, _partial),
    (functools._lru_cache_wrapper, lambda thing: Parts("cached", (("", thing.__wrapped__),))),
    (types.ModuleType, lambda thing: Parts(("module", thing.__name__), fixed=True)),
    (type, _class),
    (GENERATORS, _generator),
    ((np.random.Generator, np.random.BitGenerator, np.random.RandomState), _numpy_generator),
    (random.Random, _python_generator),
    ((io.StringIO, io.BytesIO), _text_buffer),
    (contextvars.ContextVar, _context_variable),
)


def walk(root, enter=lambda kind: True) -> Iterator[tuple[str, Any, Parts]]:
  """Yields every object that hangs on `root`, once, with the path to it and its parts."""
  seen, waiting = {}, collections.deque([("", root)])
  while waiting:
    path, thing = waiting.popleft()
    if id(thing) in seen:
      continue
    seen[id(thing)] = thing  # kept, so that no identity is given twice
    if len(seen) > NODES:
      raise TooLarge(f"more than {NODES:,} objects")
    parts = take_apart(thing, enter)
    yield path, thing, parts
    path = path if len(path) < 200 else f"{path[:100]}..."
    waiting.extend((path + label, item) for label, item in parts.held)


def fingerprint(root) -> tuple:
  """What an object is, as a value that equals another's exactly where the objects are alike.

  Arrays and floats count bit by bit (NaN equals NaN), functions by their code and what they keep,
  cycles by their shape.

  Raises:
    TooLarge: more than 200,000 objects.

  >>> loop = [1]; loop.append(loop); other = [1]; other.append(other)
  >>> fingerprint(loop) == fingerprint(other), fingerprint([1]) == fingerprint([True])
  (True, False)
  """
  kept, numbers, described = [], {}, []  # kept, so that no identity is given twice

  def mention(thing):
    """A leaf as it is; else the number of a node. What cannot change may as well be two."""
    parts = take_apart(thing)
    if parts.fixed and not parts.held:
      return "leaf", parts.leaf
    if id(thing) not in numbers or parts.fixed:
      if len(kept) > NODES:
        raise TooLarge(f"more than {NODES:,} objects")
      numbers[id(thing)] = len(kept)
      kept.append((thing, parts))
    return "node", numbers[id(thing)]

  start = mention(root)
  while len(described) < len(kept):
    _, parts = kept[len(described)]
    described.append((parts.leaf, tuple([(label, mention(item)) for label, item in parts.held])))
  return start, *described


def labelled(args, kwargs) -> dict:
  """The arguments by the names that reports give them."""
  return ({f"argument {i}": value for i, value in enumerate(args, start=1)}
          | {f"argument `{key}`": value for key, value in kwargs.items()})


def copied(value):
  """A deep copy, but of what jax and Python keep one of (devices, meshes, modules).

  Raises:
    Exception: what an object raises that cannot be copied.
  """
  shared = {id(thing): thing for _, thing, _ in walk(value)
            if isinstance(thing, types.ModuleType)
            or (top(type(thing).__module__) in ("jax", "jaxlib")
                and not isinstance(thing, jax.Array))}
  return copy.deepcopy(value, shared)
