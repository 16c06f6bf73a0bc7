"""Runs a binary as a user would, from the repository's root."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]


def run(module: str, *flags: str, **environment: str) -> subprocess.CompletedProcess:
  """`python -m module flags` with these environment variables added, as finished process."""
  return subprocess.run([sys.executable, "-m", module, *flags], cwd=ROOT, text=True,
                        env={**os.environ, **environment}, capture_output=True,
                        stdin=subprocess.DEVNULL, encoding="utf-8", timeout=300)
