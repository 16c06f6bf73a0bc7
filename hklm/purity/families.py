"""How objects of each family are taken apart, and put back as they were."""

import array
import collections
import contextvars
import decimal
import functools
import hashlib
import io
import random
import re
import reprlib
import types
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hklm.purity.parts import (
    ABSENT,
    ATOMS,
    GENERATORS,
    MACHINE,
    OPAQUE,
    Parts,
    attributes,
    labels,
    named,
    put_attributes_back,
    top,
)


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
  held = labels(extras)
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
    put_attributes_back(thing, extras)
  return Parts(leaf, held, put_back, fixed=not writeable)


def _container(thing, content, put_back) -> Parts:
  """A container with what it holds and the attributes that a subclass may add."""
  extras = attributes(thing) if type(thing) not in (list, dict, set, bytearray) else {}
  held = (*content, *labels(extras))
  def back():
    put_back()
    if extras:
      put_attributes_back(thing, extras)
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
  # Its order says nothing; of what has no value of its own, only the class counts.
  leaf = named(type(thing)), frozenset(collections.Counter(map(_member, thing)).items())
  if isinstance(thing, frozenset):
    return Parts(leaf, fixed=True)
  saved = set(thing)
  def put_back():
    thing.clear()
    thing.update(saved)
  return Parts(leaf, (), put_back)


def _member(thing):
  if type(thing) in (float, complex, decimal.Decimal):
    return type(thing), repr(thing)
  if type(thing) in ATOMS:
    return type(thing), thing
  if isinstance(thing, (tuple, frozenset)):
    return named(type(thing)), type(thing)(map(_member, thing)) if type(thing) in (
        tuple, frozenset) else tuple(map(_member, thing))
  return named(type(thing))


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
    elif _cell(thing).held[0][1] is not ABSENT:
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
    return Parts(named(type(thing)), _state(saved), lambda: thing.set_state(saved))
  saved = source.state
  def put_back():
    source.state = saved
  return Parts(named(type(thing)), _state(saved), put_back)


def _state(values: dict) -> tuple[tuple[str, Any], ...]:
  return (("", tuple(values.items())),)  # a tuple: compared by value, whichever dict it came in


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


def instance(thing) -> Parts:
  """An object of a class that is not known here: its attributes, and what a copy is made from."""
  kind, saved = type(thing), attributes(thing)
  held = [*labels(saved)]
  rebuilt = _reduced(thing)
  if rebuilt is not None:
    held.append(("", rebuilt))
  if not held and not hasattr(thing, "__dict__"):  # of C, and says nothing of itself
    return Parts((OPAQUE, named(kind)), fixed=True)
  parameters = getattr(kind, "__dataclass_params__", None)
  def put_back():
    if type(thing) is not kind:
      object.__setattr__(thing, "__class__", kind)
    put_attributes_back(thing, saved)
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
      return thing.__reduce_ex__(4)
  except Exception:  # it cannot be copied: locks, files, and since Python 3.14 itertools
    return repr(thing) if top(kind.__module__) == "itertools" else None


# The first that fits counts.
FAMILIES = (
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
    (io.IOBase, lambda thing: Parts((OPAQUE, named(type(thing))), fixed=True)),
    (contextvars.ContextVar, _context_variable),
)
