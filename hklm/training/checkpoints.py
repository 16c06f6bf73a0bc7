"""Parameters on disk, through orbax."""

import os
import shutil

import jax
import orbax.checkpoint as ocp

from hklm.errors import InputError


def save(path: str, params):
  """Writes parameters to the folder `path`, in place of what it held; done when it returns.

  What it held stays until the new parameters are whole: orbax itself would delete it first.

  Raises:
    InputError: they cannot be written, as on a full disk.
  """
  path = os.path.abspath(path)
  new, old, unfinished = path + ".new", path + ".old", path + ".new.orbax-checkpoint-tmp"
  try:
    with ocp.StandardCheckpointer() as checkpointer:
      checkpointer.save(new, params, force=True)
    shutil.rmtree(old, ignore_errors=True)
    if os.path.isdir(path):
      os.rename(path, old)
    os.rename(new, path)
  except Exception as error:  # whatever the part of orbax that met the trouble raises
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    raise InputError(f"{path}: cannot be saved ({reason:.200}); needed: room to write below "
                     "--run_dir") from error
  finally:
    for folder in (new, old, unfinished):
      shutil.rmtree(folder, ignore_errors=True)


def restore(path: str, target):
  """The parameters in the folder `path`, with the structure, shapes and dtypes of `target`.

  Args:
    path: what `save` wrote.
    target: a pytree of arrays or `jax.ShapeDtypeStruct`.

  Raises:
    InputError: nothing there, something damaged, another structure, another shape or dtype (each
      named).
  """
  path = os.path.abspath(path)
  if not os.path.isdir(path):
    raise InputError(f"{path}: no checkpoint; needed: a folder that train wrote")
  with ocp.StandardCheckpointer() as checkpointer:
    try:
      _compare(path, checkpointer.metadata(path).item_metadata.tree, target)
      return checkpointer.restore(path, target)
    except InputError:
      raise
    except Exception as error:  # damage shows as whatever the part of orbax that met it raises
      reason = " ".join(f"{type(error).__name__}: {error}".split())
      raise InputError(f"{path}: not a readable checkpoint ({reason:.200}); needed: a folder that "
                       "train wrote") from error


def _compare(path, found, target):
  found, target = (
      {jax.tree_util.keystr(key): (tuple(leaf.shape), str(leaf.dtype))
       for key, leaf in jax.tree_util.tree_leaves_with_path(tree)} for tree in (found, target))
  for name in sorted(set(found) | set(target)):
    if found.get(name) != target.get(name):
      raise InputError(f"{path}: parameter {name}: found {found.get(name, 'nothing')}, needed "
                       f"{target.get(name, 'nothing')}; config.json and checkpoint disagree")
