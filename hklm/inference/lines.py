"""Lines of ids, each by itself: many side by side, in few compiled shapes.

Dimension letters: T time, B batch, V vocabulary.
"""

import bisect
import collections
import functools
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from hklm.errors import InputError
from hklm.ids import check_ids
from hklm.model import LanguageModel

WINDOW = 1024  # the longest compiled T; longer lines are read in windows, the state carried
LOGITS = 2**24  # of a group, T B V at most; but
FEWEST, MOST = 512, 4096  # tokens T B of a group, whatever the vocabulary
IN_FLIGHT = 4  # groups on their way while an older one is awaited


def score_lines(lm: LanguageModel, params, ids: Iterable[Sequence[int]]) -> list[np.ndarray]:
  """What every token of every line costs; its first token is predicted from the initial state.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    ids: lines, each of integers `[N_i]`: any number of any length, 0 too.

  Returns:
    Nats of each token, float64 `[N_i]` a line, in the order of the lines.

  Raises:
    InputError: ids that the model cannot read, or a result that is not finite (line and token
      named).

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> [nats.round(6).tolist() for nats in score_lines(lm, zeros, [[0, 3], [], [1]])]  # log 4
  [[1.386294, 1.386294], [], [1.386294]]
  """
  lines = [checked(line, number, lm.config.vocab_size) for number, line in enumerate(ids)]
  results = [np.empty(len(line)) for line in lines]
  pending = collections.deque()
  for piece in _pieces(lm, params, lines):
    pending.append(piece)
    if len(pending) > IN_FLIGHT:
      _take(*pending.popleft(), results)
  for piece in pending:
    _take(*piece, results)
  for number, nats in enumerate(results):
    if not np.isfinite(nats).all():
      token = np.flatnonzero(~np.isfinite(nats))[0]
      raise InputError(f"line {number}, token {token}: the surprisal is {nats[token]}; needed: "
                       "finite parameters; the run has diverged: train it again")
  return results


def checked(line: Sequence[int], number: int, vocab_size: int) -> np.ndarray:
  """Ids of a line as an array `[N]`.

  Args:
    line: of ids.
    number: of the line, for messages.
    vocab_size: V.

  Raises:
    InputError: what is no id; it is named.

  >>> checked([0, 5], 3, vocab_size=5)
  Traceback (most recent call last):
  hklm.errors.InputError: line 3: id 5 at position 1 is outside the vocabulary of 5; needed: 0 to 4
  """
  try:
    ids = np.asarray(line)
  except ValueError as error:
    raise InputError(f"line {number}: found lists of several lengths; needed: integers") from error
  if ids.shape == (0,):  # of no type yet
    return np.zeros([0], np.int32)
  try:
    check_ids(ids, vocab_size)
  except InputError as error:
    raise InputError(f"line {number}: {error}") from error
  return ids


def _pieces(lm, params, lines) -> Iterator[tuple[list[int], int, jax.Array]]:
  """Group, start and nats `[T, B]`: column b has those of line `group[b]` from token `start` on.

  What is beyond a line's end is padding; it comes after the line's tokens, so that no mask is
  needed to keep it from them. The nats may still be on their way.
  """
  for group, columns in groups([len(line) for line in lines], lm.config.vocab_size):
    longest = len(lines[group[0]])
    if longest <= WINDOW:
      tokens = laid_out([lines[n] for n in group], padded(longest), columns)
      yield group, 0, _whole_nats(lm, params, tokens)
      continue
    nats, state = _first_nats(lm, params, laid_out([lines[n] for n in group], 1, columns))
    yield group, 0, nats
    windows = -(-(longest - 1) // WINDOW)
    steps = padded(-(-(longest - 1) // windows))
    for start in range(0, longest - 1, steps):
      tokens = laid_out([lines[n][start:] for n in group], steps + 1, columns)
      nats, state = _window_nats(lm, params, tokens, state)
      yield group, start + 1, nats


def groups(lengths: Sequence[int], vocab_size: int, fewest: int = 1
           ) -> Iterator[tuple[list[int], int]]:
  """Lines to score side by side, the longest first, empty ones left out.

  All lines of a group are at least half as long as its first, or the first has at most 8 tokens;
  few sizes of B go with each T.

  Args:
    lengths: of the lines.
    vocab_size: V; the larger, the smaller the groups, since logits are `[T, B, V]`.
    fewest: B at least, whatever the group.

  Yields:
    The lines' places in `lengths`, and how many columns B they get, at least one each.

  >>> list(groups([3, 0, 40, 2], vocab_size=10))
  [([2], 1), ([0, 3], 4)]
  """
  tokens = min(max(LOGITS // vocab_size, FEWEST), MOST)
  order = [n for n in np.argsort(lengths, kind="stable")[::-1].tolist() if lengths[n]]
  start = 0
  while start < len(order):
    longest = lengths[order[start]]
    most = max(fewest, tokens // padded(min(longest, WINDOW)))
    group = [n for n in order[start:start + most]
             if 2 * lengths[n] >= longest or longest <= _PADDED[0]]
    columns = fewest
    while columns < len(group):
      columns *= 4
    yield group, min(columns, most)
    start += len(group)


def _lengths() -> tuple[int, ...]:
  """To what lengths the longest line of a group is padded: in steps of 8, later of a quarter."""
  lengths = [8]
  while lengths[-1] < WINDOW:
    lengths.append(min(WINDOW, max(lengths[-1] + 8, lengths[-1] * 5 // 4 // 8 * 8)))
  return tuple(lengths)


_PADDED = _lengths()


def padded(length: int) -> int:
  """The compiled length T for lines of up to so many tokens, `WINDOW` at most.

  >>> [padded(length) for length in (1, 8, 9, 1024)]
  [8, 8, 16, 1024]
  """
  return _PADDED[bisect.bisect_left(_PADDED, length)]


def laid_out(lines: Sequence[np.ndarray], steps: int, columns: int) -> np.ndarray:
  """The first tokens of each line, int32 `[T, B]`, the rest 0.

  Args:
    lines: of ids, at most B.
    steps: T.
    columns: B.

  >>> laid_out([np.array([1, 2, 3]), np.array([4])], steps=2, columns=3).tolist()
  [[1, 4, 0], [2, 0, 0]]
  """
  tokens = np.zeros([steps, columns], np.int32)
  for column, ids in enumerate(lines):
    tokens[:len(ids), column] = ids[:steps]
  return tokens


def _take(group, start, nats, results):
  """Waits for a piece's nats and puts them in their places."""
  nats = np.asarray(nats)  # [T, B]
  for column, line in enumerate(group):
    places = results[line][start:start + len(nats)]
    places[:] = nats[:len(places), column]


@functools.partial(jax.jit, static_argnums=0)
def _whole_nats(lm, params, tokens):
  """Nats `[T, B]` of whole lines `[T, B]`."""
  first, state = _first_nats(lm, params, tokens[:1])
  rest, _ = _window_nats(lm, params, tokens, state)
  return jnp.concatenate([first, rest])


@functools.partial(jax.jit, static_argnums=0)
def _first_nats(lm, params, tokens):
  """Nats `[1, B]` of the first tokens `[1, B]`, and the state that is to read them."""
  logits = lm.readout(params, lm.initial_state(params, 1))[0]  # [V]: all lines start alike
  logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
  return -jax.nn.log_softmax(logits)[tokens], lm.initial_state(params, tokens.shape[1])


@functools.partial(jax.jit, static_argnums=0)
def _window_nats(lm, params, tokens, state):
  """Nats `[T, B]` of all but the first of `[T + 1, B]` tokens, and the state before the last."""
  loss, state = lm.loss(params, None, tokens[:-1], tokens[1:], state)
  return loss.nats, state
