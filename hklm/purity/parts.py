"""What an object is made of, in words that the rest of the package shares."""

import contextlib
import decimal
import fractions
import pathlib
import re
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple

ATOMS = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis),
         type(NotImplemented), decimal.Decimal, fractions.Fraction, pathlib.PurePath, re.Pattern)
GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
# Their objects are not looked into: the machine beneath, whose caches are nobody's trace.
MACHINE = frozenset({"jax", "jaxlib", "numpy", "ml_dtypes", "haiku", "absl"})
OPAQUE = "not looked into"
ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()


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


def named(kind: type) -> tuple[str, str]:
  """A class by its name: one made anew by each call is the same class."""
  return str(type.__dict__["__module__"].__get__(kind)), type.__dict__["__qualname__"].__get__(kind)


def labels(attributes: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
  """Attributes as an object's `Parts` hold them: `(".name", value)`."""
  return tuple((f".{name}", value) for name, value in attributes.items())


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


def put_attributes_back(thing, saved: dict[str, Any]):
  """Gives an object the attributes it had, and no others."""
  for name in attributes(thing).keys() - saved.keys():
    (delattr if is_a(thing, threading.local) else object.__delattr__)(thing, name)
  for name, value in saved.items():
    set_attribute(thing, name, value)


def set_attribute(thing, name: str, value):
  """Binds an attribute, also where the object says that it does not change."""
  (setattr if is_a(thing, threading.local) else object.__setattr__)(thing, name, value)
