"""Recurrent cells: each an `hk.RNNCore`, its equation above it, usable alone.

Beyond `hk.RNNCore` a cell may offer `output(state) -> [B, D]`, what it would put out in that state
before reading anything (zeros otherwise), and `trace(x, state) -> (h, state, gates)`, its gates by
name, for looking inside. An `LSTM` also reads a whole `sequence` at once.
"""

import chex
import haiku as hk
import jax
import jax.numpy as jnp

from hklm.config.model import INPUT_GATES
from hklm.errors import InputError
from hklm.nn import cudnn, lstm, sharded
from hklm.nn.core import LSTMCore, LSTMState
from hklm.nn.embedding import Lookup


class LSTM(LSTMCore):
  r"""Long short-term memory, in PyTorch's layout.

  For input `x` and state `(h, c)`, gates in the order i, f, g, o along the rows:

    [i f g o] = W_ih x + W_hh h + b
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h' = sigmoid(o) * tanh(c')

  Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000, equations 7 to 9.
  Parameters: `w_ih [4H, D]`, `w_hh [4H, H]`, `b [4H]` (and `b_hh [4H]` with two biases, added;
  neither with none), `c_0 [H]` with a learned initial state, for which `h_0 = tanh(c_0)`.

  The input gate may depend on the forget gate. `coupled`: 1 - sigmoid(f) stands for sigmoid(i), and
  the matrices have 3H rows, f, g, o (Greff et al. 2017, CIFG). `capped`: min(sigmoid(i),
  1 - sigmoid(f)) does (Melis et al. 2018).

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
      num_biases: 1, 2 as in PyTorch, or 0.
      forget_bias: added to the forget gate's part of `b` at initialisation.
      learned_state: whether `c_0` is a parameter; otherwise the initial state is zero.
      w_init: for both matrices, drawn as the columns of one `[4H, D + H]`; uniform within
        1/sqrt(H) when not given.
      b_init: for the biases; as `w_init` when not given.
      dtype: of parameters and state.
      input_gate: `free`; `coupled`, 1 - f, without parameters of its own; `capped`, at most 1 - f.
      name: of the module.

    Raises:
      InputError: another `input_gate`.
    """
    super().__init__(hidden_size, num_biases, forget_bias, learned_state, w_init, b_init, dtype,
                     name)
    if input_gate not in INPUT_GATES:
      raise InputError(f"input_gate={input_gate!r} is unknown; needed: {', '.join(INPUT_GATES)}")
    self._input_gate = input_gate
    self.gates = "fgo" if input_gate == "coupled" else "ifgo"
    self.reads_sequences = input_gate == "free"

  def advance(self, inputs: jax.Array, state: LSTMState
              ) -> tuple[jax.Array, LSTMState, dict[str, jax.Array]]:
    """One step, with i, f, g, o as they enter the last two equations, each `[B, H]`."""
    *i, f, g, o = self._sums(inputs, state.h)
    f, g, o = jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    i = jax.nn.sigmoid(i[0]) if i else 1 - f
    if self._input_gate == "capped":
      i = jnp.minimum(i, 1 - f)
    c = f * state.c + i * g
    h = o * jnp.tanh(c)
    return h, LSTMState(h, c), {"i": i, "f": f, "g": g, "o": o}

  def sequence(self, xs: jax.Array | Lookup, state: LSTMState, mask: jax.Array | None,
               impl: str) -> tuple[jax.Array, LSTMState]:
    """Many steps at once, with the numbers of one after the other; for a free input gate.

    Args:
      xs: `[T, B, D]`.
      state: the state before.
      mask: `[T, B]`; where false the state passes through. None: all true.
      impl: `fused` or `cudnn`, which serves where `cudnn.supported` says so.

    Returns:
      `h` after every step `[T, B, H]`, and the state after the last.
    """
    chex.assert_equal(self._input_gate, "free")
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
