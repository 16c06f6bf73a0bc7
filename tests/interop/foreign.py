"""Models as PyTorch's programs lay them out, tiny, and the files in which those programs keep them.

It needs PyTorch. What it makes is compared with what hklm makes of the file: by `torch_test` with
files made on the spot, by `recorded_test` with those that `python -m tests.interop.record` wrote.
"""

import collections
import json
import os
from collections.abc import Callable, Mapping

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

WORDS = ("<unk>", "the", "cat", "<eos>", "on", "mat", "sat", "a", "dog")
CHARACTERS = ("b", "\n", "a", " ", "é", "c")
T, B = 5, 3


class WordModel(nn.Module):
  """As pytorch/examples word_language_model: `encoder`, `rnn`, `decoder`."""

  def __init__(self, V, E, H, layers, kind="LSTM", tied=False, bias=True, **options):
    super().__init__()
    self.drop = nn.Dropout(0.5)
    self.encoder = nn.Embedding(V, E)
    self.rnn = getattr(nn, kind)(E, H, layers, dropout=0.5 if layers > 1 else 0.0, bias=bias,
                                 **options)
    self.decoder = nn.Linear(options.get("proj_size", H), V, bias=bias)
    if tied:
      self.decoder.weight = self.encoder.weight

  def forward(self, tokens, state=None):
    xs, state = self.rnn(self.drop(self.encoder(tokens)), state)
    return self.decoder(self.drop(xs)), state


class Dropped(nn.Module):
  """As awd-lstm-lm's WeightDrop: the parameter is `_raw`, its copy with dropout no parameter."""

  def __init__(self, module):
    super().__init__()
    self.module = module
    raw = module.weight_hh_l0
    del module._parameters["weight_hh_l0"]
    module.register_parameter("weight_hh_l0_raw", nn.Parameter(raw.data))
    self.set()

  def set(self):
    self.module.weight_hh_l0 = self.module.weight_hh_l0_raw.data.clone()

  def forward(self, xs, state):
    self.set()
    # The module's list of flat weights holds the parameter that is gone.
    weights = [getattr(self.module, name) for name in
               ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")]
    h, c = state or [torch.zeros(1, xs.shape[1], self.module.hidden_size)] * 2
    ys, h, c = torch._VF.lstm(xs, (h, c), weights, True, 1, 0.0, False, False, False)
    return ys, (h, c)


class AwdModel(nn.Module):
  """As awd-lstm-lm: an LSTM a layer in the list `rnns`, the last as wide as the embedding."""

  def __init__(self, V, E, H, layers):
    super().__init__()
    sizes = [E, *[H] * (layers - 1), E]
    self.encoder = nn.Embedding(V, E)
    self.rnns = nn.ModuleList(Dropped(nn.LSTM(sizes[n], sizes[n + 1])) for n in range(layers))
    self.decoder = nn.Linear(E, V)
    self.decoder.weight = self.encoder.weight

  def forward(self, tokens, states=None):
    xs, after = self.encoder(tokens), []
    for layer, state in zip(self.rnns, states or [None] * len(self.rnns), strict=True):
      xs, state = layer(xs, state)
      after.append(state)
    return self.decoder(xs), after


class OneHotModel(nn.Module):
  """As character models without an embedding: `lstm`, `fc`."""

  def __init__(self, V, H, layers):
    super().__init__()
    self.V = V
    self.lstm = nn.LSTM(V, H, layers, batch_first=True)
    self.fc = nn.Linear(H, V)

  def forward(self, tokens, state=None):
    xs = nn.functional.one_hot(tokens.T, self.V).to(self.fc.weight.dtype)
    ys, state = self.lstm(xs, state)
    return self.fc(ys).transpose(0, 1), state


class CellsModel(nn.Module):
  """A list of `nn.LSTMCell`."""

  def __init__(self, V, E, H, layers):
    super().__init__()
    self.embedding = nn.Embedding(V, E)
    self.cells = nn.ModuleList(nn.LSTMCell(H if n else E, H) for n in range(layers))
    self.linear = nn.Linear(H, V)

  def forward(self, tokens, states=None):
    states, outputs = list(states or [None] * len(self.cells)), []
    for token in tokens:
      x = self.embedding(token)
      for n, cell in enumerate(self.cells):
        states[n] = cell(x, states[n])
        x = states[n][0]
      outputs.append(self.linear(x))
    return torch.stack(outputs), states


def _lines(folder, symbols):
  path = os.path.join(folder, "vocabulary.txt")
  with open(path, "w", encoding="utf-8") as file:
    file.writelines(f"{symbol}\n" for symbol in symbols)


def _json(folder, values):
  with open(os.path.join(folder, "vocabulary.json"), "w", encoding="utf-8") as file:
    json.dump(values, file)


def _whole_module(folder):
  model = WordModel(len(WORDS), 4, 3, 2)
  torch.save(model, os.path.join(folder, "model.pt"))
  _lines(folder, WORDS)
  return model


def _old_file(folder, whole=False):
  """A file of before PyTorch 1.6, tied."""
  model = WordModel(len(WORDS), 4, 4, 1, tied=True)
  torch.save(model if whole else {"model": model.state_dict()}, os.path.join(folder, "model.pt"),
             _use_new_zipfile_serialization=False)
  _json(folder, {word: n for n, word in enumerate(WORDS)})
  return model


def _old_whole_module(folder):
  return _old_file(folder, whole=True)


def _state_dict_in_parallel(folder):
  model = WordModel(len(WORDS), 4, 3, 3, bias=False)
  its = collections.OrderedDict((f"module.{name}", value)
                                for name, value in model.state_dict().items())
  torch.save({"epoch": 3, "state_dict": its}, os.path.join(folder, "model.pth"))
  _json(folder, list(WORDS))
  return model


def _awd(folder):
  model = AwdModel(len(WORDS), 4, 5, 3)
  optimizer = torch.optim.SGD(model.parameters(), lr=30.0, weight_decay=1.2e-6)
  torch.save([model, nn.CrossEntropyLoss(), optimizer], os.path.join(folder, "model.pt"))
  _lines(folder, WORDS)
  return model


def _one_hot(folder):
  model = OneHotModel(len(CHARACTERS), 4, 2)
  torch.save({"n_hidden": 4, "n_layers": 2, "state_dict": model.state_dict(),
              "tokens": CHARACTERS}, os.path.join(folder, "model.pth"))
  return model


def _cells(folder):
  model = CellsModel(len(CHARACTERS), 3, 4, 2)
  save_file(model.state_dict(), os.path.join(folder, "model.safetensors"))
  _json(folder, list(CHARACTERS))
  return model


def _arrays(folder):
  """Arrays of float64."""
  model = WordModel(len(WORDS), 3, 4, 2).double()
  np.savez(os.path.join(folder, "model.npz"),
           **{name: value.numpy() for name, value in model.state_dict().items()})
  _lines(folder, WORDS)
  return model


def _state_dict(folder, kind="GRU", **options):
  model = WordModel(len(WORDS), 3, 4, 2, kind=kind, **options)
  torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
  _lines(folder, WORDS)
  return model


def _rnn(folder):
  return _state_dict(folder, "RNN")


def _projected(folder):
  return _state_dict(folder, "LSTM", proj_size=2)


LAYOUTS: Mapping[str, Callable[[str], nn.Module]] = {
    "whole_module": _whole_module, "old_file": _old_file,
    "state_dict_in_parallel": _state_dict_in_parallel, "awd": _awd, "one_hot": _one_hot,
    "cells": _cells, "arrays": _arrays, "gru": _state_dict,
    "rnn": _rnn, "projected": _projected, "old_whole_module": _old_whole_module}
NOT_RECORDED = ("old_whole_module",)  # PyTorch puts the source of its own modules into it


def make(layout: str, folder: str) -> tuple[nn.Module, dict[str, np.ndarray]]:
  """Writes a layout's `model.*` and `vocabulary.*`; what its model says of ids.

  Returns:
    The model; `ids [2T, B]` and `logits [2T, B, V]`, the second T with the state of the first.
  """
  torch.manual_seed(sorted(LAYOUTS).index(layout))
  model = LAYOUTS[layout](folder).eval()
  with torch.no_grad():
    V = model(torch.zeros([1, 1], dtype=torch.long))[0].shape[-1]
    ids = torch.randint(V, [2 * T, B])
    first, state = model(ids[:T])
    second, _ = model(ids[T:], state)
  return model, {"ids": ids.numpy(), "logits": torch.cat([first, second]).numpy()}
