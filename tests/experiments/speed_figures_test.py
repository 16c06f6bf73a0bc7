"""The benchmark's figures: what is timed is all of the work, and what is shown is what was timed.

The oracles are arrays and processors that are pretended, and sizes written out.
"""

import importlib.util
import inspect
import os
from unittest import mock

import jax
import numpy as np
from absl.testing import absltest, parameterized

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
from hklm.inference import lines as hklm_lines
from tests.experiments import binaries
from tests.experiments.speed_test import HERE, LAYER, WORK


def in_a_second(works, unused_rounds):
  """In place of `timing.alternate`: everyone takes a second, and nothing is run."""
  return {name: [1.0] for name in works}


@absltest.skipUnless(contenders.installed("torch"), "torch is not installed")
class TorchTest(absltest.TestCase):

  def passes(self):
    """A layer's, ready to be timed."""
    return contenders.module("torch").lstm(
        LAYER, workloads.weights(LAYER), *workloads.sequences(LAYER))

  def test_pytorch_has_all_cores_and_no_graph_where_none_is_wanted(self):
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

  def test_threads_are_as_many_as_the_cores_that_the_process_may_use(self):
    import torch

    self.addCleanup(torch.set_num_threads, torch.get_num_threads())
    with mock.patch.object(os, "sched_getaffinity", lambda _: {0, 5, 7}, create=True):
      self.passes()
    self.assertEqual(torch.get_num_threads(), 3)

  def test_the_backward_pass_gives_all_gradients(self):
    import torch

    run = self.passes()["forward+backward"]
    with mock.patch.object(torch.autograd, "grad", wraps=torch.autograd.grad) as grad:
      run()
    (_, inputs), _ = grad.call_args
    self.assertCountEqual([tuple(its.shape) for its in inputs],  # xs, the weights, two biases
                          [(3, 2, 4), (20, 4), (20, 5), (20,), (20,)])


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


class WholeWorkTest(parameterized.TestCase):

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

  def test_compile_seconds_hold_the_compilation(self):
    order, clock = [], iter([0.0, 5.0])

    def now():
      order.append("clock")
      return next(clock)

    with mock.patch.object(jax_work.time, "perf_counter", now):
      found = jax_work.compiled(jax_work.Update(FakeStep(order), 0, (), float))
    self.assertEqual(found, ("executable", 5.0))
    self.assertEqual(order, ["clock", "lower", "compile", "clock"])

  def test_a_step_waits_for_its_state_too(self):
    state, told = mock.Mock(), mock.Mock()
    for its in (state, told):
      its.block_until_ready.return_value = its
    jax_work.stepper(jax_work.Update(lambda _: (state, told), 0, (), lambda _: 1.0))()
    state.block_until_ready.assert_called_once_with()
    told.block_until_ready.assert_called_once_with()

  def test_a_cube_is_awaited(self):
    product = mock.Mock()
    with mock.patch.object(jax, "jit", lambda _: lambda *_: product):
      timing.cube(2)()
    product.block_until_ready.assert_called_once_with()

  @parameterized.parameters(("linux", 1024), ("darwin", 1))
  def test_a_peak_is_of_three_steps_and_in_bytes(self, platform, unit):
    contender = mock.Mock()
    with (mock.patch.object(contenders, "module", lambda _: contender),
          mock.patch.object(peak.resource, "getrusage", lambda _: mock.Mock(ru_maxrss=7)),
          mock.patch.object(peak.sys, "platform", platform),
          mock.patch("builtins.print") as told):
      peak.main("somebody", '["tiny", 11, 4, 5, 1, 2, 3]')
    self.assertEqual(contender.train.return_value.call_count, 3)
    told.assert_called_once_with(7 * unit)


class MeasuresTest(absltest.TestCase):
  """What the measures make of seconds, and the work that they set."""

  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(timing, "alternate", in_a_second))
    self.enter_context(mock.patch.object(measures.cli, "note"))
    self.contender = mock.Mock()

  def test_floors(self):
    """At the rate of a product of 10 x 10 matrices, 2,000 operations, which takes a second."""
    self.contender.lstm.return_value = {"forward": None, "forward+backward": None}
    layers = measures.lstm({"hklm": self.contender}, LAYER, 1, cube=10)
    windows, = measures.evaluate({"hklm": self.contender}, WORK, 1, cube=10)
    np.testing.assert_allclose(
        [row.floor_seconds * 2000 for row in (*layers, windows)],
        [LAYER.operations(), 3 * LAYER.operations(), measures.WINDOWS * WORK.operations()])

  def test_lines_are_scored_in_the_groups_that_hklm_makes(self):
    work = WORK._replace(vocab_size=20_000, batch_size=100, steps=40)
    measures.score({"torch": self.contender}, work, rounds=1)
    (_, _, lines, groups), _ = self.contender.score.call_args
    made, hklms = [], hklm_lines.groups

    def recorded(*args):
      its = list(hklms(*args))
      made.extend(group for group, _ in its)
      return iter(its)

    def read(unused_lm, unused_params, tokens):
      return np.ones(tokens.shape)

    with (mock.patch.object(hklm_lines, "groups", recorded),
          mock.patch.object(hklm_lines, "_whole_nats", read)):
      contenders.module("hklm").score(work, workloads.weights(work), lines, groups)()
    self.assertEqual(groups, made)
    self.assertGreater(len(groups), 2)

  def test_what_is_measured_unless_told_otherwise(self):
    seen = {}

    def recorded(measure):
      signature = inspect.signature(getattr(measures, measure))

      def row(*args, **options):
        given = signature.bind(*args, **options)
        given.apply_defaults()
        its = given.arguments
        self.assertEqual(list(its["field"]), HERE)
        self.assertEqual(its.get("cube", 2048), 2048)
        self.assertEqual(its.get("rounds", 7), 7)
        self.assertTrue(its.get("peaks", True))
        seen.setdefault(measure, []).append(tuple(its["work"])[1:])
        return [Row(measure, its["work"], "hklm", (1.,))]

      return row

    self.addCleanup(jax.config.update, "jax_enable_compilation_cache",
                    jax.config.jax_enable_compilation_cache)
    with mock.patch.multiple(measures, **{name: recorded(name) for name in benchmark.MEASURES}):
      done = binaries.here(benchmark)
    self.assertEqual(done.status, 0, done.stderr)
    models = [(65, 128, 512, 1, 64, 100, False), (10_000, 200, 200, 2, 20, 20, False),
              (10_000, 650, 650, 2, 20, 35, False)]
    self.assertEqual(seen, {
        "train": models, "evaluate": models,
        "lstm": [(0, 400, 1150, 1, 40, 70, False)],
        "generate": [(65, 128, 128, 2, 1, 256, False), (65, 128, 512, 1, 1, 256, False),
                     (65, 128, 512, 3, 1, 256, False), (65, 128, 512, 1, 16, 256, False)],
        "score": [(10_000, 200, 200, 2, 1000, 40, False)],
        "memory": [(50_000, 512, 512, 1, 32, 35, True)]})


@absltest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class PlotsTest(absltest.TestCase):

  def drawn(self, plot, *args):
    """The axes of a plot that is written nowhere."""
    made, figure = [], files._figure
    with (mock.patch.object(files, "_figure", lambda width: made.append(figure(width)) or made[0]),
          mock.patch.object(files, "_save")):
      plot("nowhere", *args)
    (_, axes), = made
    return axes

  def test_growth_is_of_medians(self):
    axes = self.drawn(files.plot_growth, [Row("grow", WORK, "hklm", (.1, .2, .9))], "T")
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [200.])  # ms

  def test_ratios_are_above_1_where_hklm_is_faster(self):
    # haiku: 1, 2, 6 times as long as hklm in the same round; torch: 0.5, 0.2, 0.25 times.
    axes = self.drawn(files.plot_ratios, [
        Row("train", WORK, "hklm", (1., 2., 4.)), Row("train", WORK, "haiku", (1., 4., 24.)),
        Row("train", WORK, "torch", (.5, .4, 1.))])
    bars = {its.get_label(): its for its in axes.containers if its.get_label()[0] != "_"}
    for name, low, median, high in (("haiku", 1.5, 2., 4.), ("torch", .225, .25, .375)):
      bar, = bars.pop(name)
      self.assertAlmostEqual(bar.get_y(), 1)
      self.assertAlmostEqual(bar.get_y() + bar.get_height(), median)
      spread, = [segment for lines in axes.collections for segment in lines.get_segments()
                 if np.isclose(segment[0, 0], bar.get_x() + bar.get_width() / 2)]
      np.testing.assert_allclose(spread[:, 1], [low, high])
    self.assertEmpty(bars)
    self.assertEqual(axes.get_ylabel(), "hklm is times as fast as")


if __name__ == "__main__":
  absltest.main()
