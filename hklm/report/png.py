"""A figure as a PNG file, by matplotlib (extra `plots`)."""

import contextlib

from hklm import files


@contextlib.contextmanager
def drawn(path: str, width: float, height: float):
  """A figure to draw on; at the end the picture is at its path, whole or not.

  Args:
    path: where the picture goes.
    width: of the figure, in inches of 120 dots.
    height: the same.

  Yields:
    matplotlib's `Figure`.

  Raises:
    ImportError: matplotlib is not installed.
  """
  # No pyplot: it keeps global state and looks for a display.
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(width, height), layout="constrained")
  FigureCanvasAgg(figure)
  yield figure
  with files.whole(path) as file:
    figure.savefig(file, dpi=120, format="png")
