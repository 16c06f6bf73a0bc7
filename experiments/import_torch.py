"""Makes a run directory of a PyTorch model's weights, which every other program reads.

`python -m experiments.import_torch --checkpoint=model.pt --vocabulary=words.txt --run_dir=runs/2`

Prints where each tensor went. Nothing of the file is executed.
"""

import os

from absl import flags as absl_flags

from experiments import cli, flags
from hklm import run as runs
from hklm.config import TokenizerConfig, TrainConfig
from hklm.errors import InputError
from hklm.interop import torch, vocabulary, weights

FLAGS = flags.FLAGS

absl_flags.DEFINE_string("vocabulary", "", "What each id stands for: a symbol a line, or JSON; "
                         "default: what the checkpoint says.")
absl_flags.DEFINE_string("gate_order", torch.GATES, "The order of the LSTM's gates in the source; "
                         "PyTorch's is ifgo, TensorFlow's igfo, torch-rnn's ifog.")
absl_flags.DEFINE_float("forget_offset", 0.0, "What the source adds to the forget gate at run "
                        "time; TensorFlow's cells 1.")

NAMES = ("checkpoint", "run_dir", "overwrite", "tokenizer", "unknown", "end_of_line")


def main():
  """Flags to files to a run directory, then a table."""
  if not FLAGS.checkpoint:
    raise InputError("--checkpoint is not given; needed: a file with a state dict")
  run_dir = runs.check_free(FLAGS.run_dir or runs.next_free(), FLAGS.overwrite)
  tensors, symbols = weights.read(FLAGS.checkpoint, symbols=not FLAGS.vocabulary)
  imported = torch.import_state_dict(tensors, FLAGS.gate_order, FLAGS.forget_offset)
  weights.release(tensors)  # what was changed is there twice
  del tensors
  if FLAGS.vocabulary:
    symbols = vocabulary.read(FLAGS.vocabulary)
  if symbols is None:
    raise InputError(f"{FLAGS.checkpoint} has no vocabulary (tokens, itos or idx2word); needed: "
                     f"--vocabulary, the {imported.config.vocab_size} symbols of the model, one a "
                     "line or JSON")
  tokenizer = vocabulary.tokenizer(
      symbols, imported.config.vocab_size, FLAGS.tokenizer if FLAGS["tokenizer"].present else "",
      FLAGS.unknown, FLAGS.end_of_line,
      needed=[name for name in ("unknown", "end_of_line") if FLAGS[name].present])
  config = TrainConfig(imported.config, TokenizerConfig(
      tokenizer.kind, unknown=FLAGS.unknown, end_of_line=FLAGS.end_of_line,
      symbols_in_text=tokenizer.kind == "word"))
  path = runs.create(run_dir, runs.Contents(config, tokenizer), FLAGS.overwrite,
                     params=imported.params)
  for row in (("tensor", "shape", "parameter", "note"), *imported.report):
    print("\t".join(map(_cell, row)).rstrip())
  if tokenizer.kind == "word" and tokenizer.unknown is None and FLAGS.unknown:
    cli.note(f"the vocabulary has no {FLAGS.unknown}: words that it lacks are errors; --unknown "
             "names the one that stands for them")
  if tokenizer.kind == "word" and tokenizer.end_of_line is None and FLAGS.end_of_line:
    cli.note(f"the vocabulary has no {FLAGS.end_of_line}: line feeds are only white space; "
             "--end_of_line names what ends a line")
  cli.note(f"run directory: {os.path.abspath(path)}")


def _cell(value) -> str:
  return ",".join(map(str, value)) if isinstance(value, tuple) else value


if __name__ == "__main__":
  cli.run(main, NAMES)
