"""A training state and its progress as the parts of a checkpoint, and back."""

import math
from collections.abc import Mapping

import jax

from hklm.errors import InputError
from hklm.metrics import Metrics
from hklm.training import averages, checkpoints
from hklm.training.loop import Progress
from hklm.training.step import TrainState, evaluated

PARAMS, TRAINING = "params", "training"  # the parts: what a model needs, what training needs more


def parts(train_state: TrainState) -> dict:
  """Arrays by part: the parameters to evaluate with, all else by the names of its leaves.

  Names keep what orbax would make lists of, and leave out what holds no array.
  """
  return {PARAMS: evaluated(train_state), TRAINING: _named(train_state)}


def about(progress: Progress, steps: int) -> dict:
  """JSON values for the manifest.

  Args:
    progress: of the run.
    steps: updates in all.
  """
  best, kept, *bests = (None if math.isinf(nats) else nats for nats in
                        (progress.best, progress.kept, *progress.history.bests))
  return {"steps": steps, "best": best, "kept": kept, "best_step": progress.best_step,
          "unlogged_nats": progress.unlogged.nats, "unlogged_tokens": progress.unlogged.tokens,
          "skipped": progress.skipped, "validations": progress.history.validations,
          "bests": bests, "averaging_started": progress.history.started}


def restored(path: str, manifest: Mapping, target: TrainState) -> tuple[TrainState, Progress]:
  """What a checkpoint was made of.

  Args:
    path: its folder.
    manifest: as `checkpoints.verify` returns it.
    target: a state of the same run, whose values play no part; its zero-sized arrays are taken.

  Raises:
    InputError: it is of another run.
  """
  try:
    best, kept, *bests = (math.inf if nats is None else float(nats) for nats in
                          (manifest["best"], manifest["kept"], *manifest["bests"]))
    history = averages.History(int(manifest["validations"]), tuple(bests),
                               bool(manifest["averaging_started"]))
    progress = Progress(
        best, kept, int(manifest["best_step"]),
        Metrics(nats=float(manifest["unlogged_nats"]), tokens=int(manifest["unlogged_tokens"])),
        int(manifest["skipped"]), history)
  except (KeyError, TypeError, ValueError) as error:
    raise InputError(f"{path}: the manifest has no training state; needed: a checkpoint as train "
                     "wrote it") from error
  arrays = checkpoints.restore(path, TRAINING, _shapes(_named(target)))
  rest = jax.tree_util.tree_map_with_path(
      lambda name, leaf: arrays.get(jax.tree_util.keystr(name), leaf), _rest(target))
  key = jax.random.wrap_key_data(rest.key, impl=jax.random.key_impl(target.key))
  if target.average is None:
    rest = rest._replace(params=checkpoints.restore(path, PARAMS, _shapes(target.params)))
  return rest._replace(key=key), progress


def _shapes(tree):
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def _named(train_state):
  """The leaves of `_rest`, by name; those without an element are left out."""
  return {jax.tree_util.keystr(name): leaf
          for name, leaf in jax.tree_util.tree_leaves_with_path(_rest(train_state)) if leaf.size}


def _rest(train_state):
  """All that `PARAMS` does not hold; the key as the numbers it is made of."""
  rest = train_state._replace(key=jax.random.key_data(train_state.key))
  return rest._replace(params=()) if rest.average is None else rest
