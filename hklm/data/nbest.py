"""Lists of hypotheses, as Moses and Kaldi write them, read and written again.

  Moses   id ||| text ||| name= value ... ||| total ||| ...   what is after the total, as it comes
  Kaldi   utterance-n text                                    costs, if any, in a file `key cost`
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from hklm.data import comparisons
from hklm.errors import InputError

_BAR = "|||"


class Hypothesis(NamedTuple):
  """A line of a list.

  Attributes:
    line: its number in the file, from 1.
    key: what costs go by: Kaldi's `utterance-n`; Moses has none, and it is empty.
    id: what it is a hypothesis of: a sentence's number, as spelled, or an utterance.
    text: its words, without white space around.
    total: what the list gives it; the higher, the better. Of a cost, its negative.
    parts: the line but for the total: joined by a total, they are the line.
  """

  line: int
  key: str
  id: str
  text: str
  total: float
  parts: tuple[str, ...]

  def written(self, total: float) -> str:
    """The line, with another total where it has one.

    >>> parse_moses(1, "0 ||| a b ||| lm= -2 ||| -3.50").written(-2.25)
    '0 ||| a b ||| lm= -2 ||| -2.25'
    """
    return number(total).join(self.parts)


def number(value: float) -> str:
  """Twelve digits, no more than needed.

  >>> number(-2.50), number(-0.0)
  ('-2.5', '0')
  """
  return f"{value + 0.0:.12g}"  # -0.0 + 0.0 is 0.0


def read(path: str, costs: str = "", encoding: str = "utf-8") -> list[Hypothesis]:
  """A list of either format; its first line decides.

  Args:
    path: of the list, or `-`.
    costs: path of a file with a line `key cost` for each line of a list of Kaldi's; without one,
      all totals are 0.
    encoding: of the files.

  Raises:
    InputError: what cannot be read; a line of another format, by its number; a key that comes
      twice, or has no cost.
  """
  lines = comparisons.numbered_lines(path, encoding, "--nbest")
  moses = _BAR in lines[0][1]
  if moses and costs:
    raise InputError(f"{path}: found Moses's format, which has totals of its own; needed: no "
                     "--nbest_scores")
  found = [hypothesis for _, hypothesis in _parsed(path, lines, parse_moses if moses
                                                   else parse_kaldi, "--nbest")]
  if moses:
    return found
  first = {}
  for hypothesis in found:
    if (line := first.setdefault(hypothesis.key, hypothesis.line)) != hypothesis.line:
      raise InputError(f"{path}, line {hypothesis.line}: found the key {hypothesis.key} of line "
                       f"{line} again; needed: different ones; see --nbest")
  if not costs:
    return found
  cost_of = {}
  for number, (key, cost) in _parsed(
      costs, comparisons.numbered_lines(costs, encoding, "--nbest_scores"), _parse_cost,
      "--nbest_scores"):
    if key in cost_of:
      raise InputError(f"{costs}, line {number}: found a second cost of {key}; needed: one; see "
                       "--nbest_scores")
    cost_of[key] = cost
  for hypothesis in found:
    if hypothesis.key not in cost_of:
      raise InputError(f"{costs}: found no cost of {hypothesis.key}, line {hypothesis.line} of "
                       f"{path}; needed: a line 'key cost' for each; see --nbest_scores")
  return [hypothesis._replace(total=-cost_of[hypothesis.key]) for hypothesis in found]


def read_references(path: str, hypotheses: Sequence[Hypothesis],
                    encoding: str = "utf-8") -> dict[str, str]:
  """What was really said, for each id of a list.

  Lines are `id text`. For Moses's lists they may also be texts alone, one for each id, in the order
  of the ids as numbers: the file is read so unless every id starts a line of its own.

  Args:
    path: of the file, or `-`.
    hypotheses: the list.
    encoding: of the file.

  Raises:
    InputError: what cannot be read; an id without a reference, or with several; no words at all.
  """
  lines = comparisons.numbered_lines(path, encoding, "--nbest_tune")
  ids = list(dict.fromkeys(hypothesis.id for hypothesis in hypotheses))
  keyed = {}
  for line_number, line in lines:
    if line.strip():
      id_, *words = line.split()
      keyed.setdefault(id_, []).append((line_number, " ".join(words)))
  missing = [id_ for id_ in ids if id_ not in keyed]
  if missing and not hypotheses[0].key:
    return _with_words(path, _by_order(path, ids, [line for _, line in lines], missing[0]))
  if missing:
    raise InputError(f"{path}: found no reference of {missing[0]}; needed: a line 'id text' for "
                     "each; see --nbest_tune")
  for id_ in ids:
    if len(keyed[id_]) > 1:
      raise InputError(f"{path}, line {keyed[id_][1][0]}: found a second reference of {id_}; "
                       "needed: one; see --nbest_tune")
  return _with_words(path, {id_: keyed[id_][0][1] for id_ in ids})


def parse_moses(line_number: int, line: str) -> Hypothesis:
  """A line of Moses's.

  Raises:
    InputError: fewer than four fields; no id; a total that is no finite number.
  """
  fields = line.split(_BAR)
  if len(fields) < 4 or not fields[0].strip():
    raise InputError(f"found {len(fields)} fields between {_BAR}; needed: id {_BAR} text {_BAR} "
                     f"scores {_BAR} total")
  total = fields[3].strip()
  before, _, after = fields[3].partition(total or " ")
  return Hypothesis(
      line_number, "", fields[0].strip(), fields[1].strip(), _finite(total),
      (_BAR.join([*fields[:3], before]), _BAR.join([after, *fields[4:]])))


def parse_kaldi(line_number: int, line: str) -> Hypothesis:
  """A line of Kaldi's.

  Raises:
    InputError: no key with the number of a hypothesis at its end.

  >>> parse_kaldi(7, "spk1-utt-02-3 so it goes")[1:4]
  ('spk1-utt-02-3', 'spk1-utt-02', 'so it goes')
  """
  key, text = [*line.split(None, 1), "", ""][:2]
  id_, _, place = key.rpartition("-")
  if not (id_ and place.isdecimal()) or _BAR in line:
    raise InputError(f"found {line[:40]!r}; needed: 'utterance-n text' as Kaldi has it, n a "
                     f"number, or in every line 'id {_BAR} text {_BAR} scores {_BAR} total' as "
                     "Moses has it")
  return Hypothesis(line_number, key, id_, text.strip(), 0.0, (line,))


def _parsed(path, lines, parse, flag):
  """Numbers and what each line is; a mistake is named with its line."""
  for line_number, line in lines:
    try:
      yield line_number, parse(line_number, line)
    except InputError as error:
      raise InputError(f"{path}, line {line_number}: {error}; see {flag}") from error


def _parse_cost(unused_line_number, line):
  cells = line.split()
  if len(cells) != 2:
    raise InputError(f"found {len(cells)} words; needed: key and cost")
  return cells[0], _finite(cells[1])


def _finite(text) -> float:
  try:
    value = float(text)
  except ValueError:
    value = math.nan
  if not math.isfinite(value):
    raise InputError(f"found {text!r} as a score; needed: a finite number")
  return value


def _by_order(path, ids, texts, missing):
  if len(texts) != len(ids):
    raise InputError(f"{path}: found no line that starts with {missing}, and {len(texts)} lines "
                     f"for {len(ids)} ids; needed: a line 'id text' for each, or as many lines as "
                     "ids; see --nbest_tune")
  try:
    ordered = sorted(ids, key=int)
  except ValueError as error:
    raise InputError(f"{path}: found no line that starts with {missing}, and ids that are no "
                     "numbers; needed: a line 'id text' for each; see --nbest_tune") from error
  return dict(zip(ordered, texts, strict=True))


def _with_words(path, references):
  if not any(text.split() for text in references.values()):
    raise InputError(f"{path}: found no word in the references; needed: one at least; see "
                     "--nbest_tune")
  return references
