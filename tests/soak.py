"""A run that is killed again and again, or whose newest checkpoint is damaged, ends as if unbroken.

`python -m tests.soak --kills=20 --seed=0` trains a small model in child processes: once unbroken;
then killed by SIGTERM or SIGKILL at random moments of its life and resumed, until all kills are
made; then stopped, its newest checkpoint damaged in each of five ways, and resumed. It prints a
table, and exits with status 1 if a run ends with another array, row or result than the unbroken.
"""

import concurrent.futures
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from typing import NamedTuple

from absl import app, flags, logging

from tests import damage, endings
from tests.experiments import children
from tests.training import texts

STEPS = 66
SETTINGS = (
    "--hidden_size=8", "--embedding_size=4", "--batch_size=4", "--bptt=10", "--dropout=0.2",
    "--warmup=15", "--accumulate=2", "--average=exponential", "--average_decay=0.5",
    "--schedule=plateau", "--decay_rate=0.95", "--learning_rate=1.3", "--eval_every=9",
    "--checkpoint_every=4", f"--steps={STEPS}")


class Outcome(NamedTuple):
  """What became of one process.

  Attributes:
    run: the name of its run.
    what: what happened to it.
    status: its exit status.
    said: the last line of its log.
    wrong: what should have been otherwise; nothing is wrong where it is empty.
  """

  run: str
  what: str
  status: int
  said: str
  wrong: list[str]


class Soak:
  """The runs of one soak, in a folder of their own; each method gives the outcomes it saw."""

  def __init__(self, folder: str, seed: int):
    """Writes the text; `unbroken` is to be called first.

    Args:
      folder: empty; whoever made it removes it.
      seed: of the moments, signals and damages.
    """
    self._folder, self._draw = folder, random.Random(seed)
    self._settings = (f"--corpus={texts.write(folder, 'text', texts.sentences(1500))}", *SETTINGS)
    self._result, self._seconds = "", 0.0

  def unbroken(self) -> list[Outcome]:
    """The run that all others are compared with, and that says how long a process may live."""
    started = time.monotonic()
    with self._train("unbroken") as child:
      child.wait_until(lambda: endings.rows(self._path("unbroken")))
      self._seconds = time.monotonic() - started  # until updates are made
      status = child.end()
      self._result = child.stdout
      wrong = [] if status == 0 and self._result else ["this run should end well"]
      if endings.steps(self._path("unbroken"), "best")[-1] == STEPS:
        wrong.append("the last model is the best: the two checkpoints prove no more than one")
      return [_outcome("unbroken", "to its end", child, wrong)]

  def killed(self, kills: int) -> list[Outcome]:
    """Runs that are killed so many times in all, each resumed until it is complete."""
    outcomes, made, number, done = [], 0, 0, False
    while not done:
      run = f"killed {number}"
      with self._train(run, "--resume") as child:
        before = endings.steps(self._path(run), "step")
        what, least = self._kill(child, run) if made < kills else ("to its end", 0)
        status = child.end()
        wrong = _wrong_start(child, before)
        if status == 0:
          wrong += self._differences(run, child)
          number, done = number + 1, made == kills
        else:
          made += 1
          wrong += _wrong_end(child, status, self._path(run)) + _lost(self._path(run), least)
        outcomes.append(_outcome(run, what, child, wrong))
        done = done or status not in (0, 143, -signal.SIGTERM, -signal.SIGKILL)
    return outcomes

  def damaged(self) -> list[Outcome]:
    """A run that was stopped, then resumed with each damage to its newest checkpoint."""
    with self._train("stopped") as child:
      child.wait_until(lambda: len(endings.steps(self._path("stopped"), "step")) > 1)
      child.send(signal.SIGTERM)
      wrong = _wrong_end(child, child.end(), self._path("stopped"))
      outcomes = [_outcome("stopped", "SIGTERM", child, wrong)]
    damages = [(name, self._damage(name, act)) for name, act in damage.KINDS.items()]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
      return outcomes + list(pool.map(self._resume_damaged, damages))

  def _damage(self, name, act):
    path = shutil.copytree(self._path("stopped"), self._path(name))
    return act(os.path.join(path, "checkpoints"), self._draw)

  def _resume_damaged(self, name_and_damaged):
    name, damaged = name_and_damaged
    with self._train(name, "--resume") as child:
      child.end()
      wrong = self._differences(name, child)
      skipped = re.findall(r"^skipped: \S*/checkpoints/([^/:]+):", child.stderr, re.MULTILINE)
      if skipped != damaged:
        wrong.append(f"skipped {skipped}, not {damaged}")
      if _unfinished(self._path(name)):
        wrong.append("something unfinished is left")
      return _outcome(name, "resumed", child, wrong)

  def _kill(self, child, run):
    """Waits for a random moment and kills; what was done, and the newest checkpoint by then."""
    path = self._path(run)
    number = self._draw.choice((signal.SIGTERM, signal.SIGKILL))
    moment = self._draw.choice(("start", "update", "update", "saving"))
    if moment == "start":  # or compilation
      until = time.monotonic() + self._draw.uniform(0, self._seconds)
      child.wait_until(lambda: time.monotonic() >= until)
    else:
      row = self._draw.randint(min(_last_row(path), STEPS - 1), STEPS - 1)
      child.wait_until(lambda: _last_row(path) > row)  # a row of this process
      if moment == "saving":
        child.wait_until(lambda: _unfinished(path))
      else:
        until = time.monotonic() + self._draw.uniform(0, 0.2)
        child.wait_until(lambda: time.monotonic() >= until)
    least = max(endings.steps(path, "step"), default=0)
    child.send(number)
    return f"{signal.Signals(number).name} ({moment})", least

  def _differences(self, run, child):
    wrong = endings.differences(self._path(run), self._path("unbroken"))
    if child.stdout != self._result:
      wrong.append(f"printed {child.stdout.splitlines()[-1:]}")
    return wrong

  def _train(self, run, *more):
    return children.Child("train", f"--run_dir={self._path(run)}", *self._settings, *more)

  def _path(self, run):
    return os.path.join(self._folder, run)


def _last_row(path):
  return max((row["step"] for row in endings.rows(path)), default=0)


def _unfinished(path):
  folder = os.path.join(path, "checkpoints")
  return os.path.isdir(folder) and any(name.startswith(".unf") for name in os.listdir(folder))


def _wrong_start(child, before):
  """It says where it went on from, the newest checkpoint, if it has come so far."""
  said = re.search(r"resumed after update (\d+) of|(is already complete)|the run begins at "
                   "update 0", child.stderr)
  if not said:
    return ["it did not say where it goes on from"] if child.end() == 0 else []
  begun = STEPS if said[2] else int(said[1] or 0)
  expected = before[-1] if before else 0
  return [] if begun == expected else [f"it went on from {begun}, though {expected} was saved"]


def _wrong_end(child, status, path):
  """SIGTERM has a status and a line of its own as soon as it is heard; nothing else is printed."""
  number, = child.sent
  heard = number == signal.SIGTERM and "device: " in child.stderr
  expected = 128 + number if heard else -number
  wrong = [] if status == expected else [f"status {status}, not {expected}"]
  last = child.stderr.splitlines()[-1:]
  stopped = last and re.match(r"stopped after update (\d+) of", last[0])
  if stopped and int(stopped[1]) != endings.steps(path, "step")[-1]:
    wrong.append("the update it stopped after is not saved")
  if status == 143 and not stopped and last != ["SIGTERM: ended at once"]:
    wrong.append(f"its last line is {last}")
  if re.search("Traceback|error", child.stderr):
    wrong.append(child.stderr)
  return wrong


def _lost(path, least):
  """A checkpoint that was there when the process was killed must be there still."""
  newest = max(endings.steps(path, "step"), default=0)
  return [] if newest >= least else [f"{newest} is the newest checkpoint; {least} was there"]


def _outcome(run, what, child, wrong):
  said = child.stderr.strip().splitlines()
  return Outcome(run, what, child.end(), said[-1] if said else "", wrong)


def soak(kills: int, seed: int) -> list[Outcome]:
  """All of it, in a folder that is gone afterwards.

  Args:
    kills: how often a run is killed.
    seed: of the moments, signals and damages.
  """
  with tempfile.TemporaryDirectory() as folder:
    runs = Soak(folder, seed)
    return runs.unbroken() + runs.killed(kills) + runs.damaged()


def main(unused_argv):
  """Prints the table."""
  logging.set_verbosity(logging.ERROR)  # orbax tells a lot
  outcomes = soak(_KILLS.value, _SEED.value)
  for run, what, status, said, wrong in outcomes:
    print(f"{run:12} {what:18} status {status:4}  {said[:60]:60}  {'WRONG' if wrong else 'right'}")
    for line in wrong:
      print(f"  {line}")
  sys.exit(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
  _KILLS = flags.DEFINE_integer("kills", 20, "How often a run is killed.", lower_bound=0)
  _SEED = flags.DEFINE_integer("seed", 0, "Of the moments, signals and damages.")
  app.run(main)
