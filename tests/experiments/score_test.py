"""What the binary `score` prints: from lines or a spreadsheet, as rows that other programs read."""

import csv
import io
import json
import math
import os
import tempfile
from unittest import mock

import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import cli, evaluate, score, train
from hklm.data import cuts
from hklm.inference import score as scoring
from hklm.inference import states, totals
from tests.experiments import binaries
from tests.training import texts

TEXT = texts.sentences(1500)
LINES = TEXT.splitlines()[:6]


class ScoreTestCase(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder, cls.run_dir = folder.name, os.path.join(folder.name, "run")
    corpus = texts.write(cls.folder, "corpus.txt", TEXT)
    binaries.here(train, f"--run_dir={cls.run_dir}", f"--corpus={corpus}", "--hidden_size=8",
                  "--embedding_size=4", "--batch_size=4", "--bptt=10", "--steps=8")
    cls.path = texts.write(cls.folder, "lines.txt", "\n".join(LINES) + "\n")
    cls.trained = hklm.load_run(cls.run_dir)

  def score(self, *flags, path=None):
    """What is printed, and what is said."""
    done = binaries.here(score, f"--run_dir={self.run_dir}", f"--input={path or self.path}",
                         *flags)
    return done.stdout, done.stderr

  def rows(self, *flags, path=None):
    return list(csv.DictReader(io.StringIO(self.score(*flags, path=path)[0]), delimiter="\t"))

  def spreadsheet(self):
    path = os.path.join(self.folder, "items.csv")
    with open(path, "w", encoding="utf-8", newline="") as file:
      table = csv.writer(file)
      table.writerow(["item", "sentence", "token"])
      for number, line in enumerate(LINES):
        table.writerow([f"i{number}, a", line, "x"])
    return path


class RowsTest(ScoreTestCase):

  def test_a_row_a_token(self):
    expected = hklm.score(self.trained.lm, self.trained.params, self.trained.tokenizer, LINES)
    found = self.rows()
    self.assertEqual(list(found[0]), [*expected[0]._fields, "context"])
    self.assertLen(found, len(expected))
    for row, its in zip(found, expected, strict=True):
      for name, value in its._asdict().items():
        if isinstance(value, float):
          self.assertAlmostEqual(float(row[name]), value, delta=1e-5 * abs(value) + 1e-7)
        else:
          self.assertEqual(row[name], str(int(value) if isinstance(value, bool) else value))
      self.assertEqual(row["context"], "lines:eol")

  def test_a_spreadsheets_other_columns_are_repeated(self):
    found = self.rows("--text_column=sentence", path=self.spreadsheet())
    plain = self.rows()
    for row, its in zip(found, plain, strict=True):
      self.assertEqual(row.pop("item"), f"i{row['line']}, a")
      self.assertEqual(row.pop("input_token"), "x")  # a column of ours has that name
      self.assertEqual(row, its)

  @parameterized.parameters("token", "word", "line")
  def test_sums_are_the_same_whatever_a_row_is(self, unit):
    for flags in ((), ("--mode=stream",)):
      found = self.rows(f"--per={unit}", *flags)
      total, *_ = self.rows("--per=total", *flags)
      bits = float(total["surprisal_bits"])
      self.assertAlmostEqual(math.fsum(float(row["surprisal_bits"]) for row in found), bits,
                             delta=1e-9 * bits)

  def test_json_lines(self):
    printed, _ = self.score("--output_format=jsonl", "--start=none")
    rows = [json.loads(line) for line in printed.splitlines()]
    self.assertIsNone(rows[0]["surprisal_bits"])
    self.assertEqual("".join(row["token"] for row in rows if row["line"] == 0), LINES[0] + "\\n")
    self.assertEqual(rows[0]["context"], "lines:none")

  def test_a_stream_is_what_evaluate_reads(self):
    total, *_ = self.rows("--per=total", "--mode=stream", "--start=none")
    done = binaries.here(evaluate, "--json", f"--run_dir={self.run_dir}", f"--corpus={self.path}")
    figures = json.loads(done.stdout)
    self.assertEqual(int(total["tokens"]), figures["tokens"])
    self.assertAlmostEqual(float(total["perplexity"]), figures["perplexity"], 4)
    self.assertAlmostEqual(float(total["bits_per_character"]), figures["bits_per_char"], 5)
    self.assertAlmostEqual(float(total["bits_per_byte"]), figures["bits_per_byte"], 5)

  def test_totals(self):
    rows = self.rows("--per=total")
    self.assertEqual([row["counted"] for row in rows],
                     ["all", "without_ends", "without_unknown", "without_both"])
    every, no_ends, *_ = rows
    self.assertEqual(int(every["tokens"]) - int(no_ends["tokens"]), len(LINES))
    self.assertEqual(int(every["words"]), sum(len(line.split()) for line in LINES))
    self.assertEqual(int(no_ends["characters"]), sum(map(len, LINES)))
    self.assertLess(float(every["perplexity_low"]), float(every["perplexity"]))
    self.assertGreater(float(every["perplexity_high"]), float(every["perplexity"]))
    _, said = self.score("--per=line")
    self.assertRegex(said, r"perplexity: [\d.]+ \(95 % of resamples: [\d.]+ to [\d.]+\)")

  def test_intervals_are_of_what_is_counted(self):
    run = self.trained
    lines = list(scoring.scored_lines(run.lm, run.params, run.tokenizer, LINES))
    for flags, by_block in (((), False), (("--mode=stream",), True)):
      counted = totals.Totals(by_block)
      if by_block:
        lines = list(scoring.scored_lines(run.lm, run.params, run.tokenizer, LINES, carried=True))
      with mock.patch.object(totals, "BLOCK", 7):
        rows = self.rows("--per=total", *flags)
        for line in lines:
          counted.add(line)
        for row, ends in zip(rows[:2], (True, False), strict=True):
          for figure in score.FIGURES:
            found = [float(row[f"{figure}_{end}"]) for end in ("low", "high")]
            np.testing.assert_allclose(found, counted.interval(figure, ends), rtol=1e-4)

  def test_csv(self):
    printed, _ = self.score("--output_format=csv", "--per=line")
    self.assertEqual([row["text"] for row in csv.DictReader(io.StringIO(printed))], list(LINES))

  def test_one_line_has_no_interval(self):
    _, said = self.score(path=texts.write(self.folder, "one.txt", LINES[0]))
    self.assertRegex(said.splitlines()[-1], r"^bits_per_byte: [\d.]+$")

  def test_columns_of_one_name_stay_apart(self):
    path = texts.write(self.folder, "names.csv", "token,input_token,s\n1,2," + LINES[0] + "\n")
    printed, _ = self.score("--output_format=jsonl", "--text_column=s", path=path)
    row = json.loads(printed.splitlines()[0])
    self.assertEqual((row["input_token"], row["input_input_token"]), ("1", "2"))

  def test_states_are_read_as_the_text_is(self):
    path = os.path.join(self.folder, "states.npz")
    for flags, carried in (((), False), (("--mode=stream",), True)):
      self.score(f"--states={path}", *flags)
      run = self.trained
      its = states.states(run.lm, run.params, run.tokenizer, LINES, carried=carried)
      with np.load(path) as found:
        np.testing.assert_allclose(found["layer_0_cell"], its.layers[0].cells["cell"], rtol=1e-6)

  @parameterized.parameters("lines", "stream")
  def test_a_long_line_is_one_line(self, mode):
    # In several parts, and yet a cell that Python's csv reads without being told of its size.
    text = " ".join(LINES * (3 * cuts.PART // 2 // len(" ".join(LINES)))).strip()
    self.assertBetween(len(text), 1.4 * cuts.PART, csv.field_size_limit())
    path = texts.write(self.folder, "long.txt", f"{LINES[0]}\n{text}\n{LINES[1]}\n")
    flags = [f"--mode={mode}", "--start=state"]
    by_line = self.rows(*flags, "--per=line", path=path)
    self.assertEqual([row["line"] for row in by_line], ["0", "1", "2"])
    self.assertTrue(by_line[1]["text"] == text)
    self.assertEqual(by_line[1]["words"], str(len(text.split())))
    tokens = self.rows(*flags, path=path)
    its = [row for row in tokens if row["line"] == "1"]
    self.assertTrue([row["index"] for row in its] == list(map(str, range(len(text) + 1))))
    self.assertTrue("".join(text[int(row["char_start"]):int(row["char_end"])] for row in its)
                    == text)
    self.assertAlmostEqual(math.fsum(float(row["surprisal_bits"]) for row in its),
                           float(by_line[1]["surprisal_bits"]), delta=1e-6 * len(text))
    self.assertAlmostEqual(float(by_line[1]["surprisal_bits"]), self.bits(text, mode),
                           delta=1e-5 * len(text))

  def bits(self, text, mode):
    lines = [LINES[0], text] if mode == "stream" else [text]
    *_, line = scoring.scored_lines(self.trained.lm, self.trained.params, self.trained.tokenizer,
                                    lines, "state", mode == "stream")
    return math.fsum(line.surprisals)

  def test_an_empty_line_is_its_end(self):
    path = texts.write(self.folder, "empty.txt", "\n\n")
    rows = self.rows(path=path)
    self.assertEqual([(row["line"], row["token"]) for row in rows], [("0", "\\n"), ("1", "\\n")])

  def test_bits_per_line(self):
    rows = self.rows("--per=line")
    tokens = self.rows()
    for row, line in zip(rows, LINES, strict=True):
      mine = [float(its["surprisal_bits"]) for its in tokens if its["line"] == row["line"]]
      self.assertEqual(row["text"], line)
      self.assertAlmostEqual(float(row["surprisal_bits_without_ends"]), sum(mine[:-1]), 6)
      self.assertAlmostEqual(float(row["perplexity"]), 2 ** np.mean(mine), 5)


class MistakesTest(ScoreTestCase):

  @parameterized.parameters(
      (("--text_column=sentense",), "found the columns item, sentence, token; needed.*sentense"),
      ((), "needed: --text_column to name the one with texts"))
  def test_of_a_table(self, flags, message):
    printed, said = self.score(*flags, path=self.spreadsheet())
    self.assertEqual(printed, "")
    self.assertRegex(said.splitlines()[-1], message)

  def test_nothing_to_score(self):
    path = texts.write(self.folder, "head.csv", "s,t\n")
    for flags in ((), ("--per=total",)):
      printed, said = self.score("--text_column=s", *flags, path=path)
      self.assertEqual(printed, "")
      self.assertRegex(said.splitlines()[-1], r"^error: --input=.*: nothing to score; needed: at")

  @parameterized.parameters((), ("--mode=stream",))
  def test_of_what_is_not_finite_no_row_is_shown(self, *flags):
    run = self.trained
    params = jax.tree.map(np.array, run.params)
    (unlucky,) = run.tokenizer.encode("é")
    params["embedding"]["table"][unlucky] = np.nan  # of the second line, not of the first
    assert "é" in LINES[1] and "é" not in LINES[0]
    states_path = os.path.join(self.folder, "none.npz")
    with (mock.patch.object(cli, "load_run", lambda: run._replace(params=params)),
          mock.patch.object(scoring, "_BATCH", 1)):
      printed, said = self.score(*flags, f"--states={states_path}")
    self.assertEqual(printed, "")
    self.assertRegex(said.splitlines()[-1], r"^error: line \d+,.*needed: finite parameters")
    self.assertFalse(os.path.exists(states_path))

  def test_states_of_parameters_that_learn(self):
    _, said = self.score("--states=x", "--dynamic_rate=1", "--mode=stream",
                         f"--dynamic_corpus={self.path}")
    self.assertIn("error: --states are those of the run's own parameters", said)

  def test_a_character_that_was_never_seen(self):
    path = texts.write(self.folder, "unseen.txt", "a\n☃\n")
    _, said = self.score(path=path)
    self.assertRegex(said.splitlines()[-1],
                     r"line 1, counted from 0: found '☃' .U\+2603. at position 0")


if __name__ == "__main__":
  absltest.main()
