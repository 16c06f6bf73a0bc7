"""Plots for papers are PNG files of what the report shows, whatever the text."""

import os
import pathlib
import tempfile
import warnings
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from matplotlib.figure import Figure

from hklm.report import colours, inside, plots
from tests.report import made


class PlotsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = os.path.join(folder, "plot.png")
    self.enter_context(warnings.catch_warnings(action="error"))

  def drawn(self, function, *args) -> Figure:
    """The figure that was written, the file being a PNG."""
    with mock.patch.object(Figure, "savefig", autospec=True, side_effect=Figure.savefig) as save:
      function(*args, self.path)
    self.assertEqual(pathlib.Path(self.path).read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
    return save.call_args.args[0]

  def test_text_on_the_colours_of_its_surprisal(self):
    text = "a $x^2$ " * 12
    axes, scale = self.drawn(plots.surprisal, [made.line(text), made.line("b")], made.V).axes
    self.assertEqual("".join(its.get_text() for its in axes.texts), f"{text}⏎b⏎")
    shown = [tuple(round(255 * c) for c in patch.get_facecolor()[:3]) for patch in axes.patches]
    bits = np.concatenate([np.arange(len(text) + 1), [0, 1]]) / 4
    self.assertEqual(shown, [colours.amount(its / 4) for its in bits])
    self.assertEqual(axes.texts[plots.COLUMNS].get_position()[1], 1.55)  # in the next row
    self.assertEqual(scale.get_xlabel(), "surprisal in bits")
    self.assertEqual(scale.get_xlim(), (0, 4))  # log2 16

  def test_a_tab_and_a_control(self):
    self.drawn(plots.surprisal, [made.line("\t\0"), made.line("")], made.V)

  @parameterized.parameters(0.5, 3.0)
  def test_cells(self, largest):
    values = largest * np.array([[0.0, 1.0, -1.0], [0.5, 0.25, 0.0]])
    axes, scale = self.drawn(plots.cells, inside.Values("output", values)).axes
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), values.T)
    self.assertEqual(image.get_clim(), (-max(1, largest), max(1, largest)))
    self.assertEqual((axes.get_xlabel(), axes.get_ylabel()), ("token", "unit"))
    self.assertEqual(scale.get_ylabel(), "output")

  def test_saturation(self):
    its = made.facts().states
    panels = self.drawn(plots.saturation, its).axes
    self.assertLen(panels, 2)
    gate = its.layers[0].gates["i"]
    lines = {line.get_label(): line for line in panels[0].lines}
    self.assertEqual(set(lines), {"i", "o"})
    np.testing.assert_allclose(lines["i"].get_xdata(), (gate > 0.9).mean(axis=0))
    np.testing.assert_allclose(lines["o"].get_ydata(), (gate > 0.9).mean(axis=0))

  def test_a_cell_without_gates(self):
    its = made.facts().states
    its = its._replace(layers=tuple(layer._replace(gates={}) for layer in its.layers))
    self.assertEmpty(self.drawn(plots.saturation, its).axes[0].lines)


if __name__ == "__main__":
  absltest.main()
