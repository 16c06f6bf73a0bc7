"""That the benchmark measures what it says: threads, waiting, floors, medians, defaults."""

from unittest import mock

import jax
import numpy as np
from absl.testing import absltest

from experiments import benchmark
from experiments.speed import (
    contenders,
    files,
    jax_work,
    machine,
    measures,
    peak,
    timing,
    workloads,
)
from experiments.speed.measures import Row
from experiments.speed.workloads import Workload

WORK = Workload("tiny", 11, 4, 5, 2, batch_size=2, steps=3)
LAYER = Workload("layer", 0, 4, 5, 1, batch_size=2, steps=3)


def a_second_each(works, unused_rounds):
  return {name: [1.0] for name in works}


class FakeStep:
  """A jitted function that notes in what order it is made ready."""

  def __init__(self, order):
    self._order = order

  def lower(self, *_):
    self._order.append("lower")
    return self

  def compile(self):
    self._order.append("compile")
    return "executable"


class ContendersTest(absltest.TestCase):

  def test_pytorch_has_all_cores_and_no_graph_where_none_is_wanted(self):
    if not contenders.installed("torch"):
      self.skipTest("torch is not installed")
    import torch
    module, params = contenders.module("torch"), workloads.weights(WORK)
    seen, forward = [], torch.nn.LSTM.forward

    def recorded(*args):
      seen.append((torch.get_num_threads(), torch.is_inference_mode_enabled()))
      return forward(*args)

    def layer(name):
      return module.lstm(LAYER, workloads.weights(LAYER), *workloads.sequences(LAYER))[name]

    runs = {
        "train": (lambda: module.train(WORK, params, workloads.window(WORK)), False),
        "evaluate": (lambda: module.evaluate(WORK, params, workloads.text(WORK, 1)), True),
        "generate": (lambda: module.generate(WORK, params), True),
        "score": (lambda: module.score(WORK, params, [np.array([1, 2])], [[0]]), True),
        "forward": (lambda: layer("forward"), True),
        "forward+backward": (lambda: layer("forward+backward"), False),
    }
    self.addCleanup(torch.set_num_threads, torch.get_num_threads())
    for name, (make, without_graph) in runs.items():
      with self.subTest(name):
        torch.set_num_threads(machine.cores() + 1)
        seen.clear()
        with mock.patch.object(torch.nn.LSTM, "forward", recorded):
          make()()
        self.assertEqual(set(seen), {(machine.cores(), without_graph)})

  def test_a_backward_pass_waits_for_every_gradient(self):
    params, (xs, direction) = workloads.weights(LAYER), workloads.sequences(LAYER)
    for name in filter(contenders.installed, ("hklm", "haiku", "flax")):
      with self.subTest(name):
        run = contenders.module(name).lstm(LAYER, params, xs, direction)["forward+backward"]
        with mock.patch.object(jax, "block_until_ready", wraps=jax.block_until_ready) as wait:
          run()
        waited = [leaf for call in wait.call_args_list for leaf in jax.tree.leaves(call.args)]
        self.assertContainsSubset({xs.shape}, {np.shape(leaf) for leaf in waited})
        self.assertGreaterEqual(sum(np.size(leaf) for leaf in waited),
                                xs.size + 4 * 5 * (4 + 5 + 1))
        self.assertGreater(min(float(abs(leaf).max()) for leaf in waited), 0.0)

  def test_a_step_waits(self):
    waited = []
    update = jax_work.Update(lambda state: (state, 1.0), 0, (), float)
    with mock.patch.object(jax, "block_until_ready", lambda x: waited.append(x) or x):
      jax_work.stepper(update)()
    self.assertLen(waited, 1)

  def test_compile_seconds_hold_the_compilation(self):
    order, clock = [], iter([0.0, 5.0])

    def now():
      order.append("clock")
      return next(clock)

    with mock.patch.object(jax_work.time, "perf_counter", now):
      found = jax_work.compiled(jax_work.Update(FakeStep(order), 0, (), float))
    self.assertEqual(found, ("executable", 5.0))
    self.assertEqual(order, ["clock", "lower", "compile", "clock"])


class MeasuresTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(timing, "alternate", a_second_each))
    self.enter_context(mock.patch.object(measures.cli, "note"))

  def test_floors(self):
    """At the rate of a product of 10 x 10 matrices, 2,000 operations, which takes a second."""
    field = mock.Mock()
    field.lstm.return_value = {"forward": None, "forward+backward": None}
    layers = measures.lstm({"hklm": field}, LAYER, 1, cube=10)
    windows, = measures.evaluate({"hklm": field}, WORK, 1, cube=10)
    np.testing.assert_allclose(
        [row.floor_seconds * 2000 for row in (*layers, windows)],
        [LAYER.operations(), 3 * LAYER.operations(), measures.WINDOWS * WORK.operations()])

  def test_lines_are_scored_side_by_side(self):
    seen, field = [], mock.Mock()
    field.score.side_effect = lambda work, params, lines, groups: seen.extend(groups)
    measures.score({"hklm": field}, WORK._replace(batch_size=9, steps=6), 1)
    self.assertCountEqual([line for group in seen for line in group], range(9))
    self.assertLess(len(seen), 9)

  def test_a_peak_is_of_several_steps_and_in_bytes(self):
    steps, field = [], mock.Mock()
    field.train.return_value = lambda: steps.append(1)
    usage = mock.Mock(ru_maxrss=7)  # KiB
    with mock.patch.object(peak.contenders, "module", lambda _: field), \
         mock.patch.object(peak.resource, "getrusage", lambda _: usage), \
         mock.patch("builtins.print") as said:
      peak.main("hklm", '["t", 3, 1, 1, 1, 1, 1]')
    self.assertLen(steps, peak.STEPS)
    self.assertGreater(peak.STEPS, 1)
    said.assert_called_once_with(7 * 1024)

  def test_defaults(self):
    self.assertGreaterEqual(benchmark.FLAGS["alternations"].default, 7)
    self.assertEqual(
        [(work.num_layers, work.hidden_size, work.batch_size) for work in workloads.GENERATED],
        [(2, 128, 1), (1, 512, 1), (3, 512, 1), (1, 512, 16)])


class PlotsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    if not contenders.installed("matplotlib"):
      self.skipTest("matplotlib is not installed")
    self.axes, make = [], files._figure

    def made(width):
      figure, axes = make(width)
      self.axes.append(axes)
      return figure, axes

    self.enter_context(mock.patch.object(files, "_figure", made))
    self.enter_context(mock.patch.object(files, "_whole", lambda *_: None))

  def test_growth_is_of_medians(self):
    files.plot_growth("x", [Row("grow", WORK, "hklm", (0.1, 0.2, 0.9))], "T")
    np.testing.assert_allclose(self.axes[0].lines[0].get_ydata(), [200.0])  # ms

  def test_bars_are_how_many_times_as_fast(self):
    files.plot_ratios("x", [Row("train", WORK, "hklm", (1.0, 1.0, 1.0)),
                            Row("train", WORK, "torch", (2.0, 3.0, 9.0))])
    top, = (bar.get_y() + bar.get_height() for bar in self.axes[0].patches)
    self.assertAlmostEqual(top, 3.0)


if __name__ == "__main__":
  absltest.main()
