"""A model of words that are alike after anything, so that sums can be done by hand."""

import functools

import jax
import jax.numpy as jnp

import hklm
from hklm.data import words

TOKENIZER = words.WordTokenizer(("a", "b", "c", "d"))
BITS = {"<unk>": 5, "<eos>": 5, "a": 1, "b": 2, "c": 3, "d": 4}  # in the order of their ids
CONFIG = hklm.ModelConfig(vocab_size=len(BITS), embedding_size=2, hidden_size=2)


@functools.cache
def model():
  """The bundle and its parameters: all zero but for the output bias, `-log 2` times the bits."""
  lm = hklm.language_model(CONFIG)
  params = jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))
  bias = -jnp.log(2.0) * jnp.array(list(BITS.values()), jnp.float32)
  return lm, dict(params, head=dict(params["head"], b=bias))
