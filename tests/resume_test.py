"""A run that was interrupted and goes on is the run that never was: bit for bit."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import shutil
import tempfile

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl.testing import absltest, parameterized

import hklm
from hklm import run as runs
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


def arrays(path):
  """Every array of a checkpoint, as orbax has it."""
  with ocp.StandardCheckpointer() as checkpointer:
    return {part: checkpointer.restore(os.path.join(path, part))
            for part in ("params", "training") if os.path.isdir(os.path.join(path, part))}


class ResumeTestCase(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = folder.name
    cls.corpus = texts.write(cls.folder, "corpus.txt", texts.sentences(2000))
    cls.unbroken, cls.said = cls.train("unbroken")

  @classmethod
  def train(cls, name, config=CONFIG, corpus=None, **arguments):
    """The run's directory, and what was said."""
    path = os.path.join(cls.folder, name)
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(Stopped):
      hklm.train(config, path, [corpus or cls.corpus], **arguments)
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

  @parameterized.parameters(
      (5, 14),  # within the warm-up, after a validation
      (15, 25), (30, 50, 59))  # in the middle, after an epoch, before the end
  def test_it_is_the_run_that_was_not_interrupted(self, *cuts):
    path, said = self.broken(f"broken_{cuts}", *cuts)
    self.assertIn("the run begins at update 0", said[0])
    for cut, words in zip(cuts, said[1:], strict=True):
      self.assertIn(f"resumed after update {cut} of 60", words)
    self.assert_same(path)

  def test_a_validation_that_was_not_the_best_lowers_the_rate_after_a_resume_too(self):
    # otherwise nothing above would show that the plateau's counter is kept
    bests = [row["valid_nats_per_token"] for row in self.rows(self.unbroken)
             if "valid_nats_per_token" in row]
    self.assertLess(len({min(bests[:n + 1]) for n in range(len(bests))}), len(bests))

  def test_complete(self):
    path = shutil.copytree(self.unbroken, os.path.join(self.folder, "complete"))
    before = {str(file): file.read_bytes() for file in pathlib.Path(path).rglob("*.json*")}
    _, said = self.train("complete", resume=True)
    self.assertIn("is already complete: all 60 updates are made", said)
    after = {str(file): file.read_bytes() for file in pathlib.Path(path).rglob("*.json*")}
    self.assertEqual(after, before)

  def test_the_newest_that_is_whole_is_taken_and_what_is_not_is_named(self):
    path = shutil.copytree(self.unbroken, os.path.join(self.folder, "damaged"))
    folder = runs.checkpoint_folder(path)
    newest, older, oldest = checkpoints.named(folder, "step")
    self.assertEqual([checkpoints.step(its) for its in (newest, older, oldest)], [60, 54, 45])
    for damaged in (newest, older):
      os.remove(os.path.join(damaged, "manifest.json"))
    os.mkdir(os.path.join(folder, "step-99"))
    shutil.copytree(oldest, os.path.join(folder, ".unfinished-step-63"))
    _, said = self.train("damaged", resume=True)
    for number in (99, 60, 54):
      self.assertIn(f"skipped: {folder}/step-{number}: manifest.json is missing", said)
    self.assertIn("resumed after update 45 of 60", said)
    self.assert_same(path)
    self.assertEqual(sorted(name for name in os.listdir(folder) if name.startswith("damaged")),
                     ["damaged-0-step-54", "damaged-0-step-60", "damaged-0-step-99"])

  def test_without_any_that_is_whole_it_begins_at_0(self):
    path = shutil.copytree(self.unbroken, os.path.join(self.folder, "lost"))
    for entry in os.scandir(runs.checkpoint_folder(path)):
      os.remove(os.path.join(entry.path, "manifest.json"))
    _, said = self.train("lost", resume=True)
    self.assertEqual(said.count("skipped: "), 3)
    self.assertIn("the run begins at update 0", said)
    self.assert_same(path)


class RefusedTest(ResumeTestCase):

  def assert_refused(self, message, **arguments):
    before = {str(file): file.read_bytes() for file in pathlib.Path(self.unbroken).rglob("*")
              if file.is_file()}
    with self.assertRaisesRegex(InputError, message) as caught:
      self.train("unbroken", resume=True, **arguments)
    self.assertNotIn("\n", str(caught.exception))
    after = {str(file): file.read_bytes() for file in pathlib.Path(self.unbroken).rglob("*")
             if file.is_file()}
    self.assertEqual(after, before)

  @parameterized.parameters(
      ({"learning_rate": 0.1}, "the run has --learning_rate=0.5, found --learning_rate=0.1"),
      ({"seed": 1}, "the run has --seed=0, found --seed=1"),
      ({"model": {"hidden_size": 7}}, "the run has --hidden_size=6, found --hidden_size=7"),
      ({"tokenizer": {"kind": "byte"}}, "the run has --tokenizer=char, found --tokenizer=byte"))
  def test_another_configuration(self, changes, message):
    changes = {name: dataclasses.replace(getattr(CONFIG, name), **value)
               if isinstance(value, dict) else value for name, value in changes.items()}
    self.assert_refused(message, config=dataclasses.replace(CONFIG, **changes))

  @parameterized.parameters(
      (lambda text: text.replace("the cat", "the dog", 1), "the text is not the one"),
      (lambda text: text + "the cat\n", "the text is not the one"),
      (lambda text: text.replace("t", "ж", 1), "'ж' .*or the text has changed since the run began"))
  def test_another_text(self, change, message):
    changed = texts.write(self.folder, "changed.txt", change(texts.sentences(2000)))
    self.assert_refused(message, corpus=changed)


  def test_a_run_that_another_process_trains(self):
    # what is opened anew is another claim, as that of another process would be
    with runs.claimed(self.unbroken):
      self.assert_refused("another process trains in .*/unbroken; needed: its end, or another")


class InitFromTest(ResumeTestCase):

  def test_parameters_and_tokenizer_are_the_older_runs_and_the_counters_are_fresh(self):
    # fewer characters than the older run's alphabet has
    text = texts.write(self.folder, "short.txt", "the cat\n" * 200)
    config = dataclasses.replace(CONFIG, learning_rate=1e-30, steps=3, warmup=0, weight_decay=0.0,
                                 average="none")
    path, _ = self.train("tuned", config, text, init_from=self.unbroken)
    tuned, older = hklm.load_run(path), hklm.load_run(self.unbroken)
    self.assertEqual(tuned.tokenizer, older.tokenizer)
    jax.tree.map(np.testing.assert_array_equal, tuned.params, older.params)
    self.assertEqual([row["step"] for row in self.rows(path)], [3, 3])

  def test_other_sizes_are_refused_by_name(self):
    config = dataclasses.replace(CONFIG, model=dataclasses.replace(CONFIG.model, hidden_size=7))
    message = r"parameter \['head'\]\['w'\] is \(19, 6\), this model's \(19, 7\); needed: the same"
    with self.assertRaisesRegex(InputError, message):
      self.train("wider", config, init_from=self.unbroken)
    self.assertFalse(os.path.exists(os.path.join(self.folder, "wider")))

  def test_resumed_without_the_run_that_it_began_from(self):
    source = shutil.copytree(self.unbroken, os.path.join(self.folder, "source"))
    whole, _ = self.train("whole", init_from=source)
    self.train("parted", init_from=source, stop=lambda: True)
    shutil.rmtree(source)
    path, _ = self.train("parted", init_from=source, resume=True)
    self.assert_same(path, whole)


if __name__ == "__main__":
  absltest.main()
