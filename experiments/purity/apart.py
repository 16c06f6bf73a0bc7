"""Runs a judge of one function in a process of its own.

Impure functions change the process they run in, the more so under checkers that stop them halfway.
"""

import json
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NamedTuple

PURE, IMPURE, UNKNOWN, NOT_APPLIED = "pure", "impure", "unknown", "could not be applied"


class Judgement(NamedTuple):
  """What a checker says of a function, and why, in its words."""

  verdict: str
  why: str = ""


def not_applied(error: BaseException) -> Judgement:
  """The judgement where a checker fails with an error that is not its verdict."""
  words = " ".join(str(error).split())
  return Judgement(NOT_APPLIED, f"{type(error).__name__}: {words}"[:200])


def judge_apart(judge: Callable, example, seconds: float = 120) -> Judgement:
  """`judge(example)` in a child process: in an empty folder, with numbers on standard input.

  What the function writes goes nowhere. JAX must not have been started in this process, since its
  threads would not survive in the child.

  Args:
    judge: example -> Judgement. An exception counts as not applied.
    example: of the catalogue.
    seconds: after which it is stopped; this counts as not applied.
  """
  reader, writer = os.pipe()
  with tempfile.TemporaryDirectory() as folder:
    child = os.fork()
    if child == 0:
      os.close(reader)
      _answer(judge, example, writer, folder)
    os.close(writer)
    answer = b""
    while select.select([reader], [], [], seconds)[0]:
      part = os.read(reader, 65536)
      if not part:
        break
      answer += part
    else:
      os.kill(child, signal.SIGKILL)
    os.close(reader)
    status = os.waitpid(child, 0)[1]
  try:
    return Judgement(*json.loads(answer))
  except ValueError:
    return Judgement(NOT_APPLIED, f"the process ended with status {status} or took too long")


def _answer(judge, example, writer, folder):
  """The child's life; never returns."""
  try:
    there = os.path.join(folder, "working_directory")
    os.mkdir(there)
    os.chdir(there)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    typed = os.path.join(folder, "typed")
    with open(typed, "w", encoding="utf-8") as lines:
      lines.write("1\n" * 10_000)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(os.open(typed, os.O_RDONLY), 0)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    judgement = judge(example)
  except BaseException as error:
    traceback.print_exc()
    judgement = not_applied(error)
  try:
    os.write(writer, json.dumps(judgement).encode())
  finally:
    os._exit(0)
