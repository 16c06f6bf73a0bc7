"""The training state and the pure, compiled update."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from hklm.config import TrainConfig
from hklm.model import CellFactory, LanguageModel
from hklm.nn.stack import State
from hklm.training import averages, gradients, precision

PLAIN = TrainConfig()
_RESETS = 2**31  # of an update's key: the streams that start anew; parts of a batch are 0, 1, ...


class TrainState(NamedTuple):
  """All that the next update depends on, besides its window.

  Attributes:
    params: the parameters.
    opt_state: the optimiser's.
    state: the model's state after the last window, every leaf `[B, ...]`.
    key: the run's random key; update n uses `fold_in(key, n)`.
    step: updates made, the skipped ones among them, int32 `[]`.
    rate_factor: what the plateau schedule multiplies the rate by, float32 `[]`.
    average: the mean of the parameters, float32 or wider, or None; see `averages`.
    skipped: updates left out because they were not finite, int32 `[]`.
    average_start: updates, those not skipped, before averaging starts, int32 `[]`; None where
      nothing is averaged.
  """

  params: Any
  opt_state: Any
  state: State
  key: jax.Array
  step: jax.Array
  rate_factor: jax.Array
  average: Any
  skipped: jax.Array
  average_start: jax.Array | None = None


class StepMetrics(NamedTuple):
  """Of one update.

  Attributes:
    nats: summed over its tokens.
    tokens: their count, T B; of a window that is padded, without the padding.
    gradient_norm: before clipping.
    skipped: 1 for an update that was left out, whose other figures are 0; else 0.
  """

  nats: jax.Array
  tokens: jax.Array
  gradient_norm: jax.Array
  skipped: jax.Array


def init(lm: LanguageModel, optimizer: optax.GradientTransformation, batch_size: int, seed: int,
         config: TrainConfig = PLAIN, cell: CellFactory | None = None,
         params: Any = None) -> TrainState:
  """The state before the first update, a function of its arguments alone.

  Args:
    lm: the bundle of functions.
    optimizer: as `optimizers.optimizer` makes it.
    batch_size: B, the rows of the carried state.
    seed: of the parameters, and of the key that dropout draws from.
    config: the run, of which `average` and `compute_dtype` are read.
    cell: your own cell, where `lm` was made with one in place of `lm.config.cell`.
    params: parameters to start from, in place of new ones.

  Returns:
    A `TrainState` at step 0. No two leaves share a buffer.
  """
  init_key, key = jax.random.split(jax.random.key(seed))
  params = lm.init(init_key) if params is None else params
  state = precision.computing(lm, config, cell).initial_state(
      precision.cast(params, config), batch_size)
  return TrainState(params, jax.jit(optimizer.init)(params), state, key, jnp.int32(0),
                    jnp.float32(1.0), averages.start(params, config), jnp.int32(0),
                    averages.starts_after(config))


def make_update(lm: LanguageModel, optimizer: optax.GradientTransformation,
                config: TrainConfig = PLAIN, cell: CellFactory | None = None
                ) -> Callable[..., tuple[TrainState, StepMetrics]]:
  """The update `(train_state, window [T + 1, B], reset [B], length=None) -> train_state, metrics`.

  It is compiled. It descends the mean over the window's T B tokens of nats plus penalty, or T times
  that; rows of `reset`, and each with a chance of `reset_rate`, start anew (see
  `gradients.make_gradient`). Of a window that is padded the first `length` steps are live, and the
  rate is scaled by `length / bptt`. The training state given is donated: use the one returned.

  Args:
    lm: the bundle of functions.
    optimizer: as `optimizers.optimizer` makes it.
    config: the run, of which `accumulate`, `bptt`, `compute_dtype`, `loss`, `on_nonfinite`,
      `remat_steps`, `reset_rate` and what says how to average are read.
    cell: your own cell, where `lm` was made with one in place of `lm.config.cell`.

  Returns:
    The update. Its window is int32, its reset bool; `StepMetrics` are scalars on the device.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> sgd = optax.sgd(0.1)
  >>> state, metrics = make_update(lm, sgd)(
  ...     init(lm, sgd, batch_size=3, seed=0), jnp.zeros([6, 3], jnp.int32), jnp.ones([3], bool))
  >>> int(state.step), int(metrics.tokens)
  (1, 15)
  """
  gradient_of = gradients.make_gradient(precision.computing(lm, config, cell), config)

  def update(train_state: TrainState, window, reset, length=None):
    params, opt_state, carried, key, step, rate_factor, average, skipped, start = train_state
    key_now = jax.random.fold_in(key, step)
    if config.reset_rate:
      reset |= jax.random.bernoulli(jax.random.fold_in(key_now, _RESETS), config.reset_rate,
                                    reset.shape)
    gradient, nats, state = gradient_of(params, key_now, window, reset, carried, length)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    factor = rate_factor if length is None else rate_factor * length / config.bptt
    updates = jax.tree.map(lambda u: u * factor.astype(u.dtype), updates)
    params = optax.apply_updates(params, updates)
    if average is not None:
      average = averages.move(average, params, step + 1 - skipped - start, config)
    steps = len(window) - 1 if length is None else length
    metrics = StepMetrics(nats, jnp.int32(steps * len(reset)), optax.tree.norm(gradient),
                          jnp.int32(0))
    after = TrainState(params, opt_state, state, key, step + 1, rate_factor, average, skipped,
                       start)
    if config.on_nonfinite == "skip":
      return _unless_finite(train_state, after, metrics)
    return after, metrics

  return jax.jit(update, donate_argnums=0)


def evaluated(train_state: TrainState):
  """The parameters to validate, to keep as the best and to sample from.

  Args:
    train_state: a state between updates.

  Returns:
    The average where there is one, in the parameters' types, else the parameters.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> state = init(lm, optax.sgd(0.1), 3, 0, TrainConfig(average="polyak"))
  >>> evaluated(state) is state.average, evaluated(state._replace(average=None)) is state.params
  (False, True)
  """
  if train_state.average is None:
    return train_state.params
  return jax.tree.map(lambda mean, leaf: mean.astype(leaf.dtype), train_state.average,
                      train_state.params)


def averaging(train_state: TrainState) -> TrainState:
  """The same, averaging its parameters from the next update on.

  Args:
    train_state: a state between updates, with an average.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> config = TrainConfig(average="polyak", average_trigger="no_gain")
  >>> state = init(lm, optax.sgd(0.1), 3, 0, config)
  >>> int(state.average_start), int(averaging(state).average_start)
  (2147483647, 0)
  """
  return train_state._replace(average_start=train_state.step - train_state.skipped)


def _unless_finite(before: TrainState, after: TrainState, metrics: StepMetrics):
  """`after` and its metrics, or `before` one step later where the update is not finite."""
  finite = jnp.isfinite(metrics.nats) & jnp.isfinite(metrics.gradient_norm)
  kept = before._replace(step=after.step, skipped=before.skipped + 1)
  nothing = StepMetrics(*(jnp.zeros_like(x) for x in metrics[:3]), jnp.int32(1))
  return jax.tree.map(lambda new, old: jnp.where(finite, new, old), (after, metrics),
                      (kept, nothing))
