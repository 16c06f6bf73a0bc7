"""Dynamic evaluation (Krause, Kahembwe, Murray and Renals 2017, arXiv 1709.07432, section 4).

The parameters learn from each segment of a text, after it was scored:

  theta <- theta + lambda min(MS / mean(MS), 1 / lambda) (theta_0 - theta) - eta g / (MS + epsilon)

with `g` the gradient of the segment's mean nats, and `MS` the root of the mean squared gradient
over training text, element by element. `mean(MS)` is the mean over the parameters' arrays of each
one's mean.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hklm.config.checks import LARGEST_FLOAT32
from hklm.errors import InputError
from hklm.losses import token_nats
from hklm.model import LanguageModel

BATCH_SIZE = 100  # streams of the training text side by side, as published settings suppose


class DynamicSettings(NamedTuple):
  """How fast parameters adapt.

  Attributes:
    rate: eta.
    decay: lambda, how far they go back to where they began.
    segment: tokens between two steps.
    epsilon: what keeps parameters from great steps that had small gradients.
  """

  rate: float
  decay: float
  segment: int = 5
  epsilon: float = 1e-3


def check_dynamic(settings: DynamicSettings):
  """Refuses settings with which nothing could be adapted.

  Raises:
    InputError: with the flag to change.

  >>> check_dynamic(DynamicSettings(rate=0.002, decay=-1.0))
  Traceback (most recent call last):
  hklm.errors.InputError: found --dynamic_rate=0.002 --dynamic_decay=-1.0 --dynamic_segment=5 \
--dynamic_epsilon=0.001; needed: finite, rate and epsilon above 0, decay 0 or more, segment 1 or \
more
  """
  rate, decay, segment, epsilon = settings
  most = LARGEST_FLOAT32
  if not (0 < rate <= most and 0 <= decay <= most and segment >= 1 and 0 < epsilon <= most):
    raise InputError(
        f"found --dynamic_rate={rate} --dynamic_decay={decay} --dynamic_segment={segment} "
        f"--dynamic_epsilon={epsilon}; needed: finite, rate and epsilon above 0, decay 0 or more, "
        "segment 1 or more")


def wide(params):
  """Parameters in float32 or wider: small steps would be lost in bfloat16.

  >>> wide({"w": jnp.ones([2], jnp.bfloat16)})["w"].dtype
  dtype('float32')
  """
  return jax.tree.map(lambda p: p.astype(jnp.promote_types(p.dtype, jnp.float32)), params)


def gradient_sizes(lm: LanguageModel, params, windows: Iterable[np.ndarray]):
  """MS: the root of the mean, over windows, of the squared gradient of a window's mean nats.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    windows: ids `[T + 1, B]` of training text, as `hklm.data.streams.Streams` has them: the state
      is carried from each to the next, but cut from the gradient.

  Returns:
    A tree like the parameters, in float32 or wider.

  Raises:
    InputError: no windows, or gradients that are all 0 or not finite.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=2, embedding_size=1, hidden_size=1))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> sizes = gradient_sizes(lm, zeros, [np.array([[0], [0], [0]]), np.array([[0], [1], [0]])])
  >>> np.round(np.float64(sizes["head"]["b"]), 6).tolist()  # of the gradients [-.5, .5] and [0, 0]
  [0.353553, 0.353553]
  """
  squares, count, state = jax.tree.map(jnp.zeros_like, wide(params)), 0, None
  for window in windows:
    if state is None:
      state = lm.initial_state(params, window.shape[1])
    squares, state = _add_squares(lm, params, squares, np.asarray(window, np.int32), state)
    count += 1
  if not count:
    raise InputError("found no window of training text; needed: one or more; see --dynamic_corpus")
  sizes = jax.tree.map(lambda s: jnp.sqrt(s / count), squares)
  mean = float(_mean(sizes))
  if not 0 < mean < np.inf:
    raise InputError(f"the mean size of gradients is {mean}; needed: finite, and not 0; train the "
                     "run again, or see --dynamic_corpus")
  return sizes


@jax.jit
def adapted(theta, theta_0, gradient, sizes, settings: DynamicSettings):
  """Parameters after one step: the equation above.

  Args:
    theta: parameters now, a tree.
    theta_0: as they were before the text.
    gradient: g.
    sizes: MS.
    settings: eta, lambda, epsilon; numbers or arrays.

  Returns:
    As `theta`.

  >>> step = adapted(jnp.array([1.0]), jnp.array([0.0]), jnp.array([1.0]), jnp.array([0.5]),
  ...                DynamicSettings(rate=0.2, decay=0.1, epsilon=0.5))
  >>> np.round(np.float64(step), 6).tolist()  # 1 - 0.1 - 0.2
  [0.7]
  """
  mean = _mean(sizes)

  def moved(now, before, g, size):
    back = jnp.minimum(settings.decay * size / mean, 1)  # also where lambda is 0
    return now + back * (before - now) - settings.rate * g / (size + settings.epsilon)

  return jax.tree.map(moved, theta, theta_0, gradient, sizes)


def _mean(sizes):
  return jnp.stack([leaf.mean() for leaf in jax.tree.leaves(sizes)]).mean()


@functools.partial(jax.jit, static_argnums=0)
def _add_squares(lm, params, squares, window, state):
  def loss(params):
    logits, after = lm.unroll(params, None, window[:-1], state)
    return token_nats(logits, window[1:]).mean(), after

  gradient, state = jax.grad(loss, has_aux=True)(params)
  return jax.tree.map(lambda s, g: s + jnp.square(g), squares, wide(gradient)), state
