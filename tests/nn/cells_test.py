"""The LSTM cell alone, in a user's own Haiku code."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn import cells
from tests import oracle

T, B, D, H = 4, 2, 3, 5


def run_over(x, **options):
  """`(params, x) -> outputs, state`, through Haiku's own scan."""
  def run(x):
    cell = cells.LSTM(H, dtype=x.dtype, **options)
    return hk.dynamic_unroll(cell, x, cell.initial_state(x.shape[1]))

  run = hk.without_apply_rng(hk.transform(run))
  return run, oracle.random_like(jax.eval_shape(run.init, jax.random.key(0), x))


class LSTMTest(oracle.X64TestCase):

  @parameterized.product(num_biases=[1, 2], learned_state=[False, True])
  def test_unrolled_by_a_user(self, num_biases, learned_state):
    x = np.random.RandomState(0).normal(size=[T, B, D])
    run, params = run_over(x, num_biases=num_biases, learned_state=learned_state)
    ys, state = oracle.as_numpy(jax.jit(run.apply)(params, x))
    self.assertEqual(ys.shape, (T, B, H))
    p = oracle.as_numpy(params["lstm"])
    names = {"w_ih", "w_hh", "b"} | ({"b_hh"} if num_biases == 2 else set())
    self.assertEqual(set(p), names | ({"c_0"} if learned_state else set()))
    for row in range(B):
      c = p["c_0"] if learned_state else np.zeros(H)
      h = np.tanh(c)
      for t in range(T):
        z = p["w_ih"] @ x[t, row] + p["w_hh"] @ h + p["b"] + p.get("b_hh", 0.0)
        i, f, g, o = z.reshape(4, H)  # in this order along the rows
        c = oracle.sigmoid(f) * c + oracle.sigmoid(i) * np.tanh(g)
        h = oracle.sigmoid(o) * np.tanh(c)
        self.assert_close(ys[t, row], h)
      self.assert_close((state.h[row], state.c[row]), (h, c))

  def test_saturated_gates_by_hand(self):
    """Gates shut or open by their biases alone: what is kept, written and shown."""
    cell = hk.without_apply_rng(hk.transform(
        lambda x, h, c: cells.LSTM(1, dtype=jnp.float64)(x, cells.LSTMState(h, c))))
    zero, one, two = np.zeros([1, 1]), np.ones([1, 1]), np.full([1, 1], 2.0)
    on, off = 800.0, -800.0
    cases = {
        "keeps": ([off, on, on, on], 2.0, np.tanh(2.0)),
        "writes": ([on, off, on, on], 1.0, np.tanh(1.0)),
        "adds": ([on, on, on, on], 3.0, np.tanh(3.0)),
        "hides": ([off, on, on, off], 2.0, 0.0),
        "clears": ([off, off, on, on], 0.0, 0.0),
    }
    for name, (b, c, h) in cases.items():
      with self.subTest(name):
        params = {"lstm": {"w_ih": np.zeros([4, 1]), "w_hh": np.zeros([4, 1]), "b": np.array(b)}}
        y, state = cell.apply(params, one, zero, two)
        self.assert_close((y, state.h, state.c), (np.array([[h]]),) * 2 + (np.array([[c]]),))

  def test_two_biases_are_added(self):
    x = np.random.RandomState(1).normal(size=[T, B, D])
    two, params = run_over(x, num_biases=2)
    one, _ = run_over(x)
    p = dict(params["lstm"])
    p["b"] = p["b"] + p.pop("b_hh")
    self.assert_close(one.apply({"lstm": p}, x), two.apply(params, x), 1e-14)

  def test_what_it_puts_out_before_reading(self):
    def run():
      cell = cells.LSTM(H, learned_state=True, dtype=jnp.float64)
      state = cell.initial_state(B)
      return cell.output(state), state

    c_0 = np.linspace(-1, 1, H)
    output, state = hk.without_apply_rng(hk.transform(run)).apply({"lstm": {"c_0": c_0}})
    self.assert_close((output, state.h, state.c),
                      (np.tile(np.tanh(c_0), [B, 1]),) * 2 + (np.tile(c_0, [B, 1]),), 1e-15)

  @parameterized.parameters("float32", "bfloat16", "float64")
  def test_dtype_is_kept_with_x64_on(self, dtype):
    x = jnp.zeros([T, B, D], dtype)
    run, params = run_over(x, num_biases=2, learned_state=True, forget_bias=1.0)
    leaves = jax.tree.leaves((params, jax.eval_shape(run.apply, params, x)))
    self.assertEqual({str(leaf.dtype) for leaf in leaves}, {dtype})

  def test_two_cells_share_nothing(self):
    def run(x):
      a, b = cells.LSTM(H), cells.LSTM(H, name="second")
      x, _ = a(x, a.initial_state(B))
      return b(x, b.initial_state(B))[0]

    params = jax.eval_shape(hk.transform(run).init, jax.random.key(0), jnp.zeros([B, D]))
    self.assertEqual({name: leaves["w_ih"].shape for name, leaves in params.items()},
                     {"lstm": (4 * H, D), "second": (4 * H, H)})


if __name__ == "__main__":
  absltest.main()
