"""Hypotheses of a recogniser or translator, ordered anew with a language model's help.

The total of a hypothesis is `given + weight * log p - penalty * words`, with the model's natural
logarithm. Dimension letters: N hypotheses of a list, U utterances or sentences they are for.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

GRID = (0.0, .01, .02, .03, .05, .07, .1, .15, .2, .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1.0,
        1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0, 20.0)


class Tuning(NamedTuple):
  """What a development set says.

  Attributes:
    weight: that with the fewest errors; of several, the smallest.
    errors: words inserted, deleted or substituted in the best hypotheses, for each weight tried.
    words: of all references.
  """

  weight: float
  errors: dict[float, int]
  words: int


def totals(given: Sequence[float], log_p: Sequence[float], words: Sequence[int], weight: float,
           penalty: float = 0.0) -> np.ndarray:
  """Log-linear totals, float64 `[N]`; the higher, the better.

  Args:
    given: `[N]`, what the list has.
    log_p: `[N]`, of the model, natural.
    words: `[N]`, of each hypothesis.
    weight: of the model.
    penalty: for each word.

  >>> totals([-4.0, -5.0], [-3.0, -1.0], [2, 1], weight=0.5, penalty=0.25).tolist()
  [-6.0, -5.75]
  """
  return np.asarray(given, float) + weight * np.asarray(log_p) - penalty * np.asarray(words)


def best_first(ids: Sequence[Hashable], scores: Sequence[float]) -> list[int]:
  """Places `[N]`: the best of each id first, equals as they were; ids as they first come.

  Args:
    ids: `[N]`, what each hypothesis is one of.
    scores: `[N]`.

  >>> best_first(["b", "b", "a", "b"], [1.0, 2.0, 0.0, 2.0])
  [1, 3, 0, 2]
  """
  return [place for places in _of_each(ids).values()
          for place in sorted(places, key=lambda place: -scores[place])]


def tune(ids: Sequence[Hashable], texts: Sequence[str], given: Sequence[float],
         log_p: Sequence[float], references: Mapping[Hashable, str], penalty: float = 0.0,
         grid: Sequence[float] = GRID) -> Tuning:
  """The weight whose best hypotheses have the least word error rate.

  Args:
    ids: `[N]`, what each hypothesis is one of.
    texts: `[N]`; words are what white space separates.
    given: `[N]`, as for `totals`.
    log_p: `[N]`.
    references: what was really said, for each id.
    penalty: for each word.
    grid: the weights to try, ascending.

  >>> tune([0, 0], ["a b", "a c"], [-1.0, -2.0], [-5.0, -3.0], {0: "a c"}, grid=(0.0, 0.5, 1.0))
  Tuning(weight=1.0, errors={0.0: 1, 0.5: 1, 1.0: 0}, words=2)
  """
  grid = [float(weight) for weight in grid]
  words = [len(text.split()) for text in texts]
  scores = np.array([totals(given, log_p, words, weight, penalty) for weight in grid])  # [G, N]
  errors = np.zeros(len(grid), int)
  for id_, places in _of_each(ids).items():
    best = np.array(places)[scores[:, places].argmax(axis=1)]  # [G]; of equals the first
    for place in np.unique(best):
      count = word_errors(references[id_].split(), texts[place].split())
      errors += np.where(best == place, count, 0)
  return Tuning(grid[int(errors.argmin())], dict(zip(grid, errors.tolist(), strict=True)),
                sum(len(references[id_].split()) for id_ in set(ids)))


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
  """The fewest words to insert, delete or substitute that make one the other (Levenshtein 1966).

  >>> word_errors("the cat sat on the mat".split(), "a cat sat the mat now".split())
  3
  """
  numbers = {word: number for number, word in enumerate(hypothesis)}
  found = np.array([numbers[word] for word in hypothesis], int)
  steps = np.arange(len(found) + 1)
  row = steps  # errors of the reference's first words against each beginning of the hypothesis
  for word in reference:
    differs = found != numbers.get(word, -1)
    reached = np.minimum(row + 1, np.concatenate([row[:1] + 1, row[:-1] + differs]))
    # Then insertions: the least reached[k] + (j - k) with k <= j.
    row = np.minimum.accumulate(reached - steps) + steps
  return int(row[-1])


def _of_each(ids) -> dict[Hashable, list[int]]:
  """The places of each id, in their order."""
  found = {}
  for place, id_ in enumerate(ids):
    found.setdefault(id_, []).append(place)
  return found
