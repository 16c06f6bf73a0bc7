"""The article's first part: which of these seven functions are pure, and why are the others not?

Follows "From PyTorch to JAX: towards neural net frameworks that purify stateful code"
(sjmielke.com/jax-purify.htm): two pure functions, and five that are impure in one way each. Every
verdict is measured (see `purity_measurement`), none is written down here.

  python -m experiments.article.pure_functions
"""

import random
import time

from experiments import cli
from experiments.article import purity_measurement

RULES = {
    1: "when and how often a function runs does not change its output for the same input",
    2: "having run it no, one or many times leaves no trace",
}

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


def measured_examples() -> dict[str, list[purity_measurement.Breach]]:
  """The breaches of the two rules by each of the seven functions, measured now."""
  return {function.__name__: purity_measurement.measure(function, argument)
          for function, argument in EXAMPLES}


def table(measured: dict[str, list[purity_measurement.Breach]]) -> str:
  """A line for each function, and a further one for each further breach."""
  lines = [("function", "verdict", "rule", "broken by")]
  for name, breaches in measured.items():
    lines.append((name, "impure" if breaches else "pure", "", ""))
    for number, breach in enumerate(breaches):
      start = lines.pop()[:2] if number == 0 else ("", "")
      lines.append((*start, str(breach.rule), str(breach)))
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main():
  print("A pure function keeps two rules:")
  for number, rule in RULES.items():
    print(f"  {number}. {rule}")
  print()
  measured = measured_examples()
  print(table(measured))
  impure = sum(map(bool, measured.values()))
  print(f"\n{len(measured) - impure} pure, {impure} impure")


if __name__ == "__main__":
  cli.run(main)
