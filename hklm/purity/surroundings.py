"""What a function can notice or change outside its own program: set, watched and put back."""

import builtins
import contextlib
import decimal
import gc
import io
import locale
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags

from hklm.purity.events import blamed
from hklm.purity.image import Change, text
from hklm.purity.report import Rule
from hklm.purity.territory import Territory
from hklm.purity.values import fingerprint, is_a


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


class Written(NamedTuple):
  """Text that went to a stream or a log, and the line of the user's code that sent it."""

  rule: Rule
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
  return fingerprint(np.random.get_state(legacy=False))


def _folder() -> str:
  try:
    return os.getcwd()
  except FileNotFoundError:  # it was removed
    return ""


def _set_folder(value: str):
  with contextlib.suppress(OSError):
    os.chdir(value)


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


def _handlers():
  return {name: list(logger.handlers) for name, logger in _all_loggers().items()
          if logger.handlers}


def _set_handlers(value):
  for name, logger in _all_loggers().items():
    logger.handlers[:] = value.get(name, [])


def _set_hooks(value):
  sys.excepthook, sys.displayhook = value


def _signals():
  return {number: signal.getsignal(number)
          for number in signal.valid_signals()}


def _set_signals(value):
  if threading.current_thread() is threading.main_thread():
    for number, handler in value.items():
      if handler is not None and signal.getsignal(number) is not handler:  # None is one set by C
        signal.signal(number, handler)


def _flags():
  return {name: flags.FLAGS[name].value for name in flags.FLAGS}


def _set_flags(value):
  for name in set(flags.FLAGS) & value.keys():
    flags.FLAGS[name].value = value[name]


def _set_builtins(value):
  for name in vars(builtins).keys() - value.keys():
    delattr(builtins, name)
  vars(builtins).update(value)


_KEY = "take a key (jax.random) or a seeded generator as an argument"
_PLACES = (
    _Place("advances the generator of `random`", random.getstate, random.setstate, _KEY),
    _Place("advances the generator of `numpy.random`",
           lambda: np.random.get_state(legacy=False), np.random.set_state, _KEY),
    _Place("changes the environment", lambda: dict(os.environ), _set_environment),
    _Place("changes the working directory", _folder, _set_folder),
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
    _Place("changes the handlers of a logger", _handlers, _set_handlers),
    _Place("disables logging", lambda: logging.root.manager.disable, logging.disable),
    _Place("replaces a hook of `sys`", lambda: (sys.excepthook, sys.displayhook), _set_hooks),
    _Place("changes whether garbage is collected", gc.isenabled,
           lambda value: gc.enable() if value else gc.disable()),
    _Place("changes how a signal is handled", _signals, _set_signals),
    _Place("changes an absl flag", _flags, _set_flags),
    _Place("sets a trace function", sys.gettrace, sys.settrace),
    _Place("leaves a thread running", lambda: {t.name for t in threading.enumerate()}, None),
)

_IMPORTS = frozenset({"changes the warning filters", "changes a logger's level",
                      "changes the handlers of a logger", "changes an absl flag",
                      "changes jax.config", "leaves a thread running"})


class Left:
  """What a run leaves changed in the process, against what was there when this was made."""

  def __init__(self, places: tuple[_Place, ...] = _PLACES):
    self._before = [(place, place.read()) for place in places]
    self._streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    self._modules = len(sys.modules)

  def narrowed(self, paths: set[str]) -> "Left":
    """The same for those places alone whose phrases are given."""
    return Left(tuple(place for place, _ in self._before if place.what in paths))

  def changes(self) -> list[Change]:
    """The changes; their paths are phrases, as "advances the generator of `random`"."""
    found = []
    imported = len(sys.modules) != self._modules  # a first import has effects, and has them once
    for place, was in self._before:
      now = place.read()
      if isinstance(now, set):  # what went was not started by the run
        now |= was
      if not _same(was, now) and not (imported and place.what in _IMPORTS):
        found.append(Change(place.what, *_difference(was, now), remedy=place.remedy))
    return found + [Change(f"replaces `sys.{name}`", "", "", remedy="put it back")
                    for name, stream in self._streams.items()
                    if getattr(sys, name, None) is not stream]

  def input_was_read(self) -> bool:
    """Whether anything was taken from standard input."""
    stdin = self._streams["stdin"]
    return stdin.closed or stdin.tell() > 0

  def put_back(self):
    """Makes all of it what it was."""
    for place, was in self._before:
      if place.write and not _same(place.read(), was):
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
        for place, value in zip(_PLACES, saved, strict=True):
          if place.write and not _same(place.read(), value):
            place.write(value)

  @contextlib.contextmanager
  def run(self, setting: Setting) -> Iterator["Left"]:
    """Sets the surroundings of one run; yields what tells what the run leaves changed."""
    random.seed(setting.seed)
    with contextlib.suppress(Exception):  # another bit generator may have been put in
      np.random.seed(setting.seed)
    home = _folder()
    with contextlib.ExitStack() as stack:
      for name, value in setting.environment:
        stack.callback(_restore_variable, name, os.environ.get(name))
        os.environ[name] = value
      if setting.elsewhere:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.callback(_set_folder, home)
        os.chdir(folder)
      if setting.arguments is not None:
        stack.callback(sys.argv.__setitem__, slice(None), list(sys.argv))
        sys.argv[1:] = setting.arguments
      sys.stdin = io.StringIO("".join(f"{setting.answer + i}\n" for i in range(100)))
      self.variables.clear()
      left = Left()
      try:
        yield left
      finally:
        left.put_back()

  def other_variable(self, name: str) -> str:
    """Another content than an environment variable has."""
    content = os.environ.get(name)
    try:
      return str(float(content) + 1) if "." in content else str(int(content) + 1)
    except (TypeError, ValueError):
      return "17" if content is None else content + "?"  # 1 is too likely a default

  def watch_files(self, objects: Iterable[tuple[str, Any]]):
    """Notes what is written to open files that a function keeps, and lets none of it through."""
    for path, thing in objects:
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
    self._content = content

  def __getitem__(self, key):
    self._tell(os.fsdecode(key), sys._getframe(1))
    return super().__getitem__(key)

  def __contains__(self, key):
    self._tell(os.fsdecode(key), sys._getframe(1))
    return super().__contains__(key)


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


def _same(was, now) -> bool:
  try:
    return bool(was == now)
  except Exception:  # a tracer may have been left anywhere
    return fingerprint(was) == fingerprint(now)


def _difference(was, now) -> tuple[str, str]:
  """What was and what is: whole where it is short, the entries that differ where it has names."""
  if isinstance(was, dict) and isinstance(now, dict):
    names = [name for name in {**was, **now} if not _same(was.get(name), now.get(name))][:5]
    return (", ".join(f"{name} {text(was[name])}" for name in names if name in was),
            ", ".join(f"{name} {text(now[name])}" for name in names if name in now))
  if isinstance(was, (set, list)):
    return "", ", ".join(str(item) for item in now if item not in was)[:80]
  return (str(was), str(now)) if isinstance(was, (str, int)) else ("", "")
