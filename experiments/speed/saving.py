"""What saving costs: training steps with a checkpoint among them, beside steps without."""

import itertools
import tempfile

import jax.numpy as jnp

import hklm
from experiments.speed.with_hklm import model
from experiments.speed.workloads import Workload
from hklm.training import loop, optimizers, snapshots, step
from hklm.training.saver import STEP, Saver


def works(work: Workload, window, updates: int, every: int = 1):
  """Functions by name that make `updates` updates of Adam and return the mean nats of the last.

  `saving` saves all that a run would after the first of them, as a run does, and waits in the end:
  the first time that it is called, the second, and from there on at every so many calls.

  Args:
    work: the sizes.
    window: int32 `[T + 1, B]`.
    updates: how many.
    every: calls of `saving` to a checkpoint.
  """
  lm = model(work)
  optimizer = optimizers.optimizer(hklm.TrainConfig(schedule="constant"), updates,
                                   lambda epochs: epochs * updates)
  update = step.make_update(lm, optimizer)
  window, reset = jnp.asarray(window), jnp.zeros([work.batch_size], bool)
  held = [step.init(lm, optimizer, work.batch_size, seed=0)]
  calls = itertools.count(-1)  # the first one warms up
  folder = tempfile.TemporaryDirectory()  # lives as long as the functions do

  def run(saves):
    state, saver = held.pop(), Saver(folder.name, keep=2)
    for n in range(updates):
      state, metrics = update(state, window, reset)
      if saves and n == 0:
        saver.save(STEP, int(state.step), snapshots.parts(state),
                   snapshots.about(loop.Progress(), updates))
    nats = float(metrics.nats) / float(metrics.tokens)
    saver.wait()
    held.append(state)
    return nats

  def saving():
    call = next(calls)
    return run(call < 0 or call % every == 0)

  return {"hklm": lambda: run(False), "saving": saving}
