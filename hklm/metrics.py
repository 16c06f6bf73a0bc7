"""Mergeable sums and counts; every average is a division at the very end, where the count is known.

Nats inside; the unit is in the name of what comes out.
"""

import math
from typing import NamedTuple


class Metrics(NamedTuple):
  """Sums over scored tokens, in float64 on the host.

  Attributes:
    nats: `-log p` summed over all scored tokens.
    tokens: how many were scored.
    unknown_nats: the part of `nats` that unknown tokens cost.
    unknown_tokens: how many of the scored tokens were unknown.
    streams: how many streams started cold.
    window: the window length used; it changes no figure.

  >>> metrics = Metrics(nats=20 * math.log(2), tokens=10) + Metrics(nats=0.0, tokens=10)
  >>> round(metrics.perplexity, 12), round(metrics.bits_per_token, 12)
  (2.0, 1.0)
  >>> Metrics(nats=1e6, tokens=1).perplexity
  inf
  """

  nats: float
  tokens: int
  unknown_nats: float = 0.0
  unknown_tokens: int = 0
  streams: int = 1
  window: int = 0

  def __add__(self, other: "Metrics") -> "Metrics":
    return self._replace(nats=self.nats + other.nats, tokens=self.tokens + other.tokens,
                         unknown_nats=self.unknown_nats + other.unknown_nats,
                         unknown_tokens=self.unknown_tokens + other.unknown_tokens)

  @property
  def nats_per_token(self) -> float:
    return self.nats / self.tokens if self.tokens else math.nan

  @property
  def bits_per_token(self) -> float:
    return self.bits_per(self.tokens)

  @property
  def perplexity(self) -> float:
    """exp(nats per token); `inf` where that is too large for a float."""
    return perplexity(self.nats, self.tokens)

  @property
  def known_perplexity(self) -> float:
    """Perplexity over the tokens that are not unknown; `nan` if there are none."""
    return perplexity(self.nats - self.unknown_nats, self.tokens - self.unknown_tokens)

  def bits_per(self, count: int) -> float:
    """Bits per character or byte, given how many of them the scored tokens stand for."""
    return self.nats / math.log(2) / count if count else math.nan


def perplexity(nats: float, tokens: int) -> float:
  """exp(nats / tokens): `inf` where it overflows, `nan` for no tokens.

  >>> perplexity(0.0, 3), perplexity(1e9, 1), perplexity(0.0, 0)
  (1.0, inf, nan)
  """
  if not tokens:
    return math.nan
  try:
    return math.exp(nats / tokens)
  except OverflowError:
    return math.inf
