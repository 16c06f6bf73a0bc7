"""Which units follow what is in a text, and how often gates are open or shut.

Dimension letters: C characters of a text, N tokens, U units.
"""

from collections.abc import Mapping

import numpy as np

_PAIRS = {"(": ")", "[": "]", "{": "}"}


def signals(text: str) -> dict[str, np.ndarray]:
  """What a unit might follow, after each character, float64 `[C]` by name.

  `quotes`: 1 from an opening double quote (straight or curly) until the closing one, else 0.
  `brackets`: how many of `(`, `[` and `{` are open.
  `line position`: characters since the line began; 0 after a line feed.
  `indentation`: white space at the line's beginning, as far as it is read.
  A blank line closes quotes and brackets, so that one that is never closed does not spoil the rest.

  Args:
    text: with line feeds.

  >>> for name, its in signals(' "a"\\n(').items():
  ...   print(name, its.astype(int).tolist())
  quotes [0, 1, 1, 0, 0, 0]
  brackets [0, 0, 0, 0, 0, 1]
  line position [1, 2, 3, 4, 0, 1]
  indentation [1, 1, 1, 1, 0, 0]
  """
  rows, quoted, depth, position, indentation = [], False, 0, 0, 0
  for character in text:
    if character == "\n":
      if position == indentation:  # nothing but white space
        quoted, depth = False, 0
      position = indentation = 0
    else:
      if character.isspace() and position == indentation:
        indentation += 1
      position += 1
    quoted = character == "“" or (quoted != (character == '"') and character != "”")
    depth += character in _PAIRS
    depth = max(0, depth - (character in _PAIRS.values()))
    rows.append((quoted, depth, position, indentation))
  columns = np.array(rows, np.float64).reshape(-1, 4).T
  return dict(zip(("quotes", "brackets", "line position", "indentation"), columns, strict=True))


def correlations(values: np.ndarray, signal: np.ndarray) -> np.ndarray:
  """Pearson's correlation of each unit with a signal over the tokens, float64 `[U]`.

  NaN where a unit or the signal never changes.

  Args:
    values: `[N, U]`.
    signal: `[N]`.

  >>> correlations(np.array([[1, 3, 5], [2, 1, 5], [3, -1, 5]]), np.array([0, 1, 2])).tolist()
  [1.0, -1.0, nan]
  """
  values, signal = np.asarray(values, np.float64), np.asarray(signal, np.float64)
  if len(signal) < 2:
    return np.full(values.shape[1], np.nan)
  still = (values == values[0]).all(axis=0) | (signal == signal[0]).all()
  values, signal = values - values.mean(axis=0), signal - signal.mean()
  norms = np.sqrt((values**2).sum(axis=0) * (signal**2).sum())
  with np.errstate(invalid="ignore", divide="ignore"):
    return np.where(still, np.nan, signal @ values / norms)


def strongest(found: np.ndarray, count: int) -> np.ndarray:
  """The units with the largest correlations, whatever their sign, int64 `[at most count]`.

  >>> strongest(np.array([0.1, np.nan, -0.9, 0.5]), 2).tolist()
  [2, 3]
  """
  order = np.argsort(-np.abs(found), kind="stable")  # NaN comes last
  return order[:min(count, int((~np.isnan(found)).sum()))]


def saturation(gate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The share of the tokens at which each unit's gate is below 0.1, and above 0.9, `[U]` each.

  Karpathy, Johnson and Fei-Fei 2015, section 4.2.

  Args:
    gate: activations between 0 and 1, `[N, U]`, N at least 1.

  >>> [its.tolist() for its in saturation(np.array([[0.0, 0.95], [0.5, 0.05]]))]
  [[0.5, 0.5], [0.0, 0.5]]
  """
  return (gate < 0.1).mean(axis=0), (gate > 0.9).mean(axis=0)


def true_gates(gates: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Those of a layer that lie between 0 and 1: an LSTM's `g` is what may enter, not a gate.

  Args:
    gates: activations by name, each `[N, U]`.

  >>> list(true_gates({"i": np.array([[0.2]]), "g": np.array([[-0.3]])}))
  ['i']
  """
  return {name: gate for name, gate in gates.items()
          if gate.size and gate.min() >= 0 and gate.max() <= 1}
