"""Which code is the user's, and what of its surroundings a function can reach."""

import collections
import enum
import functools
import inspect
import site
import sys
import sysconfig
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from hklm.purity.bytecode import codes, globals_in, imports, names_in
from hklm.purity.parts import MACHINE, is_a, top
from hklm.purity.values import NODES, TooLarge, take_apart

_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
                    site.getusersitepackages()})
# Packages of the standard library whose objects are looked into: they are kept for what they hold.
_OPEN = frozenset({"argparse", "array", "collections", "configparser", "ctypes", "queue", "types",
                   "weakref", "_weakrefset"})
# Names with which code reaches what it does not name.
_REFLECTION = frozenset({"globals", "eval", "exec", "vars", "modules", "__dict__"})


class Territory:
  """The code that is looked into: that of the function's own package, and the user's.

  The user's is all that is neither the standard library nor installed; jax, Haiku and NumPy are
  the machine beneath and never looked into.
  """

  def __init__(self, name: str | None):
    self.package = "" if top(name) in sys.stdlib_module_names else top(name)

  def owns(self, name: str | None) -> bool:
    """Whether the code of a module is looked into, by the module's name."""
    package = top(name)
    if package in MACHINE or not package or name.startswith("hklm.purity"):
      return False
    return package == self.package or _is_users(package)

  def owns_globals(self, space: dict) -> bool:
    """The same by the globals of code; an example in a docstring here is a user's code."""
    name = space.get("__name__")
    if is_engine(space) or top(name) in MACHINE:
      return False
    return self.owns(name) or (isinstance(name, str) and name.startswith("hklm.purity"))

  def enter(self, kind: type) -> bool:
    """Whether the objects of a class are looked into."""
    return (self.owns(kind.__module__) or hasattr(kind, "__next__")
            or issubclass(kind, threading.local) or top(kind.__module__) in _OPEN)


def is_engine(space: dict) -> bool:
  """Whether globals are those of a module of this package."""
  name = space.get("__name__")
  return isinstance(name, str) and name.startswith("hklm.purity") and (
      vars(sys.modules.get(name, sys)) is space)


@functools.cache
def _is_users(package: str) -> bool:
  if package == "__main__":
    return True
  if package in sys.stdlib_module_names:
    return False
  module = sys.modules.get(package)
  path = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
  return bool(module) and not path.startswith(_INSTALLED)


def unwrapped(function):
  """The Python function beneath `jit` and decorators that keep it as `__wrapped__`."""
  try:
    return inspect.unwrap(function)
  except Exception:  # it wraps itself, or answers anything
    return function


def module_of(function) -> str:
  """The name of the module that a callable's code is in."""
  if isinstance(function, functools.partial):
    return module_of(function.func)
  function = unwrapped(function)
  if isinstance(function, types.MethodType):
    function = unwrapped(function.__func__)
  if isinstance(function, types.FunctionType):  # not __module__: `wraps` copies another's
    return function.__globals__.get("__name__", "")
  if isinstance(function, type):
    return function.__module__
  if top(type(function).__module__) in MACHINE and hasattr(function, "fun"):
    return module_of(function.fun)  # a custom derivative
  return type(function).__module__


class Namespace(NamedTuple):
  """The globals of a module that is looked into, and the names that walked code mentions."""

  name: str
  values: dict[str, Any]
  mentioned: set[str]

  def visible(self) -> dict[str, Any]:
    """All but what Python keeps there for itself."""
    return {key: value for key, value in self.values.items() if not key.startswith("__")}


class Survey(NamedTuple):
  """What a function can reach.

  Attributes:
    functions: the Python functions of the territory, the first one first.
    namespaces: the modules of the territory that they belong to or name.
    classes: the classes of the territory that they name or that their objects have.
    objects: pairs of a path and an object that they keep or name.
  """

  functions: list[types.FunctionType]
  namespaces: list[Namespace]
  classes: list[type]
  objects: list[tuple[str, Any]]

  def mentioned(self) -> set[str]:
    """Every name in the code of the functions."""
    return {name for function in self.functions for name in names_in(function)}


def survey(roots: dict[str, Any], territory: Territory) -> Survey:
  """Walks from callables to all functions, classes, modules and objects they name or keep.

  Args:
    roots: things to start from, by path.
    territory: what code is looked into.

  Returns:
    What was found, functions in the order of the walk.
  """
  result, seen, spaces, modules = Survey([], [], [], []), {}, {}, []
  waiting = collections.deque((path, thing, True) for path, thing in roots.items())

  def note(path, thing, own=True):
    if id(thing) not in seen:
      waiting.append((path, thing, own))

  def look_up(names, space):
    for name in names - space.mentioned:
      space.mentioned.add(name)
      if name in space.values:
        prefix = "" if space is result.namespaces[0] else f"{space.name}."
        note(f"global `{prefix}{name}`", space.values[name])

  def open_space(values):
    if id(values) not in spaces:
      spaces[id(values)] = Namespace(values.get("__name__", "?"), values, set())
      result.namespaces.append(spaces[id(values)])
    return spaces[id(values)]

  def visit_function(function):
    result.functions.append(function)
    own = open_space(function.__globals__)
    names = names_in(function)
    if names & _REFLECTION:
      look_up(own.visible().keys(), own)
    for code in codes(function.__code__):
      for imported in imports(code):
        module = sys.modules.get(imported)
        if module and territory.owns(module.__name__):
          modules.append(open_space(vars(module)))
    look_up(globals_in(function), own)
    for space in modules:  # `settings.rate`
      look_up(names, space)

  def visit_class(cls):
    result.classes.append(cls)
    note(f"class `{type(cls).__qualname__}`", type(cls))
    for base in cls.__mro__[1:]:
      note(f"class `{base.__qualname__}`", base)
    for name, member in list(vars(cls).items()):
      functions = _functions_of(member)
      for part in functions:
        note(f"`{cls.__qualname__}.{name}`", part)
      if not functions and not name.startswith("__") and not is_descriptor(member):
        note(f"class attribute `{cls.__qualname__}.{name}`", member)

  while waiting:
    path, thing, own = waiting.popleft()
    if id(thing) in seen:
      continue
    seen[id(thing)] = thing
    if len(seen) > NODES:
      raise TooLarge(f"more than {NODES:,} objects can be reached")
    if is_a(thing, types.ModuleType):
      if territory.owns(thing.__name__):
        modules.append(open_space(vars(thing)))
        look_up(result.mentioned(), modules[-1])
    elif is_a(thing, type):
      if territory.owns(thing.__module__) and not issubclass(thing, enum.Enum):
        visit_class(thing)
    else:
      if is_a(thing, types.FunctionType):
        own = territory.owns_globals(thing.__globals__)
        if own:
          visit_function(thing)
      elif territory.owns(type(thing).__module__):
        own = True
      if own:  # what the functions of others keep is their affair, but may lead to the user's
        result.objects.append((path, thing))
        note(f"class `{type(thing).__qualname__}`", type(thing))
      path = path if len(path) < 200 else f"{path[:100]}..."
      for label, item in take_apart(thing, territory.enter).held:
        note(path + label, item, own)
  return result


def _functions_of(member) -> list[Callable]:
  if isinstance(member, property):
    return [part for part in (member.fget, member.fset, member.fdel) if part]
  if isinstance(member, (staticmethod, classmethod)):
    return [member.__func__]
  if isinstance(member, functools.cached_property):
    return [member.func]
  return [member] if callable(member) and not isinstance(member, type) else []


def is_descriptor(member) -> bool:
  """Whether a class's member is how Python keeps a slot or an attribute of C."""
  return isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType))
