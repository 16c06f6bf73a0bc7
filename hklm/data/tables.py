"""Texts with what belongs to each, from lines or a spreadsheet's CSV or TSV; and rows out.

A table's first row names its columns. Cells are quoted as Python's `csv` quotes them. Rows without
any text in them are left out.
"""

import collections
import csv
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TextIO

from hklm.data import corpora, cuts, sources
from hklm.errors import InputError

FORMATS = ("tsv", "csv", "jsonl")
_DELIMITERS = {".tsv": "\t", ".csv": ","}


class Item(NamedTuple):
  """A text, or a part of a long line.

  Attributes:
    text: without line feed.
    columns: the other cells of its row, by the name of their column; empty for plain text.
    last: whether the line ends with this part.
  """

  text: str
  columns: Mapping[str, str]
  last: bool = True


def lines(corpus: corpora.Corpus) -> Iterator[str]:
  """The lines of a text, without their line feeds; nothing but a line feed ends one.

  >>> list(lines(corpora.corpus_of("to be\\n\\nor\\x0bnot")))
  ['to be', '', 'or\\x0bnot']
  """
  return cuts.whole(cuts.lines(corpus.chunks()))


def items(path: str, text_column: str = "", encoding: str = "utf-8") -> Iterator[Item]:
  """The texts of a file, one after the other; a long line of plain text in parts.

  Args:
    path: a file (`.gz`: decompressed), or `-` for standard input. What ends in `.csv` or `.tsv`
      before that is a table.
    text_column: where a table has its texts. With it, any other file is a table too. What its first
      row has is between cells: the comma or tab that its name says, else a tab, comma or semicolon.
    encoding: of the file.

  Raises:
    InputError: what cannot be read; no such column; a row of another length (by number).
  """
  with sources.naming("--input"):
    corpus = corpora.open_corpus([path], encoding)
  plain = path.removesuffix(".gz")
  delimiter = next((its for end, its in _DELIMITERS.items() if plain.endswith(end)), "")
  if not (text_column or delimiter):
    return (Item(text, {}, last) for text, last in _naming_input(cuts.lines(corpus.chunks())))
  if len(corpus.sources) > 1:  # each would have a head of its own
    raise InputError(f"{path}: found a folder; needed: one table; see --input")
  return _of_table(path, _naming_input(lines(corpus)), text_column, delimiter)


def _naming_input(found):
  with sources.naming("--input"):
    yield from found


def _of_table(path, found, text_column, delimiter):
  head = next(found, "")
  if head.startswith("PK\3\4"):
    raise InputError(f"{path}: found a spreadsheet's own format; needed: it saved as CSV")
  if not delimiter or delimiter not in head:  # as with ; where a comma is in numbers
    delimiter = next((its for its in "\t,;" if its in head), delimiter or ",")
  csv.field_size_limit(sys.maxsize)  # a text may have any length
  rows = csv.reader((line + "\n" for line in itertools.chain([head], found)), delimiter=delimiter,
                    strict=True)
  try:
    names = next(rows, [])
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
      raise InputError(f"{path}: found {names.count(twice[0])} columns called {twice[0]!r}; "
                       "needed: names that differ")
    if text_column not in names:
      raise InputError(f"{path}: found the columns {', '.join(names) or 'none'}; needed: "
                       "--text_column to name the one with texts, found "
                       f"--text_column={text_column}")
    for number, row in enumerate(rows, 2):
      if not any(row):  # blank, as spreadsheets have them at the end
        continue
      if len(row) != len(names):
        raise InputError(f"{path}: row {number} has {len(row)} cells, the first {len(names)}; "
                         "needed: as many, with quotes around a cell that has the separator in it")
      cells = dict(zip(names, row, strict=True))
      if "\n" in cells[text_column]:
        raise InputError(f"{path}: row {number}: found a line feed in {text_column}; needed: a "
                         "text on one line")
      yield Item(cells.pop(text_column), cells)
  except csv.Error as error:
    raise InputError(f"{path}: row {rows.line_num}: {error}; needed: quotes around a cell that has "
                     "quotes in it, those inside doubled, as a spreadsheet exports it") from error


def apart(taken: Iterable[str], names: Iterable[str]) -> list[str]:
  """Names that are none of those taken, and different: others get `input_` before them.

  >>> apart(["line", "token"], ["item", "line", "input_line"])
  ['item', 'input_line', 'input_input_line']
  """
  taken, found = set(taken), []
  for name in names:
    while name in taken:
      name = f"input_{name}"
    taken.add(name)
    found.append(name)
  return found


def writer(file: TextIO, names: Iterable[str], form: str = "tsv") -> Callable[[Iterable], None]:
  """Writes a table's head, and returns what writes a row.

  Numbers have 12 digits. What is not available is an empty cell, in JSON null.

  Args:
    file: to write to.
    names: of the columns.
    form: `tsv`, `csv` or `jsonl` (an object a line, and no head).

  >>> import sys
  >>> row = writer(sys.stdout, ["word", "bits"], "jsonl")
  >>> row(["naïve", math.nan])
  {"word": "naïve", "bits": null}
  """
  names = list(names)
  if form == "jsonl":
    def write(row):
      cells = (None if isinstance(cell, float) and not math.isfinite(cell) else cell
               for cell in row)
      file.write(json.dumps(dict(zip(names, cells, strict=True)), ensure_ascii=False) + "\n")
    return write
  table = csv.writer(file, delimiter="\t" if form == "tsv" else ",", lineterminator="\n")
  table.writerow(names)
  return lambda row: table.writerow(map(_cell, row))


def _cell(value):
  if isinstance(value, bool):
    return int(value)
  if isinstance(value, float):
    return "" if math.isnan(value) else f"{value:.12g}"
  return value
