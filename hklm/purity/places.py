"""The parts of the process that a function may leave changed: read, compared, put back."""

import builtins
import contextlib
import decimal
import gc
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags

from hklm.purity.image import Change, text
from hklm.purity.values import fingerprint


class Place(NamedTuple):
  """A part of the process that a function may leave changed."""

  what: str
  read: Callable[[], Any]
  write: Callable[[Any], None] | None
  remedy: str = "put it back before returning, or do it outside"


def numpy_state() -> tuple:
  """The state of NumPy's global generator, in a form that `==` compares."""
  return fingerprint(np.random.get_state(legacy=False))


def folder() -> str:
  """The working directory, or "" where it is gone."""
  try:
    return os.getcwd()
  except FileNotFoundError:  # it was removed
    return ""


def set_folder(value: str):
  """Changes the working directory, if that can be done."""
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


def _environment():
  """All variables, read beneath `os.environ`: during a check that tells of each one looked up."""
  content = getattr(os.environ, "_data", None)
  if not isinstance(content, dict):  # another mapping has been put in its place
    return dict(os.environ)
  return {os.environ.decodekey(name): os.environ.decodevalue(value)
          for name, value in content.items()}


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
  for name in vars(builtins).keys() - value.keys() - {"_"}:  # the last answer of a session
    delattr(builtins, name)
  vars(builtins).update(value)


_KEY = "take a key (jax.random) or a seeded generator as an argument"
PLACES = (
    Place("advances the generator of `random`", random.getstate, random.setstate, _KEY),
    Place("advances the generator of `numpy.random`",
           lambda: np.random.get_state(legacy=False), np.random.set_state, _KEY),
    Place("changes the environment", _environment, _set_environment),
    Place("changes the working directory", folder, set_folder),
    Place("changes `sys.path`", lambda: list(sys.path), _set_list(lambda: sys.path)),
    Place("changes `sys.argv`", lambda: list(sys.argv), _set_list(lambda: sys.argv)),
    Place("changes NumPy's error handling", np.geterr, lambda value: np.seterr(**value)),
    Place("changes NumPy's print options", np.get_printoptions,
           lambda value: np.set_printoptions(**value)),
    Place("changes jax.config", lambda: dict(jax.config.values), _set_jax),
    Place("changes the decimal context", _decimal_context, _set_decimal),
    Place("changes the locale", lambda: locale.setlocale(locale.LC_ALL), _set_locale),
    Place("changes the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Place("changes the warning filters", lambda: list(warnings.filters),
           _set_list(lambda: warnings.filters)),
    Place("changes a logger's level", _loggers, _set_loggers),
    Place("replaces a builtin", lambda: {k: v for k, v in vars(builtins).items() if k != "_"},
           _set_builtins),
    Place("changes the handlers of a logger", _handlers, _set_handlers),
    Place("disables logging", lambda: logging.root.manager.disable, logging.disable),
    Place("replaces a hook of `sys`", lambda: (sys.excepthook, sys.displayhook), _set_hooks),
    Place("changes whether garbage is collected", gc.isenabled,
           lambda value: gc.enable() if value else gc.disable()),
    Place("changes how a signal is handled", _signals, _set_signals),
    Place("changes an absl flag", _flags, _set_flags),
    Place("sets a trace function", sys.gettrace, sys.settrace),
    Place("leaves a thread running", lambda: {t.name for t in threading.enumerate()}, None),
)

_IMPORTS = frozenset({"changes the warning filters", "changes a logger's level",
                      "changes the handlers of a logger", "changes an absl flag",
                      "changes jax.config", "leaves a thread running", "replaces a builtin"})


class Left:
  """What a run leaves changed in the process, against what was there when this was made."""

  def __init__(self, places: tuple[Place, ...] = PLACES):
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
      if not same(was, now) and not (imported and place.what in _IMPORTS):
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
      if place.write and not same(place.read(), was):
        place.write(was)
    for name, stream in self._streams.items():
      setattr(sys, name, stream)


def same(was, now) -> bool:
  """Whether two readings of a place are equal, also where what is in them cannot be compared."""
  try:
    return bool(was == now)
  except Exception:  # a tracer may have been left anywhere
    return fingerprint(was) == fingerprint(now)


def _difference(was, now) -> tuple[str, str]:
  """What was and what is: whole where it is short, the entries that differ where it has names."""
  if isinstance(was, dict) and isinstance(now, dict):
    names = [name for name in {**was, **now} if not same(was.get(name), now.get(name))][:5]
    return (", ".join(f"{name} {text(was[name])}" for name in names if name in was),
            ", ".join(f"{name} {text(now[name])}" for name in names if name in now))
  if isinstance(was, (set, list)):
    return "", ", ".join(str(item) for item in now if item not in was)[:80]
  return (str(was), str(now)) if isinstance(was, (str, int)) else ("", "")
