"""What `experiments.score` does with --pairs, --nbest or --completions in place of --input."""

import collections
import json
import math
import sys
from collections.abc import Callable, Iterable

from absl import flags as absl_flags

from experiments import cli, flags
from hklm import files
from hklm.data import comparisons, nbest, tables
from hklm.errors import InputError
from hklm.inference import compare, rescore

FLAGS = flags.FLAGS

absl_flags.DEFINE_multi_string("pairs", [], "Minimal pairs, as a table of tabs or JSON lines with "
                               "sentence_good and sentence_bad; a folder: all its files.")
absl_flags.DEFINE_bool("pairs_per_token", False, "Compare bits per token, not the sums.")
absl_flags.DEFINE_string("nbest", "", "A list of hypotheses, Moses's or Kaldi's, to order anew.")
absl_flags.DEFINE_string("nbest_scores", "", "Kaldi's costs, lines 'key cost'; without: all 0.")
absl_flags.DEFINE_float("nbest_weight", 1.0, "Of the model's natural log-probability, which is "
                        "added to a hypothesis's total.")
absl_flags.DEFINE_float("nbest_word_penalty", 0.0, "Taken off the total for each word.")
absl_flags.DEFINE_string("nbest_tune", "", "References of --nbest: takes the weight with which the "
                         "best hypotheses have the fewest word errors.")
absl_flags.DEFINE_string("nbest_costs_to", "", "A file for new costs of a list of Kaldi's.")
absl_flags.DEFINE_string("completions", "", "Contexts, each with candidates to rank, as a table of "
                         "tabs or JSON lines with context and candidates.")

_TAKES = {
    "pairs": ("pairs_per_token", "output_format", "per"),
    "nbest": ("nbest_scores", "nbest_weight", "nbest_word_penalty", "nbest_tune", "nbest_costs_to"),
    "completions": ("output_format",)}
_ALL_TAKE = ("run_dir", "checkpoint", "encoding", "start")

NAMES = (*_TAKES, "pairs_per_token", *_TAKES["nbest"])


def asked(names: Iterable[str]) -> Callable[[], None] | None:
  """What the flags ask for; None if it is no comparison.

  Args:
    names: of all flags of the program, `NAMES` among them.

  Raises:
    InputError: flags that do not go together.
  """
  given = [name for name in ("input", *_TAKES) if FLAGS[name].present]
  if len(given) > 1:
    raise InputError(f"found {' and '.join(f'--{name}' for name in given)}; needed: one of them")
  task = given[0] if given else "input"
  takes = (set(names) - set(NAMES) if task == "input" else {*_ALL_TAKE, task, *_TAKES[task]})
  for name in names:
    if FLAGS[name].present and name not in takes:
      raise InputError(f"--{name} changes nothing with --{task}; needed: to leave it out")
  return {"pairs": _pairs, "nbest": _nbest, "completions": _completions}.get(task)


def _pairs():
  """A row a pair, or with --per=total a row a file; accuracies on standard error."""
  if FLAGS["per"].present and FLAGS.per != "total":
    raise InputError(f"--per={FLAGS.per} does not go with --pairs; needed: --per=total for a row a "
                     "file, or no --per for a row a pair")
  pairs = comparisons.read_pairs(FLAGS.pairs, FLAGS.encoding)
  texts = [text for pair in pairs for text in (pair.good, pair.bad)]
  costs = _scored(compare.costs, texts, zip(texts, (_place(pair) for pair in pairs for _ in "gb"),
                                            strict=True))
  unit = "_per_token" if FLAGS.pairs_per_token else ""
  results, rows = collections.defaultdict(collections.Counter), []
  for pair, good, bad in zip(pairs, costs[::2], costs[1::2], strict=True):
    compared = [cost.bits_per_token if unit else cost.bits for cost in (good, bad)]
    result = compare.verdict(*compared)
    results[pair.file][result] += 1
    rows.append((pair.file, pair.number, pair.good, pair.bad, good.bits, bad.bits,
                 compared[1] - compared[0], result, good.tokens, bad.tokens, good.unknown,
                 bad.unknown, FLAGS.start))
  results["all"] = sum(results.values(), collections.Counter())
  if FLAGS.per == "total":
    _write(("file", "pairs", "good", "bad", "tie", "accuracy", "start"),
           [(name, its.total(), its["good"], its["bad"], its["tie"], _accuracy(its), FLAGS.start)
            for name, its in results.items()], [{}] * len(results))
  else:
    _write(("file", "pair", comparisons.GOOD, comparisons.BAD, "surprisal_bits_good",
            "surprisal_bits_bad", f"difference_bits{unit}", "result", "tokens_good", "tokens_bad",
            "unknown_good", "unknown_bad", "start"), rows, [pair.others for pair in pairs])
  for name, its in results.items():
    cli.note(f"accuracy of {name}: {_accuracy(its):.6g} ({its['good']} good, {its['bad']} bad, "
             f"{its['tie']} tie, of {its.total()})")


def _accuracy(results):
  return results["good"] / results.total()


def _nbest():
  """The list, the best first."""
  tuning = FLAGS["nbest_tune"].present
  if FLAGS["nbest_weight"].present and tuning:
    raise InputError("found --nbest_weight and --nbest_tune; needed: one of them")
  for name in ("nbest_weight", "nbest_word_penalty"):
    if not abs(FLAGS[name].value) < float("inf"):
      raise InputError(f"--{name}={FLAGS[name].value} is not finite; needed: a finite number")
  found = nbest.read(FLAGS.nbest, FLAGS.nbest_scores, FLAGS.encoding)
  if FLAGS.nbest_costs_to and not found[0].key:
    raise InputError("--nbest_costs_to is for Kaldi's format, and the list is Moses's, which has "
                     "its totals in its lines; needed: to leave it out")
  references = (nbest.read_references(FLAGS.nbest_tune, found, FLAGS.encoding)
                if tuning else None)
  texts = [its.text for its in found]
  costs = _scored(compare.costs, texts, ((its.text, f"{FLAGS.nbest}, line {its.line}")
                                         for its in found))
  ids, given = [its.id for its in found], [its.total for its in found]
  log_p = [cost.log_p for cost in costs]
  weight = FLAGS.nbest_weight
  if tuning:
    tuned = rescore.tune(ids, texts, given, log_p, references, FLAGS.nbest_word_penalty)
    weight = tuned.weight
    cli.note(f"--nbest_weight={weight:g}, of {', '.join(f'{w:g}' for w in tuned.errors)}: word "
             f"error rate {_rate(tuned, weight)}; with 0: {_rate(tuned, 0.0)}")
  totals = rescore.totals(given, log_p, [len(text.split()) for text in texts], weight,
                          FLAGS.nbest_word_penalty).tolist()
  if not all(map(math.isfinite, totals)):
    raise InputError(f"--nbest_weight={weight:g} --nbest_word_penalty={FLAGS.nbest_word_penalty:g} "
                     "give totals that are not finite; needed: smaller ones")
  order = rescore.best_first(ids, totals)
  if FLAGS.nbest_costs_to:
    with files.written_whole(FLAGS.nbest_costs_to, "nbest_costs_to") as file:
      file.writelines(f"{found[n].key} {nbest.number(-totals[n])}\n".encode() for n in order)
  for n in order:
    sys.stdout.write(found[n].written(totals[n]) + "\n")


def _rate(tuned, weight):
  errors = tuned.errors[weight]
  return f"{100 * errors / tuned.words:.4g} % ({errors} errors, {tuned.words} words)"


def _completions():
  """A row a candidate."""
  found = comparisons.read_completions(FLAGS.completions, FLAGS.encoding)
  pairs = [(its.context, candidate) for its in found for candidate in its.candidates]
  places = [f"{FLAGS.completions}, line {its.line}" for its in found for _ in its.candidates]
  glued = [f"{place}: {before[-1:]}{after[0]}" for (before, after), place in
           zip(pairs, places, strict=True) if before[-1:].isalnum() and after[0].isalnum()]
  if glued:
    cli.note(f"{len(glued)} candidates go on with the context's last word, as there is no space "
             f"between ({glued[0]})")
  costs = iter(_scored(compare.continuations, pairs, zip(map("".join, pairs), places, strict=True)))
  rows, others = [], []
  for number, its in enumerate(found):
    own = [next(costs) for _ in its.candidates]
    for index, (candidate, cost, rank) in enumerate(zip(
        its.candidates, own, compare.ranks([cost.bits for cost in own]), strict=True)):
      rows.append((number, index, its.context, candidate, cost.bits, rank, cost.tokens,
                   cost.unknown, FLAGS.start))
      others.append(its.others)
  _write(("item", "candidate_index", comparisons.CONTEXT, "candidate", "surprisal_bits", "rank",
          "tokens", "unknown", "start"), rows, others)


def _place(pair):
  return f"{pair.file}, line {pair.line}"


def _scored(costs: Callable, things, texts_and_places: Iterable[tuple[str, str]]):
  """What a run makes of things, after each text was tried, so that none is refused half-way."""
  cli.announce_device()
  run = cli.load_run()
  for text, place in texts_and_places:
    try:
      run.tokenizer.encode(text)
    except InputError as error:
      raise InputError(f"{place}: {error}") from error
  return costs(run.lm, run.params, run.tokenizer, things, FLAGS.start)


def _write(names, rows, others):
  """Rows with what else belongs to each, in columns of their own; a cell that is lacking is empty.
  """
  extra = list(dict.fromkeys(name for cells in others for name in cells))
  write = tables.writer(sys.stdout, [*names, *tables.apart(names, extra)], FLAGS.output_format)
  for row, cells in zip(rows, others, strict=True):
    write([*row, *(_cell(cells.get(name)) for name in extra)])


def _cell(value):
  """In a table, what JSON has for lists and objects."""
  nested = isinstance(value, (list, dict)) and FLAGS.output_format != "jsonl"
  return json.dumps(value, ensure_ascii=False) if nested else value
