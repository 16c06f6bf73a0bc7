"""Properties of every cell that a config can name: a line in `CELLS` is all that a new one needs.

A NumPy step in `zoo_oracles.STEPS`, where there is one, is compared too.
"""

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from hklm.nn import catalogue
from tests import oracle
from tests.nn import zoo_oracles

T, B, V, E, H = 4, 3, 7, 5, 4
STEP = 1e-5  # of central differences
LEARNED = {"initial_state": "learned"}


class Cell(NamedTuple):
  """A name for the tests, `ModelConfig.cell`, and what else of the config is not its default."""

  name: str
  cell: str
  changes: Mapping[str, Any] = types.MappingProxyType({})

  @property
  def config(self) -> hklm.ModelConfig:
    return hklm.ModelConfig(**{
        "vocab_size": V, "embedding_size": E, "hidden_size": H, "cell": self.cell,
        "dtype": "float64", **self.changes})


CELLS = (
    Cell("lstm_coupled", "lstm", {"input_gate": "coupled", "num_biases": 2}),
    Cell("lstm_capped", "lstm", {"input_gate": "capped", **LEARNED}),
    Cell("peephole_lstm", "peephole_lstm", LEARNED),
    Cell("layer_norm_lstm", "layer_norm_lstm", LEARNED),
    Cell("projected_lstm", "projected_lstm", {
        "projection_size": 3, "num_layers": 2, "num_biases": 2, **LEARNED}),
    Cell("gru", "gru"),
    Cell("gru_two_biases", "gru", {"num_biases": 2}),
    Cell("vanilla", "vanilla", {"num_biases": 0}),
    Cell("slstm", "slstm"),
    Cell("mogrifier", "mogrifier", {"mogrifier_rounds": 3, "mogrifier_rank": 2,
                                    "input_gate": "capped", **LEARNED}),
    Cell("qrnn", "qrnn", {"qrnn_window": 2}),
    Cell("min_lstm", "min_lstm"),
    Cell("min_gru", "min_gru"),
)

over_all = parameterized.named_parameters((cell.name, cell) for cell in CELLS)


def tokens(seed=0, length=T):
  return np.random.RandomState(seed).randint(V, size=[length, B]).astype(np.int32)


@functools.cache
def ready(config: hklm.ModelConfig):
  """A model and its parameters, every leaf drawn anew."""
  lm = hklm.language_model(config)
  return lm, oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)))


def changed(config, **changes):
  """The config with these changes, or None where its cell has no use for them."""
  try:
    return dataclasses.replace(config, **changes)
  except InputError:
    return None


def held(live, new, old):
  """A state of which only the rows that are live have moved on."""
  return jax.tree.map(
      lambda new, old: jnp.where(live.reshape([B] + [1] * (new.ndim - 1)), new, old), new, old)


class ModelTest(oracle.X64TestCase):
  """Within a model."""

  @over_all
  def test_stepped_is_unrolled_is_split_and_what_is_masked_stands_still(self, cell):
    lm, params = ready(cell.config)
    mask = np.array([[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]], bool).T

    @jax.jit
    def both(params):
      _, start = lm.unroll(params, None, tokens(1, 2), lm.initial_state(params, B))
      ids = tokens(2)
      whole = lm.unroll(params, None, ids, start)
      first, between = lm.unroll(params, None, ids[:T // 2], start)
      second, after = lm.unroll(params, None, ids[T // 2:], between)

      def step(states, its):
        (now, still), (ids, live) = states, its
        logits, now = lm.step(params, None, ids, now)
        _, moved = lm.step(params, None, ids, still)
        return (now, held(live, moved, still)), logits

      (now, still), logits = jax.lax.scan(step, (start, start), (ids, mask))
      return (start, whole, (jnp.concatenate([first, second]), after), (logits, now), still,
              lm.unroll(params, None, ids, start, mask)[1])

    start, whole, split, stepped, still, masked = oracle.as_numpy(both(params))
    self.assert_close(split, whole)
    self.assert_close(stepped, whole)
    self.assert_close(masked, still)
    for leaf, before in zip(jax.tree.leaves(masked), jax.tree.leaves(start), strict=True):
      self.assertEqual(leaf.shape[0], B)
      np.testing.assert_array_equal(leaf[2], before[2])  # of it nothing was live

  @over_all
  def test_gradient_is_the_finite_difference(self, cell):
    lm, params = ready(cell.config)
    mask = np.arange(T)[:, None] < np.array([4, 2, 0])
    weights = np.random.RandomState(2).uniform(0.5, 1.5, size=[T, B])

    def total(params):
      loss, state = lm.loss(params, None, tokens(1), tokens(2), lm.initial_state(params, B), mask)
      return (weights * loss.nats).sum() + 0.1 * jnp.sin(state.output).sum()

    direction = oracle.random_like(params, seed=100)
    gradient, (up, down) = oracle.as_numpy(jax.jit(lambda params: (
        jax.grad(total)(params), jax.lax.map(lambda step: total(jax.tree.map(
            lambda p, v: p + step * v, params, direction)), jnp.array([STEP, -STEP]))))(params))
    slope = sum(np.vdot(*pair) for pair in zip(
        jax.tree.leaves(gradient), jax.tree.leaves(oracle.as_numpy(direction)), strict=True))
    self.assertGreater(abs(slope), 1e-2)
    self.assert_close(slope, (up - down) / (2 * STEP), 1e-7)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
      self.assertGreater(np.abs(leaf).max(), 1e-6, path)  # every parameter learns

  @over_all
  def test_what_drops_in_training_drops_nothing_in_evaluation(self, cell):
    _, params = ready(cell.config)
    plain = dataclasses.replace(cell.config, lstm_impl="scan")
    configs = {name: changed(plain, **{name: 0.4}) for name in ("weight_dropout", "state_dropout")}
    lms = {name: hklm.language_model(config) for name, config in configs.items() if config}

    def read(lm, params, key):
      return lm.unroll(params, key, tokens(1), lm.initial_state(params, B))

    @jax.jit
    def both(params):
      return (read(hklm.language_model(plain), params, None),
              {name: read(lm, params, None) for name, lm in lms.items()},
              {name: jax.vmap(lambda key, lm=lm: read(lm, params, key)[0])(
                  jnp.stack([jax.random.key(n) for n in (0, 0, 1)])) for name, lm in lms.items()})

    expected, evaluated, trained = oracle.as_numpy(both(params))
    for name in lms:
      with self.subTest(name):
        self.assert_close(evaluated[name], expected, 1e-14)
        one, again, other = trained[name]
        np.testing.assert_array_equal(one, again)
        for different in (expected[0], other):
          self.assertGreater(np.abs(one - different).max(), 1e-3)

  @over_all
  def test_zoneout_takes_its_expectation_in_evaluation(self, cell):
    plain = changed(cell.config, num_layers=1)
    config = changed(plain, zoneout=0.3)
    if config is None:
      self.skipTest("not for this cell")
    config = changed(config, zoneout_cell=0.6) or config
    rates = {"h": config.zoneout, "c": config.zoneout_cell}
    (lm, params), basis = ready(config), hklm.language_model(plain)

    @jax.jit
    def both(params):
      start = basis.initial_state(params, B)

      def step(now, ids):
        _, new = basis.step(params, None, ids, now)
        its, = new.cells
        its = its._replace(**{name: rate * getattr(now.cells[0], name)
                              + (1 - rate) * getattr(its, name)
                              for name, rate in rates.items() if rate})
        return new._replace(cells=(its,), output=its.h), new

      ids = tokens(1)
      now, seen = jax.lax.scan(step, start, ids)
      return (now, lm.unroll(params, None, ids, start)[1], start,
              jax.tree.map(lambda leaf: leaf[0], seen),
              lm.unroll(params, jax.random.key(0), ids[:1], start)[1])

    expected, evaluated, start, moved, one = oracle.as_numpy(both(params))
    self.assert_close(evaluated, expected)
    for name, rate in rates.items():
      if rate:
        its, old, new = (getattr(state.cells[0], name) for state in (one, start, moved))
        stayed, went = abs(its - old) < 1e-14, abs(its - new) < 1e-14
        np.testing.assert_array_equal(stayed ^ went, True)  # each is the old one or the new one
        self.assertTrue(stayed.any() and went.any())

  @over_all
  def test_activations_have_their_shapes(self, cell):
    lm, params = ready(cell.config)
    state = jax.eval_shape(lambda p: lm.initial_state(p, B), params)
    traces = jax.eval_shape(lm.activations, params, tokens(1), state)
    for trace, size in zip(traces, cell.config.output_sizes, strict=True):
      self.assertEqual(trace.output.shape, (T, B, size))
      self.assertEqual({gate.shape for gate in trace.gates.values()} - {(T, B, H)}, set())
      self.assertEqual({leaf.shape[:2] for leaf in jax.tree.leaves(trace.cell)}, {(T, B)})

  def test_no_cell_is_left_out(self):
    self.assertEqual({cell.cell for cell in CELLS}, set(catalogue._MAKERS))


class AloneTest(oracle.X64TestCase):
  """In a user's own Haiku code."""

  @over_all
  def test_agrees_with_numpy(self, cell):
    config = cell.config

    def run(xs):
      core = catalogue.core(config, 0)
      state, seen = core.initial_state(B), []
      start = state
      for x in xs:
        gates = core.trace(x, state)[2] if hasattr(core, "trace") else None
        y, state = core(x, state)
        seen.append((y, state, gates))
      return start, seen

    run = hk.without_apply_rng(hk.transform(run))
    xs = np.random.RandomState(0).normal(size=[T, B, E])
    params = oracle.random_like(jax.eval_shape(run.init, jax.random.key(0), xs))
    self.assertIn(f"{cell.cell}_0", params)
    start, seen = oracle.as_numpy(jax.jit(run.apply)(params, xs))
    self.assertEqual(seen[0][0].shape, (B, config.output_sizes[0]))
    if cell.cell not in zoo_oracles.STEPS:
      return
    p = oracle.as_numpy(params[f"{cell.cell}_0"])
    for row in range(B):
      state = {name: leaf[row] for name, leaf in start._asdict().items()}
      if config.initial_state == "learned":
        c = p["c_0"]
        h = np.tanh(c) if cell.cell != "projected_lstm" else p["w_hr"] @ np.tanh(c)
        self.assert_close(state, {"h": h, "c": c})
      else:
        self.assertFalse(state["h"].any())
      for t in range(T):
        y, state, gates = zoo_oracles.STEPS[cell.cell](p, xs[t, row], state, config)
        found = (seen[t][0][row], {k: leaf[row] for k, leaf in seen[t][1]._asdict().items()},
                 {name: gate[row] for name, gate in seen[t][2].items()})
        self.assert_close(found, (y, state, gates))

  @over_all
  def test_dtype_is_kept_with_x64_on(self, cell):
    config = dataclasses.replace(cell.config, dtype="float32")

    def run(x):
      core = catalogue.core(config, 0)
      return core(x, core.initial_state(B))

    run = hk.without_apply_rng(hk.transform(run))
    x = jnp.zeros([B, E], jnp.float32)
    params = jax.eval_shape(run.init, jax.random.key(0), x)
    leaves = jax.tree.leaves((params, jax.eval_shape(run.apply, params, x)))
    self.assertEqual({str(leaf.dtype) for leaf in leaves}, {"float32"})

  @over_all
  def test_count_is_the_closed_form(self, cell):
    config = cell.config
    if cell.cell not in zoo_oracles.COUNTS:
      self.skipTest("none is written down")
    params = jax.eval_shape(ready(cell.config)[0].init, jax.random.key(0))
    for layer in range(config.num_layers):
      D = config.output_sizes[0] if layer else E
      expected = zoo_oracles.COUNTS[cell.cell](H, D, config.num_biases, config.projection_size)
      if config.input_gate == "coupled":
        expected = expected * 3 // 4
      if config.initial_state == "learned":
        expected += H
      found = sum(leaf.size for leaf in jax.tree.leaves(params[f"{cell.cell}_{layer}"]))
      self.assertEqual(found, expected)

  @over_all
  def test_the_forget_bias_is_the_forget_gates(self, cell):
    config = changed(cell.config, forget_bias=1.5, init="zeros", num_layers=1)
    if config is None or cell.cell not in zoo_oracles.STEPS:
      self.skipTest("it has none")
    params = oracle.as_numpy(hklm.language_model(config).init(jax.random.key(0)))
    block = 0 if config.input_gate == "coupled" else 1
    b = params[f"{cell.cell}_0"]["b"].reshape(-1, H)
    expected = np.zeros_like(b)
    expected[block] = 1.5
    np.testing.assert_array_equal(b, expected)


if __name__ == "__main__":
  absltest.main()
