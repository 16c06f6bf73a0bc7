"""A folder of weights is read as a run is, bit for bit, or refused in one line."""

import dataclasses
import json
import os
import pathlib
import shutil
import struct
import tempfile

import chex
import jax
import numpy as np
import safetensors.numpy
from absl.testing import absltest, parameterized

import hklm
from hklm import parameters
from hklm import run as runs
from hklm.data.characters import CharTokenizer
from hklm.errors import InputError
from hklm.interop import folders
from tests import oracle
from tests.training import texts

MODEL = hklm.ModelConfig(vocab_size=4, embedding_size=3, hidden_size=5)
CONTENTS = runs.Contents(hklm.TrainConfig(MODEL, seed=7), CharTokenizer("abcd"), "a text")


def parsed(path):
  """Header and numbers of a file, read as the format is described, without the library."""
  content = pathlib.Path(path).read_bytes()
  (size,) = struct.unpack("<Q", content[:8])
  return json.loads(content[8:8 + size]), content[8 + size:]


class SafetensorsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = os.path.join(self.folder, "weights")
    self.file = os.path.join(self.path, "model.safetensors")

  def saved(self, contents=CONTENTS, path=None, **kwargs):
    lm = hklm.language_model(contents.config.model)
    params = oracle.random_like(parameters.shapes(lm))
    folders.save(path or self.path, contents, params, **kwargs)
    return params

  def changed(self, change):
    """Writes the file again with other tensors, under the same header."""
    with safetensors.safe_open(self.file, framework="np") as file:
      about = file.metadata()
    tensors = safetensors.numpy.load_file(self.file)
    change(tensors)
    safetensors.numpy.save_file(tensors, self.file, metadata=about)

  def assert_refused(self, message, function, *args, **kwargs):
    with self.assertRaises(InputError) as caught:
      function(*args, **kwargs)
    self.assertIn(message, str(caught.exception))
    self.assertNotIn("\n", str(caught.exception))
    self.assertEmpty([name for name in os.listdir(self.folder) if name.startswith(".hklm")])


class FolderTest(SafetensorsTest):

  @parameterized.parameters("float32", "bfloat16", "float64")
  def test_everything_comes_back_bit_for_bit_where_it_was_moved_to(self, dtype):
    self.addCleanup(jax.config.update, "jax_enable_x64", jax.config.jax_enable_x64)
    jax.config.update("jax_enable_x64", dtype == "float64")
    model = dataclasses.replace(MODEL, dtype=dtype)
    contents = CONTENTS._replace(config=hklm.TrainConfig(model))
    params = self.saved(contents)
    moved = shutil.move(self.path, os.path.join(self.folder, "moved to é"))
    run = hklm.load_run(moved)
    chex.assert_trees_all_equal(run.params, params, strict=True)
    self.assertEqual(runs.read_contents(moved), contents)
    self.assertEqual((run.config, run.tokenizer), contents[:2])
    self.assertIs(run.lm, hklm.language_model(model))

  def test_names_layout_and_header(self):
    params = self.saved()
    header, numbers = parsed(self.file)
    about = json.loads(header.pop("__metadata__")["hklm"])
    self.assertEqual(about["run"], CONTENTS.identity)
    self.assertEqual(sorted(header), ["embedding/table", "head/b", "head/w", "lstm_0/b",
                                      "lstm_0/w_hh", "lstm_0/w_ih"])
    its = header["lstm_0/w_hh"]
    self.assertEqual((its["dtype"], its["shape"]), ("F32", [20, 5]))
    self.assertEqual(numbers[slice(*its["data_offsets"])],
                     np.asarray(params["lstm_0"]["w_hh"]).tobytes())

  def test_all_may_read_what_all_may_read_elsewhere(self):
    self.saved()
    other = os.path.join(self.folder, "plain")
    open(other, "w").close()
    self.assertEqual(os.stat(self.file).st_mode, os.stat(other).st_mode)

  def test_what_is_there_is_replaced_only_when_asked_and_only_if_it_is_one(self):
    self.saved()
    before = parsed(self.file)
    self.assert_refused("weights is there; give --overwrite to replace it, or another --output",
                        self.saved)
    self.assertEqual(parsed(self.file), before)
    self.saved(CONTENTS._replace(text_fingerprint="another"), overwrite=True)
    self.assertEqual(runs.read_contents(self.path).text_fingerprint, "another")
    texts.write(self.path, "notes.txt", "mine")
    self.assert_refused("is there and is not what export wrote", self.saved, overwrite=True)
    self.assertTrue(os.path.exists(os.path.join(self.path, "notes.txt")))

  def test_another_programs_model_is_never_replaced(self):
    os.mkdir(self.path)
    for name in folders.NAMES:
      texts.write(self.path, name, "{}")
    self.assert_refused("is there and is not what export wrote", self.saved, overwrite=True)
    run = os.path.join(self.folder, "run")
    runs.create(run, CONTENTS, files={"train.flags": ""})
    self.assert_refused("is there and is not what export wrote", self.saved, path=run,
                        overwrite=True)

  def test_below_a_file(self):
    file = texts.write(self.folder, "file", "text")
    self.assert_refused("--output=", self.saved, path=os.path.join(file, "weights"))
    self.assert_refused("is there and is not what export wrote", self.saved, path=file)

  def test_parameters_that_are_not_finite_are_not_written(self):
    params = parameters.nested(
        {name: np.full(its.shape, 0, its.dtype) for name, its in
         parameters.described(hklm.language_model(MODEL)).items()}, hklm.language_model(MODEL))
    params["head"]["b"] = params["head"]["b"].at[0].set(np.nan)
    self.assert_refused("tensor head/b is not finite", folders.save, self.path, CONTENTS, params)
    params["head"]["b"] = np.zeros(7, np.float32)
    self.assert_refused("tensor head/b: found float32[7], needed", folders.save, self.path,
                        CONTENTS, params)
    self.assertFalse(os.path.exists(self.path))


class RefusedTest(SafetensorsTest):

  def setUp(self):
    super().setUp()
    self.saved()

  @parameterized.parameters(
      (lambda its: its.update({"head/w2": its.pop("head/w")}),
       "tensor head/w: found nothing, needed float32[4, 5]"),
      (lambda its: its.update({"more/w": np.zeros(2, np.float32)}),
       "tensor more/w: found float32[2], needed nothing"),
      (lambda its: its.update({"head/w": np.zeros([5, 4], np.float32)}),
       "tensor head/w: found float32[5, 4], needed float32[4, 5]"),
      (lambda its: its.update({"head/w": np.zeros([4, 5])}), "found float64[4, 5], needed float32"),
      (lambda its: its["lstm_0/b"].fill(np.nan), "tensor lstm_0/b is not finite"),
      (lambda its: its["lstm_0/b"].fill(0.5), "the tensors are not what was written"))
  def test_other_tensors(self, change, message):
    self.changed(change)
    self.assert_refused(f"{self.file}: {message}" if message.startswith("t") else message,
                        hklm.load_run, self.path)

  @parameterized.parameters(0, 4, 50, -1)
  def test_cut(self, size):
    content = pathlib.Path(self.file).read_bytes()
    pathlib.Path(self.file).write_bytes(content[:size])
    self.assert_refused("model.safetensors: not readable (", hklm.load_run, self.path)

  def test_a_flipped_bit(self):
    with open(self.file, "r+b") as file:
      file.seek(-3, os.SEEK_END)
      byte = file.read(1)[0]
      file.seek(-3, os.SEEK_END)
      file.write(bytes([byte ^ 1]))
    self.assert_refused("the tensors are not what was written", hklm.load_run, self.path)

  def test_another_programs_file(self):
    safetensors.numpy.save_file(safetensors.numpy.load_file(self.file), self.file)
    self.assert_refused("its header has no hklm: another program's; needed", hklm.load_run,
                        self.path)

  def test_another_runs_weights_and_tokenizer(self):
    other = os.path.join(self.folder, "other")
    self.saved(runs.Contents(CONTENTS.config, CharTokenizer("abcx")), other)
    shutil.copy(os.path.join(other, "model.safetensors"), self.path)
    self.assert_refused("another run's, or config.json has changed since", hklm.load_run, self.path)
    shutil.copy(os.path.join(other, "tokenizer.json"), self.path)
    self.assert_refused("needed: the run's own tokenizer", hklm.load_run, self.path)

  def test_no_state_of_training_is_made_of_it(self):
    self.assert_refused("no checkpoints; drop it", hklm.load_run, self.path, "last")
    for how in ({"resume": True}, {}):
      self.assert_refused("no state of training; give --init_from=", hklm.train,
                          dataclasses.replace(CONTENTS.config, seed=8), self.path, "abcd" * 99,
                          **how)
    self.assertCountEqual(os.listdir(self.path), folders.NAMES)


if __name__ == "__main__":
  absltest.main()
