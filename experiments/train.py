"""Trains a language model: `python -m experiments.train` needs no flag.

The last line on standard output is `validation bits/char X  perplexity Y`, after a sample of text.
"""

import math
import os
import signal
import sys

import jax

import hklm
from experiments import cli, flags, signals
from hklm import run as runs
from hklm import trainer
from hklm.data import texts
from hklm.errors import InputError, Stopped
from hklm.training import processes

FLAGS = flags.FLAGS
SAMPLE_LENGTH = 300
NAMES = ("run_dir", "overwrite", "resume", "init_from", *flags.TEXT, "valid_corpus", "dropout",
         *flags.MODEL, *flags.TOKENIZER, *flags.TRAINING, *flags.MACHINES, "published_tokens",
         "published_vocabulary")


def main():
  """Flags to config to `hklm.train`, then a sample and the validation figure."""
  processes.start(FLAGS.coordinator, FLAGS.process_count, FLAGS.process_index)
  # Of several processes JAX hears SIGTERM, so that all stop after the same update.
  wish = signals.Wish() if FLAGS.process_count == 1 else None
  if not wish:  # Ctrl-C is as good as a SIGTERM
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
  run_dir = _run_dir()
  config = flags.train_config()
  cli.enable_x64_for(config.model)
  corpus, valid_corpus = flags.corpus(), flags.corpus("valid_corpus")
  cli.announce_device()
  cli.note(f"run directory: {os.path.abspath(run_dir)}")
  try:
    run = hklm.train(config, run_dir, corpus or (), valid_corpus or (), overwrite=FLAGS.overwrite,
                     files={"train.flags": flags.flagfile(config)}, resume=FLAGS.resume,
                     init_from=FLAGS.init_from, stop=wish, devices=FLAGS.devices,
                     vocab_shards=FLAGS.vocab_shards,
                     published=texts.Published(FLAGS.published_tokens, FLAGS.published_vocabulary))
  except Stopped as stopped:
    cli.note(str(stopped))
    sys.exit(wish.status if wish else 128 + signal.SIGTERM)
  if not processes.is_first():
    return

  # After an end of line: the initial state itself was met once a stream and epoch only.
  prompt = () if run.tokenizer.end_of_line is None else (run.tokenizer.end_of_line,)
  tokens = hklm.generate(run.lm, run.params, jax.random.key(config.seed), SAMPLE_LENGTH, prompt,
                         temperature=0.8)
  print(run.tokenizer.decode(tokens[:, 0].tolist()))
  cli.note(f"run directory: {run.path}")
  best = trainer.best_validation(run.path)
  if best:
    print(f"validation bits/char {best['valid_bits_per_char']:.4f}  "
          f"perplexity {best['valid_perplexity'] or math.inf:.2f}")
  else:
    print("no validation")


def _run_dir() -> str:
  """Where the run goes; what it resumes or begins from has its say in the flags not given."""
  if FLAGS.resume and FLAGS.overwrite:
    raise InputError("--resume goes on with a run, --overwrite removes it; drop one of them")
  if FLAGS.resume and FLAGS.init_from:
    raise InputError("--resume goes on with a run, --init_from begins another; drop one of them")
  if FLAGS.resume and not FLAGS.run_dir:
    raise InputError("--resume needs --run_dir: the run to go on with")
  if FLAGS.process_count > 1 and not FLAGS.run_dir:
    raise InputError(f"--process_count={FLAGS.process_count} needs --run_dir: one for all")
  run_dir = FLAGS.run_dir or runs.next_free()
  runs.check_free(run_dir, FLAGS.overwrite, FLAGS.resume)
  if FLAGS.resume and runs.is_run(run_dir):
    file = os.path.join(run_dir, "train.flags")
    if os.path.isfile(file):
      flags.fill_from_file(file)
    else:  # a run of `hklm.train`
      flags.fill(runs.read_config(run_dir), (*flags.MODEL, *flags.TOKENIZER, *flags.TRAINING))
  elif FLAGS.init_from:
    try:
      flags.fill(runs.read_config(FLAGS.init_from), (*flags.MODEL, *flags.TOKENIZER))
    except InputError as error:
      raise InputError(f"--init_from={FLAGS.init_from}: {error}") from error
  return run_dir


if __name__ == "__main__":
  cli.run(main, NAMES)
