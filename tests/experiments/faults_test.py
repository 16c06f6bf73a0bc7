"""What goes wrong around a training run: one line, status 1, and nothing lost."""

import json
import math
import os
import pathlib
import resource
import shutil
import tempfile
import time
from unittest import mock

import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import evaluate, train
from hklm import run as runs
from hklm import watching
from hklm.training import checkpoints, step
from tests import endings
from tests.experiments import binaries, children
from tests.training import texts

TEXT = texts.sentences(1500)
STEPS = 60
SMALL = ("--hidden_size=8", "--embedding_size=4", "--batch_size=4", "--bptt=10", "--dropout=0.1",
         "--eval_every=20", "--checkpoint_every=10", "--keep_checkpoints=9", f"--steps={STEPS}")
_SHARED = {}


def setUpModule():
  _SHARED["folder"] = tempfile.TemporaryDirectory()
  texts.write(_SHARED["folder"].name, "text", TEXT)


def tearDownModule():
  _SHARED["folder"].cleanup()
  _SHARED.clear()


def path(name):
  return os.path.join(_SHARED["folder"].name, name)


def trained(name, *flags, before=(0, None)):
  """Trains the run `name`; before update n, for `before` (n, act), calls `act()`.

  Returns:
    What the program did, and how many updates were begun.
  """
  made, begun = step.make_update, 0

  def make_update(*args):
    update = made(*args)

    def counted(*args):
      nonlocal begun
      begun += 1
      if begun == before[0]:
        before[1]()
      return update(*args)

    return counted

  with mock.patch.object(step, "make_update", make_update):
    done = binaries.here(train, f"--run_dir={path(name)}", *flags)
  return done, begun


def new(name, *flags, **more):
  """The same, of a run that is not there yet."""
  return trained(name, f"--corpus={path('text')}", *SMALL, *flags, **more)


def unbroken():
  """What training it printed; made once."""
  if "unbroken" not in _SHARED:
    _SHARED["unbroken"] = new("unbroken")[0]
  return _SHARED["unbroken"]


def unfinished(name, saved=30):
  """The directory of a copy of the unbroken run as it was at an update."""
  unbroken()
  run_dir = shutil.copytree(path("unbroken"), path(name))
  for folder in pathlib.Path(run_dir, "checkpoints").iterdir():
    if int(folder.name.partition("-")[2]) > saved:
      shutil.rmtree(folder)
  return run_dir


def contents(folder):
  """All files below a folder, with what is in them."""
  return {str(file.relative_to(folder)): file.read_bytes() if file.is_file() else None
          for file in pathlib.Path(folder).rglob("*")}


def limit_files_to(size):
  """Writing more to a file of this process fails, as on a full disk."""
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class FaultsTestCase(parameterized.TestCase):

  def assert_refused(self, done, *messages):
    """One line, the last, with these words."""
    self.assertEqual((done.status, done.stdout), (1, ""), done.stderr)
    self.assertEqual(done.stderr.count("error: "), 1)
    line = done.stderr.splitlines()[-1]
    self.assertStartsWith(line, "error: ")
    for message in messages:
      self.assertIn(message, line)

  def assert_resumed_ends_as_unbroken(self, name, *flags):
    done, _ = trained(name, "--resume", *flags)
    self.assertEqual((done.status, done.stdout), (0, unbroken().stdout), done.stderr)
    self.assertEqual(endings.differences(path(name), path("unbroken")), [])
    return done


def wait_for(name, checkpoint):
  """Returns when a run has a checkpoint; the thread that writes it may be late."""
  until = time.monotonic() + 60
  while not os.path.isdir(path(f"{name}/checkpoints/{checkpoint}")) and time.monotonic() < until:
    time.sleep(0.01)


class DiskTest(FaultsTestCase):

  @parameterized.parameters((10, 30), (60, 40))
  def test_a_directory_removed_while_it_runs(self, checkpoint_every, noticed):
    name = f"removed_{noticed}"

    def remove():
      wait_for(name, "best-20")  # what is being written would be in the way
      wait_for(name, "step-20" if noticed == 30 else "best-20")
      shutil.rmtree(path(name))

    done, begun = new(name, f"--checkpoint_every={checkpoint_every}", before=(25, remove))
    self.assert_refused(done, path(name), "needed: the run directory, and room to write in it")
    self.assertLessEqual(begun, noticed + 10)  # saved in a thread, heard of with the next save
    self.assertFalse(os.path.exists(path(name)))

  def test_a_file_in_place_of_the_checkpoints(self):
    folder = pathlib.Path(path("replaced"), "checkpoints")

    def replace():
      wait_for("replaced", "step-20")
      folder.rename(path("aside"))
      folder.write_text("")

    done, _ = new("replaced", before=(25, replace))
    self.assert_refused(done, f"{folder}/step-", "cannot be saved", "File exists")
    folder.unlink()
    os.rename(path("aside"), folder)
    self.assert_resumed_ends_as_unbroken("replaced")

  def test_a_disk_full_while_saving(self):
    self.addCleanup(limit_files_to, resource.RLIM_INFINITY)

    def fill():
      wait_for("full", "step-20")
      limit_files_to(2000)

    done, _ = new("full", before=(25, fill))
    limit_files_to(resource.RLIM_INFINITY)
    self.assert_refused(done, "/checkpoints/step-30: cannot be saved", "File too large",
                        "room to write")
    self.assertEqual(endings.steps(path("full"), "step"), [10, 20])
    self.assertFalse([name for name in os.listdir(path("full/checkpoints")) if name[0] == "."])
    self.assertIn("resumed after update 20 of 60",
                  self.assert_resumed_ends_as_unbroken("full").stderr)

  def test_a_disk_full_while_logging(self):
    metrics = path("full_log/metrics.jsonl")
    self.addCleanup(limit_files_to, resource.RLIM_INFINITY)

    def fill():
      wait_for("full_log", "step-30")
      limit_files_to(os.path.getsize(metrics) + 20)  # amidst a row

    done, _ = new("full_log", before=(39, fill))
    limit_files_to(resource.RLIM_INFINITY)
    self.assert_refused(done, f"{metrics}: cannot be written (File too large)", "--resume")
    self.assert_resumed_ends_as_unbroken("full_log")

  def test_a_disk_full_while_a_process_saves_shows_nothing_of_orbax(self):
    with children.Child("train", f"--run_dir={path('process')}", f"--corpus={path('text')}", *SMALL,
                        "--steps=1000000") as child:
      child.wait_until(lambda: endings.steps(path("process"), "step"))
      child.limit_files_to(1500)  # all that it says is less
      self.assertEqual(child.end(), 1)
      notes = [line for line in child.stderr.splitlines() if not line.startswith(
          ("device: ", "run directory: ", "text: ", "model: ", "update ", "validation after ",
           "to watch it: ", "without ", "no curves.png: ", "no tensorboard: "))]
    self.assertLen(notes, 1)
    self.assertRegex(notes[0], "^error: .*cannot be (saved|written) .File too large.*; needed: ")

  def test_what_a_killed_process_was_writing_is_swept(self):
    leftover = pathlib.Path(unfinished("killed"), "checkpoints", ".unfinished-step-40", "params")
    leftover.mkdir(parents=True)
    (leftover / "half").write_text("half")
    self.assert_resumed_ends_as_unbroken("killed")
    self.assertFalse(leftover.parent.exists())


class ResumeTest(FaultsTestCase):

  @parameterized.named_parameters(
      ("one_character", TEXT[:700] + ("a" if TEXT[700] != "a" else "t") + TEXT[701:]),
      ("appended", TEXT + "the cat\n"), ("outside_the_alphabet", TEXT[:-1] + "Ж"))
  def test_another_text_changes_nothing(self, text):
    run_dir = unfinished(self.id())
    before = contents(run_dir)
    other = texts.write(_SHARED["folder"].name, "other", text)
    done, _ = trained(self.id(), "--resume", f"--corpus={other}")
    self.assert_refused(done, "the text has changed since the run began" if "Ж" in text else
                        "the text is not the one that the run began with")
    self.assertEqual(contents(run_dir), before)

  @parameterized.parameters(
      ("--learning_rate=0.1", "--learning_rate"), ("--hidden_size=9", "--hidden_size"),
      ("--seed=5", "--seed"), ("--steps=61", "--steps"), ("--tokenizer=byte", "--tokenizer"),
      ("--dropout=0.3", "dropout"), ("--valid_fraction=0.2", "--valid_fraction"),
      ("--cell=tests.oracle:gru", "--cell"), ("--average=polyak", "--average"))
  def test_another_flag_is_named_and_changes_nothing(self, flag, name):
    for saved in (30, 0):
      run_dir = unfinished(f"{self.id()}_{saved}", saved)
      before = contents(run_dir)
      done, _ = trained(os.path.basename(run_dir), "--resume", flag)
      self.assert_refused(done, "the run has --", name, "needed: the same to resume it")
      self.assertEqual(contents(run_dir), before)

  def test_a_finished_run_says_so(self):
    unbroken()
    shutil.copytree(path("unbroken"), path("finished"))
    done = self.assert_resumed_ends_as_unbroken("finished")
    self.assertIn(f"{path('finished')} is already complete: all 60 updates are made", done.stderr)

  @parameterized.parameters(True, False)
  def test_without_a_checkpoint_it_begins_and_says_so(self, there):
    name = f"begins_{there}"
    if there:
      unfinished(name, 0)
    done = self.assert_resumed_ends_as_unbroken(
        name, *(() if there else (f"--corpus={path('text')}", *SMALL)))
    self.assertIn(f"{path(name)} holds no checkpoint to go on from: the run begins at update 0",
                  done.stderr)

  @parameterized.parameters((30, "unfinished: 30 of 60 updates are saved"),
                            (0, "unfinished: nothing is saved yet"))
  def test_an_unfinished_run_is_not_overwritten_unasked(self, saved, how_far):
    run_dir = unfinished(f"there_{saved}", saved)
    before = contents(run_dir)
    self.assert_refused(new(f"there_{saved}")[0], f"{run_dir} holds a run ({how_far}); give "
                        "--resume to go on with it, --overwrite to replace it")
    self.assertEqual(contents(run_dir), before)


class NonfiniteTest(FaultsTestCase):
  """An update far too large makes parameters whose next gradient overflows."""

  STEEP = ("--optimizer=sgd", "--learning_rate=1e38", "--clip=0", "--checkpoint_every=1",
           "--eval_every=1", "--warmup=4", "--steps=12")

  def assert_finite(self, name):
    for kind in ("last", "best"):
      leaves = jax.tree.leaves(hklm.load_run(path(name), kind).params)
      self.assertTrue(all(np.isfinite(leaf).all() for leaf in leaves))
    for kind in ("step", "best"):
      for checkpoint in checkpoints.named(runs.checkpoint_folder(path(name)), kind):
        checkpoints.verify(checkpoint)

  def test_it_stops_and_keeps_what_is_finite(self):
    done, begun = new("stop", *self.STEEP)
    self.assert_refused(done, f"update {begun}: the loss is ", "lower --learning_rate or --clip")
    self.assertLess(begun, 12)
    self.assertEqual(endings.steps(path("stop"), "step")[-1], begun - 1)
    self.assert_finite("stop")

  def test_it_skips_and_counts(self):
    done, begun = new("skip", *self.STEEP, "--on_nonfinite=skip")
    self.assertEqual((done.status, begun), (0, 12), done.stderr)
    counts = [row["skipped_updates"] for row in endings.rows(path("skip"))
              if "skipped_updates" in row]
    self.assertEqual(counts, sorted(counts))
    self.assertGreater(counts[-1], 0)
    self.assertIn(f"  {counts[-1]} updates skipped", done.stderr.splitlines()[-3])
    self.assert_finite("skip")

  def test_nan_is_never_the_best(self):
    found, scale = watching.evaluate, iter((math.nan, 1.0, math.nan))

    def evaluated(*args):
      metrics = found(*args)
      return metrics._replace(nats=metrics.nats * next(scale))

    with mock.patch.object(watching, "evaluate", evaluated):
      done, _ = new("nan")
    self.assertEqual(done.status, 0, done.stderr)
    rows = [row for row in endings.rows(path("nan")) if "valid_tokens" in row]
    self.assertEqual([row["valid_nats_per_token"] is None for row in rows], [True, False, True])
    self.assertEqual(endings.steps(path("nan"), "best"), [40])
    self.assertStartsWith(done.stdout.splitlines()[-1],
                          f"validation bits/char {rows[1]['valid_bits_per_char']:.4f} ")



class InitFromTest(FaultsTestCase):

  def test_it_begins_with_parameters_and_tokenizer_alone(self):
    unbroken()
    source = shutil.copytree(path("unbroken"), path("source"))
    # An alphabet of its own would be smaller than the source's.
    text = texts.write(_SHARED["folder"].name, "tuning", TEXT.replace("g", "c"))
    flags = (f"--corpus={text}", f"--init_from={source}", "--batch_size=4", "--bptt=10",
             "--steps=6", "--checkpoint_every=3", "--eval_every=1", "--optimizer=sgd",
             "--learning_rate=1e-30")
    done, begun = trained("tuned", *flags)
    self.assertEqual((done.status, begun), (0, 6), done.stderr)
    self.assertEqual(hklm.load_run(path("tuned")).tokenizer, hklm.load_run(source).tokenizer)
    rows = [row for row in endings.rows(path("tuned")) if "valid_tokens" in row]
    self.assertEqual(rows[0]["step"], 1)  # counters begin anew
    figures = json.loads(binaries.here(evaluate, "--json", f"--run_dir={source}",
                                       f"--corpus={text}", "--part=valid", "--window=10",
                                       f"--streams={rows[0]['valid_streams']}").stdout)
    self.assertEqual(figures["tokens"], rows[0]["valid_tokens"])
    np.testing.assert_allclose(rows[0]["valid_nats_per_token"],
                               figures["nll_nats"] / figures["tokens"], rtol=1e-6)

    shutil.copytree(path("tuned"), path("tuned_whole"))
    shutil.rmtree(source)  # needed no more
    for kind in ("step", "best"):
      for step_ in endings.steps(path("tuned"), kind):
        if step_ > 3:
          shutil.rmtree(f"{path('tuned')}/checkpoints/{kind}-{step_}")
    done, begun = trained("tuned", "--resume")
    self.assertEqual((done.status, begun), (0, 3), done.stderr)
    self.assertEqual(endings.differences(path("tuned"), path("tuned_whole")), [])

  def test_the_optimiser_begins_anew(self):
    unbroken()
    done, _ = trained("anew", f"--init_from={path('unbroken')}", f"--corpus={path('text')}", *SMALL,
                      "--steps=3", "--checkpoint_every=3")
    self.assertEqual(done.status, 0, done.stderr)
    training = endings.arrays(path("anew"), "step")
    counts = {name: int(array) for name, array in training.items() if name.endswith(".count")}
    self.assertNotEmpty(counts)
    self.assertEqual(set(counts.values()) | {int(training["training/.step"])}, {3})

  @parameterized.parameters(("--hidden_size=9", "parameter head/w is (19, 8), this"),
                            ("--num_layers=2", "parameter lstm_1/b is missing, this"),
                            ("--tokenizer=byte", "--tokenizer=byte, but the run's is char"))
  def test_what_does_not_fit_is_named(self, flag, message):
    unbroken()
    done, _ = trained("unfit", f"--init_from={path('unbroken')}", f"--corpus={path('text')}",
                      "--batch_size=4", "--bptt=10", flag)
    self.assert_refused(done, message)
    self.assertFalse(os.path.exists(path("unfit")))


if __name__ == "__main__":
  absltest.main()
