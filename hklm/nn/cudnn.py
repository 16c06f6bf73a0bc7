"""The LSTM over a whole sequence, computed by NVIDIA's cuDNN through `jax.experimental.rnn`.

The equations, the layout of the parameters and the numbers are those of `hklm.nn.cells.LSTM`; only
who computes them differs. cuDNN wants the batch first, two biases, and all weights in one vector:
all of that is done here, inside the differentiated function, so that gradients come back in the
parameters' own shapes, and a matrix that was masked before is masked here as well.

What cuDNN cannot do is not tried: other numbers than float32, masks, forward-mode and second
derivatives, `vmap`.
"""

import chex
import jax
import jax.numpy as jnp

from hklm.errors import InputError


def available() -> bool:
  """Whether the first of jax's default devices is an NVIDIA GPU.

  >>> available() == ("NVIDIA" in jax.devices()[0].device_kind)
  True
  """
  # An AMD GPU is a "gpu" to `jax.default_backend` too; its version says "rocm".
  return "cuda" in jax.devices()[0].client.platform_version.lower()


def supported(dtype, mask: jax.Array | None = None) -> bool:
  """Whether cuDNN has what a call needs, wherever it is made.

  Args:
    dtype: of parameters, inputs and state; cuDNN's LSTM has float32 here.
    mask: `[T, B]` or None. cuDNN reads every row to its end: a mask, even of true values only, is
      for the other implementations.

  >>> supported("float32"), supported("bfloat16"), supported("float32", jnp.ones([3, 2], bool))
  (True, False, False)
  """
  return jnp.dtype(dtype) == jnp.float32 and mask is None


def check(dtype="float32"):
  """Refuses `--lstm_impl=cudnn` where it cannot serve.

  Args:
    dtype: of the model.

  Raises:
    InputError: there is no NVIDIA GPU that jax can use, or the model is not float32.

  >>> check("float64")
  Traceback (most recent call last):
  hklm.errors.InputError: --lstm_impl=cudnn computes in float32; found --dtype=float64; needed: \
--dtype=float32 or --lstm_impl=auto
  """
  if not supported(dtype):
    raise InputError(f"--lstm_impl=cudnn computes in float32; found --dtype={jnp.dtype(dtype)}; "
                     "needed: --dtype=float32 or --lstm_impl=auto")
  if not available():
    raise InputError("--lstm_impl=cudnn needs an NVIDIA GPU and jax's CUDA plugin; found "
                     f"{jax.devices()[0].device_kind}; needed: --lstm_impl=auto")


def pack(w_ih: jax.Array, w_hh: jax.Array, b: jax.Array) -> jax.Array:
  """The parameters as cuDNN's one vector `[4H * (D + H + 2)]`; its second bias is zero.

  Args:
    w_ih: `[4H, D]`, gates in the order i, f, g, o along the rows, which is cuDNN's own.
    w_hh: `[4H, H]`.
    b: `[4H]`.

  >>> pack(jnp.ones([4, 2]), 2 * jnp.ones([4, 1]), 3 * jnp.ones([4])).astype(int).tolist()
  [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 0, 0, 0]
  """
  return jnp.concatenate([w_ih.ravel(), w_hh.ravel(), b, jnp.zeros_like(b)])


def sequence(w_ih: jax.Array, w_hh: jax.Array, b: jax.Array, xs: jax.Array, h: jax.Array,
             c: jax.Array, precision: jax.lax.PrecisionLike = jax.lax.Precision.HIGHEST,
             lstm=None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
  """One layer over all time steps. All arrays are float32.

  Args:
    w_ih: `[4H, D]`, gates in the order i, f, g, o along the rows.
    w_hh: `[4H, H]`.
    b: `[4H]`; the sum where a cell has two biases.
    xs: `[T, B, D]`, neither of T and B zero.
    h: `[B, H]`.
    c: `[B, H]`.
    precision: of the matrix products. The default is full float32, whatever
      `jax_default_matmul_precision` says, so that the numbers are those of the cell; `"high"` lets
      cuDNN round the factors to TF32, which has 10 bits of mantissa in place of 23.
    lstm: what computes, with the arguments of `jax.experimental.rnn.lstm`, which it is when not
      given; that one runs on NVIDIA GPUs alone.

  Returns:
    The outputs `[T, B, H]` and the state `(h, c)` after the last step.

  >>> from jax.experimental import rnn
  >>> def reference(x, h, c, weights, lengths, *, precision, dropout, **sizes):
  ...   return rnn.lstm_ref(x, h, c, *rnn.unpack_lstm_weights(weights, **sizes), lengths,
  ...                       dropout=dropout, **sizes)
  >>> w_ih, w_hh, b, xs, h, c = map(jnp.ones, ([12, 5], [12, 3], 12, [7, 2, 5], [2, 3], [2, 3]))
  >>> ys, (h, c) = sequence(w_ih, w_hh, b, xs, h, c, lstm=reference)
  >>> ys.shape, h.shape, c.shape
  ((7, 2, 3), (2, 3), (2, 3))
  """
  T, B, D = xs.shape
  H = h.shape[-1]
  chex.assert_shape([w_ih, w_hh, b, h, c], [(4 * H, D), (4 * H, H), (4 * H,), (B, H), (B, H)])
  # The kernel would read any other numbers as if they were float32.
  chex.assert_type([w_ih, w_hh, b, xs, h, c], jnp.float32)
  if lstm is None:
    from jax.experimental import rnn  # not before: it loads cuDNN
    lstm = rnn.lstm
  ys, h, c = lstm(
      jnp.swapaxes(xs, 0, 1), h[None], c[None], pack(w_ih, w_hh, b), jnp.full([B], T, jnp.int32),
      input_size=D, hidden_size=H, num_layers=1, dropout=0.0, bidirectional=False,
      precision=precision)
  return jnp.swapaxes(ys, 0, 1), (h[0], c[0])
