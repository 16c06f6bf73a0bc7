"""A picture of all that a function can reach, to compare with later and to put back."""

import enum
import functools
import inspect
import reprlib
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hklm.purity.parts import ABSENT, GENERATORS, Parts, is_a
from hklm.purity.territory import Survey
from hklm.purity.values import TooLarge, fingerprint, take_apart, walk


class Change(NamedTuple):
  """What is not as it was.

  Attributes:
    path: what changed, as "global `counter`".
    before: a short text of what it was.
    after: a short text of what it is.
    tracer: whether a tracer is in it now.
    deleted: whether it is an array whose memory was given away.
    stuck: whether nothing can put it back.
    remedy: what to do instead, where that is not the same for all changes.
    cached: whether it is what `functools.cached_property` keeps: no trace, but put back.
  """

  path: str
  before: str
  after: str
  tracer: bool = False
  deleted: bool = False
  stuck: bool = False
  remedy: str = ""
  cached: bool = False


class _Record(NamedTuple):
  prefix: str  # of all paths that may change in it
  path: str
  thing: Any
  again: Callable[[], Parts]
  parts: Parts
  text: str
  whole: bool  # a change is told of the whole, not of one slot


class Image:
  """What things are now; see `taken`."""

  def __init__(self, records: list[_Record]):
    self._records = records

  def changes(self) -> list[Change]:
    """What differs from when the image was taken, one change a path."""
    found = {}
    for record in self._records:
      for change in _compare(record):
        if not change.cached or change.tracer:
          found.setdefault(change.path, change)
    return list(found.values())

  def narrowed(self, paths: set[str]) -> "Image":
    """The part of the image in which these paths are."""
    return Image([record for record in self._records
                  if any(path.startswith(record.prefix) for path in paths)])

  def put_back(self):
    """Makes everything what it was, as far as that can be done."""
    for record in self._records:
      if record.parts.put_back and any(True for _ in _compare(record)):
        record.parts.put_back()


def taken(survey: Survey, enter: Callable[[type], bool]) -> Image:
  """The image of what a survey found."""
  records = []
  for number, space in enumerate(survey.namespaces):
    prefix = "global `" if number == 0 else f"global `{space.name}."
    def names(space=space):
      return {name: value for name, value in space.visible().items()
              if not _submodule(space.name, name, value)}
    records.append(_record_names(prefix, "`", names, space.values.__setitem__,
                                 space.values.__delitem__))
  for cls in survey.classes:
    def members(cls=cls):
      return {name: value for name, value in vars(cls).items()
              if not name.startswith("__") or is_a(value, types.FunctionType)}
    records.append(_record_names(
        f"class attribute `{cls.__qualname__}.", "`", members,
        lambda name, value, cls=cls: setattr(cls, name, value),
        lambda name, cls=cls: delattr(cls, name)))
  records += [_record(path, thing, enter) for path, thing in survey.objects]
  return Image(records)


def _submodule(package: str, name: str, value) -> bool:
  """Whether a name is what importing a module left in its package."""
  return is_a(value, types.ModuleType) and value.__name__ == f"{package}.{name}"


def taken_of(roots: dict[str, Any], enter: Callable[[type], bool] = lambda kind: True) -> Image:
  """The image of objects by name, and of everything they hold."""
  return Image([_record(name + path, thing, enter)
                for name, root in roots.items() for path, thing, parts in walk(root, enter)
                if is_a(thing, jax.Array) or parts.held or parts.put_back or not parts.fixed])


def _record(path, thing, enter) -> _Record:
  again = (lambda: _life(thing)) if is_a(thing, jax.Array) else (
      lambda: take_apart(thing, enter))
  whole = is_a(thing, (list, dict, set, *GENERATORS)) or hasattr(type(thing), "__next__")
  return _Record(path, path, thing, again, again(), text(thing), whole)


def _life(array) -> Parts:
  """An array cannot change; its memory can be given away."""
  gone = not is_a(array, jax.core.Tracer) and array.is_deleted()
  return Parts("deleted" if gone else "alive")


def _record_names(before, after, values, assign, remove) -> _Record:
  """A record of names bound to values, in a module or a class."""

  def again():
    return Parts("names", tuple((f"{before}{name}{after}", value)
                                for name, value in values().items()))

  saved = dict(values())

  def put_back():
    now = values()
    for name in now.keys() - saved.keys():
      remove(name)
    for name, value in saved.items():
      if now.get(name, ABSENT) is not value:
        assign(name, value)

  parts = again()
  return _Record(before, "", None, again, parts._replace(put_back=put_back), "", False)


def _compare(record: _Record) -> Iterable[Change]:
  was, now = record.parts, record.again()
  if was.leaf == now.leaf and len(was.held) == len(now.held) and all(
      a[1] is b[1] and a[0] == b[0] for a, b in zip(was.held, now.held, strict=True)):
    return
  old, new = dict(was.held), dict(now.held)
  changed = [label for label in {**old, **new}
             if not _same(old.get(label, ABSENT), new.get(label, ABSENT))]
  moved = is_a(record.thing, dict) and list(old) != list(new)
  stuck = was.put_back is None
  if record.whole or was.leaf != now.leaf:
    if changed or moved or was.leaf != now.leaf:
      deleted = now.leaf == "deleted"
      yield Change(record.path, record.text, "deleted" if deleted else text(record.thing),
                   any(map(_traced, new.values())), deleted, stuck)
    return
  for label in changed:
    after = new.get(label, ABSENT)
    descriptor = inspect.getattr_static(type(record.thing), label.removeprefix("."), None)
    yield Change(record.path + label, text(old.get(label, ABSENT)), text(after), _traced(after),
                 stuck=stuck, cached=(label not in old
                                      and is_a(descriptor, functools.cached_property)))


def _same(old, new) -> bool:
  if old is new:
    return True
  if old is ABSENT or new is ABSENT:
    return False
  p, q = take_apart(old), take_apart(new)
  try:
    # A tracer is of one trace: another that looks the same was leaked anew.
    return p.fixed and q.fixed and fingerprint(old) == fingerprint(new) and not _traced(new)
  except TooLarge:
    return False


def _traced(value) -> bool:
  try:
    return any(is_a(thing, jax.core.Tracer) for _, thing, _ in walk(value))
  except TooLarge:
    return False


class _Text(reprlib.Repr):
  """Short texts that call no code of the user's and print no large array."""

  def repr_instance(self, x, level):
    if is_a(x, jax.core.Tracer):
      return f"<tracer {x.aval}>"
    if is_a(x, (jax.Array, np.ndarray)):
      if is_a(x, jax.Array) and x.is_deleted():
        return "<deleted array>"
      if x.size > 8 or not jnp.issubdtype(x.dtype, np.number):
        return f"<{x.dtype}{list(x.shape)}>"
      return f"array({np.array2string(np.asarray(x), separator=', ')})".replace("\n", "")
    if is_a(x, (np.generic, float, complex, bytes, bool, types.NoneType, enum.Enum)) or (
        x is ABSENT):
      return super().repr_instance(x, level)
    if is_a(x, (type, types.FunctionType, types.ModuleType)):
      return f"<{getattr(x, '__qualname__', x.__name__)}>"
    return f"<{type(x).__qualname__}>"

  repr_ndarray = repr_ArrayImpl = repr_instance


_SHORT = _Text()


def text(value) -> str:
  """A short text for a report.

  >>> text([1.5, "a", np.zeros(100)])
  "[1.5, 'a', <float64[100]>]"
  """
  if is_a(value, tuple) and hasattr(value, "_fields"):
    return f"<{type(value).__qualname__}>"
  if type(value).__name__ == "generator" or hasattr(type(value), "__next__"):
    return f"<{type(value).__name__}>"
  try:
    return _SHORT.repr(value)
  except Exception:  # an object of the user's, an integer too long to print, ...
    return f"<{type(value).__name__}>"
