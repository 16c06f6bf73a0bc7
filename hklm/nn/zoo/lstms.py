"""LSTMs with something more than `hklm.nn.cells.LSTM`: peepholes, layer normalisation, projection.

Dimension letters: B batch, D input, H hidden, R output.
"""

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.nn.core import LSTMCore, LSTMState
from hklm.nn.product import times

EPSILON = 1e-5  # added to a variance; the equation has none, the authors' code this


class PeepholeLSTM(LSTMCore):
  r"""An LSTM whose gates see its cell, each unit's its own.

    i = sigmoid(W_xi x + W_hi h + w_ci * c + b_i)
    f = sigmoid(W_xf x + W_hf h + w_cf * c + b_f)
    c' = f * c + i * tanh(W_xc x + W_hc h + b_c)
    o = sigmoid(W_xo x + W_ho h + w_co * c' + b_o)
    h' = o * tanh(c')

  Gers et al. 2002; in this form Graves 2013, equations 7 to 11. Parameters: as `hklm.nn.cells.LSTM`
  and, for `w_ci`, `w_cf`, `w_co`, the rows of `w_c [3, H]`.

  >>> def f(x):
  ...   lstm = PeepholeLSTM(3)
  ...   return lstm(x, lstm.initial_state(2))
  >>> params = hk.transform(f).init(jax.random.key(0), jnp.ones([2, 5]))
  >>> {name: p.shape for name, p in sorted(params["peephole_lstm"].items())}
  {'b': (12,), 'w_c': (3, 3), 'w_hh': (12, 3), 'w_ih': (12, 5)}
  """

  def advance(self, inputs: jax.Array, state: LSTMState
              ) -> tuple[jax.Array, LSTMState, dict[str, jax.Array]]:
    """One step, with i, f, o and, as g, the tanh in c', each `[B, H]`."""
    i, f, g, o = self._sums(inputs, state.h)
    w_ci, w_cf, w_co = hk.get_parameter("w_c", [3, self.hidden_size], self._dtype, self._w_init)
    i, f = jax.nn.sigmoid(i + w_ci * state.c), jax.nn.sigmoid(f + w_cf * state.c)
    g = jnp.tanh(g)
    c = f * state.c + i * g
    o = jax.nn.sigmoid(o + w_co * c)
    h = o * jnp.tanh(c)
    return h, LSTMState(h, c), {"i": i, "f": f, "g": g, "o": o}


class LayerNormLSTM(LSTMCore):
  r"""An LSTM whose sums are normalised, each over all its units.

    [i f g o] = LN(W_hh h; alpha_1, beta_1) + LN(W_ih x; alpha_2, beta_2) + b
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h' = sigmoid(o) * tanh(LN(c'; alpha_3, beta_3))

    LN(z; alpha, beta) = alpha * (z - mean(z)) / sqrt(variance(z) + 1e-5) + beta

  Ba et al. 2016, equations 20 to 22, with LN of equation 15; mean and variance are over the 4H sums
  of all gates together, or over the H cells. Parameters: as `hklm.nn.cells.LSTM`, and gains of
  ones, biases of zeros: `gain_hh`, `bias_hh`, `gain_ih`, `bias_ih`, `[4H]` each, `gain_c`,
  `bias_c`, `[H]` each.

  >>> def f(x):
  ...   lstm = LayerNormLSTM(3)
  ...   return lstm(x, lstm.initial_state(2))
  >>> params = hk.transform(f).init(jax.random.key(0), jnp.ones([2, 5]))
  >>> [name for name, p in sorted(params["layer_norm_lstm"].items()) if p.shape == (12,)]
  ['b', 'bias_hh', 'bias_ih', 'gain_hh', 'gain_ih']
  """

  def inputs(self, x: jax.Array) -> jax.Array:
    """`LN(W_ih x; alpha_2, beta_2)` of x `[..., D]`, `[..., 4H]`."""
    return self._normalised("ih", super().inputs(x))

  def advance(self, inputs: jax.Array, state: LSTMState
              ) -> tuple[jax.Array, LSTMState, dict[str, jax.Array]]:
    """One step, with the gates i, f, g, o after their non-linearities, each `[B, H]`."""
    z = self._normalised("hh", times(state.h, self._w_hh())) + inputs + self._bias()
    i, f, g, o = jnp.split(z, 4, axis=-1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    c = f * state.c + i * g
    h = o * jnp.tanh(self._normalised("c", c))
    return h, LSTMState(h, c), {"i": i, "f": f, "g": g, "o": o}

  def _normalised(self, name, z):
    alpha = hk.get_parameter(f"gain_{name}", z.shape[-1:], self._dtype, jnp.ones)
    beta = hk.get_parameter(f"bias_{name}", z.shape[-1:], self._dtype, jnp.zeros)
    z = z - z.mean(axis=-1, keepdims=True)
    return alpha * z / jnp.sqrt(jnp.square(z).mean(axis=-1, keepdims=True) + EPSILON) + beta


class ProjectedLSTM(LSTMCore):
  r"""An LSTM with more cells than it puts out and reads back.

    [i f g o] = W_ih x + W_hh h + b
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h' = W_hr (sigmoid(o) * tanh(c'))

  Sak et al. 2014, section 2.2, whose r is h here and whose W_rm is W_hr; without peepholes, as
  PyTorch's `LSTM(proj_size=R)`. Parameters: as `hklm.nn.cells.LSTM`, but `w_hh [4H, R]`, and
  `w_hr [R, H]`; with a learned initial state `h_0 = W_hr tanh(c_0)`.

  >>> def f(x):
  ...   lstm = ProjectedLSTM(8, 3)
  ...   return lstm(x, lstm.initial_state(2))
  >>> f = hk.without_apply_rng(hk.transform(f))
  >>> h, state = f.apply(f.init(jax.random.key(0), jnp.ones([2, 5])), jnp.ones([2, 5]))
  >>> h.shape, state.h.shape, state.c.shape
  ((2, 3), (2, 3), (2, 8))
  """

  def __init__(self, hidden_size: int, projection_size: int, **options):
    """Makes a cell.

    Args:
      hidden_size: H.
      projection_size: R.
      **options: of `LSTMCore`.
    """
    super().__init__(hidden_size, **options)
    self.output_size = projection_size

  def initial_state(self, batch_size: int) -> LSTMState:
    """Zero, or `c = c_0` and `h = W_hr tanh(c_0)` for every row of the batch."""
    state = super().initial_state(batch_size)
    return state._replace(h=self._projected(state.h))

  def advance(self, inputs: jax.Array, state: LSTMState
              ) -> tuple[jax.Array, LSTMState, dict[str, jax.Array]]:
    """One step, with the gates i, f, g, o after their non-linearities, each `[B, H]`."""
    i, f, g, o = self._sums(inputs, state.h)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    c = f * state.c + i * g
    h = self._projected(o * jnp.tanh(c))
    return h, LSTMState(h, c), {"i": i, "f": f, "g": g, "o": o}

  def _projected(self, m):
    shape = [self.output_size, self.hidden_size]
    return times(m, hk.get_parameter("w_hr", shape, self._dtype, self._w_init))
