"""The only impure loop: reads windows, updates, and calls the hooks it was given."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from hklm.errors import InputError
from hklm.metrics import Metrics
from hklm.training.averages import History
from hklm.training.step import StepMetrics, TrainState, averaging, evaluated

LOG_EVERY = 20  # updates between readings of the loss: the device never waits for the host
_NOTHING = Metrics(nats=0.0, tokens=0)


class Progress(NamedTuple):
  """What decides the future besides the training state; plain numbers on the host.

  Attributes:
    best: nats per token of the best validation so far.
    kept: the same of the one whose parameters are kept; another only where those were damaged.
    best_step: the update after which that was.
    unlogged: sums over the updates since `log` was called last.
    skipped: updates that were left out so far.
    history: of the validations, by which averaging starts.
  """

  best: float = math.inf
  kept: float = math.inf
  best_step: int = 0
  unlogged: Metrics = _NOTHING
  skipped: int = 0
  history: History = History()


class _Windows(Protocol):
  """What a run reads: `data.streams.Streams`, `data.random_streams.RandomStreams`."""

  def at(self, number: int) -> Any:
    """The `data.streams.Window` of update `number`, from 0."""


class Hooks(NamedTuple):
  """What the loop calls besides the update; none of them changes the parameters.

  Attributes:
    log: `(step, Metrics since the last call, gradient_norm, updates skipped so far, rate_factor of
      the update)`, every LOG_EVERY updates.
    validate: `(step, params) -> Metrics`, or None for no validation; the averaged parameters, if
      there are any.
    save_best: `(step, params)`, the same, when a validation is the best so far.
    save: `(TrainState, Progress)`, every `checkpoint_every` updates and at the end. The arrays are
      donated to the next update.
    stop: `(step)`, after every update: whether to save and return.
  """

  log: Callable[[int, Metrics, float, int, float], None]
  validate: Callable[[int, Any], Metrics] | None
  save_best: Callable[[int, Any], None]
  save: Callable[[TrainState, Progress], None]
  stop: Callable[[int], bool]


def run(update: Callable, train_state: TrainState, progress: Progress,
        windows: _Windows, steps: int, hooks: Hooks, eval_every: int = 0,
        checkpoint_every: int = 0, plateau_factor: float = 1.0,
        trigger: Callable[[History, float], tuple[History, bool]] | None = None
        ) -> tuple[TrainState, Progress]:
  """Goes on updating over the windows, epoch after epoch, up to update `steps`.

  What was saved after an update and is given here again has the same future as if it had never
  been interrupted.

  Args:
    update: `make_update`'s.
    train_state: the state to go on from; donated to the first update.
    progress: what goes with it; at the start, `Progress()`.
    windows: whose `at` says what update n reads; the model's state is reset where an epoch starts.
    steps: updates in all, those already made included.
    hooks: see `Hooks`.
    eval_every: updates between validations; 0: once an epoch. The last update is always validated.
    checkpoint_every: updates between savings; 0: once an epoch. The last update is always saved.
    plateau_factor: multiplies the rate when a validation is not the best.
    trigger: `(history, nats per token) -> history, whether averaging starts`, at a validation.

  Returns:
    What was saved last: after the last update, or after the one that `stop` came true after.

  Raises:
    InputError: a loss or gradient that is not finite, with its update named.
  """
  pending: list[StepMetrics] = []
  for step in range(int(train_state.step) + 1, steps + 1):
    window = windows.at(step - 1)
    reset = np.full(window.ids.shape[1], window.first)
    train_state, metrics = update(train_state, window.ids, reset, window.length)
    pending.append(metrics)
    stops = hooks.stop(step)
    ends = step == steps
    validates = hooks.validate and (ends or _due(eval_every, step, window))
    saves = stops or ends or _due(checkpoint_every, step, window)
    # Where a run was interrupted must not be seen in what it logs.
    logs = validates or ends or step % LOG_EVERY == 0
    if logs or saves:
      progress, norm = _collect(progress, pending, step)
      pending.clear()
    if logs:
      hooks.log(step, progress.unlogged, norm, progress.skipped, float(train_state.rate_factor))
      progress = progress._replace(unlogged=_NOTHING)
    if validates:
      params = evaluated(train_state)
      nats = hooks.validate(step, params).nats_per_token
      if nats < progress.kept:  # never true of NaN
        progress = progress._replace(kept=nats, best_step=step)
        hooks.save_best(step, params)
      if nats < progress.best:
        progress = progress._replace(best=nats)
      else:
        train_state = train_state._replace(rate_factor=train_state.rate_factor * plateau_factor)
      if trigger:
        history, starts = trigger(progress.history, nats)
        progress = progress._replace(history=history)
        train_state = averaging(train_state) if starts else train_state
    if saves:
      hooks.save(train_state, progress)
    if stops:
      break
  return train_state, progress


def _due(every, step, window):
  return step % every == 0 if every else window.last


def _collect(progress, pending, step):
  """The progress with the pending updates counted in, and the last gradient norm."""
  total, skipped, norm = progress.unlogged, progress.skipped, math.nan
  for back, metrics in enumerate(jax.device_get(pending)):
    nats, norm = float(metrics.nats), float(metrics.gradient_norm)
    if not (math.isfinite(nats) and math.isfinite(norm)):
      raise InputError(f"update {step - len(pending) + back + 1}: the loss is {nats} nats and the "
                       f"gradient's norm {norm}; needed: finite numbers: lower --learning_rate or "
                       "--clip")
    total += Metrics(nats=nats, tokens=int(metrics.tokens))
    skipped += int(metrics.skipped)
  return progress._replace(unlogged=total, skipped=skipped), norm
