"""What the binaries print and refuse, in this process: every tokenizer, every mistake."""

import gzip
import json
import math
import os
import pathlib
import shutil
import tempfile

import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import evaluate, sample, score, train
from hklm.data import corpora
from hklm.errors import InputError
from tests import on_disk
from tests.experiments import binaries
from tests.training import texts

TEXT = texts.sentences(1500)
SMALL = ("--hidden_size=8", "--embedding_size=4", "--batch_size=4", "--bptt=10", "--steps=8")
KEYS = ("tokens", "nll_nats", "perplexity", "bits_per_token", "bits_per_char", "bits_per_byte",
        "oov_tokens", "streams", "window")
_SHARED = {}


def setUpModule():
  _SHARED["folder"] = tempfile.TemporaryDirectory()


def tearDownModule():
  _SHARED["folder"].cleanup()
  _SHARED.clear()


def path(name):
  return os.path.join(_SHARED["folder"].name, name)


def corpus():
  return texts.write(_SHARED["folder"].name, "corpus.txt", TEXT)


def trained(kind="char"):
  """The directory of a run with this tokenizer, and what training printed; made once."""
  if kind not in _SHARED:
    limit = ["--vocab_size=260"] if kind == "bpe" else []
    _SHARED[kind] = binaries.here(train, f"--run_dir={path(kind)}", f"--corpus={corpus()}",
                                  f"--tokenizer={kind}", *limit, *SMALL)
  return path(kind), _SHARED[kind]


def _changed_run(name, change):
  """A copy of a run with another output matrix."""
  run_dir = shutil.copytree(trained()[0], path(name), dirs_exist_ok=True)
  run = hklm.load_run(trained()[0])
  params = dict(run.params, head=dict(run.params["head"], w=change(run.params["head"]["w"])))
  on_disk.write(run_dir, "best", params, step=10**6)
  return run_dir


def evaluated(*flags):
  done = binaries.here(evaluate, "--json", *flags)
  return json.loads(done.stdout)


class TokenizersTest(parameterized.TestCase):

  @parameterized.parameters("char", "byte", "word", "bpe")
  def test_train_evaluate_sample(self, kind):
    run_dir, done = trained(kind)
    self.assertEqual(done.status, 0, done.stderr)
    unit = {"bpe": "token"}.get(kind, kind)
    self.assertIn(f" nats/{unit}, ", done.stderr)
    self.assertRegex(done.stderr, rf"bits/{unit}  [0-9,]+ {unit}s/s")
    self.assertRegex(done.stdout.splitlines()[-1],
                     r"^validation bits/char [0-9]+\.[0-9]{4}  perplexity [0-9]+\.[0-9]{2}$")

    rows = pathlib.Path(run_dir, "metrics.jsonl").read_text().splitlines()
    (row,) = [json.loads(row) for row in rows if "valid_tokens" in row]
    figures = evaluated(f"--run_dir={run_dir}", f"--corpus={corpus()}", "--part=valid",
                        f"--streams={row['valid_streams']}", "--window=7")
    self.assertEqual(figures["tokens"], row["valid_tokens"])
    np.testing.assert_allclose(figures["bits_per_char"], row["valid_bits_per_char"], rtol=1e-6)
    np.testing.assert_allclose(figures["perplexity"], row["valid_perplexity"], rtol=1e-6)

    prompt = "the café sat "
    done = binaries.here(sample, f"--run_dir={run_dir}", f"--prompt={prompt}", "--length=20")
    self.assertEqual(done.status, 0, done.stderr)
    self.assertStartsWith(done.stdout, prompt.strip())
    self.assertGreater(len(done.stdout), len(prompt))

  @parameterized.parameters("char", "byte", "word", "bpe")
  def test_every_unit_is_of_the_original_text(self, kind):
    run_dir, _ = trained(kind)
    whole = evaluated(f"--run_dir={run_dir}", f"--corpus={corpus()}")
    run = hklm.load_run(run_dir)
    raw = kind == "byte"
    (text,) = corpora.corpus_of(TEXT).chunks(raw)
    ids, _, ends = run.tokenizer.encode_with_offsets(text)
    rest = text[ends[0]:] if raw else text[ends[0]:].encode()
    self.assertEqual(whole["tokens"], len(ids) - 1)
    bits = whole["nll_nats"] / math.log(2)
    np.testing.assert_allclose(
        [whole["bits_per_token"], whole["bits_per_char"], whole["bits_per_byte"]],
        [bits / (len(ids) - 1), bits / len(rest.decode()), bits / len(rest)], rtol=1e-12)
    np.testing.assert_allclose(np.log(whole["perplexity"]), whole["nll_nats"] / whole["tokens"])


class EvaluateTest(parameterized.TestCase):

  def test_keys_in_their_order(self):
    figures = evaluated(f"--run_dir={trained()[0]}", f"--corpus={corpus()}")
    self.assertEqual([key for key in figures if key in KEYS], list(KEYS))
    self.assertEqual((figures["streams"], figures["window"]), (1, 256))

  def test_the_window_changes_no_figure(self):
    sums = [evaluated(f"--run_dir={trained()[0]}", f"--corpus={corpus()}", f"--window={window}"
                      )["nll_nats"] for window in (1, 35, 100_000)]
    np.testing.assert_allclose(sums, sums[0], rtol=1e-7)

  def test_the_table_has_the_figures(self):
    flags = (f"--run_dir={trained()[0]}", f"--corpus={corpus()}")
    done = binaries.here(evaluate, *flags)
    table = dict(line.split() for line in done.stdout.splitlines())
    for name, value in evaluated(*flags).items():
      self.assertAlmostEqual(float(table[name].replace(",", "")) / value if value else 1, 1, 4)
    self.assertRegex(done.stderr.splitlines()[0], r"^device: \d+ x \S+")

  def test_parts_are_those_of_the_run(self):
    flags = (f"--run_dir={trained()[0]}", f"--corpus={corpus()}")
    parts = [evaluated(*flags, f"--part={part}")["tokens"] for part in ("train", "valid", "all")]
    self.assertEqual(parts, [1349, 149, 1499])
    done = binaries.here(evaluate, *flags, "--part=test")
    self.assertEqual(done.status, 1)
    self.assertIn("error: nothing to score: found 0 tokens", done.stderr)

  def test_unknown_words_are_counted_and_shown(self):
    text = texts.write(_SHARED["folder"].name, "unknown.txt", "the zebra sat on a gnu .\n")
    done = binaries.here(evaluate, f"--run_dir={trained('word')[0]}", f"--corpus={text}", "--json")
    figures = json.loads(done.stdout)
    self.assertEqual(figures["oov_tokens"], 3)
    self.assertIn("zebra gnu .", done.stderr)
    self.assertNotEqual(figures["perplexity_without_oov"], figures["perplexity"])
    done = binaries.here(score, f"--run_dir={trained('word')[0]}", f"--input={text}")
    self.assertIn("unknown words: 3, for example: zebra gnu .\n", done.stderr)

  def test_folders_compressed_files_and_several(self):
    folder = path("folder")
    os.mkdir(folder)
    texts.write(folder, "1.txt", TEXT[:700])
    texts.write(folder, "2.txt.gz", gzip.compress(TEXT[700:].encode()))
    run = f"--run_dir={trained()[0]}"
    several = evaluated(run, f"--corpus={folder}/1.txt", f"--corpus={folder}/2.txt.gz")
    self.assertEqual(evaluated(run, f"--corpus={folder}"), several)
    self.assertEqual(several["tokens"], 1500)  # a line feed parts the two

  def test_carriage_returns_and_byte_order_marks_make_no_difference(self):
    text = texts.write(_SHARED["folder"].name, "windows.txt",
                       b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    run = f"--run_dir={trained()[0]}"
    self.assertEqual(evaluated(run, f"--corpus={text}"), evaluated(run, f"--corpus={corpus()}"))


  def test_a_perplexity_too_large_for_a_float_is_inf_and_the_nats_are_kept(self):
    run_dir = _changed_run("steep", lambda w: 1e6 * w)
    figures = evaluated(f"--run_dir={run_dir}", f"--corpus={corpus()}")
    self.assertEqual(figures["perplexity"], "inf")
    self.assertBetween(figures["nll_nats"], 1e6, 1e12)
    done = binaries.here(evaluate, f"--run_dir={run_dir}", f"--corpus={corpus()}")
    self.assertRegex(done.stdout, r"\nperplexity +inf\n")


class DtypeTest(parameterized.TestCase):

  @parameterized.parameters("float64", "bfloat16")
  def test_train_evaluate_sample(self, dtype):
    self.addCleanup(jax.config.update, "jax_enable_x64", jax.config.jax_enable_x64)
    run_dir = path(dtype)
    for module, flags in ((train, (f"--corpus={corpus()}", f"--dtype={dtype}", *SMALL)),
                          (evaluate, (f"--corpus={corpus()}", "--checkpoint=last")),
                          (sample, ("--prompt=the",))):
      done = binaries.here(module, f"--run_dir={run_dir}", *flags)
      self.assertEqual(done.status, 0, done.stderr)
    leaves = jax.tree.leaves(hklm.load_run(run_dir).params)
    self.assertEqual({str(leaf.dtype) for leaf in leaves}, {dtype})


class SampleTest(parameterized.TestCase):

  def sample(self, *flags):
    done = binaries.here(sample, f"--run_dir={trained()[0]}", "--length=40", *flags)
    self.assertEqual(done.status, 0, done.stderr)
    return done.stdout

  def test_the_prompt_and_its_continuation_alone(self):
    whole = self.sample("--prompt=the café")
    self.assertLen(whole, len("the café") + 40 + 1)
    self.assertStartsWith(whole, "the café")
    self.assertEqual(self.sample("--prompt=the café", "--no_echo"), whole.removeprefix("the café"))

  def test_same_seed_same_text_and_another_seed_another(self):
    first, again, other = (self.sample(f"--seed={seed}") for seed in (5, 5, 6))
    self.assertEqual(first, again)
    self.assertNotEqual(first, other)
    greedy = {self.sample(f"--seed={seed}", "--temperature=0") for seed in (5, 6)}
    self.assertLen(greedy, 1)

  def test_length_counts_new_tokens(self):
    self.assertEqual(self.sample("--length=0"), "\n")
    self.assertEqual(self.sample("--length=0", "--prompt=a mat"), "a mat\n")
    self.assertLen(self.sample("--length=100", f"--prompt={TEXT[:700]}"), 700 + 100 + 1)

  def test_stop_ends_a_sample_and_is_not_printed(self):
    plain = self.sample("--length=300", "--seed=1")
    self.assertEqual(self.sample("--length=300", "--seed=1", "--stop=a"),
                     plain[:plain.index("a")] + "\n")

  def test_several_samples_are_whole_and_named(self):
    text = self.sample("--samples=2", "--prompt=on")
    first, second = text.removeprefix("--- sample 1 ---\n").split("--- sample 2 ---\n")
    for one in (first, second):
      self.assertStartsWith(one, "on")
      self.assertLen(one, 2 + 40 + 1)
    self.assertNotEqual(first, second)


class MistakesTest(parameterized.TestCase):
  """One line, status 1, nothing on standard output, nothing left behind."""

  def assert_refused(self, message, module, *flags):
    def listing():
      return sorted(map(str, pathlib.Path(_SHARED["folder"].name).rglob("*")))

    before = listing()
    done = binaries.here(module, *flags)
    self.assertEqual((done.status, done.stdout), (1, ""))
    last = done.stderr.splitlines()[-1]
    self.assertStartsWith(last, "error: ")
    self.assertIn(message, last)
    self.assertEqual(done.stderr.count("error: "), 1)
    self.assertEqual(listing(), before)

  @parameterized.parameters(
      ("--learning_rate=0", "--learning_rate=0.0 is out of range; needed: a number above 0"),
      ("--learning_rate=nan", "--learning_rate=nan is not a finite float32 number"),
      ("--clip=-1", "--clip=-1.0 is out of range; needed: 0 or more"),
      ("--dropout=1", "=1.0 is out of range; needed: at least 0 and below 1"),
      ("--output_dropout=-0.1", "--output_dropout=-0.1 is out of range"),
      ("--hidden_size=0", "--hidden_size=0 is out of range; needed: 1 or more"),
      ("--batch_size=0", "--batch_size=0 is out of range"), ("--bptt=0", "--bptt=0"),
      ("--epochs=0", "--epochs=0"), ("--seed=-1", "--seed=-1 is out of range"),
      ("--seed=99999999999999999999", "needed a number below 2**33"),
      ("--hidden_size=1000000000", "the parameters would take a terabyte or more; lower"),
      ("--notie_embeddings=1", "does not take an argument"),
      ("--cell=os:system", "the cell cannot serve (TypeError"),
      ("--seed=one", "flag --seed"), ("--batch_size=1e3", "flag --batch_size"),
      ("--tie_embeddings", "tied tables need one size: found --embedding_size="),
      ("--valid_fraction=1", "--valid_fraction=1.0"),
      ("--test_fraction=0.95", "leave nothing to train on; lower one of them"),
      ("--optimizer=adagrad", "--optimizer=adagrad is unknown; needed: sgd, momentum, adam"),
      ("--schedule=linear", "--schedule=linear is unknown"), ("--dtype=int8", "--dtype=int8"),
      ("--tokenizer=letters", "--tokenizer=letters is unknown; needed: char, byte, word, bpe"),
      ("--vocab_size=100", "drop --vocab_size"), ("--cell=rnn", "--cell=rnn is unknown"),
      ("--cell=no_module:cell", "--cell=no_module:cell: ModuleNotFoundError: No module"),
      ("--init=xavier", "--init: found 'xavier'"), ("--num_biases=3", "--num_biases=3"),
      ("--warmup=8", "--warmup=8 reaches the last of 8 updates"),
      ("--batch_size=1000", "found 1350 tokens, needed 10001 for --batch_size=1000 --bptt=10"),
      ("--bptt=10000", "needed 40001 for --batch_size=4 --bptt=10000; lower one of them"),
      ("--valid_fraction=0.001", "the validation part has 1 tokens; needed: 2 or more"),
      ("--encoding=utf-9", "--encoding=utf-9 is unknown"),
      ("--encoding=ascii", "which is not valid ascii; change --encoding"),
      ("--corpus=/no/such/file", "/no/such/file: No such file or directory; needed: a text file"),
      ("--valid_corpus=/no/such/file", "/no/such/file: No such file"),
      ("--flagfile=/no/such/file", "/no/such/file"),
      ("--no_such_flag", "Unknown command line flag 'no_such_flag'"),
      ("--checkpoint=best", "--checkpoint is not a flag of this program"),
      ("stray", "found the argument 'stray', but every value goes with a flag"))
  def test_train(self, flag, message):
    self.assert_refused(message, train, f"--run_dir={path('new')}", f"--corpus={corpus()}", *SMALL,
                        flag)

  @parameterized.parameters(
      ("--window=0", "--window=0"), ("--streams=0", "--streams=0"),
      ("--part=some", "flag --part=some"), ("--corpus=/no/such/file", "No such file"),
      ("--checkpoint=newest", "--checkpoint=newest is unknown; needed: best or last"),
      ("--seed=1", "--seed is not a flag of this program"),
      ("--bptt=10", "--bptt is not a flag of this program"),
      ("--run_dir=", "--run_dir is not given; needed: a run directory that train wrote"),
      ("--run_dir=/no/such/run", "/no/such/run/config.json is not there; needed: --run_dir"))
  def test_evaluate(self, flag, message):
    self.assert_refused(message, evaluate, f"--run_dir={trained()[0]}", f"--corpus={corpus()}",
                        flag)

  @parameterized.parameters(
      ("--length=-1", "--length=-1 is out of range"), ("--samples=0", "--samples=0"),
      ("--samples=-3", "--samples=-3 is out of range; needed: 1 to 2**31 - 1"),
      ("--temperature=-1", "--temperature=-1.0"), ("--temperature=nan", "--temperature=nan"),
      ("--top_k=0", "--top_k=0"), ("--top_k=1000", "--top_k=1000 is out of range; needed: 1 to "),
      ("--top_p=0", "--top_p=0.0"), ("--top_p=1.5", "--top_p=1.5 is out of range"),
      ("--prompt=the Ж", "found 'Ж' (U+0416) at position 4"), ("--stop=the", "is 3 tokens"),
      ("--stop=Ж", "found 'Ж' (U+0416) at position 0"),
      ("--seed=-1", "--seed=-1 is out of range"),
      ("--seed=99999999999999999999", "is out of range; needed: 0 to 2**32 - 1"),
      ("--corpus=x", "--corpus is not a flag of this program"))
  def test_sample(self, flag, message):
    self.assert_refused(message, sample, f"--run_dir={trained()[0]}", "--prompt=the", flag)

  @parameterized.parameters(
      (b"", "empty.txt: found an empty file, needed text"),
      (b"x", "nothing to score: found 1 tokens"),
      ("the Ж cat".encode(), "found 'Ж' (U+0416) at position 4"),
      (b"the caf\xe9", "found byte 0xe9 at byte offset 7, which is not valid utf-8; change"))
  def test_texts(self, content, message):
    run_dir, _ = trained()
    name = "empty.txt" if not content else "text.txt"
    text = texts.write(_SHARED["folder"].name, name, content if content != b"x" else b"a")
    self.assert_refused(message, evaluate, f"--run_dir={run_dir}", f"--corpus={text}")

  def test_an_existing_directory(self):
    run_dir, _ = trained()
    self.assert_refused("holds a run (finished); give --resume to go on with it, --overwrite to",
                        train, f"--run_dir={run_dir}", f"--corpus={corpus()}", *SMALL)
    self.assert_refused("is there and is not a run directory", train, "--overwrite",
                        f"--run_dir={_SHARED['folder'].name}", f"--corpus={corpus()}", *SMALL)

  def test_a_damaged_run(self):
    run_dir = shutil.copytree(trained()[0], path("damaged"))
    pathlib.Path(run_dir, "config.json").write_text("{")
    for module in (evaluate, sample):
      self.assert_refused("config.json: not JSON", module, f"--run_dir={run_dir}")

  @parameterized.parameters(np.nan, np.inf)
  def test_parameters_that_are_not_finite(self, value):
    run_dir = _changed_run("not_finite", lambda w: w.at[0, 0].set(value))
    for module in (evaluate, sample):
      self.assert_refused("array ['head']['w'] is not finite", module, f"--run_dir={run_dir}",
                          *([f"--corpus={corpus()}"] if module is evaluate else []))

  def test_a_directory_below_a_file(self):
    self.assert_refused("corpus.txt is not a directory that can be written to; needed: another "
                        "--run_dir", train, f"--run_dir={corpus()}/a/b", f"--corpus={corpus()}",
                        *SMALL)

  def test_debug_raises(self):
    with self.assertRaisesRegex(InputError, "--window=0"):
      binaries.here(evaluate, f"--run_dir={trained()[0]}", f"--corpus={corpus()}", "--window=0",
                    "--debug")


class OverwriteTest(absltest.TestCase):

  def test_an_older_run_is_replaced_by_one_without_validation(self):
    run_dir = shutil.copytree(trained()[0], path("older"))
    done = binaries.here(train, f"--run_dir={run_dir}", f"--corpus={corpus()}", *SMALL,
                         "--overwrite", "--valid_fraction=0")
    self.assertEqual(done.status, 0, done.stderr)
    self.assertEqual(done.stdout.splitlines()[-1], "no validation")
    self.assertIn("no validation: --valid_fraction is 0", done.stderr)
    self.assertEqual(os.listdir(os.path.join(run_dir, "checkpoints")), ["step-8"])
    self.assertEqual(binaries.here(sample, f"--run_dir={run_dir}").status, 0)


if __name__ == "__main__":
  absltest.main()
