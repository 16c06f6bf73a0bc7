"""The binaries in processes of their own: what only a real one shows."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import chex
from absl.testing import absltest

import hklm
from hklm.training import logs
from tests.experiments import binaries
from tests.training import texts

TEXT = texts.sentences(1500)
SMALL = ("--hidden_size=8", "--embedding_size=4", "--batch_size=4", "--bptt=10", "--steps=8",
         "--eval_every=4", "--dropout=0.2")
# As bare a surrounding as there is: no word of UTF-8 in it.
BARE = {"LC_ALL": "C", "LANG": "C", "PYTHONIOENCODING": "ascii"}


def rows(run_dir):
  """metrics.jsonl but for what a run takes."""
  with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as file:
    return [{name: v for name, v in json.loads(line).items() if name not in logs.TIMES}
            for line in file]


class BinariesTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = folder.name
    cls.trained = binaries.child("train", "--corpus=-", *SMALL, cwd=cls.folder, stdin=TEXT, **BARE)
    cls.run_dir = os.path.join(cls.folder, "runs", "1")
    cls.named = f"--run_dir={cls.run_dir}"

  def test_train(self):
    status, stdout, stderr = self.trained
    self.assertEqual(status, 0, stderr)
    self.assertRegex(stdout.splitlines()[-1],
                     r"^validation bits/char [0-9]+\.[0-9]{4}  perplexity [0-9]+\.[0-9]{2}$")
    sample = stdout[:stdout.rindex("validation bits/char")].removesuffix("\n")
    self.assertLen(sample, 300)
    self.assertContainsSubset(sample, set(TEXT))
    lines = stderr.splitlines()
    self.assertRegex(lines[0], r"^device: \d+ x \S+")
    self.assertEqual(lines[1], f"run directory: {os.path.realpath(self.run_dir)}")
    self.assertEqual(lines[-1], lines[1])
    self.assertNotIn("Traceback", stderr)

  def test_its_flags_replay_it_bit_for_bit_in_another_process(self):
    again = binaries.child("train", f"--flagfile={self.run_dir}/train.flags", cwd=self.folder,
                           stdin=TEXT, JAX_ENABLE_COMPILATION_CACHE="false")
    self.assertEqual(again.status, 0, again.stderr)
    other = os.path.join(self.folder, "runs", "2")
    self.assertEqual(rows(other), rows(self.run_dir))
    first, second = hklm.load_run(self.run_dir), hklm.load_run(other)
    chex.assert_trees_all_equal(first.params, second.params)
    self.assertEqual(first.config, second.config)
    self.assertEqual(first.config.model.output_dropout, 0.2)
    self.assertEqual(again.stdout, self.trained.stdout)
    for file in ("config.json", "tokenizer.json", "train.flags"):
      self.assertEqual(pathlib.Path(other, file).read_bytes(),
                       pathlib.Path(self.run_dir, file).read_bytes())

  def test_evaluate_gives_the_logged_figure(self):
    done = binaries.child("evaluate", self.named, "--corpus=-", "--part=valid", "--streams=4",
                          "--json", stdin=TEXT, **BARE)
    self.assertEqual(done.status, 0, done.stderr)
    figures = json.loads(done.stdout)
    best = min((row for row in rows(self.run_dir) if "valid_tokens" in row),
               key=lambda row: row["valid_nats_per_token"])
    self.assertEqual(figures["tokens"], best["valid_tokens"])
    self.assertEqual(figures["streams"], best["valid_streams"])
    self.assertAlmostEqual(figures["nll_nats"] / figures["tokens"], best["valid_nats_per_token"],
                           places=6)
    self.assertAlmostEqual(figures["bits_per_char"], best["valid_bits_per_char"], places=6)
    printed = re.findall(r"[0-9.]+", self.trained.stdout.splitlines()[-1])
    self.assertEqual([f"{figures['bits_per_char']:.4f}", f"{figures['perplexity']:.2f}"], printed)

  def test_sample_writes_utf_8_whatever_the_locale(self):
    done = binaries.child("sample", self.named, "--prompt=naïve café", "--length=200", **BARE)
    self.assertEqual(done.status, 0, done.stderr)
    self.assertStartsWith(done.stdout, "naïve café")
    self.assertLen(done.stdout, len("naïve café") + 200 + len("\n"))
    self.assertRegex(done.stderr.splitlines()[0], r"^device: \d+ x \S+")

  def test_a_reader_who_has_seen_enough_ends_it_quietly(self):
    command = (f"'{sys.executable}' -m experiments.sample {self.named} --length=100000 "
               "--temperature=2 | head -c 10")
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=binaries.ROOT,
                          capture_output=True, timeout=300, check=False)
    self.assertLen(done.stdout, 10)
    self.assertEqual(done.returncode, 0)
    self.assertLen(done.stderr.decode().splitlines(), 1)  # the device

  def test_a_mistake_is_one_line_and_status_1(self):
    missing = os.path.join(self.folder, "missing")
    done = binaries.child("evaluate", self.named, f"--corpus={missing}", **BARE)
    self.assertEqual(done.status, 1)
    self.assertEqual(done.stdout, "")
    self.assertStartsWith(done.stderr.splitlines()[-1],
                          f"error: {missing}: No such file or directory; needed: ")
    self.assertNotIn("Traceback", done.stderr)

    done = binaries.child("evaluate", self.named, f"--corpus={missing}", "--debug")
    self.assertEqual(done.status, 1)
    self.assertIn("Traceback", done.stderr)

  def test_flags_that_are_not_this_binarys(self):
    for flag in ("--length=5", "--no_such_flag"):  # the first is sample's
      done = binaries.child("evaluate", self.named, flag)
      self.assertEqual(done.status, 1)
      self.assertEqual(done.stdout, "")
      self.assertStartsWith(done.stderr.splitlines()[-1], "error: Unknown command line flag")
      self.assertNotIn("Traceback", done.stderr)

  def test_a_path_that_is_not_utf_8_can_be_named(self):
    done = subprocess.run(
        [sys.executable, "-m", "experiments.evaluate", self.named, b"--corpus=/no/caf\xe9"],
        cwd=binaries.ROOT, capture_output=True, timeout=300, check=False)
    self.assertEqual(done.returncode, 1)
    self.assertIn(b"error: /no/caf\\udce9: No such file or directory", done.stderr)
    self.assertNotIn(b"Traceback", done.stderr)


if __name__ == "__main__":
  absltest.main()
