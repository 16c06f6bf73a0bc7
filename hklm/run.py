"""The run directory: all that any other program needs to know of a training run."""

import dataclasses
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from hklm import config as configs
from hklm.config import ModelConfig, TrainConfig
from hklm.data import tokenizers
from hklm.errors import InputError
from hklm.model import CellFactory, LanguageModel, language_model
from hklm.nn import cudnn
from hklm.training import checkpoints


class Run(NamedTuple):
  """A trained model with everything that goes with it.

  Attributes:
    lm: the pure functions.
    params: the parameters.
    tokenizer: text to ids and back.
    config: the `TrainConfig`, its `model.vocab_size` set.
    path: the run directory, absolute.
  """

  lm: LanguageModel
  params: Any
  tokenizer: Any
  config: TrainConfig
  path: str


def load_run(path: str, checkpoint: str = "", cell: CellFactory | None = None) -> Run:
  """Reads a run directory.

  Args:
    path: what `train` wrote.
    checkpoint: `best` or `last`; empty: the best, or the last of a run without validation.
    cell: the cell factory of a run that was trained with one in place of `config.cell`.

  Returns:
    The `Run`.

  Raises:
    InputError: not a run directory, a file that is missing or damaged (named), a tokenizer or
      checkpoint that belongs to another run, parameters that are not finite.
  """
  path = os.path.abspath(path)
  if checkpoint not in ("", "best", "last"):
    raise InputError(f"--checkpoint={checkpoint} is unknown; needed: best or last")
  config, fingerprint = read_config(path)
  tokenizer = tokenizers.load(os.path.join(path, "tokenizer.json"))
  if tokenizer.fingerprint != fingerprint:
    raise InputError(f"{path}: tokenizer.json has fingerprint {tokenizer.fingerprint[:12]}, "
                     f"config.json says {fingerprint[:12]}; needed: the run's own tokenizer")
  lm = language_model(_for_this_machine(config.model), cell)
  if not checkpoint:
    checkpoint = "best" if os.path.isdir(checkpoint_path(path, "best")) else "last"
  params = read_checkpoint(path, checkpoint, lm, tokenizer)
  return Run(lm, params, tokenizer, config, path)


def _for_this_machine(model: ModelConfig) -> ModelConfig:
  """A model that was trained with cuDNN's LSTM computes the same without it."""
  if model.lstm_impl == "cudnn" and not cudnn.available():
    return dataclasses.replace(model, lstm_impl="auto")
  return model


def read_config(path: str) -> tuple[TrainConfig, str]:
  """The configuration of the run at `path`, and its tokenizer's fingerprint."""
  values = _read_json(os.path.join(path, "config.json"))
  fingerprint = values.pop("tokenizer_fingerprint", "")
  return configs.from_json(TrainConfig, values), str(fingerprint)


def create(path: str, config: TrainConfig, tokenizer, overwrite: bool = False,
           files: Mapping[str, str] | None = None) -> str:
  """Makes a run directory, whole or not at all.

  Args:
    path: where; see `check_free`.
    config: with its `model.vocab_size` set.
    tokenizer: the run's.
    overwrite: whether an older run there may be removed.
    files: further text files by name.

  Returns:
    Its absolute path.
  """
  path = check_free(path, overwrite)
  parent, name = os.path.split(path)
  os.makedirs(parent, exist_ok=True)
  with tempfile.TemporaryDirectory(prefix=".hklm.", dir=parent) as folder:
    new = os.path.join(folder, name)
    os.mkdir(new)  # with the usual permissions, which the temporary folder has not
    values = configs.to_json(config) | {"tokenizer_fingerprint": tokenizer.fingerprint}
    texts = {"config.json": json.dumps(values, indent=1) + "\n"} | dict(files or {})
    for file_name, text in texts.items():
      with open(os.path.join(new, file_name), "w", encoding="utf-8") as file:
        file.write(text)
    tokenizers.save(tokenizer, os.path.join(new, "tokenizer.json"))
    if os.path.isdir(path):
      shutil.rmtree(path)
    os.rename(new, path)
  return path


def check_free(path: str, overwrite: bool = False) -> str:
  """The absolute path, if a run may be written there.

  Raises:
    InputError: something is there and may not be overwritten, or is not a run directory; no folder
      can be made there.
  """
  if os.path.islink(path) and not os.path.exists(path):
    raise InputError(f"{path} is there and is not a run directory; needed: another --run_dir")
  path = os.path.realpath(path)
  parent = os.path.dirname(path)
  while not os.path.lexists(parent):
    parent = os.path.dirname(parent)
  if not (os.path.isdir(parent) and os.access(parent, os.W_OK)):
    raise InputError(f"{parent} is not a directory that can be written to; needed: another "
                     "--run_dir")
  if not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path)):
    return path
  if not _is_run(path):
    raise InputError(f"{path} is there and is not a run directory; needed: another --run_dir")
  if not overwrite:
    raise InputError(f"{path} holds a run; give another --run_dir, or --overwrite to replace it")
  return path


def _is_run(path):
  """Whether `create` made this folder: other programs have a config.json too."""
  try:
    return "tokenizer_fingerprint" in _read_json(os.path.join(path, "config.json"))
  except (InputError, OSError):
    return False


def next_free(root: str = "runs") -> str:
  """The first of `root/1`, `root/2`, ... that is not there."""
  return next(path for n in itertools.count(1)
              if not os.path.lexists(path := os.path.join(root, str(n))))


def checkpoint_path(path: str, name: str) -> str:
  """Where the run at `path` keeps its checkpoint `best` or `last`."""
  return os.path.join(path, "checkpoints", name)


def write_checkpoint(path: str, name: str, params, tokenizer):
  """Saves parameters with the fingerprint of the tokenizer they go with."""
  checkpoints.save(checkpoint_path(path, name), _payload(params, tokenizer))


def read_checkpoint(path: str, name: str, lm: LanguageModel, tokenizer):
  """The parameters of a checkpoint, which must fit the model and the tokenizer.

  Args:
    path: the run directory.
    name: `best` or `last`.
    lm: the run's functions.
    tokenizer: the run's.

  Raises:
    InputError: no or a damaged checkpoint, of another model or tokenizer, or not finite.
  """
  place = checkpoint_path(path, name)
  shapes = jax.eval_shape(lm.init, jax.random.key(0))
  restored = checkpoints.restore(place, _payload(shapes, tokenizer))
  if not np.array_equal(restored["tokenizer"], _payload(None, tokenizer)["tokenizer"]):
    raise InputError(f"{place}: made with another tokenizer; needed: the run's own checkpoint")
  for key, leaf in jax.tree_util.tree_leaves_with_path(restored["params"]):
    if not bool(jax.numpy.isfinite(leaf).all()):
      raise InputError(f"{place}: parameter {jax.tree_util.keystr(key)} is not finite; the run has "
                       "diverged: train again with a lower --learning_rate or --clip")
  return restored["params"]


def _payload(params, tokenizer):
  digest = np.frombuffer(bytes.fromhex(tokenizer.fingerprint), np.uint8)
  return {"params": params, "tokenizer": digest}


def _read_json(path):
  try:
    with open(path, encoding="utf-8") as file:
      values = json.load(file)
  except FileNotFoundError as error:
    raise InputError(f"{path} is not there; needed: --run_dir with what train wrote") from error
  except OSError as error:
    raise InputError(f"{path}: {error.strerror}; needed: --run_dir with what train wrote"
                     ) from error
  except (ValueError, RecursionError) as error:
    raise InputError(f"{path}: not JSON ({error}); needed: the file that train wrote") from error
  if not isinstance(values, dict):
    raise InputError(f"{path}: found {type(values).__name__}, needed a JSON object")
  return values
