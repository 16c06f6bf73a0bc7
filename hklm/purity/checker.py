"""Checks whether a function is pure, by running it in surroundings that are made to differ."""

import functools
import inspect
import threading
import types
from collections.abc import Callable

import jax

from hklm.purity.report import PurityReport
from hklm.purity.session import Session
from hklm.purity.territory import unwrapped
from hklm.purity.values import TooLarge, copied, fingerprint, labelled, shared

_ONE_AT_A_TIME = threading.RLock()


def check(function: Callable, /, *args, allow_output: bool = False,
          between: Callable[[], None] | None = None, **kwargs) -> PurityReport:
  """Whether `function(*args, **kwargs)` is pure, and if not, which rule it breaks and where.

  Two rules, measured: *same input, same output*, however often and whenever it runs; *no trace
  left* on arguments, containers, arrays, attributes, globals, closure cells, defaults, classes,
  modules, generators, streams and the process, whether it ran no, one or many times.

  The function is run 4 times in a row; once after `between`, if that is given; once in changed
  surroundings (seeds, standard input, environment, working directory, command line), and if that
  made a difference, once more as it was and once for each of the five; for each name that holds
  state, with other values in it until one makes a difference, at most 13. It is traced twice, the
  second time in changed surroundings, once more if its numbers cannot be tracers, and for each of
  those names 3 times at most; differentiated once, and as often as traced if a derivative in it is
  the user's or it cannot be traced; compiled and run twice if it calls back into Python; traced
  once more if a Haiku module was at work. For each of these kinds of run that left a trace, one is
  repeated, twice at most, to find the line.

  All that is seen to change is put back, the caller's arguments are never touched (each run gets
  copies), what it would print goes nowhere, and standard input never waits. Checks take turns: a
  second thread's waits for the first's to end.

  Args:
    function: anything that can be called: a function, a method, a jitted function, a module's
      transformed one.
    *args: its arguments.
    allow_output: whether what is printed, logged or warned is let pass.
    between: called between runs; it does what the rest of a program might do to state.
    **kwargs: its arguments by name; those two names need a `functools.partial`.

  Returns:
    The report. What cannot be run or copied is "unknown" and says why.

  Raises:
    TypeError: `function` cannot be called.

  >>> print(check(lambda x: 2 * x, 21).verdict)
  pure
  >>> seen = []
  >>> def remember(x):
  ...   seen.append(x)
  ...   return 2 * x
  >>> for finding in check(remember, 21).findings:
  ...   print(finding.rule.name, finding.what, finding.detail)
  NO_TRACE changes global `seen` [] -> [21]
  >>> seen
  []
  """
  if not callable(function):
    raise TypeError(f"found {type(function).__name__}; needed: a function to check")
  name = name_of(function)
  reason = _unrunnable(function) or _uncopyable(args, kwargs)
  if reason:
    return PurityReport(name, unchecked=(reason,), ran=False)
  jax.devices()  # the backend starts, and says so, before anything is watched
  with _ONE_AT_A_TIME:  # streams, seeds and the working directory are those of the whole process
    return Session(function, args, kwargs, allow_output, between).report(name)


def name_of(function) -> str:
  """What to call a function in a report."""
  if isinstance(function, functools.partial):
    return name_of(function.func)
  try:
    name = function.__qualname__
  except Exception:  # an object of the user's may answer anything
    name = None
  return name if isinstance(name, str) else type(function).__qualname__


def _unrunnable(function) -> str:
  if isinstance(function, functools.partial):
    return _unrunnable(function.func)
  inner = unwrapped(function)
  if not isinstance(inner, (types.FunctionType, types.MethodType)):
    return ""
  if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
    return "it is a generator: calling it runs nothing; check what consumes it"
  if inspect.iscoroutinefunction(inner):
    return "it is a coroutine: calling it runs nothing; check a function that runs it"
  return ""


def _uncopyable(args, kwargs) -> str:
  for label, value in labelled(args, kwargs).items():
    try:
      twin = copied(value)
      fingerprint(twin)
      if shared(value, twin):
        return f"{label} holds a {shared(value, twin)} whose copy is itself"
    except TooLarge as error:
      return f"{label} holds {error}"
    except (Exception, RecursionError) as error:
      return (f"{label} cannot be copied ({type(error).__name__}: {error}), and without copies a "
              "run could change what is the caller's")
  return ""
