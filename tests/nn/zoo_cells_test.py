"""What is particular to single cells; what all have in common is in `zoo_test`."""

import importlib.util

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.errors import InputError
from hklm.nn import cells
from hklm.nn.zoo import gated, lstms, slstm
from tests import oracle

T, B, D, H, R = 4, 2, 3, 5, 2


def unrolled(make):
  """`(params, xs) -> outputs [T, B, R], state` of a cell in a user's own code, and parameters."""
  def run(xs):
    cell = make()
    return hk.dynamic_unroll(cell, xs, cell.initial_state(xs.shape[1]))

  run = hk.without_apply_rng(hk.transform(run))
  (params,) = oracle.random_like(
      jax.eval_shape(run.init, jax.random.key(0), np.zeros([T, B, D]))).items()
  return jax.jit(lambda its, xs: run.apply({params[0]: its}, xs)), params[1]


def inputs(seed=0):
  return np.random.RandomState(seed).normal(size=[T, B, D])


class InputGateTest(oracle.X64TestCase):
  """Gates shut or open by their biases alone."""

  @parameterized.parameters(
      ("free", [1.0, 1.0, 2.0], 2.0 + 1.0), ("capped", [1.0, 1.0, 2.0], 2.0),
      ("capped", [1.0, 0.0, 2.0], 1.0), ("capped", [0.0, 0.0, 2.0], 0.0),
      ("capped", [0.75, 0.5, 2.0], 0.5 * 2.0 + 0.5), ("capped", [0.25, 0.5, 2.0], 0.5 * 2.0 + 0.25),
      ("coupled", [None, 0.25, 2.0], 0.25 * 2.0 + 0.75), ("coupled", [None, 1.0, 2.0], 2.0))
  def test_by_hand(self, input_gate, given, expected):
    i, f, c = given
    with np.errstate(divide="ignore"):
      logits = [np.log(gate / (1 - gate)) if gate != 1 else np.inf
                for gate in (i, f) if gate is not None]
    b = np.array([*logits, np.inf, np.inf])  # g = o = 1
    cell = hk.without_apply_rng(hk.transform(lambda x, state: cells.LSTM(
        1, input_gate=input_gate, dtype=jnp.float64).trace(x, state)))
    params = {"w_ih": np.zeros([len(b), 1]), "w_hh": np.zeros([len(b), 1]), "b": b}
    h, state, gates = cell.apply({"lstm": params}, np.ones([1, 1]),
                                 cells.LSTMState(np.zeros([1, 1]), np.full([1, 1], c)))
    self.assert_close((h, state.c), (np.tanh([[expected]]), np.array([[expected]])))
    self.assert_close(gates["f"] * c + gates["i"] * gates["g"], state.c)

  def test_only_a_free_one_reads_a_sequence_at_once(self):
    def run(input_gate):
      lstm = cells.LSTM(H, input_gate=input_gate)
      self.assertEqual(lstm.reads_sequences, input_gate == "free")
      return lstm.sequence(jnp.zeros([T, B, D]), lstm.initial_state(B), None, "fused")

    for input_gate in ("coupled", "capped"):
      with self.assertRaises(AssertionError):
        hk.transform(run).init(jax.random.key(0), input_gate)
    with self.assertRaisesRegex(InputError, "input_gate='tied' is unknown; needed: free, coupled"):
      hk.transform(run).init(jax.random.key(0), "tied")


class LayerNormTest(oracle.X64TestCase):

  def test_scale_and_shift_of_sums_change_nothing(self):
    """What is normalised loses both: of matrices times 7, and rows of W_hh moved alike."""
    run, p = unrolled(lambda: lstms.LayerNormLSTM(H, dtype=jnp.float64))
    xs = inputs()
    expected, _ = run(p, xs)
    moved = p["w_hh"] + np.arange(H)  # adds one number to all sums
    found, _ = run({**p, "w_ih": 7e3 * p["w_ih"], "w_hh": moved}, xs)
    self.assert_close(found[0], expected[0], 1e-4)  # but for the epsilon
    exact, _ = run({**p, "w_hh": moved}, xs)
    self.assert_close(exact, expected, 1e-10)

  def test_begins_with_gains_of_one_and_biases_of_zero(self):
    cell = hk.transform(lambda x: lstms.LayerNormLSTM(H)(x, cells.LSTMState(*jnp.zeros([2, B, H]))))
    params = jax.jit(cell.init)(jax.random.key(0), jnp.ones([B, D]))
    for name, leaf in params["layer_norm_lstm"].items():
      if name.startswith(("gain", "bias")):
        np.testing.assert_array_equal(leaf, float(name.startswith("gain")))


class GRUTest(oracle.X64TestCase):

  def test_with_one_bias_it_is_haikus(self):
    run, p = unrolled(lambda: gated.GRU(H, dtype=jnp.float64))
    theirs = hk.without_apply_rng(hk.transform(
        lambda xs: hk.dynamic_unroll(hk.GRU(H), xs, jnp.zeros([B, H]))))
    r, z, n = range(3)

    def ordered(leaf):  # gates in the order z, r, a, and z for 1 - z
      parts = np.split(np.asarray(leaf), 3)
      return np.concatenate([-parts[z], parts[r], parts[n]]).T

    xs = inputs()
    expected, _ = theirs.apply({"gru": {"w_i": ordered(p["w_ih"]), "w_h": ordered(p["w_hh"]),
                                        "b": ordered(p["b"])}}, xs)
    self.assert_close(run(p, xs)[0], expected)

  def test_the_conventions_differ_where_the_reset_gate_is_not_open(self):
    one, p = unrolled(lambda: gated.GRU(H, dtype=jnp.float64))
    two, _ = unrolled(lambda: gated.GRU(H, num_biases=2, dtype=jnp.float64))
    xs, more = inputs(), {"b_hh": np.zeros(3 * H)}
    self.assertGreater(np.abs(one(p, xs)[0] - two(p | more, xs)[0]).max(), 1e-2)
    none, without = unrolled(lambda: gated.GRU(H, num_biases=0, dtype=jnp.float64))
    self.assert_close(none(without, xs)[0], two(without | more | {"b": more["b_hh"]}, xs)[0])
    p["b"] = np.asarray(p["b"]) + np.repeat([800.0, 0.0, 0.0], H)  # r = 1
    self.assert_close(one(p, xs)[0], two(p | more, xs)[0])


class SLSTMTest(oracle.X64TestCase):

  def setUp(self):
    super().setUp()
    self.cell, self.p = unrolled(lambda: slstm.SLSTM(H, dtype=jnp.float64))

  def test_the_stabiliser_changes_no_number(self):
    """Equations 8 to 14 without it, over vectors, from zeros."""
    ys, state = oracle.as_numpy(self.cell(self.p, inputs()))
    p = oracle.as_numpy(self.p)
    for row in range(B):
      h = c = n = np.zeros(H)
      for t, x in enumerate(inputs()[:, row]):
        i, f, z, o = np.split(p["w_ih"] @ x + p["w_hh"] @ h + p["b"], 4)
        i, f, z, o = np.exp(i), oracle.sigmoid(f), np.tanh(z), oracle.sigmoid(o)
        c, n = f * c + i * z, f * n + i
        h = o * c / n
        self.assert_close(ys[t, row], h)
      scale = np.exp(state.m[row])
      self.assert_close((scale * state.c[row], scale * state.n[row]), (c, n))

  def test_a_factor_of_all_input_gates_changes_nothing(self):
    """Nothing but their ratios counts, in numbers that exp would not fit in."""
    expected, _ = self.cell(self.p, inputs())
    for shift in (-5000.0, 5000.0):
      moved = self.p | {"b": np.asarray(self.p["b"]) + np.repeat([shift, 0.0, 0.0, 0.0], H)}
      self.assert_close(self.cell(moved, inputs())[0], expected, 1e-10)

  @parameterized.parameters("float32", "bfloat16")
  def test_huge_sums_stay_finite(self, dtype):
    run, p = unrolled(lambda: slstm.SLSTM(H, dtype=jnp.dtype(dtype)))

    def total(p, xs):
      ys, state = run(p, xs)
      return ys.astype(jnp.float32).sum(), (ys, state)

    slopes = jax.jit(jax.value_and_grad(total, has_aux=True))
    xs = inputs().astype(dtype)
    for i in (-1e6, 0.0, 1e6):
      for f in (-1e6, 0.0, 1e6):
        moved = p["b"] + jnp.repeat(jnp.array([i, f, 0.0, 0.0], dtype), H)
        (_, (ys, state)), gradient = oracle.as_numpy(slopes(p | {"b": moved}, xs))
        for leaf in jax.tree.leaves((ys, state, gradient)):
          self.assertTrue(np.isfinite(leaf.astype(np.float32)).all(), (i, f))
        self.assertLessEqual(np.abs(ys.astype(np.float32)).max(), 1.01)
        self.assertGreaterEqual(state.n.astype(np.float32).min(), 1.0)


@absltest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class TorchTest(oracle.X64TestCase):
  """Against PyTorch's layers with the same weights."""

  @parameterized.parameters("lstm", "projected_lstm", "gru", "vanilla_rnn")
  def test_agrees(self, name):
    import torch
    options = {"num_biases": 2, "dtype": jnp.float64}
    make, layer = {
        "lstm": (lambda: cells.LSTM(H, **options), torch.nn.LSTM(D, H)),
        "projected_lstm": (lambda: lstms.ProjectedLSTM(H, R, **options),
                           torch.nn.LSTM(D, H, proj_size=R)),
        "gru": (lambda: gated.GRU(H, **options), torch.nn.GRU(D, H)),
        "vanilla_rnn": (lambda: gated.VanillaRNN(H, **options), torch.nn.RNN(D, H)),
    }[name]
    run, p = unrolled(make)
    names = {"w_ih": "weight_ih_l0", "w_hh": "weight_hh_l0", "w_hr": "weight_hr_l0",
             "b": "bias_ih_l0", "b_hh": "bias_hh_l0"}
    layer = layer.double()
    layer.load_state_dict({names[key]: torch.tensor(np.asarray(leaf)) for key, leaf in p.items()})
    with torch.no_grad():
      expected, last = layer(torch.tensor(inputs()))
    ys, state = run(p, inputs())
    self.assert_close(ys, expected.numpy())
    last = last if isinstance(last, tuple) else (last,)
    self.assert_close(tuple(state), tuple(leaf[0].numpy() for leaf in last))


if __name__ == "__main__":
  absltest.main()
