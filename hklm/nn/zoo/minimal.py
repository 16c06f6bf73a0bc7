"""minLSTM and minGRU: gates that read the input alone, so that all steps are one parallel scan.

Feng et al. 2024 (arXiv 2410.01201), in the version of its appendix that computes with logarithms:
states are positive, candidates pass through

  g(v) = v + 1/2      where v >= 0
         sigmoid(v)   elsewhere

and the state before the first input is g(0) = 1/2. Logarithms are float32 or wider.
"""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.nn.product import times
from hklm.nn.zoo import scans


class MinimalState(NamedTuple):
  """`h [B, H]`, positive."""

  h: jax.Array


class Minimal(hk.RNNCore):
  """What both cells are: `h' = f * h + i * g(v)`, with `f`, `i` and `v` from the input.

  Parameters: `w_ih [NH, D]`, `b [NH]` for N blocks of rows.
  """

  reads_sequences = True
  blocks: int  # N

  def __init__(self, hidden_size: int, w_init: hk.initializers.Initializer | None = None,
               b_init: hk.initializers.Initializer | None = None, dtype=jnp.float32,
               name: str | None = None):
    """Makes a cell.

    Args:
      hidden_size: H.
      w_init: for `w_ih`; uniform within 1/sqrt(H) when not given.
      b_init: for `b`; as `w_init` when not given.
      dtype: of parameters and state.
      name: of the module.
    """
    super().__init__(name=name)
    uniform = hk.initializers.RandomUniform(-hidden_size**-0.5, hidden_size**-0.5)
    self._hidden_size, self._dtype = hidden_size, dtype
    self._w_init, self._b_init = w_init or uniform, b_init or w_init or uniform

  def initial_state(self, batch_size: int) -> MinimalState:
    """g(0) = 1/2."""
    return MinimalState(jnp.full([batch_size, self._hidden_size], 0.5, self._dtype))

  def output(self, state: MinimalState) -> jax.Array:
    """`[B, H]`: the output vector is the state."""
    return state.h

  def __call__(self, x: jax.Array, state: MinimalState) -> tuple[jax.Array, MinimalState]:
    """One step: x `[B, D]` and state to h' `[B, H]` and state'."""
    h, state, _ = self.trace(x, state)
    return h, state

  def trace(self, x: jax.Array, state: MinimalState
            ) -> tuple[jax.Array, MinimalState, dict[str, jax.Array]]:
    """One step, with f and i, each `[B, H]`."""
    f, i, g = map(jnp.exp, self._logs(x))
    h = (f * state.h + i * g).astype(state.h.dtype)
    return h, MinimalState(h), {"f": f, "i": i}

  def sequence(self, xs: jax.Array, state: MinimalState, mask: jax.Array | None = None,
               unused_impl: str = "") -> tuple[jax.Array, MinimalState]:
    """Many steps at once, with the numbers of one after the other up to rounding.

    In float32 both are within 1e-5 of themselves of the exact numbers, for T up to 2048.

    Args:
      xs: `[T, B, D]`.
      state: the state before.
      mask: `[T, B]`; where false the state passes through. None: all true.
      unused_impl: there is one way, whatever the LSTM's.

    Returns:
      `h` after every step `[T, B, H]`, and the state after the last.
    """
    log_f, log_i, log_g = self._logs(xs)
    hs = scans.log_linear(log_f, log_i + log_g, state.h, mask).astype(state.h.dtype)
    return hs, MinimalState(hs[-1])

  def _logs(self, x):
    """The logarithms of f, i and g(v)."""
    rows = self.blocks * self._hidden_size
    w_ih = hk.get_parameter("w_ih", [rows, x.shape[-1]], self._dtype, self._w_init)
    b = hk.get_parameter("b", [rows], self._dtype, self._b_init)
    z = times(x, w_ih) + b
    *gates, v = jnp.split(z.astype(jnp.promote_types(z.dtype, jnp.float32)), self.blocks, axis=-1)
    log_f, log_i = self.log_gates(*gates)
    # The branch that is not taken has a finite derivative too.
    log_g = jnp.where(v >= 0, jnp.log(jnp.where(v >= 0, v, 0) + 0.5), jax.nn.log_sigmoid(v))
    return log_f, log_i, log_g


class MinLSTM(Minimal):
  r"""The minimal LSTM.

  For input `x` and state `h`, blocks in the order f, i, v along the rows:

    [f i v] = W_ih x + b
    f' = sigmoid(f) / (sigmoid(f) + sigmoid(i))
    i' = sigmoid(i) / (sigmoid(f) + sigmoid(i))
    h' = f' * h + i' * g(v)

  Feng et al. 2024, section 3.2; in logarithms, as in the appendix,
  `log f' = -softplus(d)` and `log i' = -softplus(-d)` for `d = softplus(-f) - softplus(-i)`.

  >>> def f(xs):
  ...   cell = MinLSTM(3)
  ...   return cell.sequence(xs, cell.initial_state(2))
  >>> f = hk.without_apply_rng(hk.transform(f))
  >>> params = f.init(jax.random.key(0), jnp.ones([7, 2, 5]))
  >>> {name: p.shape for name, p in sorted(params["min_lstm"].items())}
  {'b': (9,), 'w_ih': (9, 5)}
  """

  blocks = 3

  def log_gates(self, f: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`log f'` and `log i'`."""
    d = jax.nn.softplus(-f) - jax.nn.softplus(-i)
    return -jax.nn.softplus(d), -jax.nn.softplus(-d)


class MinGRU(Minimal):
  r"""The minimal GRU.

  For input `x` and state `h`, blocks in the order z, v along the rows:

    [z v] = W_ih x + b
    h' = (1 - sigmoid(z)) * h + sigmoid(z) * g(v)

  Feng et al. 2024, section 3.1; in logarithms, as in the appendix, `log(1 - sigmoid(z)) =
  -softplus(z)` and `log sigmoid(z) = -softplus(-z)`.

  >>> def f(xs):
  ...   cell = MinGRU(3)
  ...   return cell.sequence(xs, cell.initial_state(2))
  >>> f = hk.without_apply_rng(hk.transform(f))
  >>> params = f.init(jax.random.key(0), jnp.ones([7, 2, 5]))
  >>> {name: p.shape for name, p in sorted(params["min_gru"].items())}
  {'b': (6,), 'w_ih': (6, 5)}
  """

  blocks = 2

  def log_gates(self, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`log(1 - sigmoid(z))` and `log sigmoid(z)`."""
    return -jax.nn.softplus(z), -jax.nn.softplus(-z)
