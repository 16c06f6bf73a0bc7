"""Line and point charts as SVG text, by no other library."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from hklm.report.escaping import text as escape

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 48
# Told apart by lightness and by their marks too.
STYLES = ("#8a4b08", "#00428c", "#6b6b6b", "#1a1a1a")


class Series(NamedTuple):
  """Points of one kind.

  Attributes:
    name: in the legend.
    points: x and y of each.
    line: whether they are joined.
    marks: whether each has a mark.
  """

  name: str
  points: Sequence[tuple[float, float]]
  line: bool = True
  marks: bool = False


def chart(title: str, x_label: str, y_label: str, series: Sequence[Series],
          limits: tuple[float, float, float, float] | None = None) -> str:
  """An `<svg>` element.

  Args:
    title: for who cannot see it.
    x_label: with its unit.
    y_label: with its unit.
    series: at most four; what is empty is left out.
    limits: lowest and highest x, lowest and highest y; None: a little beyond those of the points.

  >>> chart("losses", "update", "bits", [Series("training", [(1, 3), (2, 2)])])[:52]
  '<svg viewBox="0 0 640 300" role="img" aria-label="lo'
  """
  series = [its for its in series if its.points]
  xs = [x for its in series for x, _ in its.points]
  ys = [y for its in series for _, y in its.points]
  if limits is None:
    limits = (*_range(xs), *_range(ys))
  x_ticks, y_ticks = ticks(*limits[:2]), ticks(*limits[2:])

  def x_of(x):
    return _LEFT + (x - limits[0]) / (limits[1] - limits[0]) * (WIDTH - _LEFT - _RIGHT)

  def y_of(y):
    return HEIGHT - _BOTTOM - (y - limits[2]) / (limits[3] - limits[2]) * (HEIGHT - _TOP - _BOTTOM)

  parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
           f'aria-label="{escape(title)}"><title>{escape(title)}</title>']
  for tick in y_ticks:
    parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y_of(tick):.1f}" '
                 f'y2="{y_of(tick):.1f}"/>' + _text(_LEFT - 8, y_of(tick) + 4, f"{tick:g}", "end"))
  for tick in x_ticks:
    parts.append(f'<line class="grid" x1="{x_of(tick):.1f}" x2="{x_of(tick):.1f}" y1="{_TOP}" '
                 f'y2="{HEIGHT - _BOTTOM}"/>'
                 + _text(x_of(tick), HEIGHT - _BOTTOM + 18, f"{tick:,.10g}", "middle"))
  parts.append(_text((WIDTH + _LEFT - _RIGHT) / 2, HEIGHT - 8, x_label, "middle"))
  middle = (HEIGHT - _BOTTOM + _TOP) / 2
  parts.append(_text(16, middle, y_label, "middle", f' transform="rotate(-90 16 {middle})"'))
  for number, (its, colour) in enumerate(zip(series, STYLES, strict=False)):
    places = [(x_of(x), y_of(y)) for x, y in its.points]
    if its.line:
      joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
      parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" '
                   'stroke-width="1.5"/>')
    if its.marks or len(places) == 1:  # one point makes no line
      parts += [_mark(number, x, y, colour) for x, y in places]
    x, y = WIDTH - _RIGHT - 190, _TOP + 10 + 18 * number
    if its.line:
      parts.append(f'<path d="M{x - 12},{y}h24" stroke="{colour}" stroke-width="1.5"/>')
    if its.marks:
      parts.append(_mark(number, x, y, colour))
    parts.append(_text(x + 18, y + 4, its.name, "start"))
  return "".join([*parts, "</svg>"])


def ticks(low: float, high: float, most: int = 6) -> list[float]:
  """Round numbers from `low` to `high`, 1, 2 or 5 times a power of ten apart.

  >>> ticks(0.0, 100.0), ticks(1.9, 4.2)
  ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [2.0, 2.5, 3.0, 3.5, 4.0])
  """
  power = 10.0 ** math.floor(math.log10((high - low) / most))
  step = next(power * times for times in (1, 2, 5, 10) if (high - low) / (power * times) <= most)
  first = math.ceil(low / step - 1e-9)
  count = math.floor(high / step + 1e-9) - first
  return [round((first + n) * step, 12) for n in range(count + 1)]


def _range(values):
  low, high = min(values, default=0.0), max(values, default=1.0)
  margin = 0.04 * (high - low) or 0.5
  return low - margin, high + margin


def _text(x, y, text, anchor, more=""):
  return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _mark(number, x, y, colour):
  """A circle, a square, a triangle or a cross."""
  if number == 0:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity=".7"/>'
  shape = ("M-3,-3h6v6h-6z", "M0,-4l4,7h-8z", "M-3,-3l6,6M3,-3l-6,6")[number - 1]
  return (f'<path d="{shape}" transform="translate({x:.1f} {y:.1f})" fill="{colour}" '
          f'fill-opacity=".7" stroke="{colour}"/>')
