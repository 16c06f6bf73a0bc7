"""From what the stack puts out to a score for every token: one head in each file.

Each head maps `h [..., D]` to logits `[..., V]`, log-probabilities up to a constant per position,
and has `nats(h [T, B, D], targets [T, B], table)`, what the targets cost, for training. A table
`[V, E]` is the embedding's, for tied ones; None: the head has its own.
"""

import haiku as hk
import jax.numpy as jnp

from hklm.config import ModelConfig
from hklm.nn.heads.adaptive import AdaptiveHead
from hklm.nn.heads.linear import LinearHead
from hklm.nn.heads.mixture import MixtureHead
from hklm.nn.heads.projected import Head, Projected
from hklm.nn.heads.sampled import SampledHead


def head(config: ModelConfig, inits: dict[str, hk.initializers.Initializer]) -> Head:
  """The head that a config asks for; call it inside a Haiku transform.

  Args:
    config: of the model.
    inits: as `initializers.parse` gives them.
  """
  V, dtype = config.vocab_size, jnp.dtype(config.dtype)
  if config.head == "adaptive":
    made = AdaptiveHead(V, config.adaptive_cutoffs, inits, dtype, config.output_bias)
  else:
    made = LinearHead(V, inits, dtype, config.output_bias)
  if config.head == "mixture":
    made = MixtureHead(made, config.mixture_components, config.embedding_size, inits, dtype,
                       config.mixture_dropout, config.dropout_per_step)
  elif config.head == "sampled":
    made = SampledHead(made, V, config.sampled_tokens)
  if config.head_projection:
    made = Projected(made, config.embedding_size, inits["output"], dtype)
  return made
