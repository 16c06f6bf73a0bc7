"""One of several processes that train together, as `processes_test` starts them; prints JSON.

It makes six updates, goes on until all stop together (the last process gives itself the signal that
asks for it), and says what it saw.
"""

import json
import os
import signal
import sys
from typing import ClassVar

import jax
import numpy as np

from hklm.data.streams import Streams
from hklm.training import mesh as meshes
from hklm.training import processes
from tests.training import mesh_test

MOST = 2000  # updates, should the signal be lost


class Watched(np.ndarray):
  """Ids that know which of them were read."""

  places: ClassVar[set[int]] = set()

  def __getitem__(self, key):
    Watched.places |= set(np.ravel(key).tolist())
    return np.asarray(super().__getitem__(key))


def main(coordinator, count, index, vocab_shards):
  processes.start(coordinator, count, index, timeout=60)
  config = mesh_test.run_config(dtype="float32", tie_embeddings=True, num_layers=1)
  mesh = meshes.make(config, vocab_shards=vocab_shards)
  start, update_one = mesh_test.starting(config)
  state = meshes.init(mesh, start, tied=True)
  update = meshes.update(mesh, update_one, state)
  columns = meshes.columns(mesh, config.batch_size)
  windows = Streams(mesh_test.IDS.view(Watched), config.batch_size, config.bptt, columns)
  losses, state = mesh_test.curve(update, state, windows)
  whole = meshes.local(state)
  state = meshes.place(mesh, whole._replace(params=jax.device_get(whole.params)), tied=True)
  if index == count - 1:
    os.kill(os.getpid(), signal.SIGTERM)
  step = mesh_test.UPDATES
  while not processes.stop_wanted(step) and step < MOST:
    step += 1
    state, _ = update(state, windows[0], np.zeros(len(columns), bool))
  print(json.dumps({
      "curve": losses.tolist(), "columns": list(columns), "read": sorted(Watched.places),
      "first": processes.is_first(), "stopped": step, "made": int(state.step),
      "carried": np.asarray(whole.state.output).tolist(),
      "parts": sorted(shard.index[0].start or 0 for shard in
                      state.params["embedding"]["table"].addressable_shards)}))


if __name__ == "__main__":
  main(sys.argv[1], *map(int, sys.argv[2:]))
