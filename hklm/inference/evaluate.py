"""How well a model predicts a text: every token scored once, the state carried."""

import functools

import jax
import numpy as np

from hklm.errors import InputError
from hklm.ids import check_ids, cover
from hklm.metrics import Metrics
from hklm.model import LanguageModel


def evaluate(lm: LanguageModel, params, ids, window: int = 256, streams: int = 1,
             unknown: int | None = None) -> Metrics:
  """Scores N - 1 of the N tokens of `ids`; the first is only ever read.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    ids: integers `[N]`, an array or a memory map.
    window: T, steps per compiled call; it bounds memory and changes no figure.
    streams: S, how many pieces of the text are read side by side. Each starts from the initial
      state, so a final figure uses 1.
    unknown: the id of the unknown token, whose share is summed apart.

  Returns:
    `Metrics`: sums in float64, counts, and the figures derived from them.

  Raises:
    InputError: fewer than two tokens, an id outside the vocabulary, a result that is not finite.

  >>> import hklm, jax.numpy as jnp
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> metrics = evaluate(lm, zeros, [0, 1, 2, 3, 0])
  >>> metrics.tokens, round(metrics.perplexity, 5), round(metrics.bits_per_token, 6)
  (4, 4.0, 2.0)
  """
  if window < 1 or streams < 1:
    raise InputError(f"found --window={window} and --streams={streams}; needed: 1 or more")
  ids = np.asanyarray(ids)
  check_ids(ids, lm.config.vocab_size)
  targets = max(1, len(ids) - 1)
  each = -(-targets // streams)  # targets of a stream
  streams = -(-targets // each)  # those that have any
  window = min(window, each)
  metrics = Metrics(nats=0.0, tokens=0, streams=streams, window=window)
  state = lm.initial_state(params, streams)
  for tokens, mask in cover(ids, streams, window):
    nats, state = _score_window(lm, params, tokens, mask, state)
    nats = np.asarray(nats, np.float64)
    is_unknown = mask & (tokens[1:] == unknown) if unknown is not None else np.zeros_like(mask)
    metrics += Metrics(nats=float(nats.sum()), tokens=int(mask.sum()),
                       unknown_nats=float(nats[is_unknown].sum()),
                       unknown_tokens=int(is_unknown.sum()))
  if not np.isfinite(metrics.nats):
    raise InputError(f"the loss is {metrics.nats}; needed: finite parameters; the run has "
                     "diverged: lower --learning_rate or --clip and train again")
  return metrics


@functools.partial(jax.jit, static_argnums=0)
def _score_window(lm, params, tokens, mask, state):
  """Nats `[T, B]` of one padded window `[T + 1, B]`, and the state after it."""
  loss, state = lm.loss(params, None, tokens[:-1], tokens[1:], state, mask)
  return loss.nats, state
