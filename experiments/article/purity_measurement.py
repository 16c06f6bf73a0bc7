"""Measures whether a function is pure, by running it in surroundings that are made to differ.

Two rules, from "From PyTorch to JAX: towards neural net frameworks that purify stateful code"
(sjmielke.com/jax-purify.htm), in our words:

  1. when and how often a function runs does not change its output for the same input;
  2. having run it no, one or many times leaves no trace.

`measure(function, *args)` calls the function on fresh deep copies of the same arguments: twice in
the same surroundings, then once in each of several changed ones. Outputs that differ break rule 1.
What a run leaves behind breaks rule 2: a changed argument or global, text in a standard stream, a
random generator that moved on, a clock or a person that was asked.

Neither the function's name nor its text is looked at. Only which globals to vary is taken from
bytecode: those that some function of the same module rebinds, since nothing else tells a global
that is state from one that is a constant.

Not seen: files, the network, other processes, `datetime`, generators other than that of Python's
`random`, attributes of classes, and the influence of globals that other functions change in place.
"""

import builtins
import collections
import contextlib
import copy
import dis
import io
import itertools
import random
import reprlib
import sys
import time
import types
from typing import Any, NamedTuple

CLOCKS = ("time", "monotonic", "perf_counter", "process_time")
GENERATOR = random.random.__self__  # the one that the functions of `random` share


class Breach(NamedTuple):
  """One way in which a function was seen to break a rule."""

  rule: int  # 1: the output depends on more than the input. 2: a trace was left.
  by: str
  values: str = ""  # what it was and what it became, where that says more

  def __str__(self):
    return f"{self.by}: {self.values}" if self.values else self.by


class Surroundings(NamedTuple):
  """What a function can notice apart from its arguments."""

  rebound: tuple[tuple[str, Any], ...] = ()  # globals with another value than they have
  seed: int = 1
  clock: int = 1_000_000_000  # seconds at first; each reading is one later than the one before
  answer: int = 1  # of input() at first; each answer is one more than the one before


def measure(function, *args) -> list[Breach]:
  """Returns the ways in which `function(*args)` breaks the two rules; none if it is pure.

  Module globals, standard streams, clocks, `input` and the random generator are put back
  afterwards, also when the function raises. `input` never waits for anybody.

  Args:
    function: a function written in Python.
    *args: its arguments; every run gets deep copies of its own.

  Raises:
    Exception: whatever the function raises in unchanged surroundings.
  """
  usual = Surroundings()
  outcome, breaches = _run(function, args, usual, may_raise=False)
  again, traces = _run(function, args, usual)
  breaches += traces
  if again != outcome:
    # It differs although nothing was changed: to blame a part of the surroundings would be a guess.
    breaches.append(Breach(1, "different output when called again"))
  else:
    for what, changed in _changes(function, usual):
      there, traces = _run(function, args, changed)
      breaches += traces
      if there != outcome:
        breaches.append(Breach(1, f"different output when {what}"))
  # A breach shows again in later runs; its first showing, in the usual surroundings, is kept.
  first_showings = {(breach.rule, breach.by): breach for breach in reversed(breaches)}
  return sorted(first_showings.values())


def _changes(function, usual):
  """Yields surroundings that differ from the usual ones in one thing, after the thing's name."""
  for name in sorted(_rebound_globals(function)):
    for value in _other_values(function.__globals__.get(name)):
      yield f"global `{name}` is changed", usual._replace(rebound=((name, value),))
  yield "the random generator is seeded differently", usual._replace(seed=usual.seed + 1)
  yield "the clock shows another time", usual._replace(clock=usual.clock + 86_400)
  yield "input() answers something else", usual._replace(answer=usual.answer + 1)


def _rebound_globals(function) -> set[str]:
  """Names of the globals that some function of the same module assigns to."""
  members = [function]
  for value in function.__globals__.values():
    members += vars(value).values() if isinstance(value, type) else [value]
  codes = [member.__code__ for member in members
           if isinstance(member, types.FunctionType)
           and member.__globals__ is function.__globals__]
  names = set()
  while codes:
    code = codes.pop()
    codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    names |= {op.argval for op in dis.get_instructions(code) if op.opname == "STORE_GLOBAL"}
  return names


def _other_values(value) -> tuple:
  """Values of the same kind that differ from this one; none for a kind not known here."""
  match value:
    case bool():
      return (not value,)
    case int() | float() | complex():
      return value + 1, value + 1000  # two, since the function may round or compare
    case str():
      return value + "?", ""
    case list() | tuple():
      return value[:-1], value * 2
    case dict():
      return {}, value | {"?": 0}
  return ()


def _run(function, args, surroundings, may_raise=True):
  """Runs the function once in these surroundings; returns its outcome and the traces it left."""
  arguments = copy.deepcopy(args)
  with _installed(surroundings, function.__globals__) as witness:
    before = _photograph(function, arguments, witness)
    try:
      outcome = "returned", _picture(function(*arguments))
    except Exception as error:  # where the surroundings were changed, an outcome like any other
      if not may_raise:
        raise
      outcome = "raised", type(error), str(error)
    after = _photograph(function, arguments, witness)
  absent = None, "absent"
  traces = []
  for what in {**before, **after}:
    (was, was_text), (now, now_text) = before.get(what, absent), after.get(what, absent)
    if was != now:
      traces.append(Breach(2, what, f"{was_text} -> {now_text}" if now_text else ""))
  return outcome, traces


@contextlib.contextmanager
def _installed(surroundings, namespace):
  """Puts stand-ins in the place of what a function can notice, and puts everything back.

  Args:
    surroundings: what the stand-ins say.
    namespace: the globals of the function's module.

  Yields:
    A function that tells what the stand-ins have noticed so far.
  """
  asked = collections.Counter()

  def clock(unit):
    seconds = itertools.count(surroundings.clock)
    def read():
      asked["reads the clock"] += 1
      return unit(next(seconds))
    return read

  answers = itertools.count(surroundings.answer)
  def answer(prompt=""):
    print(prompt, end="")
    asked["reads input()"] += 1
    return str(next(answers))

  keyboard = io.StringIO(f"{surroundings.answer}\n")
  screen, error_screen = io.BytesIO(), io.BytesIO()
  stand_ins = {(builtins, "input"): answer,
               (sys, "stdin"): keyboard,
               (sys, "stdout"): io.TextIOWrapper(screen, "utf-8", write_through=True),
               (sys, "stderr"): io.TextIOWrapper(error_screen, "utf-8", write_through=True)}
  for name in CLOCKS:
    stand_ins[time, name] = clock(float)
    stand_ins[time, f"{name}_ns"] = clock(lambda seconds: seconds * 10**9)

  def witness():
    return {"reads standard input": keyboard.tell(),
            "writes to standard output": screen.getvalue(),
            "writes to standard error": error_screen.getvalue(),
            "replaces what others use": [getattr(*at) is thing for at, thing in stand_ins.items()],
            **asked}

  true_things = {place: getattr(*place) for place in stand_ins}
  true_globals, true_random = dict(namespace), random.getstate()
  stand_in_for = {id(true_things[place]): thing for place, thing in stand_ins.items()}
  memo = {}  # one for all, so that two names of one list are two names of one copy
  try:
    for name, value in true_globals.items():
      if id(value) in stand_in_for:  # `from time import time`
        namespace[name] = stand_in_for[id(value)]
      elif type(value) in (list, dict, set, bytearray) and not name.startswith("__"):
        # What the function changes in place is a copy, so that each run finds the same contents.
        namespace[name] = _copied(value, memo)
    namespace.update(copy.deepcopy(dict(surroundings.rebound)))
    random.seed(surroundings.seed)
    for (owner, name), thing in stand_ins.items():
      setattr(owner, name, thing)
    yield witness
  finally:
    for (owner, name), thing in true_things.items():
      setattr(owner, name, thing)
    random.setstate(true_random)
    for name in set(namespace) - set(true_globals):
      del namespace[name]
    namespace.update(true_globals)


def _copied(value, memo):
  """A deep copy, or the value itself where it holds what cannot be copied (a module, a lock)."""
  try:
    return copy.deepcopy(value, memo)
  except Exception:
    return value


def _photograph(function, arguments, witness) -> dict[str, tuple[Any, str]]:
  """Everything a run could leave a trace in: its name, what it is now, and a text for the table."""
  photo = {what: (seen, "") for what, seen in witness().items()}
  photo |= {
      "changes what the function keeps": (_picture(function), ""),
      "advances the random generator": (random.getstate(), ""),
  }
  for number, argument in enumerate(arguments, start=1):
    what = "changes its argument" if len(arguments) == 1 else f"changes its argument {number}"
    photo[what] = _picture(argument), reprlib.repr(argument)
  for name, value in function.__globals__.items():
    if not name.startswith("__") and value is not function:
      photo[f"changes global `{name}`"] = _picture(value), reprlib.repr(value)
  return photo


def _picture(value, around=()):
  """A value's contents as nested tuples, equal for equal contents, and NaN equal to NaN.

  Args:
    value: anything. What has no readable contents (a module, a class, a generator) is known by its
      name or type only.
    around: the containers this value is in, as identities: a list may contain itself.
  """
  if id(value) in around:
    return "inside", around.index(id(value))
  def inner(thing):
    return _picture(thing, (*around, id(value)))
  kind = type(value)
  match value:
    case None | bool() | int() | float() | complex() | str() | bytes():
      return kind, repr(value)
    case list() | tuple():
      return kind, tuple(map(inner, value))
    case dict():
      return kind, tuple((inner(key), inner(entry)) for key, entry in value.items())
    case set() | frozenset():
      return kind, frozenset(map(inner, value))
    case type() | types.ModuleType() | types.BuiltinFunctionType():
      return kind, value.__name__
    case types.FunctionType() if value.__globals__ is globals():
      return "stand-in"  # its counters are ours
    case random.Random() if value is GENERATOR:
      return "the random generator"  # behind every `from random import ...`; photographed once
    case types.MethodType():
      return kind, value.__name__, inner(value.__self__)
    case types.FunctionType():
      cells = (cell.cell_contents for cell in value.__closure__ or ())
      kept = value.__defaults__, value.__kwdefaults__, vars(value), tuple(cells)
      return kind, id(value.__code__), inner(kept)
  try:
    rebuilt = value.__reduce_ex__(4)
  except Exception:
    return kind
  if not isinstance(rebuilt, tuple):
    return kind, rebuilt
  # Parts three and four are iterators over a container's contents.
  return kind, tuple(inner(list(part) if place in (3, 4) and part else part)
                     for place, part in enumerate(rebuilt))
