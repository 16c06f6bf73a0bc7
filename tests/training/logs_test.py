"""What a run says: a bar on a terminal, plain lines elsewhere, rows in a file."""

import contextlib
import io
import json
import math
import os
import pathlib
import resource
import sys
import tempfile
import unittest.mock

from absl.testing import absltest

from hklm.errors import InputError
from hklm.training import logs


def limit_files_to(size):
  """Writing more to a file of this process fails, as on a full disk."""
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


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


class RowsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = os.path.join(self.folder, "rows")
    logs.keep_rows(self.path, 0)
    for step in (1, 2, 2, 3):
      logs.append_jsonl(self.path, step=step, nats=0.5 * step, nothing=math.nan)

  def rows(self):
    return [json.loads(line) for line in pathlib.Path(self.path).read_text().splitlines()]

  def test_rows_up_to_an_update_are_kept(self):
    self.assertEqual([row["step"] for row in self.rows()], [1, 2, 2, 3])
    self.assertEqual(self.rows()[1], {"step": 2, "nats": 1.0, "nothing": None})
    logs.keep_rows(self.path, 2)
    self.assertEqual([row["step"] for row in self.rows()], [1, 2, 2])

  def test_what_is_not_a_row_goes_alone_and_is_counted(self):
    lines = pathlib.Path(self.path).read_bytes().splitlines(keepends=True)
    wrong = [b"[1]\n", b"{\n", b'{"nats": 1}\n', b'{"step": "2"}\n', b"\xff\x00\n",
             b"[" * 100_000 + b"\n", b'{"step": 2, "seconds": null}\n']
    pathlib.Path(self.path).write_bytes(
        b"".join(lines[:1] + wrong + lines[1:]) + b'{"step": 3, "na')
    with contextlib.redirect_stderr(io.StringIO()) as said:
      logs.keep_rows(self.path, 3)
    self.assertEqual(pathlib.Path(self.path).read_bytes(), b"".join(lines))
    self.assertIn(f"{self.path}: 7 lines are not rows of a run; they are left out",
                  said.getvalue())

  def test_what_json_has_no_number_for(self):
    row = logs.append_jsonl(self.path, step=4, nats=math.inf, more=-math.inf, less=1)
    self.assertEqual(row, {"step": 4, "nats": None, "more": None, "less": 1})
    self.assertEqual(self.rows()[-1], row)

  def test_a_full_disk_is_named_and_what_was_there_stays(self):
    self.addCleanup(limit_files_to, resource.RLIM_INFINITY)
    before = self.rows()
    limit_files_to(os.path.getsize(self.path) + 5)
    with self.assertRaisesRegex(InputError, f"{self.path}: cannot be written .File too large.; "
                                            "needed: .* --resume"):
      logs.append_jsonl(self.path, step=4)
    limit_files_to(50)
    with self.assertRaisesRegex(InputError, f"{self.path}: cannot be written .File too large."):
      logs.keep_rows(self.path, 3)
    limit_files_to(resource.RLIM_INFINITY)
    self.assertEqual(os.listdir(self.folder), ["rows"])
    logs.keep_rows(self.path, 3)  # the half of a row is none
    self.assertEqual(self.rows(), before)

  def test_what_was_removed_is_not_made_again(self):
    os.remove(self.path)
    with self.assertRaisesRegex(InputError, "cannot be written .No such file"):
      logs.append_jsonl(self.path, step=4)
    self.assertFalse(os.path.exists(self.path))


if __name__ == "__main__":
  absltest.main()
