"""What cells have in common: parameters in PyTorch's layout, gates by name, an output that is `h`.

Dimension letters: B batch, D input, H hidden, R output (H unless a cell says otherwise), N rows: H
for each gate.
"""

import abc
import functools
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.nn.product import times


class LSTMState(NamedTuple):
  """`h` `[B, R]` and `c` `[B, H]`."""

  h: jax.Array
  c: jax.Array


class Core(hk.RNNCore):
  """A cell with one matrix for its input, one for its `h`, and up to two biases.

  Parameters: `w_ih [N, D]`, `w_hh [N, R]`, `b [N]` (and `b_hh [N]` with two biases, neither with
  none). A cell sets `gates`, a letter for each block of H rows, and says in `advance` what a step
  does once `inputs` has read x: of many steps, that is one product.
  """

  gates: str
  recurrent = ("w_hh",)

  def __init__(self, hidden_size: int, num_biases: int = 1,
               w_init: hk.initializers.Initializer | None = None,
               b_init: hk.initializers.Initializer | None = None, dtype=jnp.float32,
               forget_bias: float = 0.0, name: str | None = None):
    """Makes a cell.

    Args:
      hidden_size: H.
      num_biases: 1, 2 as in PyTorch, or 0.
      w_init: for both matrices, drawn as the columns of one `[N, D + R]`; uniform within 1/sqrt(H)
        when not given.
      b_init: for the biases; as `w_init` when not given.
      dtype: of parameters and state.
      forget_bias: added to the part of `b` of a gate f at initialisation.
      name: of the module; the class's in small letters when not given.
    """
    super().__init__(name=name)
    uniform = hk.initializers.RandomUniform(-hidden_size**-0.5, hidden_size**-0.5)
    self.hidden_size, self.output_size, self.num_biases = hidden_size, hidden_size, num_biases
    self._forget_bias, self._dtype = forget_bias, dtype
    self._w_init, self._b_init = w_init or uniform, b_init or w_init or uniform

  def inputs(self, x: jax.Array) -> jax.Array:
    """All that x `[..., D]` has to do with a step: `W_ih x`, `[..., N]`."""
    w_ih, *_ = self.parameters(x.shape[-1])
    return times(x, w_ih)

  @abc.abstractmethod
  def advance(self, inputs: jax.Array, state: NamedTuple
              ) -> tuple[jax.Array, NamedTuple, dict[str, jax.Array]]:
    """One step: `inputs` `[B, N]` and state to h', state', and the gates by name, each `[B, H]`."""

  def trace(self, x: jax.Array, state: NamedTuple
            ) -> tuple[jax.Array, NamedTuple, dict[str, jax.Array]]:
    """One step: x `[B, D]` and state to h', state', and the gates by name, each `[B, H]`."""
    return self.advance(self.inputs(x), state)

  def __call__(self, x: jax.Array, state: NamedTuple) -> tuple[jax.Array, NamedTuple]:
    """One step: x `[B, D]` and state to h' `[B, R]` and state'."""
    h, state, _ = self.trace(x, state)
    return h, state

  def output(self, state: NamedTuple) -> jax.Array:
    """`[B, R]`: the output vector is part of the state."""
    return state.h

  def parameters(self, input_size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`W_ih [N, D]`, `W_hh [N, R]` and the sum of the biases, `[N]`."""
    return *self._matrices(input_size), self._bias()

  def _matrices(self, input_size):
    N, D, R = len(self.gates) * self.hidden_size, input_size, self.output_size
    w_ih = hk.get_parameter("w_ih", [N, D], self._dtype,
                            lambda _, dtype: self._w_init([N, D + R], dtype)[:, :D])
    w_hh = hk.get_parameter("w_hh", [N, R], self._dtype,
                            lambda _, dtype: self._w_init([N, D + R], dtype)[:, D:])
    return w_ih, w_hh

  def _biases(self):
    N = len(self.gates) * self.hidden_size
    inits = {"b": self._init_bias, "b_hh": self._b_init}
    return [hk.get_parameter(name, [N], self._dtype, inits[name])
            for name in tuple(inits)[:self.num_biases]]

  def _bias(self):
    if not self.num_biases:
      return jnp.zeros([len(self.gates) * self.hidden_size], self._dtype)
    return functools.reduce(jnp.add, self._biases())

  def _init_bias(self, shape, dtype):
    H, f = self.hidden_size, self.gates.find("f")
    b = self._b_init(shape, dtype)
    return b if f < 0 else b.at[f * H:(f + 1) * H].add(self._forget_bias)

  def _w_hh(self):
    """W_hh, which `inputs` has made."""
    return hk.get_parameter("w_hh", [len(self.gates) * self.hidden_size, self.output_size],
                            self._dtype)

  def _sums(self, inputs, h):
    """`W_ih x + W_hh h + b`, a `[B, H]` for each gate."""
    z = inputs + times(h, self._w_hh()) + self._bias()
    return jnp.split(z, len(self.gates), axis=-1)


class LSTMCore(Core):
  """An LSTM of some kind, which may start from a parameter `c_0 [H]`."""

  gates = "ifgo"

  def __init__(self, hidden_size: int, num_biases: int = 1, forget_bias: float = 0.0,
               learned_state: bool = False, w_init: hk.initializers.Initializer | None = None,
               b_init: hk.initializers.Initializer | None = None, dtype=jnp.float32,
               name: str | None = None):
    """Makes a cell.

    Args:
      hidden_size: H.
      num_biases: 1, 2 as in PyTorch, or 0.
      forget_bias: added to the forget gate's part of `b` at initialisation.
      learned_state: whether `c_0` is a parameter; otherwise the initial state is zero.
      w_init: see `Core`.
      b_init: see `Core`.
      dtype: of parameters and state.
      name: of the module; the class's in small letters when not given.
    """
    super().__init__(hidden_size, num_biases, w_init, b_init, dtype, forget_bias, name)
    self.learned_state = learned_state

  def initial_state(self, batch_size: int) -> LSTMState:
    """Zero, or `c = c_0` and `h = tanh(c_0)` for every row of the batch."""
    H = self.hidden_size
    c = jnp.zeros([H], self._dtype)
    if self.learned_state:
      c = hk.get_parameter("c_0", [H], self._dtype, jnp.zeros)
    c = jnp.broadcast_to(c, [batch_size, H])
    return LSTMState(h=jnp.tanh(c), c=c)
