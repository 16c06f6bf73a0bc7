"""README says only what runs: its Python examples, with what they print, and its commands."""

import contextlib
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
START = ".venv/bin/python -m experiments."


def _blocks(language: str) -> list[str]:
  return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


class ReadmeTest(absltest.TestCase):

  def test_python_examples_print_what_stands_below_them(self):
    self.check_examples(README, at_least=3)

  def test_examples_of_the_page_on_purity(self):
    self.check_examples((ROOT / "docs" / "purity.md").read_text(encoding="utf-8"), at_least=3)

  def test_the_example_of_the_page_on_export(self):  # its program: tests/interop/stablehlo_test.py
    self.check_examples((ROOT / "docs" / "export.md").read_text(encoding="utf-8"), at_least=1)

  def check_examples(self, page: str, at_least: int):
    pairs = re.findall(r"^```python\n((?:(?!```).)*)^```\n\n```\n(.*?)^```$", page,
                       re.MULTILINE | re.DOTALL)
    self.assertGreaterEqual(len(pairs), at_least)
    names = {"__name__": "__main__"}
    with contextlib.chdir(self.enter_context(tempfile.TemporaryDirectory())):
      for code, expected in pairs:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
          exec(compile(code, "README.md", "exec"), names)
        self.assertEqual(printed.getvalue(), expected)

  def test_the_cell_of_ones_own_is_the_file(self):
    code = (ROOT / "experiments" / "own_cell.py").read_text(encoding="utf-8")
    self.assertIn(code[code.index("class MinimalGatedUnit"):], "".join(_blocks("python")))

  def test_commands_run(self):
    """Every command of a program, in order, the training ones cut to a few updates."""
    lines = [line for block in _blocks("sh") for line in block.splitlines() if START in line]
    self.assertGreaterEqual(len(lines), 5)
    place = self.enter_context(tempfile.TemporaryDirectory())
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for line in lines:
      command = line.split(" && ")[-1].replace(".venv/bin/python", shlex.quote(sys.executable))
      if "experiments.train" in line:
        command += " --steps=5 --hidden_size=16"
      done = subprocess.run(["bash", "-c", command], cwd=place, env=environment,
                            capture_output=True, text=True)
      self.assertEqual(done.returncode, 0, f"{line}\n{done.stderr}")
      self.assertNotEmpty(done.stdout.strip())


if __name__ == "__main__":
  absltest.main()
