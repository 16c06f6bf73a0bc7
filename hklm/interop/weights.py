"""Tensors out of files that other programs have written."""

from typing import NamedTuple

import numpy as np


class Weights(NamedTuple):
  """What a file of weights holds.

  Attributes:
    tensors: arrays by name, in the order of the file.
    symbols: the vocabulary, if the file holds one, in the order of the ids.
  """

  tensors: dict[str, np.ndarray]
  symbols: tuple[str, ...] | None


def read(path: str, symbols: bool = True) -> Weights:
  """The tensors of an `.npz`."""
  del symbols
  with np.load(path) as file:
    return Weights(dict(file), None)
