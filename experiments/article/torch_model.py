"""The article's third part as one writes it in PyTorch: a model that changes as it is used.

Follows "From PyTorch to JAX: towards neural net frameworks that purify stateful code"
(sjmielke.com/jax-purify.htm). Nothing else here imports PyTorch; `lstm_numbers --torch` imports
this file to set it beside the pure functions. What those pass around lives here in attributes: the
parameters, their gradients, the state between windows, and the tape that remembers how the state
came about.
"""

import numpy as np
import torch
from torch import nn

# Where the pure model keeps the parameter of each name.
MODULES = {"w_ih": "lstm_0", "w_hh": "lstm_0", "b": "lstm_0", "c_0": "lstm_0",
           "table": "embedding"}


class MutableModel(nn.Module):
  """One LSTM layer, the embedding table as output matrix, a learned `c_0` with `h_0 = tanh(c_0)`.

  Args:
    vocab_size: V.
    hidden_size: H, of embeddings too.
  """

  def __init__(self, vocab_size: int, hidden_size: int):
    super().__init__()
    self.w_ih = nn.Parameter(torch.rand(4 * hidden_size, hidden_size))
    self.w_hh = nn.Parameter(torch.rand(4 * hidden_size, hidden_size))
    self.b = nn.Parameter(torch.zeros(4 * hidden_size))
    self.c_0 = nn.Parameter(torch.zeros(hidden_size))
    self.table = nn.Parameter(torch.rand(vocab_size, hidden_size))
    self.start()

  def start(self):
    """Goes back to the initial state, which is on the tape: `c_0` gets a gradient."""
    # A pair, since `self.c = self.c_0` would make `c` one more name of the parameter.
    self.state = torch.tanh(self.c_0), self.c_0

  def cut_tape(self):
    """Keeps the state's values and forgets where they came from."""
    h, c = self.state
    self.state = h.detach(), c.detach()

  def logits(self):
    """What comes next, given the state [V]."""
    h, _ = self.state
    return self.table @ h

  def read(self, token: int):
    """Moves the state on by one token."""
    h, c = self.state
    i, f, g, o = (self.w_ih @ self.table[token] + self.w_hh @ h + self.b).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    self.state = torch.sigmoid(o) * torch.tanh(c), c

  def loss(self, window):
    """Nats of a window; the state is then behind it."""
    nats = 0.
    for token in window:
      nats = nats - torch.log_softmax(self.logits(), dim=0)[token]
      self.read(token)
    return nats

  def descend(self, rate: float):
    """Takes a step of gradient descent, and clears the gradients for the next window."""
    with torch.no_grad():
      for parameter in self.parameters():
        if parameter.grad is not None:  # c_0 is on the tape of the first window only
          parameter -= rate * parameter.grad
          parameter.grad = None

  def greedy(self, length: int) -> list[int]:
    """The likeliest token, fed back, `length` times, from the initial state."""
    tokens = []
    with torch.no_grad():
      self.start()
      for _ in range(length):
        tokens.append(int(torch.argmax(self.logits())))
        self.read(tokens[-1])
    return tokens

  def values(self, gradients: bool = False) -> dict[str, dict[str, np.ndarray]]:
    """Copies of the parameters, or of their gradients, in the pure model's nested dict."""
    tree = {module: {} for module in MODULES.values()}
    for name, parameter in self.named_parameters():
      tensor = parameter.grad if gradients else parameter
      # No gradient is what the pure model calls a gradient of zero.
      array = np.zeros(parameter.shape, np.float32) if tensor is None else tensor.detach().numpy()
      tree[MODULES[name]][name] = array.copy()
    return tree


def seeded_model(vocab_size: int, hidden_size: int) -> MutableModel:
  """The model as the article draws it."""
  torch.manual_seed(0)
  return MutableModel(vocab_size, hidden_size)


def train(model: MutableModel, windows, num_epochs: int, rate: float):
  """Trains the model, which changes.

  Returns:
    For every epoch the losses and the gradients of its windows, each a list.
  """
  epochs = []
  for _ in range(num_epochs):
    model.start()
    losses, grads = [], []
    for window in windows:
      loss = model.loss(window)
      loss.backward()
      losses.append(loss.item())
      grads.append(model.values(gradients=True))
      model.descend(rate)
      model.cut_tape()
    epochs.append((losses, grads))
  return epochs
