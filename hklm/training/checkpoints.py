"""Arrays on disk: written whole or not at all, and verified before they are used.

A checkpoint is a folder `NAME-UPDATE` with a folder for each of its parts, which orbax writes and
reads, and `manifest.json`, which says how large each file is and what its SHA-256 is. It is made
beside its place and renamed when it is whole; an older one goes only after that.
"""

import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from hklm.errors import InputError

MANIFEST = "manifest.json"
PIECE = 2**22  # bytes of a file of a lean checkpoint
_UNFINISHED = ".unfinished-"


def write(folder: str, name: str, step_: int, parts: Mapping, about: Mapping,
          lean: bool = False) -> str:
  """Writes a checkpoint; when it returns, all of it is on the disk.

  Args:
    folder: where checkpoints are; made if it is not there, but not what it is in.
    name: what kind it is, such as `step` or `best`.
    step_: the update after which it was.
    parts: pytrees of arrays, by the names of their folders.
    about: JSON values for the manifest.
    lean: whether memory is dearer than files: each few MB of an array become a file, and beside a
      copy of the arrays little memory is taken; else as much again.

  Returns:
    The folder `NAME-UPDATE`, absolute.

  Raises:
    InputError: it cannot be written, as on a full disk. What was there before is still there.
  """
  folder = os.path.abspath(folder)  # orbax says yes to a relative path, and fails later
  path = os.path.join(folder, f"{name}-{step_}")
  new = os.path.join(folder, f"{_UNFINISHED}{name}-{step_}")
  try:
    if not os.path.isdir(folder):
      os.mkdir(folder)
    shutil.rmtree(new, ignore_errors=True)
    with _orbax(packed=not lean) as checkpointer:
      for part, tree in parts.items():
        pieces = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=PIECE), tree) if lean else None
        checkpointer.save(os.path.join(new, part), args=ocp.args.StandardSave(tree, pieces))
    manifest = dict(about) | {"step": step_, "files": dict(_described(new))}
    manifest["sha256"] = _digest_of_json(manifest)
    with open(os.path.join(new, MANIFEST), "w", encoding="utf-8") as file:
      json.dump(manifest, file, indent=1)
    for place in (os.path.join(new, MANIFEST), new):
      _flush(place)
    shutil.rmtree(path, ignore_errors=True)  # a damaged one; updates are numbered but once
    os.rename(new, path)
    _flush(folder)
  except Exception as error:  # whatever the part of orbax that met the trouble raises
    shutil.rmtree(new, ignore_errors=True)
    raise InputError(f"{path}: cannot be saved ({_reason(error)}); needed: the run directory, and "
                     "room to write in it") from error
  return path


def verify(path: str, run: str | None = None) -> dict:
  """The manifest of a checkpoint, every file of which is as it was written.

  Args:
    path: the folder `NAME-UPDATE`.
    run: the identity of the run that it must be of; None: any.

  Raises:
    InputError: nothing there, no readable manifest, a file that is missing or has changed (named);
      it is of another run.
  """
  found = manifest(path)
  if run not in (None, found.get("run")):
    raise _unfit(path, "another run's, or config.json has changed since")
  for name, described in found["files"].items():
    file = os.path.join(path, name)
    try:
      if os.path.getsize(file) != described["bytes"]:
        raise _unfit(path, f"{name} has {os.path.getsize(file)} bytes, not {described['bytes']}")
      if _digest(file) != described["sha256"]:
        raise _unfit(path, f"{name} is not what was written")
    except OSError as error:
      raise _unfit(path, f"{name}: {error.strerror}") from error
  return found


def is_whole(path: str, run: str | None = None) -> bool:
  """Whether `verify` has nothing to say against a checkpoint.

  Args:
    path: the folder `NAME-UPDATE`.
    run: the identity of the run that it must be of; None: any.
  """
  try:
    verify(path, run)
    return True
  except InputError:
    return False


def manifest(path: str) -> dict:
  """What a checkpoint says of itself: `step`, `files`, and what `write` was given; not verified.

  Args:
    path: the folder `NAME-UPDATE`.

  Raises:
    InputError: nothing there, or no manifest of it that can be read.
  """
  if not os.path.isdir(path):
    raise _unfit(path, "no checkpoint")
  try:
    with open(os.path.join(path, MANIFEST), encoding="utf-8") as file:
      found = json.load(file)
    # What is not of this form is refused here.
    files = {str(name): {"bytes": int(its["bytes"]), "sha256": str(its["sha256"])}
             for name, its in found["files"].items()}
    its_step = int(found["step"])
    if found.pop("sha256") != _digest_of_json(found):
      raise ValueError("it has changed since it was written")
  except FileNotFoundError as error:
    raise _unfit(path, f"{MANIFEST} is missing") from error
  except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
    raise _unfit(path, f"{MANIFEST} cannot be read ({_reason(error)})") from error
  if step(path) != its_step:
    raise _unfit(path, f"{MANIFEST} is of update {its_step}")
  return found | {"files": files}


def restore(path: str, part: str, target):
  """A part of a checkpoint, with the structure, shapes and dtypes of `target`.

  Args:
    path: the folder `NAME-UPDATE`; see `verify`.
    part: the name of the part.
    target: a pytree of arrays or `jax.ShapeDtypeStruct`.

  Raises:
    InputError: not readable; another structure, another shape or dtype (each named).
  """
  path = os.path.join(os.path.abspath(path), part)
  with _orbax() as checkpointer:
    try:
      _compare(path, checkpointer.metadata(path).item_metadata.tree, target)
      found = checkpointer.restore(path, args=ocp.args.StandardRestore(target))
      return jax.tree.map(jnp.array, found)  # NumPy's, which were saved, become JAX's
    except InputError:
      raise
    except Exception as error:  # damage shows as whatever the part of orbax that met it raises
      raise InputError(f"{path}: not readable ({_reason(error)}); needed: a checkpoint as train "
                       "wrote it") from error


def named(folder: str, name: str) -> list[str]:
  """The folders `NAME-UPDATE` in `folder`, the newest first, whole or not."""
  if not os.path.isdir(folder):
    return []
  found = [entry for entry in os.listdir(folder) if re.fullmatch(rf"{name}-\d+", entry)]
  return [os.path.join(folder, entry) for entry in sorted(found, key=step, reverse=True)]


def newest(folder: str, name: str, run: str | None = None) -> tuple[str | None, dict[str, str]]:
  """The newest checkpoint that is whole, and what is wrong with each newer one.

  Args:
    folder: where checkpoints are.
    name: their kind.
    run: the identity of the run that it must be of; None: any.

  Returns:
    Its folder, or None; a message for the folder of each that cannot be used.
  """
  faults = {}
  for path in named(folder, name):
    try:
      verify(path, run)
      return path, faults
    except InputError as error:
      faults[path] = str(error)
  return None, faults


def set_aside(path: str) -> str:
  """Renames a checkpoint that is damaged, so that it is none any more; returns its new place."""
  folder, name = os.path.split(path)
  for number in itertools.count():
    aside = os.path.join(folder, f"damaged-{number}-{name}")
    if not os.path.lexists(aside):
      os.rename(path, aside)
      return aside


def remove(path: str):
  """Removes a checkpoint, so that half of it is never taken for one."""
  folder, name = os.path.split(path)
  hidden = os.path.join(folder, _UNFINISHED + name)
  shutil.rmtree(hidden, ignore_errors=True)
  os.rename(path, hidden)
  shutil.rmtree(hidden, ignore_errors=True)


def sweep(folder: str):
  """Removes what a process that was killed had not finished writing."""
  for entry in os.listdir(folder) if os.path.isdir(folder) else ():
    if entry.startswith(_UNFINISHED):
      shutil.rmtree(os.path.join(folder, entry), ignore_errors=True)


def _orbax(packed: bool = True) -> ocp.Checkpointer:
  """Not orbax's asynchronous one, nor one for several processes: `saver` decides who waits.

  Every process reads for itself, and one alone writes.
  """
  this = jax.process_index()
  alone = ocp.options.MultiprocessingOptions(primary_host=this, active_processes={this})
  handler = ocp.StandardCheckpointHandler(multiprocessing_options=alone, use_ocdbt=packed)
  return ocp.Checkpointer(handler, multiprocessing_options=alone)


def step(path: str) -> int:
  """The update that the folder `NAME-UPDATE` is named after."""
  return int(path.rpartition("-")[2])


def _described(root: str) -> Iterator[tuple[str, dict]]:
  """Name, and size and SHA-256, of each file below `root`; all of it flushed to the disk."""
  for folder, _, names in sorted(os.walk(root)):
    _flush(folder)
    for name in sorted(names):
      path = os.path.join(folder, name)
      _flush(path)
      yield os.path.relpath(path, root), {"bytes": os.path.getsize(path), "sha256": _digest(path)}


def _flush(path: str):
  """Returns when a file, or what a folder lists, is on the disk."""
  number = os.open(path, os.O_RDONLY)
  try:
    os.fsync(number)
  finally:
    os.close(number)


def _digest_of_json(values) -> str:
  return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _digest(path: str) -> str:
  with open(path, "rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _unfit(path, found) -> InputError:
  return InputError(f"{path}: {found}; needed: a checkpoint as train wrote it")


def _reason(error) -> str:
  """One line; the operating system's own words, where orbax has hidden them in its own."""
  code = re.search(r"os_error_code='(\d+)'", str(error))
  if code:
    return os.strerror(int(code[1]))
  return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _compare(path, found, target):
  found, target = (
      {jax.tree_util.keystr(key): (tuple(leaf.shape), str(leaf.dtype))
       for key, leaf in jax.tree_util.tree_leaves_with_path(tree)} for tree in (found, target))
  for name in sorted(set(found) | set(target)):
    if found.get(name) != target.get(name):
      raise InputError(f"{path}: array {name}: found {found.get(name, 'nothing')}, needed "
                       f"{target.get(name, 'nothing')}; config.json and checkpoint disagree")
