"""The neural cache (Grave, Joulin and Usunier 2016, arXiv 1612.04426, equations 2 to 4).

A token is likelier where the model's output resembles one after which it came before:

  p(w) = (1 - lambda) p_model(w) + lambda sum_i a_i [w_{i+1} = w]
  a = softmax_i(theta h_i . h_t), over the last W positions i < t

with `h_t` the last layer's undropped output after token `w_t`. Before anything is cached, p is
p_model.

Dimension letters: T time, B batch, V vocabulary, W positions of the cache, D width of the output.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hklm.config.checks import LARGEST_FLOAT32
from hklm.errors import InputError
from hklm.model import LanguageModel


class CacheSettings(NamedTuple):
  """How much the cache says.

  Attributes:
    size: W, positions that it holds.
    weight: lambda, its share of the probability.
    flatness: theta: 0 counts all its positions alike, more prefers those that resemble the present.
  """

  size: int
  weight: float
  flatness: float


class Cache(NamedTuple):
  """The last W positions, the newest last.

  Attributes:
    hidden: outputs `[W, B, D]`, in float32 or wider.
    tokens: ids `[W, B]` after which they came.
    filled: how many positions are of the text, int32 `[]`.
  """

  hidden: jax.Array
  tokens: jax.Array
  filled: jax.Array


def check_cache(settings: CacheSettings):
  """Refuses settings that make no distribution.

  Raises:
    InputError: with the flag to change.

  >>> check_cache(CacheSettings(size=500, weight=1.0, flatness=0.3))
  Traceback (most recent call last):
  hklm.errors.InputError: found --cache_size=500 --cache_weight=1.0 --cache_flatness=0.3; needed: \
a size of 1 to 2**31 - 1, a weight from 0 to below 1, a finite flatness, in float32
  """
  size, weight, flatness = settings
  if not (1 <= size < 2**31 and 0 <= np.float32(weight) < 1
          and abs(flatness) <= LARGEST_FLOAT32):
    raise InputError(
        f"found --cache_size={size} --cache_weight={weight} --cache_flatness={flatness}; needed: "
        "a size of 1 to 2**31 - 1, a weight from 0 to below 1, a finite flatness, in float32")


def empty_cache(lm: LanguageModel, params, size: int, batch_size: int) -> Cache:
  """A cache of `size` positions that holds none.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    size: W.
    batch_size: B.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=3))
  >>> cache = empty_cache(lm, lm.init(jax.random.key(0)), 5, 2)
  >>> cache.hidden.shape, cache.tokens.shape, int(cache.filled)
  ((5, 2, 3), (5, 2), 0)
  """
  output = jax.eval_shape(lambda params: lm.initial_state(params, batch_size), params).output
  dtype = jnp.promote_types(output.dtype, jnp.float32)
  return Cache(jnp.zeros([size, *output.shape], dtype), jnp.zeros([size, batch_size], jnp.int32),
               jnp.zeros([], jnp.int32))


@jax.jit
def with_cache(logits: jax.Array, hidden: jax.Array, tokens: jax.Array, cache: Cache,
               weight: float, flatness: float) -> tuple[jax.Array, Cache]:
  """Log-probabilities of what comes after each token, and the cache that has read them.

  Args:
    logits: of the model, `[T, B, V]`.
    hidden: its outputs, `[T, B, D]`.
    tokens: what it read, ids `[T, B]`.
    cache: the positions before.
    weight: lambda.
    flatness: theta.

  Returns:
    `log p` `[T, B, V]`, in float32 or wider, and a cache of the same size.

  A model that knows nothing, after b a: a came after an output like this one, and has 1/2 more.

  >>> cache = Cache(jnp.ones([3, 1, 2]), jnp.array([[0], [0], [1]]), jnp.int32(1))
  >>> log_p, cache = with_cache(jnp.zeros([1, 1, 2]), jnp.ones([1, 1, 2]), jnp.array([[0]]), cache,
  ...                           weight=0.5, flatness=1.0)
  >>> jnp.exp(log_p).round(6).tolist(), cache.tokens[:, 0].tolist(), int(cache.filled)
  ([[[0.75, 0.25]]], [0, 1, 0], 2)
  """
  T, W = len(tokens), len(cache.tokens)
  outputs = jnp.concatenate([cache.hidden, hidden.astype(cache.hidden.dtype)])  # [W + T, B, D]
  read = jnp.concatenate([cache.tokens, tokens.astype(jnp.int32)])  # [W + T, B]
  scores = flatness * jnp.einsum("tbd,ibd->tbi", outputs[W:], outputs[:-1])  # [T, B, W + T - 1]
  place = jnp.arange(W + T - 1)
  age = W + jnp.arange(T)[:, None] - place  # the one before is 1 old
  held = ((age >= 1) & (age <= W) & (place >= W - cache.filled))[:, None]  # [T, 1, W + T - 1]
  # Not -inf: where nothing is held, that would be NaN.
  scores = jnp.where(held, scores, jnp.finfo(scores.dtype).min)
  # A held score may be as low: what is not held has no share all the same.
  shares = jnp.where(held, jax.nn.softmax(scores), 0)
  pointed = jnp.zeros(logits.shape, shares.dtype).at[
      jnp.arange(T)[:, None, None], jnp.arange(tokens.shape[1])[:, None], read[1:].T].add(shares)
  log_p = jax.nn.log_softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))
  mixed = jnp.logaddexp(jnp.log1p(-weight) + log_p, jnp.log(weight * pointed))
  log_p = jnp.where(held.any(axis=-1, keepdims=True), mixed, log_p)
  return log_p, Cache(outputs[T:], read[T:], jnp.minimum(cache.filled + T, W))
