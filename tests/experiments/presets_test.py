"""Presets: each describes the model it names, counted exactly, and trains as its recipe says."""

import dataclasses
import json
import pathlib
import random
import re
import tempfile

import jax
import numpy as np
from absl import flags as absl_flags
from absl.testing import absltest, flagsaver, parameterized

import hklm
from experiments import evaluate, flags, train
from hklm import run as runs
from hklm.data import corpora, texts
from tests.experiments import binaries, recipes

PRESETS = pathlib.Path(flags.__file__).parent / "presets"

# Vocabulary size and parameter count, as the authors give it; but torch-rnn's from the layers'
# shapes: 65*64 + 4*128*(64 + 128) + 4*128 + 4*128*(128 + 128) + 4*128 + 65*128 + 65.
COUNTS = {
    "torch_rnn": (65, 242_945), "char_rnn": (65, 240_321), "pytorch_example": (33_278, 13_987_678),
    "zaremba_small": (10_000, 4_651_600), "zaremba_medium": (10_000, 19_775_200),
    "zaremba_large": (10_000, 66_022_000), "awd_ptb": (10_000, 24_221_600),
    "awd_wikitext2": (33_278, 33_556_078), "awd_ptb_char": (50, 13_787_650),
    "awd_enwik8": (205, 47_270_045)}
# Vocabulary size and the budget that the largest H within it is for.
BUDGETS = {"mogrifier_ptb": (10_000, 24_000_000), "mogrifier_wikitext2": (33_278, 35_000_000),
           "mogrifier_enwik8": (205, 96_000_000)}
OF_EVALUATE = ("awd_ptb_cache", "awd_ptb_dynamic", "awd_wikitext2_cache")


def text_of(name):
  return (PRESETS / f"{name}.flags").read_text(encoding="utf-8")


def config_of(name):
  """What the preset's flags say."""
  with flagsaver.flagsaver():
    absl_flags.FLAGS(["train", f"--flagfile={PRESETS / name}.flags"])
    return flags.train_config()


def count(model, vocab_size, **changes):
  values = {name: getattr(model, name) for name in flags.MODEL} | changes
  lm = hklm.language_model(hklm.ModelConfig(**values, vocab_size=vocab_size))
  return sum(leaf.size for leaf in
             jax.tree.leaves(jax.eval_shape(lm.init, jax.random.key(0))))


class CountsTest(parameterized.TestCase):

  def test_every_preset_is_counted(self):
    self.assertSameElements([*COUNTS, *BUDGETS, *OF_EVALUATE],
                            [path.stem for path in PRESETS.iterdir()])

  @parameterized.parameters(*COUNTS)
  def test_parameters_are_as_many_as_published(self, name):
    vocab_size, needed = COUNTS[name]
    self.assertEqual(count(config_of(name).model, vocab_size), needed)

  @parameterized.parameters(*BUDGETS)
  def test_h_is_the_largest_within_the_budget(self, name):
    (vocab_size, budget), model = BUDGETS[name], config_of(name).model
    H, E = model.hidden_size, model.embedding_size
    larger = E + 1 if E == H else round(0.1993 * (H + 1))
    self.assertLessEqual(count(model, vocab_size), budget)
    self.assertGreater(count(model, vocab_size, hidden_size=H + 1, embedding_size=larger), budget)
    if E != H:
      self.assertEqual(E, round(0.1993 * H))

  @parameterized.parameters(*COUNTS, *BUDGETS)
  def test_the_first_lines_say_so(self, name):
    stated = re.search(r"Parameters: ([\d,]+)\.", text_of(name).replace("\n#", ""))
    vocab_size, _ = (COUNTS | BUDGETS)[name]
    self.assertEqual(int(stated[1].replace(",", "")), count(config_of(name).model, vocab_size))

  @parameterized.parameters(*COUNTS, *BUDGETS)
  def test_it_says_what_its_source_says(self, name):
    found, default = config_of(name), hklm.TrainConfig()
    said = {}
    for its, usual in ((found.model, default.model), (found.tokenizer, default.tokenizer),
                       (found, default)):
      said |= {field.name: getattr(its, field.name) for field in dataclasses.fields(its)
               if field.name not in ("model", "tokenizer")
               and getattr(its, field.name) != getattr(usual, field.name)}
    self.assertEqual(said, recipes.RECIPES[name])

  def test_cache_and_dynamic_evaluation(self):
    for name, needed in (("awd_ptb_cache", [500, 0.1, 1.0]),
                         ("awd_wikitext2_cache", [3785, 0.1279, 0.662]),
                         ("awd_ptb_dynamic", [0.002, 0.02, 0.001, 5])):
      flags_ = ("cache_size", "cache_weight", "cache_flatness") if "cache" in name else (
          "dynamic_rate", "dynamic_decay", "dynamic_epsilon", "dynamic_segment")
      with flagsaver.flagsaver():
        absl_flags.FLAGS(["evaluate", f"--flagfile={PRESETS / name}.flags"])
        self.assertEqual([absl_flags.FLAGS[flag].value for flag in flags_], needed)

  @parameterized.parameters(*COUNTS, *BUDGETS, *OF_EVALUATE)
  def test_lines_are_short(self, name):
    self.assertLessEqual(max(map(len, text_of(name).splitlines())), 100)


class ReadTest(parameterized.TestCase):

  @parameterized.parameters(*COUNTS, *BUDGETS, *OF_EVALUATE)
  def test_its_program_reads_it(self, name):
    program = evaluate if name in OF_EVALUATE else train
    done = binaries.here(program, f"--flagfile={PRESETS / name}.flags", "--corpus=/no/such/file")
    self.assertStartsWith(done.stderr.splitlines()[-1], "error: /no/such/file: No such file")


class FormatsTest(absltest.TestCase):
  """Corpora in their usual formats have the tokens that are counted in papers."""

  def prepared(self, name, content, valid=b"", encoding="utf-8"):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    parts = []
    for part, its in (("train", content), ("valid", valid)):
      path = pathlib.Path(folder, part)
      path.write_bytes(its)
      parts.append(corpora.open_corpus([str(path)], encoding) if its else ())
    return texts.prepare(config_of(name), *parts)

  def test_wikitext_has_an_end_of_line_for_each_line_and_unknown_words_of_its_own(self):
    content = " \n = Homarus = \n \n The <unk> @-@ lobster , 2 @.@ 5 kg \n"
    text = self.prepared("awd_wikitext2", content.encode(), b" = The = \n never met \n")
    words = content.split()
    self.assertLen(text.train.ids, len(words) + 4)
    self.assertEqual(text.tokenizer.vocab_size, len(set(words)) + 1)  # <unk> is one of them
    self.assertEqual(text.train.unknown_tokens, 1)
    self.assertEqual((len(text.valid.ids), text.valid.unknown_tokens), (7, 2))

  def test_ptb_characters_are_words(self):
    text = self.prepared("awd_ptb_char", b" a b _ c \n b _ a \n", b" c _ a \n")
    self.assertEqual((len(text.train.ids), len(text.valid.ids)), (4 + 1 + 3 + 1, 3 + 1))
    self.assertEqual(text.tokenizer.vocab_size, 4 + 1)

  def test_enwik8_is_cut_at_its_bytes(self):
    draw = np.random.RandomState(0)
    content = draw.randint(32, 237, size=2000).astype(np.uint8).tobytes()
    text = self.prepared("awd_enwik8", content, encoding="latin-1")
    self.assertEqual((len(text.train.ids), len(text.valid.ids)), (1800, 100))
    self.assertEqual(text.tokenizer.vocab_size, 205)
    self.assertEqual(text.tokenizer.decode(text.valid.ids.tolist()).encode("latin-1"),
                     content[1800:1900])


  def test_text8_is_one_line(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    path = pathlib.Path(folder, "text8")
    content = " ".join(random.Random(0).choices([chr(97 + n) for n in range(26)], k=1000))
    path.write_text(content)
    config = hklm.TrainConfig(tokenizer=hklm.TokenizerConfig("char"), valid_fraction=0.05,
                              test_fraction=0.05)
    text = texts.prepare(config, [str(path)])
    size = len(content)
    held = size - len(text.train.ids)
    self.assertEqual((len(text.valid.ids), held), (size // 20, 2 * (size // 20)))
    self.assertEqual(text.tokenizer.vocab_size, 27)


class TrainedTest(absltest.TestCase):
  """Zaremba's small model on text in the format of Mikolov's Penn Treebank."""

  def test_zaremba_small_as_published(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    draw = random.Random(0)
    words = [f"w{n}" for n in range(40)] + ["<unk>"]
    files, text = {}, {}
    for part, lines in (("train", 600), ("valid", 40), ("test", 40)):
      text[part] = "".join(" " + " ".join(draw.choices(words, k=draw.randint(1, 9))) + " \n"
                           for _ in range(lines))
      files[part] = pathlib.Path(folder, f"ptb.{part}.txt")
      files[part].write_text(text[part])
    counts = {part: len(its.split()) + its.count("\n") for part, its in text.items()}
    vocabulary = len(set(text["train"].split())) + 1  # <unk> is a word of the text; and <eos>
    run_dir = f"{folder}/run"
    done = binaries.here(
        train, f"--flagfile={PRESETS}/zaremba_small.flags", f"--corpus={files['train']}",
        f"--valid_corpus={files['valid']}", f"--run_dir={run_dir}", "--hidden_size=8",
        "--embedding_size=8")
    self.assertEqual(done.status, 0, done.stderr)
    self.assertIn("text: not the recipe's, 929,589 and 73,760 tokens of a vocabulary of 10,000, "
                  f"but {counts['train']:,} and {counts['valid']:,} tokens of a vocabulary of "
                  f"{vocabulary}", done.stderr)
    run = runs.load_run(run_dir)
    self.assertEqual(run.tokenizer.vocab_size, vocabulary)
    windows = -(-((counts["train"] - 1) // 20) // 20)
    rows = map(json.loads, pathlib.Path(run_dir, "metrics.jsonl").read_text().splitlines())
    rates = {row["learning_rate"] for row in rows if "learning_rate" in row}
    self.assertEqual(rates, {0.5**n for n in range(10)})  # 4 epochs at 1, then 9 halvings
    self.assertIn(f"{13 * windows} updates", done.stderr.replace(",", ""))
    done = binaries.here(evaluate, f"--run_dir={run_dir}", f"--corpus={files['test']}")
    self.assertIn(f"tokens                  {counts['test'] - 1:,}", done.stdout)

  def test_it_says_what_the_paper_says(self):
    config = config_of("zaremba_small")
    self.assertEqual((config.loss, config.optimizer, config.learning_rate, config.clip),
                     ("sum", "sgd", 1.0, 5.0))
    self.assertEqual((config.batch_size, config.bptt, config.epochs), (20, 20, 13))
    self.assertEqual((config.model.num_biases, config.model.forget_bias), (1, 0.0))
    lm = hklm.language_model(hklm.ModelConfig(
        **{name: getattr(config.model, name) for name in flags.MODEL}, vocab_size=50))
    for leaf in jax.tree.leaves(lm.init(jax.random.key(0))):
      self.assertLessEqual(float(np.abs(leaf).max()), 0.1)
      self.assertGreater(float(leaf.min()), -0.1001)
      self.assertLess(abs(float(leaf.mean())), 0.02)




if __name__ == "__main__":
  absltest.main()
