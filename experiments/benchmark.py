"""How fast hklm is beside Haiku's and Flax's idioms and PyTorch: the same work, in turns.

`python -m experiments.benchmark` prints a table for each measure, in about 8 minutes on 2 cores.
Contenders that are not installed are left out. A ratio is another's time divided by hklm's in the
same round: above 1, hklm is faster.

  python -m experiments.benchmark --measures=train --workloads=char --contenders=hklm,torch
  python -m experiments.benchmark --workload=mine:5000,256,512,2,32,64 --workloads=mine
  python -m experiments.benchmark --grow=T --plot=growth.png
  python -m experiments.benchmark --measures=cells
"""

import os

import jax
from absl import flags

from experiments import cli
from experiments.speed import choices, contenders, files, machine, measures, tables, workloads
from hklm.errors import InputError

MEASURES = ("train", "lstm", "evaluate", "generate", "score", "memory")
LONG = ("save", "cells")  # not measured unless asked for
UNPLOTTED = ("memory", "cells")  # no times, or none of contenders

flags.DEFINE_list("measures", list(MEASURES), f"Some of {', '.join(MEASURES + LONG)}; default: all "
                  "but the last two. For the workload char, save takes a minute a round; cells, "
                  "all of hklm's beside its LSTM, a few minutes.")
flags.DEFINE_multi_string("workload", [], "NAME:V,E,H,layers,B,T, sizes of your own for train, "
                          "evaluate and save, and the first for cells; may be given several times.")
flags.DEFINE_list("workloads", [], "Some of the named sizes, built in or given; default: all.")
flags.DEFINE_list("contenders", list(contenders.NAMES), "hklm, and others to compare it with.")
flags.DEFINE_integer("alternations", 7, "Rounds, in each of which each contender works once.")
flags.DEFINE_enum("grow", None, choices.AXES, "In place of the measures: training steps of the "
                  "first of the workloads, with this size from a quarter to four times, or 1 to 4 "
                  "layers.")
flags.DEFINE_bool("peak_memory", True, "Measure peaks of memory, in processes of their own.")
flags.DEFINE_string("json_file", "", "Where all figures go, as JSON.")
flags.DEFINE_string("plot", "", "Where the plot goes, as PNG.")
FLAGS = flags.FLAGS

NAMES = ("measures", "workload", "workloads", "contenders", "alternations", "grow", "peak_memory",
         "json_file", "plot")


def main():
  """Flags to measures, then tables."""
  if FLAGS.alternations < 1:
    raise InputError(f"--alternations={FLAGS.alternations} is out of range; needed: 1 or more")
  names = choices.chosen("contenders", FLAGS.contenders, contenders.NAMES)
  if contenders.BASE not in names:
    raise InputError(f"--contenders={','.join(names)} leaves out {contenders.BASE}; needed: it, "
                     "with which the others are compared")
  asked = choices.chosen("measures", FLAGS.measures, MEASURES + LONG)
  if FLAGS.grow and FLAGS["measures"].present:
    raise InputError("--grow stands in place of --measures; drop one of them")
  if FLAGS.plot and set(asked) <= set(UNPLOTTED) and not FLAGS.grow:
    raise InputError("--plot draws contenders' ratios of time, of which --measures="
                     f"{','.join(asked)} has none; needed: another measure, or --json_file in "
                     "place of --plot")
  works = _works()
  for flag in ("json_file", "plot"):
    if FLAGS[flag].value:
      choices.check_file(flag, FLAGS[flag].value)
  if FLAGS.json_file and os.path.realpath(FLAGS.json_file) == os.path.realpath(FLAGS.plot):
    raise InputError(f"--json_file and --plot are both {FLAGS.plot}; needed: two files")
  if FLAGS.plot:
    files.check_matplotlib()
  # An executable from an earlier run's cache would be no compilation to measure.
  jax.config.update("jax_enable_compilation_cache", False)
  cli.announce_device()
  field = {name: contenders.module(name) for name in names if contenders.installed(name)}
  left_out = [name for name in names if name not in field]
  computer = machine.description()
  print(f"{', '.join(f'{name} {value}' for name, value in computer.items())}\n"
        f"Medians and quartiles of {FLAGS.alternations} rounds, in each of which everyone has a "
        f"turn.\nLeft out, not installed: {', '.join(left_out) or 'nobody'}.")
  rows = []
  for measure in (["grow"] if FLAGS.grow else asked):
    its = _measured(measure, field, works)
    print(f"\n{tables.table(its)}", flush=True)
    rows += its
  if FLAGS.json_file:
    files.write_json(FLAGS.json_file, {
        "machine": computer, "alternations": FLAGS.alternations, "left_out": left_out,
        "rows": [tables.values(row, rows) for row in rows]})
  if FLAGS.plot and FLAGS.grow:
    files.plot_growth(FLAGS.plot, rows, FLAGS.grow)
  elif FLAGS.plot:
    files.plot_ratios(FLAGS.plot, rows)


def _works() -> list[workloads.Workload]:
  """The workloads that are trained and evaluated."""
  named = choices.named_workloads(FLAGS.workload)
  works = [named[name] for name in choices.chosen("workloads", FLAGS.workloads or list(named),
                                                  list(named))]
  if FLAGS.grow:
    works = choices.grown(works[0], FLAGS.grow)
  for work in works:
    choices.check_memory(work)
  return works


def _measured(measure, field, works) -> list[measures.Row]:
  """The rows of one measure."""
  rounds, peaks = FLAGS.alternations, FLAGS.peak_memory
  its = {
      "grow": lambda: [measures.train(field, work, rounds, peaks, measure="grow")
                       for work in works],
      "train": lambda: [measures.train(field, work, rounds, peaks) for work in works],
      "lstm": lambda: [measures.lstm(field, workloads.LSTM, rounds)],
      "evaluate": lambda: [measures.evaluate(field, work, rounds) for work in works],
      "generate": lambda: [measures.generate(field, work, rounds)
                           for work in workloads.GENERATED],
      "score": lambda: [measures.score(field, workloads.LINES, rounds)],
      "save": lambda: [measures.save(work, rounds) for work in works],
      "cells": lambda: [measures.cells(works[0], rounds)],
      "memory": lambda: [measures.memory(field, workloads.LARGE_VOCABULARY, peaks)],
  }
  return [row for rows in its[measure]() for row in rows]


if __name__ == "__main__":
  cli.run(main, NAMES)
