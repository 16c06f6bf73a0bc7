"""Checkpoints of parameters alone, as the saver of a run would leave them."""

from hklm import run as runs
from hklm.training import checkpoints, saver, snapshots

KINDS = {"best": saver.BEST, "last": saver.STEP}


def write(path: str, name: str, params, step: int = 1) -> str:
  """Writes the checkpoint `best` or `last` of the run at `path`; returns its folder."""
  return checkpoints.write(runs.checkpoint_folder(path), KINDS[name], step,
                           {snapshots.PARAMS: params}, {"run": runs.read_contents(path).identity})
