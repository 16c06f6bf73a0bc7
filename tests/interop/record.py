"""Writes `tests/interop/recorded`: `python -m tests.interop.record`, with PyTorch and safetensors.

A folder a layout of `foreign`: the file, its vocabulary, and `expected.npz`. The weights are noise.
"""

import os
import pathlib

import numpy as np

RECORDED = pathlib.Path(__file__).parent / "recorded"


def main():
  from tests.interop import foreign  # it needs PyTorch

  for layout in sorted(set(foreign.LAYOUTS) - set(foreign.NOT_RECORDED)):
    folder = RECORDED / layout
    os.makedirs(folder, exist_ok=True)
    _, expected = foreign.make(layout, str(folder))
    np.savez(folder / "expected.npz", **expected)


if __name__ == "__main__":
  main()
