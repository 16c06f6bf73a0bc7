"""What `import hklm` costs, and what it leaves alone."""

import json
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parents[1]
LATER = ("orbax", "tokenizers", "matplotlib", "torch", "tensorboardX", "safetensors", "tqdm")


def output(code: str):
  """What a new process, running `code`, prints as JSON."""
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
                        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300, check=True)
  return json.loads(done.stdout)


class ImportTest(absltest.TestCase):

  def test_it_pulls_in_nothing_slow_and_defines_no_flag(self):
    found = output(
        "import json, sys, haiku, optax, chex\n"
        "from absl import flags\n"
        "before = set(flags.FLAGS)\n"
        "import hklm\n"
        "names = hklm.language_model, hklm.evaluate, hklm.generate, hklm.score\n"
        "print(json.dumps({'modules': sorted(sys.modules),\n"
        "                  'flags': sorted(set(flags.FLAGS) - before)}))")
    self.assertIn("hklm.inference.generate", found["modules"])
    self.assertEmpty(set(LATER) & {name.partition(".")[0] for name in found["modules"]})
    self.assertEmpty(found["flags"])

  def test_all_binaries_share_a_process_and_the_public_names_are_there(self):
    found = output(
        "import json, pkgutil, importlib, experiments, hklm\n"
        "names = [m.name for m in pkgutil.walk_packages(experiments.__path__, 'experiments.')\n"
        "         if not m.name.endswith('torch_model')]\n"  # needs torch, an extra
        "for name in names: importlib.import_module(name)\n"
        "print(json.dumps({'binaries': names,\n"
        "                  'missing': [n for n in hklm.__all__ if not hasattr(hklm, n)]}))")
    self.assertContainsSubset([f"experiments.{name}" for name in ("train", "evaluate", "sample")],
                              found["binaries"])
    self.assertEmpty(found["missing"])


if __name__ == "__main__":
  absltest.main()
