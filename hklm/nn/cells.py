"""Recurrent cells: each an `hk.RNNCore`, its equation above it, usable alone.

Beyond `hk.RNNCore` a cell may offer `output(state) -> [B, D]`, what it would put out in that state
before reading anything (zeros otherwise), and `trace(x, state) -> (h, state, gates)`, its gates by
name, for looking inside. An `LSTM` also reads a whole `sequence` at once.
"""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.nn import cudnn, lstm, sharded
from hklm.nn.embedding import Lookup
from hklm.nn.product import times


class LSTMState(NamedTuple):
  """`h` and `c`, each `[B, H]`."""

  h: jax.Array
  c: jax.Array


class LSTM(hk.RNNCore):
  r"""Long short-term memory, in PyTorch's layout.

  For input `x` and state `(h, c)`, gates in the order i, f, g, o along the rows:

    [i f g o] = W_ih x + W_hh h + b
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h' = sigmoid(o) * tanh(c')

  Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000, equations 7 to 9.
  Parameters: `w_ih [4H, D]`, `w_hh [4H, H]`, `b [4H]` (and `b_hh [4H]` with two biases, added),
  `c_0 [H]` with a learned initial state, for which `h_0 = tanh(c_0)`.

  >>> def f(x):
  ...   lstm = LSTM(3)
  ...   return lstm(x, lstm.initial_state(2))
  >>> f = hk.without_apply_rng(hk.transform(f))
  >>> params = f.init(jax.random.key(0), jnp.ones([2, 5]))
  >>> {name: p.shape for name, p in sorted(params["lstm"].items())}
  {'b': (12,), 'w_hh': (12, 3), 'w_ih': (12, 5)}
  >>> h, state = f.apply(params, jnp.ones([2, 5]))
  >>> h.shape, state.c.shape
  ((2, 3), (2, 3))
  """

  def __init__(self, hidden_size: int, num_biases: int = 1, forget_bias: float = 0.0,
               learned_state: bool = False, w_init: hk.initializers.Initializer | None = None,
               b_init: hk.initializers.Initializer | None = None, dtype=jnp.float32,
               input_gate: str = "free", name: str = "lstm"):
    """Makes a cell.

    Args:
      hidden_size: H.
      num_biases: 1, or 2 as in PyTorch.
      forget_bias: added to the forget gate's part of `b` at initialisation.
      learned_state: whether `c_0` is a parameter; otherwise the initial state is zero.
      w_init: for both matrices, drawn as the columns of one `[4H, D + H]`; uniform within
        1/sqrt(H) when not given.
      b_init: for the biases; as `w_init` when not given.
      dtype: of parameters and state.
      input_gate: `free`; `coupled`, i = 1 - f, without parameters of its own (Greff et al. 2017,
        section 3, CIFG); `capped`, at most 1 - f (Melis et al. 2018, section 3).
      name: of the module.
    """
    super().__init__(name=name)
    uniform = hk.initializers.RandomUniform(-hidden_size**-0.5, hidden_size**-0.5)
    self.hidden_size, self.num_biases, self.learned_state = hidden_size, num_biases, learned_state
    self._forget_bias, self._dtype, self._input_gate = forget_bias, dtype, input_gate
    self.reads_sequences = input_gate == "free"
    self._w_init, self._b_init = w_init or uniform, b_init or w_init or uniform

  def initial_state(self, batch_size: int) -> LSTMState:
    """Zero, or `c = c_0` and `h = tanh(c_0)` for every row of the batch."""
    H = self.hidden_size
    c = jnp.zeros([H], self._dtype)
    if self.learned_state:
      c = hk.get_parameter("c_0", [H], self._dtype, jnp.zeros)
    c = jnp.broadcast_to(c, [batch_size, H])
    return LSTMState(h=jnp.tanh(c), c=c)

  def output(self, state: LSTMState) -> jax.Array:
    """`[B, H]`: the output vector is part of the state."""
    return state.h

  def __call__(self, x: jax.Array, state: LSTMState) -> tuple[jax.Array, LSTMState]:
    """One step: x `[B, D]` and state to h' `[B, H]` and state'."""
    h, state, _ = self.trace(x, state)
    return h, state

  def trace(self, x: jax.Array, state: LSTMState
            ) -> tuple[jax.Array, LSTMState, dict[str, jax.Array]]:
    """One step, with the gates i, f, g, o after their non-linearities, each `[B, H]`."""
    w_ih, w_hh, b = self.parameters(x.shape[-1])
    z = times(x, w_ih) + times(state.h, w_hh) + b  # [B, 4H]
    i, f, g, o = jnp.split(z, 4, axis=-1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    c = f * state.c + i * g
    h = o * jnp.tanh(c)
    return h, LSTMState(h, c), {"i": i, "f": f, "g": g, "o": o}

  def sequence(self, xs: jax.Array | Lookup, state: LSTMState, mask: jax.Array | None,
               impl: str) -> tuple[jax.Array, LSTMState]:
    """Many steps at once, with the numbers of one after the other.

    Args:
      xs: `[T, B, D]`.
      state: the state before.
      mask: `[T, B]`; where false the state passes through. None: all true.
      impl: `fused` or `cudnn`, which serves where `cudnn.supported` says so.

    Returns:
      `h` after every step `[T, B, H]`, and the state after the last.
    """
    if isinstance(xs, Lookup):
      w_ih, w_hh, b = self.parameters(xs.table.shape[1])
      w_ih, xs = w_ih @ xs.table.T, xs.one_hot
    else:
      w_ih, w_hh, b = self.parameters(xs.shape[-1])
    by_cudnn = impl == "cudnn" and cudnn.supported(self._dtype, mask)
    read, inputs = (cudnn.sequence, ()) if by_cudnn else (lstm.sequence, (mask,))
    specs = (sharded.SHARED,) * 3 + (sharded.STEPS, sharded.ROWS, sharded.ROWS)
    ys, state = sharded.by_device(
        read, specs + (sharded.STEPS,) * len(inputs), (sharded.STEPS, sharded.ROWS), xs.shape[1],
        check=not by_cudnn)(w_ih, w_hh, b, xs, *state, *inputs)
    return ys, LSTMState(*state)

  def parameters(self, input_size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`W_ih [4H, D]`, `W_hh [4H, H]` and the bias, or the sum of both biases, `[4H]`."""
    H, D = self.hidden_size, input_size
    w_ih = hk.get_parameter("w_ih", [4 * H, D], self._dtype,
                            lambda _, dtype: self._w_init([4 * H, D + H], dtype)[:, :D])
    w_hh = hk.get_parameter("w_hh", [4 * H, H], self._dtype,
                            lambda _, dtype: self._w_init([4 * H, D + H], dtype)[:, D:])
    b = hk.get_parameter("b", [4 * H], self._dtype, self._init_bias)
    if self.num_biases == 2:
      b += hk.get_parameter("b_hh", [4 * H], self._dtype, self._b_init)
    return w_ih, w_hh, b

  def _init_bias(self, shape, dtype):
    H = self.hidden_size
    return self._b_init(shape, dtype).at[H:2 * H].add(self._forget_bias)
