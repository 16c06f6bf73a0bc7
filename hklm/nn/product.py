"""The product that every layer makes, in the order that is fast."""

import math

import jax


def times(x: jax.Array, w: jax.Array) -> jax.Array:
  """`x W^T`: of one row, `W x`, for which XLA on a CPU need not rearrange W at every step.

  Args:
    x: `[..., D]`.
    w: `[N, D]`.

  Returns:
    `[..., N]`.

  >>> import jax.numpy as jnp
  >>> times(jnp.array([[1., 2.]]), jnp.array([[3., 4.], [5., 6.], [7., 8.]])).tolist()
  [[11.0, 17.0, 23.0]]
  """
  rows = x.shape[:-1]
  if math.prod(rows) == 1:
    return (w @ x.reshape(-1)).reshape(*rows, len(w))
  return x @ w.T
