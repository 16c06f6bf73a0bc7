"""Writes text with a trained model: the prompt and its continuation, alone, as it comes.

`python -m experiments.sample --run_dir=runs/1 --prompt="The " --length=200 --temperature=0.8`
"""

import itertools
import sys

import jax
from absl import flags as absl_flags

from experiments import cli, flags
from hklm.errors import InputError
from hklm.inference.generate import generate_stream

FLAGS = flags.FLAGS
CHUNK = 16  # tokens between prints

absl_flags.DEFINE_string("prompt", "", "The text to continue; empty: from the initial state.")
absl_flags.DEFINE_integer("length", 500, "New tokens a sample; the prompt does not count.")
absl_flags.DEFINE_float("temperature", 1.0, "Logits are divided by it; 0: always the likeliest.")
absl_flags.DEFINE_integer("top_k", None, "Sample among the k likeliest tokens only.")
absl_flags.DEFINE_float("top_p", None, "Sample among the likeliest tokens that reach this "
                        "probability together.")
absl_flags.DEFINE_integer("samples", 1, "How many; with several, a line names each.")
absl_flags.DEFINE_string("stop", "", "A text of one token that ends a sample; it is not printed.")
absl_flags.DEFINE_bool("no_echo", False, "Leave the prompt out.")

NAMES = ("run_dir", "checkpoint", "prompt", "length", "temperature", "top_k", "top_p", "samples",
         "stop", "no_echo", "seed")


def main():
  """Flags to run to `generate_stream`, printed while it goes on."""
  if not 0 <= FLAGS.seed < 2**32:
    raise InputError(f"--seed={FLAGS.seed} is out of range; needed: 0 to 2**32 - 1")
  cli.announce_device()
  run = cli.load_run()
  prompt = run.tokenizer.encode(FLAGS.prompt).tolist()
  stop = _stop_id(run.tokenizer, FLAGS.stop)
  chunks = generate_stream(
      run.lm, run.params, jax.random.key(FLAGS.seed), FLAGS.length, prompt, FLAGS.temperature,
      FLAGS.top_k, FLAGS.top_p, FLAGS.samples, stop, chunk=CHUNK)
  if FLAGS.samples > 1:  # whole, one after the other
    chunks = list(chunks)
  for n in range(FLAGS.samples):
    if FLAGS.samples > 1:
      print(f"--- sample {n + 1} ---")
    new = (int(token) for chunk in chunks for token in chunk[:, n])
    new = itertools.takewhile(lambda token: token != stop, new)
    shown = itertools.chain(() if FLAGS.no_echo else prompt, new)
    for text in run.tokenizer.decode_stream(shown):
      sys.stdout.write(text)
      sys.stdout.flush()
    print()


def _stop_id(tokenizer, text):
  """The id of the one token that `text` is, or None for no text."""
  ids = tokenizer.encode(text).tolist()
  if len(ids) > 1:
    raise InputError(f"--stop={text!r} is {len(ids)} tokens; needed: a text of one token")
  return ids[0] if ids else None


if __name__ == "__main__":
  cli.run(main, NAMES)
