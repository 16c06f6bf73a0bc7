"""What code says of itself: the names that it reads, binds and imports."""

import dis
import functools
import types
from collections.abc import Iterator
from typing import NamedTuple

from hklm.purity.parts import MACHINE, attributes, is_a, top
from hklm.purity.values import take_apart


class Store(NamedTuple):
  """An assignment in bytecode.

  Attributes:
    code: where it is.
    kind: GLOBAL, ATTR or DEREF.
    name: what is bound.
    of: for an attribute, the name of what it is bound on, where the code says it just before.
    way: how that name is bound: FAST, GLOBAL, DEREF, NAME, or empty where there is none.
  """

  code: types.CodeType
  kind: str
  name: str
  of: str = ""
  way: str = ""


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
  """A code object and all those inside it."""
  yield code
  for constant in code.co_consts:
    if isinstance(constant, types.CodeType):
      yield from codes(constant)


def module_codes(namespace: dict) -> Iterator[types.CodeType]:
  """The code of every function and method of a module, by its namespace."""
  waiting, seen = list(namespace.values()), {}
  while waiting:
    thing = waiting.pop()
    if id(thing) in seen:
      continue
    seen[id(thing)] = thing
    if is_a(thing, type):
      if thing.__module__ == namespace.get("__name__"):
        waiting += vars(thing).values()
    elif is_a(thing, property):
      waiting += [thing.fget, thing.fset, thing.fdel]
    elif is_a(thing, (staticmethod, classmethod)):
      waiting.append(thing.__func__)
    elif is_a(thing, types.FunctionType):
      if thing.__globals__ is namespace:
        yield from codes(thing.__code__)
      waiting += [item for _, item in take_apart(thing).held]  # what a decorator keeps
    elif is_a(thing, types.CellType) or top(type(thing).__module__) in MACHINE:
      waiting += [item for _, item in take_apart(thing).held]  # what jit makes
    elif callable(thing):  # a command, a task: what a decorator makes of a function
      waiting += [item for item in attributes(thing).values()
                  if is_a(item, types.FunctionType)]


@functools.lru_cache(maxsize=10_000)
def _instructions(code: types.CodeType) -> tuple[tuple[str, object, int | None], ...]:
  return tuple((op.opname, op.argval, op.positions.lineno if op.positions else None)
               for op in dis.get_instructions(code)
               if op.opname.startswith(("LOAD_", "STORE_", "DELETE_", "IMPORT_NAME", "COPY",
                                        "SWAP")))


def stores(code: types.CodeType) -> list[Store]:
  """The assignments to globals, attributes and closure cells in one code object."""
  return [Store(code, *assigned) for assigned in _assignments(code)]


@functools.lru_cache(maxsize=10_000)  # without the code: one that is equal need not be the same
def _assignments(code: types.CodeType) -> tuple[tuple[str, str, str, str], ...]:
  found, of, way = [], "", ""
  copied = []  # the receivers of `x.a += 1`, which is loaded once and swapped under the result
  for name, argument, _ in _instructions(code):
    action, _, place = name.partition("_")
    if action in ("STORE", "DELETE") and place in ("GLOBAL", "ATTR", "DEREF"):
      found.append((place, argument, of, way))
    if name == "COPY":
      copied.append((of, way))
    of, way = copied.pop() if name == "SWAP" and copied else ("", "")
    if name.startswith("LOAD_FAST") or name == "STORE_FAST_LOAD_FAST":  # some load two
      of, way = (argument[-1] if isinstance(argument, tuple) else argument), "FAST"
    elif name in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME"):
      of, way = argument, name.removeprefix("LOAD_")
  return tuple(found)


def stores_by_key(code: types.CodeType) -> bool:
  """Whether code assigns to an entry of something: `x[key] = value`."""
  return any(name in ("STORE_SUBSCR", "DELETE_SUBSCR") for name, *_ in _instructions(code))


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


def names_in(function: types.FunctionType) -> set[str]:
  """The names that a function's code uses, and the strings in it, which may be names."""
  return {name for code in codes(function.__code__)
          for name in (*code.co_names, *code.co_consts) if isinstance(name, str)}


def globals_in(function: types.FunctionType) -> set[str]:
  """The globals that a function's code reads or binds, and the strings in it."""
  found = {name for code in codes(function.__code__) for name in code.co_consts
           if isinstance(name, str)}
  return found | {argument for code in codes(function.__code__)
                  for action, argument, _ in _instructions(code)
                  if action.endswith(("_GLOBAL", "_NAME"))}
