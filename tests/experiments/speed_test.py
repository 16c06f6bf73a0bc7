"""The benchmark: its contenders do the same work, its arithmetic, its tables, its refusals.

The oracle of what a contender computes is the LSTM in NumPy of `tests.oracle`, in float64.
"""

import doctest
import importlib
import json
import os
import pathlib
import pkgutil
import subprocess
import sys
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import benchmark, speed
from experiments.speed import (
    contenders,
    files,
    jax_work,
    machine,
    measures,
    peak,
    saving,
    tables,
    timing,
    with_hklm,
    workloads,
    zoo,
)
from experiments.speed.measures import Row
from experiments.speed.workloads import Workload
from hklm import ids as hklm_ids
from hklm.config.model import CELLS
from hklm.training import checkpoints
from tests import oracle
from tests.experiments import binaries

WORK = Workload("tiny", 11, 4, 5, 2, batch_size=2, steps=3)
TIED = WORK._replace(embedding_size=5, num_layers=1, tied=True)
LAYER = Workload("layer", 0, 4, 5, 1, batch_size=2, steps=3)
TOLERANCE = 1e-5  # relative: float32 against float64
HERE = [name for name in contenders.NAMES if contenders.installed(name)]


def each(names=contenders.NAMES):
  """Runs a test for each contender; one whose package is not installed is skipped."""
  return parameterized.named_parameters((name, name) for name in names)


def numpy_model(work, params):
  return oracle.NumpyModel(hklm.ModelConfig(
      vocab_size=work.vocab_size, embedding_size=work.embedding_size,
      hidden_size=work.hidden_size, num_layers=work.num_layers, tie_embeddings=work.tied), params)


def numpy_nats(work, params, tokens):
  """Mean nats of tokens `[T + 1, B]`."""
  model = numpy_model(work, params)
  return np.mean([model.loss(row[:-1], row[1:], model.initial_state()) for row in tokens.T])


def numpy_objective(params, xs, direction):
  """Sum of a layer's outputs over the inputs of `LAYER`, times a direction."""
  total = 0.0
  for row in range(LAYER.batch_size):  # its inputs are the "embeddings" of tokens 0 to T - 1
    model = numpy_model(LAYER, {**params, "embedding": {"table": xs[:, row]}})
    layers = model.initial_state()
    for t in range(LAYER.steps):
      layers, _ = model.read(t, layers)
      total += layers[-1][0] @ direction[t, row]
  return total


class SavingTest(chex.TestCase):

  def test_the_same_updates_with_and_without_a_checkpoint(self):
    saved = []
    with mock.patch.object(saving.Saver, "save", autospec=True,
                           side_effect=lambda saver, *args: saved.append(args)):
      works = saving.works(WORK, workloads.window(WORK), updates=3)
      nats = [works[name]() for name in ("hklm", "saving", "hklm", "saving")]
    self.assertEqual(sorted(nats, reverse=True), nats)  # Adam goes on from turn to turn
    self.assertEqual([(kind, n) for kind, n, *_ in saved], [("step", 4), ("step", 10)])

  def test_a_round_is_the_sum_of_its_pieces_one_of_which_saves(self):
    saves, seconds = [], iter(range(1000))
    with (mock.patch.object(saving.Saver, "save", lambda *_: saves.append(len(turns))),
          mock.patch.object(timing, "alternate", lambda works, rounds, twice: (
              turns.clear(), [turns.append(works["saving"]()) for _ in range(1 + rounds)],
              {name: [float(next(seconds)) for _ in range(rounds)] for name in works})[-1])):
      turns = []
      plain, with_saves = measures.save(WORK, rounds=2, updates=20)
    self.assertEqual(saves, [0, 1, 11])  # warm-up, and once a round
    self.assertEqual(plain.seconds, (sum(range(10)), sum(range(10, 20))))
    self.assertEqual((with_saves.contender, with_saves.seconds),
                     ("saving", (sum(range(20, 30)), sum(range(30, 40)))))
    self.assertEqual(plain.amount, 20 * 3 * 2)

  def test_what_is_saved_is_on_the_disk_when_a_turn_ends(self):
    written = []
    write = checkpoints.write
    with mock.patch.object(checkpoints, "write", side_effect=lambda *args: written.append(
        write(*args))):
      saving.works(WORK, workloads.window(WORK), updates=2)["saving"]()
    self.assertLen(written, 1)


class ContendersTest(chex.TestCase):

  def module(self, name):
    if not contenders.installed(name):
      self.skipTest(f"{name} is not installed")
    return contenders.module(name)

  def assert_near(self, actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=TOLERANCE)

  @each()
  def test_training_step(self, name):
    module = self.module(name)
    for work in (WORK, TIED):
      params, window = workloads.weights(work), workloads.window(work)
      step = module.train(work, params, window)
      self.assert_near(step(), numpy_nats(work, params, window))

  @each()
  def test_the_next_step_descends_and_goes_on_from_the_state(self, name):
    module = self.module(name)
    params, window = workloads.weights(WORK), workloads.window(WORK)
    # Two biases, as PyTorch has, both descend: then b moves twice as far.
    lm = hklm.language_model(hklm.ModelConfig(
        vocab_size=11, embedding_size=4, hidden_size=5, num_layers=2,
        num_biases=2 if name == "torch" else 1))
    theirs = {module: dict(values) for module, values in params.items()}
    if name == "torch":
      for layer in ("lstm_0", "lstm_1"):
        theirs[layer]["b_hh"] = np.zeros([20], np.float32)

    def nats(params, state):
      loss, state = lm.loss(params, None, window[:-1], window[1:], state)
      return loss.nats.mean(), state

    start = lm.initial_state(theirs, 2)
    (_, state), gradient = jax.value_and_grad(nats, has_aux=True)(theirs, start)
    norm = float(np.sqrt(sum(float((g**2).sum()) for g in jax.tree.leaves(gradient))))
    with mock.patch.object(importlib.import_module(_clipper(name)), "CLIP", norm / 2):
      step = module.train(WORK, params, window)
      step()
    theirs = jax.tree.map(lambda p, g: p - workloads.RATE * g / 2, theirs, gradient)
    self.assert_near(step(), nats(theirs, state)[0])

  @each()
  def test_evaluation(self, name):
    params, ids = workloads.weights(WORK), workloads.text(WORK, 2)
    streams = ids[:-1].reshape(2, 6)  # B streams of two windows of T
    tokens = np.concatenate([streams, [[streams[1, 0]], [ids[-1]]]], axis=1).T
    result = self.module(name).evaluate(WORK, params, ids)
    for _ in range(2):  # no state stays behind
      self.assert_near(result(), numpy_nats(WORK, params, tokens))

  @each()
  def test_layer(self, name):
    params, (xs, direction) = workloads.weights(LAYER), workloads.sequences(LAYER)
    passes = self.module(name).lstm(LAYER, params, xs, direction)
    self.assert_near(passes["forward"](), numpy_objective(params, xs, direction))
    moved = []
    for change in (1e-5, -1e-5):
      changed = xs.astype(np.float64)
      changed[0, 0, 0] += change
      moved.append(numpy_objective(params, changed, direction))
    self.assert_near(passes["forward+backward"](), (moved[0] - moved[1]) / 2e-5)

  @each(("hklm", "torch"))
  def test_generation(self, name):
    work = WORK._replace(steps=9)
    params = jax.tree.map(lambda p: 4 * p, workloads.weights(work))
    params["head"] = {"b": 1e4 * params["head"]["b"], "w": 1e5 * params["head"]["w"]}
    model = numpy_model(work, params)
    layers, tokens = model.initial_state(), []
    for _ in range(9):  # with such logits, to draw is to take the likeliest
      tokens.append(int(np.argmax(model.readout(layers))))
      layers, _ = model.read(tokens[-1], layers)
    self.assertGreater(len(set(tokens)), 2)
    drawn = self.module(name).generate(work, params)()
    self.assertEqual(drawn.tolist(), [[token, token] for token in tokens])

  @each(("hklm", "torch"))
  def test_scores(self, name):
    work = WORK._replace(batch_size=6, steps=8)
    params, lines = workloads.weights(work), workloads.lines(work)
    model = numpy_model(work, params)
    scores = self.module(name).score(work, params, lines, [[0, 3, 1], [2, 5], [4]])()
    self.assertLen(scores, 6)
    for line, nats in zip(lines, scores, strict=True):
      start = model.initial_state()
      first = oracle.nats(model.readout(start), line[0])
      self.assert_near(nats, [first, *model.loss(line[:-1], line[1:], start)])

  def test_pytorch_is_measured_without_jax(self):
    code = ("import sys; from experiments.speed import contenders, peak; "
            "contenders.module('torch'); print(*sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], cwd=binaries.ROOT, check=True, text=True,
                          capture_output=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    self.assertContainsSubset({"experiments", "numpy"}, loaded)
    self.assertEmpty({"jax", "haiku", "hklm"} & loaded)


def _clipper(name):
  """The module whose `CLIP` a contender reads."""
  return f"experiments.speed.{'jax_work' if name in ('haiku', 'flax') else f'with_{name}'}"


class WorkTest(absltest.TestCase):

  def test_operations(self):
    # Layers: 4 5 4 + 5 5 4 = 180 and 5 5 4 + 5 5 4 = 200; the head: 5 11 = 55. Times 2 T B = 12.
    self.assertEqual(WORK.operations(), 12 * (180 + 200 + 55))
    self.assertEqual(LAYER.operations(), 12 * 180)
    self.assertEqual(workloads.NAMED["char"].operations(),
                     2 * 6400 * (128 * 2048 + 512 * 2048 + 512 * 65))

  def test_weights_are_those_of_hklm(self):
    for work in (WORK, TIED):
      params = workloads.weights(work)
      lm = with_hklm.model(work)
      chex.assert_trees_all_equal_shapes_and_dtypes(params, lm.init(jax.random.key(0)))
      self.assertEqual(work.parameters(), sum(p.size for p in jax.tree.leaves(params)))
      largest = max(float(abs(p).max()) for p in jax.tree.leaves(params))
      self.assertBetween(largest, 0.9 * 5**-0.5, 5**-0.5)

  def test_windows_are_those_of_evaluate(self):
    ids = workloads.text(WORK, 3)
    self.assertLen(ids, 19)
    theirs = list(hklm_ids.cover(ids, streams=2, window=3))
    self.assertTrue(all(mask.all() for _, mask in theirs))
    chex.assert_trees_all_equal(workloads.windows(WORK, ids), [tokens for tokens, _ in theirs])

  def test_lines(self):
    lines = workloads.lines(WORK._replace(batch_size=200, steps=7))
    self.assertEqual({len(line) for line in lines}, {5, 6, 7})
    self.assertLen(lines, 200)

  def test_examples(self):
    examples = 0
    for info in pkgutil.iter_modules(speed.__path__, "experiments.speed."):
      result = doctest.testmod(importlib.import_module(info.name))
      self.assertEqual(result.failed, 0, info.name)
      examples += result.attempted
    self.assertGreaterEqual(examples, 8)


class MethodTest(absltest.TestCase):

  def test_turns(self):
    log = []
    seconds = timing.alternate({name: lambda name=name: log.append(name) for name in "abc"}, 4)
    self.assertEqual("".join(log), "abc" + "aabbcc" + "bbccaa" + "ccaabb" + "aabbcc")
    self.assertEqual({name: len(its) for name, its in seconds.items()}, dict.fromkeys("abc", 4))

  def test_a_turn_of_long_work_is_one_run(self):
    log = []
    timing.alternate({name: lambda name=name: log.append(name) for name in "ab"}, 2, twice=False)
    self.assertEqual("".join(log), "ab" "ab" "ba")  # warm-up, then two rounds

  def test_seconds_are_of_the_work_alone(self):
    clock = iter([10., 12., 20., 23., 30., 31., 40., 45.])
    with mock.patch.object(timing.time, "perf_counter", lambda: next(clock)):
      seconds = timing.alternate({"a": list, "b": list}, 2)
    self.assertEqual(seconds, {"a": [2., 5.], "b": [3., 1.]})

  def test_ratios_are_of_pairs(self):
    # The medians' own ratio would be 4 / 2; in pairs it is 1, 2, 4, 8, 0.5.
    its = timing.ratios([1., 4., 12., 16., 1.], [1., 2., 3., 2., 2.])
    self.assertEqual(its, (2., 1., 4.))

  def test_a_step_that_is_donated_needs_half(self):
    for donated, needed in (((), 8192), ((0,), 4096)):
      function = jax.jit(lambda state: (state + 1,), donate_argnums=donated)
      executable = function.lower(jnp.zeros([1024])).compile()
      self.assertEqual(jax_work.needed_bytes(executable), needed)

  def test_a_peak_is_the_childs_own(self):
    ballast = np.ones([2**29], np.uint8)
    small = peak.peak_bytes("haiku", WORK)
    self.assertLess(small, ballast.nbytes)
    large = peak.peak_bytes("haiku", WORK._replace(vocab_size=2**20, embedding_size=8))
    # Table, its gradient, the head and its: [2^20, 8] and [2^20, 5], 4 bytes each, twice.
    self.assertGreater(large - small, 2 * 2**20 * 13 * 4)

  def test_a_child_that_fails_is_told(self):
    with self.assertRaisesRegex(hklm.InputError, r"^nobody could not train in a process of its own "
                                r"\(tiny: V 11, .*\): status 1, ModuleNotFoundError: .*; lower "):
      peak.peak_bytes("nobody", WORK)


class MeasuresTest(absltest.TestCase):
  """Each measure once, at sizes of a test."""

  def rows(self, measure, *args, **options):
    field = {name: contenders.module(name) for name in HERE}
    with mock.patch.object(measures.cli, "note"):
      rows = measure(field, *args, **options)
    for row in rows:
      self.assertLen(row.seconds, 0 if row.measure == "memory" else 2)
    return rows

  def test_lstm(self):
    rows = self.rows(measures.lstm, LAYER, rounds=2, cube=8)
    self.assertEqual([(row.work.name, row.contender) for row in rows],
                     [(kind, name) for kind in ("forward", "forward+backward") for name in HERE])
    self.assertGreater(min(row.floor_seconds for row in rows), 0)

  def test_generate_and_score(self):
    able = [name for name in HERE if name in ("hklm", "torch")]
    rows = self.rows(measures.generate, WORK, rounds=2)
    self.assertEqual([(row.contender, row.amount, row.unit) for row in rows],
                     [(name, 6, "tokens") for name in able])
    rows = self.rows(measures.score, WORK._replace(batch_size=9, steps=6), rounds=2)
    self.assertEqual([(row.contender, row.amount, row.unit) for row in rows],
                     [(name, 9, "lines") for name in able])

  def test_memory(self):
    work = TIED._replace(vocab_size=3000, batch_size=8, steps=32)
    rows = {row.contender: row for row in self.rows(measures.memory, work, peaks=False)}
    # The plain formulation holds all logits and their gradient: [T, B, V] twice.
    logits = 4 * 32 * 8 * 3000
    self.assertGreater(rows["haiku"].compiled_bytes, 2 * logits)
    self.assertGreater(rows["hklm"].compiled_bytes, 4 * work.parameters())
    self.assertIn("| large", tables.table([row._replace(work=work._replace(name="large"))
                                           for row in rows.values()]))

  def test_training_has_three_times_the_operations_of_a_forward_pass(self):
    seconds = {"hklm": [1., 1.], measures._PRODUCT: [0.5, 0.5]}
    with (mock.patch.object(timing, "alternate", lambda *_: dict(seconds)),
          mock.patch.object(peak, "peak_bytes", lambda name, work: (name, work)),
          mock.patch.object(measures.cli, "note")):
      row, = measures.train({"hklm": contenders.module("hklm")}, WORK, 2, cube=10)
    self.assertAlmostEqual(row.floor_seconds, 3 * WORK.operations() * 0.5 / 2000)
    self.assertEqual(row.seconds, (1., 1.))
    self.assertGreater(row.compile_seconds, 0)
    self.assertEqual(row.peak_bytes, ("hklm", WORK))

  def test_cells(self):
    made, seconds = [], iter(range(1, 100))

    def make_update(lm, unused_optimizer):
      def update(state, window, unused_reset):
        chex.assert_equal(window.shape, (WORK.steps + 1, WORK.batch_size))
        made.append(("training", lm.config))
        return state, mock.Mock(nats=1.0, tokens=1)
      return update

    def generate(lm, unused_params, unused_key, steps, batch_size):
      made.append(("generation", lm.config, steps, batch_size))

    def alternate(works, rounds):
      self.assertEqual(rounds, 2)
      return {name: (work(), [float(next(seconds))] * 2)[-1] for name, work in works.items()}

    with (mock.patch.object(with_hklm.step, "make_update", make_update),
          mock.patch.object(with_hklm.step, "init"),
          mock.patch.object(zoo, "_params", lambda *_: {}),
          mock.patch.object(with_hklm.hklm, "generate", generate),
          mock.patch.object(timing, "alternate", alternate),
          mock.patch.object(measures.cli, "note")):
      rows = measures.cells(WORK, rounds=2, tokens=9)

    names = list(zoo.options(WORK))
    self.assertEqual([(row.work.name, row.contender, row.amount) for row in rows],
                     [(f"tiny {kind}", name, amount)
                      for kind, amount in (("training", 0), ("generation", 9)) for name in names])
    self.assertEqual([row.seconds[0] for row in rows], list(range(1, len(rows) + 1)))
    for row, (kind, config, *sizes) in zip(rows, made, strict=True):
      self.assertEndsWith(row.work.name, kind)
      self.assertEqual(sizes, [9, 1] if kind == "generation" else [])
      self.assertEqual(config.cell, row.contender.partition(",")[0])
      self.assertEqual(config.input_gate, row.contender.partition(", ")[2].split(" ")[0] or "free")
      self.assertEqual((config.hidden_size, config.num_layers, config.vocab_size), (5, 2, 11))
    self.assertEqual({config.cell for _, config, *_ in made}, set(CELLS))
    ratios = [tables.ratio(row, rows).median for row in rows]
    count = len(names)
    self.assertEqual(ratios[:count], [float(n) for n in range(1, count + 1)])
    self.assertEqual(ratios[count:], [n / (count + 1) for n in range(count + 1, 2 * count + 1)])

  def test_a_cells_training_is_its_models(self):
    its = zoo.options(WORK)["gru"]
    lm, window = with_hklm.model(WORK, **its), workloads.window(WORK)
    params = lm.init(jax.random.key(0))
    loss, _ = lm.loss(params, None, window[:-1], window[1:], lm.initial_state(params, 2))
    run = zoo.training(WORK, window, its)
    np.testing.assert_allclose(run(), float(loss.nats.mean()), rtol=TOLERANCE)


TIMED = [
    Row("train", WORK, "hklm", (.1, .2, .4), floor_seconds=.05, compile_seconds=1.25,
        peak_bytes=300 * 2**20),
    Row("train", WORK, "haiku", (.2, .3, .4), floor_seconds=.05, compile_seconds=2.0,
        peak_bytes=400 * 2**20),
    Row("train", WORK, "torch", (.4, .4, .4), floor_seconds=.05, peak_bytes=1024 * 2**20)]
GENERATED = [
    Row("generate", LAYER, "hklm", (.5, .5, .5), 1000, "tokens"),
    Row("generate", LAYER, "torch", (2., 1., 4.), 1000, "tokens")]
CELLS_TIMED = [
    Row("cells", WORK, "lstm", (.1, .2, .4), base="lstm"),
    Row("cells", WORK, "gru", (.05, .3, .1), base="lstm"),
    Row("cells", LAYER, "lstm", (2., 2., 4.), 100, "tokens", base="lstm"),
    Row("cells", LAYER, "gru", (4., 4., 2.), 100, "tokens", base="lstm")]
MEMORY = [Row("memory", WORK, "hklm", compiled_bytes=2**20),
          Row("memory", WORK, "haiku", compiled_bytes=3 * 2**20),
          Row("memory", WORK, "torch", peak_bytes=2**30)]


def cells(line):
  """The cells of a table's line."""
  return [cell.strip() for cell in line.strip("|").split("|")]


class OutputTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))

  def test_table(self):
    name, sizes, empty, head, rule, *lines = tables.table(TIMED).splitlines()
    self.assertEqual((name, sizes, empty),
                     ("train", "tiny: V 11, E 4, H 5, layers 2, B 2, T 3", ""))
    self.assertEqual(cells(head), [
        "work", "contender", "ms", "hklm is times as fast", "quartiles", "of the floor",
        "compile s", "peak MiB"])
    self.assertEqual([cells(line) for line in lines], [
        ["tiny", "hklm", "200.0", "1.00", "1.00-1.00", "25%", "1.2", "300"],
        ["tiny", "haiku", "300.0", "1.50", "1.25-1.75", "17%", "2.0", "400"],
        ["tiny", "torch", "400.0", "2.00", "1.50-3.00", "12%", "-", "1,024"]])
    bars = {tuple(place for place, letter in enumerate(line) if letter == "|")
            for line in (head, rule, *lines)}
    self.assertLen(bars, 1)  # aligned
    self.assertEqual(set(rule), set("|- "))

  def test_table_of_rates(self):
    *_, head, _, _, last = tables.table(GENERATED).splitlines()
    self.assertEqual(cells(head), ["work", "contender", "tokens/s", "hklm is times as fast",
                                   "quartiles"])
    self.assertEqual(cells(last), ["layer", "torch", "500", "4.00", "3.00-6.00"])

  def test_table_of_cells(self):
    *_, head, _, lstm, gru, _, last = tables.table(CELLS_TIMED).splitlines()
    self.assertEqual([cells(line) for line in (head, lstm, gru, last)], [
        ["work", "contender", "ms", "lstm is times as fast", "quartiles", "tokens/s"],
        ["tiny", "lstm", "200.0", "1.00", "1.00-1.00", "-"],
        ["tiny", "gru", "100.0", "0.50", "0.38-1.00", "-"],
        ["layer", "gru", "-", "2.00", "1.25-2.00", "25"]])
    self.assertEqual(tables.values(CELLS_TIMED[1], CELLS_TIMED)["lstm_times_as_fast"]["median"], .5)

  def test_table_of_memory(self):
    *_, head, _, first, second, last = tables.table(MEMORY).splitlines()
    self.assertEqual([cells(line) for line in (head, first, second, last)], [
        ["work", "contender", "compiled MiB", "times hklm's", "peak MiB"],
        ["tiny", "hklm", "1.0", "1.00", "-"], ["tiny", "haiku", "3.0", "3.00", "-"],
        ["tiny", "torch", "-", "-", "1,024"]])

  def test_json(self):
    values = json.loads(json.dumps(tables.values(TIMED[1], TIMED)))
    self.assertEqual(values["work"]["hidden_size"], 5)
    self.assertEqual(values["seconds"], [.2, .3, .4])
    self.assertEqual(values["median_seconds"], .3)
    self.assertEqual(list(values["hklm_times_as_fast"]), ["median", "low", "high"])
    np.testing.assert_allclose(list(values["hklm_times_as_fast"].values()), [1.5, 1.25, 1.75])
    self.assertNotIn("median_seconds", tables.values(MEMORY[0], MEMORY))

  def test_plots(self):
    if not importlib.util.find_spec("matplotlib"):
      self.skipTest("matplotlib is not installed")
    grown = [Row("grow", WORK._replace(steps=steps), name, (.1 * steps,))
             for steps in (1, 2, 4) for name in ("hklm", "haiku")]
    files.plot_ratios(str(self.folder / "ratios.png"),
                      [*TIMED, *GENERATED, *CELLS_TIMED, *MEMORY])
    files.plot_ratios(str(self.folder / "alone.png"), TIMED[:1])
    files.plot_ratios(str(self.folder / "empty.png"), MEMORY)
    files.plot_growth(str(self.folder / "growth.png"), grown, "T")
    found = sorted(self.folder.iterdir())
    self.assertEqual([path.stem for path in found], ["alone", "empty", "growth", "ratios"])
    for path in found:
      self.assertStartsWith(path.read_bytes(), b"\x89PNG")

  def test_a_file_is_whole_or_as_it_was(self):
    path = self.folder / "figures.json"
    path.write_text("older")
    with self.assertRaises(TypeError):
      files.write_json(str(path), {"rows": [1, object()]})
    self.assertEqual([(its.name, its.read_text()) for its in self.folder.iterdir()],
                     [("figures.json", "older")])
    files.write_json(str(path), {"rows": [1]})
    self.assertEqual(json.loads(path.read_text()), {"rows": [1]})

  def test_machine(self):
    found = machine.description()
    self.assertEqual(found["jax"], jax.__version__)
    self.assertEqual("torch" in found, contenders.installed("torch"))
    self.assertGreaterEqual(found["cores"], 1)
    self.assertNotEmpty(found["cpu"])


class BinaryTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())

  def test_a_run(self):
    path, kept = (os.path.join(self.folder, name) for name in ("figures.json", "cache"))
    done = binaries.child(
        "benchmark", "--measures=train,evaluate", "--workload=tiny:11,4,5,1,2,3",
        "--workloads=tiny", "--contenders=haiku,hklm,torch", "--alternations=2",
        "--nopeak_memory", f"--json_file={path}", JAX_ENABLE_COMPILATION_CACHE="true",
        JAX_COMPILATION_CACHE_DIR=kept, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    self.assertEqual(done.status, 0, done.stderr)
    self.assertFalse(os.path.isdir(kept) and os.listdir(kept))  # the seconds are of compilations
    self.assertRegex(done.stderr.splitlines()[0], r"^device: \d+ x \S+")
    figures = json.loads(pathlib.Path(path).read_text())
    names = [name for name in ("haiku", "hklm", "torch") if name in HERE]
    self.assertEqual([(row["measure"], row["contender"]) for row in figures["rows"]],
                     [(measure, name) for measure in ("train", "evaluate") for name in names])
    self.assertEqual(figures["machine"], machine.description())
    self.assertEqual(figures["left_out"], [] if "torch" in HERE else ["torch"])
    for row in figures["rows"]:
      self.assertLen(row["seconds"], 2)
      self.assertEqual(row["work"], Workload("tiny", 11, 4, 5, 1, 2, 3)._asdict())
      on_jax = row["contender"] != "torch"
      self.assertEqual(bool(row["compile_seconds"]), row["measure"] == "train" and on_jax)
      self.assertIsNone(row["peak_bytes"])
    self.assertIn(f"Left out, not installed: {'nobody' if 'torch' in HERE else 'torch'}.\n",
                  done.stdout)
    table = [cells(line) for line in done.stdout.splitlines() if line.startswith("| tiny")]
    self.assertEqual([line[1] for line in table], names * 2)
    for row, line in zip(figures["rows"], table, strict=True):
      self.assertEqual(line[2], f"{1000 * row['median_seconds']:,.1f}")
      self.assertEqual(line[3], f"{row['hklm_times_as_fast']['median']:.2f}")

  def test_growth(self):
    seen = []

    def train(field, work, rounds, peaks, measure):
      seen.append((work.name, work.num_layers, rounds, peaks))
      return [Row(measure, work, name, (.1,) * rounds) for name in field]

    self.addCleanup(jax.config.update, "jax_enable_compilation_cache",
                    jax.config.jax_enable_compilation_cache)
    with mock.patch.object(measures, "train", train):
      done = binaries.here(
          benchmark, "--grow=layers", "--workload=tiny:11,4,5,1,2,3", "--nopeak_memory",
          "--alternations=1", "--contenders=hklm,haiku")
    self.assertEqual(done.status, 0, done.stderr)
    self.assertEqual(seen, [(f"layers={n}", n, 1, False) for n in (1, 2, 3, 4)])
    self.assertEqual(done.stdout.count("| layers="), 8)

  def test_cells_are_measured_where_they_are_asked_for(self):
    self.addCleanup(jax.config.update, "jax_enable_compilation_cache",
                    jax.config.jax_enable_compilation_cache)
    asked, given = [], "--workload=tiny:11,4,5,1,2,3"
    with (mock.patch.object(benchmark, "_measured", lambda measure, *_: asked.append(measure) or [
        Row(measure, WORK, "hklm", (1.0,))]),
          mock.patch.object(measures, "cells", lambda work, rounds: (work.name, rounds))):
      for flags in ([], ["--measures=cells"]):
        self.assertEqual(binaries.here(benchmark, given, *flags).status, 0)
    self.assertEqual(asked, ["train", "lstm", "evaluate", "generate", "score", "memory", "cells"])

  @parameterized.parameters(
      ("--measures=train,speed", "--measures=speed is unknown; needed: some of train, lstm, "),
      ("--measures=", "--measures= is unknown; needed: some of train, "),
      ("--workloads=large", "--workloads=large is unknown; needed: some of char, small, medium"),
      ("--contenders=hklm,keras", "--contenders=keras is unknown; needed: some of hklm, haiku, "),
      ("--contenders=torch,haiku", "--contenders=torch,haiku leaves out hklm; needed: it"),
      ("--alternations=0", "--alternations=0 is out of range; needed: 1 or more"),
      ("--workload=mine:1,2,3", "--workload=mine:1,2,3 cannot be read; needed: NAME:V,E,H,"),
      ("--workload=mine:1,2,3,4,5,x", "cannot be read; needed: NAME:V,E,H,layers,B,T, six whole"),
      ("--workload=1,2,3,4,5,6", "cannot be read; needed: NAME:"),
      ("--workload=mine:9,9,0,1,1,1", "--workload=mine:9,9,0,1,1,1: 0 is out of range; needed: 1"),
      ("--workload=char:1,1,1,1,1,1", "--workload=char:... takes a name that is taken"),
      ("--workload=mine:9,9,9999999,1,1,1", "lower V, E, H, B or T in --workload"),
      ("--workload=mine:9,9,9,1,999999,999999", 
       "mine: V 9, E 9, H 9, layers 1, B 999999, T 999999: parameters, gradients and outputs take"),
      ("--json_file=x.out --plot=./x.out", "--json_file and --plot are both ./x.out; needed: "),
      ("--measures=memory --plot=x.png", "--plot draws contenders' ratios of time, of which"),
      ("--measures=cells,memory --plot=x.png", "of which --measures=cells,memory has none; "),
      ("--grow=E", "flag --grow=E: value should be one of <T|B|H|V|layers>"),
      ("--json_file=/no/such/folder/x", "--json_file=/no/such/folder/x cannot be written (No such"),
      ("--json_file=/dev/null", "--json_file=/dev/null is there and is no file"),
      ("--plot=/dev/null", "--plot=/dev/null is there and is no file"),
      ("--plot=/etc", "--plot=/etc is there and is no file; needed: the name of a file"),
      ("--no_such_flag", "Unknown command line flag 'no_such_flag'"))
  def test_refusals(self, flag, message):
    with mock.patch.object(benchmark, "_measured", side_effect=AssertionError("it was measured")):
      done = binaries.here(benchmark, *flag.split())
    self.assertEqual((done.status, done.stdout), (1, ""))
    line, = done.stderr.splitlines()
    self.assertStartsWith(line, "error: ")
    self.assertIn(message, line)

  def test_more_refusals(self):
    done = binaries.here(benchmark, "--grow=T", "--measures=train")
    self.assertEqual(done.stderr, "error: --grow stands in place of --measures; drop one of them\n")
    with mock.patch.object(files.importlib.util, "find_spec", lambda _: None):
      done = binaries.here(benchmark, f"--plot={self.folder}/x.png")
    self.assertIn("--plot needs matplotlib, which is not installed; pip install", done.stderr)
    self.assertEmpty(os.listdir(self.folder))


if __name__ == "__main__":
  absltest.main()
