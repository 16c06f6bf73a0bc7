"""minLSTM and minGRU against their equations in NumPy, read at once and step by step."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.nn.zoo import minimal
from tests import oracle
from tests.nn import both_ways
from tests.nn.both_ways import HOLES, B

D, H = 4, 5
CELLS = {"min_lstm": minimal.MinLSTM, "min_gru": minimal.MinGRU}
over_cells = parameterized.parameters(*CELLS)


@functools.cache
def reader(name, dtype=np.float64):
  return both_ways.Reader(lambda: CELLS[name](H, dtype=dtype), D, dtype)


def gates(name, p, x):
  """f, i and g(v), without logarithms."""
  z = (p["w_ih"] @ x + p["b"]).reshape(-1, H)
  v = z[-1]
  g = np.array([number + 0.5 if number >= 0 else oracle.sigmoid(number) for number in v])
  if name == "min_gru":
    return oracle.sigmoid(-z[0]), oracle.sigmoid(z[0]), g
  f, i = oracle.sigmoid(z[0]), oracle.sigmoid(z[1])
  return f / (f + i), i / (f + i), g


def loop(name, p, xs, h):
  """One row, `xs [T, D]`: the state after every step."""
  hs = []
  for x in xs:
    f, i, g = gates(name, p, x)
    h = f * h + i * g
    hs.append(h)
  return np.array(hs).reshape(-1, H)


class MinimalTest(both_ways.BothWaysTestCase):

  @parameterized.product(name=tuple(CELLS),
                         how=[("fused", False), ("fused", True), ("scan", True)])
  def test_is_the_equation(self, name, how):
    its, (impl, masked) = reader(name), how
    mask = HOLES if masked else None
    p = oracle.as_numpy(its.params[name])
    rows = {"min_lstm": 3 * H, "min_gru": 2 * H}[name]
    self.assertEqual({name: leaf.shape for name, leaf in p.items()},
                     {"w_ih": (rows, D), "b": (rows,)})
    hs, state = its.read(impl, mask=mask)
    for row in range(B):
      live = np.ones(len(its.xs), bool) if mask is None else mask[:, row]
      start = np.asarray(its.state.h[row])
      expected = loop(name, p, its.xs[live, row], start)
      self.assert_close(hs[live, row], expected)
      self.assert_close(state.h[row], np.concatenate([start[None], expected])[-1])

  @over_cells
  def test_windows_and_steps_go_on_from_each_other(self, name):
    self.check_windows(reader(name))

  @over_cells
  def test_gradients(self, name):
    self.check_gradients(reader(name))

  @over_cells
  def test_starts_at_g_of_zero(self, name):
    """And puts that out: the paper's parallel mode applies g to an h_0 of zeros."""
    def run():
      cell = CELLS[name](H, dtype=jnp.float64)
      state = cell.initial_state(B)
      return cell.output(state), state.h

    for found in hk.transform(run).apply({}, None):
      np.testing.assert_array_equal(found, np.full([B, H], oracle.sigmoid(0.0)))

  @over_cells
  def test_gates(self, name):
    its = reader(name)
    run = hk.without_apply_rng(hk.transform(
        lambda x, state: CELLS[name](H, dtype=x.dtype).trace(x, state)))
    h, state, found = jax.jit(run.apply)(its.params, its.xs[0], its.state)
    p = oracle.as_numpy(its.params[name])
    for row in range(B):
      f, i, g = gates(name, p, its.xs[0, row])
      self.assert_close((found["f"][row], found["i"][row]), (f, i))
      self.assert_close(h[row], f * its.state.h[row] + i * g)
      self.assert_close(f + i, np.ones(H))
    np.testing.assert_array_equal(h, state.h)

  @over_cells
  def test_large_preactivations(self, name):
    """Gates that are shut in float32, candidates of almost nothing: no number is lost."""
    its = reader(name, np.float32)
    p = jax.tree.map(np.float64, oracle.as_numpy(its.params[name]))
    xs = 100 * its.xs
    with jax.enable_x64(False):
      (_, hs), gradient = its.differentiated("fused", HOLES)(its.params, xs, its.state)
    expected = loop(name, p, np.float64(xs[HOLES[:, 0], 0]), np.float64(its.state.h[0]))
    self.assertLess(min(gates(name, p, xs[0, 0])[0].min(), expected.min()), 1e-30)
    np.testing.assert_allclose(hs[HOLES[:, 0], 0], expected, rtol=1e-3, atol=1e-37)
    for leaf in jax.tree.leaves(gradient):
      self.assertTrue(np.isfinite(leaf).all())

  @over_cells
  def test_a_candidate_of_zero_learns(self, name):
    """Where the two branches of g meet, the slope is that of the one that is taken."""
    run = hk.without_apply_rng(hk.transform(lambda xs: (
        lambda cell: cell.sequence(xs, cell.initial_state(1))[0])(CELLS[name](1, dtype=xs.dtype))))
    xs = np.ones([1, 1, 1])
    blocks = CELLS[name].blocks
    params = {name: {"w_ih": np.zeros([blocks, 1]), "b": np.zeros(blocks)}}
    gradient = jax.jit(jax.grad(lambda params: run.apply(params, xs).sum()))(params)[name]
    self.assert_close(gradient["b"][-1], 0.5, 1e-15)  # i = 1/2 of the slope 1

  @over_cells
  def test_long_sequences_in_float32(self, name):
    at_once = hk.without_apply_rng(hk.transform(lambda xs: (
        lambda cell: cell.sequence(xs, cell.initial_state(1))[0])(CELLS[name](H, dtype=xs.dtype))))
    stepped = hk.without_apply_rng(hk.transform(lambda xs: hk.dynamic_unroll(
        *(lambda cell: (cell, xs, cell.initial_state(1)))(CELLS[name](H, dtype=xs.dtype)))[0]))
    xs = np.random.RandomState(0).normal(size=[2048, 1, D])
    params = oracle.random_like(jax.eval_shape(at_once.init, jax.random.key(0), xs))
    shift = np.repeat({"min_lstm": [4.0, -4.0, 0.0], "min_gru": [-6.0, 0.0]}[name], H)
    params[name]["b"] += shift  # f about 0.997: what is read stays for hundreds of steps
    expected = loop(name, oracle.as_numpy(params[name]), xs[:, 0], np.full(H, 0.5))
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    one, other = (np.asarray(jax.jit(read.apply)(narrow, np.float32(xs))[:, 0])
                  for read in (at_once, stepped))
    self.assertEqual(one.dtype, jnp.float32)
    np.testing.assert_allclose(one, expected, rtol=1e-5)
    np.testing.assert_allclose(other, one, rtol=1e-5)

  @parameterized.product(name=tuple(CELLS), dtype=["float32", "bfloat16", "float64"])
  def test_dtype_is_kept_with_x64_on(self, name, dtype):
    self.check_dtype(reader(name, jnp.dtype(dtype)), dtype)

  def test_bfloat16_rounds_once_a_step_at_most(self):
    its = reader("min_lstm", jnp.bfloat16)
    one, other = (np.float64(its.read(impl, mask=HOLES)[0]) * HOLES[..., None]
                  for impl in ("fused", "scan"))
    np.testing.assert_allclose(one, other, rtol=2 * float(jnp.finfo(jnp.bfloat16).eps))

  @over_cells
  def test_size_in_a_model(self, name):
    config = hklm.ModelConfig(7, 4, 9, 2, (9, 6), cell=name)
    params = jax.eval_shape(hklm.language_model(config).init, jax.random.key(0))
    blocks = CELLS[name].blocks
    layers = blocks * (9 * (4 + 1) + 6 * (9 + 1))
    self.assertEqual(sum(leaf.size for leaf in jax.tree.leaves(params)), 7 * 4 + layers + 7 * 6 + 7)


if __name__ == "__main__":
  absltest.main()
