"""What a function can notice or change outside its own program: set, watched and put back."""

import contextlib
import io
import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hklm.purity.events import blamed
from hklm.purity.parts import is_a
from hklm.purity.places import PLACES, Left, folder, same, set_folder
from hklm.purity.report import Rule
from hklm.purity.territory import Territory


class Setting(NamedTuple):
  """The surroundings of one run.

  Attributes:
    seed: of the generators of `random` and `numpy.random`.
    answer: the first line on standard input; the following ones count up.
    environment: variables that differ from the real ones.
    elsewhere: whether the working directory is another one.
    arguments: the command line; the real one if None.
  """

  seed: int = 1
  answer: int = 1
  environment: tuple[tuple[str, str], ...] = ()
  elsewhere: bool = False
  arguments: tuple[str, ...] | None = None


def changed_settings(variables: set[str]) -> dict[str, Setting]:
  """Settings that differ from the usual one in one thing, by what that is.

  Args:
    variables: the environment variables to change.
  """
  environment = tuple((name, _other_variable(name)) for name in sorted(variables))
  return {
      "the seed of a global random generator": Setting(seed=2),
      "what standard input says": Setting(answer=1001),
      "an environment variable": Setting(environment=environment),
      "the working directory": Setting(elsewhere=True),
      "the command line": Setting(arguments=_ARGUMENTS),
      "all of them": Setting(2, 1001, environment, True, _ARGUMENTS),
  }


_ARGUMENTS = ("elsewhere", "--other=1")


def _other_variable(name: str) -> str:
  content = os.environ.get(name)
  try:
    return str(float(content) + 1) if "." in content else str(int(content) + 1)
  except (TypeError, ValueError):
    return "17" if content is None else content + "?"  # 1 is too likely a default


class Written(NamedTuple):
  """Text that went to a stream or a log, and the line of the user's code that sent it."""

  rule: Rule
  stream: str
  text: str
  place: str
  module: str


class Surroundings:
  """Stands in for the world while functions are checked.

  Inside `installed`, what is written to standard streams and logs is noted and goes nowhere,
  standard input gives numbers and then ends, and no read of it waits.

  Args:
    territory: whose code counts as the user's.
    current_module: tells the Haiku module at work.
  """

  def __init__(self, territory: Territory, current_module: Callable[[], str]):
    self.written: list[Written] = []
    self.variables: set[str] = set()
    self._territory = territory
    self._current_module = current_module

  @contextlib.contextmanager
  def installed(self) -> Iterator[None]:
    """Puts the stand-ins in place, and everything back afterwards."""
    saved = [place.read() for place in PLACES]
    streams = {name: getattr(sys, name)
               for name in ("stdin", "stdout", "stderr", "__stdout__", "__stderr__")}
    calls, data = logging.Logger.callHandlers, getattr(os.environ, "_data", None)

    def note_record(logger, record):
      if _shown(logger, record):
        try:
          content = record.getMessage()
        except Exception:  # logging would say so, and go on
          content = str(record.msg)
        self._note(Rule.OUTPUT, "the log", content, sys._getframe(1))

    def note_warning(message, *details, **more):
      self._note(Rule.OUTPUT, "standard error, as a warning", str(message), sys._getframe(1))

    with contextlib.ExitStack() as stack:
      self._stack = stack
      for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        title = f"standard {'error' if 'err' in name else 'output'}"
        if not self._mute(getattr(sys, name), Rule.OUTPUT, title):
          own = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
          self._mute(own, Rule.OUTPUT, title)
          setattr(sys, name, own)  # it takes no attribute, or there is none
      stack.enter_context(_silent_keyboard())
      stack.enter_context(warnings.catch_warnings())
      # What would be shown once is shown each time.
      warnings.filters[:] = [*((action if action in ("error", "ignore") else "always", *rest)
                               for action, *rest in warnings.filters),
                             ("always", None, Warning, None, 0)]
      warnings.showwarning = note_warning
      stack.callback(setattr, logging.Logger, "callHandlers", calls)
      logging.Logger.callHandlers = note_record
      if isinstance(data, dict):
        stack.callback(setattr, os.environ, "_data", data)
        os.environ._data = _Variables(data, self._read_variable)
      try:
        yield
      finally:
        for name, stream in streams.items():
          setattr(sys, name, stream)
        if isinstance(data, dict):
          os.environ._data = data
        for place, value in zip(PLACES, saved, strict=True):
          if place.write and not same(place.read(), value):
            place.write(value)

  @contextlib.contextmanager
  def run(self, setting: Setting) -> Iterator[Left]:
    """Sets the surroundings of one run; yields what tells what the run leaves changed."""
    random.seed(setting.seed)
    with contextlib.suppress(Exception):  # another bit generator may have been put in
      np.random.seed(setting.seed)
    home = folder()
    with contextlib.ExitStack() as stack:
      for name, value in setting.environment:
        stack.callback(_restore_variable, name, os.environ.get(name))
        os.environ[name] = value
      if setting.elsewhere:
        elsewhere = stack.enter_context(tempfile.TemporaryDirectory())
        stack.callback(set_folder, home)
        os.chdir(elsewhere)
      if setting.arguments is not None:
        stack.callback(sys.argv.__setitem__, slice(None), list(sys.argv))
        sys.argv[1:] = setting.arguments
      sys.stdin = io.StringIO("".join(f"{setting.answer + i}\n" for i in range(100)))
      left = Left()
      try:
        yield left
      finally:
        left.put_back()

  def watch_files(self, objects: Iterable[tuple[str, Any]]):
    """Notes what is written to open files that a function keeps, and lets none of it through.

    Afterwards they stand where they stood.
    """
    for path, thing in objects:
      if is_a(thing, (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom)):
        with contextlib.suppress(OSError, ValueError):  # no file that can be wound back, or closed
          self._stack.callback(_wind_back, thing, thing.tell())
      if is_a(thing, (io.TextIOWrapper, io.BufferedWriter)) and "write" not in vars(thing):
        self._mute(thing, Rule.NO_TRACE, f"the file of {path}")

  def _note(self, rule: Rule, stream: str, content: str, frame):
    place = blamed(frame, self._territory)
    if content and place is not None:
      self.written.append(Written(rule, stream, content, place, self._current_module()))

  def _mute(self, stream, rule: Rule, title: str) -> bool:
    """Notes what is written to a stream, whoever holds it; says whether it could."""
    def write(content):
      self._note(rule, title, content, sys._getframe(1))
      return len(content)

    def write_bytes(content):
      self._note(rule, title, bytes(content).decode("utf-8", "replace"), sys._getframe(1))
      return len(content)

    def close():
      self._note(rule, f"{title}, by closing it", "closed", sys._getframe(1))

    replacements = [(stream, write if isinstance(stream, io.TextIOBase) else write_bytes)]
    if hasattr(stream, "buffer"):
      replacements.append((stream.buffer, write_bytes))
    try:
      for owner, replacement in replacements:
        for name, method in (("write", replacement), ("close", close)):
          self._stack.callback(_unmute, owner, name, vars(owner).get(name))
          setattr(owner, name, method)
    except (AttributeError, TypeError):
      return False
    return True

  def _read_variable(self, name: str, frame):
    if blamed(frame, self._territory) is not None:
      self.variables.add(name)


class _Variables(dict):
  """The content of `os.environ`, telling which variables are looked up."""

  def __init__(self, content, tell):
    super().__init__(content)
    self._tell = tell

  def __getitem__(self, key):
    self._tell(os.fsdecode(key), sys._getframe(1))
    return super().__getitem__(key)

  def __contains__(self, key):
    self._tell(os.fsdecode(key), sys._getframe(1))
    return super().__contains__(key)


def _wind_back(file, position):
  with contextlib.suppress(OSError, ValueError):
    file.seek(position)


def _unmute(owner, name, former):
  with contextlib.suppress(AttributeError):
    if former is None:
      delattr(owner, name)
    else:
      setattr(owner, name, former)


def _shown(logger, record) -> bool:
  """Whether a handler would take a record, as `logging` goes through them."""
  found = 0
  while logger:
    for handler in logger.handlers:
      found += 1
      if record.levelno >= handler.level and not isinstance(handler, logging.NullHandler):
        return True
    logger = logger.parent if logger.propagate else None
  return not found and record.levelno >= logging.WARNING


def _restore_variable(name, value):
  if value is None:
    os.environ.pop(name, None)
  else:
    os.environ[name] = value


@contextlib.contextmanager
def _silent_keyboard():
  """No read of file descriptor 0 waits: it is at its end."""
  try:
    kept, null = os.dup(0), os.open(os.devnull, os.O_RDONLY)
  except OSError:  # there is none
    yield
    return
  try:
    os.dup2(null, 0)
    yield
  finally:
    os.dup2(kept, 0)
    os.close(kept)
    os.close(null)
