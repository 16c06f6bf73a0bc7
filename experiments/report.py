"""Pictures of a run, as one HTML file: `python -m experiments.report --run_dir=D --output=F`.

Its curves, a text coloured by surprisal, its cells and gates over that text, samples.
"""

import os

from absl import flags as absl_flags

from experiments import cli, flags
from hklm import files
from hklm import run as runs
from hklm.data import base, corpora, encoding, texts
from hklm.errors import InputError
from hklm.report import facts, html

FLAGS = flags.FLAGS

absl_flags.DEFINE_integer("text_length", 3000, "The most characters of the text; whole lines, "
                          "where one ends within them.")

NAMES = ("run_dir", "checkpoint", "input", "encoding", "output", "text_length")


def main():
  """Flags to run and text to `facts.collect`, to a page, to a file."""
  if not FLAGS.output:
    raise InputError("--output is not given; needed: the HTML file to write")
  if FLAGS.text_length < 1:
    raise InputError(f"--text_length={FLAGS.text_length} is out of range; needed: 1 or more")
  cli.announce_device()
  run = cli.load_run()
  corpus, source = _text(run)
  lines = _first_lines(corpus, FLAGS.text_length)
  page = html.page(facts.collect(run, lines, source))
  with files.written_whole(FLAGS.output, "output") as file:
    file.write(page.encode("utf-8"))
  print(os.path.abspath(FLAGS.output))


def _text(run):
  """What `--input` gives, or the validation part of what the run's own flags give; and its name."""
  if FLAGS.input:
    if FLAGS.input.removesuffix(".gz").endswith((".csv", ".tsv")):
      raise InputError(f"--input={FLAGS.input}: found a table; needed: plain text, one of its "
                       "columns in a file of its own")
    return flags.corpus("input"), FLAGS.input
  flags.check_text_of_its_own(run, "input")
  file = os.path.join(run.path, "train.flags")
  if os.path.isfile(file):  # a run of `hklm.train` has none
    flags.fill_from_file(file)
  needed = "needed: a text to look at; see --input"
  if "-" in FLAGS.corpus + FLAGS.valid_corpus:
    raise InputError(f"the run's text came from standard input; {needed}")
  if FLAGS.valid_corpus:
    return _unchanged(run, flags.corpus("valid_corpus")), "the run's validation text"
  corpus, config = flags.corpus() or corpora.builtin_corpus(), run.config
  _, valid, _ = corpus.split(config.valid_fraction, config.test_fraction,
                             run.tokenizer.reads_bytes,
                             at_lines=run.tokenizer.kind in ("word", "bpe"))
  if not valid.length(run.tokenizer.reads_bytes):
    raise InputError(f"the run has no validation part; {needed}")
  return _unchanged(run, valid), "the validation part of the run's text"


def _unchanged(run, valid):
  """The text, if the run was validated on it."""
  if not texts.was_validation(encoding.encode_corpus(run.tokenizer, valid),
                              runs.read_contents(run.path).text_fingerprint):
    raise InputError("the run's text has changed since it was trained; needed: that text where it "
                     "was, or another with --input")
  return valid


def _first_lines(corpus, length):
  """The first lines of a text, without their line feeds: at most `length` characters of it."""
  text, chunks = "", corpus.chunks(raw=bool(corpus.raw))
  for chunk in base.decode_utf8(chunks) if corpus.raw else chunks:
    text += chunk
    if len(text) > length:
      text = text[:length]
      text = text[:text.rfind("\n") + 1] or text
      break
  return text.removesuffix("\n").split("\n")


if __name__ == "__main__":
  cli.run(main, NAMES)
