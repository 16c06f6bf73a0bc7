"""The way to cuDNN and back: with jax's reference in its place, and with cuDNN where it is."""

from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from jax.experimental import rnn

from hklm.errors import InputError
from hklm.nn import cudnn
from tests import oracle

T, B, D, H = 4, 2, 3, 5


def shape(*sizes):
  return jax.ShapeDtypeStruct(sizes, jnp.float32)


ARGUMENTS = {"w_ih": shape(4 * H, D), "w_hh": shape(4 * H, H), "b": shape(4 * H),
             "xs": shape(T, B, D), "h": shape(B, H), "c": shape(B, H)}
RESULTS = shape(T, B, H), (shape(B, H), shape(B, H))


def reference(x, h_0, c_0, weights, seq_lengths, *, precision, dropout, **sizes):
  """jax's own LSTM in plain jax, from cuDNN's arguments."""
  del precision
  return rnn.lstm_ref(x, h_0, c_0, *rnn.unpack_lstm_weights(weights, **sizes), seq_lengths,
                      dropout=dropout, **sizes)


over_kernels = parameterized.named_parameters(("reference", reference), ("cudnn", None))


def float64(tree):
  return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def numpy_sequence(w_ih, w_hh, b, xs, h, c):
  """What `cudnn.sequence` is to compute, in NumPy's float64."""
  ys = []
  for x in xs:
    i, f, g, o = np.split(x @ w_ih.T + h @ w_hh.T + b, 4, axis=-1)
    c = oracle.sigmoid(f) * c + oracle.sigmoid(i) * np.tanh(g)
    h = oracle.sigmoid(o) * np.tanh(c)
    ys.append(h)
  return np.stack(ys), (h, c)


def inner(results, factors):
  """A number that every result has a share of."""
  pairs = zip(jax.tree.leaves(results), jax.tree.leaves(factors), strict=True)
  return sum((result * factor).sum() for result, factor in pairs)


class SequenceTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    # A GPU would round the reference's factors.
    self.enter_context(jax.default_matmul_precision("float32"))

  def skip_without(self, kernel):
    if kernel is None and not cudnn.available():
      self.skipTest("cuDNN needs an NVIDIA GPU")

  @over_kernels
  def test_values(self, kernel):
    self.skip_without(kernel)
    args = oracle.random_like(ARGUMENTS)
    results = cudnn.sequence(**args, lstm=kernel)
    chex.assert_trees_all_close(results, numpy_sequence(**float64(args)), rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_equal_shapes_and_dtypes(results, RESULTS)

  @over_kernels
  def test_gradients_through_a_recurrent_matrix_with_holes(self, kernel):
    self.skip_without(kernel)
    args, factors = oracle.random_like(ARGUMENTS), oracle.random_like(RESULTS, seed=1)
    mask = 2 * np.random.RandomState(2).randint(2, size=[4 * H, H])  # weight drop's, at rate 1/2

    def ours(args):
      args = args | {"w_hh": args["w_hh"] * mask}
      return inner(cudnn.sequence(**args, lstm=kernel), factors)

    def numpys(args):
      return inner(numpy_sequence(**args | {"w_hh": args["w_hh"] * mask}), float64(factors))

    gradients, args = jax.grad(ours)(args), float64(args)
    differences = {name: np.zeros_like(value) for name, value in args.items()}
    for name, value in args.items():
      for index in np.ndindex(value.shape):
        step = np.zeros_like(value)
        step[index] = 1e-5
        high, low = (numpys(args | {name: value + sign * step}) for sign in (1, -1))
        differences[name][index] = (high - low) / 2e-5
    chex.assert_trees_all_close(gradients, differences, rtol=1e-5, atol=1e-5)
    self.assertGreater(min(np.max(np.abs(value)) for value in differences.values()), 0.1)

  def test_packed_weights_are_cudnns(self):
    parts = [oracle.random_like(ARGUMENTS)[name] for name in ("w_ih", "w_hh", "b")]
    packed = cudnn.pack(*parts)
    self.assertEqual(packed.shape, (rnn.get_num_params_in_lstm(D, H, 1, False),))
    chex.assert_trees_all_equal(rnn.unpack_lstm_weights(packed, D, H, 1, False),
                                tuple({0: part} for part in (*parts, jnp.zeros([4 * H]))))

  @parameterized.parameters((jax.lax.Precision.HIGHEST, False), ("float32", False), ("high", True))
  def test_cudnn_itself_is_called(self, precision, tf32):
    """As far as a machine without a GPU can tell: jax's own rules accept what they are given."""
    def objective(args):
      return inner(cudnn.sequence(**args, precision=precision), oracle.random_like(RESULTS))

    # The one thing that tracing asks the library for: how much memory it needs.
    with mock.patch.object(rnn.gpu_rnn, "compute_rnn_workspace_reserve_space_sizes", create=True,
                           return_value=(8, 8)):
      jaxpr, gradients = jax.make_jaxpr(jax.grad(objective), return_shape=True)(ARGUMENTS)
    calls = {equation.primitive.name: equation.params for equation in jaxpr.eqns
             if equation.primitive.name.startswith("rnn")}
    expected = {"input_size": D, "hidden_size": H, "num_layers": 1, "dropout": 0.0,
                "bidirectional": False, "cudnn_allow_tf32": tf32}
    self.assertEqual(calls, {"rnn_fwd": expected, "rnn_bwd": expected})
    chex.assert_trees_all_equal_shapes_and_dtypes(gradients, ARGUMENTS)

  def test_float32_is_the_default(self):
    precisions = []

    def kernel(*args, precision, **sizes):
      precisions.append(precision)
      return reference(*args, precision=precision, **sizes)

    with jax.default_matmul_precision("tensorfloat32"):
      jax.eval_shape(lambda args: cudnn.sequence(**args, lstm=kernel), ARGUMENTS)
    self.assertEqual(precisions, [jax.lax.Precision.HIGHEST])

  @parameterized.parameters(*ARGUMENTS)
  def test_a_wrong_shape_or_dtype_is_refused(self, name):
    args = oracle.random_like(ARGUMENTS)
    for wrong in (args[name][..., :-1], args[name].astype(jnp.bfloat16)):
      with self.assertRaises(AssertionError):
        cudnn.sequence(**args | {name: wrong}, lstm=reference)


class PlaceTest(parameterized.TestCase):

  def on(self, kind, version):
    device = mock.Mock(device_kind=kind)
    device.client.platform_version = version
    return mock.patch.object(jax, "devices", return_value=[device])

  @parameterized.parameters(
      ("NVIDIA H200", "PJRT C API\ncuda 12090", True),
      ("AMD Instinct MI300X", "PJRT C API\nrocm 60300", False),
      ("cpu", "cpu", False))
  def test_where_it_is_available(self, kind, version, expected):
    with self.on(kind, version):
      self.assertEqual(cudnn.available(), expected)
      if expected:
        cudnn.check("float32")
      else:
        with self.assertRaisesWithLiteralMatch(
            InputError, "--lstm_impl=cudnn needs an NVIDIA GPU and jax's CUDA plugin; found "
            f"{kind}; needed: --lstm_impl=auto"):
          cudnn.check("float32")

  @parameterized.parameters("float64", "bfloat16")
  def test_other_numbers_are_refused_everywhere(self, dtype):
    self.assertFalse(cudnn.supported(dtype))
    with self.on("NVIDIA H200", "PJRT C API\ncuda 12090"), self.assertRaisesWithLiteralMatch(
        InputError, f"--lstm_impl=cudnn computes in float32; found --dtype={dtype}; needed: "
        "--dtype=float32 or --lstm_impl=auto"):
      cudnn.check(dtype)

  def test_a_mask_is_not_supported(self):
    self.assertTrue(cudnn.supported("float32"))
    self.assertFalse(cudnn.supported("float32", np.ones([T, B], bool)))


if __name__ == "__main__":
  absltest.main()
