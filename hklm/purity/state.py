"""Which of the things a function reads are state: names that some code binds anew."""

import contextvars
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hklm.purity.bindings import Bindings
from hklm.purity.bytecode import Store, codes, line_of, module_codes, names_in, stores
from hklm.purity.parts import ABSENT, attributes, is_a, set_attribute
from hklm.purity.territory import Namespace, Survey, Territory, is_descriptor
from hklm.purity.values import take_apart


class Slot(NamedTuple):
  """A name that holds state.

  Attributes:
    path: as "global `counter`".
    place: "file:line" of the first code that reads it.
    value: what it holds.
    bind: binds the name to another value.
    others: the values to try in its place.
  """

  path: str
  place: str
  value: Any
  bind: Callable[[Any], None]
  others: tuple


def slots(survey: Survey, territory: Territory) -> Iterator[Slot]:
  """Yields the state that the functions of a survey read.

  State is a global that a function of its module binds (`STORE_GLOBAL`), an attribute of a module,
  class, function or kept object that code outside constructors binds (`STORE_ATTR`), a closure cell
  that a sibling function binds (`STORE_DEREF`), and a context variable. What nothing binds anew is
  a constant. Code that binds by a string (`setattr`, `globals()[...]`) counts for the names in it.
  """
  bindings = Bindings(survey)
  read = {name: place for function in reversed(survey.functions) for name in names_in(function)
          if (place := _place(function, name))}
  tried = {constant for bodies in bindings.codes.values() for code in bodies
           for constant in code.co_consts}

  def slot(path, name, value, bind):
    return Slot(path, read[name], value, bind, other_values(value, tried))

  from_outside = _bound_from_outside(survey.namespaces, territory)
  for number, space in enumerate(survey.namespaces):
    bound = bindings.globals_of(space.values)
    bound |= from_outside[id(space.values)] & space.visible().keys()
    for name in sorted(bound & read.keys()):
      prefix = "" if number == 0 else f"{space.name}."
      yield slot(f"global `{prefix}{name}`", name, space.values.get(name, ABSENT),
                 _binder(space, name))
  for cls in survey.classes:
    for name, value in sorted(vars(cls).items()):
      if name in read and not _is_code(value) and bindings.binds(cls, name):
        yield slot(f"class attribute `{cls.__qualname__}.{name}`", name, value,
                   lambda new, cls=cls, name=name: setattr(cls, name, new))
  for path, thing in survey.objects:
    if path.startswith("argument"):
      continue  # what an argument holds is input
    if is_a(thing, contextvars.ContextVar):
      yield Slot(path, "", thing.get(ABSENT), thing.set, other_values(thing.get(ABSENT), tried))
    elif is_a(thing, types.FunctionType) or (
        territory.enter(type(thing)) and not take_apart(thing).fixed):
      for name, value in sorted(attributes(thing).items()):
        if name in read and not _is_code(value) and bindings.binds(thing, name):
          yield slot(f"{path}.{name}", name, value,
                     lambda new, thing=thing, name=name: set_attribute(thing, name, new))
  for name, value, cell, place in _cells(survey, bindings.all):
    yield Slot(f"closure cell `{name}`", place, value,
               lambda new, cell=cell: setattr(cell, "cell_contents", new),
               other_values(value, tried))


def _place(function: types.FunctionType, name: str) -> str:
  """Where a function reads a name, as such or as a string; empty if it does not."""
  for code in codes(function.__code__):
    place = line_of(code, name)
    if place:
      return place
  return ""


def _bound_from_outside(spaces: list[Namespace], territory: Territory) -> dict[int, set[str]]:
  """The names of modules that the functions of any loaded module bind: `settings.rate = 2`.

  By the identity of the module's globals.
  """
  bound = {id(space.values): set() for space in spaces}
  for name, module in list(sys.modules.items()):
    if is_a(module, types.ModuleType) and territory.owns(name):
      aliases = {alias: bound[id(vars(value))] for alias, value in vars(module).items()
                 if is_a(value, types.ModuleType) and id(vars(value)) in bound}
      for code in module_codes(vars(module)) if aliases else ():
        for store in stores(code):
          if store.kind == "ATTR" and store.of in aliases:
            aliases[store.of].add(store.name)
  return bound


def _cells(survey: Survey, assigned: list[Store]) -> Iterator[tuple]:
  done = set()
  for function in survey.functions:
    outer, local, _ = function.__code__.co_qualname.rpartition(".<locals>.")
    own = set(map(id, codes(function.__code__)))  # what it binds itself shows when it runs
    siblings = {store.name for store in assigned
                if store.kind == "DEREF" and store.name in store.code.co_freevars
                and store.code.co_qualname.startswith(outer + local)
                and id(store.code) not in own} if local else set()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
      place = line_of(function.__code__, name)
      if name in siblings and place and id(cell) not in done:
        done.add(id(cell))
        try:
          yield name, cell.cell_contents, cell, place
        except ValueError:  # it is empty
          continue


def _binder(space: Namespace, name: str) -> Callable[[Any], None]:
  def bind(value):
    if value is ABSENT:
      space.values.pop(name, None)
    else:
      space.values[name] = value
  return bind


def _is_code(value) -> bool:
  return is_descriptor(value) or is_a(
      value, (types.FunctionType, property, staticmethod, classmethod))


def other_values(value, constants=()) -> tuple:
  """Values of the same kind that differ from this one; for a kind not known here, a bare object.

  Args:
    value: what a name holds.
    constants: what the code at hand compares or binds; those of the same kind are tried.

  >>> other_values(3), other_values("a"), other_values(True)
  ((4, 1000003, 0, -3, -1000003), ('a?', ''), (False,))
  >>> other_values("eval", {"train", 7})
  ('eval?', 'train', '')
  """
  same = [constant for constant in constants if type(constant) is type(value)
          and constant != value]
  same = tuple(sorted(same, key=repr))[:8]
  match value:
    case bool():
      return (not value,)
    case int() | float() | complex() | np.number():  # several: it may be rounded or compared
      others = (value + 1, *same, value + 10**6, value * 0, -value, -value - 10**6)
      return tuple({other: None for other in others if other != value})
    case str():
      return (value + "?", *same, "") if value else ("?", *same)
    case list() | tuple() if type(value) in (list, tuple):
      return (value * 2, value[:-1]) if value else ((1,) if value == () else [1],)
    case dict() if type(value) is dict:
      return {}, value | {"?": 0}
  if is_a(value, (np.ndarray, jax.Array)) and jnp.issubdtype(value.dtype, np.number):
    return value + 1, -value - 1000
  return (object(),)
