"""What is compared, read from files: minimal pairs, contexts with candidates.

Tables of tabs are quoted as Python's `csv` quotes them; a file whose first line starts with `{` has
a JSON object a line.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hklm.data import corpora, sources, tables
from hklm.errors import InputError

GOOD, BAD = "sentence_good", "sentence_bad"
CONTEXT, CANDIDATES = "context", "candidates"


class Pair(NamedTuple):
  """Two sentences that differ in what is being asked about.

  Attributes:
    file: where it is from, as the path was given.
    line: its line there, from 1.
    number: its place among the file's pairs, from 0.
    good: the acceptable sentence.
    bad: the other.
    others: what else its row has, by name.
  """

  file: str
  line: int
  number: int
  good: str
  bad: str
  others: Mapping[str, object]


class Completion(NamedTuple):
  """A context with candidates to go on with.

  Attributes:
    line: its line in the file, from 1.
    context: what comes before, perhaps nothing.
    candidates: at least one, none empty.
    others: what else its row has, by name.
  """

  line: int
  context: str
  candidates: Sequence[str]
  others: Mapping[str, object]


def read_pairs(paths: Sequence[str], encoding: str = "utf-8") -> list[Pair]:
  """The pairs of all files, in their order.

  A table has columns `sentence_good` and `sentence_bad`, or no head and just these two, in this
  order; JSON objects have fields with these names.

  Args:
    paths: of files, of folders, whose files count one by one, or `-`.
    encoding: of the files.

  Raises:
    InputError: what cannot be read; a row without two sentences, by file and line.
  """
  return [Pair(name, line, number, cells.pop(GOOD), cells.pop(BAD), cells)
          for path in paths for name, lines in _files(path, encoding, "--pairs")
          for number, (line, cells) in enumerate(_rows(name, lines, _pair_parser, "--pairs"))]


def read_completions(path: str, encoding: str = "utf-8") -> list[Completion]:
  """The contexts of a file.

  A table has no head: context, candidate, candidate and so on, empty cells at the end left out.
  JSON objects have `context` and `candidates`, a list.

  Args:
    path: of the file, or `-`.
    encoding: of the file.

  Raises:
    InputError: what cannot be read; a row without candidates, by its line.
  """
  return [Completion(line, cells.pop(CONTEXT), cells.pop(CANDIDATES), cells)
          for line, cells in _rows(path, numbered_lines(path, encoding, "--completions"),
                                   _completion_parser, "--completions")]


def numbered_lines(path: str, encoding: str, flag: str) -> list[tuple[int, str]]:
  """The lines of a file, without line feeds, numbered from 1.

  Args:
    path: of the file, or `-`.
    encoding: of the file.
    flag: that named the file, for messages.

  Raises:
    InputError: what cannot be read; a folder; no line.
  """
  files = list(_files(path, encoding, flag))
  if len(files) > 1:
    raise InputError(f"{path}: found a folder; needed: a file; see {flag}")
  ((_, lines),) = files
  if not lines:
    raise InputError(f"{path}: nothing to score: found no line; see {flag}")
  return lines


def _files(path, encoding, flag) -> Iterator[tuple[str, list[tuple[int, str]]]]:
  """Of each file at a path its name, which begins as the path was given, and numbered lines."""
  with sources.naming(flag):
    sources.check_encoding(encoding)
    whole = os.path.abspath(os.path.expanduser(path))
    for source in sources.find(path):
      name = source.name if path == "-" else path.rstrip("/") + source.name.removeprefix(whole)
      yield name, list(enumerate(tables.lines(corpora.Corpus((source,), encoding)), 1))


def _rows(name, lines, parser: Callable, flag) -> Iterator[tuple[int, dict]]:
  """The number and the cells of each line that is not blank; a mistake is named with its line."""
  parse, found = None, False
  for number, line in lines:
    if not line.strip():
      continue
    try:
      if parse is None:
        is_head, parse = parser(line)
        if is_head:
          continue
      cells, found = parse(line), True
    except InputError as error:
      raise InputError(f"{name}, line {number}: {error}; see {flag}") from error
    yield number, cells
  if not found:
    raise InputError(f"{name}: nothing to score: found no row; see {flag}")


def _pair_parser(first: str) -> tuple[bool, Callable[[str], dict]]:
  """Whether the first line is a table's head, and what reads a line."""
  if first.lstrip().startswith("{"):
    return False, lambda line: _with_texts(_object(line), GOOD, BAD)
  head = _cells(first)
  is_head = GOOD in head or BAD in head
  if is_head and (len(set(head)) < len(head) or not {GOOD, BAD} <= set(head)):
    raise InputError(f"found the columns {', '.join(head)}; needed: different ones, with {GOOD} "
                     f"and {BAD} among them")
  names = head if is_head else [GOOD, BAD]

  def parse(line):
    cells = _cells(line)
    if len(cells) != len(names):
      raise InputError(f"found {len(cells)} cells between tabs; needed: {len(names)} "
                       f"({', '.join(names)}), with a tab between two")
    return _with_texts(dict(zip(names, cells, strict=True)), GOOD, BAD)
  return is_head, parse


def _completion_parser(first: str) -> tuple[bool, Callable[[str], dict]]:
  """As above; a table has no head."""
  if first.lstrip().startswith("{"):
    return False, lambda line: _with_candidates(_object(line))

  def parse(line):
    context, *candidates = _cells(line)
    while candidates and not candidates[-1]:  # a spreadsheet's rows are all equally long
      candidates.pop()
    return _with_candidates({CONTEXT: context, CANDIDATES: candidates})
  return False, parse


def _cells(line: str) -> list[str]:
  try:
    return next(csv.reader([line], delimiter="\t", strict=True))
  except csv.Error as error:
    raise InputError(f"{error}; needed: quotes around a cell that has quotes in it, those inside "
                     "doubled") from error


def _no_constant(name):
  raise ValueError(f"{name} is no number of JSON")


def _object(line: str) -> dict:
  try:
    found = json.loads(line, parse_constant=_no_constant)
  except (ValueError, RecursionError) as error:
    raise InputError(f"found no JSON ({error}); needed: an object a line") from error
  if not isinstance(found, dict):
    raise InputError(f"found {type(found).__name__}; needed: a JSON object a line")
  return found


def _with_texts(cells: dict, *names: str) -> dict:
  for name in names:
    if not _is_text(cells.get(name)):
      raise InputError(f"found {name} {json.dumps(cells.get(name))}; needed: a text on one line, "
                       "not empty")
  return cells


def _with_candidates(cells: dict) -> dict:
  context, candidates = cells.get(CONTEXT), cells.get(CANDIDATES)
  if context != "" and not _is_text(context):
    raise InputError(f"found {CONTEXT} {json.dumps(context)}; needed: a text on one line")
  if not (isinstance(candidates, list) and candidates and all(map(_is_text, candidates))):
    raise InputError(f"found {CANDIDATES} {json.dumps(candidates)}; needed: one or more texts, "
                     "each on one line and not empty")
  return cells


def _is_text(value) -> bool:
  return isinstance(value, str) and value != "" and "\n" not in value
