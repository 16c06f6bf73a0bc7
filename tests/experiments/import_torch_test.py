"""Every layout from a file to a run directory, and what is refused with nothing written."""

import json
import os
import re
import tempfile
from unittest import mock

import chex
import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from experiments import evaluate, import_torch, report, train
from hklm.data.words import WordTokenizer
from hklm.training import checkpoints
from tests.experiments import binaries
from tests.interop import sources, torch_files
from tests.interop.sources import H, V, lstm, renamed, without

WORDS = ("the", "<eos>", "cat", "<unk>", "sat", "a", "dog")
SMALL = {"sizes": (H, H), "embedding": H}


def parts(params):
  """Leaves by `module/name`."""
  return {f"{module}/{name}": leaf for module, its in params.items() for name, leaf in its.items()}


def places(tensors, cell):
  """By `module/name` of a parameter, the tensors under the names of `lstm`."""
  tables = {"encoder.weight": "embedding/table", "decoder.weight": "head/w",
            "decoder.bias": "head/b"}
  names = {"weight_ih": "w_ih", "weight_hh": "w_hh", "bias_ih": "b", "bias_hh": "b_hh"}
  return {tables.get(name) or re.sub(r"rnn\.(\w+)_l(\d)", lambda match: (
      f"{cell}_{match[2]}/{names[match[1]]}"), name): tensor for name, tensor in tensors.items()}


def resident(name):
  """Bytes of memory that mappings of files of this name take."""
  total, here = 0, False
  with open("/proc/self/smaps", encoding="utf-8") as file:
    for line in file:
      field, _, rest = line.partition(":")
      if "-" in field:  # the first line of a mapping: addresses ... path
        here = line.rstrip().endswith(f"/{name}")
      elif field == "Rss" and here:
        total += int(rest.split()[0]) * 1024
  return total


def dropped(tensors):
  """awd-lstm-lm's: a list of layers, each with a raw recurrent matrix, one with its copy too."""
  for n in range(2):
    tensors = renamed(tensors, (f"rnn.weight_hh_l{n}", f"rnns.{n}.module.weight_hh_l0_raw"))
    tensors = renamed(tensors, *((f"rnn.{part}_l{n}", f"rnns.{n}.module.{part}_l0")
                                 for part in ("weight_ih", "bias_ih", "bias_hh")))
  copy = np.zeros_like(tensors["rnns.1.module.weight_hh_l0_raw"])
  return tensors | {"rnns.1.module.weight_hh_l0": copy}


def cells(tensors):
  return renamed(tensors, ("rnn.", "layers."), *((f"layers.{part}_l{n}", f"layers.{n}.{part}")
                 for n in range(2) for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))


def tensorflows(tensors):
  """Gates in the order i, g, f, o, the forget gate 1 lower, one bias."""
  def turned(tensor):
    i, f, g, o = np.split(tensor, 4)
    return np.concatenate([i, g, f, o])

  def lowered(bias):
    i, f, g, o = np.split(bias, 4)
    return turned(np.concatenate([i, f - 1, g, o]))

  return {name: turned(its) if "weight_" in name else lowered(its) if "bias_" in name else its
          for name, its in tensors.items()}


# By name: of a model what it has, how the file lays it out, flags, fields of its config.
LAYOUTS = {
    "word_language_model": ({**SMALL, "tied": True}, lambda its: its, (), {"tie_embeddings": True}),
    "data_parallel": ({**SMALL, "tied": True, "output_bias": False},
                      lambda its: {f"module.{name}": its[name] for name in its}, (),
                      {"tie_embeddings": True, "output_bias": False}),
    "awd": ({**SMALL, "sizes": (6, H), "tied": True}, dropped, (),
            {"layer_sizes": (6, H), "tie_embeddings": True}),
    "one_hot": ({"embedding": 0}, lambda its: renamed(its, ("rnn.", "lstm."), ("decoder.", "fc.")),
                ("--tokenizer=word",), {"embedding_size": 0}),
    "cells": (SMALL, cells, (), {}),
    "without_biases": ({"biases": 0, "output_bias": False}, lambda its: its, (),
                       {"num_biases": 0, "output_bias": False}),
    "gru": ({"gates": 3, "sizes": (H, H)}, lambda its: its, (), {"cell": "gru"}),
    "vanilla": ({"gates": 1}, lambda its: its, (), {"cell": "vanilla"}),
    "double": ({"dtype": np.float64}, lambda its: its, (), {"dtype": "float64"}),
    "tensorflow": ({"biases": 1}, tensorflows, ("--gate_order=igfo", "--forget_offset=1"),
                   {"num_biases": 1}),
}


class ImportTorchTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())
    self.run_dir = os.path.join(self.folder, "runs", "theirs")
    self.vocabulary = self.written("words.txt", "".join(f"{word}\n" for word in WORDS))

  def written(self, name, text):
    path = os.path.join(self.folder, name)
    with open(path, "w", encoding="utf-8") as file:
      file.write(text)
    return path

  def imported(self, tensors, *flags):
    path = os.path.join(self.folder, "weights.npz")
    np.savez(path, **tensors)
    return binaries.here(import_torch, f"--checkpoint={path}", f"--vocabulary={self.vocabulary}",
                         f"--run_dir={self.run_dir}", *flags)

  @parameterized.parameters(*LAYOUTS)
  def test_layouts(self, name):
    options, lay_out, flags, fields = LAYOUTS[name]
    ours = lstm(**options)
    theirs = lay_out(ours)
    done = self.imported(theirs, *flags)
    self.assertEqual(done.status, 0, done.stderr)
    with jax.enable_x64(name == "double"):
      run = hklm.load_run(self.run_dir)
    expected = places(without(ours, "decoder.weight") if options.get("tied") else ours,
                      fields.get("cell", "lstm"))
    found = parts(run.params)
    self.assertEqual(set(found), set(expected))
    for place, leaf in found.items():
      if name == "tensorflow" and place == "lstm_0/b":
        np.testing.assert_allclose(leaf, expected[place], rtol=1e-6, atol=1e-6)
      else:
        np.testing.assert_array_equal(leaf, expected[place], place, strict=True)
    self.assertEqual(run.config.model, hklm.ModelConfig(**{
        "vocab_size": V, "embedding_size": options.get("embedding", sources.E),
        "hidden_size": max(options.get("sizes", (H,))),
        "num_layers": len(options.get("sizes", (H,))), "num_biases": 2, **fields}))
    self.assertEqual(run.tokenizer, WordTokenizer(
        ("the", "cat", "sat", "a", "dog"), symbols_in_text=True, control_ids=(3, 1)))
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    self.assertEqual(rows[0], ["tensor", "shape", "parameter", "note"])
    self.assertEqual([row[0] for row in rows[1:]], list(theirs))
    self.assertEqual([row[1] for row in rows[1:]],
                     [",".join(map(str, tensor.shape)) for tensor in theirs.values()])
    self.assertEqual({row[2] for row in rows[1:]} - {"-"}, set(found))

  def test_the_other_programs_read_it(self):
    tensors = lstm(**SMALL)
    self.assertEqual(self.imported(tensors).status, 0)
    text = "the cat sat\na dog sat <unk> zebra\n" * 8
    corpus = f"--corpus={self.written('text', text)}"
    done = binaries.here(evaluate, f"--run_dir={self.run_dir}", corpus, "--json", "--window=16")
    self.assertEqual(done.status, 0, done.stderr)
    figures = json.loads(done.stdout)
    ids = [WORDS.index(word if word in WORDS else "<unk>")
           for word in text.replace("\n", " <eos> ").split()]
    logits = sources.logits(tensors, ids[:-1])
    shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    nats = -sum(row[token] for row, token in zip(shares, ids[1:], strict=True))
    self.assertEqual((figures["tokens"], figures["oov_tokens"]), (len(ids) - 1, 16))
    np.testing.assert_allclose(figures["nll_nats"], nats, rtol=1e-5)

    for program, flags, needed in (
        (evaluate, (), "--corpus"), (report, (f"--output={self.folder}/r.html",), "--input")):
      done = binaries.here(program, f"--run_dir={self.run_dir}", *flags)
      self.assertRegex(done.stderr, f"error: .* has no text of its own, .*; needed: {needed}")
    done = binaries.here(train, f"--run_dir={self.run_dir}", corpus, "--resume", "--batch_size=2",
                         "--bptt=5")
    self.assertRegex(done.stderr, "error: .*--init_from")

    tuned = os.path.join(self.folder, "tuned")
    done = binaries.here(train, f"--init_from={self.run_dir}", f"--run_dir={tuned}", corpus,
                         "--steps=1", "--bptt=5", "--batch_size=2", "--learning_rate=1e-9")
    self.assertEqual(done.status, 0, done.stderr)
    run = hklm.load_run(tuned)
    chex.assert_trees_all_close(run.params, hklm.load_run(self.run_dir).params, atol=1e-6)
    self.assertEqual(run.tokenizer, hklm.load_run(self.run_dir).tokenizer)

  @parameterized.named_parameters(
      ("nan", lambda its: {**its, "decoder.bias": np.full(V, np.nan, np.float32)}, (),
       r"tensor decoder.bias: found nan at \[0\], needed finite numbers"),
      ("missing", lambda its: without(its, "weight_hh_l1"), (), "tensor rnn.weight_hh_l1 is miss"),
      ("left_over", lambda its: its | {"steps": np.array(3)}, (), r"no place for steps \[\]; nee"),
      ("bidirectional", lambda its: its | {"rnn.weight_ih_l0_reverse": its["rnn.weight_ih_l0"]}, (),
       "rnn.weight_ih_l0_reverse is of a bidirectional layer"),
      ("gates", lambda its: its, ("--gate_order=ifg",), "--gate_order=ifg is unknown"),
      ("offset", lambda its: its | {"rnn.bias_ih_l1": np.full(4 * H, 3e38, np.float32)},
       ("--forget_offset=3e38",),
       r"tensor rnn.bias_ih_l1 with --forget_offset=3e\+38: found inf at \[4\], needed finite"),
      ("nameless", lambda its: its, ("--vocabulary=",),
       "has no vocabulary .*; needed: --vocabulary, the 7 symbols"),
      ("tokenizer", lambda its: its, ("--tokenizer=bpe",), "--tokenizer=bpe: a vocabulary is"),
      ("size", lambda its: its | {"encoder.weight": np.ones([8, H], np.float32),
                                  "decoder.weight": np.zeros([8, H], np.float32),
                                  "decoder.bias": np.ones(8, np.float32)}, (),
       "the vocabulary has 7 symbols, the model 8 ids"))
  def test_what_is_refused_leaves_nothing(self, change, flags, message):
    before = set(os.listdir(self.folder))
    done = self.imported(change(lstm(**SMALL)), *flags)
    self.assertEqual(done.status, 1)
    self.assertEqual(done.stdout, "")
    self.assertLen(done.stderr.splitlines(), 1)
    self.assertRegex(done.stderr, f"^error: .*{message}")
    self.assertEqual(set(os.listdir(self.folder)) - before, {"weights.npz"})

  def test_an_older_run_stays_unless_it_is_replaced_whole(self):
    self.assertEqual(self.imported(lstm(**SMALL)).status, 0)
    before = hklm.load_run(self.run_dir)
    other = lstm(**SMALL, seed=1)
    self.assertRegex(self.imported(other).stderr, "holds a run .*--overwrite to replace it")
    with mock.patch.object(checkpoints, "_digest", side_effect=OSError(28, "No space left")):
      done = self.imported(other, "--overwrite")
    self.assertRegex(done.stderr, "^error: .*cannot be saved")
    self.assertEqual(os.listdir(os.path.dirname(self.run_dir)), ["theirs"])
    chex.assert_trees_all_equal(hklm.load_run(self.run_dir).params, before.params)
    self.assertEqual(self.imported(other, "--overwrite").status, 0)
    np.testing.assert_array_equal(hklm.load_run(self.run_dir).params["head"]["w"],
                                  other["decoder.weight"])

  @parameterized.parameters(
      ("ifog", 0.0, ("--gate_order=ifog",)), ("ifgo", 1.0, ("--forget_offset=1",)))
  def test_other_conventions_against_numpy(self, order, offset, flags):
    tensors = lstm(**SMALL)
    done = self.imported(tensors, *flags)
    self.assertEqual(done.status, 0, done.stderr)
    run = hklm.load_run(self.run_dir)
    ids = np.array([3, 1, 6, 0, 3], np.int32)
    state = run.lm.initial_state(run.params, 1)
    logits, _ = run.lm.unroll(run.params, None, ids[:, None], state)
    np.testing.assert_allclose(logits[:, 0], sources.logits(tensors, ids, order, offset),
                               rtol=1e-4, atol=1e-5)

  @parameterized.parameters("npz", "zipped", "old")
  def test_what_was_read_is_not_held_while_it_is_written(self, layout):
    held = []

    def create(*args, **options):
      held.append(resident("weights"))
      return os.path.join(self.folder, "none")

    tensors = lstm((256,), embedding=256)
    path = os.path.join(self.folder, "weights")
    with open(path, "wb") as file:
      if layout == "npz":
        np.savez(file, **tensors)
      else:
        file.write(torch_files.FORMATS[layout]({
            name: torch_files.tensor(tensor) for name, tensor in tensors.items()}))
    with mock.patch.object(import_torch.runs, "create", create):
      done = binaries.here(import_torch, f"--checkpoint={path}", f"--run_dir={self.run_dir}",
                           f"--vocabulary={self.vocabulary}", "--gate_order=igfo")
    self.assertEqual(done.status, 0, done.stderr)
    self.assertLen(held, 1)
    self.assertLess(held[0], os.path.getsize(path) / 10)

  def test_control_symbols_that_the_vocabulary_lacks_are_told(self):
    words = [{"<unk>": "UNK", "<eos>": "</s>"}.get(word, word) for word in WORDS]
    self.vocabulary = self.written("words.txt", "\n".join(words) + "\n")
    done = self.imported(lstm(**SMALL))
    self.assertEqual(done.status, 0)
    self.assertRegex(done.stderr, "the vocabulary has no <unk>: words that it lacks are errors")
    self.assertRegex(done.stderr, "the vocabulary has no <eos>: line feeds are only white space")
    done = self.imported(lstm(**SMALL), "--unknown=UNK", "--end_of_line=<S>", "--overwrite")
    self.assertRegex(done.stderr, "^error: --end_of_line=<S> is not in the vocabulary")
    done = self.imported(lstm(**SMALL), "--unknown=UNK", "--end_of_line=</s>", "--overwrite")
    self.assertEqual(done.status, 0)
    self.assertNotIn("vocabulary has no", done.stderr)

  def test_no_checkpoint(self):
    done = binaries.here(import_torch, f"--run_dir={self.run_dir}")
    self.assertRegex(done.stderr, "^error: --checkpoint is not given; needed: a file with")


if __name__ == "__main__":
  absltest.main()
