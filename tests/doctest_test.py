"""Runs the examples in the docstrings of every module of the package."""

import doctest
import importlib
import pkgutil

import jax
from absl.testing import absltest

import hklm


class DoctestTest(absltest.TestCase):

  def test_examples(self):
    examples = 0
    for module in pkgutil.walk_packages(hklm.__path__, "hklm."):
      with self.subTest(module.name):
        with jax.enable_x64(False):  # the numbers shown have the digits of float32
          result = doctest.testmod(importlib.import_module(module.name))
        self.assertEqual(result.failed, 0)
        examples += result.attempted
    self.assertGreater(examples, 80)


if __name__ == "__main__":
  absltest.main()
