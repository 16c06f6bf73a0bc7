import doctest
import importlib
import pkgutil
import sys

from absl.testing import absltest, parameterized

import hklm.data

NAMES = [module.name for module in pkgutil.iter_modules(hklm.data.__path__, "hklm.data.")]


class DoctestsTest(parameterized.TestCase):

  @parameterized.parameters(*NAMES)
  def test_examples_run(self, name):
    result = doctest.testmod(importlib.import_module(name))
    self.assertEqual(result.failed, 0)
    self.assertGreater(result.attempted, 0)


class ImportsTest(absltest.TestCase):

  def test_needs_no_model_code(self):
    """What the package's files name; `import hklm` itself does load JAX."""
    allowed = {"numpy", "hklm", "tokenizers", *sys.stdlib_module_names}
    for name in NAMES:
      module = importlib.import_module(name)
      with open(module.__file__, encoding="utf-8") as file:
        words = [line.split() for line in file if line.strip().startswith(("import ", "from "))]
      for imported in (line[1] for line in words):
        self.assertIn(imported.split(".")[0], allowed, name)
        if imported.startswith("hklm"):
          self.assertIn(imported, ("hklm.config", "hklm.errors", "hklm.data", *NAMES), name)


if __name__ == "__main__":
  absltest.main()
