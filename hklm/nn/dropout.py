"""Dropout with masks fresh at every time step or fixed for a window.

Srivastava et al. 2014; one mask for all time steps: Gal and Ghahramani 2016, equation 7.
"""

import haiku as hk
import jax
import jax.numpy as jnp


def in_training() -> bool:
  """Whether the Haiku transform at work was applied with a key."""
  return hk.maybe_get_rng_sequence_state() is not None


def window_key(rate: float) -> jax.Array | None:
  """A key for masks, where there is a rate and the transform was applied with a key.

  None while parameters are made, so that they do not depend on what training drops.
  """
  return hk.maybe_next_rng_key() if rate and not hk.running_init() else None


def dropout(x: jax.Array, rate: float, per_step: bool) -> jax.Array:
  """`x * m / (1 - rate)` with `m ~ Bernoulli(1 - rate)`; the identity in evaluation.

  Call it inside a Haiku transform: the mask comes from Haiku's key, and where the transform was
  applied without a key there is no dropout.

  Args:
    x: `[T, B, D]`.
    rate: the share of zeros, in [0, 1); 0 is the exact identity and draws nothing.
    per_step: a mask of `[T, B, D]`; otherwise one of `[B, D]` for all time steps.

  Returns:
    `[T, B, D]`.

  >>> f = hk.transform(lambda x: dropout(x, 0.5, per_step=False))
  >>> y = f.apply({}, jax.random.key(0), jnp.ones([9, 2, 8]))
  >>> bool((y == y[0]).all()), sorted(set(y.ravel().tolist()))
  (True, [0.0, 2.0])
  >>> float(f.apply({}, None, jnp.ones([9, 2, 8])).min())
  1.0
  """
  key = hk.maybe_next_rng_key() if rate else None
  if key is None:
    return x
  keep = jax.random.bernoulli(key, 1.0 - rate, x.shape if per_step else x.shape[1:])
  return jnp.where(keep, x / (1.0 - rate), jnp.zeros_like(x))
