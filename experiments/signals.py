"""SIGTERM and SIGINT (Ctrl-C) as a wish that a loop can be asked about."""

import contextlib
import os
import signal
import sys


class Wish:
  """Whether the process was asked to end. Before anybody has asked, a signal ends it at once.

  The first signal is remembered, for a loop that finishes its step and saves; the second ends the
  process where it is.

  Attributes:
    status: the exit status that the signal wants, 128 and its number; 0 for none so far.
  """

  def __init__(self):
    """Takes the two signals over, for good."""
    self.status = 0
    self._asked = False
    for number in (signal.SIGTERM, signal.SIGINT):
      signal.signal(number, self._heard)

  def __call__(self) -> bool:
    """Whether a signal has come."""
    self._asked = True
    return self.status != 0

  def _heard(self, number, unused_frame):
    status = 128 + number
    name = signal.Signals(number).name
    if self._asked and not self.status:
      self.status = status
      _write(f"{name}: finishing this update and saving; once more ends it at once")
      return
    _write(f"{name}: ended at once")
    os._exit(status)


def _write(message):
  # A handler may have come amidst a print: the file's own buffer is not touched.
  with contextlib.suppress(OSError):  # who read it may have been ended by the same signal
    os.write(sys.stderr.fileno(), f"\n{message}\n".encode())
