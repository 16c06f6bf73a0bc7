"""Going on with a run, or beginning one with another's parameters: what is taken, and checked.

Besides the checkpoint that a run goes on from, its directory may hold checkpoints that are damaged
or another run's, and what came after that checkpoint.
"""

import hashlib
import math
import os
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from hklm import config as configs
from hklm import parameters
from hklm import run as runs
from hklm.config import TrainConfig
from hklm.errors import InputError
from hklm.model import CellFactory, LanguageModel
from hklm.training import checkpoints, loop
from hklm.training.logs import keep_rows, say
from hklm.training.saver import BEST, STEP
from hklm.watching import METRICS


class Found(NamedTuple):
  """What there is to begin with; all of it is None or empty where a run begins from nothing.

  Attributes:
    older: the run to go on with.
    newest: its newest checkpoint that can be used.
    faults: what is wrong with each newer one, by its folder.
    base: the run with whose parameters to begin.
  """

  older: runs.Contents | None
  newest: str | None
  faults: Mapping[str, str]
  base: runs.Run | None

  @property
  def complete(self) -> bool:
    """Whether the run has nothing left to do or to mend."""
    if not self.newest or self.faults:
      return False
    manifest = checkpoints.manifest(self.newest)
    bests = checkpoints.named(os.path.dirname(self.newest), BEST)
    return (manifest["step"] == manifest.get("steps")
            and all(checkpoints.is_whole(best, self.older.identity) for best in bests[:1]))

  @property
  def base_fingerprint(self) -> str:
    """Of the parameters to begin with, if they are another run's."""
    return fingerprint(self.base.params) if self.base else ""


def find(run_dir: str, config: TrainConfig, resume: bool = False, init_from: str = "",
         cell: CellFactory | None = None) -> Found:
  """Looks for what a run goes on from or begins with.

  Args:
    run_dir: the run directory.
    config: of the run.
    resume: whether the run that is there is gone on with.
    init_from: a run directory with parameters to begin with; read only where no checkpoint can be
      used.
    cell: your own cell, in place of `config.model.cell`.

  Raises:
    InputError: the run that is there has another configuration, began with other parameters, has
      checkpoints that are all another run's, or cannot be written to.
  """
  older = runs.read_contents(run_dir) if resume and runs.is_run(run_dir) else None
  newest, faults = None, {}
  if older:
    check_same(older, config, own_cell=cell is not None)
    newest, faults = checkpoints.newest(runs.checkpoint_folder(run_dir), STEP, older.identity)
    for path, fault in faults.items() if not newest else ():
      if checkpoints.is_whole(path):  # to begin anew would be to lose it
        raise InputError(fault)
  base = _base(init_from, cell) if init_from and not newest else None
  found = Found(older, newest, faults, base)
  if older and not found.complete and not os.access(run_dir, os.W_OK):
    raise InputError(f"{run_dir} cannot be written to; needed: a copy of it that can")
  if older and not newest and found.base_fingerprint != older.base_fingerprint:
    given = f"those of --init_from={init_from}" if init_from else "random ones"
    raise InputError(f"{run_dir} holds no checkpoint to go on from, and began with other "
                     f"parameters than {given}; needed: what it began with, or --overwrite")
  return found


def check_same(older: runs.Contents, config: TrainConfig, own_cell: bool = False):
  """Refuses to go on with a run as if it had another configuration.

  Args:
    older: the run.
    config: what it is to go on with; `model.vocab_size` is not compared.
    own_cell: whether a cell is given as a function, whose name `config` has only later.

  Raises:
    InputError: something differs (named).
  """
  found, needed = (_flat(configs.to_json(its)) for its in (config, older.config))
  for name in sorted(set(needed) - ({"cell"} if own_cell else set())):
    if found[name] != needed[name]:
      raise InputError(f"the run has --{name}={needed[name]}, found --{name}={found[name]}; "
                       "needed: the same to resume it, or --init_from to begin another with its "
                       "parameters")


def _flat(values):
  """The fields of a configuration by the names of their flags."""
  flat = {}
  for name, value in values.items():
    if isinstance(value, dict):
      flat |= {"tokenizer" if key == "kind" else key: its for key, its in _flat(value).items()}
    else:
      flat[name] = value
  return flat


def _base(init_from, cell):
  try:
    return runs.load_run(init_from, cell=cell)
  except InputError as error:
    raise InputError(f"--init_from={init_from}: {error}") from error


def fitting(base: runs.Run, lm: LanguageModel):
  """The parameters of a run, in the dtype of a model.

  Args:
    base: the run.
    lm: the model that is to begin with them.

  Raises:
    InputError: they are not those of this model (the first is named).
  """
  found, needed = ({name: leaf.shape for name, leaf in its.items()}
                   for its in (parameters.flat(base.params), parameters.described(lm)))
  for name in sorted(set(found) | set(needed)):
    if found.get(name) != needed.get(name):
      raise InputError(f"--init_from={base.path}: parameter {name} is "
                       f"{found.get(name, 'missing')}, this model's {needed.get(name, 'missing')}; "
                       "needed: the same sizes, cell and biases")
  return jax.tree.map(lambda leaf: leaf.astype(lm.config.dtype), base.params)


def fingerprint(params) -> str:
  """SHA-256 of the names, dtypes and values of parameters, hexadecimal.

  >>> ones, zeros = ({"w": np.full(3, value)} for value in (1.0, 0.0))
  >>> fingerprint(ones)[:8], fingerprint(ones) == fingerprint(zeros)
  ('334a0087', False)
  """
  digest = hashlib.sha256()
  for name, leaf in jax.tree_util.tree_leaves_with_path(params):
    digest.update(f"{jax.tree_util.keystr(name)} {leaf.dtype} {leaf.shape} ".encode())
    digest.update(np.asarray(leaf).tobytes())
  return digest.hexdigest()


def with_the_best_there_is(run_dir: str, identity: str, progress: loop.Progress) -> loop.Progress:
  """The progress of a run; if its best model cannot be read any more, another is to be saved.

  The best figure stays: a plateau is judged by it.

  Args:
    run_dir: the run directory.
    identity: the run's.
    progress: as it was saved.
  """
  if not progress.best_step:
    return progress
  best = os.path.join(runs.checkpoint_folder(run_dir), f"{BEST}-{progress.best_step}")
  if checkpoints.is_whole(best, identity):
    return progress
  say(f"{best} cannot be used: the best is sought anew")
  return progress._replace(kept=math.inf, best_step=0)


def make_as_it_was(run_dir: str, identity: str, done: int, faults: Mapping[str, str]):
  """Takes from a run directory what came after an update; sets aside what cannot be used.

  Args:
    run_dir: the run directory.
    identity: the run's.
    done: the update; 0 where all states are lost.
    faults: what is wrong with each checkpoint of a state that cannot be used, by its folder.
  """
  folder = runs.checkpoint_folder(run_dir)
  for best in checkpoints.named(folder, BEST):
    if checkpoints.step(best) > done and done:  # of a future that is about to happen again
      checkpoints.remove(best)
    elif checkpoints.step(best) > done:  # all that is left
      say(f"{best} is now {os.path.basename(checkpoints.set_aside(best))}")
  for damaged, fault in (faults | checkpoints.newest(folder, BEST, identity)[1]).items():
    say(f"skipped: {fault}; it is now {os.path.basename(checkpoints.set_aside(damaged))}")
  keep_rows(os.path.join(run_dir, METRICS), done)
