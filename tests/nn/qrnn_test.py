"""The QRNN against its equations in NumPy, read at once and step by step."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.nn.zoo import qrnn
from tests import oracle
from tests.nn import both_ways
from tests.nn.both_ways import HOLES, B

D, H = 4, 5


@functools.cache
def reader(window, dtype=np.float64):
  return both_ways.Reader(lambda: qrnn.QRNN(D, H, window, dtype=dtype), D, dtype)


def loop(p, xs, c, before):
  """One row, `xs [T, D]`: outputs and the state after. `before`: the input before, if it is read.

  W1 is of the input, W2 of the one before, as two products.
  """
  hs = []
  for x in xs:
    a = p["w_ih"][:, :D] @ x + p["b"]
    if before is not None:
      a, before = a + p["w_ih"][:, D:] @ before, x
    z, f, o = a.reshape(3, H)  # in this order along the rows
    z, f, o = np.tanh(z), oracle.sigmoid(f), oracle.sigmoid(o)
    c = f * c + (1 - f) * z
    hs.append(o * c)
  return np.array(hs).reshape(-1, H), c, before


class QRNNTest(both_ways.BothWaysTestCase):

  @parameterized.product(window=[1, 2], how=[("fused", False), ("fused", True), ("scan", True)])
  def test_is_the_equation(self, window, how):
    """Masked, an input before is the last live one, wherever it stands."""
    its, (impl, masked) = reader(window), how
    mask = HOLES if masked else None
    p = oracle.as_numpy(its.params["qrnn"])
    self.assertEqual({name: leaf.shape for name, leaf in p.items()},
                     {"w_ih": (3 * H, window * D), "b": (3 * H,)})
    hs, state = its.read(impl, mask=mask)
    for row in range(B):
      live = np.ones(len(its.xs), bool) if mask is None else mask[:, row]
      before = None if window == 1 else np.asarray(its.state.x[row])
      expected, c, last = loop(p, its.xs[live, row], np.asarray(its.state.c[row]), before)
      self.assert_close(hs[live, row], expected)
      self.assert_close(state.c[row], c)
      if window == 2:
        np.testing.assert_array_equal(state.x[row], last)

  @parameterized.parameters(1, 2)
  def test_windows_and_steps_go_on_from_each_other(self, window):
    self.check_windows(reader(window))

  @parameterized.parameters(1, 2)
  def test_gradients(self, window):
    self.check_gradients(reader(window))

  def test_long_sequences_in_float32(self):
    cell = hk.without_apply_rng(hk.transform(lambda xs: hk.dynamic_unroll(
        *(lambda cell: (cell, xs, cell.initial_state(1)))(qrnn.QRNN(D, H, 2, dtype=xs.dtype)))))
    at_once = hk.without_apply_rng(hk.transform(lambda xs: (
        lambda cell: cell.sequence(xs, cell.initial_state(1)))(qrnn.QRNN(D, H, 2, dtype=xs.dtype))))
    xs = np.random.RandomState(0).normal(size=[2048, 1, D])
    params = oracle.random_like(jax.eval_shape(at_once.init, jax.random.key(0), xs))
    p = oracle.as_numpy(params["qrnn"])
    expected, *_ = loop(p, xs[:, 0], np.zeros(H), np.zeros(D))
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    for read in (cell, at_once):
      found, _ = jax.jit(read.apply)(narrow, np.float32(xs))
      self.assertEqual(found.dtype, jnp.float32)
      np.testing.assert_allclose(found[:, 0], expected, atol=3e-6)

  @parameterized.parameters("float32", "bfloat16", "float64")
  def test_dtype_is_kept_with_x64_on(self, dtype):
    self.check_dtype(reader(2, jnp.dtype(dtype)), dtype)

  def test_gates_shut_by_hand(self):
    """An open forget gate keeps c, a shut one takes z; the output gate lets it out or not."""
    cell = hk.without_apply_rng(hk.transform(
        lambda c: qrnn.QRNN(1, 1, dtype=jnp.float64).trace(jnp.ones([1, 1]),
                                                           qrnn.QRNNState(c, None))))
    for b, c, h in (([9.0, 800, 800], 0.25, 0.25), ([0.5, -800, 800], np.tanh(0.5), np.tanh(0.5)),
                    ([9.0, 800, -800], 0.25, 0.0)):
      params = {"qrnn": {"w_ih": np.zeros([3, 1]), "b": np.array(b)}}
      y, state, gates = jax.jit(cell.apply)(params, np.full([1, 1], 0.25))
      self.assert_close((y, state.c), (np.array([[h]]), np.array([[c]])))
      self.assert_close([gates[name][0, 0] for name in "zfo"],
                        [np.tanh(b[0]), float(b[1] > 0), float(b[2] > 0)])

  @parameterized.parameters(1, 2)
  def test_size_in_a_model(self, window):
    config = hklm.ModelConfig(7, 4, 9, 2, (9, 6), cell="qrnn", qrnn_window=window)
    params = jax.eval_shape(hklm.language_model(config).init, jax.random.key(0))
    layers = 3 * 9 * (4 * window + 1) + 3 * 6 * (9 * window + 1)
    self.assertEqual(sum(leaf.size for leaf in jax.tree.leaves(params)), 7 * 4 + layers + 7 * 6 + 7)

  def test_first_biases_in_a_model(self):
    config = hklm.ModelConfig(7, 4, 6, cell="qrnn", forget_bias=2.0, init="zeros")
    params = hklm.language_model(config).init(jax.random.key(0))
    np.testing.assert_array_equal(params["qrnn_0"]["b"], np.repeat([0.0, 2.0, 0.0], 6))


if __name__ == "__main__":
  absltest.main()
