"""Sums and intervals of lines made by hand."""

import math
import warnings

import numpy as np
from absl.testing import absltest, parameterized

from hklm.inference import places, totals
from hklm.inference.scored import ScoredLine


def line(text, bits, ended=True, unknown=(), words=True):
  """A line of one token a word, or a character, and its end."""
  spans, at = [], 0
  for piece in (text.split() if words else text):
    at = text.index(piece, at)
    spans.append((at, at + len(piece)))
    at += len(piece)
  spans += [(len(text), len(text))] * ended
  starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
  sizes = np.array([len(text[:n].encode()) for n in range(len(text) + 1)])
  N = len(bits)
  return ScoredLine(0, text, ["?"] * N, starts, ends, sizes[starts], sizes[ends],
                    np.array(bits, float), np.zeros(N + 1), np.ones(N, np.int64),
                    np.isin(np.arange(N), unknown), places.words(text, starts), ended)


class SumsTest(parameterized.TestCase):

  def test_with_and_without_ends_and_unknown_words(self):
    counted = totals.Totals()
    counted.add(line("the naïve dog", [1, 2, 4, 8], unknown=[2]))
    counted.add(line("", [16]))
    self.assertEqual(counted.lines, 2)
    self.assertEqual(counted.sums(), (31, 5, 3, 13 + 1 + 1, 14 + 1 + 1, 31))
    self.assertEqual(counted.sums(ends=False), (7, 3, 3, 13, 14, 7))
    self.assertEqual(counted.sums(unknown=False), (27, 4, 2, 11, 12, 27))  # " dog" is 4 of them
    self.assertEqual(counted.sums(ends=False, unknown=False), (3, 2, 2, 9, 10, 3))

  def test_the_first_spellings_of_unknown_words(self):
    counted = totals.Totals()
    counted.add(line("the naïve dog the", [1, 2, 4, 8, 16], unknown=[1, 2]))
    counted.add(line("dog " + " ".join("abcdefghij"), 12 * [1], unknown=range(11)))
    self.assertEqual(counted.unknown_examples, ("naïve", "dog", *"abcdefgh"))

  def test_figures_are_those_of_the_definitions(self):
    counted = totals.Totals()
    counted.add(line("to be", [2, 2, 2, 3, 3, 3], words=False))
    sums = counted.sums()
    self.assertEqual((sums.tokens, sums.words, sums.characters), (6, 2, 6))
    self.assertAlmostEqual(sums.perplexity, 2 ** (15 / 6))
    self.assertAlmostEqual(sums.perplexity_per_word, 2 ** (15 / 2))
    self.assertAlmostEqual(sums.bits_per_character, 15 / 6)
    self.assertAlmostEqual(sums.bits_per_byte, 15 / 6)

  @parameterized.parameters(("the a", 2), ("the a ", 2), (" ", 0), ("", 0), ("\t the\x0ba", 2))
  def test_white_space_at_a_lines_end_is_no_word(self, text, words):
    counted = totals.Totals()
    counted.add(line(text, np.ones(len(text) + 1), words=False))
    self.assertEqual(counted.sums().words, words)
    self.assertEqual(counted.sums().word_bits, len(text) + 1)

  def test_a_word_counts_whole_or_not_at_all(self):
    counted = totals.Totals()  # of "to be or", "o" of "to" is unknown, and "b" not available
    counted.add(line("to be or", [1, 2, 4, math.nan, 16, 32, 64, 128, 256], unknown=[1],
                     words=False))
    every, known = counted.sums(), counted.sums(unknown=False)
    self.assertEqual((every.tokens, every.words, every.word_bits), (8, 2, 1 + 2 + 4 + 480 - 4))
    self.assertEqual((known.tokens, known.words, known.word_bits), (7, 1, 32 + 64 + 128 + 256))
    self.assertAlmostEqual(known.perplexity_per_word, 2.0 ** 480)

  def test_what_is_not_available_is_not_counted(self):
    counted = totals.Totals()
    counted.add(line("to be or", [math.nan, 1, 2, 3]))
    self.assertEqual(counted.unavailable, 1)
    self.assertEqual(counted.sums(), (6, 3, 2, 8 + 1 - 2, 8 + 1 - 2, 6))

  def test_nothing_and_too_much(self):
    counted = totals.Totals()
    self.assertEqual(counted.sums(), (0, 0, 0, 0, 0, 0))
    self.assertTrue(math.isnan(counted.sums().perplexity))
    self.assertTrue(math.isnan(counted.sums().bits_per_byte))
    self.assertTrue(math.isnan(counted.interval("perplexity").low))
    counted.add(line("a", [1e6, 1e6]))
    self.assertEqual(counted.sums().perplexity, math.inf)

  def test_intervals_of_nothing_and_of_too_much_say_so_without_a_warning(self):
    with warnings.catch_warnings():
      warnings.simplefilter("error")
      empty, large = totals.Totals(), totals.Totals()
      for _ in range(3):
        empty.add(line("", [], ended=False))
        large.add(line("a", [1e6, 1e6]))
      large.add(line("a", [1, 1]))
      self.assertTrue(math.isnan(empty.interval("perplexity").high))
      self.assertEqual(large.interval("perplexity").high, math.inf)

  def test_a_lines_own_sums(self):
    counted = totals.Totals()
    counts = counted.add(line("a b", [1, 2, 4]))
    self.assertEqual(totals.sums_of(counts).bits, 7)
    self.assertEqual(totals.sums_of(counts, ends=False).bits, 3)

  def test_blocks_and_lines_have_the_same_sums(self):
    by_line, by_block = totals.Totals(), totals.Totals(by_block=True)
    draw = np.random.RandomState(0)
    for length in draw.randint(0, 700, size=20):
      its = line("a" * length, draw.exponential(size=length + 1), words=False)
      by_line.add(its)
      by_block.add(its)
    np.testing.assert_allclose(by_line.sums(), by_block.sums(), rtol=1e-12)


class IntervalTest(parameterized.TestCase):

  def test_it_covers_the_truth_about_95_times_of_100(self):
    """Lines of 10 tokens with bits around 2: an approximate figure, so a wide net."""
    draw, covered = np.random.RandomState(0), 0
    for _ in range(100):
      counted = totals.Totals()
      for bits in draw.exponential(2.0, size=[60, 10]):
        counted.add(line("a" * 9, bits, words=False))
      low, high = counted.interval("bits_per_character")
      covered += low <= 2.0 <= high
    self.assertBetween(covered, 87, 100)

  def test_its_width_is_that_of_the_normal_approximation(self):
    draw = np.random.RandomState(0)
    means = draw.normal(3.0, 0.5, size=400)
    counted = totals.Totals()
    for mean in means:
      counted.add(line("a" * 9, np.full(10, mean), words=False))
    low, high = counted.interval("bits_per_character")
    half = 1.96 * means.std() / 20
    self.assertAlmostEqual((low + high) / 2, means.mean(), delta=0.15 * half)
    self.assertAlmostEqual((high - low) / 2, half, delta=0.12 * half)

  def test_blocks_of_1000_tokens_are_drawn(self):
    counted = totals.Totals(by_block=True)
    for mean in (1.0, 1.0, 3.0, 3.0):
      counted.add(line("a" * 999, np.full(1000, mean), words=False))
    low, high = counted.interval("bits_per_character")
    self.assertEqual((low, high), (1.0, 3.0))  # all blocks may be of one kind: 1 in 16
    in_pieces = totals.Totals(by_block=True)  # the same tokens, in lines that are no blocks
    for mean in (1.0, 3.0):
      for _ in range(10):
        in_pieces.add(line("a" * 199, np.full(200, mean), words=False))
    self.assertEqual(in_pieces.interval("bits_per_character"), (low, high))
    counted = totals.Totals(by_block=True)
    counted.add(line("a" * 999, np.full(1000, 2.0), words=False))
    self.assertTrue(math.isnan(counted.interval("bits_per_character").low))


if __name__ == "__main__":
  absltest.main()
