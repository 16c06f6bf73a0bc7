"""A model as StableHLO, through `jax.export`: functions that run where there is no hklm.

What they take and return is plain: parameters by name, as in `hklm.parameters`, and the state as a
list of its leaves. Batch size and length are left open; one file serves CPUs, CUDA and TPUs.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from hklm import files, parameters
from hklm.data import base, tokenizers
from hklm.errors import InputError
from hklm.model import LanguageModel

PLATFORMS = ("cpu", "cuda", "tpu")
PARAMS, TOKENIZER = "params.npz", "tokenizer.json"


class Functions(NamedTuple):
  """What is exported; each is without randomness, as with `key=None`.

  Attributes:
    start: `(params, ids [B]) -> logits [B, V], state`: what comes first. Of the ids only their
      number counts.
    step: `(params, ids [B], state) -> logits [B, V], state`.
    unroll: `(params, ids [T, B], state) -> logits [T, B, V], state`.
  """

  start: Callable
  step: Callable
  unroll: Callable


NAMES = (*(f"{name}.stablehlo" for name in Functions._fields), PARAMS, TOKENIZER)


def functions(lm: LanguageModel) -> Functions:
  """The functions of a model over what is plain.

  Args:
    lm: the model.

  >>> from hklm import ModelConfig, language_model
  >>> lm = language_model(ModelConfig(vocab_size=5, embedding_size=3, hidden_size=4))
  >>> its, params = functions(lm), parameters.flat(lm.init(jax.random.key(0)))
  >>> logits, state = its.start(params, jnp.zeros(2, int))
  >>> logits.shape, [leaf.shape for leaf in state]
  ((2, 5), [(2, 4), (2, 4), (2, 4)])
  >>> its.unroll(params, jnp.zeros([7, 2], int), state)[0].shape
  (7, 2, 5)
  """
  shapes = parameters.shapes(lm)
  structure = jax.tree.structure(jax.eval_shape(lambda params: lm.initial_state(params, 1), shapes))

  def nested(params):
    return {module: {name: params[f"{module}/{name}"] for name in its}
            for module, its in shapes.items()}

  def start(params, ids):
    params = nested(params)
    state = lm.initial_state(params, ids.shape[0])
    return lm.readout(params, state), jax.tree.leaves(state)

  def step(params, ids, state):
    logits, state = lm.step(nested(params), None, ids, jax.tree.unflatten(structure, state))
    return logits, jax.tree.leaves(state)

  def unroll(params, ids, state):
    params = nested(params)

    # Step by step: how a whole sequence is read at once depends on its length and on the device.
    def advance(state, now):
      _, state = lm.hidden(params, None, now[None], state)
      return state, state.output

    state, hidden = jax.lax.scan(advance, jax.tree.unflatten(structure, state), ids)
    return lm.head(params, hidden), jax.tree.leaves(state)

  return Functions(start, step, unroll)


def exported(lm: LanguageModel) -> dict[str, bytes]:
  """The functions as `jax.export` serialises them, by name; `jax.export.deserialize` reads them.

  Args:
    lm: the model.

  Raises:
    InputError: a cell of one's own that cannot be exported; no `flatbuffers`, by which jax
      serialises.

  >>> from hklm import ModelConfig, language_model
  >>> lm = language_model(ModelConfig(vocab_size=5, embedding_size=3, hidden_size=4))
  >>> step = export.deserialize(bytearray(exported(lm)["step"]))
  >>> print(step.in_avals[-1].str_short(), step.out_avals[0].str_short())
  float32[b,4] float32[b,5]
  """
  batch, length = export.symbolic_shape("b, t")
  ids = jax.ShapeDtypeStruct((batch,), jnp.int32)
  sequence = jax.ShapeDtypeStruct((length, batch), jnp.int32)
  params, its = parameters.described(lm), functions(lm)
  try:
    start = _lowered(its.start, params, ids)
    _, state = jax.tree.unflatten(start.out_tree, map(_spec, start.out_avals))
    lowered = Functions(start, _lowered(its.step, params, ids, state),
                        _lowered(its.unroll, params, sequence, state))
  except Exception as error:  # what a user's cell does may be refused by any part of jax
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    raise InputError(f"--cell={lm.config.cell} cannot be exported ({reason:.300}); needed: a cell "
                     "that computes with a batch of any size, on any device") from error
  try:
    return {name: bytes(one.serialize()) for name, one in lowered._asdict().items()}
  except ImportError as error:
    raise InputError("jax writes StableHLO through flatbuffers, which is not installed; needed: "
                     "pip install flatbuffers") from error


def _lowered(function, *args) -> export.Exported:
  limit = jax.config.jax_traceback_in_locations_limit
  # Else jax would write down where all code lies on this machine, and no two files would be alike.
  jax.config.update("jax_traceback_in_locations_limit", 0)
  try:
    return export.export(jax.jit(function), platforms=PLATFORMS)(*args)
  finally:
    jax.config.update("jax_traceback_in_locations_limit", limit)


def _spec(aval) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def save(path: str, lm: LanguageModel, params, tokenizer: base.Tokenizer, overwrite: bool = False):
  """Writes a folder, whole or not at all: a file a function, `params.npz` and `tokenizer.json`.

  bfloat16, which NumPy has not, is in `params.npz` as numbers of two bytes that nothing interprets;
  `array.view("bfloat16")` says what they are once jax is imported.

  Args:
    path: where.
    lm: the model.
    params: its parameters.
    tokenizer: text to ids and back.
    overwrite: whether an older folder of this kind may be replaced.

  Raises:
    InputError: parameters that are not the model's, or not finite; what cannot be exported;
      something is there that may not be replaced; it cannot be written.
  """
  tensors = {name: np.asarray(leaf) for name, leaf in parameters.flat(params).items()}
  parameters.check(tensors, lm)
  with files.written_folder(path, "output", NAMES, overwrite) as folder:
    for name, serialized in exported(lm).items():
      with open(os.path.join(folder, f"{name}.stablehlo"), "wb") as file:
        file.write(serialized)
    np.savez(os.path.join(folder, PARAMS), **tensors)
    tokenizers.save(tokenizer, os.path.join(folder, TOKENIZER))
