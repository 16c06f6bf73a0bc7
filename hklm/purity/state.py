"""Which of the things a function reads are state: names that some code binds anew."""

import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hklm.purity.territory import (
    Namespace,
    Store,
    Survey,
    Territory,
    codes,
    line_of,
    module_codes,
    stores,
)
from hklm.purity.values import ABSENT

# Methods in which an object gets its attributes: what is stored there is no later change.
_BEGINNINGS = frozenset({"__init__", "__new__", "__post_init__", "__setstate__", "__set_name__",
                         "__init_subclass__", "setup"})


class Slot(NamedTuple):
  """A name that holds state.

  Attributes:
    path: as "global `counter`".
    place: "file:line" of the first code that reads it.
    value: what it holds.
    bind: binds the name to another value.
  """

  path: str
  place: str
  value: Any
  bind: Callable[[Any], None]


def slots(survey: Survey, territory: Territory) -> Iterator[Slot]:
  """Yields the state that the functions of a survey read.

  State is a global that a function of its module binds (`STORE_GLOBAL`), an attribute of a module,
  class or kept object that code outside constructors binds (`STORE_ATTR`), and a closure cell that
  a sibling function binds (`STORE_DEREF`). What nothing binds anew is a constant.
  """
  bodies = [code for function in survey.functions for code in codes(function.__code__)]
  modules = {id(space.values): list(module_codes(space.values)) for space in survey.namespaces}
  # Functions made by calls are no values of their module.
  known = {id(code) for module in modules.values() for code in module}
  loose = [code for code in bodies if id(code) not in known]
  assigned = [store for code in [*loose, *(c for module in modules.values() for c in module)]
              for store in stores(code)]
  attributes = {store.name for store in assigned
                if store.kind == "ATTR" and store.code.co_name not in _BEGINNINGS}
  read = {name: place for code in reversed(bodies) for name in code.co_names
          if (place := line_of(code, name))}

  for number, space in enumerate(survey.namespaces):
    own = [*modules[id(space.values)], *loose] if number == 0 else modules[id(space.values)]
    bound = {store.name for code in own for store in stores(code) if store.kind == "GLOBAL"}
    for name in sorted(bound | attributes & space.visible().keys()):
      if name in read and not _is_code(space.values.get(name)):
        prefix = "" if number == 0 else f"{space.name}."
        yield Slot(f"global `{prefix}{name}`", read[name], space.values.get(name, ABSENT),
                   _binder(space, name))
  for cls in survey.classes:
    for name, value in sorted(vars(cls).items()):
      if name in attributes and name in read and not _is_code(value):
        yield Slot(f"class attribute `{cls.__qualname__}.{name}`", read[name], value,
                   lambda new, cls=cls, name=name: setattr(cls, name, new))
  for path, thing in survey.objects:
    if territory.owns(type(thing).__module__):
      for name, value in sorted(getattr(thing, "__dict__", {}).items()):
        if name in attributes and name in read and not _is_code(value):
          yield Slot(f"{path}.{name}", read[name], value,
                     lambda new, thing=thing, name=name: object.__setattr__(thing, name, new))
  yield from _cells(survey, modules, assigned)


def _cells(survey: Survey, modules, assigned: list[Store]) -> Iterator[Slot]:
  done = set()
  for function in survey.functions:
    outer, local, _ = function.__code__.co_qualname.rpartition(".<locals>.")
    siblings = {store.name for store in assigned
                if store.kind == "DEREF" and store.name in store.code.co_freevars
                and store.code.co_qualname.startswith(outer + local)} if local else set()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
      place = line_of(function.__code__, name)
      if name in siblings and place and id(cell) not in done:
        done.add(id(cell))
        try:
          value = cell.cell_contents
        except ValueError:
          continue
        if not _is_code(value):
          yield Slot(f"closure cell `{name}`", place, value,
                     lambda new, cell=cell: setattr(cell, "cell_contents", new))


def _binder(space: Namespace, name: str) -> Callable[[Any], None]:
  def bind(value):
    if value is ABSENT:
      space.values.pop(name, None)
    else:
      space.values[name] = value
  return bind


def _is_code(value) -> bool:
  return isinstance(value, (type, types.ModuleType, property, staticmethod, classmethod))


def other_values(value) -> tuple:
  """Values of the same kind that differ from this one; for a kind not known here, a bare object.

  >>> other_values(3), other_values("a"), other_values(True)
  ((4, 1003), ('a?', ''), (False,))
  """
  match value:
    case bool():
      return (not value,)
    case int() | float() | complex() | np.number():
      return value + 1, value + 1000  # two, since the function may round or compare
    case str():
      return value + "?", ""
    case list() | tuple() if type(value) in (list, tuple):
      return (value * 2, value[:-1]) if value else ((*value, 1) if value == () else [1],)
    case dict() if type(value) is dict:
      return {}, value | {"?": 0}
  if isinstance(value, (np.ndarray, jax.Array)) and jnp.issubdtype(value.dtype, np.number):
    return (value + 1,)
  return (object(),)
