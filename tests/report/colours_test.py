"""Colours keep their order for every reader, and letters on them can be read."""

import itertools

from absl.testing import absltest, parameterized

from hklm.report import colours

SHARES = [n / 200 for n in range(201)]


class ColoursTest(parameterized.TestCase):

  @parameterized.parameters(
      (colours.amount, SHARES), (colours.signed, SHARES), (colours.signed, [-s for s in SHARES]))
  def test_more_is_darker(self, scale, values):
    lights = [colours.luminance(scale(value)) for value in values]
    for lighter, darker in itertools.pairwise(lights):
      self.assertLess(darker, lighter + 1e-9)
    self.assertLess(lights[-1], lights[0] - 0.6)

  def test_both_signs_are_told_apart_by_hue_where_lightness_is_alike(self):
    # Blue and orange: who lacks one kind of cone still has them on the two sides of white.
    for share in (0.3, 0.6, 1.0):
      (r, _, b), (other_r, _, other_b) = colours.signed(-share), colours.signed(share)
      self.assertGreater(b - r, 50)
      self.assertGreater(other_r - other_b, 50)

  @parameterized.parameters(colours.amount, colours.signed)
  def test_ink_has_the_contrast_that_small_text_needs(self, scale):
    for share in SHARES:
      colour = scale(share)
      light = colours.luminance(colour)
      ink = {"#000000": 0.0, "#ffffff": 1.0}[colours.ink(colour)]
      high, low = max(light, ink), min(light, ink)
      self.assertGreaterEqual((high + 0.05) / (low + 0.05), 4.5, share)  # WCAG 2.1, level AA

  def test_beyond_the_ends_is_as_at_the_ends(self):
    self.assertEqual(colours.amount(-1.0), colours.amount(0.0))
    self.assertEqual(colours.amount(9.0), colours.amount(1.0))
    self.assertEqual(colours.signed(-9.0), colours.signed(-1.0))


if __name__ == "__main__":
  absltest.main()
