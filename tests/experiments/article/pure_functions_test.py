"""The article's verdicts on its seven functions."""

import builtins
import random
import sys
import time

from absl.testing import absltest, parameterized

from experiments.article import pure_functions, purity_measurement
from tests.experiments.article import binary

EXPECTED = {
    "double": [],
    "numbers_below": [],
    "append_sum": [(2, "changes its argument", "[1, 2, 3] -> [1, 2, 3, 6]")],
    "double_and_count": [(2, "changes global `counter`", "0 -> 1")],
    "times_counter": [(1, "different output when global `counter` is changed", "")],
    "double_and_chat": [(2, "reads input()", ""), (2, "reads the clock", ""),
                        (2, "writes to standard output", "")],
    "times_luck": [(1, "different output when the random generator is seeded differently", ""),
                   (2, "advances the random generator", "")],
}


def surroundings():
  return (random.getstate(), sys.stdin, sys.stdout, sys.stderr, builtins.input, time.time,
          dict(vars(pure_functions)))


class PureFunctionsTest(parameterized.TestCase):

  @parameterized.named_parameters((function.__name__, function, argument)
                                  for function, argument in pure_functions.EXAMPLES)
  def test_verdict_alone(self, function, argument):
    before = surroundings()
    self.assertEqual(purity_measurement.measure(function, argument), EXPECTED[function.__name__])
    self.assertEqual(surroundings(), before)

  def test_verdicts_together(self):
    self.assertEqual(pure_functions.measured_examples(), EXPECTED)

  def test_verdict_follows_behaviour_not_name(self):
    double, times_luck = pure_functions.double, pure_functions.times_luck
    self.addCleanup(setattr, double, "__name__", "double")
    self.addCleanup(setattr, times_luck, "__name__", "times_luck")
    double.__name__, times_luck.__name__ = "times_luck", "double"
    self.assertEmpty(purity_measurement.measure(double, 21))
    self.assertLen(purity_measurement.measure(times_luck, 21), 2)

  def test_binary(self):
    process = binary.run("experiments.article.pure_functions")
    self.assertEqual((process.returncode, process.stderr), (0, ""))
    rows = [line.split(maxsplit=3) for line in process.stdout.splitlines()]
    verdicts = {row[0]: row[1] for row in rows if row and row[0] in EXPECTED}
    self.assertEqual(verdicts, {name: "impure" if breaches else "pure"
                                for name, breaches in EXPECTED.items()})
    for breaches in EXPECTED.values():
      for rule, by, values in breaches:
        self.assertIn(f"  {rule}     {by}{': ' if values else ''}{values}\n", process.stdout)
    self.assertEndsWith(process.stdout, "\n2 pure, 5 impure\n")


if __name__ == "__main__":
  absltest.main()
