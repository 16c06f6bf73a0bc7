"""What the layers of a model do while it reads lines: gates, cells and outputs at every token.

Dimension letters: M tokens of all lines, T time, H hidden.
"""

from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hklm.data.base import Tokenizer
from hklm.ids import check_ids
from hklm.inference import lines as shapes
from hklm.inference import score
from hklm.model import LanguageModel

WINDOW = 256  # tokens that are read at a time


class Layer(NamedTuple):
  """What a layer did, after it read each token.

  Attributes:
    gates: by name, each `[M, H]`; empty for a cell that does not tell.
    cells: the cell's state by name, each leaf `[M, ...]`: an LSTM has `cell`; a leaf of a cell with
      several is `cell_NAME`.
    output: `[M, H]`.
  """

  gates: dict[str, np.ndarray]
  cells: dict[str, np.ndarray]
  output: np.ndarray


class States(NamedTuple):
  """Of all tokens of all lines, in their order.

  Attributes:
    line: the line's index, int64 `[M]`.
    index: the token's index in its line, int64 `[M]`.
    layers: from the input up.
  """

  line: np.ndarray
  index: np.ndarray
  layers: tuple[Layer, ...]


def states(lm: LanguageModel, params, tokenizer: Tokenizer, lines: Sequence[str],
           start: str = "eol", carried: bool = False) -> States:
  """What the layers do at the tokens that `score.scored_lines` scores; all of it in memory.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    tokenizer: the run's tokenizer.
    lines: texts without line feeds.
    start: what is read before the first token; `state` and `none` are the same here: nothing.
    carried: whether a line is read after the one before it, as one text.

  Returns:
    `States` of M tokens; `M (gates + cells + 1) H` numbers a layer.

  Raises:
    InputError: as `score.scored_lines`.

  >>> import hklm
  >>> from hklm.data import tokenizers
  >>> tokenizer = tokenizers.build(hklm.TokenizerConfig("char"), ["abc\\n"])
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=3))
  >>> its = states(lm, lm.init(jax.random.key(0)), tokenizer, ["ab", ""])
  >>> its.line.tolist(), its.index.tolist(), its.layers[0].gates["f"].shape
  ([0, 0, 0, 1], [0, 1, 2, 0], (4, 3))
  """
  first = score.first_id(tokenizer, start)
  ids = [score.encoded(tokenizer, text, number).ids for number, text in enumerate(lines)]
  before = [] if first is None else [first]
  # With the lines as one text, `before` is read once.
  texts = [np.concatenate([np.int32(before), *ids])] if carried else [
      np.concatenate([np.int32(before), line]) for line in ids]
  pieces = [piece for text in texts for piece in _read(lm, params, text.astype(np.int32), first)]
  joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces) if pieces else None
  lengths = [len(line) for line in ids]
  return States(np.repeat(np.arange(len(ids)), lengths),
                np.concatenate([np.arange(N) for N in lengths] or [np.zeros(0, int)]),
                tuple(map(_layer, joined or ())))


def _read(lm, params, ids, first) -> Iterator[tuple]:
  """Traces of windows of a text, leaves `[T, ...]`, without what was read before its tokens."""
  check_ids(ids, lm.config.vocab_size)
  state = lm.initial_state(params, 1)
  for start in range(0, len(ids), WINDOW):
    piece = ids[start:start + WINDOW]
    steps = shapes.padded(len(piece))
    tokens = shapes.laid_out([piece], steps, 1)
    live = np.arange(steps) < len(piece)
    its = slice(0 if first is None or start else 1, len(piece))
    traces = lm.activations(params, tokens, state)
    yield jax.tree.map(lambda leaf, its=its: _kept(leaf[its, 0]), traces)
    _, state = lm.hidden(params, None, tokens, state, live[:, None])


def _kept(leaf) -> np.ndarray:
  """On the host, in a type that NumPy's files know."""
  return np.asarray(leaf.astype(np.float32) if leaf.dtype == jnp.bfloat16 else leaf)


def _layer(trace) -> Layer:
  leaves = jax.tree_util.tree_leaves_with_path(trace.cell)
  names = ["_".join(["cell", *(jax.tree_util.keystr([key], simple=True) for key in path)])
           for path, _ in leaves]
  return Layer(trace.gates, dict(zip(names, (leaf for _, leaf in leaves), strict=True)),
               trace.output)


def save(file: IO[bytes], its: States):
  """Writes NumPy's `.npz`: `line`, `index`, and of each layer `layer_0_gate_i`, `layer_0_cell`, ...

  Args:
    file: open for bytes; see `hklm.files.written_whole`.
    its: what to write.
  """
  arrays = {"line": its.line, "index": its.index}
  for number, layer in enumerate(its.layers):
    named = {f"gate_{name}": gate for name, gate in layer.gates.items()} | layer.cells
    for name, values in (named | {"output": layer.output}).items():
      arrays[f"layer_{number}_{name}"] = values
  np.savez(file, **arrays)
