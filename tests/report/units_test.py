"""Signals counted by hand, correlations as NumPy's own, shares of known gates."""

import numpy as np
from absl.testing import absltest, parameterized

from hklm.report import inside, units
from tests.report import made


class SignalsTest(parameterized.TestCase):

  @parameterized.parameters(
      ("quotes", 'a "b" c', "0011000"), ("quotes", "a “b” c", "0011000"),
      ("quotes", '"a\nb"', "11110"), ("quotes", '"a\n\nb', "11100"),  # closed by a blank line
      ("quotes", '"a\n \t\nb', "1111100"),
      ("quotes", "it's", "0000"),
      ("brackets", "a(b[c]{})", "011221210"), ("brackets", "a)b(", "0001"),
      ("brackets", "((\n\na", "12200"),
      ("line position", "ab\ncd", "12012"), ("line position", "\n\n", "00"),
      ("indentation", "  a b\n\tc", "12222011"), ("indentation", "a  b", "0000"))
  def test_by_hand(self, name, text, expected):
    self.assertEqual(units.signals(text)[name].tolist(), [int(c) for c in expected])

  def test_no_text(self):
    for its in units.signals("").values():
      self.assertEqual(its.shape, (0,))

  def test_of_tokens_it_is_that_after_their_last_character(self):
    lines = [made.line('a "b'), made.line('c" d')]
    found = inside.token_signals(lines)
    self.assertEqual(found["quotes"].tolist(), [0, 0, 1, 1, 1, 1, 0, 0, 0, 0])
    self.assertEqual(found["line position"].tolist(), [1, 2, 3, 4, 0, 1, 2, 3, 4, 0])
    pieces = lines[0]._replace(
        symbols=["a ", '"b'], starts=np.array([0, 2]), ends=np.array([2, 4]), ended=False)
    self.assertEqual(inside.token_signals([pieces])["quotes"].tolist(), [0, 1])


class CorrelationsTest(absltest.TestCase):

  def test_they_are_numpys(self):
    draw = np.random.RandomState(0)
    values, signal = draw.normal(size=[50, 4]) + 1e3, draw.normal(size=50)
    expected = [np.corrcoef(values[:, u], signal)[0, 1] for u in range(4)]
    np.testing.assert_allclose(units.correlations(values, signal), expected, rtol=1e-9)

  def test_what_never_changes_has_none(self):
    values = np.stack([np.full(5, 0.1), np.arange(5)], axis=1)
    self.assertEqual(np.isnan(units.correlations(values, np.arange(5))).tolist(), [True, False])
    self.assertTrue(np.isnan(units.correlations(values, np.full(5, 0.3))).all())
    self.assertTrue(np.isnan(units.correlations(values[:1], np.zeros(1))).all())
    self.assertEmpty(units.strongest(np.array([np.nan, np.nan]), 3))

  def test_numbers_in_half_precision_do_not_overflow(self):
    values = np.linspace(-200, 200, 1000, dtype=np.float16)[:, None]
    np.testing.assert_allclose(units.correlations(values, np.arange(1000)), [1], rtol=1e-6)

  def test_a_planted_unit_is_found(self):
    facts = made.facts()
    values = inside.layer_values(facts.states)
    signal = inside.token_signals(facts.lines)["quotes"]
    found = np.concatenate([units.correlations(its.values, signal) for its in values])
    self.assertEqual(units.strongest(found, 3)[0], made.H + made.QUOTES)
    self.assertGreater(found[made.H + made.QUOTES], 0.99)


class SaturationTest(absltest.TestCase):

  def test_shares_of_known_gates(self):
    gate = np.array([[0.0, 0.1, 0.95], [0.05, 0.9, 1.0], [0.5, 0.91, 0.99], [0.099, 0.5, 0.2]])
    shut, open_ = units.saturation(gate)
    self.assertEqual(shut.tolist(), [0.75, 0, 0])  # 0.1 and 0.9 themselves are neither
    self.assertEqual(open_.tolist(), [0, 0.25, 0.75])

  def test_what_is_negative_is_no_gate(self):
    self.assertEqual(list(units.true_gates(made.facts().states.layers[0].gates)), ["i", "o"])


if __name__ == "__main__":
  absltest.main()
