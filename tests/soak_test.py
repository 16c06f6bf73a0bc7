"""The soak in short; and that its comparison would see a difference."""

import json
import os
import pathlib
import shutil
import signal
import tempfile

from absl.testing import absltest

from tests import endings, soak


class SoakTest(absltest.TestCase):

  def test_killed_and_damaged_runs_end_as_the_unbroken_one(self):
    with tempfile.TemporaryDirectory() as folder:
      runs = soak.Soak(folder, seed=0)
      outcomes = runs.unbroken() + runs.killed(3) + runs.damaged()
      self.assertEqual([outcome for outcome in outcomes if outcome.wrong], [])
      statuses = [outcome.status for outcome in outcomes]
      self.assertLen([status for status in statuses if status], 3 + 1)
      self.assertContainsSubset(
          statuses, {0, 128 + signal.SIGTERM, -signal.SIGTERM, -signal.SIGKILL})
      self.assertEqual([outcome.run for outcome in outcomes[-5:]],
                       ["truncated", "flipped", "missing", "empty", "stale"])
      self.check_the_comparison(os.path.join(folder, "unbroken"), os.path.join(folder, "other"))

  def check_the_comparison(self, unbroken, other):
    """A tool that finds no difference must be one that could."""
    shutil.copytree(unbroken, other)
    self.assertEqual(endings.differences(other, unbroken), [])
    rows = pathlib.Path(other, "metrics.jsonl")
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join([json.dumps(json.loads(lines[0]) | {"seconds": 0}) + "\n", *lines[1:]]))
    self.assertEqual(endings.differences(other, unbroken), [])
    rows.write_text("".join(lines[:-1]))
    checkpoints = pathlib.Path(other, "checkpoints")
    newest = f"step-{soak.STEPS}"
    shutil.rmtree(checkpoints / newest / "training")
    shutil.copytree(checkpoints / f"step-{endings.steps(other, 'step')[-2]}" / "training",
                    checkpoints / newest / "training")
    found = endings.differences(other, unbroken)
    self.assertIn(f"metrics.jsonl: {len(lines) - 1} lines, not {len(lines)}", found)
    for name in (".step", ".key", ".params['head']['w']", ".average['head']['w']",
                 ".state.cells[0].c"):
      self.assertEqual(f"step: training/{name} differs" in found, name != ".key", name)


if __name__ == "__main__":
  absltest.main()
