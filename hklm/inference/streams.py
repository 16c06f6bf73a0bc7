"""Lines that are read one after the other, the state carried: as one text, in bounded memory."""

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hklm.inference import lines as shapes
from hklm.inference import predictions
from hklm.inference.predictions import Predictions
from hklm.model import LanguageModel

WINDOW = 256  # tokens that are read at a time


class Reader(NamedTuple):
  """How a text is read.

  Attributes:
    window: T, tokens that are read at a time.
    start: `params ->` what is carried, before the first token.
    read: `(params, tokens [T, 1], targets [T, 1], carried) -> Figures [T, 1], carried`.
    remedy: what to change where figures are not finite; empty: the parameters.
  """

  window: int
  start: Callable
  read: Callable
  remedy: str = ""


def plain_reader(lm: LanguageModel) -> Reader:
  """The model as it is, its state carried."""
  return Reader(WINDOW, lambda params: lm.initial_state(params, 1),
                functools.partial(predictions.read, lm))


def predict_stream(lm: LanguageModel, params, lines: Iterable[Sequence[int]],
                   first: int | None = None, reader: Reader | None = None,
                   names: Iterable[tuple[int, int]] | None = None) -> Iterator[Predictions]:
  """As `predictions.predict_lines`, but each line is read after the one before it.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    lines: of ids; read as they are needed.
    first: an id that is read before all; None: the initial state predicts the first token.
    reader: how windows are read; None: as `plain_reader` does.
    names: of each line, its number and that of its first token, for messages; None: they count.

  Yields:
    `Predictions` of each line. Its last entropy is that before the first token of the next.

  Raises:
    InputError: ids that the model cannot read; a result that is not finite.

  >>> import hklm, jax, jax.numpy as jnp
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> [line.nats.round(6).tolist() for line in predict_stream(lm, zeros, [[0], [], [3, 1]])]
  [[1.386294], [], [1.386294, 1.386294]]
  """
  window, start, read_window, remedy = reader or plain_reader(lm)
  carried = start(params)
  found = _Found(remedy or predictions.DIVERGED, names)
  unread, log_p = np.array([] if first is None else [first], np.int32), None
  if first is None:
    log_p, entropy = predictions.at_the_start(lm, params)
    found.add([], [entropy], [])

  def read(tokens, targets):
    """Figures after each token; where a window lacks some, padding is behind them."""
    nonlocal carried
    figures, carried = read_window(
        params, *(shapes.laid_out([ids], window, 1) for ids in (tokens, targets)), carried)
    return [values[:len(tokens), 0] for values in figures.on_host()]

  for number, line in enumerate(lines):
    ids = shapes.checked(line, number, lm.config.vocab_size)
    found.lengths.append(len(ids))
    if log_p is not None and len(ids):
      found.add(*predictions.of_the_first(log_p, ids[0]))
      log_p = None
    unread = np.concatenate([unread, ids])
    while len(unread) > window:  # so that the last of a window has a target
      found.add(*read(unread[:window], unread[1:window + 1]))
      unread = unread[window:]
    yield from found.whole_lines()
  if len(unread):
    nats, entropies, ranks = read(unread, unread[1:])
    found.add(nats[:-1], entropies, ranks[:-1])
  yield from found.whole_lines()


class _Found:
  """Figures of tokens whose lines are not complete yet."""

  def __init__(self, remedy, names):
    self._remedy = remedy  # where they are not finite
    self._names = iter(names or ((number, 0) for number in itertools.count()))
    self.lengths = collections.deque()  # of the lines
    self._pieces = Predictions([], [], [])
    self._places = 0  # how many entropies there are

  def add(self, nats, entropies, ranks):
    for pieces, values in zip(self._pieces, (nats, entropies, ranks), strict=True):
      pieces.append(np.asarray(values))
    self._places += len(entropies)

  def whole_lines(self) -> Iterator[Predictions]:
    """Those of each line that is complete, what is predicted after it included; they go."""
    while self.lengths and self._places > self.lengths[0]:
      N = self.lengths.popleft()
      joined = [np.concatenate(pieces).astype(dtype) for pieces, dtype in
                zip(self._pieces, (np.float64, np.float64, np.int64), strict=True)]
      self._pieces = Predictions(*([values[N:]] for values in joined))
      self._places -= N
      nats, entropies, ranks = joined
      yield predictions.finite(Predictions(nats[:N], entropies[:N + 1], ranks[:N]),
                               *next(self._names), self._remedy)
