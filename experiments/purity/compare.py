"""Compares checkers of purity: how much of the catalogue each finds, and what it accuses falsely.

Makes a virtual environment, installs this library and the other checkers there, and judges every
example with each of them, in a few minutes and on the CPU.

  python -m experiments.purity.compare             # the environment is thrown away afterwards
  python -m experiments.purity.compare --env=DIR   # kept in DIR, and used again the next time
  python -m experiments.purity.compare --misses    # also lists each checker's mistakes by name
"""

import itertools
import json
import pathlib
import tempfile
import textwrap
from typing import NamedTuple

from absl import flags

from experiments import cli
from experiments.purity import catalogue, environment
from experiments.purity.apart import IMPURE, NOT_APPLIED, PURE

ENV = flags.DEFINE_string("env", "", "Folder of the virtual environment; empty: a temporary one.")
MISSES = flags.DEFINE_bool("misses", False, "List what each checker missed or accused falsely.")

PACKAGES = ("hklm", "mypy-pure", "pure-validator", "pure-function-decorators", "jax")
DECORATORS = "pure-function-decorators"
COMPILED_BEFORE = "forbid_side_effects, compiled before"
# Each row of the table: the judge, the package it belongs to.
ROWS = (
    ("hklm.purity", "hklm"),
    ("mypy-pure", "mypy-pure"),
    ("pure-validator", "pure-validator"),
    ("enforce_deterministic", DECORATORS),
    ("forbid_globals", DECORATORS),
    ("forbid_side_effects", DECORATORS),
    (COMPILED_BEFORE, DECORATORS),
    ("immutable_arguments", DECORATORS),
    ("jax.checking_leaks", "jax"),
)
COMBINABLE = ("enforce_deterministic", "forbid_globals", COMPILED_BEFORE, "immutable_arguments")


class Score(NamedTuple):
  """A checker's verdicts on the catalogue, sorted by what they are worth: names of examples.

  `accused` are the pure ones not called pure, though the checker could be applied.
  """

  found: tuple[str, ...]
  missed: tuple[str, ...]
  accused: tuple[str, ...]
  not_applied: tuple[str, ...]


def score(verdicts: dict[str, str]) -> Score:
  """Sorts verdicts, by name, on all examples.

  An impure example to which the checker could not be applied is missed as well.
  """
  impure = [example.name for example in catalogue.IMPURE]
  pure = [example.name for example in catalogue.PURE]
  return Score(found=tuple(name for name in impure if verdicts[name] == IMPURE),
               missed=tuple(name for name in impure if verdicts[name] != IMPURE),
               accused=tuple(name for name in pure if verdicts[name] not in (PURE, NOT_APPLIED)),
               not_applied=tuple(name for name in (*impure, *pure)
                                 if verdicts[name] == NOT_APPLIED))


def combined(verdicts_by_judge: list[dict[str, str]]) -> dict[str, str]:
  """The verdicts of several checkers in one: impure if any says so, pure only if all do."""
  def verdict(verdicts):
    return IMPURE if IMPURE in verdicts else NOT_APPLIED if NOT_APPLIED in verdicts else PURE
  return {name: verdict([verdicts[name] for verdicts in verdicts_by_judge])
          for name in verdicts_by_judge[0]}


def best_combination(verdicts: dict[str, dict[str, str]]) -> tuple[str, ...]:
  """The decorators that find most, less what they accuse falsely, when used together."""
  def worth(judges):
    its_score = score(combined([verdicts[judge] for judge in judges]))
    return len(its_score.found) - len(its_score.accused)
  return max((judges for size in range(2, len(COMBINABLE) + 1)
              for judges in itertools.combinations(COMBINABLE, size)), key=worth)


def table(rows: list[tuple[str, str, Score]]) -> str:
  """The table's text: a line for each checker, its version and its score."""
  impure, pure = len(catalogue.IMPURE), len(catalogue.PURE)
  lines = [("checker", "version", f"impure found of {impure}", f"pure falsely accused of {pure}",
            f"could not be applied of {impure + pure}")]
  lines += [(name, version, str(len(its.found)), str(len(its.accused)), str(len(its.not_applied)))
            for name, version, its in rows]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return "\n".join("  ".join(
      cell.ljust(width) if column < 2 else cell.rjust(width)
      for column, (cell, width) in enumerate(zip(line, widths, strict=True))) for line in lines)


def mistakes(name: str, its: Score) -> str:
  """A checker's mistakes, in lines of the usual width."""
  parts = (("missed", its.missed), ("falsely accused", its.accused),
           ("could not be applied", its.not_applied))
  return "\n".join([name, *(textwrap.fill(f"{what} ({len(names)}): {', '.join(names)}", 100,
                                          initial_indent="  ", subsequent_indent="    ")
                            for what, names in parts if names)])


def compare(folder: pathlib.Path) -> tuple[list[tuple[str, str, Score]], tuple[str, ...]]:
  """Judges the catalogue by every checker, in an environment in this folder.

  Returns:
    The table's rows, and the decorators of its row for a combination.
  """
  cli.note(f"installing into {folder}")
  python = environment.create(folder)
  versions = environment.versions(python, PACKAGES)
  verdicts, rows = {}, []
  for judge, package in ROWS:
    cli.note(f"judging by {judge}")
    judged = json.loads(environment.judge(python, judge))
    verdicts[judge] = {name: verdict for name, (verdict, unused_why) in judged.items()}
    name = f"{package}: {judge}" if package == DECORATORS else judge
    rows.append((name, versions[package], score(verdicts[judge])))
  together = best_combination(verdicts)
  row = (f"{DECORATORS}: the best combination", versions[DECORATORS],
         score(combined([verdicts[judge] for judge in together])))
  return [*rows[:-1], row, rows[-1]], together


def main():
  environment.check_python()
  with tempfile.TemporaryDirectory() as temporary:
    rows, together = compare(pathlib.Path(ENV.value or temporary).absolute())
  print(table(rows))
  print()
  print(textwrap.fill(
      "The best combination is the one that finds most, less what it accuses falsely; an example "
      f"is impure to it if one of these objects: {'; '.join(together)}. \"compiled before\": the "
      "function was called once without the decorator, since JAX reads the clock when it compiles. "
      "jax.checking_leaks, which looks for leaked tracers alone, ran under jax.jit.", 100))
  if MISSES.value:
    for name, _, its in rows:
      print()
      print(mistakes(name, its))


if __name__ == "__main__":
  cli.run(main)
