"""Texts weighed against each other: minimal pairs, and candidates that go on with a context.

Dimension letters: N tokens of a line.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hklm.data.base import Tokenizer
from hklm.errors import InputError
from hklm.inference.score import scored_lines
from hklm.inference.scored import ScoredLine
from hklm.model import LanguageModel

ROUNDING = 1e-6  # relative; who shares a text's batch may change its figures by as much


class Cost(NamedTuple):
  """What a text costs.

  Attributes:
    bits: the surprisal of its tokens in all, `-log2 p(text)`.
    tokens: how many.
    unknown: how many of them stand for a word that the vocabulary lacks.
  """

  bits: float
  tokens: int
  unknown: int

  @property
  def log_p(self) -> float:
    """The natural logarithm of the text's probability.

    >>> round(Cost(3.0, 2, 0).log_p, 6)  # 1 in 8
    -2.079442
    """
    return -self.bits * math.log(2)

  @property
  def bits_per_token(self) -> float:
    """0 where there is none."""
    return self.bits / max(self.tokens, 1)


def costs(lm: LanguageModel, params, tokenizer: Tokenizer, texts: Sequence[str],
          start: str = "eol") -> list[Cost]:
  """Each text by itself, with the end of its line where the tokenizer has one.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    tokenizer: the run's tokenizer.
    texts: without line feeds. Equal ones are scored once, and so cost the same to the last bit.
    start: what is before the first token, `eol` or `state`, as for `hklm.score`.

  Returns:
    In the order of the texts.

  Raises:
    InputError: as `hklm.score`; `start="none"`, which has no sum over all tokens.

  >>> import hklm, jax, jax.numpy as jnp
  >>> from hklm.data import tokenizers
  >>> tokenizer = tokenizers.build(hklm.TokenizerConfig("char"), ["abc\\n"])
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> [(round(cost.bits, 6), cost.tokens) for cost in costs(lm, zeros, tokenizer, ["ab", ""])]
  [(6.0, 3), (2.0, 1)]
  """
  _check_start(start)
  found = dict.fromkeys(texts)
  lines = scored_lines(lm, params, tokenizer, list(found), start)
  for text, line in zip(found, lines, strict=True):
    found[text] = _cost(line, np.full(len(line.ranks), True))
  return [found[text] for text in texts]


def continuations(lm: LanguageModel, params, tokenizer: Tokenizer,
                  pairs: Sequence[tuple[str, str]], start: str = "eol") -> list[Cost]:
  """What each candidate costs after its context: `-log2 p(candidate | context)`.

  The two are one text, with nothing put between them. A token that is of both counts with the
  candidate; the end of the line counts with neither, since more may follow.

  Args:
    lm: the bundle of functions.
    params: its parameters.
    tokenizer: the run's tokenizer.
    pairs: of a context and a candidate.
    start: as for `costs`.

  Returns:
    In the order of the pairs.

  Raises:
    InputError: as `costs`; a candidate without a token of its own.

  >>> import hklm, jax, jax.numpy as jnp
  >>> from hklm.data import tokenizers
  >>> tokenizer = tokenizers.build(hklm.TokenizerConfig("char"), ["abc\\n"])
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> zeros = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  >>> found = continuations(lm, zeros, tokenizer, [("ab", "c"), ("ab", "aa")])
  >>> [round(cost.bits, 6) for cost in found]
  [2.0, 4.0]
  """
  _check_start(start)
  found = dict.fromkeys(pairs)
  lines = scored_lines(lm, params, tokenizer, [before + after for before, after in found], start)
  for (context, candidate), line in zip(found, lines, strict=True):
    found[context, candidate] = cost = _cost(line, _after(line, len(context)))
    if not cost.tokens:
      raise InputError(f"the candidate {candidate!r} after {context!r} is no token of its own; "
                       "needed: more than white space for a tokenizer of words")
  return [found[pair] for pair in pairs]


def verdict(good: float, bad: float) -> str:
  """Which of two texts the model finds likelier: `good`, `bad` or `tie`.

  Args:
    good: what the acceptable one costs.
    bad: what the other one costs; a difference of at most `ROUNDING` is a tie.

  >>> verdict(10.0, 12.0), verdict(12.0, 10.0), verdict(10.0, 10.000001)
  ('good', 'bad', 'tie')
  """
  if math.isclose(good, bad, rel_tol=ROUNDING):
    return "tie"
  return "good" if good < bad else "bad"


def ranks(bits: Sequence[float]) -> list[int]:
  """Of each, 1 and how many cost less, by more than `ROUNDING`.

  >>> ranks([3.0, 1.0, 3.0, 4.0])
  [2, 1, 2, 4]
  """
  return [1 + sum(verdict(other, own) == "good" for other in bits) for own in bits]


def _check_start(start):
  if start == "none":
    raise InputError("--start=none leaves out each text's first token, and sums are compared; "
                     "needed: --start=eol or --start=state")


def _cost(line: ScoredLine, kept: np.ndarray) -> Cost:
  """The sum over the tokens that `kept` `[N]` names."""
  return Cost(math.fsum(line.surprisals[kept]), int(kept.sum()), int(line.unknown[kept].sum()))


def _after(line: ScoredLine, border: int) -> np.ndarray:
  """Which tokens reach beyond a border in the text, or are part of the character there, `[N]`."""
  kept = (line.ends > border) | (line.starts == border)
  if line.ended:
    kept[-1] = False
  return kept
