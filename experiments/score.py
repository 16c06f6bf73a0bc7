"""What tokens, words or lines of a text cost: `python -m experiments.score --run_dir=D --input=F`.

A table on standard output, a row a token; what it comes to in all, on standard error.
"""

import collections
import math
import shutil
import sys
import tempfile

from absl import flags as absl_flags

from experiments import adapting, cli, comparing, flags
from hklm import files
from hklm.data import cuts, tables
from hklm.errors import InputError
from hklm.inference import score, scored, states, totals

FLAGS = flags.FLAGS
UNITS = ("token", "word", "line", "total")
FIGURES = ("perplexity", "perplexity_per_word", "bits_per_character", "bits_per_byte")

absl_flags.DEFINE_string("text_column", "", "The column with the texts; the others are repeated.")
absl_flags.DEFINE_enum("per", "token", UNITS, "What a row of the output is.")
absl_flags.DEFINE_enum("output_format", "tsv", tables.FORMATS, "How rows are written.")
absl_flags.DEFINE_enum("start", "eol", score.STARTS, "What is before the first token: the end of a "
                       "line; state: the initial state predicts it; none: it is not available.")
absl_flags.DEFINE_enum("mode", "lines", ["lines", "stream"], "Each line by itself, or all as "
                       "one text.")
absl_flags.DEFINE_string("states", "", "Where gates, cells and outputs at every token go, as .npz.")

NAMES = ("run_dir", "checkpoint", "encoding", "input", "text_column", "per", "output_format",
         "start", "mode", "states", *comparing.NAMES, *adapting.NAMES)


def main():
  """Flags to run and texts to `scored_parts`, then rows."""
  if comparison := comparing.asked(NAMES):
    comparison()
    return
  cli.announce_device()
  run = cli.load_run()
  with tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace",
                              newline="") as table:
    _score(run, table)
    table.seek(0)
    shutil.copyfileobj(table, sys.stdout)  # of a text that is refused, no row is shown


def _score(run, table):
  items = tables.items(FLAGS.input or "-", FLAGS.text_column, FLAGS.encoding)
  stream = FLAGS.mode == "stream"
  its = adapting.adapting(run, stream, "--mode=stream")
  if FLAGS.states and FLAGS.dynamic_rate:
    raise InputError("--states are those of the run's own parameters, and --dynamic_rate changes "
                     "them; needed: one of the two")
  if FLAGS.states:
    items = list(items)
    texts = list(cuts.whole((item.text, item.last) for item in items))
  columns = collections.deque()  # of the parts that are on their way
  lines = score.scored_parts(its.lm, run.params, run.tokenizer, _parts(items, columns),
                             FLAGS.start, stream, its.reader)
  context = "+".join([f"{FLAGS.mode}:{FLAGS.start}", *its.names])
  counted, write, text = totals.Totals(by_block=stream), None, ""
  for line in lines:
    cells, counts = columns.popleft(), counted.add(line)
    if FLAGS.per == "total":
      continue
    if FLAGS.per == "line":
      text += line.text
      if not line.last:
        continue
      line, text = line._replace(text=text), ""
    names, rows = _ROWS[FLAGS.per](line, counts)
    if write is None:
      names = [*names, "context"]
      write = tables.writer(table, names + tables.apart(names, cells), FLAGS.output_format)
    for row in rows:
      write([*row, context, *cells.values()])
  if not counted.sums().tokens:
    raise InputError(f"--input={FLAGS.input or '-'}: nothing to score; needed: at least one token "
                     "after what is before the first; see --start")
  if FLAGS.per == "total":
    _write_totals(table, counted, context)
  if FLAGS.states:
    _write_states(run, texts, stream)
  if counted.unknown_examples:
    cli.note(f"unknown words: {counted.unknown}, for example: "
             f"{' '.join(counted.unknown_examples)}")
  for figure in FIGURES:
    cli.note(f"{figure}: {_with_interval(counted, figure)}")


def _parts(items, columns):
  for item in items:
    columns.append(item.columns)
    yield cuts.Part(item.text, item.last)


def _write_states(run, lines, stream):
  with files.written_whole(FLAGS.states, "states") as file:
    states.save(file, states.states(run.lm, run.params, run.tokenizer, lines, FLAGS.start, stream))


def _token_rows(line, unused_counts):
  return scored.TokenScore._fields, line.tokens()


def _word_rows(line, unused_counts):
  return scored.WordScore._fields, line.by_word()


def _line_rows(line, counts):
  sums = totals.sums_of(counts)
  others = {f"surprisal_bits_{name}": totals.sums_of(counts, *kept).bits
            for name, kept in _KEPT.items() if kept != (True, True)}
  return (("line", "text", "surprisal_bits", *others, *sums._fields[1:], *FIGURES),
          [(line.number, line.text, sums.bits, *others.values(), *sums[1:],
            *(getattr(sums, name) for name in FIGURES))])


_ROWS = {"token": _token_rows, "word": _word_rows, "line": _line_rows}
# Whether the ends of lines count, and whether unknown words do.
_KEPT = {"all": (True, True), "without_ends": (False, True), "without_unknown": (True, False),
         "without_both": (False, False)}


def _write_totals(table, counted, context):
  """A row each for all tokens, and for those without ends of lines, without unknown words."""
  figures = [name for figure in FIGURES for name in (figure, f"{figure}_low", f"{figure}_high")]
  write = tables.writer(table, ["counted", "lines", "surprisal_bits", *totals.Sums._fields[1:],
                                     "unavailable", *figures, "context"], FLAGS.output_format)
  for name, kept in _KEPT.items():
    sums = counted.sums(*kept)
    row = [name, counted.lines, *sums, counted.unavailable]
    for figure in FIGURES:
      row += [getattr(sums, figure), *counted.interval(figure, *kept)]
    write([*row, context])


def _with_interval(counted, figure):
  low, high = counted.interval(figure)
  interval = "" if math.isnan(low) else f" (95 % of resamples: {low:.6g} to {high:.6g})"
  return f"{getattr(counted.sums(), figure):.6g}{interval}"


if __name__ == "__main__":
  cli.run(main, NAMES)
