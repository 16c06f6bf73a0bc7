"""What `score` and `evaluate` make of the flags by which a model adapts to a text."""

import json
import math
import os
import tempfile

import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import evaluate, score, train
from hklm.inference import temperature
from tests.experiments import binaries
from tests.training import texts

TEXT = texts.sentences(1500)
PART = "".join(TEXT.splitlines(keepends=True)[:6])
_SHARED = {}


def setUpModule():
  _SHARED["folder"] = tempfile.TemporaryDirectory()
  folder = _SHARED["folder"].name
  for name, text in (("train", TEXT), ("valid", PART)):
    _SHARED[name] = texts.write(folder, f"{name}.txt", text)
  _SHARED["run"] = os.path.join(folder, "run")
  done = binaries.here(
      train, f"--run_dir={_SHARED['run']}", f"--corpus={_SHARED['train']}", "--hidden_size=8",
      "--embedding_size=4", "--batch_size=4", "--bptt=10", "--steps=20")
  assert not done.status, done.stderr


def tearDownModule():
  _SHARED["folder"].cleanup()
  _SHARED.clear()


def evaluated(*flags):
  done = binaries.here(evaluate, "--json", f"--run_dir={_SHARED['run']}",
                       f"--corpus={_SHARED['valid']}", *flags)
  assert not done.status, done.stderr
  return json.loads(done.stdout)


def scored(*flags):
  """Rows, as dictionaries."""
  done = binaries.here(score, f"--run_dir={_SHARED['run']}", f"--input={_SHARED['valid']}",
                       "--output_format=jsonl", *flags)
  assert not done.status, done.stderr
  return [json.loads(line) for line in done.stdout.splitlines()]


def dynamic():
  return ("--dynamic_rate=0.01", "--dynamic_epsilon=0.01", f"--dynamic_corpus={_SHARED['train']}")


class AdaptingTest(parameterized.TestCase):

  def test_off_is_the_model_as_it_is(self):
    run = hklm.load_run(_SHARED["run"])
    figures = evaluated()
    self.assertNotIn("adapting", figures)
    self.assertEqual(figures["nll_nats"],
                     hklm.evaluate(run.lm, run.params, run.tokenizer.encode(PART)).nats)
    self.assertEqual({row["context"] for row in scored("--mode=stream", "--per=line")},
                     {"stream:eol"})

  @parameterized.named_parameters(
      ("cache", lambda: ["--cache_size=50"], "cache(50,0.1,1)"),
      ("dynamic", dynamic, "dynamic(0.01,0.02,5,0.01)"),
      ("both", lambda: ["--cache_size=9", "--cache_weight=0.2", "--cache_flatness=.5", *dynamic(),
                        "--dynamic_segment=3", "--dynamic_decay=0.001"],
       "dynamic(0.01,0.001,3,0.01)+cache(9,0.2,0.5)"))
  def test_both_binaries_say_the_same_and_name_what_is_on(self, flags, name):
    figures, plain = evaluated(*flags(), "--window=100"), evaluated()
    self.assertEqual((figures["adapting"], figures["tokens"]), (name, plain["tokens"]))
    self.assertGreater(abs(figures["nll_nats"] - plain["nll_nats"]), 1e-3 * plain["nll_nats"])
    # evaluate does not score the text's first token; with no start, score does not either, and
    # begins with the same state.
    rows = scored(*flags(), "--mode=stream", "--start=none")
    self.assertEqual({row["context"] for row in rows}, {f"stream:none+{name}"})
    bits = [row["surprisal_bits"] for row in rows]
    self.assertIsNone(bits[0])
    np.testing.assert_allclose(math.fsum(bits[1:]) * math.log(2), figures["nll_nats"], rtol=1e-6)

  def test_temperature_in_every_mode(self):
    run = hklm.load_run(_SHARED["run"])
    flag = f"--temperature_from={_SHARED['valid']}"
    ids = run.tokenizer.encode(PART)
    T = temperature.tune_temperature(run.lm, run.params, ids)
    name = f"temperature({T:.6g})"
    figures = evaluated(flag)
    self.assertEqual(figures["adapting"], name)
    self.assertLess(figures["nll_nats"], evaluated()["nll_nats"])
    self.assertEqual(evaluated(flag, "--streams=3")["adapting"], name)
    self.assertEqual(evaluated(flag, "--cache_size=5")["adapting"], f"{name}+cache(5,0.1,1)")
    rows = scored(flag, "--start=state")
    self.assertEqual({row["context"] for row in rows}, {f"lines:state+{name}"})
    tempered = temperature.tempered(run.lm, T)
    expected = hklm.score_lines(tempered, run.params,
                                [run.tokenizer.encode(line + "\n") for line in PART.splitlines()])
    np.testing.assert_allclose([row["surprisal_bits"] * math.log(2) for row in rows],
                               np.concatenate(expected), rtol=1e-5)

  def test_the_table_names_it_too(self):
    done = binaries.here(evaluate, f"--run_dir={_SHARED['run']}", f"--corpus={_SHARED['valid']}",
                         "--cache_size=5")
    self.assertIn("adapting                cache(5,0.1,1)\n", done.stdout)

  @parameterized.parameters(
      (score, ["--cache_size=5"], "--cache_size adapts .* needed: --mode=stream"),
      (evaluate, ["--cache_size=5", "--streams=2"], "needed: --streams=1"),
      (evaluate, ["--dynamic_rate=.1"], "needed: --dynamic_corpus"),
      (evaluate, ["--cache_weight=.1"], "--cache_weight changes nothing without --cache_size"),
      (evaluate, ["--dynamic_decay=.1"], "--dynamic_decay changes nothing without --dynamic_rate"),
      (evaluate, ["--cache_size=-5"], "found --cache_size=-5"),
      (evaluate, ["--dynamic_rate=-1", "--dynamic_corpus=x"], "found --dynamic_rate=-1"),
      (evaluate, ["--temperature_from=no/such"], "no/such: No such file"),
      (evaluate, ["--dynamic_rate=.1", "--dynamic_segment=9999", "--dynamic_corpus=TRAIN"],
       "more than --dynamic_segment=9999"))
  def test_mistakes_are_one_line(self, module, flags, message):
    name = {score: "--input", evaluate: "--corpus"}[module]
    flags = [flag.replace("TRAIN", _SHARED["train"]) for flag in flags]
    done = binaries.here(module, f"--run_dir={_SHARED['run']}", f"{name}={_SHARED['valid']}",
                         *flags)
    self.assertEqual((done.status, done.stdout), (1, ""))
    self.assertRegex(done.stderr.splitlines()[-1], f"^error: .*{message}")


if __name__ == "__main__":
  absltest.main()
