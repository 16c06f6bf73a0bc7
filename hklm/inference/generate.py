"""Text from a model: the loop over steps is compiled, everything works from logits."""

import functools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from hklm.config.checks import LARGEST_FLOAT32
from hklm.errors import InputError
from hklm.ids import check_ids
from hklm.model import LanguageModel

CHUNK = 64  # steps, and tokens of the prompt, per compiled call: no length compiles anew


def generate(lm: LanguageModel, params, key, length: int, prompt: Sequence[int] = (),
             temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
             batch_size: int = 1, stop: int | None = None) -> np.ndarray:
  """Samples `length` new tokens after a prompt.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    key: the random key; the same key gives the same tokens.
    length: how many new tokens a sample has; the prompt does not count.
    prompt: ids `[P]` that every sample continues; empty: the initial state alone decides.
    temperature: logits are divided by it; 0 takes the arg max (the first of equals).
    top_k: sample among the k likeliest tokens only (of equals, the lower ids).
    top_p: sample among the likeliest tokens that together reach probability p, the one that
      crosses it included.
    batch_size: B, how many samples.
    stop: the id that ends a sample; a sample that met it holds `stop` from there on.

  Returns:
    int32 `[length, B]`.

  Raises:
    InputError: a value out of range (named), logits that are not finite.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> generate(lm, zeros, jax.random.key(0), 3, prompt=[1], temperature=0).tolist()
  [[0], [0], [0]]
  """
  chunks = list(generate_stream(lm, params, key, length, prompt, temperature, top_k, top_p,
                                batch_size, stop))
  tokens = np.concatenate([np.zeros([0, batch_size], np.int32), *chunks])
  rest = np.full([length - len(tokens), batch_size], 0 if stop is None else stop, np.int32)
  return np.concatenate([tokens, rest])


def generate_stream(lm: LanguageModel, params, key, length: int, prompt: Sequence[int] = (),
                    temperature: float = 1.0, top_k: int | None = None,
                    top_p: float | None = None, batch_size: int = 1, stop: int | None = None,
                    chunk: int = CHUNK) -> Iterator[np.ndarray]:
  """As `generate`, a few steps at a time: yields int32 `[at most chunk, B]`.

  Ends early when every sample has met `stop`. The chunk size never changes the tokens. What is out
  of range is refused here, before the first tokens are asked for.
  """
  _check(lm, length, temperature, top_k, top_p, batch_size, stop)
  filters = None
  if top_k is not None or top_p is not None:
    filters = (jnp.int32(lm.config.vocab_size if top_k is None else top_k),
               jnp.float32(1.0 if top_p is None else top_p))
  logits, state = _read_prompt(lm, params, prompt, batch_size)
  return _chunks(lm, params, key, length, logits, state, temperature, filters, stop, chunk)


def _chunks(lm, params, key, length, logits, state, temperature, filters, stop, chunk):
  """The chunks of `generate_stream`, from the logits and the state after the prompt."""
  done = jnp.zeros([len(logits)], bool)
  for start in range(0, length, chunk):
    steps = min(chunk, length - start)
    tokens, finite, logits, state, done = _sample_steps(
        lm, chunk, params, key, jnp.int32(start), jnp.int32(steps), logits, state, done,
        jnp.float32(temperature), filters, jnp.int32(-1 if stop is None else stop))
    if not finite:
      raise InputError("the logits are not finite; needed: finite parameters; the run has "
                       "diverged: lower --learning_rate or --clip and train again")
    yield np.asarray(tokens)[:steps]
    if stop is not None and bool(done.all()):
      return


def filter_logits(logits: jax.Array, top_k: jax.Array, top_p: jax.Array) -> jax.Array:
  """Logits `[B, V]` with -inf outside the k likeliest and the p-nucleus of those.

  Holtzman et al. 2020, equation 3, after a cut to the k largest; never empty.

  Args:
    logits: `[B, V]`.
    top_k: int32 `[]`, 1 to V; of equals the lower ids are kept.
    top_p: float32 `[]`, above 0; 1 keeps all k.

  Returns:
    `[B, V]`.

  >>> filter_logits(jnp.log(jnp.array([[.5, .3, .2]])), jnp.int32(3), jnp.float32(.6)).tolist()
  [[-0.6931471824645996, -1.2039728164672852, -inf]]
  """
  order = jnp.argsort(-logits, axis=-1, stable=True)  # likeliest first; of equals the lower id
  rank = jnp.argsort(order, axis=-1)
  logits = jnp.where(rank < top_k, logits, -jnp.inf)
  probability = jnp.take_along_axis(jax.nn.softmax(logits, axis=-1), order, axis=-1)
  before = jnp.cumsum(probability, axis=-1) - probability  # what likelier tokens hold together
  kept = ((before < top_p) | (top_p >= 1)).at[:, 0].set(True)  # p = 1: whatever the sum rounds to
  return jnp.where(jnp.take_along_axis(kept, rank, axis=-1), logits, -jnp.inf)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _sample_steps(lm, chunk, params, key, start, steps, logits, state, done, temperature, filters,
                  stop):
  """Up to `chunk` steps; returns tokens `[chunk, B]`, of which the first `steps` are made."""

  def step(n, carry):
    tokens, finite, logits, state, done = carry
    finite &= jnp.isfinite(logits).all()
    token = _sample(jax.random.fold_in(key, start + n), logits, temperature, filters)
    token = jnp.where(done, stop, token)
    done |= token == stop
    # A finished sample goes on reading id 0: its tokens are already decided.
    logits, state = lm.step(params, None, jnp.where(done, 0, token), state)
    return tokens.at[n].set(token), finite, logits, state, done

  tokens = jnp.zeros([chunk, done.shape[0]], jnp.int32)
  return jax.lax.fori_loop(0, steps, step, (tokens, True, logits, state, done))


def _sample(key, logits, temperature, filters):
  """Token ids `[B]` from logits `[B, V]`."""
  # From the largest down, in float32: however small the temperature, the arg max stays at 0 and
  # the rest falls to -inf; nothing becomes NaN.
  logits = logits.astype(jnp.float32)
  logits -= logits.max(axis=-1, keepdims=True)
  scaled = logits / jnp.where(temperature > 0, temperature, 1.0)
  if filters is not None:
    scaled = filter_logits(scaled, *filters)
  sampled = jax.random.categorical(key, scaled, axis=-1)
  return jnp.where(temperature > 0, sampled, logits.argmax(axis=-1)).astype(jnp.int32)


def _read_prompt(lm, params, prompt, batch_size):
  """Logits `[B, V]` and state after the prompt, read in padded windows of one shape."""
  state = lm.initial_state(params, batch_size)
  prompt = np.asarray(prompt, np.int64 if len(prompt) == 0 else None)
  check_ids(prompt, lm.config.vocab_size)
  for start in range(0, len(prompt), CHUNK):
    piece = prompt[start:start + CHUNK]
    tokens = np.zeros([CHUNK, batch_size], np.int32)
    tokens[:len(piece)] = piece[:, None]
    mask = np.arange(CHUNK)[:, None] < np.full([1, batch_size], len(piece))
    _, state = lm.hidden(params, None, tokens, state, mask)
  return lm.readout(params, state), state


def _check(lm, length, temperature, top_k, top_p, batch_size, stop):
  size = lm.config.vocab_size
  rules = [
      (0 <= length < 2**31, f"--length={length} is out of range; needed: 0 to 2**31 - 1"),
      (1 <= batch_size < 2**31, f"--samples={batch_size} is out of range; needed: 1 to 2**31 - 1"),
      (0 <= temperature <= LARGEST_FLOAT32,
       f"--temperature={temperature} is out of range; needed: a float32 number, 0 or more"),
      (top_k is None or 1 <= top_k <= size,
       f"--top_k={top_k} is out of range; needed: 1 to {size}, the vocabulary's size"),
      (top_p is None or 0 < top_p <= 1,
       f"--top_p={top_p} is out of range; needed: above 0, at most 1"),
      (stop is None or 0 <= stop < size,
       f"the stop id {stop} is outside the vocabulary of {size}"),
  ]
  for holds, message in rules:
    if not holds:
      raise InputError(message)
