"""A run that was interrupted and goes on is the run that never was: bit for bit."""

import contextlib
import dataclasses
import io
import itertools
import json
import os
import pathlib
import shutil
import tempfile
from unittest import mock

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl.testing import absltest, parameterized

import hklm
from hklm import run as runs
from hklm import trainer
from hklm.errors import InputError, Stopped
from hklm.training import checkpoints, logs
from tests.training import texts

# 25 windows an epoch, the last of them short.
CONFIG = hklm.TrainConfig(
    hklm.ModelConfig(embedding_size=4, hidden_size=6, num_layers=2, input_dropout=0.1,
                     output_dropout=0.2, initial_state="learned"),
    batch_size=4, bptt=18, steps=60, optimizer="adamw", weight_decay=0.01, warmup=10,
    learning_rate=0.5, schedule="plateau", accumulate=2, average="exponential",
    average_decay=0.8, eval_every=14, checkpoint_every=9, keep_checkpoints=3)


# Windows of random length, streams that start anew at random, averaging that a validation starts.
RECIPE = hklm.TrainConfig(
    hklm.ModelConfig(embedding_size=4, hidden_size=6, output_dropout=0.2), batch_size=4, bptt=10,
    epochs=2, optimizer="sgd", learning_rate=3.0, loss="sum", clip=1.0, weight_decay=1e-3,
    weight_decay_first=True, schedule="step", decay_at=(1,), decay_rate=0.8, random_bptt=True,
    reset_rate=0.2, average="polyak", average_trigger="nonmonotone", average_patience=1,
    average_latest=5, eval_every=9, checkpoint_every=14, keep_checkpoints=3)


def arrays(path):
  """Every array of a checkpoint, as orbax has it."""
  with ocp.StandardCheckpointer() as checkpointer:
    return {part: checkpointer.restore(os.path.join(path, part))
            for part in ("params", "training") if os.path.isdir(os.path.join(path, part))}


def updates(number):
  """For `stop`: after so many updates."""
  count = itertools.count(1)
  return lambda: next(count) == number


class ResumeTestCase(parameterized.TestCase):
  config = CONFIG

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = folder.name
    cls.corpus = texts.write(cls.folder, "corpus.txt", texts.sentences(2000))
    cls.unbroken, cls.said = cls.train("unbroken")

  @classmethod
  def train(cls, name, config=None, corpus=None, **arguments):
    """The run's directory, and what was said."""
    path = os.path.join(cls.folder, name)
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(Stopped):
      hklm.train(config or cls.config, path, [corpus or cls.corpus], **arguments)
    return path, said.getvalue()

  @classmethod
  def broken(cls, name, *cuts, **arguments):
    """The directory of a run that is stopped after these updates and goes on each time."""
    made = 0

    def stop():
      nonlocal made
      made += 1
      return made in cuts

    said = []
    for _ in (*cuts, "the rest"):
      path, words = cls.train(name, resume=True, stop=stop, **arguments)
      said.append(words)
    return path, said

  def rows(self, path):
    text = pathlib.Path(path, "metrics.jsonl").read_text()
    return [{name: value for name, value in json.loads(line).items() if name not in logs.TIMES}
            for line in text.splitlines()]

  def assert_same(self, path, unbroken=None):
    unbroken = unbroken or self.unbroken
    self.assertEqual(self.rows(path), self.rows(unbroken))
    folder, other = (runs.checkpoint_folder(its) for its in (path, unbroken))
    for kind in ("step", "best"):
      found, wanted = (checkpoints.newest(its, kind)[0] for its in (folder, other))
      self.assertEqual(os.path.basename(found), os.path.basename(wanted))
      found_arrays, wanted_arrays = arrays(found), arrays(wanted)
      self.assertEqual(jax.tree.structure(found_arrays), jax.tree.structure(wanted_arrays))
      jax.tree.map(np.testing.assert_array_equal, found_arrays, wanted_arrays)
      found, wanted = (checkpoints.verify(its) for its in (found, wanted))
      self.assertEqual({**found, "files": 0}, {**wanted, "files": 0})


class ResumeTest(ResumeTestCase):

  def test_it_is_the_run_that_was_not_interrupted(self):
    cuts = 5, 25, 50  # within the warm-up, after an epoch, in the middle of nothing
    path, said = self.broken("broken", *cuts)
    self.assertIn("the run begins at update 0", said[0])
    for cut, words in zip(cuts, said[1:], strict=True):
      self.assertIn(f"resumed after update {cut} of 60", words)
    self.assert_same(path)

  def test_a_validation_that_was_not_the_best_lowers_the_rate_after_a_resume_too(self):
    # otherwise nothing above would show that the plateau's counter is kept
    bests = [row["valid_nats_per_token"] for row in self.rows(self.unbroken)
             if "valid_nats_per_token" in row]
    self.assertLess(len({min(bests[:n + 1]) for n in range(len(bests))}), len(bests))

  def test_without_any_that_is_whole_it_begins_at_0_and_loses_nothing(self):
    path = shutil.copytree(self.unbroken, os.path.join(self.folder, "lost"))
    folder = runs.checkpoint_folder(path)
    path_of_best, _ = checkpoints.newest(folder, "best")
    best = arrays(path_of_best)
    for step in checkpoints.named(folder, "step"):
      os.remove(os.path.join(step, "manifest.json"))
    _, said = self.train("lost", resume=True)
    self.assertEqual(said.count("skipped: "), 3)
    self.assertIn("the run begins at update 0", said)
    self.assert_same(path)
    aside = os.path.join(folder, f"damaged-0-{os.path.basename(path_of_best)}")
    jax.tree.map(np.testing.assert_array_equal, arrays(aside), best)

  def test_a_newer_checkpoint_of_another_run_is_skipped(self):
    other, _ = self.train("seeded", dataclasses.replace(CONFIG, seed=5))
    path, _ = self.train("mixed", stop=updates(20))
    folder, theirs = (runs.checkpoint_folder(its) for its in (path, other))
    shutil.copytree(os.path.join(theirs, "step-60"), os.path.join(folder, "step-60"))
    _, said = self.train("mixed", resume=True)
    self.assertRegex(said, "skipped: .*/step-60: another run's, .*; it is now damaged-0-step-60")
    self.assertIn("resumed after update 20 of 60", said)
    self.assert_same(path)

  def test_a_damaged_best_changes_nothing_but_what_is_kept_as_the_best(self):
    cut = 30
    path, _ = self.train("best lost", stop=updates(cut))
    bests = [row for row in self.rows(self.unbroken) if "valid_nats_per_token" in row]
    before, after = ([row["valid_nats_per_token"] for row in bests if (row["step"] > cut) == later]
                     for later in (False, True))
    self.assertLess(min(before), max(after), "the rate falls once more")
    best, _ = checkpoints.newest(runs.checkpoint_folder(path), "best")
    os.truncate(os.path.join(best, "manifest.json"), 5)
    _, said = self.train("best lost", resume=True)
    self.assertRegex(said, f"{os.path.basename(best)} cannot be used: the best is sought anew")
    self.assertEqual(self.rows(path), self.rows(self.unbroken))
    mine, whole = (os.path.join(runs.checkpoint_folder(its), "step-60")
                   for its in (path, self.unbroken))
    jax.tree.map(np.testing.assert_array_equal, arrays(mine), arrays(whole))
    kept, _ = checkpoints.newest(runs.checkpoint_folder(path), "best")
    rows = {row["step"]: row["valid_nats_per_token"] for row in bests}
    self.assertEqual(rows[checkpoints.step(kept)], min(after))

  def test_a_complete_run_without_its_best_takes_an_older_one_or_none(self):
    path = shutil.copytree(self.unbroken, os.path.join(self.folder, "complete"))
    folder, states = runs.checkpoint_folder(path), self.rows(path)
    bests = checkpoints.named(folder, "best")
    for best in bests:
      os.truncate(os.path.join(best, "manifest.json"), 5)
      with self.assertRaisesRegex(InputError, "or --checkpoint=last"):
        hklm.load_run(path)
      _, said = self.train("complete", resume=True)
      self.assertIn(f"it is now damaged-0-{os.path.basename(best)}", said)
    self.assertEqual(self.rows(path), states)
    self.assertEqual(trainer.best_validation(path), None)
    last = os.path.join(folder, "step-60")
    jax.tree.map(np.testing.assert_array_equal, arrays(last)["params"],
                 jax.tree.map(np.asarray, hklm.load_run(path).params))
    _, said = self.train("complete", resume=True)
    self.assertIn("is already complete", said)

  def test_where_all_checkpoints_are_another_runs_nothing_is_lost(self):
    path = shutil.copytree(self.unbroken, os.path.join(self.folder, "edited"))
    config = pathlib.Path(path, "config.json")
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 1'))
    before = sorted(os.listdir(runs.checkpoint_folder(path)))
    with self.assertRaisesRegex(InputError, "another run's, or config.json has changed since"):
      self.train("edited", dataclasses.replace(CONFIG, seed=1), resume=True)
    self.assertEqual(sorted(os.listdir(runs.checkpoint_folder(path))), before)

  def test_a_directory_that_cannot_be_written_to(self):
    path, _ = self.train("read-only", stop=updates(5))
    with (mock.patch.object(os, "access", return_value=False),
          self.assertRaisesRegex(InputError, "read-only cannot be written to; needed: a copy")):
      self.train("read-only", resume=True)
    self.assertEqual(checkpoints.step(checkpoints.newest(
        runs.checkpoint_folder(path), "step")[0]), 5)

  def test_without_a_checkpoint_it_begins_with_what_it_began_with(self):
    path, _ = self.train("tuned", init_from=self.unbroken)
    for step in os.listdir(runs.checkpoint_folder(path)):
      shutil.rmtree(os.path.join(runs.checkpoint_folder(path), step))
    other, _ = self.train("other", dataclasses.replace(CONFIG, seed=5, steps=12))
    with self.assertRaisesRegex(InputError, "began with other parameters than random ones"):
      self.train("tuned", resume=True)
    with self.assertRaisesRegex(InputError, "than those of --init_from=.*/other; needed"):
      self.train("tuned", resume=True, init_from=other)
    before = self.rows(path)
    self.train("tuned", resume=True, init_from=self.unbroken)
    self.assertEqual(self.rows(path), before)

  def test_a_run_that_another_process_trains(self):
    # what is opened anew is another claim, as that of another process would be
    with runs.claimed(self.unbroken), self.assertRaisesRegex(
        InputError, "another process trains in .*/unbroken; needed: its end"):
      self.train("unbroken", resume=True)

  def test_a_run_that_another_process_trains_is_not_overwritten(self):
    before = {str(file): file.stat().st_mtime_ns for file in pathlib.Path(self.unbroken).rglob("*")}
    with runs.claimed(self.unbroken), self.assertRaisesRegex(
        InputError, "another process trains in .*/unbroken; needed: its end"):
      self.train("unbroken", overwrite=True)
    after = {str(file): file.stat().st_mtime_ns for file in pathlib.Path(self.unbroken).rglob("*")}
    self.assertEqual(after, before)


class RecipeTest(ResumeTestCase):
  config = RECIPE

  def test_it_is_the_run_that_was_not_interrupted(self):
    validations = [row["step"] for row in self.rows(self.unbroken) if "valid_tokens" in row]
    start = self.said.index("averaging starts")
    number = self.said.count("validation after update", 0, start)
    trigger = validations[number - 1]
    self.assertBetween(number, 3, len(validations) - 2)
    cuts = 3, trigger - 1, trigger, trigger + 4
    path, said = self.broken("broken", *cuts)
    self.assertEqual(["averaging starts" in words for words in said],
                     [False, False, True, False, False])
    self.assert_same(path)


if __name__ == "__main__":
  absltest.main()
