"""The parts of a report's page that look inside a model: its cells and gates, as HTML.

Dimension letters: N tokens, U units.
"""

import base64
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hklm.inference.scored import ScoredLine
from hklm.inference.states import States
from hklm.report import charts, colours, units
from hklm.report.escaping import text

CELL_TOKENS = 1000  # at the text's beginning, whose cells a page holds
_FOUND = 8  # units a signal


class Values(NamedTuple):
  """What is shown of a layer.

  Attributes:
    what: in words.
    values: `[N, U]`; within -1 and 1 for an LSTM.
  """

  what: str
  values: np.ndarray


def layer_values(its: States) -> list[Values]:
  """Of each layer tanh of its cell, where it has gates around one; else its output."""
  return [Values("tanh of the cell", np.tanh(layer.cells["cell"]))
          if layer.gates and "cell" in layer.cells else Values("output", layer.output)
          for layer in its.layers]


def token_signals(lines: Sequence[ScoredLine]) -> dict[str, np.ndarray]:
  """`units.signals` of the whole text, after each token `[N]`."""
  after, begin = [], 0
  for line in lines:
    ends = line.ends.copy()
    if line.ended:
      ends[-1] += 1  # the line feed
    after.append(begin + np.maximum(ends, 1) - 1)
    begin += len(line.text) + 1
  places = np.concatenate(after)
  found = units.signals("".join(line.text + "\n" for line in lines))
  return {name: its[places] for name, its in found.items()}


def cells(values: Sequence[Values], signals: dict[str, np.ndarray]) -> str:
  """The search, the choice of a unit, the text that it colours, and a map of all units.

  Args:
    values: of each layer.
    signals: as `token_signals`.
  """
  options = "".join(f'<option value="{n}">{n}</option>' for n in range(len(values)))
  shown = min(CELL_TOKENS, len(values[0].values))
  tables = "".join(_found(name, values, its) for name, its in signals.items())
  maps = "".join(
      f"<h3>Layer {n}: {text(its.what)}, {its.values.shape[1]:,} units (rows) at {shown:,} tokens "
      f'(columns)</h3><div class="map" data-layer="{n}"><canvas tabindex="0" role="img" '
      f'aria-label="Heat map of layer {n}: every unit at every token. Arrow keys move, Enter '
      'chooses the unit."></canvas><div class="chosen"></div><div class="here"></div></div>'
      for n, its in enumerate(values))
  bar = "".join(f'<i style="background:{colours.name(colours.signed(n / 24))}"></i>'
                for n in range(-24, 25))
  return f"""<h3>Units that follow what is in the text</h3>
<p>Pearson's correlation r, over the whole text, of a unit's value after each token with: being
within double quotes (0 or 1); brackets that are open; characters since the line began; white space
at the line's beginning. A button shows the unit.</p>
<div class="found">{tables}</div>
<h3>A unit over the text</h3>
<div class="controls"><label>Layer <select id="layer">{options}</select></label>
<label>Unit <input id="unit" type="number" min="0" value="0"></label>
<output id="chosen" for="layer unit"></output></div>
<div class="legend" id="cell-legend"><span></span><div class="scale">
<div class="bar" aria-hidden="true">{bar}</div><div class="ticks">
<span class="low"></span><span>0</span><span class="high"></span></div></div></div>
<div class="details" id="cell-details" role="status" aria-live="polite"></div>
<div class="text" id="cell-text" role="listbox" aria-label="The first {shown:,} tokens,
coloured by the chosen unit"></div>
<h3>All units</h3>
<p>Point at a place, or go there with Tab and the arrow keys; a click or Enter chooses the unit.</p>
{maps}"""


def _found(name, values, signal):
  """The units of all layers whose values go with a signal best."""
  places = [(layer, unit) for layer, its in enumerate(values)
            for unit in range(its.values.shape[1])]
  found = np.concatenate([units.correlations(its.values, signal) for its in values])
  best = units.strongest(found, _FOUND)
  rows = "".join(
      f'<tr><td><button data-layer="{layer}" data-unit="{unit}">layer {layer}, unit {unit}</button>'
      f'</td><td class="number">{found[n]:+.3f}</td></tr>'
      for n in best.tolist() for layer, unit in [places[n]])
  if not rows:
    rows = '<tr><td colspan="2">the text has none, or no change of it</td></tr>'
  return (f'<table data-signal="{text(name)}"><caption>{text(name)}</caption><thead><tr>'
          f'<th>unit</th><th class="number">r</th></tr></thead><tbody>{rows}</tbody></table>')


def gates(its: States, cell: str) -> str:
  """How often gates are nearly shut and nearly open: a table, and a chart a layer.

  Args:
    its: of the text.
    cell: the cell's name, for where it tells no gates.
  """
  found = {layer: units.true_gates(what.gates) for layer, what in enumerate(its.layers)}
  if not any(found.values()):
    return (f'<p class="note">The cell {text(cell)} tells no gates; a cell of your own does with a '
            "method trace(x, state) that returns output, state and gates by name.</p>")
  rows, pictures = [], []
  for layer, named in found.items():
    series = []
    for name, gate in named.items():
      shut, open_ = units.saturation(gate)
      rows.append(f'<tr><td class="number">{layer}</td><td>{text(name)}</td>'
                  f'<td class="number">{100 * shut.mean():.1f} %</td>'
                  f'<td class="number">{100 * open_.mean():.1f} %</td></tr>')
      points = list(zip(open_.tolist(), shut.tolist(), strict=True))
      series.append(charts.Series(name, points, line=False, marks=True))
    pictures.append(f"<figure><figcaption>Layer {layer}: a mark is a unit's gate</figcaption>" +
                    charts.chart(f"Gates of layer {layer}", "share of tokens above 0.9 (open)",
                                 "share of tokens below 0.1 (shut)", series, (0, 1, 0, 1))
                    + "</figure>")
  return ("<p>Over all tokens of the text and all units of a layer: the share of the time that a "
          "gate is below 0.1, and above 0.9 (Karpathy, Johnson and Fei-Fei 2015). An LSTM's g, "
          "between &minus;1 and 1, is what may enter the cell and no gate.</p>"
          '<table id="saturation"><thead><tr><th class="number">layer</th><th>gate</th>'
          '<th class="number">below 0.1</th><th class="number">above 0.9</th></tr></thead>'
          f'<tbody>{"".join(rows)}</tbody></table><div class="charts">{"".join(pictures)}</div>')


def cell_data(values: Sequence[Values]) -> list[dict]:
  """What the page's script draws: of each layer `[at most CELL_TOKENS, U]` bytes, -127 to 127.

  `limit` is the value that 127 stands for.
  """
  found = []
  for what, its in values:
    its = its[:CELL_TOKENS].astype(np.float64)
    limit = max(1.0, float(np.abs(its).max(initial=0.0)))
    steps = np.rint(its / limit * 127).astype(np.int8)
    found.append({"what": what, "units": its.shape[1], "limit": limit,
                  "values": base64.b64encode(steps.tobytes()).decode("ascii")})
  return found


def palette() -> list[list[int]]:
  """The colours of the values -127 to 127, as red, green and blue.

  >>> len(palette()), palette()[127]
  (255, [250, 250, 250])
  """
  return [list(colours.signed(n / 127)) for n in range(-127, 128)]
