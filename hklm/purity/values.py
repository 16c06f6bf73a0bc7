"""Objects taken apart; fingerprints, by which two can be compared; copies."""

import collections
import copy
import decimal
import enum
import pathlib
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from hklm.purity.families import FAMILIES, instance
from hklm.purity.parts import (
    ATOMS,
    MACHINE,
    OPAQUE,
    Parts,
    attributes,
    is_a,
    labels,
    named,
    top,
)

NODES = 200_000  # objects looked at before giving up
# By identity: the class of a class may answer anything when it is compared.
_ATOMS = frozenset(map(id, ATOMS))
# Objects of exactly these classes are told at once; for others all families are gone through.
_APART = {id(kind): next(apart for family, apart in FAMILIES if issubclass(kind, family))
          for kinds, _ in FAMILIES for kind in (kinds if isinstance(kinds, tuple) else (kinds,))}


class TooLarge(Exception):
  """More objects hang together than are looked at."""


def take_apart(thing, enter: Callable[[type], bool] = lambda kind: True) -> Parts:
  """What an object is and holds.

  Args:
    thing: anything.
    enter: whether to look into instances of a class that is neither known here nor a container.

  >>> take_apart([1, 2]).held
  (('[0]', 1), ('[1]', 2))
  >>> take_apart(float("nan")).leaf == take_apart(float("nan")).leaf
  True
  """
  try:
    return _taken_apart(thing, enter)
  except (Exception, SystemExit):  # an object of the user's may answer anything with an error
    return Parts((OPAQUE, named(type(thing))), fixed=True)


def _taken_apart(thing, enter) -> Parts:
  kind = type(thing)
  if id(kind) in _APART:
    return _APART[id(kind)](thing)
  if isinstance(thing, enum.Enum):
    return Parts((named(kind), thing.name), fixed=True)
  if id(kind) in _ATOMS or isinstance(thing, pathlib.PurePath):
    exact = kind in (float, complex, decimal.Decimal)  # NaN is like NaN, 0. unlike -0.
    return Parts((named(kind), repr(thing) if exact else thing), fixed=True)
  if isinstance(thing, (int, float, complex, str, bytes)):  # of a class of the user's
    base = next(base for base in kind.__mro__ if base in ATOMS)
    return Parts((named(kind), base.__repr__(thing)), labels(attributes(thing)), fixed=True)
  for family, apart in FAMILIES:
    if isinstance(thing, family):
      return apart(thing)
  machine = top(kind.__module__) in MACHINE
  if machine and hasattr(thing, "fun"):  # custom derivatives: the rules are the user's
    names = ("fun", "fwd", "bwd", "jvp", "vmap_rule")
    return Parts(named(kind),
                 tuple((f".{n}", getattr(thing, n)) for n in names if hasattr(thing, n)))
  if machine and callable(thing) and hasattr(thing, "__wrapped__"):  # what jit makes
    return Parts(named(kind), (("", thing.__wrapped__),))
  if isinstance(thing, np.dtype) or kind.__name__ == "PyTreeDef":
    return Parts((named(kind), re.sub("0x[0-9a-f]+", "0x", str(thing))), fixed=True)
  closed = machine and top(kind.__module__) != "numpy" and not hasattr(kind, "__next__")
  if closed or top(kind.__module__) == "unittest" or not enter(kind):
    return Parts((OPAQUE, named(kind)), fixed=True)
  return instance(thing)


def walk(root, enter=lambda kind: True) -> Iterator[tuple[str, Any, Parts]]:
  """Yields every object that hangs on `root`, once, with the path to it and its parts."""
  seen, waiting = {}, collections.deque([("", root)])
  while waiting:
    path, thing = waiting.popleft()
    if id(thing) in seen:
      continue
    seen[id(thing)] = thing  # kept, so that no identity is given twice
    if len(seen) > NODES:
      raise TooLarge(f"more than {NODES:,} objects")
    parts = take_apart(thing, enter)
    yield path, thing, parts
    path = path if len(path) < 200 else f"{path[:100]}..."
    waiting.extend((path + label, item) for label, item in parts.held)


def fingerprint(root) -> tuple:
  """What an object is, as a value that equals another's exactly where the objects are alike.

  Arrays and floats count bit by bit (NaN equals NaN), functions by their code and what they keep,
  cycles by their shape.

  Raises:
    TooLarge: more than 200,000 objects.

  >>> loop = [1]; loop.append(loop); other = [1]; other.append(other)
  >>> fingerprint(loop) == fingerprint(other), fingerprint([1]) == fingerprint([True])
  (True, False)
  """
  kept, numbers, described = [], {}, []  # kept, so that no identity is given twice

  def mention(thing):
    """A leaf as it is; else the number of a node. What cannot change may as well be two."""
    parts = take_apart(thing)
    if parts.fixed and not parts.held:
      return "leaf", parts.leaf
    if id(thing) not in numbers or parts.fixed:
      if len(kept) > NODES:
        raise TooLarge(f"more than {NODES:,} objects")
      numbers[id(thing)] = len(kept)
      kept.append((thing, parts))
    return "node", numbers[id(thing)]

  start = mention(root)
  while len(described) < len(kept):
    _, parts = kept[len(described)]
    described.append((parts.leaf, tuple([(label, mention(item)) for label, item in parts.held])))
  return start, *described


def labelled(args, kwargs) -> dict:
  """The arguments by the names that reports give them."""
  return ({f"argument {i}": value for i, value in enumerate(args, start=1)}
          | {f"argument `{key}`": value for key, value in kwargs.items()})


def copied(value):
  """A deep copy, but of what jax and Python keep one of (devices, meshes, modules).

  Raises:
    Exception: what an object raises that cannot be copied.
  """
  shared = {id(thing): thing for _, thing, _ in walk(value)
            if isinstance(thing, types.ModuleType)
            or (top(type(thing).__module__) in ("jax", "jaxlib")
                and not isinstance(thing, jax.Array))}
  return copy.deepcopy(value, shared)


def shared(one, other) -> str:
  """The class of an object that can change and hangs on both, not by way of a function; or "".

  >>> shared([[1]], copied([[1]])), shared(*2 * [[1]])
  ('', 'list')
  """
  def reachable(root):
    found, waiting = {}, [root]
    while waiting:
      thing = waiting.pop()
      if id(thing) not in found and not is_a(thing, (types.FunctionType, types.MethodType, type)):
        parts = take_apart(thing)
        found[id(thing)] = thing, parts.put_back is not None and not parts.fixed
        waiting += [item for _, item in parts.held]
    return found

  ours = reachable(one)
  for number, (thing, changes) in reachable(other).items():
    if changes and number in ours:
      return type(thing).__qualname__
  return ""
