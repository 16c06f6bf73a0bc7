"""sLSTM: an LSTM with an exponential input gate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hklm.nn.core import Core


class SLSTMState(NamedTuple):
  """`h`, cell `c`, normaliser `n` and stabiliser `m`, each `[B, H]`."""

  h: jax.Array
  c: jax.Array
  n: jax.Array
  m: jax.Array


class SLSTM(Core):
  r"""The cell of xLSTM with scalar memories, gates in the order i, f, z, o along the rows.

    [i f z o] = W_ih x + W_hh h + b
    m' = max(log sigmoid(f) + m, i)
    i' = exp(i - m')
    f' = exp(log sigmoid(f) + m - m')
    c' = f' * c + i' * tanh(z)
    n' = f' * n + i'
    h' = sigmoid(o) * c' / n'

  Beck et al. 2024, equations 8 to 17, with one head, and for the forget gate, which may be a
  sigmoid or an exponential there, the sigmoid of the authors' code. `m` divides `c` and `n` alike,
  by exp(m), so that neither leaves the range of numbers; `h` does not depend on it. At first
  `c = n = 0` and `m` stands for the logarithm of 0, so that n' is at least 1 after any input.
  Parameters: `w_ih [4H, D]`, `w_hh [4H, H]`, `b [4H]`.

  >>> import haiku as hk
  >>> def f(x):
  ...   cell = SLSTM(3)
  ...   return cell(x, cell.initial_state(2))
  >>> f = hk.without_apply_rng(hk.transform(f))
  >>> h, state = f.apply(f.init(jax.random.key(0), jnp.ones([2, 5])), 1e6 * jnp.ones([2, 5]))
  >>> bool(jnp.isfinite(h).all()), float(state.n.min())
  (True, 1.0)
  """

  gates = "ifzo"

  def initial_state(self, batch_size: int) -> SLSTMState:
    """Zero, and of `m` a number so low that what was before the first input is forgotten."""
    zeros = jnp.zeros([batch_size, self.hidden_size], self._dtype)
    # Not -inf: a state is multiplied, averaged and looked at where inf would become NaN.
    return SLSTMState(zeros, zeros, zeros, zeros + jnp.finfo(self._dtype).min / 2)

  def advance(self, inputs: jax.Array, state: SLSTMState
              ) -> tuple[jax.Array, SLSTMState, dict[str, jax.Array]]:
    """One step, with i', f', tanh(z) and sigmoid(o) as i, f, z, o, each `[B, H]`."""
    i, f, z, o = self._sums(inputs, state.h)
    log_f = jax.nn.log_sigmoid(f) + state.m
    m = jnp.maximum(log_f, i)
    i, f, z, o = jnp.exp(i - m), jnp.exp(log_f - m), jnp.tanh(z), jax.nn.sigmoid(o)
    c = f * state.c + i * z
    n = f * state.n + i
    h = o * c / n
    return h, SLSTMState(h, c, n, m), {"i": i, "f": f, "z": z, "o": o}
