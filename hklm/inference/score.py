"""The surprisal of every token of every line."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from hklm.errors import InputError
from hklm.ids import check_ids
from hklm.model import LanguageModel

BATCH = 16  # lines scored side by side


class TokenScore(NamedTuple):
  """One row: a token of a line.

  Attributes:
    line: the line's index, from 0.
    index: the token's index in its line, from 0.
    token: its printable spelling.
    start: offset of its first character in the line.
    end: offset after its last character.
    surprisal_bits: `-log2 p(token | the tokens before it in the line)`.
  """

  line: int
  index: int
  token: str
  start: int
  end: int
  surprisal_bits: float


def score(lm: LanguageModel, params, tokenizer, lines: Sequence[str]
          ) -> list[TokenScore]:
  """One row a token; each line by itself, its first token predicted from the initial state.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    tokenizer: the run's tokenizer.
    lines: texts, any number of any length; an empty one has no row.

  Returns:
    Rows in the order of the lines.

  Raises:
    InputError: a result that is not finite, or a line that the tokenizer refuses.

  >>> import hklm, jax, jax.numpy as jnp
  >>> from hklm.data import tokenizers
  >>> tokenizer = tokenizers.build(hklm.TokenizerConfig("char"), ["abcd"])
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> for row in score(lm, zeros, tokenizer, ["ab", "", "d"]):
  ...   print(*row[:-1], round(row.surprisal_bits, 6))
  0 0 a 0 1 2.0
  0 1 b 1 2 2.0
  2 0 d 0 1 2.0
  """
  encodings = [tokenizer.encode_with_offsets(line) for line in lines]
  for encoding in encodings:
    check_ids(encoding.ids, lm.config.vocab_size)
  bits = {}
  for group in _groups([len(encoding.ids) for encoding in encodings]):
    for line, values in zip(group, _group_bits(lm, params, [encodings[n].ids for n in group]),
                            strict=True):
      bits[line] = values
  rows = []
  for line, encoding in enumerate(encodings):
    for index, (token, start, end) in enumerate(zip(*encoding, strict=True)):
      if not math.isfinite(bits[line][index]):
        raise InputError(f"line {line}, token {index}: the surprisal is {bits[line][index]}; "
                         "needed: finite parameters; the run has diverged: train it again")
      rows.append(TokenScore(line, index, tokenizer.symbol(int(token)), int(start), int(end),
                             float(bits[line][index])))
  return rows


def _groups(lengths: Sequence[int]) -> Iterator[list[int]]:
  """Indices of lines of about one length, BATCH at a time; empty lines are left out."""
  order = [n for n in np.argsort(lengths, kind="stable").tolist() if lengths[n]]
  for start in range(0, len(order), BATCH):
    yield order[start:start + BATCH]


def _group_bits(lm, params, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
  """Surprisals in bits of each line, of lines padded to the next power of two."""
  length = 1 << max(1, (max(len(ids) for ids in lines) - 1).bit_length())
  tokens = np.zeros([length, BATCH], np.int32)
  mask = np.zeros([length, BATCH], bool)  # from lengths, never from ids
  for column, ids in enumerate(lines):
    tokens[:len(ids), column] = ids
    mask[:len(ids), column] = True
  nats = np.asarray(_nats(lm, params, tokens, mask), np.float64)
  return [nats[:len(ids), column] / math.log(2) for column, ids in enumerate(lines)]


@functools.partial(jax.jit, static_argnums=0)
def _nats(lm, params, tokens, mask):
  """Nats `[T, B]`: the first token from the initial state, the others from those before."""
  state = lm.initial_state(params, tokens.shape[1])
  first = jax.nn.log_softmax(lm.readout(params, state))  # [B, V]
  first = -jax.numpy.take_along_axis(first, tokens[0][:, None], axis=1)  # [B, 1]
  loss, _ = lm.loss(params, None, tokens[:-1], tokens[1:], state, mask[1:])
  return jax.numpy.concatenate([first.T, loss.nats])
