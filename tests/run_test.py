"""The run directory holds all there is to know, and refuses what does not belong to it."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm import run as runs
from hklm.data import tokenizers
from hklm.errors import InputError
from hklm.nn import cudnn
from tests import on_disk, oracle

CONFIG = hklm.TrainConfig(
    hklm.ModelConfig(vocab_size=4, embedding_size=3, hidden_size=5, init="uniform:0.1,bias=zeros"),
    learning_rate=0.5, seed=7)
ROOT = pathlib.Path(__file__).parents[1]


def char_tokenizer(alphabet):
  return tokenizers.build(hklm.TokenizerConfig("char"), [alphabet])


TOKENIZER, OTHER = char_tokenizer("abcd"), char_tokenizer("abcx")  # of one size


def parameters(scale):
  lm = hklm.language_model(CONFIG.model)
  return oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=scale)


def listing(folder):
  """Every path below a folder, with the contents of files."""
  return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
          for path in sorted(pathlib.Path(folder).rglob("*"))}


class RunTestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = os.path.join(self.folder, "run")

  def write(self, path=None, tokenizer=TOKENIZER, **scales):
    """A run whose checkpoints hold parameters of these scales."""
    path = runs.create(path or self.path, runs.Contents(CONFIG, tokenizer))
    for name, scale in scales.items():
      on_disk.write(path, name, parameters(scale))
    return path

  def assert_refused(self, message, *args, **kwargs):
    with self.assertRaisesRegex(InputError, message) as caught:
      hklm.load_run(*(args or [self.path]), **kwargs)
    self.assertNotIn("\n", str(caught.exception))


class LoadTest(RunTestCase):

  def test_everything_comes_back_bit_for_bit(self):
    self.write(best=1.0)
    run = hklm.load_run(self.path)
    chex.assert_trees_all_equal(run.params, parameters(1.0), strict=True)
    self.assertEqual(run.config, CONFIG)
    self.assertEqual(run.tokenizer, TOKENIZER)
    self.assertEqual(run.path, self.path)
    self.assertIs(run.lm, hklm.language_model(CONFIG.model))

  @unittest.skipIf(cudnn.available(), "there is cuDNN here")
  def test_what_cudnn_trained_is_read_where_there_is_none(self):
    model = dataclasses.replace(CONFIG.model, lstm_impl="cudnn")
    runs.create(self.path, runs.Contents(dataclasses.replace(CONFIG, model=model), TOKENIZER))
    on_disk.write(self.path, "last", parameters(1.0))
    run = hklm.load_run(self.path)
    self.assertEqual(run.config.model, model)
    self.assertEqual(run.lm.config.lstm_impl, "auto")
    with self.assertRaisesRegex(InputError, "--lstm_impl=cudnn needs an NVIDIA GPU"):
      hklm.language_model(model)

  def test_best_before_last_unless_asked(self):
    self.write(best=1.0, last=2.0)
    for checkpoint, scale in (("", 1.0), ("best", 1.0), ("last", 2.0)):
      chex.assert_trees_all_equal(hklm.load_run(self.path, checkpoint).params, parameters(scale))

  def test_last_where_there_was_no_validation(self):
    self.write(last=2.0)
    chex.assert_trees_all_equal(hklm.load_run(self.path).params, parameters(2.0))
    self.assert_refused("checkpoints: no checkpoint best; needed: a run", self.path, "best")

  def test_in_another_process_and_by_a_relative_path(self):
    self.write(best=1.0)
    code = ("import hklm, jax, numpy as np; run = hklm.load_run('run'); "
            "[print(np.asarray(leaf).tobytes().hex()) for leaf in jax.tree.leaves(run.params)]")
    done = subprocess.run([sys.executable, "-c", code], cwd=self.folder, capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300)
    expected = [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves(parameters(1.0))]
    self.assertEqual(done.stdout.split(), expected, done.stderr)

  def test_a_moved_run_is_still_whole(self):
    self.write(best=1.0)
    moved = shutil.move(self.path, os.path.join(self.folder, "moved to é"))
    chex.assert_trees_all_equal(hklm.load_run(moved).params, parameters(1.0))


class RefusedTest(RunTestCase):

  def test_checkpoint_names(self):
    self.write(best=1.0)
    self.assert_refused("--checkpoint=newest is unknown; needed: best or last", self.path, "newest")

  def test_not_a_run(self):
    self.assert_refused(f"^{self.path}/config.json is not there; needed: --run_dir with what train")
    os.mkdir(self.path)
    self.assert_refused("config.json is not there")

  def test_a_tokenizer_of_another_run_of_the_same_size(self):
    self.write(best=1.0)
    other = self.write(os.path.join(self.folder, "other"), OTHER, best=1.0)
    self.assertEqual(OTHER.vocab_size, TOKENIZER.vocab_size)
    shutil.copy(os.path.join(other, "tokenizer.json"), self.path)
    self.assert_refused("tokenizer.json has fingerprint .* needed: the run's own tokenizer")

  def test_a_checkpoint_of_another_run_of_the_same_size(self):
    self.write(best=1.0)
    other = os.path.join(self.folder, "other")
    runs.create(other, runs.Contents(dataclasses.replace(CONFIG, seed=8), TOKENIZER))
    on_disk.write(other, "best", parameters(1.0))
    shutil.rmtree(runs.checkpoint_folder(self.path))
    shutil.copytree(runs.checkpoint_folder(other), runs.checkpoint_folder(self.path))
    self.assert_refused("best-1: another run's, or config.json has changed since; needed")

  @parameterized.named_parameters(
      ("empty", lambda text: "", "config.json: not JSON"),
      ("cut", lambda text: text[:len(text) // 2], "config.json: not JSON"),
      ("list", lambda text: "[1]", "config.json: found list, needed a JSON object"),
      ("format", lambda text: text.replace('"format": 1', '"format": 2'), "found format 2"),
      ("unknown", lambda text: text.replace('"seed"', '"sed": 1, "seed"'), "unknown fields sed"),
      ("missing", lambda text: text.replace(' "seed": 7,', ""), "missing fields seed"),
      ("nested", lambda text: text.replace('"hidden_size"', '"width"'),
       "ModelConfig: unknown fields width; missing fields hidden_size"),
      ("type", lambda text: text.replace('"seed": 7', '"seed": "7"'),
       "seed: found '7', needed int"),
      ("value", lambda text: text.replace('"adam"', '"adagrad"'), "--optimizer=adagrad is unknown"),
      ("fingerprint", lambda text: text.replace("tokenizer_fingerprint", "fingerprint"),
       "unknown fields fingerprint"),
      ("size", lambda text: text.replace('"hidden_size": 5', '"hidden_size": 6'),
       "checkpoints/best-1: another run's, or config.json has changed since"))
  def test_a_damaged_config(self, damage, message):
    self.write(best=1.0)
    config = pathlib.Path(self.path, "config.json")
    text = config.read_text()
    config.write_text(damage(text))
    self.assertNotEqual(config.read_text(), text)
    self.assert_refused(message)

  @parameterized.parameters("tokenizer.json", "config.json", "checkpoints")
  def test_a_part_that_is_missing_or_empty(self, name):
    self.write(best=1.0)
    part = os.path.join(self.path, name)
    if name == "checkpoints":
      shutil.rmtree(part)
      self.assert_refused(name)
      os.makedirs(os.path.join(part, "best-2"))
      self.assert_refused("checkpoints/best-2: manifest.json is missing")
    else:
      os.remove(part)
      self.assert_refused(f"{name}.*needed: ")
      pathlib.Path(part).touch()
      self.assert_refused(f"{name}: not JSON")

  def test_a_damaged_best_where_there_is_a_last(self):
    self.write(best=1.0, last=2.0)
    os.remove(os.path.join(runs.checkpoint_folder(self.path), "best-1", "manifest.json"))
    self.assert_refused("best-1: manifest.json is missing; needed: .*, or --checkpoint=last")
    chex.assert_trees_all_equal(hklm.load_run(self.path, "last").params, parameters(2.0))

  @parameterized.parameters(jnp.nan, jnp.inf)
  def test_parameters_that_are_not_finite(self, value):
    self.write()
    bad = parameters(1.0)
    bad["lstm_0"]["w_hh"] = bad["lstm_0"]["w_hh"].at[1, 1].set(value)
    on_disk.write(self.path, "best", bad)
    self.assert_refused(r"best-1: array \['lstm_0'\]\['w_hh'\] is not finite; the run has diverged")

  def test_a_cell_that_cannot_be_imported(self):
    model = dataclasses.replace(CONFIG.model, cell="no_such_module:cell")
    runs.create(self.path, runs.Contents(dataclasses.replace(CONFIG, model=model), TOKENIZER))
    self.assert_refused("--cell=no_such_module:cell: ModuleNotFoundError: No module named")


class CreateTest(RunTestCase):

  def test_what_is_written(self):
    path = runs.create(self.path, runs.Contents(CONFIG, TOKENIZER),
                       files={"train.flags": "--seed=é\n"})
    self.assertEqual(path, self.path)
    self.assertEqual(sorted(os.listdir(path)), ["config.json", "tokenizer.json", "train.flags"])
    written = json.loads(pathlib.Path(path, "config.json").read_text())
    self.assertEqual(written["format"], 1)
    self.assertEqual(written["tokenizer_fingerprint"], TOKENIZER.fingerprint)
    self.assertEqual(pathlib.Path(path, "train.flags").read_text("utf-8"), "--seed=é\n")
    self.assertEqual(os.listdir(self.folder), ["run"])
    os.mkdir(os.path.join(self.folder, "plain"))
    self.assertEqual(os.stat(path).st_mode, os.stat(os.path.join(self.folder, "plain")).st_mode)

  def test_an_empty_folder_and_missing_parents_are_fine(self):
    os.mkdir(self.path)
    runs.create(self.path, runs.Contents(CONFIG, TOKENIZER))
    below = os.path.join(self.folder, "a", "b", "c")
    runs.create(below, runs.Contents(CONFIG, TOKENIZER))
    for path in (self.path, below):
      self.assertEqual(runs.read_config(path), CONFIG)
      self.assertEqual(runs.read_contents(path), runs.Contents(CONFIG, TOKENIZER))

  def test_a_run_is_replaced_only_when_asked(self):
    self.write(best=1.0)
    before = listing(self.folder)
    with self.assertRaisesRegex(
        InputError, f"{self.path} holds a run .unfinished: nothing is saved yet.; give --resume to "
        "go on with it, --overwrite to replace it, or another --run_dir"):
      runs.create(self.path, runs.Contents(CONFIG, OTHER))
    self.assertEqual(listing(self.folder), before)
    runs.create(self.path, runs.Contents(CONFIG, OTHER), overwrite=True)
    self.assertEqual(sorted(os.listdir(self.path)), ["config.json", "tokenizer.json"])
    self.assertEqual(tokenizers.load(os.path.join(self.path, "tokenizer.json")), OTHER)

  @parameterized.product(overwrite=[False, True], kind=["file", "folder", "link", "model"])
  def test_what_is_not_a_run_is_never_replaced(self, overwrite, kind):
    if kind == "folder":
      os.mkdir(self.path)
      pathlib.Path(self.path, "thesis.txt").write_text("years of work")
    elif kind == "model":  # of a program that has files of the same names
      os.mkdir(self.path)
      for name in ("config.json", "tokenizer.json"):
        pathlib.Path(self.path, name).write_text('{"model_type": "gpt"}')
    elif kind == "file":
      pathlib.Path(self.path).write_text("years of work")
    else:
      os.symlink("nowhere", self.path)
    before = listing(self.folder)
    with self.assertRaisesRegex(InputError, "is there and is not a run directory"):
      runs.create(self.path, runs.Contents(CONFIG, TOKENIZER), overwrite=overwrite)
    self.assertEqual(listing(self.folder), before)

  def test_neighbours_are_left_alone(self):
    neighbours = [self.path + suffix for suffix in (".new", ".tmp", "1")]
    for neighbour in neighbours:
      os.mkdir(neighbour)
      pathlib.Path(neighbour, "thesis.txt").write_text("years of work")
    runs.create(self.path, runs.Contents(CONFIG, TOKENIZER))
    runs.create(self.path, runs.Contents(CONFIG, TOKENIZER), overwrite=True)
    for neighbour in neighbours:
      self.assertEqual(os.listdir(neighbour), ["thesis.txt"])

  def test_a_failure_leaves_nothing_and_the_old_run_whole(self):
    self.write(best=1.0)
    before = listing(self.folder)
    for path in (self.path, os.path.join(self.folder, "another")):
      with self.assertRaisesRegex(InputError, "cannot be made .No such file or directory.; needed"):
        runs.create(path, runs.Contents(CONFIG, OTHER), overwrite=True,
                    files={"no/such/folder": ""})
      self.assertEqual(listing(self.folder), before)

  def test_a_run_goes_on_wherever_it_lies(self):
    path = self.write()
    with mock.patch.object(os, "access", return_value=False):  # its parent is read-only
      self.assertEqual(runs.check_free(path, resume=True), path)
      with self.assertRaisesRegex(InputError, "is not a directory that can be written to"):
        runs.check_free(path, overwrite=True)

  def test_a_damaged_configuration_is_named_where_a_run_is_to_go_on(self):
    path = self.write()
    pathlib.Path(path, "config.json").write_text("{")
    with self.assertRaisesRegex(InputError, "config.json: not JSON"):
      runs.check_free(path, resume=True)

  def test_next_free(self):
    root = os.path.join(self.folder, "runs")
    self.assertEqual(runs.next_free(root), os.path.join(root, "1"))
    for name in ("1", "2", "4"):
      os.makedirs(os.path.join(root, name))
    self.assertEqual(runs.next_free(root), os.path.join(root, "3"))
    pathlib.Path(root, "3").touch()
    self.assertEqual(runs.next_free(root), os.path.join(root, "5"))


if __name__ == "__main__":
  absltest.main()
