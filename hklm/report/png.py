"""Figures as PNG files, by matplotlib (extra `plots`)."""

import os


def figure(width: float, height: float):
  """An empty figure of a size in inches."""
  # No pyplot: it keeps global state and looks for a display.
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  its = Figure(figsize=(width, height), layout="constrained")
  FigureCanvasAgg(its)
  return its


def save(its, path: str):
  """Writes a figure; the picture is there whole or not."""
  its.savefig(path + ".new", dpi=120, format="png")
  os.replace(path + ".new", path)
