"""Rows as text, in the form that Markdown knows as a table, and as JSON values."""

from collections.abc import Sequence

import numpy as np

from experiments.speed import timing
from experiments.speed.measures import Row
from experiments.speed.timing import Spread

MIB = 2**20


def base_of(row: Row, rows: Sequence[Row]) -> Row:
  """The base's row of the same work."""
  return next(other for other in rows
              if (other.measure, other.work, other.contender) == (row.measure, row.work, row.base))


def ratio(row: Row, rows: Sequence[Row]) -> Spread:
  """How many times as fast the base was at this work, both timed."""
  return timing.ratios(row.seconds, base_of(row, rows).seconds)


def table(rows: Sequence[Row]) -> str:
  """The table of one measure, below its name and the sizes.

  Args:
    rows: all of the measure. A column that they leave empty is not shown.
  """
  cells = [_cells(row, rows) for row in rows]
  heads = list(dict.fromkeys(head for its in cells for head in its))
  lines = [heads, *([its.get(head, "-") for head in heads] for its in cells)]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  lines.insert(1, ["-" * width for width in widths])
  texts = ["| " + " | ".join(
      cell.ljust(width) if column < 2 else cell.rjust(width)
      for column, (cell, width) in enumerate(zip(line, widths, strict=True))) + " |"
      for line in lines]
  works = dict.fromkeys(str(row.work) for row in rows)
  return "\n".join([rows[0].measure, *works, "", *texts])


def values(row: Row, rows: Sequence[Row]) -> dict:
  """A row as JSON values, with the median and the ratio's spread where it was timed."""
  figures = {**row._asdict(), "work": row.work._asdict()}
  if row.seconds:
    figures["median_seconds"] = float(np.median(row.seconds))
    figures[f"{row.base}_times_as_fast"] = ratio(row, rows)._asdict()
  return figures


def _cells(row: Row, rows: Sequence[Row]) -> dict[str, str]:
  """A row's cells by heading; what was not measured has none."""
  cells = {"work": row.work.name, "contender": row.contender}
  if row.seconds:
    median = float(np.median(row.seconds))
    if row.unit:
      cells[f"{row.unit}/s"] = f"{row.amount / median:,.0f}"
    else:
      cells["ms"] = f"{1000 * median:,.1f}"
    its = ratio(row, rows)
    cells[f"{row.base} is times as fast"] = f"{its.median:.2f}"
    cells["quartiles"] = f"{its.low:.2f}-{its.high:.2f}"
    if row.floor_seconds:
      cells["of the floor"] = f"{row.floor_seconds / median:.0%}"
  if row.compile_seconds:
    cells["compile s"] = f"{row.compile_seconds:.1f}"
  if row.compiled_bytes:
    cells["compiled MiB"] = f"{row.compiled_bytes / MIB:,.1f}"
    times = row.compiled_bytes / base_of(row, rows).compiled_bytes
    cells[f"times {row.base}'s"] = f"{times:.2f}"
  if row.peak_bytes:
    cells["peak MiB"] = f"{row.peak_bytes / MIB:,.0f}"
  return cells
