"""The surprisal of every token of every line."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from hklm.inference.lines import score_lines
from hklm.model import LanguageModel


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
  nats = score_lines(lm, params, [encoding.ids for encoding in encodings])
  rows = []
  for line, encoding in enumerate(encodings):
    bits = nats[line] / math.log(2)
    for index, (token, start, end) in enumerate(zip(*encoding, strict=True)):
      rows.append(TokenScore(line, index, tokenizer.symbol(int(token)), int(start), int(end),
                             float(bits[index])))
  return rows
