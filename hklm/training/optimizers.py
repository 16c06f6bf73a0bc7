"""`TrainConfig -> optax`: the chain of gradient transformations and the schedule of the rate."""

import optax

from hklm.config import TrainConfig
from hklm.errors import InputError


def optimizer(config: TrainConfig, steps: int, steps_per_epoch: int
              ) -> optax.GradientTransformation:
  """Clips, adds L2, scales by the optimiser's rule, then by minus the rate.

  The order is torch's: the L2 gradient joins the clipped gradient; `adamw` decays the parameters
  themselves instead (Loshchilov and Hutter 2019, algorithm 2).

  Args:
    config: the training configuration.
    steps: updates in all; the schedule spans them.
    steps_per_epoch: updates an epoch.

  >>> import jax.numpy as jnp
  >>> chain = optimizer(TrainConfig(optimizer="sgd", learning_rate=0.5, clip=1.0,
  ...                               schedule="constant"), steps=10, steps_per_epoch=10)
  >>> updates, _ = chain.update(jnp.array([3., 4.]), chain.init(jnp.zeros(2)), jnp.zeros(2))
  >>> updates.tolist()  # the gradient's norm 5 is clipped to 1, then times -0.5
  [-0.30000001192092896, -0.4000000059604645]
  """
  decay = optax.add_decayed_weights(config.weight_decay)
  rules = {
      "sgd": [decay],
      "momentum": [decay, optax.trace(config.momentum)],
      "adam": [decay, optax.scale_by_adam()],
      "adamw": [optax.scale_by_adam(), decay],
      "rmsprop": [decay, optax.scale_by_rms(config.rms_decay)],
  }
  clips = []
  if config.clip_elementwise:
    clips.append(optax.clip(config.clip_elementwise))
  if config.clip:
    clips.append(optax.clip_by_global_norm(config.clip))
  return optax.chain(*clips, *rules[config.optimizer],
                     optax.scale_by_learning_rate(schedule(config, steps, steps_per_epoch)))


def schedule(config: TrainConfig, steps: int, steps_per_epoch: int) -> optax.Schedule:
  """The rate as a function of the number of updates made.

  `plateau` is constant here: its factor depends on validations and lives in the training state.

  >>> rate = schedule(TrainConfig(schedule="step", learning_rate=1., decay_every=2), 60, 10)
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
      "cosine": optax.cosine_decay_schedule(peak, remaining),
      "step": optax.exponential_decay(peak, config.decay_every * steps_per_epoch,
                                      config.decay_rate, staircase=True),
  }[config.schedule]
  if not config.warmup:
    return after
  if config.schedule == "step":  # its epochs are counted from the first update, warm-up included
    whole = after
    after = lambda step: whole(step + config.warmup)  # noqa: E731
  rise = optax.linear_schedule(0.0, peak, config.warmup)
  return optax.join_schedules([rise, after], [config.warmup])
