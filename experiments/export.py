"""A run's weights for other programs: `python -m experiments.export --run_dir=D --format=...`.

`torch`: a state dict as `.safetensors`, `.npz` or `.pt`, under PyTorch's names; `safetensors`: a
folder that hklm reads; `stablehlo`: a folder that jax reads without hklm.
"""

import contextlib
import importlib.util
import json
import os

import numpy as np
from absl import flags as absl_flags

from experiments import cli, flags
from hklm import files
from hklm import run as runs
from hklm.errors import InputError
from hklm.interop import folders, stablehlo
from hklm.interop import torch as torch_weights

FLAGS = flags.FLAGS
ENDINGS = (".safetensors", ".npz", ".pt", ".pth")

absl_flags.DEFINE_enum(
    "format", None, ["torch", "safetensors", "stablehlo"],
    f"torch: a state dict, the file --output ends in {', '.join(ENDINGS)}. safetensors: a folder "
    "that hklm reads. stablehlo: a folder of functions that jax reads without hklm.")

NAMES = ("run_dir", "checkpoint", "format", "output", "overwrite")


def main():
  """Flags to run to a file or folder, whose name is printed."""
  if not FLAGS.format:
    raise InputError("--format is not given; needed: torch, safetensors or stablehlo")
  if not FLAGS.output:
    raise InputError("--output is not given; needed: the file or folder to write")
  if FLAGS.format == "torch":
    _check_file(FLAGS.output)
  cli.announce_device()
  run = cli.load_run()
  if FLAGS.format == "torch":
    _save_torch(FLAGS.output, run)
  elif FLAGS.format == "safetensors":
    folders.save(FLAGS.output, runs.read_contents(run.path), run.params, FLAGS.overwrite)
  else:
    stablehlo.save(FLAGS.output, run.lm, run.params, run.tokenizer, FLAGS.overwrite)
  print(os.path.abspath(FLAGS.output))


def _check_file(path):
  """Refuses, before anything is read, what cannot be written."""
  ending = os.path.splitext(path)[1]
  if ending not in ENDINGS:
    raise InputError(f"--output={path}: needed for --format=torch: a file that ends in "
                     f"{', '.join(ENDINGS)}")
  if ending in (".pt", ".pth") and importlib.util.find_spec("torch") is None:
    raise InputError(f"--output={path} is written by PyTorch, which is not installed; needed: "
                     "pip install torch, or a file that ends in .safetensors or .npz")
  for one in (path, *_beside(path)):
    if os.path.lexists(one) and not (FLAGS.overwrite and os.path.isfile(one)):
      raise InputError(f"--output={path}: {one} is there; give --overwrite to replace a file, or "
                       "another --output")


def _beside(path):
  """Where the symbols of the ids go, and the tokenizer."""
  return f"{path}.vocabulary.json", f"{path}.tokenizer.json"


def _save_torch(path, run):
  tensors = torch_weights.export_state_dict(run.config.model, run.params)
  tensors = {name: np.ascontiguousarray(its) for name, its in tensors.items()}
  tokenizer = run.tokenizer
  texts = dict(zip(_beside(path), (_symbols(tokenizer), tokenizer.to_json()), strict=True))
  with contextlib.ExitStack() as stack:  # all of them or none
    for name, values in texts.items():
      if values is not None:
        file = stack.enter_context(files.written_whole(name, "output"))
        file.write(json.dumps(values, indent=1).encode("ascii"))
    _write(stack.enter_context(files.written_whole(path, "output")), path, tensors)


def _symbols(tokenizer):
  """The symbol of each id; None where a token need not be a text by itself."""
  if tokenizer.kind not in ("char", "word"):
    return None
  symbols = [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]
  if tokenizer.kind == "word" and tokenizer.end_of_line is not None:
    symbols[tokenizer.end_of_line] = tokenizer.end_of_line_symbol
  return symbols


def _write(file, path, tensors):
  ending = os.path.splitext(path)[1]
  if ending == ".safetensors":
    import safetensors.numpy
    file.write(safetensors.numpy.save(tensors, metadata={"format": "pt"}))
  elif ending == ".npz":
    name = next((name for name, its in tensors.items() if its.dtype == "bfloat16"), None)
    if name:
      raise InputError(f"--output={path}: {name} is in bfloat16, which .npz has not; needed: "
                       ".safetensors or .pt")
    np.savez(file, **tensors)
  else:
    import torch
    try:
      torch.save({name: _tensor(torch, its) for name, its in tensors.items()}, file)
    except RuntimeError as error:  # what PyTorch makes of a full disk
      if not isinstance(error.__context__, OSError):
        raise
      raise error.__context__ from None


def _tensor(torch, array):
  """PyTorch's tensor of an array: NumPy's bfloat16 is unknown to it."""
  array = array.copy()  # one that may be written to
  if array.dtype == "bfloat16":
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
  return torch.from_numpy(array)


if __name__ == "__main__":
  cli.run(main, NAMES)
