"""The progress of a run: a bar on a terminal, plain lines elsewhere."""

import io
import os
import sys
import unittest.mock

from absl.testing import absltest

from hklm.training import logs


class _Terminal(io.StringIO):

  def isatty(self):
    return True


def shown(stream, steps=(20, 40)):
  """What two updates of 2,000 tokens each write to standard error."""
  with unittest.mock.patch.object(sys, "stderr", stream), \
      unittest.mock.patch.dict(os.environ, COLUMNS="80", LINES="24"):
    progress = logs.Progress(0, 40, "char")
    for step in steps:
      progress.update(step, 1.5, 2.1640, 2000)
    progress.close()
  return stream.getvalue()


class ProgressTest(absltest.TestCase):

  def test_a_bar_fits_80_columns(self):
    last = [line for line in shown(_Terminal()).split("\r") if "100%" in line][-1]
    self.assertRegex(last, r"^100%  00:00 left, loss 1\.5000 nats/char  2\.164 bits/char  "
                           r"[0-9,]+ chars/s\s*$")

  def test_plain_lines_without_a_terminal(self):
    line, = shown(io.StringIO()).splitlines()  # the first update comes too soon to be worth a line
    self.assertRegex(line, r"^update 40/40  loss 1\.5000 nats/char  2\.164 bits/char  "
                           r"[0-9,]+ chars/s  0 s left$")


if __name__ == "__main__":
  absltest.main()
