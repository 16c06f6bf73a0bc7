"""The contender `torch`: PyTorch's own modules in its own loop.

PyTorch is imported where it is used: it need not be installed. JAX is not imported at all.
"""

import numpy as np

from experiments.speed import machine
from experiments.speed.workloads import CLIP, RATE, Workload, windows


def train(work: Workload, params, window):
  """A function that makes the next step, embed to SGD, and returns its mean nats a token."""
  import torch
  from torch.nn import functional, utils

  embed, lstm, head = modules = _modules(work, params)
  parameters = list(torch.nn.ModuleList(modules).parameters())  # a tied table once
  optimizer = torch.optim.SGD(parameters, lr=RATE)
  tokens = torch.tensor(window, dtype=torch.int64)
  inputs, targets = tokens[:-1], tokens[1:].flatten()
  state = _start(work)

  def step():
    nonlocal state
    optimizer.zero_grad(set_to_none=True)
    hidden, after = lstm(embed(inputs), state)
    loss = functional.cross_entropy(head(hidden).flatten(0, 1), targets)
    loss.backward()
    utils.clip_grad_norm_(parameters, CLIP)
    optimizer.step()
    state = tuple(value.detach() for value in after)
    return loss.item()

  return step


def evaluate(work: Workload, params, ids):
  """A function that returns the mean nats of a token of `ids`, read in B streams."""
  import torch
  from torch.nn import functional

  embed, lstm, head = _modules(work, params)

  @torch.inference_mode()
  def run():
    total, state = 0.0, _start(work)
    for window in windows(work, ids):
      tokens = torch.tensor(window, dtype=torch.int64)
      hidden, state = lstm(embed(tokens[:-1]), state)
      total += functional.cross_entropy(head(hidden).flatten(0, 1), tokens[1:].flatten(),
                                        reduction="sum").item()
    return total / (len(ids) - 1)

  return run


def lstm(work: Workload, params, xs, direction):
  """A layer's passes by name, as `jax_work.passes` describes them."""
  import torch

  layer = _lstm(work, params)
  xs, direction = torch.tensor(xs, requires_grad=True), torch.tensor(direction)
  state = _start(work)

  def objective():
    return (layer(xs, state)[0] * direction).sum()

  def backward():
    gradients = torch.autograd.grad(objective(), [xs, *layer.parameters()])
    return gradients[0][0, 0, 0].item()

  return {"forward": torch.inference_mode()(lambda: objective().item()),
          "forward+backward": backward}


def generate(work: Workload, params):
  """A function that returns T sampled tokens, int `[T, B]`, drawn one step at a time."""
  import torch

  embed, lstm, head = _modules(work, params)

  @torch.inference_mode()
  def run():
    state, tokens = _start(work), []
    hidden = torch.zeros([work.batch_size, work.hidden_size])
    for _ in range(work.steps):
      token = torch.multinomial(torch.softmax(head(hidden), dim=-1), 1)[:, 0]
      tokens.append(token)
      hidden, state = lstm(embed(token)[None], state)
      hidden = hidden[0]
    return torch.stack(tokens).numpy()

  return run


def score(work: Workload, params, lines, groups):
  """A function that returns the nats of each line's tokens, a padded group at a time."""
  import torch

  embed, lstm, head = _modules(work, params)

  @torch.inference_mode()
  def run():
    nats = [None] * len(lines)
    for group in groups:
      tokens = torch.nn.utils.rnn.pad_sequence(
          [torch.tensor(lines[n], dtype=torch.int64) for n in group])  # [T, B]
      first = torch.zeros([1, len(group), work.hidden_size])  # the initial state's output
      hidden, _ = lstm(embed(tokens[:-1]))
      log_p = torch.log_softmax(head(torch.cat([first, hidden])), dim=-1)
      values = -log_p.gather(-1, tokens[..., None])[..., 0].numpy().astype(np.float64)
      for column, n in enumerate(group):
        nats[n] = values[:len(lines[n]), column]
    return nats

  return run


def _modules(work: Workload, params):
  """Embedding, LSTM and head with these parameters."""
  from torch import nn

  embed = nn.Embedding(work.vocab_size, work.embedding_size)
  head = nn.Linear(work.hidden_size, work.vocab_size)
  _fill({embed.weight: params["embedding"]["table"], head.bias: params["head"]["b"]})
  if work.tied:
    head.weight = embed.weight
  else:
    _fill({head.weight: params["head"]["w"]})
  return embed, _lstm(work, params), head


def _lstm(work: Workload, params):
  """The layers with these parameters, and a second bias of zero."""
  import torch

  torch.set_num_threads(machine.cores())
  lstm = torch.nn.LSTM(work.embedding_size, work.hidden_size, work.num_layers)
  for layer in range(work.num_layers):
    its = params[f"lstm_{layer}"]
    values = {"weight_ih": its["w_ih"], "weight_hh": its["w_hh"], "bias_ih": its["b"],
              "bias_hh": np.zeros_like(its["b"])}
    _fill({getattr(lstm, f"{name}_l{layer}"): value for name, value in values.items()})
  return lstm


def _fill(values):
  """Gives parameters their values."""
  import torch

  with torch.no_grad():
    for parameter, value in values.items():
      parameter.copy_(torch.from_numpy(value))


def _start(work: Workload):
  """`h` and `c` of all layers: zeros."""
  import torch

  shape = work.num_layers, work.batch_size, work.hidden_size
  return torch.zeros(shape), torch.zeros(shape)
