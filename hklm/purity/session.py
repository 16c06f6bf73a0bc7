"""One check: the runs, what each showed, and where."""

import contextlib
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import haiku as hk
import jax

from hklm.purity import image, state, tracing
from hklm.purity.events import Witness
from hklm.purity.locate import Locator
from hklm.purity.modules import Watch
from hklm.purity.report import Finding, PurityReport, Rule
from hklm.purity.surroundings import Setting, Surroundings
from hklm.purity.territory import Territory, module_of, survey
from hklm.purity.values import GENERATORS, TooLarge, copied, fingerprint, labelled, walk

_USUAL = Setting()
CALLS = 4  # in a row, without anything put back between them
_REMEDIES = {
    "argument": "return a changed copy: `[*xs, x]`, `{**d, key: value}`, `x.at[i].set(y)`",
    "tracer": "return the value; outside its trace a tracer is of no use",
    "deleted": "jit it without `donate_argnums`, or give it a copy",
    "state": "take it as an argument and return the new value",
}


class _Outcome(NamedTuple):
  """How a run ended: "returned" with a fingerprint, or "raised" with the error's text."""

  ending: str
  content: Any


class _Kind(NamedTuple):
  """A kind of run: its name in findings, and what calls the function on copies of arguments."""

  when: str
  call: Callable[[tuple, dict], Any]


class Session:
  """The state of one check."""

  def __init__(self, function, args, kwargs, allow_output, between):
    self._function, self._args, self._kwargs = function, args, kwargs
    self._allow_output, self._between = allow_output, between
    self._territory = Territory(module_of(function))
    self._watch = Watch()
    self._world = Surroundings(self._territory, self._watch.current)
    self._findings: dict[tuple[Rule, str], Finding] = {}
    self._unplaced: dict[tuple[Rule, str], tuple[_Kind, str]] = {}
    self._unchecked: dict[str, None] = {}
    self._runs = self._compilations = 0
    self._ran = True
    self._image: image.Image | None = None
    self._locator: Locator | None = None

  def report(self, name: str) -> PurityReport:
    """Makes all runs and says what they showed."""
    with self._world.installed():
      root = f"`{name}`"
      roots = {root: self._function}
      for label, value in labelled(self._args, self._kwargs).items():
        for path, thing, _ in walk(value):
          if callable(thing):
            roots[label + path] = thing
          if self._territory.owns(type(thing).__module__):  # its methods may be called
            roots[f"class `{type(thing).__qualname__}`"] = type(thing)
      self._survey = survey(roots, self._territory)
      self._image = image.taken(self._survey, self._territory.enter)
      try:
        self._all_runs()
      except Exception as error:  # odd objects may make any of it fail: never a silent pass
        self._ran = False
        self._note_unchecked(f"the check failed ({type(error).__name__}: {error!s:.200})")
      finally:
        self._image.put_back()
        stuck = [change.path for change in self._image.changes()]
    if stuck:
      self._note_unchecked(f"{', '.join(stuck)} could not be put back as it was")
    return PurityReport(name, tuple(self._findings.values()), tuple(self._unchecked), self._ran,
                        self._runs, self._compilations)

  def _all_runs(self):
    eager = _Kind("run", lambda args, kwargs: self._function(*args, **kwargs))
    first = self._run(eager)
    if first.ending == "raised":
      self._ran = False
      self._note_unchecked(f"it raised {first.content}")
    elif first.ending == "unread":
      self._ran = False
      self._note_unchecked(first.content)
    steady = self._repeat(eager, first)
    self._image.put_back()
    if steady:
      self._try_between(eager, first)
      self._vary(eager, first)
    if first.ending == "returned":
      self._trace(steady)
    if self._watch.seen:
      self._use_haiku()
    self._find_lines()

  def _repeat(self, kind: _Kind, first: _Outcome) -> bool:
    for number in range(2, CALLS + 1):
      with _counted_compilations() as counted:
        again = self._run(kind._replace(when=f"run {number}"))
      self._compilations = len(counted)
      if again != first:
        self._add(Rule.SAME_OUTPUT, "output differs when it is called again", _shown(first, again),
                  f"run {number}", remedy=_REMEDIES["state"])
        return False
    return True

  def _try_between(self, kind: _Kind, first: _Outcome):
    if self._between is None:
      return
    before, whole = image.taken(self._survey, self._territory.enter), self._image
    self._between()
    paths = [change.path for change in before.changes()]
    self._image = image.taken(self._survey, self._territory.enter)
    try:
      there = self._run(kind)
    finally:
      self._image = whole
      self._image.put_back()
    if there != first:
      self._add(Rule.SAME_OUTPUT, "output depends on what `between` changes", ", ".join(paths),
                kind.when, remedy=_REMEDIES["state"])

  def _vary(self, kind: _Kind, first: _Outcome):
    """Runs in changed surroundings, then with each name that holds state bound anew."""
    variables = tuple((name, self._world.other_variable(name))
                      for name in sorted(self._world.variables))
    changes = {
        "the seed of a global random generator": {"seed": 2},
        "what standard input says": {"answer": 1001},
        "an environment variable": {"environment": variables},
        "the working directory": {"elsewhere": True},
    }
    everything = {key: value for change in changes.values() for key, value in change.items()}
    if self._run(kind, Setting(**everything)) != first:
      for what, change in changes.items():
        there = self._run(kind, Setting(**change))
        if there != first:
          detail = ", ".join(name for name, _ in variables) if "environment" in change else ""
          self._add(Rule.SAME_OUTPUT, f"output depends on {what}", detail, kind.when,
                    remedy="take it as an argument")
    self._rebind(kind, first)

  def _rebind(self, kind: _Kind, first: _Outcome):
    for slot in state.slots(self._survey, self._territory):
      for value in state.other_values(slot.value):
        slot.bind(value)
        rebound = image.taken(self._survey, self._territory.enter)
        keep, self._image = self._image, rebound
        try:
          there = self._run(kind)
        finally:
          self._image = keep
          slot.bind(slot.value)
          self._image.put_back()
        if not self._alike(first, there):
          self._add(Rule.SAME_OUTPUT, f"output depends on {slot.path}",
                    f"with {image.text(value)} in place of {image.text(slot.value)}", kind.when,
                    slot.place, remedy=_REMEDIES["state"])
          break

  def _trace(self, steady: bool):
    """Traces and differentiates, with Python's numbers traced like arrays if they can be."""
    for scalars in (True, False):
      parts = tracing.split(self._args, self._kwargs, scalars)
      kind = _Kind("traced", lambda args, kwargs, scalars=scalars: tracing.trace(
          self._function, tracing.split(args, kwargs, scalars), self._around))
      first = self._run(kind)
      if first.ending == "returned":
        break
      numbers = scalars and parts.places != tracing.split(self._args, self._kwargs, False).places
      self._note_unchecked(f"it cannot be traced{' with its numbers as tracers' if numbers else ''}"
                           f" ({first.content:.200})")
      if not numbers:
        break
    self._values = parts.values()
    traced = first.ending == "returned"
    if traced:
      self._trace_again(kind, first, steady)

    def gradient(args, kwargs):
      return tracing.gradient(self._function, tracing.split(args, kwargs, scalars), self._around,
                              traced)

    kind = _Kind("differentiated", gradient)
    first = self._run(kind)
    if first.ending == "raised":
      self._note_unchecked(f"it cannot be differentiated in reverse ({first.content:.200})")
    elif first.content is not None and not self._alike(first, self._run(kind, Setting(seed=2))):
      self._add(Rule.SAME_OUTPUT, "its gradient differs from one run to the next", "", kind.when,
                remedy="take what varies as an argument: a key, a seed, a number")

  def _trace_again(self, kind: _Kind, first: _Outcome, steady: bool):
    again = self._run(kind, Setting(seed=2))
    if self._varies():
      pass
    elif not self._alike(first, again):
      self._add(Rule.SAME_OUTPUT, "what jit records differs from one trace to the next", "",
                kind.when, remedy="take what varies as an argument: a key, a seed, a number")
    elif steady:
      self._rebind(kind, first)
    callbacks = first.content.callbacks
    if "io_callback" in callbacks:
      self._add(Rule.NO_TRACE, "calls back into Python for an effect", "io_callback", kind.when,
                remedy="return the value and act on it outside, or use pure_callback if it is pure")
    if any(name.startswith("debug") for name in callbacks):
      self._add(Rule.OUTPUT, "prints or calls back when it runs under jit", "jax.debug", kind.when,
                remedy="return what is to be shown")
    if callbacks:  # what they do shows only when the program runs
      def compiled(args, kwargs):
        parts = tracing.split(args, kwargs, False)
        def function(values):
          args, kwargs = parts.joined(values)
          return self._function(*args, **kwargs)
        return jax.jit(function)(parts.values())
      kind = _Kind("compiled", compiled)
      if self._run(kind) != self._run(kind, Setting(seed=2)):
        self._add(Rule.SAME_OUTPUT, "output of the compiled function differs when it runs again",
                  "", kind.when, remedy=_REMEDIES["state"])

  def _varies(self) -> bool:
    """Whether the output is known to vary: then traces vary for the same reason."""
    return any(rule is Rule.SAME_OUTPUT and what.startswith("output") for rule, what in
               self._findings)

  def _use_haiku(self):
    """Traces with Haiku's own check of where its functions may be called."""
    def call(args, kwargs):
      with hk.config.context(check_jax_usage=True):
        return tracing.trace(self._function, tracing.split(args, kwargs, False), self._around)
    self._misused = None
    self._run(_Kind("traced by Haiku's rules", call))
    if self._misused is not None:
      self._add(Rule.NO_TRACE, "reads or makes parameters or keys under a raw JAX transform", "",
                "traced", *self._misused,
                remedy="use hk.vmap, hk.scan, hk.jit, ... or transform the inner function")

  def _alike(self, first: _Outcome, again: _Outcome) -> bool:
    """Whether two outcomes are the same; traces are, when their programs give the same."""
    if not all(isinstance(outcome.content, tracing.Traced) for outcome in (first, again)):
      return first == again
    return first.content.contents == again.content.contents or (
        first.content.others == again.content.others
        and first.content.outputs(self._values) == again.content.outputs(self._values))

  def _around(self, args, kwargs, call):
    """Calls with the arguments of a trace, and notes what is done to their containers."""
    picture = image.taken_of(labelled(args, kwargs))
    if self._locator:
      self._locator.watch(picture)
    try:
      return call()
    finally:
      self._note_changes(picture.changes(), self._kind)

  def _run(self, kind: _Kind, setting: Setting = _USUAL) -> _Outcome:
    """Runs the function once on copies, and notes the traces it leaves."""
    self._runs += 1
    self._kind = kind
    args, kwargs = copied((self._args, self._kwargs))
    picture = image.taken_of(labelled(args, kwargs))
    if self._locator:
      self._locator.watch(picture)
      self._locator.watch(self._image)
    self._world.written.clear()
    self._watch.faults.clear()
    with self._world.run(setting) as left:
      if self._locator:
        self._locator.watch(left)
      with Witness(self._territory, self._watch.current) as witness, self._watch.watching():
        outcome = self._outcome(kind, args, kwargs)
      read, traces = left.input_was_read(), left.changes()
      left.put_back()
    self._note_changes(picture.changes() + self._image.changes() + traces, kind)
    for event in witness.noticed:
      self._add(event.rule, event.what, event.detail, kind.when, event.frame_place, event.module,
                event.remedy)
    for fault in self._watch.faults:
      self._add(Rule.NO_TRACE, fault.what, fault.detail, kind.when, "", fault.module, fault.remedy)
    if read:
      self._add(Rule.SAME_OUTPUT, "reads standard input", "", kind.when,
                remedy="take what is read as an argument")
    for written in self._world.written:
      self._add(Rule.OUTPUT, f"writes to {written.stream}", f"{written.text:.60}".strip(),
                kind.when, written.place, written.module, "return what is to be shown")
    if not kind.when.startswith("run"):
      self._image.put_back()
    return outcome

  def _outcome(self, kind: _Kind, args, kwargs) -> _Outcome:
    locating = self._locator.following() if self._locator else contextlib.nullcontext()
    try:
      with locating:
        result = kind.call(args, kwargs)
      jax.effects_barrier()
      if kind.when.startswith("run"):
        return _read(result)
      return _Outcome("returned", fingerprint(result) if kind.when == "compiled" else result)
    except TooLarge as error:
      return _Outcome("unread", f"its output holds {error}")
    except (Exception, SystemExit) as error:
      if type(error).__name__ == "JaxUsageError":
        self._misused = self._place_of(error), self._watch.current()
      where = f" in module {self._watch.current()}" if self._watch.current() else ""
      return _Outcome("raised", f"{type(error).__name__}: {' '.join(str(error).split())}{where}")

  def _place_of(self, error) -> str:
    """The innermost line of the user's code that an error came through."""
    places = [f"{frame.f_code.co_filename}:{line}"
              for frame, line in traceback.walk_tb(error.__traceback__)
              if self._territory.owns(frame.f_globals.get("__name__"))]
    return places[-1] if places else ""

  def _note_changes(self, changes, kind: _Kind):
    for change in changes:
      if change.remedy:
        what, remedy = change.path, change.remedy
      elif change.tracer and not change.path.startswith("argument"):
        what, remedy = f"leaks a tracer into {change.path}", _REMEDIES["tracer"]
      elif change.deleted:
        what, remedy = f"gives away the memory of {change.path}", _REMEDIES["deleted"]
      else:
        what = f"changes {change.path}"
        remedy = _REMEDIES["argument" if change.path.startswith("argument") else "state"]
      detail = f"{change.before} -> {change.after}" if change.before + change.after else ""
      key = Rule.NO_TRACE, what
      if not {key, (Rule.NO_TRACE, f"changes {change.path}")} & self._findings.keys():
        self._add(*key, detail, kind.when, remedy=remedy)
        self._unplaced[key] = kind, change.path

  def _add(self, rule, what, detail, when, place="", module="", remedy=""):
    if rule is Rule.OUTPUT and self._allow_output:
      return
    key = rule, what
    if key not in self._findings:
      self._findings[key] = Finding(rule, what, detail, when, place, module, remedy)

  def _note_unchecked(self, reason: str):
    self._unchecked[reason] = None

  def _find_lines(self):
    """Repeats the runs that left traces, and finds the lines after which they were there."""
    for kind in {kind.when: kind for kind, _ in self._unplaced.values()}.values():
      paths = {path for other, path in self._unplaced.values() if other.when == kind.when}
      self._locator = Locator(self._territory, paths, self._watch.current)
      try:
        with tracing.tracing_anew():  # else a jitted function runs no line of Python
          self._run(kind)
      finally:
        self._image.put_back()
        found, self._locator = self._locator.places, None
      for key, (other, path) in self._unplaced.items():
        if other.when == kind.when and path in found:
          place, module = found[path]
          self._findings[key] = self._findings[key]._replace(place=place, module=module)


def _read(result) -> _Outcome:
  """The outcome of a call that returned, if its result can be read without being used up."""
  lazy = [type(thing).__name__ for _, thing, _ in walk(result)
          if hasattr(type(thing), "__next__") or isinstance(thing, GENERATORS)]
  if lazy:
    return _Outcome("unread", f"its output holds a {lazy[0]}: what that yields was not looked at")
  return _Outcome("returned", fingerprint(result))


def _shown(first: _Outcome, again: _Outcome) -> str:
  raised = [outcome.content for outcome in (first, again) if outcome.ending == "raised"]
  return f"{raised[0]:.100}" if raised else ""


@contextlib.contextmanager
def _counted_compilations():
  """Within it, the list it gives grows by an item for each program that XLA compiles."""
  counted = []
  def listen(event, duration, **_):
    if event.endswith("backend_compile_duration"):
      counted.append(duration)
  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield counted
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)
