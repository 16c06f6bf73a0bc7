"""Mixed precision: the update computes in bfloat16 and what it adds up stays float32.

Micikevicius et al. 2018, section 3.1; bfloat16 has float32's range, so that no loss is scaled.
"""

import dataclasses

import jax
import jax.numpy as jnp

from hklm.config import TrainConfig
from hklm.model import CellFactory, LanguageModel, language_model


def computing(lm: LanguageModel, config: TrainConfig, cell: CellFactory | None = None
              ) -> LanguageModel:
  """The functions that the update computes with.

  Args:
    lm: the functions of the run.
    config: of which `compute_dtype` is read.
    cell: your own cell, where `lm` was made with one in place of `lm.config.cell`.

  Returns:
    `lm`, or its twin in `compute_dtype`, for parameters that `cast` has cast.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, embedding_size=2, hidden_size=2))
  >>> computing(lm, TrainConfig(lm.config)) is lm
  True
  >>> computing(lm, TrainConfig(lm.config, compute_dtype="bfloat16")).config.dtype
  'bfloat16'
  """
  if not config.compute_dtype:
    return lm
  return language_model(dataclasses.replace(lm.config, dtype=config.compute_dtype), cell)


def cast(params, config: TrainConfig):
  """Parameters as the update reads them: floating-point leaves in `config.compute_dtype`.

  Args:
    params: the parameters, any pytree of arrays.
    config: of which `compute_dtype` is read; where it is empty nothing is cast.

  Returns:
    The same pytree.

  >>> cast({"w": jnp.ones(2)}, TrainConfig(compute_dtype="bfloat16"))["w"].dtype
  dtype(bfloat16)
  """
  if not config.compute_dtype:
    return params
  return jax.tree.map(
      lambda leaf: leaf.astype(config.compute_dtype) if jnp.issubdtype(leaf.dtype, jnp.floating)
      else leaf, params)


def wide(dtype) -> jnp.dtype:
  """The type that numbers of `dtype` are added up in: float32, or float64's own.

  >>> wide("bfloat16"), wide("float64")
  (dtype('float32'), dtype('float64'))
  """
  return jnp.promote_types(dtype, jnp.float32)
