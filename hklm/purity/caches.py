"""Caches of `functools.lru_cache`, emptied for a check: a full one hides what it was filled by."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator

from hklm.purity.parts import is_a
from hklm.purity.territory import Survey

_CACHED = type(functools.lru_cache(lambda: None))


@contextlib.contextmanager
def fresh_caches(function: Callable, survey: Survey) -> Iterator[tuple[Callable, Callable]]:
  """Puts empty caches in the place of those that a function can reach, and the old ones back.

  Args:
    function: the function that is checked.
    survey: what it can reach.

  Yields:
    The function, or an empty cache around it where it is one; and what empties all of them.
  """
  renewed = {}

  def renew(cached):
    if id(cached) not in renewed:
      empty = functools.lru_cache(**cached.cache_parameters())(cached.__wrapped__)
      renewed[id(cached)] = cached, empty
    return renewed[id(cached)][1]

  with contextlib.ExitStack() as stack:
    for space in survey.namespaces:
      for name, value in space.visible().items():
        if is_a(value, _CACHED) and name in space.mentioned:
          space.values[name] = renew(value)
          stack.callback(space.values.__setitem__, name, value)
    for cls in survey.classes:
      for name, value in list(vars(cls).items()):
        if is_a(value, _CACHED):
          setattr(cls, name, renew(value))
          stack.callback(setattr, cls, name, value)
    for _, thing in survey.objects:
      if is_a(thing, types.CellType):
        with contextlib.suppress(ValueError):  # an empty cell
          value = thing.cell_contents
          if is_a(value, _CACHED):
            thing.cell_contents = renew(value)
            stack.callback(setattr, thing, "cell_contents", value)

    def empty_all():
      for _, empty in renewed.values():
        empty.cache_clear()

    yield renew(function) if is_a(function, _CACHED) else function, empty_all
