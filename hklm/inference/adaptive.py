"""A text that is read by a model which adapts to it: by a cache, by learning, or by both.

What a token costs never depends on the token itself or on one after it. Learning changes the
parameters between segments, the cache what is made of their outputs.

Dimension letters: T time, V vocabulary, S tokens of a segment.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from hklm.errors import InputError
from hklm.ids import BLOCK, check_ids
from hklm.inference import predictions, streams
from hklm.inference.cache import Cache, CacheSettings, check_cache, empty_cache, with_cache
from hklm.inference.dynamic import DynamicSettings, adapted, check_dynamic, wide
from hklm.losses import token_nats
from hklm.metrics import Metrics
from hklm.model import LanguageModel, State


class Carried(NamedTuple):
  """What goes from window to window.

  Attributes:
    state: of the model.
    cache: the positions before, or None.
    theta: the adapted parameters, or None.
  """

  state: State
  cache: Cache | None
  theta: Any


def reader(lm: LanguageModel, cache: CacheSettings | None = None,
           dynamic: DynamicSettings | None = None, sizes=None,
           window: int = streams.WINDOW) -> streams.Reader:
  """How `streams.predict_stream` reads a text with a neural cache, dynamic evaluation, or both.

  Args:
    lm: the bundle of functions.
    cache: settings of the cache; None: no cache.
    dynamic: settings of dynamic evaluation; None: the parameters stay as they are.
    sizes: of `dynamic`, what `gradient_sizes` has found.
    window: tokens per compiled call, at most, but a whole segment at least; it changes no figure.

  Raises:
    InputError: settings that cannot serve.

  >>> import hklm, jax.numpy as jnp
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> (line,) = streams.predict_stream(lm, zeros, [[0, 1, 1]], reader=reader(
  ...     lm, CacheSettings(size=500, weight=0.2, flatness=1.0)))
  >>> np.exp(-line.nats).round(6).tolist()  # 1/4; 1/4, since all is as before; .8 / 4 + .2
  [0.25, 0.25, 0.4]
  """
  if window < 1:
    raise InputError(f"found --window={window}; needed: 1 or more")
  if cache:
    check_cache(cache)
  segment = window
  if dynamic:
    check_dynamic(dynamic)
    segment = dynamic.segment

  def start(params):
    return Carried(lm.initial_state(params, 1), cache and empty_cache(lm, params, cache.size, 1),
                   dynamic and wide(params))

  def read(params, tokens, targets, carried):
    return _read(lm, segment, params, tokens, targets, carried, cache, dynamic, sizes)

  remedy = "a smaller --dynamic_rate" if dynamic else "another --cache_weight or --cache_flatness"
  return streams.Reader(max(window // segment, 1) * segment, start, read, remedy)


def evaluate_adapting(lm: LanguageModel, params, ids, how: streams.Reader,
                      unknown: int | None = None) -> Metrics:
  """As `hklm.evaluate` with one stream, but read by a reader.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    ids: integers `[N]`, an array or a memory map.
    how: what `reader` returns.
    unknown: the id of the unknown token, whose share is summed apart.

  Raises:
    InputError: fewer than two tokens, an id outside the vocabulary, a result that is not finite.

  >>> import hklm, jax.numpy as jnp
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> round(evaluate_adapting(lm, zeros, [0, 1, 2], reader(lm)).bits_per_token, 6)
  2.0
  """
  ids = np.asanyarray(ids)
  if len(ids) < 2:
    raise InputError(f"nothing to score: found {len(ids)} tokens, needed at least 2, the first of "
                     "which is only read")
  check_ids(ids, lm.config.vocab_size)
  starts = range(1, len(ids), BLOCK)
  blocks = streams.predict_stream(lm, params, (ids[start:start + BLOCK] for start in starts),
                                  int(ids[0]), how)
  metrics = Metrics(nats=0.0, tokens=0, window=how.window)
  for start, its in zip(starts, blocks, strict=True):
    is_unknown = ids[start:start + BLOCK] == (-1 if unknown is None else unknown)
    metrics += Metrics(math.fsum(its.nats), len(its.nats), math.fsum(its.nats[is_unknown]),
                       int(is_unknown.sum()))
  return metrics


@functools.partial(jax.jit, static_argnums=(0, 1))
def _read(lm, segment, params, tokens, targets, carried, cache, dynamic, sizes):
  """`Figures` `[T, 1]`, and what is carried on."""
  if dynamic is None:
    _, (figures, carried) = _nats(lm, params, tokens, targets, carried, cache)
    return figures, carried

  def learn(carried, its):
    theta = jax.tree.map(lambda t, p: t.astype(p.dtype), carried.theta, params)
    g, (figures, carried) = jax.grad(_nats, argnums=1, has_aux=True)(
        lm, theta, *its, carried, cache)
    theta = adapted(carried.theta, wide(params), wide(g), sizes, dynamic)
    return carried._replace(theta=theta), figures

  segments = [ids.reshape(-1, segment, 1) for ids in (tokens, targets)]  # [T / S, S, 1]
  carried, figures = jax.lax.scan(learn, carried, segments)
  return jax.tree.map(lambda values: values.reshape(tokens.shape), figures), carried


def _nats(lm, params, tokens, targets, carried, cache):
  """The model's mean nats, to be learned from; `Figures` of what is made of its logits."""
  hidden, state = lm.hidden(params, None, tokens, carried.state)
  logits = lm.head(params, hidden)
  nats, remembered = token_nats(logits, targets).mean(), carried.cache
  hidden, logits = jax.lax.stop_gradient((hidden, logits))  # what follows is not learned from
  if cache is not None:
    logits, remembered = with_cache(logits, hidden, tokens, remembered, cache.weight,
                                    cache.flatness)
  return nats, (predictions.figures(logits, targets), Carried(state, remembered, carried.theta))
