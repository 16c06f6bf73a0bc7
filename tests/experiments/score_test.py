"""What the binary `score` prints: from lines or a spreadsheet, as rows that other programs read."""

import csv
import io
import json
import math
import os
import tempfile

import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import evaluate, score, train
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
      ((), "needed: different ones, and --text_column to name the one with texts"))
  def test_of_a_table(self, flags, message):
    printed, said = self.score(*flags, path=self.spreadsheet())
    self.assertEqual(printed, "")
    self.assertRegex(said.splitlines()[-1], message)

  def test_a_character_that_was_never_seen(self):
    path = texts.write(self.folder, "unseen.txt", "a\n☃\n")
    _, said = self.score(path=path)
    self.assertRegex(said.splitlines()[-1], r"line 1: found '☃' .U\+2603. at position 0")


if __name__ == "__main__":
  absltest.main()
