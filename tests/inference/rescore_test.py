"""Totals, orders, word errors and weights, worked out by hand or by the textbook's table."""

import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from hklm.inference import rescore


def levenshtein(reference, hypothesis):
  """The whole table, a cell at a time."""
  table = np.zeros([len(reference) + 1, len(hypothesis) + 1], int)
  table[:, 0], table[0] = range(len(reference) + 1), range(len(hypothesis) + 1)
  for i, one in enumerate(reference, 1):
    for j, other in enumerate(hypothesis, 1):
      table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1,
                        table[i - 1, j - 1] + (one != other))
  return table[-1, -1]


class WordErrorsTest(parameterized.TestCase):

  @parameterized.parameters(
      ("", "", 0), ("a", "", 1), ("", "a b", 2), ("a b c", "a b c", 0), ("a b c", "a x c", 1),
      ("a b c", "b c", 1), ("b c", "a b c", 1), ("a b", "b a", 2), ("a a a", "a", 2),
      ("a b c d", "x b d y", 3))
  def test_by_hand(self, reference, hypothesis, expected):
    self.assertEqual(rescore.word_errors(reference.split(), hypothesis.split()), expected)

  def test_random_ones_are_those_of_the_table(self):
    draw = np.random.RandomState(0)
    for _ in range(200):
      one, other = (draw.choice(list("abc"), draw.randint(0, 9)).tolist() for _ in range(2))
      self.assertEqual(rescore.word_errors(one, other), levenshtein(one, other), (one, other))


class OrderTest(absltest.TestCase):

  def test_totals_by_hand(self):
    # -3 + 2 * -1.5 - 0.5 * 4 = -8;  -10 + 2 * -0.25 - 0 = -10.5;  0 + 0 - 0.5 = -0.5
    found = rescore.totals([-3, -10, 0], [-1.5, -.25, 0], [4, 0, 1], weight=2, penalty=.5)
    np.testing.assert_array_equal(found, [-8, -10.5, -.5])
    np.testing.assert_array_equal(rescore.totals([-3, 7], [-1, -2], [1, 2], weight=0), [-3, 7])

  def test_equals_stay_and_ids_come_as_they_first_did(self):
    ids = ["y", "x", "y", "x", "y", "x"]
    self.assertEqual(rescore.best_first(ids, [1, 5, 1, 5, 2, 6]), [4, 0, 2, 5, 1, 3])
    self.assertEqual(rescore.best_first([], []), [])


# Of 0, "d" has the higher total until w exceeds 1 / 3; of 1, "b" has it from any w above 0 on, and
# comes first where w is 0; of 2, "c c" loses to the wrong "a" once w exceeds 2 / 3.
LIST = {"ids": [0, 0, 1, 1, 2, 2], "texts": ["d", "a", "b", "c", "c c", "a"],
        "given": [-1, -2, -1, -1, -1, -3], "log_p": [-9, -6, -7, -8, -11, -8]}
REFERENCES = {0: "a", 1: "b c", 2: "c c"}


class TuneTest(absltest.TestCase):

  def tune(self, references=REFERENCES, **others):
    return rescore.tune(**LIST, references=references, **others)

  def test_by_hand(self):
    tuned = self.tune(grid=[0, .25, .5, .6, 1, 2])
    self.assertEqual(tuned.errors, {0: 2, .25: 2, .5: 1, .6: 1, 1: 3, 2: 3})
    self.assertEqual((tuned.weight, tuned.words), (.5, 5))

  def test_the_grid_that_is_stated(self):
    self.assertSequenceEqual(rescore.GRID, sorted(set(rescore.GRID)))
    self.assertEqual((rescore.GRID[0], rescore.GRID[-1]), (0.0, 20.0))
    self.assertEqual(self.tune().weight, .35)

  def test_the_page_has_the_grid(self):
    page = pathlib.Path(__file__).parents[2] / "docs" / "comparisons.md"
    stated = " ".join(f"{weight:g}".replace("0.", ".") for weight in rescore.GRID)
    self.assertIn(stated, " ".join(page.read_text(encoding="utf-8").split()))

  def test_equal_weights_give_the_smallest(self):
    tuned = self.tune({0: "x", 1: "y", 2: "z z"})
    self.assertEqual(tuned.weight, 0.0)
    self.assertEqual(set(tuned.errors.values()), {4})

  def test_the_penalty_takes_part(self):
    # With 2.5 a word, "c c" of -1 - 5 falls below "a" of -3 - 2.5 at once.
    self.assertEqual(self.tune(penalty=2.5, grid=[0]).errors, {0: 4})


if __name__ == "__main__":
  absltest.main()
