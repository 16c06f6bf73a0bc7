"""What every binary does alike, seen from outside: in processes of their own."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

from experiments import cli
from hklm.errors import InputError

ROOT = pathlib.Path(__file__).parents[2]
HUGE = "import jax; from experiments import cli; cli.run(lambda: jax.numpy.zeros([2**44]))"


def shell(command, *arguments):
  """Runs a line of shell with `$0` the interpreter and `$1`, ... the arguments."""
  return subprocess.run(["sh", "-c", command, sys.executable, *arguments], cwd=ROOT,
                        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
                        text=True, timeout=300)


class CliTest(absltest.TestCase):

  def test_out_of_memory_is_one_line(self):
    done = shell('"$0" -c "$1"', HUGE)
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr, r"\Aerror: out of memory \(.*\); lower --batch_size, .*\n\Z")

  def test_nothing_from_a_file_reaches_the_terminal_as_a_command(self):
    name = "\x1b]0;title\x07"
    with contextlib.redirect_stderr(io.StringIO()) as stderr, self.assertRaises(SystemExit):
      cli._fail(InputError(f"found tensor {name} é"))
    self.assertEqual(stderr.getvalue(), "error: found tensor \\x1b]0;title\\x07 é\n")

  def test_closed_streams_are_no_error(self):
    for closed in (">&-", "2>&-"):
      done = shell(f'"$0" -m experiments.article.linear_regression {closed}')
      self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
  absltest.main()
