"""Which attributes code binds anew, and on what: read from bytecode, receiver by receiver."""

import inspect
import types
from collections.abc import Iterable
from typing import Any

from hklm.purity.bytecode import Store, codes, module_codes, stores, stores_by_key
from hklm.purity.parts import is_a
from hklm.purity.territory import Survey

# Methods in which an object gets its attributes: what is stored there is no later change.
_BEGINNINGS = frozenset({"__init__", "__new__", "__post_init__", "__setstate__", "__set_name__",
                         "__init_subclass__"})
# Names with which code binds what it names in a string; the second sort when it stores by key.
_BINDERS = frozenset({"setattr", "__setattr__", "delattr"})
_SPACES = frozenset({"globals", "vars", "__dict__"})


class Bindings:
  """The assignments in the modules of a survey.

  Args:
    survey: what a function can reach.
  """

  def __init__(self, survey: Survey):
    self.codes = {id(space.values): list(module_codes(space.values))
                  for space in survey.namespaces}
    known = {id(code) for bodies in self.codes.values() for code in bodies}
    for function in survey.functions:  # those made by calls are no values of their module
      self.codes[id(function.__globals__)] += [
          code for code in codes(function.__code__) if id(code) not in known]
    spaces = {id(space.values): space.values for space in survey.namespaces}
    self._owners = _owners([*survey.classes, *(value for space in survey.namespaces
                                               for value in space.values.values()
                                               if is_a(value, type))])
    self.all: list[Store] = []
    self._attributes: dict[str, list[tuple[Store, dict]]] = {}
    for number, bodies in self.codes.items():
      for code in bodies:
        for store in stores(code):
          self.all.append(store)
          if store.kind == "ATTR":
            self._attributes.setdefault(store.name, []).append((store, spaces[number]))
    self._strings = strings(code for bodies in self.codes.values() for code in bodies)

  def globals_of(self, space: dict) -> set[str]:
    """The globals that functions of a module bind."""
    bodies = self.codes[id(space)]
    return {store.name for code in bodies for store in stores(code)
            if store.kind == "GLOBAL"} | (strings(bodies) & space.keys())

  def binds(self, thing: Any, name: str) -> bool:
    """Whether code, other than what makes an object, binds an attribute of a thing anew."""
    if name in self._strings:
      return True
    return any(self._binds(store, space, thing) for store, space in self._attributes.get(name, ()))

  def _binds(self, store: Store, space: dict, thing) -> bool:
    code, cls = store.code, thing if is_a(thing, type) else type(thing)
    owner = self._owners.get(id(code))
    if store.way in ("GLOBAL", "NAME"):
      return space.get(store.of) is thing
    if store.way == "FAST":
      arguments = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
      if store.of not in arguments:  # an object that the code has just made
        return False
      if code.co_name in _BEGINNINGS and store.of == arguments[0]:
        return False
      if owner and store.of == arguments[0]:
        kind, method = owner
        if method == "class" or issubclass(kind, type):  # it binds on classes
          return is_a(thing, type) and (issubclass(thing, kind) or is_a(thing, kind))
        return (not is_a(thing, type) and issubclass(cls, kind)
                and not _begins(kind, code.co_name))
    return not is_a(thing, type) or store.way == ""


def _begins(cls: type, method: str) -> bool:
  """Whether a method makes an object, or is called by one that does."""
  if method in _BEGINNINGS:
    return True
  makers = (inspect.unwrap(vars(base)[name]) for base in cls.__mro__ for name in _BEGINNINGS
            if name in vars(base))
  return any(method in maker.__code__.co_names for maker in makers if hasattr(maker, "__code__"))


def _owners(classes: Iterable[type]) -> dict[int, tuple[type, str]]:
  """The class that each method's code belongs to, and whether it takes the class."""
  found = {}
  for cls in classes:
    for member in vars(cls).values():
      method = "class" if is_a(member, classmethod) else "object"
      functions = [member.fget, member.fset, member.fdel] if is_a(member, property) else [
          getattr(member, "__func__", getattr(member, "func", member))]
      for function in functions:
        if not is_a(function, types.FunctionType):  # jitted, cached, ...
          function = getattr(function, "__wrapped__", None)
        if is_a(function, types.FunctionType) and not is_a(member, staticmethod):
          found[id(function.__code__)] = cls, method
  return found


def strings(bodies: Iterable[types.CodeType]) -> set[str]:
  """The strings in code that binds names by strings; what makes objects is left out, and with it
  what dataclasses generate."""
  return {constant for code in bodies
          if code.co_name not in _BEGINNINGS | _BINDERS and code.co_filename != "<string>"
          if _BINDERS.intersection(code.co_names)
          or (_SPACES.intersection(code.co_names)
              and (stores_by_key(code) or "update" in code.co_names))
          for constant in code.co_consts if is_a(constant, str)}
