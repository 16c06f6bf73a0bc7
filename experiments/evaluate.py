"""How well a trained model predicts a text: perplexity, bits per token, character and byte.

`python -m experiments.evaluate --run_dir=runs/1 --corpus=FILE`
"""

import json
import math

from absl import flags as absl_flags

import hklm
from experiments import adapting, cli, flags
from hklm.data import corpora, encoding
from hklm.inference import adaptive

FLAGS = flags.FLAGS

absl_flags.DEFINE_integer("window", 256, "Steps per compiled call; changes no figure.")
absl_flags.DEFINE_integer("streams", 1, "Pieces of the text read side by side, each from the "
                          "initial state; a final figure uses 1.")
absl_flags.DEFINE_bool("json", False, "Print one JSON object instead of the table.")
absl_flags.DEFINE_enum("part", "all", ["all", "train", "valid", "test"],
                       "The part of the corpus, split as the run split its own.")

NAMES = ("run_dir", "checkpoint", *flags.TEXT, "window", "streams", "json", "part",
         *adapting.NAMES)


def main():
  """Flags to run and corpus to `hklm.evaluate`, then a table."""
  corpus = flags.corpus() or corpora.builtin_corpus()
  cli.announce_device()
  run = cli.load_run()
  if not FLAGS.corpus:
    flags.check_text_of_its_own(run, "corpus")
  tokenizer = run.tokenizer
  if FLAGS.part != "all":
    parts = corpus.split(run.config.valid_fraction, run.config.test_fraction,
                         tokenizer.reads_bytes, at_lines=tokenizer.kind in ("word", "bpe"))
    corpus = parts[["train", "valid", "test"].index(FLAGS.part)]
  tokens = encoding.encode_corpus(tokenizer, corpus)
  its = adapting.adapting(run, FLAGS.streams == 1, "--streams=1", FLAGS.window)
  if its.reader:
    metrics = adaptive.evaluate_adapting(its.lm, run.params, tokens.ids, its.reader,
                                         tokenizer.unknown)
  else:
    metrics = hklm.evaluate(its.lm, run.params, tokens.ids, FLAGS.window, FLAGS.streams,
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
  if its.names:
    figures["adapting"] = "+".join(its.names)
  if tokens.unknown_examples:
    cli.note(f"unknown words, for example: {' '.join(tokens.unknown_examples)}")
  if FLAGS.json:
    # JSON has no infinity: a perplexity too large for a float is the string "inf".
    print(json.dumps({name: str(value) if isinstance(value, float) and
                      not math.isfinite(value) else value for name, value in figures.items()}))
  else:
    for name, value in figures.items():
      form = {float: ",.6g", int: ","}.get(type(value), "")
      print(f"{name:24}{value:{form}}")


if __name__ == "__main__":
  cli.run(main, NAMES)
