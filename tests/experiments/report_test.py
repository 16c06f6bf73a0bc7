"""The report of a run, by its binary: any tokenizer, any cell, the run's own text."""

import os
import pathlib
import re
import tempfile
from unittest import mock

import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import report, score
from hklm import run as runs
from hklm.data import corpora, texts, tokenizers
from hklm.errors import InputError
from hklm.inference import generate, states
from hklm.inference import score as score_
from hklm.report import facts
from tests import on_disk
from tests.experiments import binaries
from tests.report import made
from tests.report.parsed import Page

# Half of it ends within a line.
TEXT = 30 * f'{made.HOSTILE}\nthe café (was) "it"\n' + "and\n"


class ReportTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())
    self.corpus = self.write("corpus.txt", TEXT.encode())
    self.page = os.path.join(self.folder, "report.html")

  def write(self, name, content):
    path = pathlib.Path(self.folder, name)
    path.write_bytes(content)
    return str(path)

  def made_run(self, kind="char", cell="lstm", valid_fraction=0.5, corpus=None):
    """A run directory as train leaves it, but never trained; two rows of metrics."""
    tokenizer = tokenizers.build(
        hklm.TokenizerConfig(kind, vocab_size=280 if kind == "bpe" else 0), [TEXT])
    config = hklm.TrainConfig(
        hklm.ModelConfig(tokenizer.vocab_size, 3, 4, num_layers=2, cell=cell),
        hklm.TokenizerConfig(kind), valid_fraction=valid_fraction)
    text = texts.prepare(config, self.corpus, tokenizer=tokenizer)
    path = runs.create(os.path.join(self.folder, f"<b>{kind}&"),
                       runs.Contents(config, tokenizer, text.fingerprint),
                       files={"train.flags": f"--corpus={corpus or self.corpus}\n--seed=3\n",
                              "metrics.jsonl": '{"step": 1, "valid_nats_per_token": 0.6931471806}\n'
                                               '{"step": 2, "train_na'})
    lm = hklm.language_model(config.model)
    on_disk.write(path, "last", lm.init(jax.random.key(0)))
    return path

  def reported(self, run_dir, *flags):
    done = binaries.here(report, f"--run_dir={run_dir}", f"--output={self.page}", *flags)
    self.assertEqual(done.status, 0, done.stderr)
    return Page(pathlib.Path(self.page).read_text("utf-8"))

  def shown(self, page):
    _, text = page.one("div", id="text")
    return text.replace("⏎", "")

  @parameterized.parameters("char", "byte", "word", "bpe")
  def test_every_tokenizer_shows_the_start_of_the_runs_validation_part(self, kind):
    page = self.reported(self.made_run(kind), "--text_length=200")
    part = TEXT.encode()[-(len(TEXT.encode()) // 2):].decode(errors="replace") if kind == "byte" \
        else TEXT[-(len(TEXT) // 2):]
    if kind in ("word", "bpe"):
      part = part[part.index("\n") + 1:]  # no line is cut
    expected = part[:200][:part[:200].rindex("\n") + 1]
    shown = self.shown(page)
    for sign in "\0\x07\u2028\u2029":
      expected = expected.replace(sign, repr(sign)[1:-1])
    # Tokens that are but a part of a character are spelled beside it.
    self.assertEqual(re.sub(r"\\x[89a-f][0-9a-f]", "", shown), expected)
    _, said = page.one("section", id="curves")
    unit = {"char": "character", "bpe": "token"}.get(kind, kind)
    self.assertIn(f"Lowest validation: 1.0000 bits per {unit}, after update 1.", said)
    self.assertLen(page.one("section", id="samples")[1].split("temperature "), 4)
    self.assertIn("<b>", page.one("h1")[1])  # the run's own name

  def test_a_text_of_ones_own(self):
    text = self.write("own.txt", 'the café\n\n(was) "it" '.encode())
    page = self.reported(self.made_run(), f"--input={text}")
    self.assertEqual(self.shown(page), 'the café\n\n(was) "it" \n')
    self.assertIn(text, page.one("dl", **{"class": "about"})[1])

  def test_the_text_is_read_as_one_after_an_end_of_line(self):
    run = runs.load_run(self.made_run())
    lines = ["the café", '(was) "it"', "and"]
    its = facts.collect(run, lines, "a text")
    scored = list(score_.scored_lines(run.lm, run.params, run.tokenizer, lines, carried=True))
    for line, needed in zip(its.lines, scored, strict=True):
      np.testing.assert_allclose(line.surprisals, needed.surprisals, rtol=1e-6)
    needed = states.states(run.lm, run.params, run.tokenizer, lines, carried=True)
    np.testing.assert_allclose(its.states.layers[1].output, needed.layers[1].output, rtol=1e-6)
    alone = states.states(run.lm, run.params, run.tokenizer, lines, "state", carried=True)
    self.assertGreater(abs(alone.layers[1].output - needed.layers[1].output).max(), 1e-4)
    for temperature, text in its.samples.items():
      tokens = generate.generate(run.lm, run.params, jax.random.key(0), facts.SAMPLE_TOKENS,
                                 temperature=temperature)
      self.assertEqual(text, run.tokenizer.decode(tokens[:, 0].tolist()))
    self.assertLen(set(its.samples.values()), len(facts.TEMPERATURES))

  def test_a_text_without_a_token(self):
    tokenizer = tokenizers.build(hklm.TokenizerConfig("char"), ["ab"])  # knows no end of a line
    config = hklm.TrainConfig(hklm.ModelConfig(tokenizer.vocab_size, 3, 4))
    lm = hklm.language_model(config.model)
    run = runs.Run(lm, lm.init(jax.random.key(0)), tokenizer, config, self.folder)
    with self.assertRaisesRegex(InputError, "a text: nothing to score"):
      facts.collect(run, ["", ""], "a text")

  def test_damaged_rows_of_losses_are_left_out(self):
    run_dir = self.made_run()
    for row in ("null", "3", "[]", '{"train_nats_per_token": 1.0}', '{"step": "x"}',
                '{"step": 3, "valid_nats_per_token": Infinity}', '{"step": 3, "x": "y"}',
                '{"step": 3, "x": 1e400}', "[" * 100_000, '{"step": 4, "train_nats_per_token": 1}'):
      with open(os.path.join(run_dir, "metrics.jsonl"), "a", encoding="utf-8") as file:
        file.write("\n" + row)
    with open(os.path.join(run_dir, "metrics.jsonl"), "ab") as file:
      file.write(b"\n\xff\n")
    _, said = self.reported(run_dir, "--text_length=50").one("section", id="curves")
    self.assertIn("Lowest validation: 1.0000 bits per character, after update 1.", said)

  def test_a_table_is_no_text(self):
    table = self.write("x.csv", b"a,b\n1,the\n")
    done = binaries.here(report, f"--run_dir={self.made_run()}", f"--output={self.page}",
                         f"--input={table}")
    self.assertIn("found a table; needed: plain text", done.stderr)

  def test_a_cell_that_tells_no_gates(self):
    page = self.reported(self.made_run(cell="experiments.own_cell:mgu"), "--text_length=100")
    self.assertIn("experiments.own_cell:mgu tells no gates", page.one("section", id="gates")[1])

  def test_a_run_of_the_builtin_text(self):
    with mock.patch.object(self, "corpus", corpora.builtin_corpus()):
      run_dir = self.made_run("byte")
    os.remove(os.path.join(run_dir, "train.flags"))
    os.remove(os.path.join(run_dir, "metrics.jsonl"))
    page = self.reported(run_dir, "--text_length=120")
    self.assertIn(self.shown(page).split("\n")[0], "".join(corpora.builtin_corpus().chunks()))
    self.assertIn("no losses", page.one("section", id="curves")[1])

  def test_mistakes(self):
    run_dir, empty = self.made_run(), self.write("empty.txt", b"")
    other = self.write("other.txt", b"the Z")
    for flags, message in (
        (["--output="], "--output is not given; needed: the HTML file to write"),
        (["--text_length=0"], "--text_length=0 is out of range"),
        ([f"--output={self.folder}/no/x.html"], "cannot be written (No such file or directory)"),
        ([f"--input={empty}"], "empty.txt: found an empty file, needed text; see --input"),
        ([f"--input={other}"], "line 0, counted from 0: found 'Z' (U+005A) at position 4"),
        (["--input=/no/such"], "/no/such: No such file")):
      done = binaries.here(report, f"--run_dir={run_dir}", f"--output={self.page}", *flags)
      self.assertEqual(done.status, 1)
      self.assertIn(message, done.stderr)
      self.assertFalse(os.path.exists(self.page))

  @parameterized.parameters(("-", 0.5, "came from standard input"), (None, 0.0, "no validation"))
  def test_a_run_whose_text_is_not_there(self, corpus, valid_fraction, message):
    done = binaries.here(report, f"--output={self.page}", "--run_dir=" + self.made_run(
        valid_fraction=valid_fraction, corpus=corpus))
    self.assertEqual(done.status, 1)
    self.assertIn(message, done.stderr)
    self.assertIn("see --input", done.stderr)

  def test_a_text_that_has_changed_since(self):
    run_dir = self.made_run()
    self.write("corpus.txt", TEXT[::-1].encode())
    done = binaries.here(report, f"--output={self.page}", f"--run_dir={run_dir}")
    self.assertEqual(done.status, 1)
    self.assertIn("the run's text has changed since it was trained", done.stderr)

  def test_score_saves_states(self):
    text = self.write("own.txt", b'the "it"\n\n(was)\n')
    path = os.path.join(self.folder, "states.npz")
    run_dir = self.made_run()
    done = binaries.here(score, f"--run_dir={run_dir}", f"--input={text}", f"--states={path}")
    self.assertEqual(done.status, 0, done.stderr)
    rows = [row.split("\t")[:2] for row in done.stdout.splitlines()[1:]]
    with np.load(path) as read:
      places = zip(read["line"], read["index"], strict=True)
      self.assertEqual([[str(n) for n in row] for row in places], rows)
      self.assertEqual(read["layer_1_gate_f"].shape, (len(rows), 4))
    done = binaries.here(score, f"--run_dir={run_dir}", f"--input={text}",
                         f"--states={self.folder}")
    self.assertEqual(done.status, 1)
    self.assertIn("--states=", done.stderr)
    self.assertEqual(done.stdout, "")


if __name__ == "__main__":
  absltest.main()
