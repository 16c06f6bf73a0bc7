"""The cells that must be pure, each with arguments to call it with."""

from collections.abc import Callable

import jax.numpy as jnp

from hklm.nn import cells
from hklm.nn.zoo import gated, lstms, slstm
from tests.purity.library_makers import B, Call, E, H, T, inside, lstm, lstm_state


def read(make) -> Callable[[], Call]:
  """What a cell's steps take from a sequence."""
  return lambda: inside(lambda xs: make().inputs(xs), jnp.ones([T, B, E]))


def stepped(make) -> Callable[[], Call]:
  """A step of a cell from its initial state."""
  def use(x):
    cell = make()
    return cell.trace(x, cell.initial_state(B))
  return lambda: inside(use, jnp.ones([B, E]))


PURE: dict[str, Callable[[], Call]] = {
    "nn.cells.LSTM": lambda: inside(lambda: cells.LSTM(H, input_gate="coupled").parameters(E)),
    "nn.cells.LSTM.sequence": lambda: inside(
        lambda xs, state: cells.LSTM(H).sequence(xs, state, None, "fused"), jnp.ones([T, B, E]),
        lstm_state()),
    "nn.cells.LSTM.advance": stepped(lambda: cells.LSTM(H)),
    "nn.cells.LSTM.advance, capped": stepped(lambda: cells.LSTM(H, input_gate="capped")),
    "nn.core.Core": lambda: inside(lambda: gated.GRU(H).initial_state(B)),
    "nn.core.Core.__call__": lambda: lstm("__call__", jnp.ones([B, E]), lstm_state()),
    "nn.core.Core.inputs": read(lambda: cells.LSTM(H)),
    "nn.core.Core.output": lambda: lstm("output", lstm_state()),
    "nn.core.Core.parameters": lambda: inside(lambda: cells.LSTM(H, 2).parameters(E)),
    "nn.core.Core.trace": lambda: lstm("trace", jnp.ones([B, E]), lstm_state()),
    "nn.core.LSTMCore": lambda: inside(lambda: lstms.PeepholeLSTM(H).parameters(E)),
    "nn.core.LSTMCore.initial_state": lambda: inside(
        lambda: cells.LSTM(H, learned_state=True).initial_state(B)),
    "nn.zoo.gated.GRU.advance": stepped(lambda: gated.GRU(H)),
    "nn.zoo.gated.GRU.advance, two biases": stepped(lambda: gated.GRU(H, 2)),
    "nn.zoo.gated.GRU.inputs": read(lambda: gated.GRU(H, 2)),
    "nn.zoo.gated.HiddenCore.initial_state": lambda: inside(lambda: gated.GRU(H).initial_state(B)),
    "nn.zoo.gated.VanillaRNN.advance": stepped(lambda: gated.VanillaRNN(H)),
    "nn.zoo.lstms.LayerNormLSTM.advance": stepped(lambda: lstms.LayerNormLSTM(H)),
    "nn.zoo.lstms.LayerNormLSTM.inputs": read(lambda: lstms.LayerNormLSTM(H)),
    "nn.zoo.lstms.PeepholeLSTM.advance": stepped(lambda: lstms.PeepholeLSTM(H)),
    "nn.zoo.lstms.ProjectedLSTM": lambda: inside(lambda: lstms.ProjectedLSTM(H, E).parameters(E)),
    "nn.zoo.lstms.ProjectedLSTM.initial_state": lambda: inside(
        lambda: lstms.ProjectedLSTM(H, E, learned_state=True).initial_state(B)),
    "nn.zoo.lstms.ProjectedLSTM.advance": stepped(lambda: lstms.ProjectedLSTM(H, E)),
    "nn.zoo.slstm.SLSTM.initial_state": lambda: inside(lambda: slstm.SLSTM(H).initial_state(B)),
    "nn.zoo.slstm.SLSTM.advance": stepped(lambda: slstm.SLSTM(H)),
}
