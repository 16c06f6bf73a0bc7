"""Means of the parameters over the updates, which are validated in their place.

Polyak and Juditsky 1992, equation 2; the exponential one starts as the plain mean, so that it needs
no correction of its start.
"""

import jax
import jax.numpy as jnp

from hklm.config import TrainConfig
from hklm.training import precision


def start(params, config: TrainConfig):
  """The average before the first update: the parameters, in buffers of its own.

  Args:
    params: the parameters.
    config: of which `average` is read.

  Returns:
    A pytree like `params`, float32 or wider: in bfloat16 small moves would be lost. None where
    nothing is averaged.

  >>> start(jnp.ones(2, jnp.bfloat16), TrainConfig(average="polyak")).dtype
  dtype('float32')
  """
  if config.average == "none":
    return None
  return jax.tree.map(lambda leaf: jnp.array(leaf, precision.wide(leaf.dtype)), params)


def move(average, params, updates: jax.Array, config: TrainConfig):
  """The average after one more update.

      a += w (p - a),   w = 1 / k for the k-th of the parameters averaged

  `exponential` takes the larger of `1 / k` and `1 - average_decay` for w. Up to `average_start`
  updates the average is the parameters themselves.

  Args:
    average: as `start` made it.
    params: after the update.
    updates: made so far, this one included, int `[]`.
    config: of which `average`, `average_decay` and `average_start` are read.

  Returns:
    The average, a pytree as it was given.

  >>> polyak, mean = TrainConfig(average="polyak", average_start=1), jnp.float32(9.0)
  >>> for n, value in enumerate([8.0, 3.0, 5.0, 7.0], 1):
  ...   mean = move(mean, jnp.float32(value), n, polyak)
  >>> float(mean)  # of 3, 5 and 7
  5.0
  """
  count = jnp.maximum(updates - config.average_start, 1)
  least = 1 - config.average_decay if config.average == "exponential" else 0.0

  def leaf(mean, value):
    value = value.astype(mean.dtype)
    weight = jnp.maximum(1 / count.astype(mean.dtype), least)
    # Exactly the parameters at first, which mean + (value - mean) need not be.
    return jnp.where(count == 1, value, mean + weight * (value - mean))

  return jax.tree.map(leaf, average, params)
