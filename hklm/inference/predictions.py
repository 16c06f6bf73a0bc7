"""What a model predicts at every place of a line: surprisal, entropy, rank; in few compiled shapes.

Dimension letters: N tokens of a line, T time, B batch, V vocabulary.
"""

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hklm.errors import InputError
from hklm.ids import check_ids
from hklm.inference import lines as shapes
from hklm.model import LanguageModel

COLUMNS = 64  # of a group of lines, at least
DIVERGED = "finite parameters; the run has diverged: train it again"


class Predictions(NamedTuple):
  """Of a line of N tokens.

  Attributes:
    nats: `-log p(token | what is before it)`, float64 `[N]`.
    entropies: of what is predicted before each token, and after the last, in nats, float64
      `[N + 1]`.
    ranks: 1 and how many tokens are more probable than the token, int64 `[N]`.
  """

  nats: np.ndarray
  entropies: np.ndarray
  ranks: np.ndarray


class Figures(NamedTuple):
  """Of places `[...]`, on the device: what the logarithms are taken of, on the host, in float64.

  Attributes:
    masses: `sum_v exp(logit_v - highest logit)`; 1 or more.
    gaps: how far the logit of what comes next is below the highest.
    mean_gaps: the mean of all gaps, each with its probability.
    ranks: of what comes next.
  """

  masses: jax.Array
  gaps: jax.Array
  mean_gaps: jax.Array
  ranks: jax.Array

  def on_host(self) -> Predictions:
    """Awaits them: nats `gap + log mass`, entropies `mean gap + log mass`, ranks, each `[...]`."""
    masses, gaps, mean_gaps = (np.asarray(values, np.float64) for values in self[:3])
    return Predictions(gaps + np.log(masses), mean_gaps + np.log(masses),
                       np.asarray(self.ranks, np.int64))


def predict_lines(lm: LanguageModel, params, lines: Iterable[Sequence[int]],
                  first: int | None = None) -> list[Predictions]:
  """Each line by itself.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    lines: of ids, each integers `[N]`: any number of any length, 0 too.
    first: an id that is read before each line, and is not one of its tokens; None: the first token
      is predicted from the initial state.

  Returns:
    In the order of the lines.

  Raises:
    InputError: ids that the model cannot read; a result that is not finite (line and token named).

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> (line,) = predict_lines(lm, zeros, [[0, 3]])  # log 4
  >>> line.nats.round(6).tolist(), line.entropies.round(6).tolist(), line.ranks.tolist()
  ([1.386294, 1.386294], [1.386294, 1.386294, 1.386294], [1, 1])
  """
  before = [] if first is None else [first]
  fed = [np.concatenate([before, shapes.checked(line, n, lm.config.vocab_size)]).astype(np.int32)
         for n, line in enumerate(lines)]
  check_ids(np.asarray(before, np.int32), lm.config.vocab_size)
  found = [Predictions(*(np.zeros(len(ids), dtype) for dtype in (float, float, np.int64)))
           for ids in fed]
  pending = collections.deque()
  for piece in _pieces(lm, params, fed):
    pending.append(piece)
    if len(pending) > shapes.IN_FLIGHT:
      _take(*pending.popleft(), found)
  for piece in pending:
    _take(*piece, found)
  start = None if before else at_the_start(lm, params)
  return [finite(_shifted(ids, its, start), n)
          for n, (ids, its) in enumerate(zip(fed, found, strict=True))]


def figures(logits: jax.Array, targets: jax.Array) -> Figures:
  """What nats and rank of each target, and the entropy of each distribution, come from.

  Args:
    logits: `[..., V]`.
    targets: ids `[...]`.

  Returns:
    `Figures` `[...]`, in float32 or wider.

  >>> its = figures(jnp.log(jnp.array([.5, .25, .25])), jnp.array(1)).on_host()
  >>> round(float(its.nats / np.log(2)), 6), round(float(its.entropies / np.log(2)), 6), its.ranks
  (2.0, 1.5, array(2))
  """
  logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
  gaps = logits.max(-1, keepdims=True) - logits  # [..., V]; infinite where p is 0
  weights = jnp.exp(-gaps)
  masses = weights.sum(-1)
  mean_gaps = jnp.where(weights > 0, weights * gaps, 0).sum(-1) / masses
  true = jnp.take_along_axis(gaps, targets[..., None], axis=-1)
  return Figures(masses, true[..., 0], mean_gaps, 1 + (gaps < true).sum(-1))


@functools.partial(jax.jit, static_argnums=0)
def read(lm: LanguageModel, params, tokens, targets, state):
  """`Figures` `[T, B]` after each of the tokens `[T, B]`, and the state after the last."""
  logits, state = lm.unroll(params, None, tokens, state)
  return figures(logits, targets), state


@functools.partial(jax.jit, static_argnums=0)
def _begin(lm, params, tokens, targets):
  """The same from the initial state on, as one program."""
  return read(lm, params, tokens, targets, lm.initial_state(params, tokens.shape[1]))


def _pieces(lm, params, fed) -> Iterator[tuple[list[int], int, Figures]]:
  """Group, start, and figures `[T, B]`: column b has those of line `group[b]` from `start` on.

  What is beyond a line's end is padding, after its tokens, so that no mask need keep it from them.

  A line has the same figures in whatever company. XLA's product on a CPU adds up in another order
  for a few rows than for many, but in one order for all numbers of rows from about 50 on: no group
  has fewer columns. A line too long for that to be cheap is read alone, always.
  """
  V, lengths = lm.config.vocab_size, np.array([len(ids) for ids in fed], int)
  alone = [([n], 1) for n in np.flatnonzero(lengths > shapes.WINDOW).tolist()]
  others = np.where(lengths > shapes.WINDOW, 0, lengths).tolist()
  for group, columns in itertools.chain(alone, shapes.groups(others, V, COLUMNS)):
    longest = len(fed[group[0]])
    windows = -(-longest // shapes.WINDOW)
    steps = shapes.padded(-(-longest // windows))
    while steps > 1 and steps * columns * V > shapes.LOGITS:
      steps = 1 << (steps - 1).bit_length() - 1  # the power of two below
    state = None
    for start in range(0, longest, steps):
      tokens, targets = (shapes.laid_out([fed[n][start + later:] for n in group], steps, columns)
                         for later in (0, 1))
      its, state = (read(lm, params, tokens, targets, state) if start else
                    _begin(lm, params, tokens, targets))
      yield group, start, its


def _take(group, start, its, found):
  """Waits for a piece's figures and puts them in their places."""
  for name, values in its.on_host()._asdict().items():  # [T, B]
    for column, line in enumerate(group):
      places = getattr(found[line], name)[start:start + len(values)]
      places[:] = values[:len(places), column]


def at_the_start(lm: LanguageModel, params) -> tuple[np.ndarray, float]:
  """What the initial state predicts: log-probabilities, float64 `[V]`, and their entropy in nats.

  Args:
    lm: the bundle of functions.
    params: its parameters.
  """
  logits = np.asarray(_start(lm, params)[0], np.float64)  # [V]
  log_p = logits - logits.max()
  log_p -= np.log(np.exp(log_p).sum())
  p = np.exp(log_p)
  return log_p, -(p * np.where(p > 0, log_p, 0)).sum()


@functools.partial(jax.jit, static_argnums=0)
def _start(lm, params):
  """Logits `[1, V]`."""
  return lm.readout(params, lm.initial_state(params, 1))


def of_the_first(log_p: np.ndarray, token: int):
  """Nats `[1]`, no entropy `[0]`, and rank `[1]` of a token that log-probabilities `[V]` predict.

  >>> [values.tolist() for values in of_the_first(np.array([-2.0, -1.0, -3.0]), 0)]
  [[2.0], [], [2]]
  """
  return -log_p[[token]], np.zeros(0), np.array([1 + (log_p > log_p[token]).sum()])


def _shifted(ids, its, start) -> Predictions:
  """What was found after each id that was fed, as what was predicted before each token."""
  if start is None:  # the last one that was fed predicts what is no token any more
    return Predictions(its.nats[:-1], its.entropies, its.ranks[:-1])
  log_p, entropy = start
  entropies = np.concatenate([[entropy], its.entropies])
  if not len(ids):
    return its._replace(entropies=entropies)
  nats, _, ranks = of_the_first(log_p, ids[0])
  return Predictions(np.concatenate([nats, its.nats[:-1]]), entropies,
                     np.concatenate([ranks, its.ranks[:-1]]))


def finite(its: Predictions, line: int, first: int = 0, remedy: str = DIVERGED) -> Predictions:
  """The same.

  Args:
    its: of a line, or of a part of it.
    line: its number, for the message.
    first: which token of the line is the part's first.
    remedy: what the message says is needed.

  Raises:
    InputError: a surprisal or an entropy that is not finite; the first is named.

  >>> finite(Predictions(np.array([1.0, np.nan]), np.zeros(3), np.ones(2)), 7)
  Traceback (most recent call last):
  hklm.errors.InputError: line 7, token 1: the surprisal is nan; needed: finite parameters; the \
run has diverged: train it again
  """
  wrong = np.flatnonzero(~np.isfinite(its.nats))
  if not wrong.size and not np.isfinite(its.entropies).all():
    place = np.flatnonzero(~np.isfinite(its.entropies))[0]
    raise InputError(f"line {line}, before token {first + place}: the entropy is "
                     f"{its.entropies[place]}; needed: {remedy}")
  if wrong.size:
    raise InputError(f"line {line}, token {first + wrong[0]}: the surprisal is "
                     f"{its.nats[wrong[0]]}; needed: {remedy}")
  return its
