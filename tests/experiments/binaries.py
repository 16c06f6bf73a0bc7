"""Runs a binary as a user would, or its `main` in this process, which is faster."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

from absl.testing import flagsaver

from experiments import cli

ROOT = pathlib.Path(__file__).parents[2]


class Done(NamedTuple):
  """A finished program."""

  status: int
  stdout: str
  stderr: str


def child(module: str, *flags: str, cwd=ROOT, stdin: str = "", **environment: str) -> Done:
  """`python -m experiments.module flags`, with these environment variables added."""
  done = subprocess.run(
      [sys.executable, "-m", f"experiments.{module}", *flags], cwd=cwd, input=stdin.encode(),
      capture_output=True, timeout=300, check=False,
      env={**os.environ, "PYTHONPATH": str(ROOT), **environment})
  return Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


@flagsaver.flagsaver
def here(module, *flags: str) -> Done:
  """The same in this process, without the start of a new one. `--debug` raises."""
  status = 0
  with (contextlib.redirect_stdout(io.StringIO()) as stdout,
        contextlib.redirect_stderr(io.StringIO()) as stderr):
    try:
      cli._parse_flags([module.__name__, *flags], module.NAMES)
      cli._guarded(module.main)
    except SystemExit as exit_:
      status = exit_.code
  return Done(status, stdout.getvalue(), stderr.getvalue())
