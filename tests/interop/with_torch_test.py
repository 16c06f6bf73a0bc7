"""What PyTorch itself computes, where it is installed."""

import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.interop.torch import export_state_dict, import_state_dict
from tests import oracle

try:
  import torch
except ModuleNotFoundError as error:
  raise absltest.SkipTest("torch is not installed") from error

V, E, H, T, B = 11, 6, 5, 4, 3


class Model(torch.nn.Module):
  """pytorch/examples' word_language_model, with other layers; E of 0: one-hot input."""

  def __init__(self, layers, depth=1, size=E, tied=False, output_bias=True, **options):
    super().__init__()
    if size:
      self.encoder = torch.nn.Embedding(V, size)
    self.rnn = layers(size or V, H, depth, **options)
    self.decoder = torch.nn.Linear(options.get("proj_size") or H, V, bias=output_bias)
    if tied:
      self.decoder.weight = self.encoder.weight

  def forward(self, ids, state=None):
    x = self.encoder(ids) if hasattr(self, "encoder") else torch.nn.functional.one_hot(
        ids, V).to(self.decoder.weight)
    ys, state = self.rnn(x, state)
    return self.decoder(ys), state


class Cells(torch.nn.Module):
  """A list of `nn.LSTMCell`, stepped by hand."""

  def __init__(self):
    super().__init__()
    self.emb = torch.nn.Embedding(V, H)
    self.cells = torch.nn.ModuleList(torch.nn.LSTMCell(H, H) for _ in range(2))
    self.fc = torch.nn.Linear(H, V)

  def forward(self, ids, state=None):
    state = state or [(torch.zeros(B, H).to(self.fc.weight),) * 2 for _ in self.cells]
    rows = []
    for x in self.emb(ids):
      for n, cell in enumerate(self.cells):
        state[n] = cell(x, state[n])
        x = state[n][0]
      rows.append(self.fc(x))
    return torch.stack(rows), state


MODELS = {
    "one_layer": lambda: Model(torch.nn.LSTM),
    "two_layers_tied": lambda: Model(torch.nn.LSTM, 2, H, tied=True),
    "three_layers_without_biases": lambda: Model(torch.nn.LSTM, 3, output_bias=False, bias=False),
    "one_hot": lambda: Model(torch.nn.LSTM, size=0),
    "projected": lambda: Model(torch.nn.LSTM, 2, proj_size=3),
    "gru": lambda: Model(torch.nn.GRU, 2),
    "gru_without_biases": lambda: Model(torch.nn.GRU, bias=False),
    "vanilla": lambda: Model(torch.nn.RNN, 2),
    "cells": Cells,
}
SINGLE = ("one_layer", "two_layers_tied", "three_layers_without_biases", "gru")


def windows():
  return np.random.RandomState(0).randint(V, size=[2, T, B])


class WithTorchTest(oracle.X64TestCase):

  @parameterized.parameters(*((name, "float64") for name in MODELS),
                            *((name, "float32") for name in SINGLE))
  def test_logits_and_the_way_back(self, name, dtype):
    torch.manual_seed(0)
    source = MODELS[name]().to(getattr(torch, dtype))
    with torch.no_grad():
      for parameter in source.parameters():
        parameter.normal_(std=0.5)
      its = import_state_dict(source.state_dict())
      lm = hklm.language_model(its.config)

      def read(params):
        first, state = lm.unroll(params, None, windows()[0], lm.initial_state(params, B))
        second, _ = lm.unroll(params, None, windows()[1], state)
        return first, second

      state, expected = None, []
      for window in windows():
        logits, state = source(torch.tensor(window), state)
        expected.append(logits.numpy())
      tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
      for found, needed in zip(jax.jit(read)(its.params), expected, strict=True):
        self.assertEqual(found.dtype, dtype)
        self.assertLess(np.abs(found - needed).max() / np.abs(needed).max(), tolerance)

      back = export_state_dict(its.config, jax.tree.map(jax.numpy.asarray, its.params))
      self.assertEqual(len(back), len(source.state_dict()))
      if name == "cells":  # these come back under other names
        return
      again = MODELS[name]().to(getattr(torch, dtype))
      again.load_state_dict({key: torch.tensor(tensor) for key, tensor in back.items()},
                            strict=True)
      for key, tensor in source.state_dict().items():
        self.assertTrue(torch.equal(again.state_dict()[key], tensor), key)
      self.assertTrue(torch.equal(again(torch.tensor(windows()[0]))[0],
                                  torch.tensor(expected[0])))


if __name__ == "__main__":
  absltest.main()
