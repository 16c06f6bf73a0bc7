"""Finds the line after which a trace was there, by looking after each line of the user's code."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from hklm.purity.image import Image
from hklm.purity.places import Left
from hklm.purity.territory import Territory

SECONDS = 3.0  # before giving up: the place then stays unknown


class Locator:
  """Follows a run line by line.

  Args:
    territory: whose lines are followed.
    paths: the paths whose change is looked for.
    current_module: tells the Haiku module at work.
  """

  def __init__(self, territory: Territory, paths: set[str], current_module: Callable[[], str]):
    self.places: dict[str, tuple[str, str]] = {}
    self._territory = territory
    self._paths = paths
    self._current_module = current_module
    self._pictures: list[Image | Left] = []
    self._last = ""
    self._deadline = time.monotonic() + SECONDS

  def watch(self, picture: Image | Left):
    """Looks at one more thing that tells changes."""
    self._pictures.append(picture.narrowed(self._paths))

  @contextlib.contextmanager
  def following(self) -> Iterator[None]:
    """Within it, lines are followed."""
    former = sys.gettrace()
    sys.settrace(self._call)
    try:
      yield
    finally:
      sys.settrace(former)
      self._look()

  def _call(self, frame, event, argument):
    return self._line if self._territory.owns_globals(frame.f_globals) else None

  def _line(self, frame, event, argument):
    self._look()
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if event == "line":
      self._last = place
    elif event == "return":  # what comes next is the rest of the caller's line
      back = frame.f_back
      while back and not self._territory.owns_globals(back.f_globals):
        back = back.f_back
      if back:
        self._last = f"{back.f_code.co_filename}:{back.f_lineno}"
    return self._line

  def _look(self):
    if not self._last or not self._paths - self.places.keys() or time.monotonic() > self._deadline:
      return
    for picture in self._pictures:
      for change in picture.changes():
        if change.path in self._paths:
          self.places.setdefault(change.path, (self._last, self._current_module()))
