"""Public functions of the Mogrifier and of the cells that scan in parallel, each with a call."""

from collections.abc import Callable

import jax.numpy as jnp

from hklm.nn import cells
from hklm.nn.zoo import minimal, mogrifier, qrnn, scans
from tests.purity.library_makers import B, Call, E, H, T, call, inside, lstm_state, window


def _mogrifier():
  return mogrifier.Mogrifier(cells.LSTM(H), rounds=2, rank=1)


def _qrnn():
  return qrnn.QRNN(E, H, window=2)


def _min_lstm():
  return minimal.MinLSTM(H)


def _qrnn_state():
  return qrnn.QRNNState(jnp.ones([B, H]), jnp.ones([B, E]))


def _minimal_state():
  return minimal.MinimalState(jnp.ones([B, H]))


def _method(make, name, *args) -> Call:
  return inside(lambda *args: getattr(make(), name)(*args), *args)


def _methods(make, full_name, state) -> dict[str, Callable[[], Call]]:
  """Those that all cells have; the class shows in a call of its object."""
  def called():
    return _method(make, "__call__", jnp.ones([B, E]), state())
  return {
      full_name: called,
      f"{full_name}.__call__": called,
      f"{full_name}.trace": lambda: _method(make, "trace", jnp.ones([B, E]), state()),
      f"{full_name}.initial_state": lambda: inside(lambda: make().initial_state(B)),
  }


def _sequence(make, state) -> Callable[[], Call]:
  return lambda: inside(lambda xs, state, mask: make().sequence(xs, state, mask),
                        jnp.ones([T, B, E]), state(), window()[:T] > 0)


def _log_gates(cls) -> Callable[[], Call]:
  return lambda: _method(lambda: cls(H), "log_gates", *jnp.ones([cls.blocks - 1, B, H]))


def _scan(function) -> Callable[[], Call]:
  return lambda: call(function, *jnp.ones([2, T, B, H]), jnp.ones([B, H]), window()[:T] > 0)


PURE: dict[str, Callable[[], Call]] = {
    **_methods(_mogrifier, "nn.zoo.mogrifier.Mogrifier", lstm_state),
    "nn.zoo.mogrifier.Mogrifier.output": lambda: _method(_mogrifier, "output", lstm_state()),
    **_methods(_qrnn, "nn.zoo.qrnn.QRNN", _qrnn_state),
    "nn.zoo.qrnn.QRNN.sequence": _sequence(_qrnn, _qrnn_state),
    **_methods(_min_lstm, "nn.zoo.minimal.Minimal", _minimal_state),
    "nn.zoo.minimal.Minimal.output": lambda: _method(_min_lstm, "output", _minimal_state()),
    "nn.zoo.minimal.Minimal.sequence": _sequence(_min_lstm, _minimal_state),
    "nn.zoo.minimal.MinLSTM.log_gates": _log_gates(minimal.MinLSTM),
    "nn.zoo.minimal.MinGRU.log_gates": _log_gates(minimal.MinGRU),
    "nn.zoo.scans.linear": _scan(scans.linear),
    "nn.zoo.scans.log_linear": _scan(scans.log_linear),
}
