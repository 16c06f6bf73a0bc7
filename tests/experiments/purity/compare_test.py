"""The table, the best combination, and what the binary refuses. Nothing here needs a network."""

import pathlib
import sys
import tempfile
from unittest import mock

from absl.testing import absltest

from experiments.purity import catalogue, compare, environment, judges
from experiments.purity.apart import IMPURE, NOT_APPLIED, PURE, UNKNOWN
from hklm.errors import InputError
from tests.experiments.article import binary

IMPURE_NAMES = [example.name for example in catalogue.IMPURE]
PURE_NAMES = [example.name for example in catalogue.PURE]


def verdicts(usual=PURE, **others):
  return {**dict.fromkeys((*IMPURE_NAMES, *PURE_NAMES), usual), **others}


class TableTest(absltest.TestCase):

  def test_score(self):
    found, unknown, failed, *_ = IMPURE_NAMES
    accused, undecided, refused, *_ = PURE_NAMES
    its = compare.score(verdicts(**{found: IMPURE, unknown: UNKNOWN, failed: NOT_APPLIED,
                                    accused: IMPURE, undecided: UNKNOWN, refused: NOT_APPLIED}))
    self.assertEqual(its.found, (found,))
    self.assertEqual(its.missed, tuple(IMPURE_NAMES[1:]))
    self.assertEqual(its.accused, (accused, undecided))
    self.assertEqual(its.not_applied, (failed, refused))

  def test_combined(self):
    a, b, c = IMPURE_NAMES[:3]
    together = compare.combined([verdicts(**{a: IMPURE, b: NOT_APPLIED, c: NOT_APPLIED}),
                                 verdicts(**{b: IMPURE})])
    self.assertEqual([together[name] for name in (a, b, c, PURE_NAMES[0])],
                     [IMPURE, IMPURE, NOT_APPLIED, PURE])

  def test_best_combination_finds_most_less_false_accusations(self):
    by_judge = {judge: verdicts(**{name: IMPURE}) for judge, name
                in zip(compare.COMBINABLE, IMPURE_NAMES, strict=False)}
    self.assertEqual(compare.best_combination(by_judge), compare.COMBINABLE)
    by_judge[compare.COMBINABLE[1]].update(dict.fromkeys(PURE_NAMES[:2], IMPURE))
    self.assertNotIn(compare.COMBINABLE[1], compare.best_combination(by_judge))

  def test_table_and_mistakes(self):
    found, accused = IMPURE_NAMES[0], PURE_NAMES[0]
    its = compare.score(verdicts(**{found: IMPURE, accused: IMPURE}))
    head, line = compare.table([("a checker", "1.2", its)]).splitlines()
    self.assertIn(f"impure found of {len(IMPURE_NAMES)}", head)
    self.assertEqual(line.split(), ["a", "checker", "1.2", "1", "1", "0"])
    self.assertLen(line, len(head))
    lines = compare.mistakes("a checker", its).splitlines()
    self.assertEqual(lines[0], "a checker")
    self.assertIn(f"missed ({len(IMPURE_NAMES) - 1}): {IMPURE_NAMES[1]}", lines[1])
    self.assertEqual(lines[-1], f"  falsely accused (1): {accused}")
    self.assertLessEqual(max(map(len, lines)), 100)

  def test_every_row_has_a_judge(self):
    self.assertSameElements([judge for judge, _ in compare.ROWS], judges.JUDGES)
    self.assertContainsSubset(compare.COMBINABLE, judges.JUDGES)
    self.assertContainsSubset([package for _, package in compare.ROWS], compare.PACKAGES)


class EnvironmentTest(absltest.TestCase):

  def test_old_python_is_refused(self):
    with (mock.patch.object(sys, "version_info", (3, 11, 7)),
          self.assertRaisesRegex(InputError, r"found Python 3\.11; needed: 3\.12 or newer")):
      environment.check_python()
    with mock.patch.object(sys, "version_info", (3, 12, 0)):
      environment.check_python()

  def test_folder_with_other_things_is_refused(self):
    folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    (folder / "thesis.txt").touch()
    with self.assertRaisesRegex(InputError, "found a folder with other things in it"):
      environment.create(folder)
    self.assertEqual([path.name for path in folder.iterdir()], ["thesis.txt"])

  def test_versions_and_failures(self):
    python = pathlib.Path(sys.executable)
    self.assertEqual(environment.versions(python, ["absl-py"]).keys(), {"absl-py"})
    with self.assertRaisesRegex(InputError, "PackageNotFoundError"):
      environment.versions(python, ["no-such-package-here"])

  def test_binary_refuses_in_one_line(self):
    folder = self.enterContext(tempfile.TemporaryDirectory())
    pathlib.Path(folder, "thesis.txt").touch()
    process = binary.run("experiments.purity.compare", f"--env={folder}")
    self.assertEqual((process.returncode, process.stdout), (1, ""))
    self.assertRegex(process.stderr.splitlines()[-1], "^error: .*found .*needed: ")
    self.assertNotIn("Traceback", process.stderr)


if __name__ == "__main__":
  absltest.main()
