"""Files that torch itself writes are read bit for bit; skipped where torch is not installed."""

import collections
import importlib.util
import os
import tempfile
import unittest

import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized

from hklm.interop import weights

if importlib.util.find_spec("torch"):
  import torch

  class Model(torch.nn.Module):
    """As pytorch/examples have it, with its vocabulary."""

    def __init__(self, tied=False):
      super().__init__()
      self.encoder = torch.nn.Embedding(5, 4)
      self.rnn = torch.nn.LSTM(4, 4, 2)
      self.decoder = torch.nn.Linear(4, 5)
      self.register_buffer("steps", torch.arange(3))
      self.register_buffer("passing", torch.ones(2), persistent=False)
      if tied:
        self.decoder.weight = self.encoder.weight
      self.dictionary = Dictionary()


class Dictionary:

  def __init__(self):
    self.idx2word = ["<eos>", "the", "né"]
    self.word2idx = {word: place for place, word in enumerate(self.idx2word)}


def array(tensor) -> np.ndarray:
  """torch's own way to NumPy, which lacks bfloat16."""
  tensor = tensor.detach()
  if tensor.dtype == torch.bfloat16:
    return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
  return tensor.numpy()


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
class TorchReadingTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())
    torch.manual_seed(0)

  def read(self, value, zipped: bool) -> weights.Weights:
    handle, path = tempfile.mkstemp(dir=self.folder)
    os.close(handle)
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return weights.read(path)

  def assert_same(self, found, expected):
    self.assertEqual(list(found), list(expected))
    for name, tensor in expected.items():
      self.assertEqual(found[name].dtype, array(tensor).dtype, name)
      self.assertEqual(found[name].shape, tuple(tensor.shape), name)
      self.assertEqual(found[name].tobytes(), array(tensor).tobytes(), name)

  @parameterized.product(zipped=[False, True], dtype=["float32", "float64", "float16", "bfloat16"])
  def test_state_dicts_and_modules(self, zipped, dtype):
    model = Model(tied=dtype == "float64").to(getattr(torch, dtype))
    optimizer = torch.optim.Adam(model.parameters())
    model.encoder(torch.tensor([1])).sum().backward()
    optimizer.step()
    for value in (model.state_dict(), model,
                  [model, torch.nn.CrossEntropyLoss(), optimizer],
                  {"epoch": 3, "model_state_dict": model.state_dict(), "loss": torch.tensor(2.0),
                   "optimizer_state_dict": optimizer.state_dict()}):
      found = self.read(value, zipped)
      self.assert_same(found.tensors, model.state_dict())
      if value is model:
        self.assertEqual(found.symbols, ("<eos>", "the", "né"))
    tied = np.shares_memory(found.tensors["encoder.weight"], found.tensors["decoder.weight"])
    self.assertEqual(tied, dtype == "float64")
    found = self.read(torch.nn.DataParallel(model), zipped).tensors
    self.assert_same(found, {f"module.{name}": part for name, part in model.state_dict().items()})

  @parameterized.parameters(False, True)
  def test_views_and_types(self, zipped):
    whole = torch.arange(24.0).reshape(4, 6)
    noted = torch.nn.Parameter(torch.ones(2))
    noted.note = "a"
    value = collections.OrderedDict(
        weight_hh=whole.T, row=whole[1], part=whole[1:3, ::2], one=whole[2, 3], none=whole[:0],
        repeated=torch.arange(4)[:2].expand(2, 2), noted=noted, mask=whole > 5,
        byte=torch.tensor([1, 255], dtype=torch.uint8), char=torch.tensor([-3], dtype=torch.int8),
        short=torch.tensor([-3], dtype=torch.int16), int=torch.tensor([-3], dtype=torch.int32),
        wide=torch.tensor([1, 65535], dtype=torch.uint16))
    found = self.read(value, zipped).tensors
    self.assert_same(found, value)
    self.assertTrue(np.shares_memory(found["weight_hh"], found["row"]))

  def test_checksums_that_were_not_computed(self):
    torch.serialization.set_crc32_options(False)
    self.addCleanup(torch.serialization.set_crc32_options, True)
    value = {"weight_hh": torch.ones(2, 2)}
    self.assert_same(self.read(value, True).tensors, value)


if __name__ == "__main__":
  absltest.main()
