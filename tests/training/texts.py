"""Small texts to train on."""

import os

import numpy as np

WORDS = ("the", "cat", "café", "sat", "on", "a", "mat", "and", "saw", "naïve", "dogs.")


def sentences(characters: int, seed: int = 0) -> str:
  """Lines of random words, some of them not ASCII, exactly so many characters long."""
  draw, lines = np.random.RandomState(seed), []
  while sum(map(len, lines)) < characters:
    lines.append(" ".join(draw.choice(WORDS, draw.randint(3, 9))) + "\n")
  return "".join(lines)[:characters]


def write(folder: str, name: str, text: str | bytes) -> str:
  """Writes a file, UTF-8 and without touching line ends; gives its path."""
  path = os.path.join(folder, name)
  with open(path, "wb") as file:
    file.write(text.encode() if isinstance(text, str) else text)
  return path
