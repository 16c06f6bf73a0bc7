"""One check: which runs are made, and what differing outcomes mean."""

import contextlib

import haiku as hk
import jax

from hklm.purity import image, state, tracing
from hklm.purity.caches import fresh_caches
from hklm.purity.places import Left
from hklm.purity.report import PurityReport, Rule
from hklm.purity.runs import REMEDIES, Kind, Outcome, Runner
from hklm.purity.surroundings import Setting, changed_settings
from hklm.purity.territory import Territory, module_of, survey
from hklm.purity.values import labelled, walk

CALLS = 4  # in a row, without anything put back between them
_VARIES = "take what varies as an argument: a key, a seed, a number"


class Session:
  """The state of one check."""

  def __init__(self, function, args, kwargs, allow_output, between):
    self._function, self._args, self._kwargs = function, args, kwargs
    self._between = between
    self._territory = Territory(module_of(function))
    self._runner = Runner(args, kwargs, self._territory, allow_output)
    self._compilations = 0
    self._ran = True

  def report(self, name: str) -> PurityReport:
    """Makes all runs and says what they showed."""
    runner = self._runner
    try:
      with runner.world.installed():
        self._survey = survey(self._roots(name), self._territory)
        runner.world.watch_files(self._survey.objects)
        with fresh_caches(self._function, self._survey) as (self._function, self._empty_caches):
          runner.image = self._taken()
          try:
            self._all_runs()
          finally:
            runner.image.put_back()
            stuck = [change.path for change in runner.image.changes()]
      if stuck:
        runner.note_unchecked(f"{', '.join(stuck)} could not be put back as it was")
    except Exception as error:  # odd objects may make any of it fail: never a silent pass
      self._ran = False
      runner.note_unchecked(f"the check failed ({type(error).__name__}: {error!s:.200})")
    return PurityReport(name, tuple(runner.findings.values()), tuple(runner.unchecked), self._ran,
                        runner.runs, self._compilations)

  def _roots(self, name: str) -> dict:
    """Where the survey starts: the function, and what is code among the arguments."""
    roots = {f"`{name}`": self._function}
    for label, value in labelled(self._args, self._kwargs).items():
      for path, thing, _ in walk(value):
        if callable(thing):
          roots[label + path] = thing
        if self._territory.owns(type(thing).__module__):  # its methods may be called
          roots[f"class `{type(thing).__qualname__}`"] = type(thing)
    return roots

  def _taken(self) -> image.Image:
    return image.taken(self._survey, self._territory.enter)

  def _all_runs(self):
    eager = Kind("run", lambda args, kwargs: self._function(*args, **kwargs))
    first = self._runner.run(eager)
    if first.ending != "returned":
      self._ran = False
      self._runner.note_unchecked(
          f"it raised {first.content}" if first.ending == "raised" else first.content)
    steady = self._repeat(eager, first)
    self._runner.image.put_back()
    if steady:
      self._try_between(eager, first)
      self._vary(eager, first)
      self._rebind(eager, first)
    if first.ending == "returned":
      self._trace(steady)
    if self._runner.watch.seen:
      self._use_haiku()
    self._runner.find_lines(self._taken)

  def _repeat(self, kind: Kind, first: Outcome) -> bool:
    for number in range(2, CALLS + 1):
      with _counted_compilations() as counted:
        again = self._runner.run(kind._replace(when=f"run {number}"))
      self._compilations = len(counted)
      if again != first:
        raised = [outcome.content for outcome in (first, again) if outcome.ending == "raised"]
        self._runner.add(Rule.SAME_OUTPUT, "output differs when it is called again",
                         f"{raised[0]:.100}" if raised else "", f"run {number}",
                         remedy=REMEDIES["state"])
        return False
    return True

  def _try_between(self, kind: Kind, first: Outcome):
    """Lets `between` do what the rest of a program might, and runs, traced anew if jitted."""
    if self._between is None:
      return
    whole, before, process = self._runner.image, self._taken(), Left()
    try:
      try:
        self._between()
      except Exception as error:
        self._runner.note_unchecked(f"`between` raised {type(error).__name__}: {error!s:.200}")
      paths = [change.path for change in [*before.changes(), *process.changes()]]
      self._runner.image = self._taken()
      with tracing.tracing_anew():
        there = self._run_afresh(kind)
    finally:
      self._runner.image = whole
      whole.put_back()
      process.put_back()
    if there != first:
      self._runner.add(Rule.SAME_OUTPUT, "output depends on what `between` changes",
                       ", ".join(paths), kind.when, remedy=REMEDIES["state"])

  def _vary(self, kind: Kind, first: Outcome) -> bool:
    """Runs in changed surroundings; says whether the outcome was the same."""
    settings = changed_settings(self._runner.world.variables)
    if self._alike(first, self._run_afresh(kind, settings.pop("all of them"))):
      return True
    if not self._alike(first, self._run_afresh(kind)):  # it drifts by itself
      return False
    for what, setting in settings.items():
      if not self._alike(first, self._run_afresh(kind, setting)):
        self._runner.add(Rule.SAME_OUTPUT, f"output depends on {what}",
                         ", ".join(name for name, _ in setting.environment), kind.when,
                         remedy="take it as an argument")
    return False

  def _rebind(self, kind: Kind, first: Outcome, tries: int | None = None):
    """Runs with each name that holds state bound to other values."""
    whole = self._runner.image
    for slot in state.slots(self._survey, self._territory):
      for value in slot.others[:tries]:
        slot.bind(value)
        try:
          self._runner.image = self._taken()
          there = self._run_afresh(kind)
        finally:
          self._runner.image = whole
          slot.bind(slot.value)
          whole.put_back()
        if not self._alike(first, there, exactly=True):
          self._runner.add(Rule.SAME_OUTPUT, f"output depends on {slot.path}",
                           f"with {image.text(value)} in place of {image.text(slot.value)}",
                           kind.when, slot.place, remedy=REMEDIES["state"])
          break

  def _run_afresh(self, kind: Kind, *setting) -> Outcome:
    self._empty_caches()
    self._latest = self._runner.run(kind, *setting)
    self._runner.image.put_back()
    return self._latest

  def _trace(self, steady: bool):
    """Traces and differentiates, with Python's numbers traced like arrays if they can be."""
    around = self._runner.around
    try:
      leaves = tracing.split(self._args, self._kwargs, False).leaves
    except Exception as error:  # keys that cannot be sorted, a list that holds itself
      self._runner.note_unchecked(f"its arguments are no tree for jax ({error!s:.200})")
      return
    for scalars in (True, False) if len(leaves) < 100 else (False,):
      parts = tracing.split(self._args, self._kwargs, scalars)
      kind = Kind("traced", lambda args, kwargs, scalars=scalars: tracing.trace(
          self._function, tracing.split(args, kwargs, scalars), around))
      first = self._run_afresh(kind)
      if first.ending == "returned":
        break
      numbers = scalars and parts.places != tracing.split(self._args, self._kwargs, False).places
      self._runner.note_unchecked(
          f"it cannot be traced{' with its numbers as tracers' if numbers else ''} "
          f"({first.content:.200})")
      if not numbers:
        break
    self._values = parts.values()
    traced, custom = first.ending == "returned", True
    if traced:
      custom = first.content.custom
      self._compare_again(kind, first, steady, "what jit records differs from trace to trace")
      self._judge_callbacks(first.content.callbacks)
    if not tracing.has_real(self._values):
      return
    kind = Kind("differentiated", lambda args, kwargs: tracing.gradient(
        self._function, tracing.split(args, kwargs, scalars), around, traced))
    first = self._run_afresh(kind)
    if first.ending == "raised":
      self._runner.note_unchecked(f"it cannot be differentiated in reverse ({first.content:.200})")
    elif first.content is not None and custom:  # else jax's own rules run, twice the same
      self._compare_again(kind, first, steady, "its gradient differs from run to run")

  def _compare_again(self, kind: Kind, first: Outcome, steady: bool, what: str):
    if not steady:
      self._run_afresh(kind)  # for its traces; that the output differs is known
    elif not self._vary(kind, first):
      if not self._varies():
        self._runner.add(Rule.SAME_OUTPUT, what, "", kind.when, remedy=_VARIES)
    elif self._alike(first, self._latest, exactly=True):
      self._rebind(kind, first, tries=3)

  def _varies(self) -> bool:
    """Whether the output is known to vary: then traces vary for the same reason."""
    return any(rule is Rule.SAME_OUTPUT and what.startswith("output")
               for rule, what in self._runner.findings)

  def _judge_callbacks(self, callbacks: tuple[str, ...]):
    """What the traced program calls in Python shows only when it runs, compiled."""
    if "io_callback" in callbacks:
      self._runner.add(
          Rule.NO_TRACE, "calls back into Python for an effect", "io_callback", "traced",
          remedy="return the value and act on it outside, or use pure_callback if it is pure")
    if any(name.startswith("debug") for name in callbacks):
      self._runner.add(Rule.OUTPUT, "prints or calls back when it runs under jit", "jax.debug",
                       "traced", remedy="return what is to be shown")
    if callbacks:
      kind = Kind("compiled", lambda args, kwargs: tracing.compiled(
          self._function, tracing.split(args, kwargs, False)))
      if self._run_afresh(kind) != self._run_afresh(kind, Setting(seed=2)):
        self._runner.add(Rule.SAME_OUTPUT,
                         "output of the compiled function differs when it runs again", "",
                         kind.when, remedy=REMEDIES["state"])

  def _use_haiku(self):
    """Traces with Haiku's own check of where its functions may be called."""
    def call(args, kwargs):
      with hk.config.context(check_jax_usage=True):
        return tracing.trace(self._function, tracing.split(args, kwargs, False),
                             self._runner.around)
    self._run_afresh(Kind("traced by Haiku's rules", call))
    if self._runner.misused is not None:
      self._runner.add(Rule.NO_TRACE, "reads or makes parameters or keys under a raw JAX transform",
                       "", "traced", *self._runner.misused,
                       remedy="use hk.vmap, hk.scan, hk.jit, ... or transform the inner function")

  def _alike(self, first: Outcome, again: Outcome, exactly: bool = False) -> bool:
    """Whether two outcomes are the same; traces are, when their programs give the same."""
    if not all(isinstance(outcome.content, tracing.Traced) for outcome in (first, again)):
      return first == again
    if first.content.contents == again.content.contents or exactly:
      return (first.content.contents, first.content.others) == (
          again.content.contents, again.content.others)
    return first.content.others == again.content.others and (
        first.content.outputs(self._values) == again.content.outputs(self._values))


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
