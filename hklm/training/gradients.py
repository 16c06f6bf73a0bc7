"""The gradient of a window's loss: of all of it at once, or of parts one after the other.

Dimension letters: T time, B batch, N parts of the batch.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from jax import lax

from hklm.config import TrainConfig
from hklm.model import LanguageModel
from hklm.training import precision


def make_gradient(lm: LanguageModel, config: TrainConfig) -> Callable:
  """`(params, key, window [T + 1, B], reset [B], carried, length=None) -> gradient, nats, state`.

  The gradient is that of the mean over the window's tokens of nats plus penalty; with `loss="sum"`
  that of the sum over time of the mean over the batch. Of the T steps the first `length` are read,
  int32 `[]`; all, where it is None. Rows of `reset` start from the initial state, made inside the
  differentiated function so that a learned one gets its gradient; the others go on from the carried
  state, through which none flows.

  Args:
    lm: the functions to compute with, as `precision.computing` gives them.
    config: of which `accumulate`, `compute_dtype`, `loss` and `remat_steps` are read.

  Returns:
    The function. Its gradient is like `params`, its nats are the sum over the window, its state is
    the one after the window.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> params, window = lm.init(jax.random.key(0)), jnp.zeros([6, 4], jnp.int32)
  >>> start, reset = lm.initial_state(params, 4), jnp.ones([4], bool)
  >>> whole, parts = (make_gradient(lm, TrainConfig(accumulate=n))(
  ...     params, jax.random.key(1), window, reset, start)[0] for n in (1, 2))
  >>> bool(jnp.allclose(whole["head"]["w"], parts["head"]["w"]))
  True
  """

  def losses(params, key, inputs, targets, state, *mask):
    # Cast here, so that a sum of gradients over chunks or parts is of the parameters' own type.
    loss, state = lm.loss(precision.cast(params, config), key, inputs, targets, state, *mask)
    return (loss.nats + loss.penalty).sum(), loss.nats.sum(), state

  if config.remat_steps:
    losses = _in_chunks(losses, config.remat_steps, lm.config.dropout_per_step)

  def objective(params, key, window, reset, carried, length=None):
    initial = lm.initial_state(precision.cast(params, config), reset.shape[0])
    start = jax.tree.map(
        lambda fresh, old: jnp.where(_rows(reset, fresh), fresh, lax.stop_gradient(old)),
        initial, carried)
    inputs, targets = window[:-1], window[1:]
    steps, live = len(targets), ()
    if length is not None:
      live = (jnp.broadcast_to(jnp.arange(steps)[:, None] < length, targets.shape),)
      steps = length
    total, nats, state = losses(params, key, inputs, targets, start, *live)
    return total / (len(reset) if config.loss == "sum" else len(reset) * steps), (nats, state)

  def gradient(params, *inputs):
    (_, (nats, state)), slope = jax.value_and_grad(objective, has_aux=True)(params, *inputs)
    return slope, nats, state

  return _in_parts(gradient, config.accumulate) if config.accumulate > 1 else gradient


def _in_chunks(losses, steps, per_step):
  """`losses` of a window, chunk by chunk of so many steps.

  What a chunk keeps for its gradient is made again from the state before it, which alone is kept
  (Chen et al. 2016, section 4.1). The last chunk, perhaps a shorter one, comes first in the
  backward pass and keeps its own.
  """

  def chunk_key(key, n):
    # Masks of a window are drawn from the key alone: the same key, the same masks.
    return jax.random.fold_in(key, n) if per_step else key

  def in_chunks(params, key, inputs, targets, state):
    whole = (len(inputs) - 1) // steps
    chunks = [x[:whole * steps].reshape(whole, steps, *x.shape[1:]) for x in (inputs, targets)]

    @jax.checkpoint
    def add(state, chunk):
      n, inputs, targets = chunk
      total, nats, state = losses(params, chunk_key(key, n), inputs, targets, state)
      return state, (total, nats)

    state, sums = lax.scan(add, state, (jnp.arange(whole), *chunks))
    total, nats, state = losses(params, chunk_key(key, whole), inputs[whole * steps:],
                                targets[whole * steps:], state)
    return total + sums[0].sum(), nats + sums[1].sum(), state

  return in_chunks


def _in_parts(gradient, count):
  """The mean `gradient` of so many parts of a window's B streams; each part has its own key."""

  def in_parts(params, key, window, reset, carried, length=None):
    chex.assert_is_divisible(len(reset), count)

    def add(total, part):
      n, *inputs = part
      slope, nats, state = gradient(params, jax.random.fold_in(key, n), *inputs, length)
      return jax.tree.map(lambda sum_, leaf: sum_ + leaf, total, slope), (nats, state)

    # Stream b is of part b % N: whatever devices the streams lie on, all have work in every part.
    def split(leaf):  # [B, ...] -> [N, B / N, ...]
      return jnp.moveaxis(leaf.reshape(len(leaf) // count, count, *leaf.shape[1:]), 1, 0)

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, precision.wide(leaf.dtype)), params)
    windows = jnp.moveaxis(window.reshape(len(window), -1, count), 2, 0)  # [N, T + 1, B / N]
    total, (nats, states) = lax.scan(
        add, zeros, (jnp.arange(count), windows, split(reset), jax.tree.map(split, carried)))
    mean = jax.tree.map(lambda sum_, leaf: (sum_ / count).astype(leaf.dtype), total, params)
    return mean, nats.sum(), jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf, 0, 1).reshape(len(reset), *leaf.shape[2:]), states)

  return in_parts


def _rows(reset, leaf):
  return reset.reshape(reset.shape + (1,) * (leaf.ndim - 1))
