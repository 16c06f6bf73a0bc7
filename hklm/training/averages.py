"""Means of the parameters over the updates, which are validated in their place.

Polyak and Juditsky 1992, equation 2; the exponential one starts as the plain mean, so that it needs
no correction of its start. What may start it: Merity et al. 2017, algorithm 1, as in their code,
and what the code of Melis et al. 2020 has in its place.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hklm.config import TrainConfig
from hklm.training import precision

NEVER = 2**31 - 1  # updates, before an averaging that no validation has started yet


class History(NamedTuple):
  """What decides when averaging starts; plain numbers on the host.

  Attributes:
    validations: how many there were.
    bests: nats per token of the best so far, after each of the last `average_patience + 1`.
    started: whether one of them has started it.
  """

  validations: int = 0
  bests: tuple[float, ...] = ()
  started: bool = False


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


def starts_after(config: TrainConfig) -> jax.Array | None:
  """Updates before averaging starts, int32 `[]`; `NEVER` as long as a validation is to say it.

  >>> int(starts_after(TrainConfig(average="polyak", average_start=3)))
  3
  """
  if config.average == "none":
    return None
  return jnp.int32(NEVER if config.average_trigger else config.average_start)


def move(average, params, updates: jax.Array, config: TrainConfig):
  """The average after one more update.

      a += w (p - a),   w = 1 / k for the k-th of the parameters averaged

  `exponential` takes the larger of `1 / k` and `1 - average_decay` for w. Before averaging starts
  the average is the parameters themselves.

  Args:
    average: as `start` made it.
    params: after the update.
    updates: k, made since averaging started, this one included, int `[]`; less than 1 before.
    config: of which `average` and `average_decay` are read.

  Returns:
    The average, a pytree as it was given.

  >>> polyak, mean = TrainConfig(average="polyak"), jnp.float32(9.0)
  >>> for k, value in enumerate([8.0, 3.0, 5.0, 7.0]):
  ...   mean = move(mean, jnp.float32(value), k, polyak)
  >>> float(mean)  # of 3, 5 and 7
  5.0
  """
  count = jnp.maximum(updates, 1)
  least = 1 - config.average_decay if config.average == "exponential" else 0.0

  def leaf(mean, value):
    value = value.astype(mean.dtype)
    weight = jnp.maximum(1 / count.astype(mean.dtype), least)
    # Exactly the parameters at first, which mean + (value - mean) need not be.
    return jnp.where(count == 1, value, mean + weight * (value - mean))

  return jax.tree.map(leaf, average, params)


def seen(history: History, nats: float, config: TrainConfig) -> tuple[History, bool]:
  """The history with one more validation, and whether that one starts averaging.

  With n for `average_patience` it does, where averaging has not started,

      nonmonotone: if it is worse than the best of all those before it but the last n;
      no_gain: if none of the last n, itself among them, was better than all before;

  or if its number, from 1, is `average_latest`.

  Args:
    history: of those before.
    nats: per token, of this one.
    config: of which `average_trigger`, `average_patience` and `average_latest` are read.

  >>> config = TrainConfig(average="polyak", average_trigger="nonmonotone", average_patience=2)
  >>> history, found = History(), []
  >>> for nats in (5.0, 4.0, 2.0, 3.0, 3.5, 2.5):  # 3.5 is better than 4.0, 2.5 worse than 2.0
  ...   history, starts = seen(history, nats, config)
  ...   found.append(starts)
  >>> found
  [False, False, False, False, False, True]
  """
  if not config.average_trigger or history.started:
    return history, False
  before, most = history.bests, config.average_patience + 1
  best = before[-1] if before else math.inf
  best = nats if nats < best else best  # never NaN
  bests = (*before, best)[-most:]
  if config.average_trigger == "nonmonotone":
    starts = len(before) == most and nats > before[0]
  else:
    starts = len(bests) == most and best == bests[0]
  validations = history.validations + 1
  starts = starts or validations == config.average_latest
  return History(validations, bests, starts), starts
