"""Small modules that an early state of the checker judged wrongly."""

import linecache
import pathlib
import re
import signal
import sys
import types

from absl.testing import absltest, parameterized

from hklm import purity

FOLDER = pathlib.Path(__file__).parent / "snippets"


def snippets(kind: str):
  """Names and texts."""
  text = (FOLDER / f"{kind}.txt").read_text(encoding="utf-8")
  for block in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
    name, _, source = block.partition("\n")
    yield name, name, source


class SnippetsTest(parameterized.TestCase):

  def made(self, name, source):
    """The module, as if it had been imported from a file."""
    module = types.ModuleType(f"hklm_snippet_{name}")
    module.__file__ = f"/snippets/{name}.py"
    sys.modules[module.__name__] = module
    self.addCleanup(sys.modules.pop, module.__name__)
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(True),
                                        module.__file__)
    exec(compile(source, module.__file__, "exec"), vars(module))
    return module

  def setUp(self):
    super().setUp()
    former = sys.excepthook, signal.getsignal(signal.SIGUSR1)
    self.addCleanup(signal.signal, signal.SIGUSR1, former[1])
    self.addCleanup(setattr, sys, "excepthook", former[0])

  @parameterized.named_parameters(snippets("impure"))
  def test_impure(self, name, source):
    module = self.made(name, source)
    report = purity.check(module.F, *module.A)
    self.assertEqual(report.verdict, "impure")
    self.assertNotIn("check failed", str(report))

  @parameterized.named_parameters(snippets("pure"))
  def test_pure(self, name, source):
    module = self.made(name, source)
    report = purity.check(module.F, *module.A)
    self.assertTrue(report.pure, report)


if __name__ == "__main__":
  absltest.main()
