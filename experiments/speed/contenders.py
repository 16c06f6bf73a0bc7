"""Who takes part: a module for each library, with a function for each measure it knows.

`train(work, params, window)`, `evaluate(work, params, ids)`, `generate(work, params)` and
`score(work, params, lines, groups)` set one up for the work and return a function that does it once
and returns its result; `lstm(work, params, xs, direction)` returns two, by name. Parameters are
those of `workloads.weights`. On JAX there is also `update(work, params, window)`, the training step
before it is compiled.
"""

import importlib
import importlib.util

BASE = "hklm"  # with whom the others are compared
NAMES = (BASE, "haiku", "flax", "torch")  # of packages, too


def installed(name: str) -> bool:
  """Whether a contender's package is there."""
  return importlib.util.find_spec(name) is not None


def module(name: str):
  """A contender's module."""
  return importlib.import_module(f"experiments.speed.with_{name}")
