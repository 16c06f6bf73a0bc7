"""What a function can notice or change outside its own program: set, watched and put back."""

import builtins
import contextlib
import decimal
import io
import locale
import logging
import os
import random
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from hklm.purity.events import blamed
from hklm.purity.image import Change
from hklm.purity.territory import Territory


class Setting(NamedTuple):
  """The surroundings of one run.

  Attributes:
    seed: of the generators of `random` and `numpy.random`.
    answer: the first line on standard input; the following ones count up.
    environment: variables that differ from the real ones.
    elsewhere: whether the working directory is another one.
  """

  seed: int = 1
  answer: int = 1
  environment: tuple[tuple[str, str], ...] = ()
  elsewhere: bool = False


class Written(NamedTuple):
  """Text that went to a standard stream or a log, and the line of the user's code that sent it."""

  stream: str
  text: str
  place: str
  module: str


class _Place(NamedTuple):
  """A part of the process that a function may leave changed."""

  what: str
  read: Callable[[], Any]
  write: Callable[[Any], None] | None
  remedy: str = "put it back before returning, or do it outside"


def numpy_state() -> tuple:
  """The state of NumPy's global generator, in a form that `==` compares."""
  name, key, *rest = np.random.get_state(legacy=True)
  return name, key.tobytes(), *rest


def _set_numpy(value):
  name, key, *rest = value
  np.random.set_state((name, np.frombuffer(key, np.uint32), *rest))


_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")  # not flags: any division sets


def _decimal_context():
  return {name: getattr(decimal.getcontext(), name) for name in _DECIMAL}


def _set_decimal(value):
  for name, content in value.items():
    setattr(decimal.getcontext(), name, content)


def _set_locale(value):
  locale.setlocale(locale.LC_ALL, value)


def _set_environment(value):
  for name in os.environ.keys() - value.keys():
    del os.environ[name]
  for name, content in value.items():
    if os.environ.get(name) != content:
      os.environ[name] = content


def _set_list(target):
  def write(value):
    target()[:] = value
  return write


def _set_jax(value):
  for name, content in value.items():
    if jax.config.values.get(name) != content:
      jax.config.update(name, content)


def _all_loggers():
  return {**{name: logger for name, logger in logging.root.manager.loggerDict.items()
             if isinstance(logger, logging.Logger)}, "root": logging.root}


def _loggers():
  return {name: (logger.level, logger.disabled) for name, logger in _all_loggers().items()
          if logger.level or logger.disabled}  # one just made is no change


def _set_loggers(value):
  for name, logger in _all_loggers().items():
    level, disabled = value.get(name, (logging.NOTSET, False))
    if (logger.level, logger.disabled) != (level, disabled):
      logger.setLevel(level)
      logger.disabled = disabled


def _set_builtins(value):
  for name in vars(builtins).keys() - value.keys():
    delattr(builtins, name)
  vars(builtins).update(value)


_KEY = "take a key (jax.random) or a seeded generator as an argument"
_PLACES = (
    _Place("advances the generator of `random`", random.getstate, random.setstate, _KEY),
    _Place("advances the generator of `numpy.random`",
           numpy_state, _set_numpy, _KEY),
    _Place("changes the environment", lambda: dict(os.environ), _set_environment),
    _Place("changes the working directory", os.getcwd, os.chdir),
    _Place("changes `sys.path`", lambda: list(sys.path), _set_list(lambda: sys.path)),
    _Place("changes `sys.argv`", lambda: list(sys.argv), _set_list(lambda: sys.argv)),
    _Place("changes NumPy's error handling", np.geterr, lambda value: np.seterr(**value)),
    _Place("changes NumPy's print options", np.get_printoptions,
           lambda value: np.set_printoptions(**value)),
    _Place("changes jax.config", lambda: dict(jax.config.values), _set_jax),
    _Place("changes the decimal context", _decimal_context, _set_decimal),
    _Place("changes the locale", lambda: locale.setlocale(locale.LC_ALL), _set_locale),
    _Place("changes the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    _Place("changes the warning filters", lambda: list(warnings.filters),
           _set_list(lambda: warnings.filters)),
    _Place("changes a logger's level", _loggers, _set_loggers),
    _Place("replaces a builtin", lambda: {k: v for k, v in vars(builtins).items() if k != "_"},
           _set_builtins),
    _Place("leaves a thread running", lambda: {t.name for t in threading.enumerate()}, None),
)


class Left:
  """What a run leaves changed in the process, against what was there when this was made."""

  def __init__(self):
    self._before = [place.read() for place in _PLACES]
    self._streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}

  def changes(self, only: frozenset[str] | None = None) -> list[Change]:
    """The changes; their paths are phrases, as "advances the generator of `random`"."""
    found = []
    for place, was in zip(_PLACES, self._before, strict=True):
      if only is None or place.what in only:
        now = place.read()
        if was != now:
          found.append(Change(place.what, *_difference(was, now), remedy=place.remedy))
    return found + [Change(f"replaces `sys.{name}`", "", "", remedy="put it back")
                    for name, stream in self._streams.items() if getattr(sys, name) is not stream]

  def input_was_read(self) -> bool:
    """Whether anything was taken from standard input."""
    stdin = self._streams["stdin"]
    return stdin.closed or stdin.tell() > 0

  def put_back(self):
    """Makes all of it what it was."""
    for place, was in zip(_PLACES, self._before, strict=True):
      if place.write and place.read() != was:
        place.write(was)
    for name, stream in self._streams.items():
      setattr(sys, name, stream)


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
    saved = [place.read() for place in _PLACES]
    streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    handle, data = logging.Logger.handle, os.environ._data

    def note_record(logger, record):
      self._note("the log", record.getMessage(), sys._getframe(1))

    with contextlib.ExitStack() as stack:
      for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        stack.enter_context(self._muted(name))
      stack.enter_context(_silent_keyboard())
      stack.enter_context(warnings.catch_warnings())
      warnings.simplefilter("ignore")  # a warning is noted where it is issued
      stack.callback(setattr, logging.Logger, "handle", handle)
      logging.Logger.handle = note_record
      stack.callback(setattr, os.environ, "_data", data)
      os.environ._data = _Variables(data, self._read_variable)
      try:
        yield
      finally:
        for name, stream in streams.items():
          setattr(sys, name, stream)
        os.environ._data = data
        for place, value in zip(_PLACES, saved, strict=True):
          if place.write and place.read() != value:
            place.write(value)

  @contextlib.contextmanager
  def run(self, setting: Setting) -> Iterator["Left"]:
    """Sets the surroundings of one run; yields what tells what the run leaves changed."""
    random.seed(setting.seed)
    np.random.seed(setting.seed)
    home = os.getcwd()
    with contextlib.ExitStack() as stack:
      for name, value in setting.environment:
        stack.callback(_restore_variable, name, os.environ.get(name))
        os.environ[name] = value
      if setting.elsewhere:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.callback(os.chdir, home)
        os.chdir(folder)
      sys.stdin = io.StringIO("".join(f"{setting.answer + i}\n" for i in range(100)))
      self.variables.clear()
      yield Left()

  def other_variable(self, name: str) -> str:
    """Another content than an environment variable has."""
    content = os.environ.get(name)
    try:
      return str(float(content) + 1) if "." in content else str(int(content) + 1)
    except (TypeError, ValueError):
      return "17" if content is None else content + "?"  # 1 is too likely a default

  def _note(self, stream: str, content: str, frame):
    place = blamed(frame, self._territory)
    if content and place is not None:
      self.written.append(Written(stream, content, place, self._current_module()))

  @contextlib.contextmanager
  def _muted(self, name: str):
    """Notes what is written to a stream, whoever holds it; where it takes no attribute, by
    putting another in its place."""
    stream, title = getattr(sys, name), f"standard {'error' if 'err' in name else 'output'}"
    if stream is None:
      yield
      return

    def write(content):
      self._note(title, content, sys._getframe(1))
      return len(content)

    def write_bytes(content):
      self._note(title, bytes(content).decode("utf-8", "replace"), sys._getframe(1))
      return len(content)

    owners = [(stream, write)]
    if hasattr(stream, "buffer"):
      owners.append((stream.buffer, write_bytes))
    former = [vars(owner).get("write") if hasattr(owner, "__dict__") else None
              for owner, _ in owners]
    try:
      for owner, replacement in owners:
        owner.write = replacement
    except AttributeError:  # it takes no attribute
      own = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
      own.write = write
      setattr(sys, name, own)
    try:
      yield
    finally:
      setattr(sys, name, stream)
      for (owner, _), before in zip(owners, former, strict=True):
        with contextlib.suppress(AttributeError):
          if before is None:
            del owner.write
          else:
            owner.write = before

  def _read_variable(self, name: str, frame):
    if blamed(frame, self._territory) is not None:
      self.variables.add(name)


class _Variables(dict):
  """The content of `os.environ`, telling which variables are looked up."""

  def __init__(self, content, tell):
    super().__init__(content)
    self._tell = tell
    self._content = content

  def __getitem__(self, key):
    self._tell(os.fsdecode(key), sys._getframe(1))
    return super().__getitem__(key)

  def __contains__(self, key):
    self._tell(os.fsdecode(key), sys._getframe(1))
    return super().__contains__(key)


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


def _difference(was, now) -> tuple[str, str]:
  """What was and what is: whole where it is short, the entries that differ where it has names."""
  if isinstance(was, dict) and isinstance(now, dict):
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)][:5]
    return (", ".join(f"{name} {was[name]!r:.40}" for name in names if name in was),
            ", ".join(f"{name} {now[name]!r:.40}" for name in names if name in now))
  if isinstance(was, (set, list)):
    return "", ", ".join(str(item) for item in now if item not in was)[:80]
  return (str(was), str(now)) if isinstance(was, (str, int)) else ("", "")
