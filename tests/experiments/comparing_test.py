"""What `experiments.score` prints for pairs, lists and completions: every figure by hand."""

import dataclasses
import json
import math
import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import score
from hklm import run
from hklm.config import TokenizerConfig, TrainConfig
from hklm.data import characters
from tests import on_disk
from tests.experiments import binaries
from tests.inference import unigram
from tests.training import texts

# The run's model has the bits <unk> 5, <eos> 5, a 1, b 2, c 3, d 4, whatever is before.
_SHARED = {}


def setUpModule():
  folder = tempfile.TemporaryDirectory()
  _SHARED["folder"] = folder
  _SHARED["run"] = run.create(os.path.join(folder.name, "run"), run.Contents(
      TrainConfig(model=unigram.CONFIG, tokenizer=TokenizerConfig("word")), unigram.TOKENIZER))
  on_disk.write(_SHARED["run"], "best", unigram.model()[1])


def tearDownModule():
  _SHARED["folder"].cleanup()
  _SHARED.clear()


def write(name, text):
  return texts.write(_SHARED["folder"].name, name, text)


def flag(name, text):
  """`--name` of a file with this text."""
  return f"--{name}={write(name, text)}"


class ComparingTest(parameterized.TestCase):

  def scored(self, *flags):
    done = binaries.here(score, f"--run_dir={_SHARED['run']}", *flags)
    self.assertEqual(done.status, 0, done.stderr)
    return done

  def rows(self, *flags):
    """Of a table of tabs, by column."""
    head, *rows = [line.split("\t") for line in self.scored(*flags).stdout.splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]

  def assert_refused(self, message, *flags):
    done = binaries.here(score, f"--run_dir={_SHARED['run']}", *flags)
    self.assertEqual((done.status, done.stdout), (1, ""))
    self.assertIn(message, done.stderr.splitlines()[-1])
    self.assertEqual(done.stderr.count("error: "), 1)


class PairsTest(ComparingTest):

  def setUp(self):
    super().setUp()
    self.table = write("table.tsv", "sentence_good\tsentence_bad\tkind\n"
                                    "a b\ta d\tx\nc\ta a a\ty\nd zebra\ta\tz\n")
    self.objects = write("objects.jsonl", '{"sentence_good": "b", "sentence_bad": "b b", "n": 3}\n')

  def test_a_row_a_pair(self):
    rows = self.rows(f"--pairs={self.table}", f"--pairs={self.objects}")
    self.assertEqual([(os.path.basename(row["file"]), row["pair"], row["sentence_good"],
                       row["result"], row["kind"], row["n"], row["start"]) for row in rows], [
        ("table.tsv", "0", "a b", "good", "x", "", "eol"),
        ("table.tsv", "1", "c", "tie", "y", "", "eol"),
        ("table.tsv", "2", "d zebra", "bad", "z", "", "eol"),
        ("objects.jsonl", "0", "b", "good", "", "3", "eol")])
    for name, expected in (("surprisal_bits_good", (8, 8, 14, 7)),
                           ("surprisal_bits_bad", (10, 8, 6, 9)),
                           ("difference_bits", (2, 0, -8, 2)), ("tokens_good", (3, 2, 3, 2)),
                           ("tokens_bad", (3, 4, 2, 3)), ("unknown_good", (0, 0, 1, 0))):
      np.testing.assert_allclose([float(row[name]) for row in rows], expected, atol=1e-5)

  def test_per_token(self):
    rows = self.rows(f"--pairs={self.table}", "--pairs_per_token")
    np.testing.assert_allclose([float(row["difference_bits_per_token"]) for row in rows],
                               [2 / 3, 8 / 4 - 8 / 2, 6 / 2 - 14 / 3], atol=1e-5)
    self.assertEqual([row["result"] for row in rows], ["good", "bad", "bad"])

  def test_accuracies_with_ties_apart(self):
    flags = (f"--pairs={self.table}", f"--pairs={self.objects}")
    last = self.scored(*flags).stderr.splitlines()[-3:]
    self.assertEqual(last, [
        f"accuracy of {self.table}: 0.333333 (1 good, 1 bad, 1 tie, of 3)",
        f"accuracy of {self.objects}: 1 (1 good, 0 bad, 0 tie, of 1)",
        "accuracy of all: 0.5 (2 good, 1 bad, 1 tie, of 4)"])
    rows = self.rows(*flags, "--per=total")
    self.assertEqual([tuple(row.values()) for row in rows], [
        (self.table, "3", "1", "1", "1", "0.333333333333", "eol"),
        (self.objects, "1", "1", "0", "0", "1", "eol"),
        ("all", "4", "2", "1", "1", "0.5", "eol")])

  def test_json_lines_from_the_initial_state(self):
    done = self.scored(f"--pairs={self.table}", "--output_format=jsonl", "--start=state")
    first, *_ = map(json.loads, done.stdout.splitlines())
    self.assertEqual((first["kind"], first["start"], first["result"]), ("x", "state", "good"))

  def test_mistakes(self):
    self.assert_refused("line 1: found 1 cells", flag("pairs", "a"), f"--pairs={self.table}")
    self.assert_refused("--per=word does not go with --pairs", f"--pairs={self.table}",
                        "--per=word")
    self.assert_refused("--start=none leaves out", f"--pairs={self.table}", "--start=none")


MOSES = ("0 ||| d ||| LM= -1 ||| -1.0 ||| 0-0\n0 ||| a ||| LM= -9 ||| -2\n"
         "1 ||| b  c ||| LM= -1 ||| -3\n1 ||| c b ||| LM= -1 ||| -3\n")


class NbestTest(ComparingTest):

  def test_moses(self):
    # d: -1 - w 9 log 2; a: -2 - w 6 log 2; both others: -3 - w 10 log 2.
    totals = [-1 - 4.5 * math.log(2), -2 - 3 * math.log(2), -3 - 5 * math.log(2)]
    done = self.scored(flag("nbest", MOSES), "--nbest_weight=0.5")
    heads, tails = zip(*(line.split(" ||| -", 1) for line in done.stdout.splitlines()), strict=True)
    self.assertEqual(heads, ("0 ||| a ||| LM= -9", "0 ||| d ||| LM= -1", "1 ||| b  c ||| LM= -1",
                             "1 ||| c b ||| LM= -1"))
    self.assertEndsWith(tails[1], " ||| 0-0")
    np.testing.assert_allclose([-float(tail.split()[0]) for tail in tails],
                               [totals[1], totals[0], totals[2], totals[2]], rtol=1e-6)

  def test_without_weight_all_is_as_it_was(self):
    done = self.scored(flag("nbest", MOSES), "--nbest_weight=0")
    self.assertEqual(done.stdout, MOSES.replace("-1.0", "-1"))

  def test_the_penalty_is_for_each_word(self):
    text = "7 ||| a b ||| s ||| 1\n7 ||| a ||| s ||| -1\n7 |||  ||| s ||| -2\n"
    done = self.scored(flag("nbest", text), "--nbest_weight=0", "--nbest_word_penalty=3")
    self.assertEqual(done.stdout, "7 |||  ||| s ||| -2\n7 ||| a ||| s ||| -4\n"
                                  "7 ||| a b ||| s ||| -5\n")

  def test_tuned(self):
    # "a" has the higher total once w exceeds 1 / (3 log 2) = 0.48; "c b" is never the first.
    done = self.scored(flag("nbest", MOSES), flag("nbest_tune", "a\nc b\n"))
    self.assertRegex(done.stderr, r"\n--nbest_weight=0.5, of 0, 0\.01, .*, 20: word error rate "
                     r"66\.67 % \(2 errors, 3 words\); with 0: 100 % \(3 errors, 3 words\)\n")
    fixed = self.scored(flag("nbest", MOSES), "--nbest_weight=0.5")
    self.assertEqual(done.stdout, fixed.stdout)

  def test_kaldi_with_costs(self):
    hypotheses = flag("nbest", "u-x-1 d\nu-x-2 a\nu-y-1 zebra\n")
    costs = flag("nbest_scores", "u-x-1 1\nu-x-2 2\nu-y-1 -0.5\n")
    new = os.path.join(_SHARED["folder"].name, "new_costs")
    done = self.scored(hypotheses, costs, f"--nbest_costs_to={new}")
    self.assertEqual(done.stdout, "u-x-2 a\nu-x-1 d\nu-y-1 zebra\n")
    with open(new, encoding="utf-8") as file:
      keys, values = zip(*(line.split() for line in file), strict=True)
    self.assertEqual(keys, ("u-x-2", "u-x-1", "u-y-1"))
    np.testing.assert_allclose(np.array(values, float), np.array([2, 1, -.5])
                               + np.array([6, 9, 10]) * math.log(2), rtol=1e-6)
    without = self.scored(hypotheses, "--nbest_weight=-1")
    self.assertEqual(without.stdout, "u-x-1 d\nu-x-2 a\nu-y-1 zebra\n")

  @parameterized.parameters(
      (("--nbest_weight=1", "--nbest_tune=x"), "found --nbest_weight and --nbest_tune; needed"),
      (("--nbest_weight=inf",), "--nbest_weight=inf is not finite; needed: a finite number"),
      (("--nbest_word_penalty=nan",), "--nbest_word_penalty=nan is not finite"),
      (("--nbest_tune=",), "found an empty path, needed a file"),
      (("--nbest_costs_to=x",), "--nbest_costs_to is for Kaldi's format"),
      (("--output_format=csv",), "--output_format changes nothing with --nbest"))
  def test_mistakes(self, flags, message):
    self.assert_refused(message, flag("nbest", MOSES), *flags)


class CompletionsTest(ComparingTest):

  def test_a_row_a_candidate(self):
    rows = self.rows(flag("completions", "a b\t c\t a\t d a\na\tb\t zebra\n"))
    self.assertEqual([(row["item"], row["candidate_index"], row["context"], row["candidate"],
                       row["rank"], row["tokens"], row["unknown"]) for row in rows], [
        ("0", "0", "a b", " c", "2", "1", "0"), ("0", "1", "a b", " a", "1", "1", "0"),
        ("0", "2", "a b", " d a", "3", "2", "0"), ("1", "0", "a", "b", "1", "1", "1"),
        ("1", "1", "a", " zebra", "1", "1", "1")])
    np.testing.assert_allclose([float(row["surprisal_bits"]) for row in rows], [3, 1, 5, 5, 5],
                               rtol=1e-6)

  def test_words_that_are_glued_are_noted(self):
    done = self.scored(flag("completions", "a b\tc\t d\n"))
    self.assertIn("1 candidates go on with the context's last word, as there is no space between",
                  done.stderr)
    done = self.scored(flag("completions", "a b\t c\t.\n"))
    self.assertNotIn("go on with", done.stderr)

  def test_json_lines(self):
    text = '{"context": "", "candidates": ["b"], "rank": [1, 2]}\n'
    (row,) = self.rows(flag("completions", text))
    self.assertEqual((row["rank"], row["input_rank"]), ("1", "[1, 2]"))
    done = self.scored(flag("completions", text), "--output_format=jsonl")
    self.assertEqual(json.loads(done.stdout)["input_rank"], [1, 2])


class FlagsTest(ComparingTest):

  @parameterized.parameters(
      (("--pairs=x", "--nbest=y"), "found --pairs and --nbest; needed: one of them"),
      (("--input=x", "--completions=y"), "found --input and --completions; needed: one of them"),
      (("--nbest=x", "--mode=stream"), "--mode changes nothing with --nbest"),
      (("--pairs=x", "--text_column=y"), "--text_column changes nothing with --pairs"),
      (("--completions=x", "--per=line"), "--per changes nothing with --completions"),
      (("--input=x", "--nbest_weight=2"), "--nbest_weight changes nothing with --input"),
      (("--pairs_per_token",), "--pairs_per_token changes nothing with --input"),
      (("--pairs=x", "--pairs="), "/x: No such file or directory; needed: a text file"))
  def test_that_do_not_go_together(self, flags, message):
    self.assert_refused(message, *flags)


class CharactersTest(ComparingTest):
  """A run whose parameters are all zero, so that every character has the probability 1 / 4."""

  def run_dir(self):
    if "characters" not in _SHARED:
      config = dataclasses.replace(unigram.CONFIG, vocab_size=4)
      zeros = jax.tree.map(jnp.zeros_like, hklm.language_model(config).init(jax.random.key(0)))
      path = run.create(os.path.join(_SHARED["folder"].name, "characters"), run.Contents(
          TrainConfig(model=config), characters.CharTokenizer("\n ab")))
      on_disk.write(path, "best", zeros)
      _SHARED["characters"] = path
    return f"--run_dir={_SHARED['characters']}"

  def test_the_shorter_wins_and_equally_long_ones_tie(self):
    rows = self.rows(self.run_dir(), flag("pairs", "ab\tabb\nab a\ta\nb\ta\nbb aa\tab ab\n"))
    self.assertEqual([row["result"] for row in rows], ["good", "bad", "tie", "tie"])
    np.testing.assert_allclose([float(row["surprisal_bits_good"]) for row in rows],
                               [6, 10, 4, 12], rtol=1e-6)

  @parameterized.parameters(
      ("--pairs", "a\tb\n\nab\tax\n", ", line 3: found 'x' (U+0078) at position 1"),
      ("--completions", "a\tb\ta\nab\tx\n", ", line 2: found 'x' (U+0078) at position 2"),
      ("--nbest", "u-1 ab\nu-2 x\n", ", line 2: found 'x' (U+0078) at position 0"))
  def test_what_the_tokenizer_refuses_is_named_by_file_and_line(self, flag, text, message):
    path = write("refused", text)
    self.assert_refused(f"error: {path}{message}", self.run_dir(), f"{flag}={path}")


if __name__ == "__main__":
  absltest.main()
