"""What a report shows as PNG files, for papers; matplotlib (extra `plots`) is imported when used.

`curves(metrics_path, png_path, unit)` is that of a run directory's `curves.png`. Every function is
as whole as its file: a picture is there or not.
"""

import math
from collections.abc import Sequence

import numpy as np

from hklm.inference.scored import ScoredLine
from hklm.inference.states import States
from hklm.report import charts, colours, png, sections, units
from hklm.report.curves import plot
from hklm.report.inside import Values

COLUMNS = 72  # characters of a row of text

curves = plot


def surprisal(lines: Sequence[ScoredLine], vocab_size: int, png_path: str):
  """A text on the colours of its surprisal, with the scale in bits.

  Args:
    lines: as `hklm.inference.score.scored_lines` gives them.
    vocab_size: V: the darkest colour is log2 V and more.
    png_path: where the picture goes.

  Raises:
    ImportError: matplotlib is not installed.
  """
  from matplotlib.cm import ScalarMappable
  from matplotlib.colors import Normalize
  from matplotlib.patches import Rectangle

  most = sections.top(vocab_size)
  rows = _rows(lines)
  height, legend = 0.24 * len(rows), 0.12  # inches
  with png.drawn(png_path, 0.1 * COLUMNS, height + legend + 0.6) as figure:
    axes, below = figure.subplots(2, height_ratios=[height, legend])
    axes.set(xlim=(0, COLUMNS), ylim=(len(rows), 0))
    axes.set_axis_off()
    for y, row in enumerate(rows):
      for x, (character, bits) in enumerate(row):
        colour = (255, 255, 255) if math.isnan(bits) else colours.amount(bits / most)
        axes.add_patch(Rectangle((x, y + 0.05), 1, 0.9, color=colours.name(colour), linewidth=0))
        # Signs that matplotlib would read as mathematics are shown as they are.
        axes.text(x + 0.5, y + 0.55, character, family="monospace", fontsize=9, ha="center",
                  va="center", color=colours.ink(colour), parse_math=False)
    scale = ScalarMappable(Normalize(0, most), _map(colours.amount, 0, 1))
    figure.colorbar(scale, cax=below, orientation="horizontal", label="surprisal in bits",
                    extend="max")


def cells(its: Values, png_path: str):
  """Every unit of a layer at every token.

  Args:
    its: of a layer, as `hklm.report.inside.layer_values` gives them.
    png_path: where the picture goes.

  Raises:
    ImportError: matplotlib is not installed.
  """
  limit = max(1.0, float(np.abs(its.values).max(initial=0.0)))
  with png.drawn(png_path, 8, 4.5) as figure:
    axes = figure.subplots()
    image = axes.imshow(np.float64(its.values).T, aspect="auto", interpolation="nearest",
                        cmap=_map(colours.signed, -1, 1), vmin=-limit, vmax=limit)
    axes.set_xlabel("token")
    axes.set_ylabel("unit")
    figure.colorbar(image, ax=axes, label=its.what)


def saturation(its: States, png_path: str):
  """The share of the tokens at which each unit's gates are nearly shut, and nearly open, by layer.

  Karpathy, Johnson and Fei-Fei 2015, figure 3.

  Args:
    its: of a text.
    png_path: where the picture goes.

  Raises:
    ImportError: matplotlib is not installed.
  """
  with png.drawn(png_path, 4 * len(its.layers), 4.2) as figure:
    for number, (axes, layer) in enumerate(
        zip(figure.subplots(1, len(its.layers), squeeze=False)[0], its.layers, strict=True)):
      for (name, gate), mark, colour in zip(units.true_gates(layer.gates).items(), "os^x",
                                            charts.STYLES, strict=False):
        shut, open_ = units.saturation(gate)
        axes.plot(open_, shut, mark, label=name, color=colour, markersize=4, alpha=0.7)
      axes.set(title=f"layer {number}", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02),
               xlabel="share of tokens above 0.9 (open)", ylabel="share of tokens below 0.1 (shut)")
      if axes.lines:  # a cell may tell no gates
        axes.legend()


def _rows(lines) -> list[list[tuple[str, float]]]:
  """Characters and the bits of their tokens, NaN for what is no token, in rows of `COLUMNS`."""
  rows = [[]]
  for line in lines:
    for token, shown, gap in sections.spelled(line):
      pieces = [(c, math.nan) for c in gap]
      pieces += [(c, float(line.surprisals[token])) for c in (shown or "⏎")]
      for piece in pieces:
        if len(rows[-1]) == COLUMNS:
          rows.append([])
        rows[-1].append((piece[0] if piece[0].isprintable() else "�", piece[1]))
    rows.append([])
  return rows[:-1] if len(rows) > 1 else rows


def _map(colour, low, high):
  """matplotlib's map of a scale of ours."""
  from matplotlib.colors import ListedColormap

  return ListedColormap([colours.name(colour(share)) for share in np.linspace(low, high, 255)])
