"""The page on PyTorch says what happens: its blocks, one after the other."""

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")


@absltest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class PageTest(absltest.TestCase):

  def test_blocks_print_what_stands_below_them(self):
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", PAGE,
                        re.MULTILINE | re.DOTALL)
    self.assertEqual([language for language, *_ in blocks],
                     ["python", "sh", "python", "sh", "sh", "python", "python"])
    names = {"__name__": "__main__"}
    with contextlib.chdir(self.enter_context(tempfile.TemporaryDirectory())):
      for language, code, expected in blocks:
        printed = (self.python(code, names) if language == "python" else
                   self.command(code.replace(".venv/bin/python", sys.executable)))
        if expected:
          self.assertEqual(printed, expected)

  def python(self, code, names):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
      exec(compile(code, "pytorch.md", "exec"), names)
    return printed.getvalue()

  def command(self, line):
    done = subprocess.run(["bash", "-c", line], env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True)
    self.assertEqual(done.returncode, 0, f"{line}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
  absltest.main()
