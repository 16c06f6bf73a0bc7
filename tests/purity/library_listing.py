"""Which public functions and methods hklm has: what `library_test` must not miss."""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import hklm


def public_names() -> set[str]:
  """Every public function, method and property of hklm but those of `hklm.purity`.

  A check works on the whole process; `behaviour_test` shows that it leaves no trace.

  Names are dotted, without the package: `ids.check_ids`, `metrics.Metrics.bits_per`. A class stands
  for its own constructor; operators that a class writes out (`+`, a call, ...) are methods.
  """
  found = set()
  for info in pkgutil.walk_packages(hklm.__path__, "hklm."):
    if not info.name.startswith("hklm.purity"):
      found |= set(_names(importlib.import_module(info.name)))
  return found


def _names(module) -> Iterator[str]:
  room = module.__name__.removeprefix("hklm.")
  for name, value in vars(module).items():
    if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
      continue
    if inspect.isclass(value):
      yield from (f"{room}.{method}" for method in _methods(module, name, value))
    elif callable(value):  # what jit makes is no plain function
      yield f"{room}.{name}"


def _methods(module, class_name: str, cls: type) -> Iterator[str]:
  for name, member in vars(cls).items():
    function = _function(member)
    if function is None or getattr(function, "__isabstractmethod__", False):
      continue  # an abstract one has nothing to run
    if name in ("__init__", "__post_init__"):
      if _is_written_in(module, function):
        yield class_name
    elif not name.startswith("_") or (_is_dunder(name) and _is_written_in(module, function)):
      yield f"{class_name}.{name}"


def _function(member):
  """The function of a method or property, or None for anything else."""
  if isinstance(member, property):
    member = member.fget
  elif isinstance(member, functools.cached_property):
    member = member.func
  elif isinstance(member, (classmethod, staticmethod)):
    member = member.__func__
  return member if callable(member) and not isinstance(member, type) else None


def _is_dunder(name: str) -> bool:
  return name.startswith("__") and name.endswith("__")


def _is_written_in(module, function) -> bool:
  """Whether it is in the module's source: dataclasses and named tuples make others."""
  code = getattr(inspect.unwrap(function), "__code__", None)
  return code is not None and code.co_filename == module.__file__
