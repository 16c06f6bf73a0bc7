"""A virtual environment with this library and the other checkers, to run the judges in."""

import os
import pathlib
import subprocess
import sys
import venv

from hklm.errors import InputError

ROOT = pathlib.Path(__file__).parents[2]
OLDEST_PYTHON = (3, 12)
CHECKERS = ("mypy-pure==0.2.2", "pure-validator==0.3.0", "pure-function-decorators==0.1.4")


def check_python():
  """Refuses a Python that the other checkers do not run on."""
  if sys.version_info < OLDEST_PYTHON:
    found = ".".join(map(str, sys.version_info[:2]))
    raise InputError(f"found Python {found}; needed: 3.12 or newer, for pure-validator and "
                     "pure-function-decorators")


def create(folder: pathlib.Path) -> pathlib.Path:
  """Makes the environment, or completes the one that is there; returns its Python.

  Args:
    folder: an earlier call's, an empty one, or a name that is still free.
  """
  python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
  if not python.exists():
    if folder.exists() and any(folder.iterdir()):
      raise InputError(f"--env={folder}: found a folder with other things in it; needed: a virtual "
                       "environment, an empty folder or a new name")
    venv.create(folder, with_pip=True)
  _run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-e", str(ROOT),
       *CHECKERS)
  return python


def versions(python: pathlib.Path, packages) -> dict[str, str]:
  """The versions of installed packages, by name."""
  program = "import importlib.metadata, sys; print(*map(importlib.metadata.version, sys.argv[1:]))"
  return dict(zip(packages, _run(python, "-c", program, *packages).split(), strict=True))


def judge(python: pathlib.Path, name: str) -> str:
  """What `experiments.purity.judges` prints for this checker, in a process of its own."""
  return _run(python, "-m", "experiments.purity.judges", name)


def _run(python, *arguments) -> str:
  process = subprocess.run([python, *arguments], cwd=ROOT, text=True, capture_output=True,
                           stdin=subprocess.DEVNULL, encoding="utf-8",
                           env={**os.environ, "JAX_PLATFORMS": "cpu"})
  if process.returncode:
    lines = process.stderr.strip().splitlines() or ["no message"]
    raise InputError(f"`{' '.join(arguments[:3])}` in {python.parents[1]} failed: {lines[-1]}")
  return process.stdout
