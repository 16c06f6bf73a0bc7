"""Watching a run: its rows, its events, its picture, and that none of them changes it."""

import contextlib
import io
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import types
from unittest import mock

import chex
import numpy as np
from absl.testing import absltest, parameterized
from tensorboardX.proto import event_pb2

import hklm
from hklm import trainer, watching
from hklm.data import corpora, encoding, tokenizers
from hklm.data import texts as prepared
from hklm.errors import Stopped
from hklm.metrics import Metrics
from hklm.report import curves, events
from hklm.training import logs, loop, memory
from tests.training import texts

STEPS = 12


def config(tokenizer="char", **changes):
  settings = {"batch_size": 4, "bptt": 10, "steps": STEPS, "eval_every": 5, "learning_rate": 0.02}
  model = hklm.ModelConfig(embedding_size=4, hidden_size=8, output_dropout=0.2)
  return hklm.TrainConfig(model, hklm.TokenizerConfig(tokenizer), **{**settings, **changes})


def without_plots():
  """As if neither matplotlib nor tensorboardX were installed."""
  return mock.patch.dict(sys.modules, {"matplotlib": None, "tensorboardX": None})


def rows(run_dir):
  with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as file:
    return [json.loads(line) for line in file]


def timeless(its_rows):
  return [{name: v for name, v in row.items() if name not in logs.TIMES} for row in its_rows]


def crc32c(data: bytes) -> int:
  """Of RFC 3720, bit by bit: the reflected polynomial is 0x82F63B78."""
  crc = 0xFFFFFFFF
  for byte in data:
    crc ^= byte
    for _ in range(8):
      crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
  return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
  crc = crc32c(data)
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def records(path):
  """TFRecord: length, its masked CRC-32C, the data, its masked CRC-32C; little-endian."""
  data = path.read_bytes()
  while data:
    length, crc = struct.unpack_from("<QI", data)
    assert crc == masked(data[:8])
    yield data[12:12 + length]
    assert struct.unpack_from("<I", data, 12 + length) == (masked(data[12:12 + length]),)
    data = data[16 + length:]


def shown(run_dir):
  """What TensorBoard shows, by update and name: a new session hides what is from its step on."""
  found = {}
  for path in sorted(pathlib.Path(run_dir, "tensorboard").iterdir()):
    for record in records(path):
      event = event_pb2.Event.FromString(record)
      if event.HasField("session_log"):
        assert event.session_log.status == event_pb2.SessionLog.START
        found = {key: value for key, value in found.items() if key[0] < event.step}
      for value in event.summary.value:
        assert (event.step, value.tag) not in found
        found[event.step, value.tag] = value.simple_value
  return found


def as_scalars(its_rows):
  """The same of metrics.jsonl."""
  return {(row["step"], name): float(np.float32(value)) for row in its_rows
          for name, value in row.items() if name != "step" and value is not None}


class WatchingTestCase(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = folder.name
    cls.corpus = texts.write(cls.folder, "corpus.txt", texts.sentences(1500))

  def train(self, config_, name, **arguments):
    """The run directory, and what was said."""
    path = os.path.join(self.folder, name)
    with contextlib.redirect_stderr(io.StringIO()) as said:
      self.run_ = hklm.train(config_, path, [self.corpus], **arguments)
    return os.path.realpath(path), said.getvalue()


class RunTest(WatchingTestCase):
  """One run, unbroken, beside others that should be like it."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.settings = config(checkpoint_every=5)
    with mock.patch.object(loop, "LOG_EVERY", 3):
      cls.run_dir, cls.said = cls.train(cls, cls.settings, "run")
    cls.rows, cls.params = rows(cls.run_dir), cls.run_.params

  def test_a_line_says_how_to_look_at_it(self):
    line, = [line for line in self.said.splitlines() if line.startswith("to watch it: ")]
    self.assertEqual(line, f"to watch it: {self.run_dir}/metrics.jsonl, {self.run_dir}/curves.png, "
                           f"tensorboard --logdir={self.run_dir}")

  def test_events_are_the_rows(self):
    self.assertEqual(shown(self.run_dir), as_scalars(self.rows))
    self.assertEqual({step for step, _ in shown(self.run_dir)}, {3, 5, 6, 9, 10, 12})

  def test_a_run_that_is_stopped_and_goes_on_has_the_same_rows_and_events(self):
    calls = iter(range(1000))
    with mock.patch.object(loop, "LOG_EVERY", 3):
      with self.assertRaises(Stopped):
        self.train(self.settings, "broken", stop=lambda: next(calls) == 7)  # after update 8
      path = os.path.join(self.folder, "broken")
      before = rows(path)
      self.assertEqual(shown(path), as_scalars(before))
      os.rename(os.path.join(path, "checkpoints", "step-8"), os.path.join(self.folder, "lost"))
      self.train(self.settings, "broken", resume=True)  # from update 5
    after = rows(path)
    self.assertEqual(timeless(after), timeless(self.rows))
    self.assertEqual([row["step"] for row in before], [3, 5, 5, 6])
    self.assertEqual(after[:3], before[:3])
    self.assertLen(os.listdir(os.path.join(path, "tensorboard")), 2)
    self.assertEqual(shown(path), as_scalars(after))
    seconds = [row["seconds"] for row in after if "seconds" in row]
    self.assertEqual(seconds, sorted(seconds))  # the clock goes on
    self.assertEqual(pathlib.Path(path, "curves.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

  @parameterized.named_parameters(
      ("never_validated", 3, {"eval_every": 1000}, contextlib.nullcontext),
      ("always_logged_and_validated", 1, {"eval_every": 1}, contextlib.nullcontext),
      ("not_looked_at", 1000, {"eval_every": 4}, without_plots))
  def test_parameters_are_the_same_bits_however_it_is_watched(self, log_every, changes, around):
    with mock.patch.object(loop, "LOG_EVERY", log_every), around():
      path, said = self.train(config(checkpoint_every=5, **changes), f"by_{log_every}")
    chex.assert_trees_all_equal(hklm.load_run(path, "last").params,
                                hklm.load_run(self.run_dir, "last").params)
    plotted = around is contextlib.nullcontext
    self.assertEqual("curves.png" in os.listdir(path), plotted)
    self.assertEqual("tensorboard" in os.listdir(path), plotted)
    missing = [line for line in said.splitlines() if "pip install" in line]
    self.assertEqual(missing, [] if plotted else [
        "without matplotlib no curves.png, without tensorboardX no tensorboard: "
        "pip install -e '.[plots]'"])
    self.assertIn(f"to watch it: {path}/metrics.jsonl", said)

  def test_what_cannot_be_shown_is_said_once_and_the_run_goes_on(self):
    with mock.patch.object(curves, "plot", side_effect=RuntimeError("no\nfonts")) as drawn, \
        mock.patch("tensorboardX.record_writer.open_file", lambda _: open("/dev/full", "wb")):
      _, said = self.train(self.settings, "unseen")
    self.assertEqual(drawn.call_count, 3)  # after updates 5, 10 and 12
    self.assertEqual(said.count("no curves.png: RuntimeError: no fonts\n"), 1)
    self.assertEqual(said.count("no tensorboard: OSError: [Errno 28] No space left on device\n"), 1)
    chex.assert_trees_all_equal(self.run_.params, self.params)

  def test_it_is_drawn_after_each_validation_and_at_the_end_without(self):
    for name, valid_fraction, expected in (("drawn", 0.1, [5, 10, 12]), ("unvalidated", 0, [12])):
      seen = []
      with mock.patch.object(curves, "plot", lambda metrics, *_, to=seen: to.append(
          rows(os.path.dirname(metrics))[-1]["step"])):
        self.train(config(valid_fraction=valid_fraction), name)
      self.assertEqual(seen, expected)

  def test_a_plateau_is_in_the_rate(self):
    settings = config(schedule="plateau", decay_rate=0.5, eval_every=1, warmup=2, steps=6)
    losses = iter([3.0, 2.0, 2.5, 1.0, 1.5])  # the third and the fifth lower the rate
    with mock.patch.object(watching, "evaluate", lambda *_: Metrics(next(losses, 9.0), 1)):
      path, _ = self.train(settings, "plateau")
    np.testing.assert_allclose(
        [row["learning_rate"] for row in rows(path) if "learning_rate" in row],
        0.02 * np.array([0, 1 / 2, 1, 1 / 2, 1 / 2, 1 / 4]), rtol=1e-6)

  def test_the_rate_of_cosine(self):
    np.testing.assert_allclose(
        [row["learning_rate"] for row in self.rows if "learning_rate" in row],
        [0.01 * (1 + math.cos(math.pi * (n - 1) / STEPS)) for n in (3, 5, 6, 9, 10, 12)], rtol=1e-5)


class Clock:
  """A `time` that goes by when told to."""

  def __init__(self):
    self.now = 100.0

  def monotonic(self):
    return self.now


class RowTest(parameterized.TestCase):
  """Rows of hooks that are called by hand."""

  @contextlib.contextmanager
  def watched(self, text="abcd" * 5, kind="char", older="", **arguments):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    path = os.path.join(folder, "metrics.jsonl")
    pathlib.Path(path).write_text(older)
    corpus = corpora.corpus_of(text)
    raw = kind == "byte"
    tokenizer = tokenizers.build(hklm.TokenizerConfig(kind), list(corpus.chunks(raw)))
    its_text = prepared.Text(tokenizer, encoding.encode_corpus(tokenizer, corpus), None)
    clock, its_rows = Clock(), []
    with mock.patch.object(watching, "time", clock), without_plots(), \
        contextlib.redirect_stderr(io.StringIO()), \
        watching.watch(folder, None, its_text, config(kind), lambda n: 1.0 + n, 100,
                       **arguments) as watch:
      yield types.SimpleNamespace(watch=watch, clock=clock, rows=its_rows)
    its_rows += rows(folder)

  def test_tokens_per_second_are_of_training_alone_and_seconds_of_all(self):
    with self.watched() as its:
      its.clock.now += 2
      its.watch.training(20, Metrics(1.0, 100), 0.5, 0, 1.0)
      with its.watch.paused():
        its.clock.now += 1000
      its.clock.now += 4
      its.watch.training(40, Metrics(1.0, 100), 0.5, 0, 1.0)
    self.assertEqual([row["tokens_per_second"] for row in its.rows], [50, 25])
    self.assertEqual([row["seconds"] for row in its.rows], [2, 1006])

  def test_a_resumed_run_counts_its_own_tokens_and_goes_on_with_the_clock(self):
    older = '{"step": 20, "seconds": 30.5}\n{"step": 20, "valid_tokens": 3}\n'
    with self.watched(older=older, done=30, unlogged=60) as its:
      its.clock.now += 2
      its.watch.training(40, Metrics(1.0, 100), 0.5, 0, 1.0)
    self.assertEqual(its.rows[-1]["tokens"], 100)
    self.assertEqual(its.rows[-1]["tokens_per_second"], 20)
    self.assertEqual(its.rows[-1]["seconds"], 32.5)

  @parameterized.parameters((20, 0, 1.0, 20.0), (20, 3, 0.5, 8.5), (5, 5, 1.0, 1.0))
  def test_the_schedule_stands_still_where_updates_are_skipped(self, step, skipped, factor, rate):
    with self.watched() as its:
      its.clock.now += 1
      its.watch.training(step, Metrics(1.0, 100), 0.5, skipped, factor)
    self.assertEqual(its.rows[0]["learning_rate"], rate)  # of the update n: n, times the factor

  def test_of_nothing_the_mean_is_null(self):
    with self.watched() as its:
      its.clock.now += 1
      its.watch.training(20, Metrics(0.0, 0), 0.0, 20, 1.0)
    self.assertIsNone(its.rows[0]["train_nats_per_token"])
    self.assertIsNone(its.rows[0]["train_bits_per_char"])
    self.assertEqual(its.rows[0]["tokens_per_second"], 0)

  @parameterized.parameters(
      ("char", "naïve café", {"train_bits_per_char": 3.0}),
      # 12 bytes, 11 of them scored, which begin 9 characters
      ("byte", "naïve café", {"train_bits_per_char": 3.0 * 11 / 9}),
      ("word", "to be or not to be", {"train_perplexity": 8.0}))
  def test_the_loss_in_the_unit_of_the_text(self, kind, text, expected):
    with self.watched(text, kind) as its:
      its.clock.now += 1
      its.watch.training(20, Metrics(3.0 * math.log(2) * 110, 110), 0.5, 0, 1.0)
    found = {name: v for name, v in its.rows[0].items() if name.startswith("train_")}
    self.assertAlmostEqual(found.pop("train_nats_per_token"), 3.0 * math.log(2))
    chex.assert_trees_all_close(found, expected, rtol=1e-12)

  def test_the_best_validation_is_the_one_whose_parameters_are_kept(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    path = os.path.join(folder, "metrics.jsonl")
    pathlib.Path(path).touch()
    self.assertIsNone(trainer.best_validation(folder))
    for step, nats in ((1, 1.25), (2, 1.5), (3, 2.5), (4, math.nan)):
      logs.append_jsonl(path, step=step, train_nats_per_token=math.nan)
      logs.append_jsonl(path, step=step, valid_nats_per_token=nats)
    os.makedirs(os.path.join(folder, "checkpoints", "best-2"))
    self.assertEqual(trainer.best_validation(folder)["valid_nats_per_token"], 1.5)
    with open(path, "ab") as file:
      file.write(b"garbage\n" + b"[" * 100_000 + b"\n" + b'{"step": 2, "seconds": null}\n')
    self.assertEqual(trainer.best_validation(folder)["valid_nats_per_token"], 1.5)
    os.remove(path)
    self.assertIsNone(trainer.best_validation(folder))


class MemoryTest(absltest.TestCase):

  def test_of_the_process_where_the_device_does_not_tell(self):
    held = np.ones(2**24)  # 128 MiB that are there
    status = pathlib.Path("/proc/self/status").read_text()
    resident, = [int(line.split()[1]) * 1024 for line in status.splitlines() if "VmRSS" in line]
    self.assertGreaterEqual(memory.peak(), held.nbytes)
    self.assertGreaterEqual(memory.peak(), 0.99 * resident)
    self.assertLess(memory.peak(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

  def test_of_this_program_and_not_of_the_one_that_started_it(self):
    child = "from hklm.training import memory; print(memory.peak())"
    parent = (f"import subprocess, sys; held = bytearray(b'x') * 2**30; "
              f"print(len(held), subprocess.check_output([sys.executable, '-c', {child!r}]))")
    said = subprocess.check_output([sys.executable, "-c", parent], text=True)
    held, peak = map(int, re.findall(r"\d+", said))
    self.assertBetween(peak, 2**25, held - 1)

  def test_of_the_device_that_has_held_most(self):
    devices = [mock.Mock(**{"memory_stats.return_value": stats}) for stats in (
        {"peak_bytes_in_use": 5}, {"peak_bytes_in_use": 7, "bytes_in_use": 9}, None)]
    with mock.patch.object(memory.jax, "local_devices", lambda: devices):
      self.assertEqual(memory.peak(), 7)


class EventsTest(absltest.TestCase):

  def test_they_are_there_while_the_run_goes_on(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    with events.writer(os.path.join(folder, "tensorboard"), 0) as write:
      write(20, {"train_nats_per_token": 2.5, "tokens": None})
      self.assertEqual(shown(folder), {(20, "train_nats_per_token"): 2.5})

  def test_files_begun_in_one_second_are_two(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    with mock.patch("time.time", lambda: 1e9):
      for done, step in ((0, 9), (9, 10), (100, 101)):
        with events.writer(os.path.join(folder, "tensorboard"), done) as write:
          write(step, {"tokens": step})
    self.assertEqual(shown(folder), {(n, "tokens"): n for n in (9, 10, 101)})


if __name__ == "__main__":
  absltest.main()
