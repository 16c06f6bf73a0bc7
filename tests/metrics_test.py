"""Sums merge, divisions are exact, nothing overflows."""

import math

from absl.testing import absltest, parameterized

from hklm import metrics
from hklm.metrics import Metrics


class MetricsTest(parameterized.TestCase):

  def test_merging_adds_sums_and_counts_and_keeps_the_rest(self):
    first = Metrics(nats=1.5, tokens=3, unknown_nats=0.5, unknown_tokens=1, streams=2, window=7)
    merged = first + Metrics(nats=2.0, tokens=5, unknown_nats=0.25, unknown_tokens=2)
    self.assertEqual(merged, Metrics(3.5, 8, 0.75, 3, streams=2, window=7))

  def test_the_mean_is_over_tokens_not_over_batches(self):
    merged = Metrics(nats=10.0, tokens=1) + Metrics(nats=0.0, tokens=9)
    self.assertEqual(merged.nats_per_token, 1.0)  # the mean of the two means would be 5
    self.assertEqual(merged.perplexity, math.e)  # the mean of perplexities about 11,000

  def test_units(self):
    figures = Metrics(nats=12 * math.log(2), tokens=4)
    self.assertAlmostEqual(figures.nats_per_token, 3 * math.log(2), places=14)
    self.assertAlmostEqual(figures.bits_per_token, 3.0, places=14)
    self.assertAlmostEqual(figures.perplexity, 8.0, places=12)
    self.assertAlmostEqual(figures.bits_per(24), 0.5, places=14)
    self.assertTrue(math.isnan(figures.bits_per(0)))

  def test_known_perplexity_leaves_unknown_tokens_out_of_both_sums(self):
    figures = Metrics(nats=5 * math.log(4), tokens=4, unknown_nats=3 * math.log(4),
                      unknown_tokens=2)
    self.assertAlmostEqual(figures.known_perplexity, 4.0, places=12)
    self.assertTrue(math.isnan(Metrics(1.0, 1, 1.0, 1).known_perplexity))

  @parameterized.parameters(
      (709.0, 1, math.exp(709.0)), (710.0, 1, math.inf), (1e300, 1, math.inf),
      (1e4, 100, math.exp(100)))
  def test_perplexity_of_large_losses(self, nats, tokens, expected):
    self.assertEqual(metrics.perplexity(nats, tokens), expected)
    self.assertEqual(Metrics(nats, tokens).nats, nats)  # the nats are kept


if __name__ == "__main__":
  absltest.main()
