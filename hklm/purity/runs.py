"""Runs a function once, on copies, and notes what the run broke."""

import contextlib
import re
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from hklm.purity import image
from hklm.purity.events import Witness
from hklm.purity.locate import Locator
from hklm.purity.modules import Watch
from hklm.purity.parts import GENERATORS, OPAQUE
from hklm.purity.report import Finding, Rule
from hklm.purity.surroundings import Setting, Surroundings
from hklm.purity.territory import Territory
from hklm.purity.tracing import tracing_anew
from hklm.purity.values import TooLarge, copied, fingerprint, labelled, walk

USUAL = Setting()
REMEDIES = {
    "argument": "return a changed copy: `[*xs, x]`, `{**d, key: value}`, `x.at[i].set(y)`",
    "tracer": "return the value; outside its trace a tracer is of no use",
    "deleted": "jit it without `donate_argnums`, or give it a copy",
    "state": "take it as an argument and return the new value",
}


class Outcome(NamedTuple):
  """How a run ended.

  Attributes:
    ending: "returned", "raised" or "unread" (it returned what cannot be read).
    content: a fingerprint or a `Traced`; or a text that says why.
  """

  ending: str
  content: Any


class Kind(NamedTuple):
  """A kind of run: its name in findings, and what calls the function on copies of arguments."""

  when: str
  call: Callable[[tuple, dict], Any]


class Runner:
  """Runs the function of one check, and keeps what the runs showed.

  Attributes:
    findings: by rule and phrase.
    unchecked: what could not be checked, in order.
    runs: how many there were.
    misused: the place and the module where Haiku was called under a raw transform, or None.
    image: what the function can reach, as it was before the first run.
  """

  def __init__(self, args, kwargs, territory: Territory, allow_output: bool):
    self._args, self._kwargs = args, kwargs
    self._territory, self._allow_output = territory, allow_output
    self.watch = Watch()
    self.world = Surroundings(territory, self.watch.current)
    self.findings: dict[tuple[Rule, str], Finding] = {}
    self.unchecked: dict[str, None] = {}
    self.runs = 0
    self.misused: tuple[str, str] | None = None
    self.image: image.Image | None = None
    self._witnessed: set[str] = set()
    self._unplaced: dict[tuple[Rule, str], tuple[Kind, str]] = {}
    self._kind: Kind | None = None
    self._locator: Locator | None = None

  def run(self, kind: Kind, setting: Setting = USUAL) -> Outcome:
    """Runs the function once on copies, and notes the traces it leaves.

    The process is put back as it was. What the function can reach is put back after a trace; after
    a plain run that is the caller's to do, since runs in a row build on each other.
    """
    self.runs += 1
    self._kind, known, unplaced = kind, dict(self.findings), dict(self._unplaced)
    args, kwargs = copied((self._args, self._kwargs))
    picture = image.taken_of(labelled(args, kwargs))
    self.world.written.clear()
    self.watch.faults.clear()
    with self.world.run(setting) as left:
      for changing in (picture, self.image, left) if self._locator else ():
        self._locator.watch(changing)
      witness = Witness(self._territory, self.watch.current, kind.when not in self._witnessed)
      self._witnessed.add(kind.when)  # calls into C show the first time; watching them is slow
      with witness, self.watch.watching():
        outcome = self._outcome(kind, args, kwargs)
      read, traces = left.input_was_read(), left.changes()
    self._note_changes(picture.changes() + self.image.changes() + traces, kind)
    for event in witness.noticed:
      self.add(event.rule, event.what, event.detail, kind.when, event.frame_place, event.module,
               event.remedy)
    for fault in self.watch.faults:
      self.add(Rule.NO_TRACE, fault.what, fault.detail, kind.when, "", fault.module, fault.remedy)
    if read:
      self.add(Rule.SAME_OUTPUT, "reads standard input", "", kind.when,
               remedy="take what is read as an argument")
    for written in self.world.written:
      self.add(written.rule, f"writes to {written.stream}", f"{written.text:.60}".strip(),
               kind.when, written.place, written.module, "return what is to be shown")
    if not kind.when.startswith("run"):
      self.image.put_back()
      if outcome.ending == "raised":  # what cannot be traced does nothing there that counts
        self.findings, self._unplaced = known, unplaced
        self._witnessed.discard(kind.when)
    return outcome

  def around(self, args, kwargs, call):
    """Calls with the arguments of a trace, and notes what is done to their containers."""
    picture = image.taken_of(labelled(args, kwargs))
    if self._locator:
      self._locator.watch(picture)
    try:
      return call()
    finally:
      self._note_changes(picture.changes(), self._kind)

  def add(self, rule, what, detail, when, place="", module="", remedy=""):
    """Keeps a finding, unless one like it is known."""
    if rule is not Rule.OUTPUT or not self._allow_output:
      finding = Finding(rule, what, detail, when, place, module, remedy)
      self.findings.setdefault((rule, what), finding)

  def note_unchecked(self, reason: str):
    """Keeps a reason, once."""
    self.unchecked[reason] = None

  def find_lines(self, take_image: Callable[[], image.Image]):
    """Repeats the runs that left traces, and finds the lines after which they were there.

    Args:
      take_image: makes an image of what the function can reach now.
    """
    before = self.image
    for when, kind in {kind.when: kind for kind, _ in self._unplaced.values()}.items():
      waiting = {path for other, path in self._unplaced.values() if other.when == when}
      places = {}
      # The second time jitted functions are traced anew, which runs their lines of Python.
      for context in (contextlib.nullcontext, tracing_anew):
        if waiting - places.keys():
          self._locator = Locator(self._territory, waiting - places.keys(), self.watch.current)
          self.image = take_image()  # what cannot be put back has changed since
          with context():
            self.run(kind)
          before.put_back()
          places |= self._locator.places
          self.image, self._locator = before, None
      for key, (other, path) in self._unplaced.items():
        if other.when == when and path in places:
          place, module = places[path]
          self.findings[key] = self.findings[key]._replace(place=place, module=module)

  def _outcome(self, kind: Kind, args, kwargs) -> Outcome:
    locating = self._locator.following() if self._locator else contextlib.nullcontext()
    try:
      with locating:
        result = kind.call(args, kwargs)
      jax.effects_barrier()
      return self._read(result) if kind.when.startswith("run") else Outcome("returned", result)
    except TooLarge as error:
      return Outcome("unread", f"its output holds {error}")
    except (Exception, SystemExit) as error:
      if type(error).__name__ == "JaxUsageError":  # Haiku's own check, asked for in one kind of run
        self.misused = self._place_of(error), self.watch.current()
      where = f" in module {self.watch.current()}" if self.watch.current() else ""
      return Outcome("raised", f"{type(error).__name__}: {_said(error)}{where}")

  def _read(self, result) -> Outcome:
    """The outcome of a call that returned, if its result can be read without being used up."""
    things = [(thing, parts) for _, thing, parts in walk(result)]
    lazy = [type(thing).__name__ for thing, _ in things
            if hasattr(type(thing), "__next__") or isinstance(thing, GENERATORS)]
    if lazy:
      return Outcome("unread", f"its output holds a {lazy[0]}: what that yields was not looked at")
    for thing, parts in things:
      if isinstance(parts.leaf, tuple) and parts.leaf[0] == OPAQUE:
        self.note_unchecked(f"its output holds a {type(thing).__qualname__}, which is not compared")
      elif isinstance(parts.leaf, tuple) and parts.leaf[0] == "function":
        self.note_unchecked("its output holds a function, which was compared but not run")
    return Outcome("returned", fingerprint(result))

  def _place_of(self, error) -> str:
    """The innermost line of the user's code that an error came through."""
    places = [f"{frame.f_code.co_filename}:{line}"
              for frame, line in traceback.walk_tb(error.__traceback__)
              if self._territory.owns_globals(frame.f_globals)]
    return places[-1] if places else ""

  def _note_changes(self, changes, kind: Kind):
    for change in changes:
      if change.remedy:
        what, remedy = change.path, change.remedy
      elif change.tracer and not change.path.startswith("argument"):
        what, remedy = f"leaks a tracer into {change.path}", REMEDIES["tracer"]
      elif change.deleted:
        what, remedy = f"gives away the memory of {change.path}", REMEDIES["deleted"]
      else:
        what = f"changes {change.path}"
        remedy = REMEDIES["argument" if change.path.startswith("argument") else "state"]
      detail = f"{change.before} -> {change.after}" if change.before + change.after else ""
      key = Rule.NO_TRACE, what
      if not {key, (Rule.NO_TRACE, f"changes {change.path}")} & self.findings.keys():
        self.add(*key, detail, kind.when, remedy=remedy)
        self._unplaced[key] = kind, change.path


def _said(error) -> str:
  try:
    return re.sub("0x[0-9a-f]+", "0x", " ".join(str(error).split()))
  except Exception:  # an error of the user's may not even say what it is
    return ""
