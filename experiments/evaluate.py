"""How well a trained model predicts a text: perplexity, bits per token, character and byte.

`python -m experiments.evaluate --run_dir=runs/1 --corpus=FILE`
"""

import json

from absl import flags as absl_flags

import hklm
from experiments import cli, flags
from hklm.data import corpora, encoding

FLAGS = flags.FLAGS

absl_flags.DEFINE_integer("window", 256, "Steps per compiled call; changes no figure.")
absl_flags.DEFINE_integer("streams", 1, "Pieces of the text read side by side, each from the "
                          "initial state; a final figure uses 1.")
absl_flags.DEFINE_bool("json", False, "Print one JSON object instead of the table.")
absl_flags.DEFINE_enum("part", "all", ["all", "train", "valid", "test"],
                       "The part of the corpus, split as the run split its own.")

NAMES = ("run_dir", "checkpoint", *flags.TEXT, "window", "streams", "json", "part")


def main():
  """Flags to run and corpus to `hklm.evaluate`, then a table."""
  corpus = flags.corpus() or corpora.builtin_corpus()
  cli.announce_device()
  run = cli.load_run()
  tokenizer = run.tokenizer
  if FLAGS.part != "all":
    parts = corpus.split(run.config.valid_fraction, run.config.test_fraction,
                         tokenizer.reads_bytes, at_lines=tokenizer.kind in ("word", "bpe"))
    corpus = parts[["train", "valid", "test"].index(FLAGS.part)]
  tokens = encoding.encode_corpus(tokenizer, corpus)
  metrics = hklm.evaluate(run.lm, run.params, tokens.ids, FLAGS.window, FLAGS.streams,
                          tokenizer.unknown)
  figures = {
      "tokens": metrics.tokens,
      "nll_nats": metrics.nats,
      "perplexity": metrics.perplexity,
      "bits_per_token": metrics.bits_per_token,
      "bits_per_char": metrics.bits_per(tokens.scored_characters),
      "bits_per_byte": metrics.bits_per(tokens.scored_bytes),
      "oov_tokens": metrics.unknown_tokens,
      "perplexity_without_oov": metrics.known_perplexity,
      "streams": metrics.streams,
      "window": metrics.window,
  }
  if tokens.unknown_examples:
    cli.note(f"unknown words, for example: {' '.join(tokens.unknown_examples)}")
  if FLAGS.json:
    # JSON has no infinity: a perplexity too large for a float is the string "inf".
    print(json.dumps({name: value if abs(value) < float("inf") else str(value)
                      for name, value in figures.items()}))
  else:
    for name, value in figures.items():
      print(f"{name:24}{value:,.6g}" if isinstance(value, float) else f"{name:24}{value:,}")


if __name__ == "__main__":
  cli.run(main, NAMES)
