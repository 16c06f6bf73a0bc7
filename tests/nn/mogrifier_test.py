"""The Mogrifier against its equations in NumPy, and against the LSTM that it leads to."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.nn import cells, stack
from hklm.nn.zoo import mogrifier
from tests import oracle

T, B, D, H = 4, 2, 3, 5


def make(rounds, rank, input_gate="free", learned_state=False, dtype=jnp.float64):
  lstm = cells.LSTM(H, learned_state=learned_state, input_gate=input_gate, dtype=dtype)
  return mogrifier.Mogrifier(lstm, rounds, rank, dtype=dtype)


def unroll(*options, **more):
  """`xs -> outputs, state`, through Haiku's own scan, and random parameters."""
  def run(xs):
    cell = make(*options, **more)
    return hk.dynamic_unroll(cell, xs, cell.initial_state(B))

  run = hk.without_apply_rng(hk.transform(run))
  return run, oracle.random_like(jax.eval_shape(run.init, jax.random.key(0), inputs()))


def inputs():
  return np.random.RandomState(0).normal(size=[T, B, D])


def modulated(p, rounds, rank, x, h):
  """x and h as the LSTM reads them, of one row."""
  for i in range(1, rounds + 1):
    letter = "q" if i % 2 else "r"
    w = (p[f"{letter}_{i}_left"] @ p[f"{letter}_{i}_right"]) if rank else p[f"{letter}_{i}"]
    if i % 2:
      x = 2 / (1 + np.exp(-(w @ h + p[f"b_{i}"]))) * x
    else:
      h = 2 / (1 + np.exp(-(w @ x + p[f"b_{i}"]))) * h
  return x, h


class MogrifierTest(oracle.X64TestCase):

  @parameterized.parameters((1, 2, False), (2, 0, True), (5, 0, False), (5, 2, True))
  def test_is_the_equation(self, rounds, rank, learned_state):
    run, params = unroll(rounds, rank, learned_state=learned_state)
    ys, state = oracle.as_numpy(jax.jit(run.apply)(params, inputs()))
    p = oracle.as_numpy(params["lstm"])
    for row in range(B):
      c = p["c_0"] if learned_state else np.zeros(H)
      h = np.tanh(c)
      for t in range(T):
        x, read = modulated(oracle.as_numpy(params["mogrifier"]), rounds, rank, inputs()[t, row], h)
        i, f, g, o = (p["w_ih"] @ x + p["w_hh"] @ read + p["b"]).reshape(4, H)
        c = oracle.sigmoid(f) * c + oracle.sigmoid(i) * np.tanh(g)
        h = oracle.sigmoid(o) * np.tanh(c)
        self.assert_close(ys[t, row], h)
      self.assert_close((state.h[row], state.c[row]), (h, c))

  @parameterized.parameters("free", "coupled", "capped")
  def test_the_lstm_reads_what_was_modulated_and_nothing_else_changes(self, input_gate):
    x, state = inputs()[0], oracle.random_like(cells.LSTMState(*np.zeros([2, B, H])), seed=3)
    whole = hk.without_apply_rng(hk.transform(
        lambda x, state: make(5, 2, input_gate).trace(x, state)))
    params = oracle.random_like(jax.eval_shape(whole.init, jax.random.key(0), x, state))
    alone = hk.without_apply_rng(hk.transform(lambda x, state: cells.LSTM(
        H, input_gate=input_gate, dtype=jnp.float64).trace(x, state)))
    p = oracle.as_numpy(params["mogrifier"])
    x_read, h_read = zip(*(modulated(p, 5, 2, x[row], np.asarray(state.h[row]))
                           for row in range(B)), strict=True)
    expected = jax.jit(alone.apply)(params, np.array(x_read), state._replace(h=np.array(h_read)))
    self.assert_close(jax.jit(whole.apply)(params, x, state), expected)
    self.assertEqual(set(expected[2]), {"i", "f", "g", "o"})

  @parameterized.parameters((0, 0), (4, 0), (5, 2))
  def test_of_zeros_is_the_lstm_itself(self, rounds, rank):
    run, params = unroll(rounds, rank)
    params = params | {"mogrifier": jax.tree.map(jnp.zeros_like, params.get("mogrifier", {}))}
    lstm = hk.without_apply_rng(hk.transform(lambda xs: hk.dynamic_unroll(
        *(lambda cell: (cell, xs, cell.initial_state(B)))(cells.LSTM(H, dtype=xs.dtype)))))
    self.assert_same_bits(jax.jit(run.apply)(params, inputs()),
                          jax.jit(lstm.apply)({"lstm": params["lstm"]}, inputs()))

  def test_gradient_is_the_finite_difference(self):
    run, params = unroll(3, 2, learned_state=True)
    weights = np.random.RandomState(2).uniform(0.5, 1.5, size=[T, B, H])

    def total(params, xs):
      ys, state = run.apply(params, xs)
      return (weights * jnp.sin(ys)).sum() + jnp.square(state.c).sum()

    differentiated = jax.jit(jax.value_and_grad(total, (0, 1)))
    gradient = oracle.as_numpy(differentiated(params, inputs())[1])
    at, step = (params, inputs()), 1e-5
    direction = oracle.as_numpy(oracle.random_like(at, seed=7))
    up, down = (differentiated(*jax.tree.map(
        lambda p, v, sign=sign: p + sign * step * v, at, direction))[0] for sign in (1, -1))
    slope = sum((g * v).sum() for g, v in zip(
        jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    self.assert_close(slope, (up - down) / (2 * step), 1e-7)
    for leaf in jax.tree.leaves(gradient):
      self.assertGreater(np.abs(leaf).max(), 1e-6)  # every parameter learns

  @parameterized.parameters("float32", "bfloat16", "float64")
  def test_dtype_is_kept_with_x64_on(self, dtype):
    xs = jnp.zeros([T, B, D], dtype)
    run, params = unroll(5, 2, learned_state=True, dtype=xs.dtype)
    leaves = jax.tree.leaves((params, jax.eval_shape(run.apply, params, xs)))
    self.assertEqual({str(leaf.dtype) for leaf in leaves}, {dtype})

  @parameterized.parameters((0, 3 * (4 * 9 + 4) + 2 * (9 * 4 + 9)),
                            (2, 3 * (2 * (4 + 9) + 4) + 2 * (2 * (4 + 9) + 9)))
  def test_size_in_a_model(self, rank, count):
    """That of an LSTM, and `count` more."""
    def size(**changes):
      config = hklm.ModelConfig(7, 4, 9, initial_state="learned", **changes)
      params = jax.eval_shape(hklm.language_model(config).init, jax.random.key(0))
      return sum(leaf.size for leaf in jax.tree.leaves(params))

    changes = {"cell": "mogrifier", "mogrifier_rank": rank, "input_gate": "capped"}
    self.assertEqual(size(**changes) - size(), count)

  def test_first_biases_in_a_model(self):
    config = hklm.ModelConfig(7, 4, 9, cell="mogrifier", mogrifier_rounds=2, forget_bias=1.0,
                              init="unit,bias=zeros")
    params = hklm.language_model(config).init(jax.random.key(0))
    np.testing.assert_array_equal(params["lstm_0"]["b"], np.repeat([0.0, 1.0, 0.0, 0.0], 9))
    for name, size in (("b_1", 4), ("b_2", 9)):
      np.testing.assert_array_equal(params["mogrifier_0"][name], np.zeros(size))
    self.assertGreater(params["mogrifier_0"]["q_1"].min(), 0.0)  # by the config's initialiser

  def test_first_values(self):
    """Of whole matrices by the initialiser; products of factors have about the variance 1/n."""
    k, D, H = 32, 64, 96

    def run(x, rank):
      cell = mogrifier.Mogrifier(cells.LSTM(H), 2, rank, hk.initializers.Constant(0.5))
      return cell(x, cell.initial_state(1))

    init = jax.jit(hk.transform(run).init, static_argnums=2)
    whole, factored = (oracle.as_numpy(
        init(jax.random.key(0), np.zeros([1, D], np.float32), rank)["mogrifier"])
        for rank in (0, k))
    np.testing.assert_array_equal(whole["q_1"], 0.5 * np.ones([D, H]))
    np.testing.assert_array_equal(whole["r_2"], 0.5 * np.ones([H, D]))
    for name, n in (("q_1", H), ("r_2", D)):
      product = factored[f"{name}_left"] @ factored[f"{name}_right"]
      # A normal number within 2 standard deviations has 0.774 of the variance.
      self.assertAlmostEqual(n * product.var(), 0.774**2, delta=0.06)

  def test_state_dropout_comes_first_and_leaves_c(self):
    """The gates see h dropped, then modulated; what is carried is whole."""
    def run(xs, state):
      how = stack.Reading(state_dropout=0.5)
      return stack.unroll([make(2, 0)], xs, stack.State((state,), state.h), None, how)

    run = hk.transform(run)
    state = cells.LSTMState(*np.random.RandomState(1).normal(size=[2, B, H]))
    params = oracle.random_like(jax.eval_shape(run.init, jax.random.key(0), inputs()[:1], state))
    ys, _ = jax.jit(run.apply)(params, jax.random.key(1), inputs()[:1], state)
    step = hk.without_apply_rng(hk.transform(lambda x, state: make(2, 0)(x, state)))
    step = jax.jit(step.apply)
    differences = []
    for bits in range(2**H):  # every mask there is, for the first row
      keep = np.array([bits >> n & 1 for n in range(H)], bool)
      dropped = state._replace(h=np.where(keep, 2 * state.h, 0.0))
      differences.append(np.abs(step(params, inputs()[0], dropped)[0][0] - ys[0, 0]).max())
    self.assertLess(min(differences), 1e-12)
    self.assertLess(np.argmin(differences), 2**H - 1)  # something was dropped


if __name__ == "__main__":
  absltest.main()
