"""Contenders by turns, and ratios within a turn: what slows a moment down slows all who share it.

A turn is two runs, of which the second is timed. The first finds the last contender's threads still
spinning and the caches full of its arrays: what counts is a step among steps of its own kind.

The floor is what the matrix products of the work would take alone, at the rate of a large one that
is timed in the same rounds.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Spread(NamedTuple):
  """Median and quartiles."""

  median: float
  low: float
  high: float


def alternate(works: Mapping[str, Callable], rounds: int, twice: bool = True
              ) -> dict[str, list[float]]:
  """Warms every contender up, then lets each have its turn in every round.

  Args:
    works: what each does; it returns when the work is done.
    rounds: how many. Each begins with the next contender.
    twice: whether a turn is two runs. One will do for work that takes half a minute.

  Returns:
    Seconds, one number a round, by name.

  >>> {name: len(its) for name, its in alternate({"a": list, "b": dict}, rounds=3).items()}
  {'a': 3, 'b': 3}
  """
  names = list(works)
  seconds = {name: [] for name in names}
  for name in names:
    works[name]()
  for turn in range(rounds):
    first = turn % len(names)
    for name in names[first:] + names[:first]:
      if twice:
        works[name]()
      start = time.perf_counter()
      works[name]()
      seconds[name].append(time.perf_counter() - start)
  return seconds


def ratios(seconds: Sequence[float], base: Sequence[float]) -> Spread:
  """How many times as fast the base is, round by round.

  >>> ratios([2., 6., 8.], [1., 2., 2.])
  Spread(median=3.0, low=2.5, high=3.5)
  """
  pairs = np.array(seconds) / np.array(base)
  return Spread(*np.percentile(pairs, [50, 25, 75]).tolist())


def cube(size: int) -> Callable[[], None]:
  """A float32 matrix product of this size in all three directions, `2 size^3` operations."""
  product = jax.jit(jnp.matmul)
  factor = jnp.asarray(np.random.default_rng(5).standard_normal([size, size], np.float32))
  return lambda: product(factor, factor).block_until_ready()


def floor(operations: int, size: int, seconds: Sequence[float]) -> float:
  """The seconds that operations take at the median rate of a `cube`.

  >>> floor(operations=32, size=2, seconds=[1., 9., 2.])  # 16 operations in 2 seconds
  4.0
  """
  return operations * float(np.median(seconds)) / (2 * size**3)
