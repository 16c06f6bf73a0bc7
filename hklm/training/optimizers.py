"""`TrainConfig -> optax`: the chain of gradient transformations and the schedule of the rate."""

import itertools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import optax

from hklm.config import TrainConfig
from hklm.errors import InputError


def optimizer(config: TrainConfig, steps: int, updates_in: Callable[[int], int]
              ) -> optax.GradientTransformation:
  """Clips, adds L2, scales by the optimiser's rule, then by minus the rate.

  The order is torch's: the L2 gradient joins the clipped gradient (with `weight_decay_first` it is
  clipped with it); `adamw` decays the parameters themselves instead (Loshchilov and Hutter 2019,
  algorithm 2). Every epsilon is 1e-8, added to a root and not under it: gradients of a mean over
  tokens are small.

  Args:
    config: the training configuration.
    steps: updates in all; the schedule spans them.
    updates_in: a number of epochs to the updates in them.

  >>> import jax.numpy as jnp
  >>> chain = optimizer(TrainConfig(optimizer="sgd", learning_rate=0.5, clip=1.0,
  ...                               schedule="constant"), steps=10, updates_in=lambda n: 10 * n)
  >>> updates, _ = chain.update(jnp.array([3., 4.]), chain.init(jnp.zeros(2)), jnp.zeros(2))
  >>> updates.tolist()  # the gradient's norm 5 is clipped to 1, then times -0.5
  [-0.30000001192092896, -0.4000000059604645]
  """
  decay = optax.add_decayed_weights(config.weight_decay)
  rules = {
      "sgd": [],
      "momentum": [optax.trace(config.momentum)],
      "adam": [optax.scale_by_adam(config.adam_beta1, config.adam_beta2)],
      "adamw": [optax.scale_by_adam(config.adam_beta1, config.adam_beta2), decay],
      "rmsprop": [optax.scale_by_rms(config.rms_decay, eps_in_sqrt=False)],
  }
  decays = [] if config.optimizer == "adamw" else [decay]
  clips = []
  if config.clip_elementwise:
    clips.append(optax.clip(config.clip_elementwise))
  if config.clip:
    clips.append(optax.clip_by_global_norm(config.clip))
  first = [*decays, *clips] if config.weight_decay_first else [*clips, *decays]
  return optax.chain(*first, *rules[config.optimizer],
                     optax.scale_by_learning_rate(schedule(config, steps, updates_in)))


def schedule(config: TrainConfig, steps: int, updates_in: Callable[[int], int]) -> optax.Schedule:
  """The rate as a function of the number of updates made.

  `plateau` is constant here: its factor depends on validations and lives in the training state.

  Args:
    config: the training configuration.
    steps: updates in all.
    updates_in: a number of epochs to the updates in them.

  Returns:
    Updates made, int32 `[]`, to the rate of the next, float32 `[]`.

  Raises:
    InputError: a warm-up that leaves no update.

  >>> step = TrainConfig(schedule="step", learning_rate=1., decay_every=2)
  >>> rate = schedule(step, 60, lambda epochs: 10 * epochs)
  >>> [float(rate(n)) for n in (0, 19, 20, 39, 40)]
  [1.0, 1.0, 0.5, 0.5, 0.25]
  """
  if config.warmup >= steps:
    raise InputError(f"--warmup={config.warmup} reaches the last of {steps} updates; lower it or "
                     "raise --steps or --epochs")
  peak, remaining = config.learning_rate, steps - config.warmup
  after = {
      "constant": optax.constant_schedule(peak),
      "plateau": optax.constant_schedule(peak),
      # A float: of an integer, optax's schedule makes one when it first runs, and keeps it.
      "cosine": optax.cosine_decay_schedule(peak, float(remaining)),
      "step": _staircase(config, steps, updates_in),
  }[config.schedule]
  if not config.warmup:
    return after
  rise = optax.linear_schedule(0.0, peak, config.warmup)
  return optax.join_schedules([rise, after], [config.warmup])


def _staircase(config: TrainConfig, steps: int, updates_in: Callable[[int], int]
               ) -> optax.Schedule:
  epochs = config.decay_at or itertools.count(config.decay_start or config.decay_every,
                                              config.decay_every)
  ends = itertools.takewhile(lambda end: end < steps, map(updates_in, epochs))
  # Epochs are counted from the first update; `step` from the end of the warm-up.
  falls = np.array([end - config.warmup for end in ends], np.int32)

  def rate(step):
    return config.learning_rate * config.decay_rate ** jnp.searchsorted(falls, step, side="right")

  return rate
