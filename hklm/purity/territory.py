"""Which code is the user's, and what of its surroundings a function can reach."""

import collections
import dis
import functools
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hklm.purity.values import MACHINE, take_apart, top

_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
                    site.getusersitepackages()})


class Store(NamedTuple):
  """An assignment in bytecode: `STORE_GLOBAL`, `STORE_ATTR` or `STORE_DEREF`."""

  code: types.CodeType
  kind: str
  name: str


class Territory:
  """The code that is looked into: that of the function's own package, and the user's.

  The user's is all that is neither the standard library nor installed; jax, Haiku and NumPy are
  the machine beneath and never looked into.
  """

  def __init__(self, name: str | None):
    self.package = top(name)

  def owns(self, name: str | None) -> bool:
    """Whether the code of a module is looked into, by the module's name."""
    package = top(name)
    if package in MACHINE or not package or (name or "").startswith("hklm.purity"):
      return False
    return package == self.package or _is_users(package)

  def enter(self, kind: type) -> bool:
    """Whether the objects of a class are looked into."""
    return (self.owns(kind.__module__) or kind in (types.SimpleNamespace,)
            or hasattr(kind, "__next__"))


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
  while hasattr(function, "__wrapped__"):
    function = function.__wrapped__
  return function


def module_of(function) -> str:
  """The name of the module that a callable's code is in."""
  if isinstance(function, functools.partial):
    return module_of(function.func)
  function = unwrapped(function)
  function = getattr(function, "__func__", function)
  name = getattr(function, "__module__", None) or type(function).__module__
  if not hasattr(function, "__code__") and not isinstance(function, type):
    name = type(function).__module__
    if top(name) in MACHINE and hasattr(function, "fun"):  # a custom derivative
      return module_of(function.fun)
  return name


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
  """A code object and all those inside it."""
  yield code
  for constant in code.co_consts:
    if isinstance(constant, types.CodeType):
      yield from codes(constant)


def module_codes(namespace: dict) -> Iterator[types.CodeType]:
  """The code of every function and method of a module, by its namespace."""
  waiting, seen = list(namespace.values()), set()
  while waiting:
    thing = waiting.pop()
    if id(thing) in seen:
      continue
    seen.add(id(thing))
    if isinstance(thing, type):
      if thing.__module__ == namespace.get("__name__"):
        waiting += vars(thing).values()
    elif isinstance(thing, property):
      waiting += [thing.fget, thing.fset, thing.fdel]
    elif isinstance(thing, (staticmethod, classmethod)):
      waiting.append(thing.__func__)
    elif isinstance(thing, types.FunctionType):
      if thing.__globals__ is namespace:
        yield from codes(thing.__code__)
      if hasattr(thing, "__wrapped__"):
        waiting.append(thing.__wrapped__)
    elif callable(thing):  # what jit and custom derivatives make
      waiting.append(getattr(thing, "__wrapped__", None) or getattr(thing, "fun", None))


@functools.lru_cache(maxsize=10_000)
def _instructions(code: types.CodeType) -> tuple[tuple[str, object, int | None], ...]:
  return tuple((op.opname, op.argval, op.positions.lineno if op.positions else None)
               for op in dis.get_instructions(code)
               if op.opname.startswith(("LOAD_", "STORE_", "DELETE_", "IMPORT_NAME")))


def stores(code: types.CodeType) -> Iterator[Store]:
  """The assignments to globals, attributes and closure cells in one code object."""
  for name, argument, _ in _instructions(code):
    action, _, place = name.partition("_")
    if action in ("STORE", "DELETE") and place in ("GLOBAL", "ATTR", "DEREF"):
      yield Store(code, place, argument)


def imports(code: types.CodeType) -> Iterator[str]:
  """The modules that a code object imports when it runs."""
  return (argument for name, argument, _ in _instructions(code) if name == "IMPORT_NAME")


@functools.lru_cache(maxsize=10_000)
def line_of(code: types.CodeType, name: str) -> str:
  """Where code reads a name first: "file:line", or empty."""
  for action, argument, line in _instructions(code):
    if argument == name and action.startswith("LOAD_") and line:
      return f"{code.co_filename}:{line}"
  return ""


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
    return {name for function in self.functions for code in codes(function.__code__)
            for name in code.co_names}


def survey(roots: dict[str, Any], territory: Territory) -> Survey:
  """Walks from callables to all functions, classes, modules and objects they name or keep.

  Args:
    roots: things to start from, by path.
    territory: what code is looked into.

  Returns:
    What was found, functions in the order of the walk.
  """
  result, seen, spaces = Survey([], [], [], []), {}, {}
  waiting = collections.deque(roots.items())

  def note(path, thing):
    if id(thing) not in seen:
      waiting.append((path, thing))

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

  def visit_function(path, function):
    if not territory.owns(function.__module__ or function.__globals__.get("__name__")):
      return
    result.functions.append(function)
    open_space(function.__globals__)
    names = {name for code in codes(function.__code__) for name in code.co_names}
    for code in codes(function.__code__):
      for imported in imports(code):
        module = sys.modules.get(imported)
        if module and territory.owns(module.__name__):
          open_space(vars(module))
    for space in list(result.namespaces):
      look_up(names, space)

  while waiting:
    path, thing = waiting.popleft()
    if id(thing) in seen:
      continue
    seen[id(thing)] = thing
    if isinstance(thing, types.ModuleType):
      if territory.owns(thing.__name__):
        look_up(result.mentioned(), open_space(vars(thing)))
      continue
    if isinstance(thing, type):
      if territory.owns(thing.__module__):
        result.classes.append(thing)
        for name, member in vars(thing).items():
          for part in _functions_of(member):
            note(f"`{thing.__qualname__}.{name}`", part)
        for base in thing.__mro__[1:]:
          note(f"class `{base.__qualname__}`", base)
      continue
    if isinstance(thing, types.FunctionType):
      visit_function(path, thing)
    result.objects.append((path, thing))
    note(f"class `{type(thing).__qualname__}`", type(thing))
    for label, item in take_apart(thing, territory.enter).held:
      note(path + label, item)
  return result


def _functions_of(member) -> list[Callable]:
  if isinstance(member, property):
    return [part for part in (member.fget, member.fset, member.fdel) if part]
  if isinstance(member, (staticmethod, classmethod)):
    return [member.__func__]
  if isinstance(member, functools.cached_property):
    return [member.func]
  return [member] if callable(member) and not isinstance(member, type) else []
