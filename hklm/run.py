"""The run directory: all that any other program needs to know of a training run."""

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hklm import config as configs
from hklm import parameters, safetensors
from hklm.config import ModelConfig, TrainConfig
from hklm.data import tokenizers
from hklm.errors import InputError
from hklm.files import whole_folder
from hklm.model import CellFactory, LanguageModel, language_model
from hklm.nn import cudnn
from hklm.training import checkpoints
from hklm.training.saver import BEST, STEP, check_finite
from hklm.training.snapshots import PARAMS

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
# In config.json, beside the configuration.
_TOKENIZER, _TEXT, _BASE = "tokenizer_fingerprint", "text_fingerprint", "base_fingerprint"


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
  """Reads a run directory, or a folder of exported weights.

  Args:
    path: what `train` or `hklm.interop.folders.save` wrote.
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
  contents = read_contents(path)
  lm = language_model(_for_this_machine(contents.config.model), cell)
  if holds_weights(path):
    if checkpoint:
      raise InputError(f"--checkpoint={checkpoint}: {path} holds {safetensors.NAME} and no "
                       "checkpoints; drop it")
    params = safetensors.read(os.path.join(path, safetensors.NAME), lm, contents.identity)
    return Run(lm, params, contents.tokenizer, contents.config, path)
  best, last = (checkpoints.named(checkpoint_folder(path), kind) for kind in (BEST, STEP))
  found = {"": best or last, "best": best, "last": last}[checkpoint]
  if not found:
    raise InputError(f"{checkpoint_folder(path)}: no checkpoint {checkpoint}".rstrip()
                     + "; needed: a run that has got as far as saving one")
  try:
    params = _read_params(found[0], lm, contents)
  except InputError as error:
    if not (best and last and found is best):
      raise
    raise InputError(f"{error}, or --checkpoint=last") from error
  return Run(lm, params, contents.tokenizer, contents.config, path)


def _for_this_machine(model: ModelConfig) -> ModelConfig:
  """A model that was trained with cuDNN's LSTM computes the same without it."""
  if model.lstm_impl == "cudnn" and not cudnn.available():
    return dataclasses.replace(model, lstm_impl="auto")
  return model


class Contents(NamedTuple):
  """What a run directory holds besides checkpoints.

  Attributes:
    config: the `TrainConfig`, its `model.vocab_size` set.
    tokenizer: text to ids and back.
    text_fingerprint: of the text that it trains on.
    base_fingerprint: of the parameters that it began with, if they were another run's.
  """

  config: TrainConfig
  tokenizer: Any
  text_fingerprint: str = ""
  base_fingerprint: str = ""

  @property
  def identity(self) -> str:
    """SHA-256, hexadecimal, of all that decides the run; its checkpoints carry it."""
    return hashlib.sha256(json.dumps(_described(self), sort_keys=True).encode()).hexdigest()


def _described(contents):
  """What config.json holds."""
  return configs.to_json(contents.config) | {
      _TOKENIZER: contents.tokenizer.fingerprint, _TEXT: contents.text_fingerprint,
      _BASE: contents.base_fingerprint}


def read_config(path: str) -> TrainConfig:
  """The configuration of the run at `path`."""
  return _read_config(path)[0]


def read_contents(path: str) -> Contents:
  """What the run directory at `path` holds besides checkpoints.

  Raises:
    InputError: not a run directory, a file that is missing or damaged (named), a tokenizer that
      belongs to another run.
  """
  config, prints = _read_config(path)
  tokenizer = tokenizers.load(os.path.join(path, TOKENIZER))
  if tokenizer.fingerprint != prints[_TOKENIZER]:
    raise InputError(f"{path}: tokenizer.json has fingerprint {tokenizer.fingerprint[:12]}, "
                     f"config.json says {prints[_TOKENIZER][:12]}; needed: the run's own tokenizer")
  return Contents(config, tokenizer, prints[_TEXT], prints[_BASE])


def _read_config(path):
  values = _read_json(os.path.join(path, CONFIG))
  prints = {name: str(values.pop(name, "")) for name in (_TOKENIZER, _TEXT, _BASE)}
  return configs.from_json(TrainConfig, values), prints


def create(path: str, contents: Contents, overwrite: bool = False,
           files: Mapping[str, str] | None = None, params: Any = None) -> str:
  """Makes a run directory, whole or not at all.

  Args:
    path: where; see `check_free`.
    contents: of the run.
    overwrite: whether an older run there may be removed.
    files: further text files by name.
    params: parameters from elsewhere, saved as if after update 0.

  Returns:
    Its absolute path.
  """
  path = check_free(path, overwrite)
  try:
    with whole_folder(path) as folder:
      write_contents(folder, contents, files)
      if params is not None:
        checkpoints.write(checkpoint_folder(folder), STEP, 0, {PARAMS: params},
                          {"run": contents.identity}, lean=True)
  except OSError as error:
    raise InputError(f"{path}: cannot be made ({error.strerror}); needed: room for it, or another "
                     "--run_dir") from error
  return path


def write_contents(folder: str, contents: Contents, texts: Mapping[str, str] | None = None):
  """Writes what a run directory holds besides checkpoints.

  Args:
    folder: an empty one.
    contents: of the run.
    texts: further text files by name.

  Raises:
    OSError: they cannot be written.
  """
  texts = {CONFIG: json.dumps(_described(contents), indent=1) + "\n"} | dict(texts or {})
  for name, text in texts.items():
    # A path need not be UTF-8, and comes back as it was.
    with open(os.path.join(folder, name), "w", encoding="utf-8", errors="surrogateescape") as file:
      file.write(text)
  tokenizers.save(contents.tokenizer, os.path.join(folder, TOKENIZER))


@contextlib.contextmanager
def claimed(path: str) -> Iterator[None]:
  """Keeps a run directory for this process; however it ends, the claim ends with it.

  Args:
    path: of a run.

  Raises:
    InputError: another process trains there.
  """
  folder = os.open(path, os.O_RDONLY)
  try:
    try:
      fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise InputError(f"another process trains in {path}; needed: its end, or another --run_dir"
                       ) from error
    yield
  finally:
    os.close(folder)


def check_free(path: str, overwrite: bool = False, resume: bool = False) -> str:
  """The absolute path, if a run may be written there.

  Args:
    path: the run directory.
    overwrite: whether an older run there may be removed.
    resume: whether a run that is there may be gone on with.

  Raises:
    InputError: something is there and may not be overwritten, or is not a run directory; no folder
      can be made there.
  """
  if os.path.islink(path) and not os.path.exists(path):
    raise InputError(f"{path} is there and is not a run directory; needed: another --run_dir")
  path = os.path.realpath(path)
  config = os.path.join(path, CONFIG)
  if resume and os.path.isfile(config):
    _read_json(config)  # a damaged one is named
    if is_run(path) and not holds_weights(path):
      return path
  parent = os.path.dirname(path)
  while not os.path.lexists(parent):
    parent = os.path.dirname(parent)
  if not (os.path.isdir(parent) and os.access(parent, os.W_OK)):
    raise InputError(f"{parent} is not a directory that can be written to; needed: another "
                     "--run_dir")
  if not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path)):
    return path
  if not is_run(path):
    raise InputError(f"{path} is there and is not a run directory; needed: another --run_dir")
  if not overwrite and holds_weights(path):
    raise InputError(f"{path} holds {safetensors.NAME} and no state of training; give "
                     f"--init_from={path} and another --run_dir to begin with it, or --overwrite "
                     "to replace it")
  if not overwrite:
    raise InputError(f"{path} holds a run ({_how_far(path)}); give --resume to go on with it, "
                     "--overwrite to replace it, or another --run_dir")
  return path


def _how_far(path):
  for checkpoint in checkpoints.named(checkpoint_folder(path), STEP):
    try:
      found = checkpoints.manifest(checkpoint)
    except InputError:
      continue
    step, steps = found["step"], found.get("steps", 0)
    return "finished" if step == steps else f"unfinished: {step:,} of {steps:,} updates are saved"
  return "unfinished: nothing is saved yet"


def is_run(path: str) -> bool:
  """Whether `create` made this folder: other programs have a config.json too."""
  try:
    return _TOKENIZER in _read_json(os.path.join(path, CONFIG))
  except (InputError, OSError):
    return False


def holds_weights(path: str) -> bool:
  """Whether a run directory holds exported weights in place of checkpoints."""
  return (os.path.isfile(os.path.join(path, safetensors.NAME))
          and not os.path.isdir(checkpoint_folder(path)))


def next_free(root: str = "runs") -> str:
  """The first of `root/1`, `root/2`, ... that is not there."""
  return next(path for n in itertools.count(1)
              if not os.path.lexists(path := os.path.join(root, str(n))))


def checkpoint_folder(path: str) -> str:
  """Where the run at `path` keeps its checkpoints: `best-UPDATE` and `step-UPDATE`."""
  return os.path.join(path, "checkpoints")


def _read_params(path, lm, contents):
  """The parameters of a checkpoint, which must be of this run."""
  checkpoints.verify(path, contents.identity)
  params = checkpoints.restore(path, PARAMS, parameters.shapes(lm))
  check_finite(params, path)
  return params


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
