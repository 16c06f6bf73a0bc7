"""What a run says: a progress bar or plain lines on standard error, and metrics.jsonl."""

import contextlib
import json
import math
import os
import sys
import time

from tqdm import tqdm

from hklm import files
from hklm.errors import InputError
from hklm.training import processes

PLAIN_SECONDS = 5.0  # between plain lines, where standard error is not a terminal
# The fields of a row that differ when the same run is made again.
TIMES = ("seconds", "tokens_per_second", "memory_bytes")


def say(message: str):
  """One line on standard error, without tearing a progress bar; of several processes, the first's.
  """
  if not processes.is_first():
    return
  with contextlib.suppress(BrokenPipeError):
    tqdm.write(message, file=sys.stderr)
    sys.stderr.flush()


class Progress:
  """Loss, bits per token, tokens per second and time left: a bar, or lines when piped."""

  def __init__(self, done: int, steps: int, unit: str):
    """Starts the clock.

    Args:
      done: updates made before.
      steps: updates in all.
      unit: what a token is called: `char`, `byte`, `word` or `token`.
    """
    self._done, self._steps, self._unit = done, steps, unit
    self._start = self._said = time.monotonic()
    self._tokens = 0
    shown = sys.stderr.isatty() and processes.is_first()
    self._bar = tqdm(total=steps, initial=done, file=sys.stderr, disable=not shown,
                     dynamic_ncols=True,
                     bar_format="{percentage:3.0f}%  {remaining} left{postfix}")

  def update(self, step: int, nats_per_token: float, bits_per_token: float, tokens: int,
             skipped: int = 0):
    """Shows the state after update `step`, with `tokens` more tokens read.

    Args:
      step: updates made.
      nats_per_token: of the last ones.
      bits_per_token: the same.
      tokens: how many they read.
      skipped: updates that were left out so far.
    """
    self._tokens += tokens
    now = time.monotonic()
    rate = self._tokens / (now - self._start)
    text = (f"loss {nats_per_token:.4f} nats/{self._unit}  {bits_per_token:.3f} "
            f"bits/{self._unit}  {rate:,.0f} {self._unit}s/s")
    if skipped:
      text += f"  {skipped:,} updates skipped"
    if not self._bar.disable:
      self._bar.set_postfix_str(text, refresh=False)
      self._bar.update(step - self._bar.n)
    elif now - self._said >= PLAIN_SECONDS or step == self._steps:
      self._said = now
      left = (now - self._start) / (step - self._done) * (self._steps - step)
      say(f"update {step}/{self._steps}  {text}  {left:.0f} s left")

  def close(self):
    """Ends the bar."""
    self._bar.close()


def append_jsonl(path: str, **values: float) -> dict:
  """Appends one JSON object as a line, and hands it to the operating system.

  JSON has no NaN and no infinity: the mean over nothing is null, and so is an endless perplexity.

  Args:
    path: a file that is there; opened each time, so that it is missed soon if it is removed.
    **values: of the object.

  Returns:
    The object, None for what is not finite.

  Raises:
    InputError: it is gone or cannot be written, as on a full disk.
  """
  values = {name: value if math.isfinite(value) else None for name, value in values.items()}
  with _written(path), open(path, "r+", encoding="utf-8") as file:  # "a" would make another
    file.seek(0, os.SEEK_END)
    file.write(json.dumps(values) + "\n")
  return values


def rows(path: str) -> list[dict]:
  """The rows of a file of JSON lines, each with its `step`; what is none is left out.

  Args:
    path: the file; if it is not there, it has no rows.
  """
  return [row for _, row in _parsed(path) if row]


def _parsed(path):
  """Each whole line, and the row that it is, or None."""
  if not os.path.exists(path):
    return
  with open(path, "rb") as file:
    for line in file:
      if not line.endswith(b"\n"):
        return
      try:
        row = json.loads(line)
        is_row = type(row["step"]) is int and all(
            math.isfinite(value) for name, value in row.items()
            if value is not None or name in TIMES)
      except (ValueError, TypeError, KeyError, RecursionError):
        is_row = False
      yield line, row if is_row else None


def keep_rows(path: str, step: int):
  """Cuts a file of JSON lines to the rows up to an update, whole or not at all.

  What comes after, and a last line that was not written to its end, is as if it had never been;
  what else is not a row goes too, and is counted on standard error.

  Args:
    path: the file; made if it is not there.
    step: the last update whose rows stay.

  Raises:
    InputError: it cannot be written, as on a full disk.
  """
  found = list(_parsed(path))
  damaged = sum(row is None for _, row in found)
  if damaged:
    say(f"{path}: {damaged:,} lines are not rows of a run; they are left out")
  kept = [line for line, row in found if row and row["step"] <= step]
  with _written(path), files.whole(path) as file:
    file.writelines(kept)


@contextlib.contextmanager
def _written(path):
  try:
    yield
  except OSError as error:
    raise InputError(f"{path}: cannot be written ({error.strerror}); needed: the run directory, "
                     "and room to write in it; --resume then goes on from the newest checkpoint"
                     ) from error
