"""`train` on one device, on several, in two processes: one loss curve, one kind of checkpoint."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np
from absl.testing import absltest

import hklm
from experiments import train
from tests.experiments import binaries
from tests.training import texts

FLAGS = ("--hidden_size=8", "--embedding_size=4", "--batch_size=16", "--bptt=12", "--steps=30",
         "--dropout=0.2", "--warmup=3", "--schedule=plateau", "--eval_every=8",
         "--checkpoint_every=7", "--accumulate=2")
TIMEOUT = 240  # seconds, on a machine with other work


class DevicesTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = folder.name
    cls.corpus = texts.write(cls.folder, "corpus.txt", texts.sentences(3000))
    cls.finish(cls.start("one"))

  @classmethod
  def start(cls, name, *flags, devices=1):
    xla = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.train", f"--run_dir={cls.folder}/{name}",
         f"--corpus={cls.corpus}", *FLAGS, *flags],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"XLA_FLAGS": xla})

  @classmethod
  def together(cls, name, *flags):
    """Two processes of one run."""
    with socket.socket() as free:
      free.bind(("127.0.0.1", 0))
      port = free.getsockname()[1]
    return [cls.start(name, f"--coordinator=127.0.0.1:{port}", "--process_count=2",
                      f"--process_index={n}", *flags) for n in (0, 1)]

  @classmethod
  def finish(cls, process, status=0):
    """What it printed on standard output and on standard error."""
    try:
      out, err = process.communicate(timeout=TIMEOUT)
    finally:
      process.kill()
    assert process.returncode == status, (process.returncode, err)
    return out, err

  def rows(self, name):
    with open(f"{self.folder}/{name}/metrics.jsonl", encoding="utf-8") as file:
      return [json.loads(line) for line in file]

  def assert_same_curve(self, name):
    found, wanted = self.rows(name), self.rows("one")
    self.assertEqual([row["step"] for row in found], [row["step"] for row in wanted])
    for key in ("train_nats_per_token", "valid_nats_per_token", "gradient_norm"):
      np.testing.assert_allclose([row[key] for row in found if key in row],
                                 [row[key] for row in wanted if key in row], rtol=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4),
                 *(hklm.load_run(f"{self.folder}/{its}").params for its in (name, "one")))

  def test_eight_devices(self):
    _, err = self.finish(self.start("eight", devices=8))
    self.assertStartsWith(err, "device: 8 x ")
    self.assert_same_curve("eight")

  def test_two_processes_stopped_by_one_sigterm_and_resumed_on_two_devices(self):
    first, second = self.together("two")
    metrics = pathlib.Path(self.folder, "two", "metrics.jsonl")
    deadline = time.monotonic() + TIMEOUT
    with contextlib.ExitStack() as stack:
      stack.callback(first.kill)
      stack.callback(second.kill)
      while time.monotonic() < deadline and not (metrics.exists() and metrics.read_text()):
        time.sleep(0.02)
      second.send_signal(signal.SIGTERM)
      (out, err), (other, _) = (self.finish(its, 128 + signal.SIGTERM) for its in (first, second))
    stopped = int(re.search(r"stopped after update (\d+) of 30; all is saved", err)[1])
    self.assertEqual(sorted(os.listdir(metrics.parent / "checkpoints"))[-1], f"step-{stopped}")
    for text in (out, other):
      self.assertNotIn("bits/char", text)
    out, err = self.finish(self.start("two", "--resume", devices=2))
    self.assertIn(f"resumed after update {stopped} of 30", err)
    self.assert_same_curve("two")

  def test_what_does_not_fit_is_refused_before_anything_is_written(self):
    for flags, message in (
        (("--devices=2",), "--devices=2 is out of range; needed: 1 to 1, the devices"),
        (("--vocab_shards=2",), "--vocab_shards=2 does not divide the 1 devices"),
        (("--process_count=2", "--process_index=2"), "--process_index=2 is out of range"),
        (("--process_count=2",), "--coordinator= is no address; needed: host:port")):
      done = binaries.here(train, f"--run_dir={self.folder}/refused", f"--corpus={self.corpus}",
                           *FLAGS, *flags)
      self.assertEqual((done.status, done.stdout), (1, ""))
      self.assertIn(f"error: {message}", done.stderr.splitlines()[-1])
      self.assertFalse(os.path.exists(f"{self.folder}/refused"))


if __name__ == "__main__":
  absltest.main()
