"""What the GPU's run does that needs no GPU: its parts, its comparisons, its refusal."""

import doctest
import json
import os
import pathlib
import tempfile
import time
from unittest import mock

import chex
import jax
import numpy as np
from absl.testing import absltest, flagsaver, parameterized

from experiments import benchmark, cli, gpu
from experiments.speed import contenders, implementations, with_hklm, workloads
from experiments.speed.implementations import Hklm, Torch
from experiments.speed.measures import Row
from experiments.speed.workloads import Workload
from hklm.nn import cudnn
from tests import oracle
from tests.experiments import binaries
from tests.nn import cudnn_test

TINY = Workload("tiny", 11, 4, 5, 2, batch_size=2, steps=3)
LAYER = TINY._replace(vocab_size=0, num_layers=1)


def like_cudnn(*args):
  return cudnn.sequence(*args, lstm=cudnn_test.reference)


def part(name, code, limit=60.0):
  return gpu.Part(name, ("-c", code), limit)


class PartsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))

  def run_parts(self, *parts, total=60.0):
    with mock.patch.object(cli, "note"):
      return dict(gpu.run_parts(parts, self.folder, total))

  def test_what_fails_is_reported_and_the_rest_runs(self):
    told = self.run_parts(part("fails", "import sys; print('half'); sys.exit('it is broken')"),
                          part("works", "import os; print(os.listdir('.'))"))
    self.assertEqual({name: (its["status"], its["printed"]) for name, its in told.items()}, {
        "fails": ("failed: status 1, it is broken", "half\n"), "works": ("done", "[]\n")})

  def test_what_hangs_is_stopped_with_all_that_it_started(self):
    hangs = ("import subprocess, sys, time\n"
             "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
             "print(child.pid, flush=True)\n"
             "time.sleep(300)")
    for limit in (2, 60):  # the second for a machine so busy that nothing begins in the first
      told = self.run_parts(part("hangs", hangs, limit), part("works", "print(1)"), total=200.0)
      if told["hangs"]["printed"]:
        break
    self.assertEqual(told["hangs"]["status"], f"stopped after {limit} s")
    self.assertGreaterEqual(told["hangs"]["seconds"], limit)
    self.assertEqual(told["works"]["printed"], "1\n")
    self.assert_ended(int(told["hangs"]["printed"]))

  def assert_ended(self, pid):
    status = pathlib.Path(f"/proc/{pid}/status")
    for _ in range(50):
      if not status.exists() or "State:\tZ" in status.read_text():
        return
      time.sleep(0.1)
    self.fail(f"process {pid} still runs")

  def test_results_are_of_this_run(self):
    writes = "import sys; open(sys.argv[1], 'w').write('[1, 2]')"
    parts = (gpu.Part("new", ("-c", writes, "{output}/new.json"), 60), part("old", "pass"))
    (self.folder / "old.json").write_text("3")
    (self.folder / "old.out").write_text("of old")
    told = self.run_parts(*parts)
    self.assertEqual(told["new"]["results"], [1, 2])
    self.assertNotIn("results", told["old"])
    self.assertEqual(told["old"]["printed"], "")

  def test_where_no_time_is_left_nothing_begins(self):
    told = self.run_parts(part("first", "import time; time.sleep(60)"), part("second", "print(1)"),
                          total=0.5)
    self.assertEqual([its["status"] for its in told.values()],
                     ["stopped after 0 s", "not started: no time was left"])
    self.assertEqual(told["second"]["printed"], "")

  def test_all_results_are_kept(self):
    parts = (part("works", "print(7)"), part("fails", "import sys; sys.exit(3)"))
    with (mock.patch.object(gpu, "PARTS", parts),
          mock.patch.object(cudnn, "available", return_value=True),
          mock.patch.dict(os.environ)):
      done = binaries.here(gpu, f"--output={self.folder}/new")
    self.assertEqual(done.status, 1)
    told = json.loads((self.folder / "new" / "gpu.json").read_text())
    self.assertEqual({name: its["status"] for name, its in told["parts"].items()},
                     {"works": "done", "fails": "failed: status 3, no message"})
    self.assertEqual(told["machine"]["device"], jax.devices()[0].device_kind)
    self.assertEqual((self.folder / "new" / "gpu.txt").read_text(), done.stdout)
    self.assertRegex(done.stdout, r"works +\d+ s  done\nfails +\d+ s  failed: .*\n\n== works\n7\n")

  def test_the_commands_can_be_given(self):
    modules = {"experiments.gpu": gpu, "experiments.benchmark": benchmark}
    self.assertLess(gpu.TOTAL, 8 * 60)
    for its in gpu.PARTS:
      option, name, *flags = its.arguments
      self.assertEqual(option, "-m")
      self.assertTrue((gpu.ROOT / f"{name.replace('.', '/')}.py").exists())
      if flags:
        with flagsaver.flagsaver():
          cli._parse_flags([name, *flags], modules[name].NAMES)


class RefusalTest(absltest.TestCase):

  def test_without_a_gpu_it_is_one_line(self):
    if cudnn.available():
      self.skipTest("there is one")
    done = binaries.here(gpu, "--output=never_made")
    self.assertEqual((done.status, done.stdout, done.stderr), (
        1, "", "error: found cpu; needed: an NVIDIA GPU and jax's CUDA plugin, which the extra "
        "`cuda` installs: pip install -e '.[cuda]'\n"))
    self.assertFalse(os.path.exists("never_made"))

  def test_without_a_folder(self):
    done = binaries.here(gpu)
    self.assertEqual((done.status, done.stderr), (
        1, "error: --output is not given; needed: a folder for the results\n"))


class ImplementationsTest(parameterized.TestCase):

  def test_examples(self):
    for module in (gpu, implementations):
      self.assertEqual(doctest.testmod(module).failed, 0)

  def test_what_agrees_and_what_does_not(self):
    def swapped(w_ih, w_hh, b, xs, h, c):
      return like_cudnn(w_ih, w_hh, b, xs, c, h)

    found = implementations.agreement({"cudnn": like_cudnn, "swapped": swapped}, ["fused"],
                                      layer=LAYER, whole=TINY)
    arrays = {"value": ("ys", "h", "c"), "gradient": ("w_ih", "w_hh", "b", "xs", "h", "c")}
    names = {f"{kind}.{name}" for kind, names in arrays.items() for name in names}
    self.assertEqual(set(found["layer, cudnn"]), names)
    self.assertLess(max(found["layer, cudnn"].values()), gpu.TOLERANCE)
    self.assertGreater(min(found["layer, swapped"].values()), 1e-3)
    self.assertContainsSubset({"nats", "gradient.lstm_1.w_hh", "gradient.head.w"},
                              found["model, fused"])
    self.assertLess(max(found["model, fused"].values()), gpu.TOLERANCE)

  def test_a_disagreement_ends_with_status_1(self):
    path = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "found.json")
    for worst, status in ((1e-6, None), (2e-5, 1), (float("nan"), 1)):
      found = {"layer, cudnn": {"b": 1e-7, "h": worst}}
      with (mock.patch.object(implementations, "agreement", return_value=found),
            mock.patch.object(cli, "note"), mock.patch("builtins.print")):
        if status is None:
          gpu.compare(pathlib.Path(path))
        else:
          with self.assertRaises(SystemExit) as ended:
            gpu.compare(pathlib.Path(path))
          self.assertEqual(ended.exception.code, status)
      np.testing.assert_equal(json.loads(pathlib.Path(path).read_text()), found)

  @parameterized.named_parameters(
      ("layer", gpu.time_layer, LAYER, "lstm, float32", ["forward", "forward+backward"]),
      ("step", gpu.time_step, TINY, "train, float32", ["tiny"]))
  def test_rows(self, measure, work, name, works):
    with mock.patch.object(cli, "note"):
      rows = measure({contenders.BASE: Hklm("scan")}, work, "float32", rounds=1, cube=8)
    self.assertEqual([(row.measure, row.work.name, row.contender) for row in rows],
                     [(name, its, "hklm") for its in works])
    self.assertTrue(all(len(row.seconds) == 1 and not row.peak_bytes for row in rows))

  def test_each_work_at_each_precision(self):
    path = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory())) / "rows.json"
    asked, kept = [], []

    def measure(field, work, precision):
      asked.append((work, precision, jax.config.jax_default_matmul_precision))
      kept.append(json.loads(path.read_text()) if path.exists() else [])
      return [Row(precision, work, name, seconds=(time, time))
              for time, name in enumerate(field, start=1)]

    field = {contenders.BASE: Hklm("fused"), "cudnn": Hklm("cudnn")}
    with (mock.patch.object(implementations, "field", return_value=field),
          mock.patch("builtins.print") as printed):
      gpu.time_by_turns(path, measure, [TINY, LAYER])
    self.assertEqual(asked, [(work, name, name) for work in (TINY, LAYER)
                             for name in ("float32", "tensorfloat32")])
    self.assertEqual([len(rows) for rows in kept], [0, 2, 4, 6])  # all that there is, at any time
    rows = json.loads(path.read_text())
    self.assertEqual([row["hklm_times_as_fast"]["median"] for row in rows], [1.0, 2.0] * 4)
    self.assertIn("| tiny | cudnn     | 2,000.0 |", printed.call_args_list[1].args[0])

  def test_a_step_is_told_the_loss(self):
    params, window = workloads.weights(TINY), workloads.window(TINY)
    update = Hklm("fused").update(TINY, params, window)
    _, told = update.function(update.state, *update.inputs)
    exact = oracle.NumpyModel(with_hklm.model(TINY, "scan").config, params)
    nats = [exact.loss(row[:-1], row[1:], exact.initial_state()) for row in window.T]
    np.testing.assert_allclose(update.nats(told), np.mean(nats), rtol=1e-5)

  def test_precision_is_set_for_both(self):
    for name, full in (("float32", True), ("tensorfloat32", False)):
      with implementations.precision(name):
        self.assertEqual(jax.config.jax_default_matmul_precision, name)
        if contenders.installed("torch"):
          import torch
          self.assertEqual(torch.backends.cudnn.allow_tf32, not full)
          self.assertEqual(torch.backends.cuda.matmul.allow_tf32, not full)
    self.assertIsNone(jax.config.jax_default_matmul_precision)

  def test_torch_on_another_device(self):
    if not contenders.installed("torch"):
      self.skipTest("PyTorch is not installed")
    params, window = workloads.weights(TINY), workloads.window(TINY)
    update = Hklm("scan").update(TINY, params, window)
    _, told = update.function(update.state, *update.inputs)
    np.testing.assert_allclose(Torch("cpu").train(TINY, params, window)(), update.nats(told),
                               rtol=1e-6)
    step = Torch("meta").train(TINY, params, window)
    with self.assertRaisesRegex(RuntimeError, "meta"):  # where there are shapes and no numbers
      step()
    chex.assert_trees_all_equal(list(Torch("cpu").lstm(
        LAYER, workloads.weights(LAYER), *workloads.sequences(LAYER))),
        ["forward", "forward+backward"])


if __name__ == "__main__":
  absltest.main()
