"""`curves.png`: the losses of a run over its updates."""

import json
import math

from hklm.report import png


def plot(metrics_path: str, png_path: str, unit: str):
  """Draws the losses in `metrics.jsonl`, in bits per token; the picture is there whole or not.

  Args:
    metrics_path: what `train` wrote; a loss that is null has no point.
    png_path: where the picture goes.
    unit: what a token is called: `char`, `byte`, `word` or `token`.

  Raises:
    ImportError: matplotlib (extra `plots`) is not installed.
  """
  with open(metrics_path, encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
  with png.drawn(png_path, 8, 4.5) as figure:
    axes = figure.subplots()
    for key, label, style in (("train_nats_per_token", "training, with dropout if any", "-"),
                              ("valid_nats_per_token", "validation", "o-")):
      points = [(row["step"], row[key] / math.log(2)) for row in rows
                if row.get(key) is not None]
      if points:
        axes.plot(*zip(*points, strict=True), style, label=label, linewidth=1, markersize=4)
    axes.set_xlabel("update")
    axes.set_ylabel(f"bits per {unit}")
    axes.grid(alpha=0.3)
    if axes.lines:  # a run may have been stopped before its first row
      axes.legend()
