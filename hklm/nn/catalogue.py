"""The cells by name, as a `ModelConfig` wants them."""

from collections.abc import Callable, Mapping

import haiku as hk
import jax.numpy as jnp

from hklm.config import ModelConfig
from hklm.nn import cells, initializers
from hklm.nn.zoo import gated, lstms, minimal, mogrifier, qrnn, slstm


def core(config: ModelConfig, layer: int) -> hk.RNNCore:
  """The cell of a layer; call it inside a Haiku transform.

  Args:
    config: of the model; its `cell` is one of `hklm.config.model.CELLS`.
    layer: from the input up, from 0.
  """
  size = config.sizes[layer]
  inits = initializers.parse(config.init, size)
  shared = {"w_init": inits["cell"], "b_init": inits["bias"], "dtype": jnp.dtype(config.dtype),
            "name": f"{config.cell}_{layer}"}
  return _MAKERS[config.cell](config, layer, size, shared)


def _lstm(config, unused_layer, size, shared):
  return cells.LSTM(size, config.num_biases, input_gate=config.input_gate,
                    **_of_lstms(config), **shared)


def _peephole_lstm(config, unused_layer, size, shared):
  return lstms.PeepholeLSTM(size, **_of_lstms(config), **shared)


def _layer_norm_lstm(config, unused_layer, size, shared):
  return lstms.LayerNormLSTM(size, **_of_lstms(config), **shared)


def _projected_lstm(config, unused_layer, size, shared):
  return lstms.ProjectedLSTM(size, config.projection_size, num_biases=config.num_biases,
                             **_of_lstms(config), **shared)


def _gru(config, unused_layer, size, shared):
  return gated.GRU(size, config.num_biases, **shared)


def _vanilla(config, unused_layer, size, shared):
  return gated.VanillaRNN(size, config.num_biases, **shared)


def _slstm(config, unused_layer, size, shared):
  return slstm.SLSTM(size, forget_bias=config.forget_bias, **shared)


def _of_lstms(config):
  return {"forget_bias": config.forget_bias, "learned_state": config.initial_state == "learned"}


def _mogrifier(config, layer, size, shared):
  lstm = _lstm(config, layer, size, {**shared, "name": f"lstm_{layer}"})
  return mogrifier.Mogrifier(lstm, config.mogrifier_rounds, config.mogrifier_rank,
                             shared["w_init"], shared["dtype"], shared["name"])


def _qrnn(config, layer, size, shared):
  return qrnn.QRNN(input_size(config, layer), size, config.qrnn_window, config.forget_bias,
                   **shared)


def _min_lstm(unused_config, unused_layer, size, shared):
  return minimal.MinLSTM(size, **shared)


def _min_gru(unused_config, unused_layer, size, shared):
  return minimal.MinGRU(size, **shared)


def input_size(config: ModelConfig, layer: int) -> int:
  """D, the width of what a layer reads: embeddings, one-hot vectors, or the layer below's output.
  """
  return config.output_sizes[layer - 1] if layer else config.embedding_size or config.vocab_size


_MAKERS: Mapping[str, Callable] = {
    "lstm": _lstm,
    "peephole_lstm": _peephole_lstm,
    "layer_norm_lstm": _layer_norm_lstm,
    "projected_lstm": _projected_lstm,
    "gru": _gru,
    "vanilla": _vanilla,
    "slstm": _slstm,
    "mogrifier": _mogrifier,
    "qrnn": _qrnn,
    "min_lstm": _min_lstm,
    "min_gru": _min_gru,
}
