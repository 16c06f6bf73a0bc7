"""The training state and the pure, compiled update."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from hklm.model import LanguageModel
from hklm.nn.stack import State


class TrainState(NamedTuple):
  """All that the next update depends on, besides its window.

  Attributes:
    params: the parameters.
    opt_state: the optimiser's.
    state: the model's state after the last window, every leaf `[B, ...]`.
    key: the run's random key; update n uses `fold_in(key, n)`.
    step: updates made, int32 `[]`.
    rate_factor: what the plateau schedule multiplies the rate by, float32 `[]`.
  """

  params: Any
  opt_state: Any
  state: State
  key: jax.Array
  step: jax.Array
  rate_factor: jax.Array


class StepMetrics(NamedTuple):
  """Of one update: `nats` summed over its `tokens`, and the gradient's norm before clipping."""

  nats: jax.Array
  tokens: jax.Array
  gradient_norm: jax.Array


def init(lm: LanguageModel, optimizer: optax.GradientTransformation, batch_size: int, seed: int,
         params: Any = None) -> TrainState:
  """The state before the first update, a function of its arguments alone.

  Args:
    lm: the bundle of functions.
    optimizer: as `optimizers.optimizer` makes it.
    batch_size: B, the rows of the carried state.
    seed: of the parameters, and of the key that dropout draws from.
    params: parameters to start from, in place of new ones.

  Returns:
    A `TrainState` at step 0.
  """
  init_key, key = jax.random.split(jax.random.key(seed))
  params = lm.init(init_key) if params is None else params
  return TrainState(params, jax.jit(optimizer.init)(params), lm.initial_state(params, batch_size),
                    key, jnp.int32(0), jnp.float32(1.0))


def make_update(lm: LanguageModel, optimizer: optax.GradientTransformation
                ) -> Callable[[TrainState, jax.Array, jax.Array], tuple[TrainState, StepMetrics]]:
  """The compiled update `(train_state, window [T + 1, B], reset [B]) -> train_state, metrics`.

  It descends the mean over the window's T B tokens of nats plus penalty. Rows of `reset` start from
  the initial state, made inside the differentiated function so that a learned one gets its
  gradient; the others go on from the carried state, through which no gradient flows. The training
  state given is donated: use the one returned.

  Args:
    lm: the bundle of functions.
    optimizer: as `optimizers.optimizer` makes it.

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

  def objective(params, key, window, reset, carried):
    inputs, targets = window[:-1], window[1:]
    start = jax.tree.map(
        lambda fresh, old: jnp.where(_rows(reset, fresh), fresh, jax.lax.stop_gradient(old)),
        lm.initial_state(params, reset.shape[0]), carried)
    loss, state = lm.loss(params, key, inputs, targets, start)
    return (loss.nats + loss.penalty).mean(), (loss.nats.sum(), state)

  def update(train_state: TrainState, window, reset):
    params, opt_state, carried, key, step, rate_factor = train_state
    (_, (nats, state)), gradient = jax.value_and_grad(objective, has_aux=True)(
        params, jax.random.fold_in(key, step), window, reset, carried)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    updates = jax.tree.map(lambda u: u * rate_factor.astype(u.dtype), updates)
    metrics = StepMetrics(nats, jnp.int32(window[1:].size), optax.tree.norm(gradient))
    return TrainState(optax.apply_updates(params, updates), opt_state, state, key, step + 1,
                      rate_factor), metrics

  return jax.jit(update, donate_argnums=0)


def _rows(reset, leaf):
  return reset.reshape(reset.shape + (1,) * (leaf.ndim - 1))
