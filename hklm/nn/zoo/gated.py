"""Cells that remember nothing but what they put out: the GRU and the plain recurrent layer."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hklm.nn.core import Core
from hklm.nn.product import times


class HiddenState(NamedTuple):
  """`h` `[B, H]`."""

  h: jax.Array


class HiddenCore(Core):
  """A cell whose state is `h` alone."""

  def initial_state(self, batch_size: int) -> HiddenState:
    """Zeros."""
    return HiddenState(jnp.zeros([batch_size, self.hidden_size], self._dtype))


class VanillaRNN(HiddenCore):
  r"""The plain recurrent layer.

    h' = tanh(W_ih x + W_hh h + b)

  Elman 1990, with the tanh of PyTorch's `RNN`. Parameters: `w_ih [H, D]`, `w_hh [H, H]`, `b [H]`
  (and `b_hh [H]` with two biases, added; neither with none).

  >>> import haiku as hk
  >>> def f(x):
  ...   cell = VanillaRNN(3)
  ...   return cell(x, cell.initial_state(2))
  >>> params = hk.transform(f).init(jax.random.key(0), jnp.ones([2, 5]))
  >>> {name: p.shape for name, p in sorted(params["vanilla_rnn"].items())}
  {'b': (3,), 'w_hh': (3, 3), 'w_ih': (3, 5)}
  """

  gates = "h"

  def advance(self, inputs: jax.Array, state: HiddenState
              ) -> tuple[jax.Array, HiddenState, dict[str, jax.Array]]:
    """One step; it has no gates."""
    h, = self._sums(inputs, state.h)
    h = jnp.tanh(h)
    return h, HiddenState(h), {}


class GRU(HiddenCore):
  r"""The gated recurrent unit, in PyTorch's layout: gates in the order r, z, n along the rows.

    r = sigmoid(W_ir x + W_hr h + b_r)
    z = sigmoid(W_iz x + W_hz h + b_z)
    n = tanh(W_in x + W_hn (r * h) + b_n)
    h' = (1 - z) * n + z * h

  Cho et al. 2014, equations 5 to 8 (n there is h with a tilde). That is with one bias; `hk.GRU` is
  the same with `1 - z` for z. With two or none, r comes after the product, as in PyTorch and cuDNN:

    n = tanh(W_in x + b_n + r * (W_hn h + b_hn))

  Parameters: `w_ih [3H, D]`, `w_hh [3H, H]`, `b [3H]` (and `b_hh [3H]` with two biases; neither
  with none).

  >>> import haiku as hk
  >>> def f(x):
  ...   gru = GRU(3, num_biases=2)
  ...   return gru(x, gru.initial_state(2))
  >>> params = hk.transform(f).init(jax.random.key(0), jnp.ones([2, 5]))
  >>> {name: p.shape for name, p in sorted(params["gru"].items())}
  {'b': (9,), 'b_hh': (9,), 'w_hh': (9, 3), 'w_ih': (9, 5)}
  """

  gates = "rzn"

  def inputs(self, x: jax.Array) -> jax.Array:
    """`W_ih x + b` of x `[..., D]`, `[..., 3H]`; a second bias is the recurrent product's."""
    w_ih, _ = self._matrices(x.shape[-1])
    return functools.reduce(jnp.add, self._biases()[:1], times(x, w_ih))

  def advance(self, inputs: jax.Array, state: HiddenState
              ) -> tuple[jax.Array, HiddenState, dict[str, jax.Array]]:
    """One step, with r, z, n as they enter the last equation, each `[B, H]`."""
    H, h = self.hidden_size, state.h
    w_hh, b_hh = self._w_hh(), self._biases()[1:]
    rz, n = jnp.split(inputs, [2 * H], axis=-1)
    if self.num_biases != 1:
      sums = functools.reduce(jnp.add, b_hh, times(h, w_hh))
      h_rz, h_n = jnp.split(sums, [2 * H], axis=-1)
      r, z = jnp.split(jax.nn.sigmoid(rz + h_rz), 2, axis=-1)
      n = jnp.tanh(n + r * h_n)
    else:
      r, z = jnp.split(jax.nn.sigmoid(rz + times(h, w_hh[:2 * H])), 2, axis=-1)
      n = jnp.tanh(n + times(r * h, w_hh[2 * H:]))
    h = (1 - z) * n + z * h
    return h, HiddenState(h), {"r": r, "z": z, "n": n}
