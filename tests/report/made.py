"""Facts made by hand: every figure is known, and no model is needed."""

import numpy as np

from hklm.inference import places
from hklm.inference.scored import ScoredLine
from hklm.inference.states import Layer, States
from hklm.report.facts import Facts

V = 16  # log2 V = 4 bits
H = 3
QUOTES = 1  # the unit of layer 1 that follows quotes
HOSTILE = ('<script>window.flag = 1</script></style>"&\' \u2028\u2029\0\x07 '
           "<img src=x onerror=window.flag=2>")


def line(text: str, number: int = 0) -> ScoredLine:
  """Characters, each of its index in quarters of a bit, and the end of the line."""
  N = len(text) + 1
  starts = np.arange(N)
  ends = np.minimum(starts + 1, len(text))
  surprisals = np.arange(N) / 4
  return ScoredLine(number, text, [*text, "\\n"], starts, ends, starts, ends, surprisals,
                    np.linspace(2, 1, N + 1), np.arange(N) + 1, np.zeros(N, bool),
                    places.words(text, starts), True)


def states(tokens: int, quotes: np.ndarray) -> States:
  """Two layers of noise, but for the unit that follows quotes, and gates that are known."""
  draw = np.random.RandomState(0)
  layers = []
  for layer in range(2):
    cell = draw.normal(size=[tokens, H])
    if layer == 1:
      cell[:, QUOTES] = 4 * quotes - 2 + 0.1 * cell[:, QUOTES]
    gate = np.where(np.arange(tokens)[:, None] * 4 < tokens * np.arange(1, H + 1), 0.95, 0.5)
    layers.append(Layer({"g": np.tanh(cell), "i": gate, "o": 1 - gate}, {"cell": cell},
                        np.tanh(cell) / 2))
  return States(np.zeros(tokens, int), np.arange(tokens), tuple(layers))


def facts(texts=('He said "so be it" and left', 'and "no" (once).'), **changes) -> Facts:
  lines = [line(text, number) for number, text in enumerate(texts)]
  quotes = np.concatenate([within(text + "\n") for text in texts])
  its = Facts(
      "a run", {"run": "/runs/1"}, "character", "lstm", V,
      [{"step": n, "train_nats_per_token": np.log(2) * 4 / n} for n in range(1, 5)]
      + [{"step": n, "valid_nats_per_token": np.log(2) * 5 / n} for n in (2, 4)]
      + [{"step": 5, "train_nats_per_token": None}],
      lines, states(len(quotes), quotes), {1.0: "warm", 0.5: "cold"})
  return its._replace(**changes)


def within(text):
  """1 from an opening quote up to before the closing one, as counting quotes has it."""
  return np.cumsum([c == '"' for c in text]) % 2
