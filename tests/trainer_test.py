"""`hklm.train`: a corpus becomes a run directory, or an error and nothing."""

import contextlib
import io
import json
import math
import os
import pathlib
import tempfile

import chex
import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm import trainer
from hklm.data import corpora, encoding
from hklm.data.random_streams import RandomStreams
from hklm.data.streams import Streams
from hklm.errors import InputError
from hklm.training import logs
from tests import oracle
from tests.inference import compilations
from tests.training import texts

SMALL = {"embedding_size": 4, "hidden_size": 8}


def config(model=None, tokenizer="char", **changes):
  settings = {"batch_size": 4, "bptt": 10, "steps": 6, "learning_rate": 0.02}
  return hklm.TrainConfig(hklm.ModelConfig(**{**SMALL, **(model or {})}),
                          hklm.TokenizerConfig(tokenizer), **{**settings, **changes})


class TrainerTestCase(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = folder.name
    cls.corpus = texts.write(cls.folder, "corpus.txt", texts.sentences(1500))

  def train(self, config_, name, corpus=None, **arguments):
    """The run, its rows of metrics.jsonl, and what it said."""
    path = os.path.join(self.folder, name)
    with contextlib.redirect_stderr(io.StringIO()) as said:
      run = hklm.train(config_, path, [corpus or self.corpus], **arguments)
    with open(os.path.join(path, "metrics.jsonl"), encoding="utf-8") as file:
      return run, [json.loads(line) for line in file], said.getvalue()

  def assert_refused(self, message, *args, **arguments):
    """Refused in one line, before anything is compiled or written."""
    before = sorted(os.listdir(self.folder))
    jax.random.key(0)  # the first of a process is compiled
    with compilations.counted() as compiled, self.assertRaisesRegex(InputError, message) as caught:
      self.train(*args, **arguments)
    self.assertNotIn("\n", str(caught.exception))
    self.assertEqual(sorted(os.listdir(self.folder)), before)
    self.assertEmpty(compiled)


class RunTest(TrainerTestCase):
  """One run, looked at from all sides."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    text = "abcabdabe\n" * 200
    cls.text = texts.write(cls.folder, "repetitive.txt", text)
    cls.settings = config(steps=60, eval_every=25, learning_rate=0.05,
                          model={"output_dropout": 0.1})
    cls.run_, cls.rows, cls.said = cls.train(cls, cls.settings, "run", cls.text)

  def test_it_learns(self):
    losses = [row["valid_nats_per_token"] for row in self.rows if "valid_tokens" in row]
    self.assertLess(losses[-1], 0.5 * math.log(self.run_.tokenizer.vocab_size))
    self.assertLess(losses[-1], losses[0])
    train = [row["train_nats_per_token"] for row in self.rows if "tokens" in row]
    self.assertLess(train[-1], 0.7 * train[0])

  def test_rows_of_metrics(self):
    training = [row for row in self.rows if "train_nats_per_token" in row]
    validation = [row for row in self.rows if "valid_nats_per_token" in row]
    self.assertLen(self.rows, len(training) + len(validation))
    self.assertEqual([row["step"] for row in validation], [25, 50, 60])
    # 1,800 characters in 4 streams of 449 targets: 44 windows of 10 and one of 9
    self.assertEqual(sum(row["tokens"] for row in training), 4 * (60 * 10 - 1))
    self.assertEqual({row["valid_tokens"] for row in validation}, {199})
    self.assertEqual({row["valid_streams"] for row in validation}, {4})
    for row in validation:
      self.assertAlmostEqual(row["valid_bits_per_char"],
                             row["valid_nats_per_token"] / math.log(2), places=12)
      self.assertAlmostEqual(row["valid_perplexity"], math.exp(row["valid_nats_per_token"]))
    for row in training:
      self.assertEqual(set(row), {"step", "train_nats_per_token", "train_bits_per_char", "tokens",
                                  "learning_rate", "gradient_norm", "skipped_updates", *logs.TIMES})

  def test_what_it_said(self):
    self.assertIn("1,800 characters to train on, 200 for validation", self.said)
    self.assertIn("each epoch leaves out 3 tokens", self.said)
    self.assertIn("(4 streams)", self.said)
    self.assertRegex(self.said, r"update 60/60  loss [0-9.]+ nats/char  [0-9.]+ bits/char  "
                                r"[0-9,]+ chars/s  0 s left")

  def test_what_lies_in_the_directory(self):
    self.assertEqual(
        sorted(os.listdir(self.run_.path)),
        ["checkpoints", "config.json", "curves.png", "metrics.jsonl", "tensorboard",
         "tokenizer.json"])
    self.assertEqual(sorted(os.listdir(os.path.join(self.run_.path, "checkpoints"))),
                     ["best-25", "best-60", "step-45", "step-60"])
    picture = pathlib.Path(self.run_.path, "curves.png").read_bytes()
    self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
    self.assertGreater(len(picture), 5000)

  def test_load_run_gives_the_same(self):
    again = hklm.load_run(self.run_.path)
    chex.assert_trees_all_equal(again.params, self.run_.params)
    self.assertEqual(again.config, self.run_.config)
    self.assertEqual(again.config.model.vocab_size, 6)
    self.assertIs(again.lm, self.run_.lm)

  def test_evaluating_gives_the_logged_figure(self):
    best = trainer.best_validation(self.run_.path)
    self.assertEqual(best["valid_nats_per_token"],
                     min(row.get("valid_nats_per_token", math.inf) for row in self.rows))
    valid = corpora.open_corpus(self.text).split(0.1, 0.0)[1]
    tokens = encoding.encode_corpus(self.run_.tokenizer, valid)
    for window in (10, 37):
      metrics = hklm.evaluate(self.run_.lm, self.run_.params, tokens.ids, window, streams=4)
      np.testing.assert_allclose(metrics.nats_per_token, best["valid_nats_per_token"], rtol=1e-7)
      self.assertEqual(metrics.tokens, best["valid_tokens"])

  def test_twice_gives_the_same_bits(self):
    again, rows, _ = self.train(self.settings, "again", self.text)
    chex.assert_trees_all_equal(again.params, self.run_.params)

    def timeless(rows):
      return [{name: v for name, v in row.items() if name not in logs.TIMES} for row in rows]

    self.assertEqual(timeless(rows), timeless(self.rows))

  def test_an_existing_run_is_refused_before_the_corpus_is_read(self):
    self.assert_refused("run holds a run .finished.; give --resume to go on with it, --overwrite",
                        self.settings, "run", "no/such/corpus")


class BorderTest(TrainerTestCase):

  @parameterized.parameters((4, 10), (1, 1))
  def test_the_number_printed_is_the_border(self, batch_size, bptt):
    needed = batch_size * bptt + 1
    settings = config(batch_size=batch_size, bptt=bptt, valid_fraction=0.0, steps=1)
    short = texts.write(self.folder, "short", texts.sentences(needed - 1))
    self.assert_refused(
        f"found {needed - 1} tokens, needed {needed} for --batch_size={batch_size} --bptt={bptt}",
        settings, f"border_{batch_size}", short)
    enough = texts.write(self.folder, "enough", texts.sentences(needed))
    _, rows, said = self.train(settings, f"border_{batch_size}", enough)
    self.assertEqual(rows[0]["tokens"], batch_size * bptt)
    self.assertIn("each epoch leaves out 0 tokens", said)

  def test_a_shorter_last_window_is_trained_on_too(self):
    text = texts.write(self.folder, "text", texts.sentences(4 * 25 + 3))
    _, rows, said = self.train(config(steps=0, epochs=2, valid_fraction=0.0), "last_window", text)
    self.assertEqual(rows[-1]["step"], 2 * 3)  # 10, 10 and 5 of 25 targets a stream
    self.assertEqual(sum(row["tokens"] for row in rows), 2 * 4 * 25)
    self.assertIn("6 updates, 3 an epoch, each epoch leaves out 2 tokens", said)


  def test_epochs_of_windows_of_random_length_are_whole_ones(self):
    text = texts.write(self.folder, "text", texts.sentences(4 * 250 + 3))
    valid = texts.write(self.folder, "valid", texts.sentences(100, seed=1))
    settings = config(steps=0, epochs=3, random_bptt=True, schedule="step", decay_at=(1, 2),
                      decay_rate=0.1, learning_rate=1.0, optimizer="sgd", seed=4)
    _, rows, said = self.train(settings, "random_windows", text, valid_corpus=[valid])
    windows = RandomStreams(Streams(np.zeros(4 * 250 + 3, int), 4, 10), seed=4)
    ends = [windows.updates_in(n) for n in (1, 2, 3)]
    self.assertGreater(len({ends[0], ends[1] - ends[0], ends[2] - ends[1]}), 1)
    self.assertEqual([row["step"] for row in rows if "valid_tokens" in row], ends)
    trained = [row for row in rows if "tokens" in row]
    for n, end in enumerate(ends, 1):
      self.assertEqual(sum(row["tokens"] for row in trained if row["step"] <= end), n * 4 * 250)
    for row in trained:
      decays = sum(row["step"] > end for end in ends)
      self.assertAlmostEqual(row["learning_rate"], 0.1**decays, places=6)
    self.assertLen({row["learning_rate"] for row in trained}, 3)
    self.assertIn(f"{ends[2]} updates, about {ends[0]} an epoch, each epoch leaves out 2", said)


class ValidationTest(TrainerTestCase):

  def test_what_waits_for_validations_without_any_is_refused(self):
    self.assert_refused("--average_trigger=no_gain waits for validations, and there are none",
                        config(valid_fraction=0.0, average="polyak", average_trigger="no_gain"),
                        "waiting")

  def test_fraction_0_is_no_validation_and_said(self):
    run, rows, said = self.train(config(valid_fraction=0.0), "no_validation")
    self.assertIn("no validation: --valid_fraction is 0 and there is no --valid_corpus", said)
    self.assertFalse([row for row in rows if "valid_nats_per_token" in row])
    self.assertIsNone(trainer.best_validation(run.path))
    self.assertEqual(sorted(os.listdir(os.path.join(run.path, "checkpoints"))),
                     ["step-6"])
    self.assertTrue(os.path.isfile(os.path.join(run.path, "curves.png")))

  @parameterized.parameters((2, 1), (30, 2), (31, 3))
  def test_a_short_split_is_evaluated_with_fewer_streams(self, tokens, streams):
    text = texts.sentences(1000)
    run, rows, said = self.train(
        config(steps=1), f"short_{tokens}", texts.write(self.folder, "long", text),
        valid_corpus=[texts.write(self.folder, "held_out", text[:tokens])], overwrite=True)
    self.assertEqual((rows[-1]["valid_tokens"], rows[-1]["valid_streams"]), (tokens - 1, streams))
    self.assertIn(f"({streams} streams)", said)
    self.assertEqual(run.config.valid_fraction, 0.0)  # nothing of the corpus itself was held out
    self.assertIn("1,000 characters to train on", said)

  def test_a_split_without_targets_is_refused(self):
    self.assert_refused(
        "the validation part has 1 tokens; needed: 2 or more; raise --valid_fraction, or set it to "
        "0", config(valid_fraction=0.001), "nothing")

  def test_a_character_only_the_validation_text_has(self):
    valid = texts.write(self.folder, "x", "the ж cat")
    run, *_ = self.train(config(), "rare", valid_corpus=[valid])
    self.assertIn("ж", run.tokenizer.alphabet)


class OwnCellTest(TrainerTestCase):

  def use(self, run):
    ids = run.tokenizer.encode("the cat sat on a mat")
    metrics = hklm.evaluate(run.lm, run.params, ids)
    rows = hklm.score(run.lm, run.params, run.tokenizer, ["the cat sat on a mat"], start="state")
    np.testing.assert_allclose(sum(row.surprisal_bits for row in rows[1:-1]) * math.log(2),
                               metrics.nats, rtol=1e-5)
    self.assertLen(hklm.generate(run.lm, run.params, jax.random.key(0), 5, ids), 5)

  def test_given_as_a_function(self):
    run, *_ = self.train(config(), "function", cell=oracle.gru)
    self.assertIn("gru_0", run.params)
    self.use(run)
    again = hklm.load_run(run.path, cell=oracle.gru)
    self.assertIs(again.lm, run.lm)
    self.assertEqual(run.config.model.cell, "tests.oracle:gru")
    self.use(hklm.load_run(run.path))  # found by the name in config.json

  def test_given_as_a_function_without_a_name(self):
    run, *_ = self.train(config(), "lambda", cell=lambda layer, size: oracle.gru(layer, size))
    with self.assertRaisesRegex(InputError, "has no function"):
      hklm.load_run(run.path)

  def test_given_by_name(self):
    run, *_ = self.train(config(model={"cell": "tests.oracle:vanilla"}), "name")
    self.assertIn("vanilla_0/linear", run.params)
    self.use(hklm.load_run(run.path))


class RefusedTest(TrainerTestCase):

  @parameterized.named_parameters(
      ("vocabulary", {"model": {"vocab_size": 3}}, "ModelConfig.vocab_size is 3 and the tokenizer"),
      ("warmup", {"warmup": 6}, "--warmup=6 reaches the last of 6 updates"),
      ("cell", {"model": {"cell": "os.path:nothing"}}, "module os.path has no function nothing"),
      ("init", {"model": {"init": "glorot"}}, "--init: found 'glorot'"),
      ("all_held_out", {"valid_fraction": 0.99}, "found 15 tokens, needed 41"))
  def test_before_anything_is_compiled_or_written(self, changes, message):
    self.assert_refused(message, config(**changes), "refused")

  def test_double_precision_without_the_switch(self):
    with jax.enable_x64(False):
      self.assert_refused("dtype float64 was asked for", config(model={"dtype": "float64"}), "wide")

  def test_what_this_machine_lacks_before_any_text_is_read(self):
    self.assert_refused("--lstm_impl=cudnn needs an NVIDIA GPU",
                        config(model={"lstm_impl": "cudnn"}), "cudnn", "no such file")

  @parameterized.parameters(
      ("missing", None, "missing: No such file or directory; needed: a text file"),
      ("empty", b"", "empty: found an empty file, needed text"),
      ("latin", b"caf\xe9 " * 100, "found byte 0xe9 at byte offset 3, .* --encoding"),
      ("folder", "folder", "folder: found a folder without files"),
      ("broken.gz", b"no gzip", "broken.gz: found broken gzip data"))
  def test_corpora(self, name, content, message):
    path = os.path.join(self.folder, name)
    if content == "folder":
      os.mkdir(path)
    elif content is not None:
      texts.write(self.folder, name, content)
    self.assert_refused(message, config(), "refused", path)

  def test_a_diverging_run_names_the_update(self):
    settings = config(optimizer="sgd", learning_rate=1e38, clip=0.0, schedule="constant", steps=30)
    with self.assertRaisesRegex(InputError, "^update [0-9]+: the loss is .*--learning_rate"):
      self.train(settings, "diverged")


if __name__ == "__main__":
  absltest.main()
