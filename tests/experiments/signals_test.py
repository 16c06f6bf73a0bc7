"""Signals that reach a training process: its status, its one line, and what it leaves."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from absl.testing import absltest, parameterized

from hklm.training import checkpoints
from tests import endings
from tests.experiments import binaries, children
from tests.training import texts

SMALL = ("--hidden_size=8", "--embedding_size=4", "--batch_size=4", "--bptt=10", "--eval_every=30",
         "--checkpoint_every=10", "--steps=1000000")
NOTES = ("device: ", "run directory: ", "to watch it: ", "without ", "text: ", "model: ", "update ",
         "validation after update ")


class SignalsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.run_dir = os.path.join(folder, "run")
    self.corpus = texts.write(folder, "text", texts.sentences(1500))

  def start(self, *flags):
    return self.enter_context(children.Child(
        "train", f"--run_dir={self.run_dir}", f"--corpus={self.corpus}", *SMALL, *flags))

  def saved(self):
    return endings.steps(self.run_dir, "step")

  def assert_all_whole(self):
    folder = os.path.join(self.run_dir, "checkpoints")
    for kind in ("step", "best"):
      for path in checkpoints.named(folder, kind):
        checkpoints.verify(path)

  def remarks(self, child):
    """The lines that are not those of any run."""
    return [line for line in child.stderr.splitlines() if line and not line.startswith(NOTES)]

  @parameterized.parameters((signal.SIGTERM, 143), (signal.SIGINT, 130))
  def test_the_first_saves_and_ends(self, number, status):
    child = self.start()
    child.wait_until(self.saved)
    child.send(number)
    self.assertEqual((child.end(), child.stdout), (status, ""))
    heard, stopped = self.remarks(child)
    self.assertEqual(heard, f"{signal.Signals(number).name}: finishing this update and saving; "
                            "once more ends it at once")
    step = re.fullmatch(rf"stopped after update ([0-9,]+) of 1,000,000; all is saved in "
                        rf"{self.run_dir}: go on with --resume", stopped)[1].replace(",", "")
    self.assertEqual(self.saved()[-1], int(step))
    self.assert_all_whole()

  def test_who_read_its_log_has_been_ended_by_the_same_ctrl_c(self):
    # as of `train 2>&1 | tee log`
    child = self.enter_context(subprocess.Popen(
        [sys.executable, "-m", "experiments.train", f"--run_dir={self.run_dir}",
         f"--corpus={self.corpus}", *SMALL], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        cwd=binaries.ROOT))
    self.addCleanup(child.kill)
    deadline = time.monotonic() + children.PATIENCE
    while not self.saved() and child.poll() is None and time.monotonic() < deadline:
      time.sleep(0.01)
    child.stderr.close()
    child.send_signal(signal.SIGINT)
    self.assertEqual(child.wait(children.PATIENCE), 130)
    self.assertNotEmpty(endings.rows(self.run_dir))
    self.assert_all_whole()

  @parameterized.parameters((signal.SIGTERM, signal.SIGINT, 130), (signal.SIGINT,) * 2 + (130,))
  def test_the_second_ends_at_once(self, first, second, status):
    # Validation takes long: the first signal is still being served.
    child = self.start("--eval_every=15", f"--valid_corpus={self.long_text()}")
    child.wait_until(lambda: endings.rows(self.run_dir) and self.saved())
    before = self.saved()
    child.send(first)
    child.wait_until(lambda: "once more ends it at once" in child.stderr)
    child.send(second)
    self.assertEqual((child.end(), child.stdout), (status, ""))
    self.assertEqual(self.remarks(child)[1:], [f"{signal.Signals(second).name}: ended at once"])
    self.assertEqual(self.saved(), before)
    self.assert_all_whole()

  def long_text(self):
    return texts.write(os.path.dirname(self.run_dir), "long", texts.sentences(1000) * 3000)

  @parameterized.parameters((signal.SIGTERM, 143), (signal.SIGINT, 130))
  def test_before_training_it_ends_at_once(self, number, status):
    child = self.start()
    child.wait_until(lambda: "device: " in child.stderr)
    child.send(number)
    self.assertEqual((child.end(), child.stdout), (status, ""))
    self.assertEqual(self.remarks(child), [f"{signal.Signals(number).name}: ended at once"])

  @parameterized.parameters(signal.SIGTERM, signal.SIGINT)
  def test_while_python_still_imports_it_ends_without_a_word(self, number):
    child = self.start()
    child.wait_until(lambda: child.maps("jaxlib/"))
    child.send(number)
    self.assertEqual((child.end(), child.stdout, child.stderr), (-number, "", ""))


if __name__ == "__main__":
  absltest.main()
