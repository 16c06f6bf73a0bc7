"""The article's first part: which of these seven functions are pure, and why are the others not?

Follows "From PyTorch to JAX: towards neural net frameworks that purify stateful code"
(sjmielke.com/jax-purify.htm): two pure functions, and five that are impure in one way each. Every
verdict is measured by `hklm.purity.check`, none is written down here.

  python -m experiments.article.pure_functions
"""

import random
import time

from experiments import cli
from hklm import purity

RULES = {
    1: "when and how often a function runs does not change its output for the same input",
    2: "having run it no, one or many times leaves no trace",
}
NUMBERS = {purity.Rule.SAME_OUTPUT: 1, purity.Rule.NO_TRACE: 2, purity.Rule.OUTPUT: 2}

counter = 0


def double(x):
  return 2 * x


def numbers_below(n):
  numbers = []  # made here, changed here, and nobody else's until it is returned
  for number in range(n):
    numbers.append(number)
  return numbers


def append_sum(numbers):
  numbers.append(sum(numbers))
  return numbers


def double_and_count(x):
  global counter
  counter += 1
  return 2 * x


def times_counter(x):
  return counter * x


def double_and_chat(x):
  print("And what do you think?")
  input()
  time.time()
  return 2 * x


def times_luck(x):
  return random.random() * x


EXAMPLES = ((double, 21), (numbers_below, 3), (append_sum, [1, 2, 3]), (double_and_count, 21),
            (times_counter, 21), (double_and_chat, 21), (times_luck, 21))


def measured_examples() -> dict[str, purity.PurityReport]:
  """A report on each of the seven functions, measured now."""
  return {function.__name__: purity.check(function, argument) for function, argument in EXAMPLES}


def table(reports: dict[str, purity.PurityReport]) -> str:
  """A line for each function, and a further one for each further finding."""
  lines = [("function", "verdict", "rule", "broken by", "line")]
  for name, report in reports.items():
    lines.append((name, report.verdict, "", "", ""))
    for number, finding in enumerate(report.findings):
      start = lines.pop()[:2] if number == 0 else ("", "")
      broken_by = f"{finding.what}: {finding.detail}" if finding.detail else finding.what
      lines.append((*start, str(NUMBERS[finding.rule]), broken_by,
                    finding.place.rpartition(":")[2]))
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main():
  print("A pure function keeps two rules:")
  for number, rule in RULES.items():
    print(f"  {number}. {rule}")
  print()
  reports = measured_examples()
  print(table(reports))
  pure = sum(report.pure for report in reports.values())
  print(f"\n{pure} pure, {len(reports) - pure} impure")


if __name__ == "__main__":
  cli.run(main)
