"""Damages to the newest checkpoint of a folder; each returns what it damaged, by name."""

import os
import random
import shutil

from tests import endings


def truncated(folder: str, draw: random.Random) -> list[str]:
  """A file of it ends too early."""
  name, path = _file(folder, draw)
  os.truncate(path, draw.randrange(os.path.getsize(path)))
  return [name]


def flipped(folder: str, draw: random.Random) -> list[str]:
  """A byte of it has other bits."""
  name, path = _file(folder, draw)
  with open(path, "r+b") as file:
    place = draw.randrange(os.path.getsize(path))
    file.seek(place)
    byte = file.read(1)[0]
    file.seek(place)
    file.write(bytes([byte ^ draw.randrange(1, 256)]))
  return [name]


def missing(folder: str, draw: random.Random) -> list[str]:
  """A file of it is gone."""
  name, path = _file(folder, draw)
  os.remove(path)
  return [name]


def empty(folder: str, draw: random.Random) -> list[str]:
  """A folder with a higher number, without anything in it."""
  name = f"step-{_newest(folder) + draw.randrange(1, 50)}"
  os.mkdir(os.path.join(folder, name))
  return [name]


def stale(folder: str, draw: random.Random) -> list[str]:
  """What a process that was killed while saving leaves: it is no checkpoint, so none is damaged."""
  newest = _newest(folder)
  path = os.path.join(folder, f".unfinished-step-{newest + draw.randrange(1, 5)}")
  shutil.copytree(os.path.join(folder, f"step-{newest}"), path)
  os.remove(os.path.join(path, "manifest.json"))
  return []


KINDS = {"truncated": truncated, "flipped": flipped, "missing": missing, "empty": empty,
         "stale": stale}


def _newest(folder):
  return endings.steps(os.path.dirname(folder), "step")[-1]


def _file(folder, draw):
  """The name of the newest checkpoint, and a file of it."""
  name = f"step-{_newest(folder)}"
  paths = sorted(os.path.join(root, file)
                 for root, _, files in os.walk(os.path.join(folder, name)) for file in files)
  return name, draw.choice(paths)
