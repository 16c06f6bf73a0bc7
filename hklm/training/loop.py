"""The only impure loop: reads windows, updates, and calls the hooks it was given."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from hklm.errors import InputError
from hklm.metrics import Metrics
from hklm.training.step import StepMetrics, TrainState

LOG_EVERY = 20  # updates between readings of the loss: the device never waits for the host


class Hooks(NamedTuple):
  """What the loop calls besides the update; none of them changes the parameters.

  Attributes:
    log: `(step, Metrics since the last call, gradient_norm)`, every LOG_EVERY updates.
    validate: `(step, params) -> Metrics`, or None for no validation.
    save_best: `(params)`, when a validation is the best so far.
    save_last: `(params)`, every `checkpoint_every` updates and at the end.
  """

  log: Callable[[int, Metrics, float], None]
  validate: Callable[[int, Any], Metrics] | None
  save_best: Callable[[Any], None]
  save_last: Callable[[Any], None]


def run(update: Callable, train_state: TrainState, windows: Sequence[np.ndarray], steps: int,
        hooks: Hooks, eval_every: int = 0, checkpoint_every: int = 0,
        plateau_factor: float = 1.0) -> TrainState:
  """Makes `steps` updates over the windows, again and again from the first.

  Args:
    update: `make_update`'s.
    train_state: the state to start from; donated to the first update.
    windows: int32 `[T + 1, B]` each; the model's state is reset before the first.
    steps: updates in all.
    hooks: see `Hooks`.
    eval_every: updates between validations; 0: once an epoch. The last update is always validated.
    checkpoint_every: updates between savings; 0: only the last.
    plateau_factor: multiplies the rate when a validation is not the best.

  Returns:
    The state after the last update.

  Raises:
    InputError: a loss or gradient that is not finite, with its update named.
  """
  eval_every = eval_every or len(windows)
  best = math.inf
  pending: list[StepMetrics] = []
  for step in range(1, steps + 1):
    window = windows[(step - 1) % len(windows)]
    reset = np.full(window.shape[1], (step - 1) % len(windows) == 0)
    train_state, metrics = update(train_state, window, reset)
    pending.append(metrics)
    validates = hooks.validate and (step % eval_every == 0 or step == steps)
    saves = step == steps or (checkpoint_every and step % checkpoint_every == 0)
    if validates or saves or len(pending) == LOG_EVERY:
      hooks.log(step, *_collect(pending, step))
      pending.clear()
    if validates:
      nats = hooks.validate(step, train_state.params).nats_per_token
      if nats < best:  # never true of NaN
        best = nats
        hooks.save_best(train_state.params)
      else:
        train_state = train_state._replace(rate_factor=train_state.rate_factor * plateau_factor)
    if saves:
      hooks.save_last(train_state.params)
  return train_state


def _collect(pending, step):
  """The sum of the pending updates' metrics, and the last gradient norm."""
  total = Metrics(nats=0.0, tokens=0)
  norm = math.nan
  for back, metrics in enumerate(jax.device_get(pending)):
    nats, norm = float(metrics.nats), float(metrics.gradient_norm)
    if not (math.isfinite(nats) and math.isfinite(norm)):
      raise InputError(f"update {step - len(pending) + back + 1}: the loss is {nats} nats and the "
                       f"gradient's norm {norm}; needed: finite numbers: lower --learning_rate or "
                       "--clip")
    total += Metrics(nats=nats, tokens=int(metrics.tokens))
  return total, norm
