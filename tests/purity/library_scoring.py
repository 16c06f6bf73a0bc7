"""Public functions of scoring that are pure, each with a call."""

import functools
import io
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from hklm.data import characters, corpora, cuts, tables
from hklm.data.base import Encoding
from hklm.inference import (
  adaptive,
  cache,
  compare,
  dynamic,
  lines,
  places,
  predictions,
  rescore,
  score,
  scored,
  states,
  streams,
  temperature,
  totals,
)
from tests.purity.library_makers import (
  B,
  Call,
  H,
  T,
  V,
  call,
  fitted,
  got,
  listed,
  lm,
  params,
  refused,
  window,
)

TOKENIZER = characters.CharTokenizer("\nab")
IDS = [[0, 1, 2], [], [3]]


@functools.cache
def line() -> scored.ScoredLine:
  starts, ends = np.array([0, 1, 2]), np.array([1, 2, 2])
  return scored.ScoredLine(
      0, "ab", ["a", "b", "\\n"], starts, ends, starts, ends, np.ones(3), np.ones(4),
      np.ones(3, int), np.zeros(3, bool), np.array([0, 0, 1]), True)


def counted(function, *args) -> Call:
  """A call of a method of `Totals` that have a line."""
  def after_a_line(line):
    its = totals.Totals()
    its.add(line)
    return function(its, *args)
  return call(after_a_line, line())


def writing(form):
  def written(row):
    file = io.StringIO()
    tables.writer(file, ["word", "bits"], form)(row)
    return file.getvalue()
  return call(written, ["a", 0.5])


PURE: dict[str, Callable[[], Call]] = {
    "data.tables.apart": lambda: call(tables.apart, ["line"], ["item", "line"]),
    "data.tables.lines": lambda: call(listed(tables.lines), corpora.corpus_of("a\n\nb")),
    "data.tables.writer": lambda: writing("tsv"),
    "data.tables.writer, of JSON": lambda: writing("jsonl"),
    "inference.lines.checked": lambda: call(lines.checked, [0, 2], 0, 3),
    "inference.lines.laid_out": lambda: call(lines.laid_out, [np.array([1, 2])], 4, 2),
    "inference.lines.padded": lambda: call(lines.padded, 9),
    "inference.places.both": lambda: call(
        places.both, "né", Encoding(np.zeros(2), np.array([0, 1]), np.array([1, 2])), False),
    "inference.places.size": lambda: call(places.size, "né"),
    "inference.places.words": lambda: call(
        places.words, "a b", np.array([0, 1, 2])),
    "inference.predictions.Figures.on_host": lambda: call(
        predictions.Figures(*np.ones([4, 3], np.float32)).on_host),
    "inference.predictions.at_the_start": lambda: call(predictions.at_the_start, lm(), params()),
    "inference.predictions.figures": lambda: call(
        predictions.figures, jnp.log(jnp.array([[.5, .3, .2]])), jnp.array([1])),
    "inference.predictions.finite": lambda: call(
        predictions.finite, predictions.Predictions(np.ones(2), np.ones(3), np.ones(2)), 0),
    "inference.predictions.of_the_first": lambda: call(
        predictions.of_the_first, np.log([.5, .3, .2]), 1),
    "inference.predictions.predict_lines": lambda: call(
        predictions.predict_lines, lm(), params(), IDS, 1),
    "inference.predictions.read": lambda: call(
        lambda params, tokens: predictions.read(
            lm(), params, tokens[:-1], tokens[1:], lm().initial_state(params, 2)),
        params(), window()),
    "inference.score.score": lambda: call(
        lambda params: score.score(lm(), params, characters.CharTokenizer("\nabc"), ["ab", ""]),
        params()),
    "inference.score.scored_lines": lambda: call(
        listed(score.scored_lines), lm(), params(), characters.CharTokenizer("\nabc"), ["ab", ""],
        "none", True),
    "inference.score.scored_parts": lambda: call(
        listed(score.scored_parts), lm(), params(), characters.CharTokenizer("\nabc"),
        [cuts.Part("ab", False), cuts.Part("c", True)]),
    "inference.scored.ScoredLine.by_word": lambda: call(listed(scored.ScoredLine.by_word), line()),
    "inference.scored.ScoredLine.tokens": lambda: call(listed(scored.ScoredLine.tokens), line()),
    "inference.streams.predict_stream": lambda: call(
        listed(streams.predict_stream), lm(), params(), IDS),
    **{f"inference.totals.Sums.{name}": lambda name=name: call(
        got(name), totals.Sums(3.0, 2, 1, 4, 5, 3.0))
       for name in ("perplexity", "perplexity_per_word", "bits_per_character", "bits_per_byte")},
    "inference.totals.Totals": lambda: call(lambda: totals.Totals(by_block=True).lines),
    "inference.totals.Totals.add": lambda: counted(lambda its: its.lines),
    "inference.totals.Totals.interval": lambda: counted(totals.Totals.interval, "perplexity"),
    "inference.totals.Totals.sums": lambda: counted(totals.Totals.sums, False),
    "inference.totals.sums_of": lambda: call(totals.sums_of, np.ones([4, 6]), False, True),
    "inference.compare.Cost.bits_per_token": lambda: call(
        got("bits_per_token"), compare.Cost(3.0, 2, 0)),
    "inference.compare.Cost.log_p": lambda: call(got("log_p"), compare.Cost(3.0, 2, 0)),
    "inference.compare.continuations": lambda: call(
        compare.continuations, lm(), params(), characters.CharTokenizer("\nabc"),
        [("ab", "c"), ("", "a")]),
    "inference.compare.costs": lambda: call(
        compare.costs, lm(), params(), characters.CharTokenizer("\nabc"), ["ab", "", "ab"]),
    "inference.compare.ranks": lambda: call(compare.ranks, [3.0, 1.0, 3.0]),
    "inference.compare.verdict": lambda: call(compare.verdict, 3.0, 1.0),
    "inference.adaptive.evaluate_adapting": lambda: call(
        lambda *x: adaptive.evaluate_adapting(*x, adaptive.reader(lm())), lm(), params(), [0, 1]),
    "inference.adaptive.reader": lambda: call(
        lambda lm: adaptive.reader(lm, cache.CacheSettings(2, 0.1, 1.0)).window, lm()),
    "inference.cache.check_cache": lambda: call(
        refused(cache.check_cache), cache.CacheSettings(2, 1.0, 1.0)),
    "inference.cache.empty_cache": lambda: call(cache.empty_cache, lm(), params(), 2, B),
    "inference.cache.with_cache": lambda: call(
        cache.with_cache, jnp.zeros([T, B, V]), jnp.ones([T, B, H]), window()[:T],
        cache.empty_cache(lm(), params(), 2, B), 0.1, 1.0),
    "inference.dynamic.adapted": lambda: call(
        dynamic.adapted, *[jnp.ones([2])] * 4, dynamic.DynamicSettings(0.1, 0.1)),
    "inference.dynamic.check_dynamic": lambda: call(
        refused(dynamic.check_dynamic), dynamic.DynamicSettings(0.0, 0.1)),
    "inference.dynamic.gradient_sizes": lambda: call(
        dynamic.gradient_sizes, lm(), params(), [window(), window()]),
    "inference.dynamic.wide": lambda: call(dynamic.wide, jnp.ones([2], jnp.bfloat16)),
    "inference.streams.plain_reader": lambda: call(
        lambda lm: streams.plain_reader(lm).window, lm()),
    "inference.temperature.tempered": lambda: call(temperature.tempered, lm(), 2.0),
    "inference.temperature.tune_temperature": lambda: call(
        temperature.tune_temperature, lm(), params(), [0, 1, 2, 3, 0], 2),
    "inference.rescore.best_first": lambda: call(
        rescore.best_first, ["b", "a", "b"], [1.0, 2.0, 3.0]),
    "inference.rescore.totals": lambda: call(
        rescore.totals, [-4.0, -5.0], [-3.0, -1.0], [2, 1], 0.5, 0.25),
    "inference.rescore.tune": lambda: call(
        rescore.tune, [0, 0], ["a b", "c"], [-1.0, -2.0], [-5.0, -3.0], {0: "c"}),
    "inference.rescore.word_errors": lambda: call(
        rescore.word_errors, ["a", "b"], ["b", "c", "b"]),
    "inference.score.encoded": lambda: call(score.encoded, fitted("word"), "a cab", 0),
    "inference.score.first_id": lambda: call(score.first_id, fitted("char"), "eol"),
    "inference.states.states": lambda: call(
        states.states, lm(), params(), characters.CharTokenizer("abcd"), ["ab", "", "d"], "state"),
}
