"""The temperature T of a model's softmax, `p = softmax(logits / T)`: how it is set, and tuned.

Dimension letters: T time, B batch, V vocabulary, G guesses.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from hklm.errors import InputError
from hklm.ids import check_ids, cover
from hklm.losses import Loss, token_nats
from hklm.model import LanguageModel

LOWEST, HIGHEST = 0.5, 2.0  # temperatures that are looked at
GUESSES = 17  # made side by side in one pass over the text
PASSES = 2


@functools.lru_cache(maxsize=128)
def tempered(lm: LanguageModel, temperature: float) -> LanguageModel:
  """The same model with its logits divided by a temperature: for inference, nothing else.

  Its loss has the nats of the divided logits, and no penalty.

  Args:
    lm: the bundle of functions.
    temperature: above 0; above 1 it levels the distribution, below 1 it sharpens it.

  Returns:
    A bundle; the same one for the same arguments, so that jitted callers do not recompile.

  Raises:
    InputError: a temperature that is not above 0, or not finite.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> params = lm.init(jax.random.key(0))
  >>> logits = lm.head(params, jnp.ones(2))
  >>> bool(jnp.allclose(tempered(lm, 2.0).head(params, jnp.ones(2)), logits / 2))
  True
  """
  if not 0 < temperature < np.inf:
    raise InputError(f"found the temperature {temperature}; needed: above 0, and finite")

  @jax.jit
  def readout(params, state):
    return lm.readout(params, state) / temperature

  @jax.jit
  def step(params, key, tokens, state):
    logits, state = lm.step(params, key, tokens, state)
    return logits / temperature, state

  @jax.jit
  def unroll(params, key, tokens, state, mask=None):
    logits, state = lm.unroll(params, key, tokens, state, mask)
    return logits / temperature, state

  @jax.jit
  def head(params, hidden):
    return lm.head(params, hidden) / temperature

  @jax.jit
  def loss(params, key, inputs, targets, state, mask=None):
    logits, state = unroll(params, key, inputs, state, mask)
    nats = token_nats(logits, targets)
    if mask is not None:
      nats = jnp.where(mask, nats, 0)
    return Loss(nats, jnp.zeros_like(nats)), state

  return lm._replace(readout=readout, step=step, unroll=unroll, head=head, loss=loss)


def tune_temperature(lm: LanguageModel, params, ids, window: int = 256, streams: int = 1) -> float:
  """The temperature in [0.5, 2] at which a text costs least.

  The nats of a text are convex in `b = 1 / T`, so the least is where their slope changes sign. Each
  pass takes the slopes at evenly spaced b and goes on between the two where it does so; what is
  then left is so short that the slope is a straight line.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    ids: of validation text, integers `[N]`, an array or a memory map.
    window: steps per compiled call; it bounds memory and changes no figure.
    streams: how many pieces of the text are read side by side, each from the initial state.

  Returns:
    T; 0.5 or 2 where the nats still fall there.

  Raises:
    InputError: fewer than two tokens, an id outside the vocabulary, a result that is not finite.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=2, embedding_size=1, hidden_size=1))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> sure = dict(zeros, head=dict(zeros["head"], b=jnp.log(jnp.array([9.0, 1.0]))))
  >>> round(tune_temperature(lm, sure, [0, 0, 0, 0, 1]), 4)  # 3 of 4: log 9 / log 3 is 2
  2.0
  """
  if window < 1 or streams < 1:
    raise InputError(f"found window={window} and streams={streams}; needed: 1 or more")
  ids = np.asanyarray(ids)
  check_ids(ids, lm.config.vocab_size)
  targets = max(1, len(ids) - 1)
  streams = min(streams, targets)
  window = min(window, -(-targets // streams))
  low, high = 1 / HIGHEST, 1 / LOWEST
  for _ in range(PASSES):
    guesses = np.linspace(low, high, GUESSES)
    slopes = _slopes(lm, params, ids, window, streams, guesses)
    if not np.isfinite(slopes).all():
      raise InputError("the loss is not finite; needed: finite parameters; the run has diverged: "
                       "train it again")
    after = int(np.searchsorted(slopes > 0, True))  # the first guess that is too sharp
    if after in (0, GUESSES):
      return float(1 / guesses[min(after, GUESSES - 1)])
    low, high = guesses[after - 1], guesses[after]
  before, beyond = slopes[after - 1], slopes[after]
  return float(1 / (low - before * (high - low) / (beyond - before)))


def _slopes(lm, params, ids, window, streams, guesses):
  """Of the nats of a text in b, at each guess of b, float64 `[G]`."""
  total, state = np.zeros(len(guesses)), lm.initial_state(params, streams)
  for tokens, mask in cover(ids, streams, window):
    slopes, state = _window_slopes(lm, params, tokens, mask, state, guesses)
    total += np.asarray(slopes, np.float64)
  return total


@functools.partial(jax.jit, static_argnums=0)
def _window_slopes(lm, params, tokens, mask, state, guesses):
  logits, state = lm.unroll(params, None, tokens[:-1], state, mask)
  # Not the logits: what they have in common would cancel, and take digits with it.
  log_p = jax.nn.log_softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))

  def nats(b):
    return jnp.where(mask, token_nats(b * log_p, tokens[1:]), 0).sum()

  return jax.lax.map(jax.grad(nats), guesses.astype(log_p.dtype)), state
