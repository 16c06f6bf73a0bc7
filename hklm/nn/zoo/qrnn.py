"""The quasi-recurrent network: all but an elementwise average is computed for all steps at once."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
from jax import lax

from hklm.nn.product import times
from hklm.nn.zoo import scans


class QRNNState(NamedTuple):
  """`c [B, H]`, and the input before `x [B, D]`, None where it is not read."""

  c: jax.Array
  x: jax.Array | None


class QRNN(hk.RNNCore):
  r"""A layer of a quasi-recurrent network with fo-pooling.

  With `W * x` a convolution over the last k inputs, k = 1 or 2:

    z = tanh(W_z * x + b_z)
    f = sigmoid(W_f * x + b_f)
    o = sigmoid(W_o * x + b_o)
    c' = f * c + (1 - f) * z
    h' = o * c'

  Bradbury et al. 2016 (arXiv 1611.01576), equations 1 and 2, the convolutions, and 4, fo-pooling;
  the biases are those of the authors' code, and what stands before the first input is zero.
  Parameters: `w_ih [3H, kD]`, in the order z, f, o along the rows, and along the columns the input
  and then the one before; `b [3H]`.

  >>> def f(xs):
  ...   cell = QRNN(5, 3, window=2)
  ...   return cell.sequence(xs, cell.initial_state(2))
  >>> f = hk.without_apply_rng(hk.transform(f))
  >>> params = f.init(jax.random.key(0), jnp.ones([7, 2, 5]))
  >>> {name: p.shape for name, p in sorted(params["qrnn"].items())}
  {'b': (9,), 'w_ih': (9, 10)}
  >>> hs, state = f.apply(params, jnp.ones([7, 2, 5]))
  >>> hs.shape, state.c.shape, state.x.shape
  ((7, 2, 3), (2, 3), (2, 5))
  """

  reads_sequences = True

  def __init__(self, input_size: int, hidden_size: int, window: int = 1, forget_bias: float = 0.0,
               w_init: hk.initializers.Initializer | None = None,
               b_init: hk.initializers.Initializer | None = None, dtype=jnp.float32,
               name: str = "qrnn"):
    """Makes a cell.

    Args:
      input_size: D.
      hidden_size: H.
      window: k, 1 or 2.
      forget_bias: added to the forget gate's part of `b` at initialisation.
      w_init: for `w_ih`; uniform within 1/sqrt(H) when not given.
      b_init: for `b`; as `w_init` when not given.
      dtype: of parameters and state.
      name: of the module.
    """
    super().__init__(name=name)
    uniform = hk.initializers.RandomUniform(-hidden_size**-0.5, hidden_size**-0.5)
    self._input_size, self._hidden_size, self._window = input_size, hidden_size, window
    self._forget_bias, self._dtype = forget_bias, dtype
    self._w_init, self._b_init = w_init or uniform, b_init or w_init or uniform

  def initial_state(self, batch_size: int) -> QRNNState:
    """Zeros."""
    x = jnp.zeros([batch_size, self._input_size], self._dtype) if self._window == 2 else None
    return QRNNState(jnp.zeros([batch_size, self._hidden_size], self._dtype), x)

  def __call__(self, x: jax.Array, state: QRNNState) -> tuple[jax.Array, QRNNState]:
    """One step: x `[B, D]` and state to h' `[B, H]` and state'."""
    h, state, _ = self.trace(x, state)
    return h, state

  def trace(self, x: jax.Array, state: QRNNState
            ) -> tuple[jax.Array, QRNNState, dict[str, jax.Array]]:
    """One step, with z, f and o after their non-linearities, each `[B, H]`."""
    z, f, o = self._gates(x, state.x)
    c = f * state.c + (1 - f) * z
    state = QRNNState(c, None if state.x is None else x)
    return o * c, state, {"z": z, "f": f, "o": o}

  def sequence(self, xs: jax.Array, state: QRNNState, mask: jax.Array | None = None,
               unused_impl: str = "") -> tuple[jax.Array, QRNNState]:
    """Many steps at once, with the numbers of one after the other up to rounding.

    Args:
      xs: `[T, B, D]`.
      state: the state before.
      mask: `[T, B]`; where false the state passes through, and the output means nothing. None: all
        true.
      unused_impl: there is one way, whatever the LSTM's.

    Returns:
      `h` after every step `[T, B, H]`, and the state after the last.
    """
    before, last = _previous(xs, state.x, mask)
    z, f, o = self._gates(xs, before)
    cs = scans.linear(f, (1 - f) * z, state.c, mask)
    return o * cs, QRNNState(cs[-1], last)

  def _gates(self, x, before):
    H = self._hidden_size
    read = x if before is None else jnp.concatenate([x, before], axis=-1)
    w_ih = hk.get_parameter("w_ih", [3 * H, self._window * self._input_size], self._dtype,
                            self._w_init)
    b = hk.get_parameter("b", [3 * H], self._dtype, self._init_bias)
    z, f, o = jnp.split(times(read, w_ih) + b, 3, axis=-1)
    return jnp.tanh(z), jax.nn.sigmoid(f), jax.nn.sigmoid(o)

  def _init_bias(self, shape, dtype):
    H = self._hidden_size
    return self._b_init(shape, dtype).at[H:2 * H].add(self._forget_bias)


def _previous(xs, x, mask):
  """The last live input before each step `[T, B, D]`, and the last of all `[B, D]`."""
  if x is None:
    return None, None
  every = jnp.concatenate([x[None], xs])
  if mask is None:
    return every[:-1], every[-1]
  places = jnp.arange(1, len(every))[:, None]
  last = lax.cummax(jnp.where(mask, places, 0))  # [T, B]: where in `every` the last live one stands
  last = jnp.concatenate([jnp.zeros_like(last[:1]), last])
  found = jnp.take_along_axis(every, last[..., None], axis=0)
  return found[:-1], found[-1]
