"""Saves while training goes on: the arrays are copied at once, a thread writes the copies."""

import contextlib
import os
import threading
from collections.abc import Mapping

import jax
import numpy as np

from hklm.errors import InputError
from hklm.training import checkpoints

STEP, BEST = "step", "best"  # the kinds of checkpoints: of the newest states, of the best model


class Saver:
  """Writes the checkpoints of a run, one after the other, in the order of the calls.

  Newest and best are kept apart: the last `keep` of `step`, and of `best` the newest and each that
  one of those names as its `best_step`, since that is where training would go on from.

  A failure is raised by the next call, and by `wait` at the latest.
  """

  def __init__(self, folder: str, keep: int, writes: bool = True):
    """Removes what a process that was killed had left unfinished.

    Args:
      folder: where checkpoints are.
      keep: how many `step` checkpoints are kept, 1 or more.
      writes: whether this is the process that writes; another one only looks at the arrays, so that
        it fails where that one does.
    """
    self._folder, self._keep, self._writes = folder, keep, writes
    self._thread: threading.Thread | None = None
    self._failure: Exception | None = None
    if writes:
      checkpoints.sweep(folder)

  def save(self, name: str, step: int, parts: Mapping, about: Mapping):
    """Copies the arrays, and returns while they are being written.

    Args:
      name: `step` or `best`.
      step: the update after which they were.
      parts: pytrees of arrays, by name; they may be donated afterwards.
      about: JSON values for the manifest.

    Raises:
      InputError: an earlier saving has failed; an array is not finite (named).
    """
    copies = jax.tree.map(lambda leaf: np.array(leaf, copy=True), dict(parts))
    for part, tree in copies.items():
      check_finite(tree, f"{name}-{step}/{part}")
    if not self._writes:
      return
    self.wait()
    self._thread = threading.Thread(target=self._write, args=(name, step, copies, about))
    self._thread.start()

  def check(self):
    """Raises what a saving that is over has failed with."""
    if self._failure:
      raise self._failure

  def wait(self):
    """Returns when all is on the disk.

    Raises:
      InputError: it could not be written.
    """
    if self._thread:
      self._thread.join()
      self._thread = None
    self.check()

  def _write(self, name, step, parts, about):
    try:
      checkpoints.write(self._folder, name, step, parts, about)
      self._tidy()
    except Exception as error:  # to be raised where somebody is listening
      self._failure = error

  def _tidy(self):
    steps = checkpoints.named(self._folder, STEP)
    for path in steps[self._keep:]:
      checkpoints.remove(path)
    named = set()
    for path in steps[:self._keep]:
      with contextlib.suppress(InputError):  # damaged since: it names nothing any more
        named.add(f"{BEST}-{checkpoints.manifest(path).get('best_step')}")
    for path in checkpoints.named(self._folder, BEST)[1:]:
      if os.path.basename(path) not in named:
        checkpoints.remove(path)


def check_finite(tree, name: str):
  """Refuses arrays that are not finite.

  Args:
    tree: a pytree of arrays.
    name: what it is called in the message.

  Raises:
    InputError: names the first.

  >>> check_finite({"w": np.array([1.0, np.nan])}, "params")
  Traceback (most recent call last):
  hklm.errors.InputError: params: array ['w'] is not finite; the run has diverged: lower \
--learning_rate or --clip
  """
  for key, leaf in jax.tree_util.tree_leaves_with_path(tree):
    if jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact) and not jax.numpy.isfinite(leaf).all():
      raise InputError(f"{name}: array {jax.tree_util.keystr(key)} is not finite; the run has "
                       "diverged: lower --learning_rate or --clip")
