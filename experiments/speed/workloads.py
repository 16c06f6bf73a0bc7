"""The work that contenders are set: sizes, operations, parameters and data. NumPy alone.

Nothing here imports JAX: a process that tells what PyTorch needs must not hold it.
Dimension letters: V vocabulary, E embedding, H hidden, B batch, T time, D a layer's input.
"""

from typing import NamedTuple

import numpy as np

RATE, CLIP = 0.1, 1.0  # of the gradient descent that every contender makes
SHORTEST_LINE = 5


class Workload(NamedTuple):
  """Sizes, under a name.

  Attributes:
    name: what the table calls it.
    vocab_size: V; 0: layers alone, without tokens.
    embedding_size: E.
    hidden_size: H.
    num_layers: depth.
    batch_size: B; of lines to score, how many.
    steps: T; of lines to score, the longest; of text to generate, its tokens.
    tied: whether the embedding table is also the output matrix.
  """

  name: str
  vocab_size: int
  embedding_size: int
  hidden_size: int
  num_layers: int
  batch_size: int
  steps: int
  tied: bool = False

  def input_sizes(self) -> list[int]:
    """D of each layer."""
    return [self.embedding_size] + [self.hidden_size] * (self.num_layers - 1)

  def operations(self) -> int:
    """Additions and multiplications in the matrix products of one forward pass.

    A backward pass has twice as many: the gradients of both factors.

    >>> Workload("one cell", 3, 2, 1, 1, batch_size=1, steps=1).operations()  # 2 (2*4 + 1*4 + 1*3)
    30
    """
    H = self.hidden_size
    layers = sum(D * 4 * H + H * 4 * H for D in self.input_sizes())
    return 2 * self.steps * self.batch_size * (layers + H * self.vocab_size)

  def parameters(self) -> int:
    """How many numbers `weights` draws."""
    V, E, H = self.vocab_size, self.embedding_size, self.hidden_size
    layers = sum(4 * H * (D + H + 1) for D in self.input_sizes())
    return V * E + layers + V + (0 if self.tied else V * H)

  def __str__(self) -> str:
    sizes = f"E {self.embedding_size}, H {self.hidden_size}, layers {self.num_layers}"
    vocabulary = f"V {self.vocab_size:,}, " if self.vocab_size else ""
    tied = ", tied tables" if self.tied else ""
    return f"{self.name}: {vocabulary}{sizes}, B {self.batch_size}, T {self.steps}{tied}"


NAMED = {work.name: work for work in (
    Workload("char", 65, 128, 512, 1, batch_size=64, steps=100),
    Workload("small", 10_000, 200, 200, 2, batch_size=20, steps=20),
    Workload("medium", 10_000, 650, 650, 2, batch_size=20, steps=35),
)}
LSTM = Workload("lstm", 0, 400, 1150, 1, batch_size=40, steps=70)
GENERATED = tuple(Workload(f"{layers}x{H} batch {B}", 65, 128, H, layers, batch_size=B, steps=256)
                  for layers, H, B in ((2, 128, 1), (1, 512, 1), (3, 512, 1), (1, 512, 16)))
LINES = Workload("lines", 10_000, 200, 200, 2, batch_size=1000, steps=40)
LARGE_VOCABULARY = Workload("large vocabulary", 50_000, 512, 512, 1, batch_size=32, steps=35,
                            tied=True)


def weights(work: Workload) -> dict[str, dict[str, np.ndarray]]:
  """Parameters in the layout of `hklm`, float32, uniform within 1/sqrt(H)."""
  V, H = work.vocab_size, work.hidden_size
  generator = np.random.default_rng(0)

  def draw(*shape):
    values = generator.random(shape, np.float32)
    values -= 0.5  # in place: the peak is of the steps, not of this
    values *= 2 * H**-0.5
    return values

  tree = {"embedding": {"table": draw(V, work.embedding_size)}}
  for layer, D in enumerate(work.input_sizes()):
    tree[f"lstm_{layer}"] = {"w_ih": draw(4 * H, D), "w_hh": draw(4 * H, H), "b": draw(4 * H)}
  tree["head"] = {"b": draw(V)} if work.tied else {"b": draw(V), "w": draw(V, H)}
  return tree


def window(work: Workload) -> np.ndarray:
  """Random tokens, int32 `[T + 1, B]`."""
  generator = np.random.default_rng(1)
  return generator.integers(work.vocab_size, size=[work.steps + 1, work.batch_size],
                            dtype=np.int32)


def text(work: Workload, count: int) -> np.ndarray:
  """Random ids `[count T B + 1]`: B streams of `count` windows."""
  generator = np.random.default_rng(2)
  return generator.integers(work.vocab_size, size=count * work.steps * work.batch_size + 1,
                            dtype=np.int32)


def windows(work: Workload, ids: np.ndarray) -> list[np.ndarray]:
  """What `text` drew as windows `[T + 1, B]`, each beginning with the last token of the one before.

  >>> work = Workload("tiny", 9, 1, 1, 1, batch_size=2, steps=2)
  >>> [window.T.tolist() for window in windows(work, np.arange(9))]
  [[[0, 1, 2], [4, 5, 6]], [[2, 3, 4], [6, 7, 8]]]
  """
  T, B = work.steps, work.batch_size
  each = (len(ids) - 1) // B
  streams = np.stack([ids[s * each:(s + 1) * each + 1] for s in range(B)], axis=1)
  return [streams[start:start + T + 1] for start in range(0, each, T)]


def sequences(work: Workload) -> tuple[np.ndarray, np.ndarray]:
  """Inputs `[T, B, E]` of a layer, and what its outputs `[T, B, H]` are multiplied by."""
  generator = np.random.default_rng(3)
  shape = work.steps, work.batch_size
  return (generator.standard_normal((*shape, work.embedding_size), np.float32),
          generator.standard_normal((*shape, work.hidden_size), np.float32))


def lines(work: Workload) -> list[np.ndarray]:
  """B lines of random ids, of 5 to T words each."""
  generator = np.random.default_rng(4)
  lengths = generator.integers(SHORTEST_LINE, work.steps, size=work.batch_size, endpoint=True)
  return [generator.integers(work.vocab_size, size=length, dtype=np.int32) for length in lengths]
