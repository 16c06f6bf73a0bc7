"""What a check found: the rules, the findings, and what could not be checked."""

import dataclasses
import enum
from typing import NamedTuple


class Rule(enum.Enum):
  """The two rules of "From PyTorch to JAX" (sjmielke.com/jax-purify.htm), in our words.

  `SAME_OUTPUT`: when and how often a function runs changes nothing. Draws, clocks, files, people's
  answers and names that other code binds anew are no input.

  >>> import random
  >>> from hklm.purity import check
  >>> def noisy(x):
  ...   return x + random.Random().random()  # seeded by the system
  >>> {finding.rule.name for finding in check(noisy, 2.0).findings}
  {'SAME_OUTPUT'}

  `NO_TRACE`: all is as before, whether it ran no, one or many times. What is changed and put back
  before it returns is no trace.

  >>> def largest(numbers):
  ...   numbers.sort()
  ...   return numbers[-1]
  >>> finding, = check(largest, [3, 1]).findings
  >>> finding.rule.name, finding.what, finding.detail
  ('NO_TRACE', 'changes argument 1', '[3, 1] -> [1, 3]')
  >>> check(lambda numbers: sorted(numbers)[-1], [3, 1]).pure
  True

  `OUTPUT`: the part of the second that `allow_output=True` lets pass.

  >>> def shout(x):
  ...   print(x)
  ...   return x
  >>> check(shout, 1).findings[0].rule.name, check(shout, 1, allow_output=True).pure
  ('OUTPUT', True)
  """

  SAME_OUTPUT = "same input, same output: when and how often it runs changes nothing"
  NO_TRACE = "no trace left: all is as before, whether it ran no, one or many times"
  OUTPUT = "no trace left: nothing is printed"


class Finding(NamedTuple):
  """One way in which a function was seen to break a rule.

  Attributes:
    rule: the `Rule`.
    what: what was touched or asked, as "changes global `counter`".
    detail: what it was and became, or what was written; may be empty.
    when: the kind of run that showed it: "run", "run 3", "traced", "differentiated", ...
    place: "file:line", or empty where it cannot be known.
    module: the Haiku module at fault, or empty.
    remedy: what to do instead.
  """

  rule: Rule
  what: str
  detail: str = ""
  when: str = "run"
  place: str = ""
  module: str = ""
  remedy: str = ""

  def __str__(self):
    module = f" (module {self.module})" if self.module else ""
    lines = [f"{self.what}{': ' if self.detail else ''}{self.detail}{module}",
             f"rule: {self.rule.value}",
             f"seen: {self.when}{' at ' if self.place else ''}{self.place}"]
    return "\n    ".join([*lines, f"instead: {self.remedy}"] if self.remedy else lines)


# What no check of this kind sees; every report says so.
LIMITS = (
    "state held in C (except random generators, iterators and buffers of the standard library), "
    "as what `functools.lru_cache` keeps",
    "what other threads and processes do",
    "writes on file descriptors and by C code",
    "attributes of modules, classes and objects of other packages, and their settings",
    "names bound by a string that is made up when the code runs, or by a module's top level alone",
    "calls later than those that were made",
    "the order of hashes, which a process keeps",
    "clocks that C code reads, if they stand still during the check",
    "containers and objects that only other code fills in place (`between` can do it)",
)


@dataclasses.dataclass(frozen=True)
class PurityReport:
  """What is known about a function after a check.

  Attributes:
    function: its name.
    findings: the ways in which it broke a rule; without any and with `ran`, it is called pure.
    unchecked: what could not be checked, and why, a sentence each.
    ran: whether the function ran to its end as given; without it, silence proves nothing.
    runs: how often it was run, traced and differentiated.
    compilations: how many programs the last repeated call compiled; above 0 where it makes a new
      function to compile at every call.

  >>> report = PurityReport("f", (Finding(Rule.OUTPUT, "writes to standard output"),))
  >>> report.verdict, report.pure
  ('impure', False)
  """

  function: str
  findings: tuple[Finding, ...] = ()
  unchecked: tuple[str, ...] = ()
  ran: bool = True
  runs: int = 0
  compilations: int = 0

  @property
  def verdict(self) -> str:
    """"pure", "impure", or "unknown" where it could not be run and nothing was found."""
    if self.findings:
      return "impure"
    return "pure" if self.ran else "unknown"

  @property
  def pure(self) -> bool:
    """Whether the verdict is "pure"."""
    return self.verdict == "pure"

  def __str__(self):
    lines = [f"{self.function}: {self.verdict} ({self.runs} runs)"]
    lines += [f"  {finding}" for finding in self.findings]
    lines += [f"  could not be checked: {reason}" for reason in self.unchecked]
    if self.compilations:
      lines.append(f"  a repeated call compiled {self.compilations} programs: slow, not impure")
    lines.append("  never checked: " + "; ".join(LIMITS))
    return "\n".join(lines)
