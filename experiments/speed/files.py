"""What stays of a run: its figures as JSON, its plot. A file is there whole or not at all."""

import importlib.util
import json
from collections.abc import Sequence

import numpy as np

from experiments.speed import choices, tables
from experiments.speed.contenders import BASE
from experiments.speed.measures import Row
from hklm import files
from hklm.errors import InputError


def check_matplotlib():
  """Refuses a plot that could not be drawn in the end."""
  if importlib.util.find_spec("matplotlib") is None:
    raise InputError("--plot needs matplotlib, which is not installed; pip install -e '.[plots]', "
                     "or drop --plot")


def write_json(path: str, figures: dict):
  """Writes JSON values."""
  with files.whole(path) as file:
    file.write(json.dumps(figures, indent=1).encode())


def plot_ratios(path: str, rows: Sequence[Row]):
  """Draws how many times as fast the base is, a bar for each contender and work, as PNG.

  Bars begin at 1, and go down where the base is the slower one.
  """
  rows = [row for row in rows if row.seconds and row.base == BASE]
  works = list(dict.fromkeys((row.measure, row.work) for row in rows))
  others = list(dict.fromkeys(row.contender for row in rows if row.contender != BASE))
  figure, axes = _figure(width=max(6, 0.9 * len(works)))
  width = 0.8 / max(1, len(others))
  for n, contender in enumerate(others):
    its = [row for row in rows if row.contender == contender]
    spreads = [tables.ratio(row, rows) for row in its]
    medians = np.array([spread.median for spread in spreads])
    errors = [medians - [spread.low for spread in spreads],
              [spread.high for spread in spreads] - medians]
    places = [works.index((row.measure, row.work)) + (n - (len(others) - 1) / 2) * width
              for row in its]
    axes.bar(places, medians - 1, width, bottom=1, yerr=errors, capsize=2, label=contender)
  axes.set_yscale("log")
  _plain_ticks(axes.yaxis)
  axes.axhline(1, color="black", linewidth=1)
  axes.set_xticks(range(len(works)), [f"{measure}\n{work.name}" for measure, work in works],
                  rotation=45, ha="right", fontsize=8)
  axes.set_ylabel(f"{BASE} is times as fast as")
  if others:
    axes.legend()
  _save(path, figure)


def plot_growth(path: str, rows: Sequence[Row], axis: str):
  """Draws the milliseconds of a training step against a size, as PNG."""
  figure, axes = _figure(width=6)
  for contender in dict.fromkeys(row.contender for row in rows):
    points = [(choices.axis_size(row.work, axis), 1000 * float(np.median(row.seconds)))
              for row in rows if row.contender == contender]
    axes.plot(*zip(*points, strict=True), "o-", label=contender)
  axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="ms a training step")
  _plain_ticks(axes.yaxis)
  _plain_ticks(axes.xaxis)
  axes.set_xticks(sorted({choices.axis_size(row.work, axis) for row in rows}))
  axes.grid(alpha=0.3)
  axes.legend()
  _save(path, figure)


def _figure(width: float):
  # No pyplot: it keeps global state and looks for a display.
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(width, 4.5), layout="constrained")
  FigureCanvasAgg(figure)
  return figure, figure.subplots()


def _plain_ticks(axis):
  """Few ticks of a logarithmic axis, at round numbers, written out."""
  from matplotlib import ticker

  axis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
  axis.set_major_formatter("{x:g}")
  axis.set_minor_locator(ticker.NullLocator())


def _save(path, figure):
  with files.whole(path) as file:
    figure.savefig(file, dpi=120, format="png")
