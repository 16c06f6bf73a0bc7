"""A run leaves in each format by the binary; mistakes end in one line and leave nothing."""

import importlib.util
import json
import os
import pathlib
import resource
import signal
import tempfile
from unittest import mock

import jax
import numpy as np
import safetensors.numpy
from absl.testing import absltest, parameterized

import hklm
from experiments import evaluate, export
from hklm import run as runs
from hklm.data import tokenizers
from tests import on_disk
from tests.experiments import binaries
from tests.training import texts

TEXT = "a cab\n" * 20
HAS_TORCH = importlib.util.find_spec("torch") is not None


class ExportTestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())

  def path(self, name):
    return os.path.join(self.folder, name)

  def made_run(self, kind="char", **changes):
    """A run directory as train leaves it, but never trained."""
    tokenizer = tokenizers.build(
        hklm.TokenizerConfig(kind, vocab_size=258 if kind == "bpe" else 0), [TEXT])
    config = hklm.TrainConfig(hklm.ModelConfig(tokenizer.vocab_size, 3, 4, **changes),
                              hklm.TokenizerConfig(kind))
    path = runs.create(self.path("run"), runs.Contents(config, tokenizer))
    on_disk.write(path, "last", hklm.language_model(config.model).init(jax.random.key(0)))
    return path

  def exported(self, run_dir, format_, output, *flags):
    return binaries.here(export, f"--run_dir={run_dir}", f"--format={format_}",
                         f"--output={self.path(output)}", *flags)

  def assert_refused(self, done, message):
    self.assertEqual((done.status, done.stdout), (1, ""), done.stderr)
    self.assertIn(message, done.stderr.splitlines()[-1])
    self.assertEqual(os.listdir(self.folder), ["run"])


class ExportTest(ExportTestCase):

  def test_weights_are_evaluated_as_the_run_is(self):
    run_dir, text = self.made_run(), texts.write(self.folder, "text", TEXT)
    done = self.exported(run_dir, "safetensors", "weights")
    self.assertEqual((done.status, done.stdout), (0, self.path("weights") + "\n"), done.stderr)
    tables = [binaries.here(evaluate, f"--run_dir={path}", f"--corpus={text}").stdout
              for path in (run_dir, self.path("weights"))]
    self.assertIn("nll_nats", tables[0])
    self.assertEqual(*tables)
    again = self.exported(self.path("weights"), "safetensors", "again")  # from weights, weights
    self.assertEqual(again.status, 0, again.stderr)
    files = [pathlib.Path(self.path(name), "model.safetensors").read_bytes()
             for name in ("weights", "again")]
    self.assertEqual(*files)

  def test_functions(self):
    run_dir = self.made_run("word")
    done = self.exported(run_dir, "stablehlo", "functions")
    self.assertEqual((done.status, done.stdout), (0, self.path("functions") + "\n"), done.stderr)
    self.assertEqual(tokenizers.load(self.path("functions/tokenizer.json")),
                     hklm.load_run(run_dir).tokenizer)
    self.assertEqual(self.exported(run_dir, "stablehlo", "functions").status, 1)

  @parameterized.parameters(
      ("torch", "F", "needed for --format=torch: a file that ends in .safetensors, .npz, .pt"),
      ("safetensors", "run", "is there and is not what export wrote; needed: another --output"),
      ("stablehlo", "run", "is there and is not what export wrote; needed: another --output"),
      ("safetensors", "run/config.json/x", "x: cannot be written ("))
  def test_places_that_do_not_serve(self, format_, output, message):
    self.assert_refused(self.exported(self.made_run(), format_, output, "--overwrite"), message)

  def test_flags_that_are_missing(self):
    run_dir = self.made_run()
    for flags, message in (
        (("--output=F",), "--format is not given; needed: torch, safetensors or stablehlo"),
        (("--format=torch",), "--output is not given; needed: the file or folder to write")):
      self.assert_refused(binaries.here(export, f"--run_dir={run_dir}", *flags), message)

  def test_without_torch_its_own_format_is_refused_before_anything_is_read(self):
    with mock.patch.object(importlib.util, "find_spec", return_value=None):
      done = self.exported(self.made_run(), "torch", "model.pt")
    self.assert_refused(done, "is written by PyTorch, which is not installed; needed: pip install "
                        "torch, or a file that ends in .safetensors or .npz")


class TorchTest(ExportTestCase):

  @parameterized.parameters(
      ("char", "char", list("\n abc")), ("word", "word", ["<unk>", "<eos>", "a", "cab"]),
      ("byte", "byte", None), ("bpe", "bpe", None))
  def test_symbols_and_tokenizer_are_beside_the_tensors(self, kind, name, symbols):
    run = hklm.load_run(self.made_run(kind))
    done = self.exported(run.path, "torch", f"{name}.safetensors")
    self.assertEqual(done.status, 0, done.stderr)
    self.assertEqual(tokenizers.load(self.path(f"{name}.safetensors.tokenizer.json")),
                     run.tokenizer)
    if symbols is None:
      self.assertFalse(os.path.exists(self.path(f"{name}.safetensors.vocabulary.json")))
    else:
      text = pathlib.Path(self.path(f"{name}.safetensors.vocabulary.json")).read_text("utf-8")
      self.assertEqual(json.loads(text), symbols)
    tensors = safetensors.numpy.load_file(self.path(f"{name}.safetensors"))
    np.testing.assert_array_equal(tensors["encoder.weight"], run.params["embedding"]["table"])
    self.assertEqual(tensors["rnn.weight_hh_l0"].shape, (16, 4))

  def test_every_ending_holds_the_same(self):
    run_dir = self.made_run()
    endings = (".safetensors", ".npz") + ((".pt",) if HAS_TORCH else ())
    for ending in endings:
      done = self.exported(run_dir, "torch", f"model{ending[1:]}{ending}")
      self.assertEqual(done.status, 0, done.stderr)
    first = safetensors.numpy.load_file(self.path("modelsafetensors.safetensors"))
    with np.load(self.path("modelnpz.npz"), allow_pickle=False) as second:
      self.assertEqual(sorted(second), sorted(first))
      for name, tensor in first.items():
        np.testing.assert_array_equal(second[name], tensor)
    if HAS_TORCH:
      import torch
      third = torch.load(self.path("modelpt.pt"), weights_only=True)
      for name, tensor in first.items():
        np.testing.assert_array_equal(third[name].numpy(), tensor)

  @parameterized.parameters(*((".safetensors", ".npz") + ((".pt",) if HAS_TORCH else ())))
  def test_a_full_disk(self, ending):
    run_dir = self.made_run()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
      resource.setrlimit(resource.RLIMIT_FSIZE, (900, limit[1]))
      done = self.exported(run_dir, "torch", f"full{ending}")
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, limit)
      signal.signal(signal.SIGXFSZ, handler)
    self.assert_refused(done, "cannot be written")
    self.assertEqual([name for name in os.listdir(self.folder) if "full" in name], [])

  def test_bfloat16(self):
    run_dir = self.made_run(dtype="bfloat16")
    self.assert_refused(self.exported(run_dir, "torch", "model.npz"), "in bfloat16, which .npz has")
    done = self.exported(run_dir, "torch", "model.safetensors")
    self.assertEqual(done.status, 0, done.stderr)
    with safetensors.safe_open(self.path("model.safetensors"), framework="np") as file:
      self.assertEqual(file.get_slice("decoder.weight").get_dtype(), "BF16")
    if HAS_TORCH:
      import torch
      self.assertEqual(self.exported(run_dir, "torch", "other.pt").status, 0)
      its = torch.load(self.path("other.pt"), weights_only=True)["encoder.weight"]
      self.assertEqual(its.dtype, torch.bfloat16)
      np.testing.assert_array_equal(
          its.float().numpy(), np.asarray(hklm.load_run(run_dir).params["embedding"]["table"],
                                          np.float32))

  def test_what_is_there_stays(self):
    run_dir = self.made_run()
    self.assertEqual(self.exported(run_dir, "torch", "model.npz").status, 0)
    for name in ("model.npz", "model.npz.vocabulary.json", "model.npz.tokenizer.json"):
      with self.subTest(name):
        texts.write(self.folder, name, "mine")
        done = self.exported(run_dir, "torch", "model.npz")
        self.assertEqual(done.status, 1)
        self.assertIn("is there; give --overwrite to replace a file", done.stderr)
        self.assertEqual(pathlib.Path(self.path(name)).read_text(), "mine")
        self.assertEqual(self.exported(run_dir, "torch", "model.npz", "--overwrite").status, 0)

  def test_what_pytorch_cannot_compute(self):
    self.assert_refused(self.exported(self.made_run(cell="qrnn"), "torch", "model.npz"), "qrnn")


if __name__ == "__main__":
  absltest.main()
