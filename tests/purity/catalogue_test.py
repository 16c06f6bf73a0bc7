"""The checker on the catalogue that the comparison with others uses."""

import collections

from absl.testing import absltest, parameterized

from experiments.purity import catalogue, chex_calls, optax_calls
from hklm import purity


def over(examples):
  return parameterized.named_parameters((example.name, example) for example in examples)


class CatalogueTest(parameterized.TestCase):

  @over(catalogue.IMPURE)
  def test_finds(self, example):
    report = purity.check(example.function, *example.arguments())
    self.assertEqual(report.verdict, "impure", report)

  @over(catalogue.PURE)
  def test_does_not_accuse(self, example):
    report = purity.check(example.function, *example.arguments())
    self.assertTrue(report.pure, report)

  def test_is_as_large_as_is_said(self):
    self.assertGreaterEqual(len({example.kind for example in catalogue.IMPURE}), 25)
    self.assertGreaterEqual(len(catalogue.PURE), 80)
    groups = collections.Counter(example.name.partition("_")[0] for example in catalogue.PURE)
    self.assertGreaterEqual(groups["optax"], 60)
    self.assertGreaterEqual(groups["chex"], 10)
    self.assertEqual(groups["optax"], len(optax_calls.CALLS))
    self.assertEqual(groups["chex"], len(chex_calls.CALLS))


if __name__ == "__main__":
  absltest.main()
