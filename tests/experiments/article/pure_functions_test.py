"""The article's verdicts on its seven functions."""

import inspect

from absl.testing import absltest, parameterized

from experiments.article import pure_functions
from hklm import purity
from tests.experiments.article import binary

# Rule, what was found, and the line of the function (counted from its `def`) where.
EXPECTED = {
    "double": [],
    "numbers_below": [],
    "append_sum": [(2, "changes argument 1: [1, 2, 3] -> [1, 2, 3, 6]", 1)],
    "double_and_count": [(2, "changes global `counter`: 0 -> 1", 2)],
    "times_counter": [(1, "output depends on global `counter`: with 1 in place of 0", 1)],
    "double_and_chat": [(1, "reads standard input: builtins.input", 2),
                        (1, "reads the clock: time.time", 3),
                        (2, "writes to standard output: And what do you think?", 1)],
    "times_luck": [(2, "advances the generator of `random`", 1),
                   (1, "output depends on the seed of a global random generator", None)],
}


def seen(function, report):
  start = inspect.getsourcelines(function)[1]
  rows = []
  for finding in report.findings:
    file, _, line = finding.place.rpartition(":")
    assert not file or file == pure_functions.__file__
    rows.append((pure_functions.NUMBERS[finding.rule],
                 f"{finding.what}: {finding.detail}" if finding.detail else finding.what,
                 int(line) - start if line else None))
  return rows


class PureFunctionsTest(parameterized.TestCase):

  @parameterized.named_parameters((function.__name__, function, argument)
                                  for function, argument in pure_functions.EXAMPLES)
  def test_verdict_alone(self, function, argument):
    report = purity.check(function, argument)
    self.assertEqual(report.pure, not EXPECTED[function.__name__])
    self.assertEqual(seen(function, report), EXPECTED[function.__name__])
    self.assertEqual(pure_functions.counter, 0)

  def test_verdicts_together(self):
    functions = {function.__name__: function for function, _ in pure_functions.EXAMPLES}
    reports = pure_functions.measured_examples()
    self.assertEqual({name: seen(functions[name], report) for name, report in reports.items()},
                     EXPECTED)

  def test_verdict_follows_behaviour_not_name(self):
    double, times_luck = pure_functions.double, pure_functions.times_luck
    self.addCleanup(setattr, double, "__name__", "double")
    self.addCleanup(setattr, times_luck, "__name__", "times_luck")
    double.__name__, times_luck.__name__ = "times_luck", "double"
    self.assertTrue(purity.check(double, 21).pure)
    self.assertLen(purity.check(times_luck, 21).findings, 2)

  def test_binary(self):
    process = binary.run("experiments.article.pure_functions")
    self.assertEqual((process.returncode, process.stderr), (0, ""))
    rows = [line.split(maxsplit=3) for line in process.stdout.splitlines()]
    verdicts = {row[0]: row[1] for row in rows if row and row[0] in EXPECTED}
    self.assertEqual(verdicts, {name: "impure" if breaches else "pure"
                                for name, breaches in EXPECTED.items()})
    for breaches in EXPECTED.values():
      for rule, what, _ in breaches:
        self.assertIn(f"  {rule}     {what}", process.stdout)
    self.assertEndsWith(process.stdout, "\n2 pure, 5 impure\n")


if __name__ == "__main__":
  absltest.main()
