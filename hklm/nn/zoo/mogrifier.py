"""The Mogrifier: what an LSTM reads and what it remembers change each other before it looks."""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.nn.product import times


class Mogrifier(hk.RNNCore):
  r"""An LSTM whose input and output of the step before modulate each other first.

  From `x^-1 = x` and `h^0 = h`, for i = 1 to r:

    x^i = 2 sigmoid(Q^i h^(i-1) + b^i) * x^(i-2)    for odd i
    h^i = 2 sigmoid(R^i x^(i-1) + b^i) * h^(i-2)    for even i

  The last of each enter the LSTM's gates; what it carries over is its own. With zeros for all of
  these parameters, or r = 0, it is the LSTM itself.

  Melis et al. 2019 (arXiv 1909.01792), equations 1 and 2, and section 2 for matrices of rank k,
  `Q = Q_left Q_right`; the biases, zero at first, are those of the authors' code.
  Parameters, beside the LSTM's: `q_1 [D, H]`, `r_2 [H, D]`, ... or, of rank k, `q_1_left [D, k]`
  and `q_1_right [k, H]`, ...; `b_1 [D]`, `b_2 [H]`, ...

  >>> from hklm.nn import cells
  >>> def f(x):
  ...   cell = Mogrifier(cells.LSTM(3), rounds=2)
  ...   return cell(x, cell.initial_state(2))
  >>> f = hk.without_apply_rng(hk.transform(f))
  >>> params = f.init(jax.random.key(0), jnp.ones([2, 5]))
  >>> {name: p.shape for name, p in sorted(params["mogrifier"].items())}
  {'b_1': (5,), 'b_2': (3,), 'q_1': (5, 3), 'r_2': (3, 5)}
  >>> h, state = f.apply(params, jnp.ones([2, 5]))
  >>> h.shape, state.c.shape
  ((2, 3), (2, 3))
  """

  def __init__(self, lstm: hk.RNNCore, rounds: int = 5, rank: int = 0,
               w_init: hk.initializers.Initializer | None = None, dtype=jnp.float32,
               name: str = "mogrifier"):
    """Makes a cell.

    Args:
      lstm: the cell that reads what comes out, an `hklm.nn.cells.LSTM` or another whose state has
        an `h` that enters its gates only, and which has `trace` and `output`.
      rounds: r.
      rank: k; 0: the matrices are not factored.
      w_init: for the matrices; uniform within 1/sqrt(H) when not given. Factors are drawn as in the
        authors' code, so that an element of their product has the variance 1/n, n numbers being
        added up.
      dtype: of parameters.
      name: of the module.
    """
    super().__init__(name=name)
    self._lstm, self._rounds, self._rank = lstm, rounds, rank
    self._w_init, self._dtype = w_init, dtype

  def initial_state(self, batch_size: int) -> Any:
    """The LSTM's."""
    return self._lstm.initial_state(batch_size)

  def output(self, state: Any) -> jax.Array:
    """`[B, H]`: the LSTM's."""
    return self._lstm.output(state)

  def __call__(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
    """One step: x `[B, D]` and state to h' `[B, H]` and state'."""
    h, state, _ = self.trace(x, state)
    return h, state

  def trace(self, x: jax.Array, state: Any) -> tuple[jax.Array, Any, dict[str, jax.Array]]:
    """One step, with the LSTM's gates."""
    h = state.h
    for i in range(1, self._rounds + 1):
      if i % 2:
        x = 2 * jax.nn.sigmoid(self._affine("q", i, h, x.shape[-1])) * x
      else:
        h = 2 * jax.nn.sigmoid(self._affine("r", i, x, h.shape[-1])) * h
    return self._lstm.trace(x, state._replace(h=h))

  def _affine(self, letter, i, v, size):
    """`Q^i v + b^i`, `[B, size]`."""
    name, n, k = f"{letter}_{i}", v.shape[-1], self._rank
    if k:
      init = hk.initializers.TruncatedNormal((n * k) ** -0.25)
      for part, shape in (("right", [k, n]), ("left", [size, k])):
        v = times(v, hk.get_parameter(f"{name}_{part}", shape, self._dtype, init))
    else:
      H = n if letter == "q" else size
      init = self._w_init or hk.initializers.RandomUniform(-H**-0.5, H**-0.5)
      v = times(v, hk.get_parameter(name, [size, n], self._dtype, init))
    return v + hk.get_parameter(f"b_{i}", [size], self._dtype, jnp.zeros)
