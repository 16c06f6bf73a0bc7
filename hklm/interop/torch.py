"""Weights of PyTorch's recurrent language models: an `nn.Embedding`, layers, an `nn.Linear`.

hklm's parameters have PyTorch's layout and order of gates, so that most of an import is renaming:

  rnn.weight_ih_l0 [4H, D]  lstm_0/w_ih        encoder.weight [V, E]  embedding/table
  rnn.weight_hh_l0 [4H, H]  lstm_0/w_hh        decoder.weight [V, H]  head/w
  rnn.bias_ih_l0 [4H]       lstm_0/b           decoder.bias [V]       head/b
  rnn.bias_hh_l0 [4H]       lstm_0/b_hh

Nothing here needs torch: a state dict is a mapping from names to arrays.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hklm import parameters
from hklm.config import ModelConfig, checks
from hklm.errors import InputError
from hklm.interop import checked, layouts
from hklm.model import language_model

GATES = "ifgo"  # PyTorch's order and ours; g is the candidate
PARTS = {"weight_ih": "w_ih", "weight_hh": "w_hh", "weight_hr": "w_hr", "bias_ih": "b",
         "bias_hh": "b_hh"}


class Row(NamedTuple):
  """Where a tensor of the source went.

  Attributes:
    source: its name; "-" where the source has none.
    shape: its shape there.
    place: `module/name` of the parameter; "-" for none.
    note: what was done to it.
  """

  source: str
  shape: tuple[int, ...]
  place: str
  note: str


class Imported(NamedTuple):
  """A model from elsewhere.

  Attributes:
    config: of the model.
    params: NumPy's arrays, as `hklm.language_model(config)` takes them.
    report: a row for each tensor of the source, and for what was made besides.
  """

  config: ModelConfig
  params: dict[str, dict[str, np.ndarray]]
  report: tuple[Row, ...]


def import_state_dict(tensors: Mapping[str, Any], gate_order: str = GATES,
                      forget_offset: float = 0.0) -> Imported:
  """The model whose state dict this is.

  Which layers they are follows from their shapes: `nn.LSTM` (projected, where there is a
  `weight_hr`), `nn.GRU` or `nn.RNN`, whose non-linearity shapes do not tell: it is taken for tanh.
  Two matrices that are bit for bit the same, or one alone, are tied tables; an output matrix alone
  over as many ids as the first layer reads is that of a model of one-hot vectors.

  Args:
    tensors: arrays by name; tensors on the CPU will do.
    gate_order: the order of the source's LSTM gates along rows, where g is the candidate: `ifgo` is
      PyTorch's, `igfo` TensorFlow's, `ifog` torch-rnn's.
    forget_offset: what the source adds to the forget gate at run time, as TensorFlow's cells do.

  Returns:
    The model; arrays are the given ones wherever nothing is done to them.

  Raises:
    InputError: a tensor that is missing, has no place, another shape or type than it needs, or
      numbers that are not finite (named).

  >>> ones = {"rnn.weight_ih_l0": np.ones([8, 3]), "rnn.weight_hh_l0": np.ones([8, 2]),
  ...         "encoder.weight": np.ones([5, 3]), "decoder.weight": np.ones([5, 2])}
  >>> its = import_state_dict(ones)
  >>> its.config.hidden_size, its.config.num_biases, its.report[1].place
  (2, 0, 'lstm_0/w_hh')
  """
  if sorted(gate_order) != sorted(GATES):
    raise InputError(f"--gate_order={gate_order} is unknown; needed: an order of i, f, g and o")
  if not abs(forget_offset) <= checks.LARGEST_FLOAT32:
    raise InputError(f"--forget_offset={forget_offset} is no finite float32 number; needed: mostly "
                     "1")
  tensors = {name: checked.array(name, tensor) for name, tensor in tensors.items()}
  layers, copies = layouts.recurrent(tensors)
  cell, sizes, outputs = checked.stack(tensors, layers)
  if cell in ("gru", "vanilla") and (gate_order != GATES or forget_offset):
    raise InputError(f"--gate_order={gate_order} --forget_offset={forget_offset} are of LSTMs; "
                     f"found {cell}: drop them")
  used = set().union(copies, *(its.values() for its in layers))
  tables = layouts.tables({name: its for name, its in tensors.items() if name not in used},
                          tensors[layers[0]["weight_ih"]].shape[1], outputs[-1])
  copies = {**copies, **tables.copies}
  numbers, notes = checked.numbers({name: its for name, its in tensors.items()
                                    if name not in copies})

  params, rows = _tables(numbers, tables)
  for n, its in enumerate(layers):
    params[f"{cell}_{n}"], of_layer = _layer(numbers, its, f"{cell}_{n}", cell, gate_order,
                                             forget_offset)
    rows += of_layer
  for name, of in copies.items():
    tied = name in tables.copies and tables.output is None
    rows.append(Row(name, tensors[name].shape, "embedding/table" if tied else "-",
                    f"bit for bit {of}" if name in tables.copies else f"copy of {of}, not used"))
  E, V = tensors[tables.embedding].shape[::-1] if tables.embedding else (
      0, len(tensors[tables.output]))
  config = ModelConfig(
      vocab_size=V, embedding_size=E, hidden_size=max(sizes), num_layers=len(sizes),
      layer_sizes=sizes if len(set(sizes)) > 1 else (), cell=cell,
      projection_size=outputs[0] if cell == "projected_lstm" else 0,
      tie_embeddings=tables.output is None, output_bias=tables.bias is not None,
      num_biases=len({"b", "b_hh"} & set(params[f"{cell}_0"])),
      dtype=next(iter(numbers.values())).dtype.name)
  order = {name: n for n, name in enumerate(tensors)}
  rows = [row._replace(note="; ".join(filter(None, (notes.get(row.source), row.note))))
          for row in sorted(rows, key=lambda row: order.get(row.source, len(order)))]
  return Imported(config, params, tuple(rows))


def export_state_dict(config: ModelConfig, params: Mapping) -> dict[str, np.ndarray]:
  """The state dict of a model, under the names of pytorch/examples' word_language_model.

  `encoder.weight` of an `nn.Embedding`, unless the input is one-hot; `rnn.weight_ih_l0` ... of an
  `nn.LSTM`, `nn.GRU` or `nn.RNN`, or `rnns.0.weight_ih_l0`, `rnns.1.weight_ih_l0`, ... of a list of
  them where layers are of several widths; `decoder.weight` and `decoder.bias` of an `nn.Linear`.
  Tied tables have both names. Of a model with one bias the second is zero. Dropout is no part of
  it.

  Args:
    config: of the model.
    params: its parameters.

  Returns:
    NumPy's arrays, not copied where the parameters are such.

  Raises:
    InputError: PyTorch's modules cannot represent the model (what is named); parameters that are
      not the model's, or not finite.

  >>> import hklm, jax
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=5, embedding_size=3, hidden_size=2))
  >>> sorted(export_state_dict(lm.config, lm.init(jax.random.key(0))))
  ['decoder.bias', 'decoder.weight', 'encoder.weight', 'rnn.bias_hh_l0', 'rnn.bias_ih_l0', \
'rnn.weight_hh_l0', 'rnn.weight_ih_l0']
  """
  _check_exportable(config)
  places = _names(config)
  flat = parameters.flat(params)
  parameters.check(flat, language_model(config))
  tensors = {name: np.asarray(flat[place]) for name, place in places.items()}
  if config.num_biases == 1:
    tensors |= {name.replace("bias_ih", "bias_hh"): np.zeros_like(tensor)
                for name, tensor in tensors.items() if "bias_ih" in name}
  return tensors


def _check_exportable(config):
  """Refuses what PyTorch's modules have no place for."""
  deep = config.num_layers > 1
  for name, represented in (
      ("cell", config.cell in ("lstm", "projected_lstm", "gru", "vanilla")),
      ("input_gate", config.input_gate == "free"),
      ("num_biases", config.cell != "gru" or config.num_biases != 1),
      ("initial_state", config.initial_state == "zeros"),
      ("connections", config.connections == "plain" or not deep),
      ("zoneout", not config.zoneout), ("zoneout_cell", not config.zoneout_cell),
      ("head", config.head in ("linear", "sampled")),  # without a key they are the same
      ("head_projection", not config.head_projection)):
    if not represented:
      raise InputError(f"--{name}={getattr(config, name)}: PyTorch's modules cannot represent it; "
                       "needed: an LSTM with a free input gate, a projected one, a GRU with two "
                       "biases or a vanilla layer, from zeros, under a linear head")


def _names(config) -> dict[str, str]:
  """`module/name` of the parameter for each tensor."""
  places = {"encoder.weight": "embedding/table"} if config.embedding_size else {}
  parts = {part: name for part, name in PARTS.items()
           if name not in ("b", "b_hh")[config.num_biases:]
           and (name != "w_hr" or config.cell == "projected_lstm")}
  for n in range(config.num_layers):
    prefix, layer = (f"rnns.{n}.", 0) if len(set(config.sizes)) > 1 else ("rnn.", n)
    places |= {f"{prefix}{part}_l{layer}": f"{config.cell}_{n}/{name}"
               for part, name in parts.items()}
  places["decoder.weight"] = "embedding/table" if config.tie_embeddings else "head/w"
  return places | ({"decoder.bias": "head/b"} if config.output_bias else {})


def _tables(numbers, tables):
  """The parameters before and behind the layers, and their rows of the report."""
  params, rows = {}, []
  told = f"told {tables.decided_by}" if tables.decided_by else ""
  tied = "the output matrix too" if tables.output is None else ""
  for name, module, parameter, note in (
      (tables.embedding, "embedding", "table", tied or told), (tables.output, "head", "w", told),
      (tables.bias, "head", "b", "")):
    if name:
      params.setdefault(module, {})[parameter] = numbers[name]
      rows.append(Row(name, numbers[name].shape, f"{module}/{parameter}", note))
  return params, rows


def _layer(numbers, its, module, cell, gate_order, forget_offset):
  """The parameters of a layer, and their rows of the report."""
  biases = [part for part in ("bias_ih", "bias_hh") if part in its]
  names = dict(PARTS)
  if len(biases) == 1 and cell != "gru":  # a GRU's two are not added up: each stays what it is
    names[biases[0]] = "b"
  params, notes = {}, {}
  for part, name in its.items():
    params[names[part]] = numbers[name]
    notes[names[part]] = "one bias alone" if [part] == biases else ""
    if gate_order != GATES and part != "weight_hr":
      blocks = dict(zip(gate_order, np.split(numbers[name], len(GATES)), strict=True))
      params[names[part]] = np.concatenate([blocks[gate] for gate in GATES])
      told = f"gates {gate_order} made {GATES}"
      notes[names[part]] = "; ".join(filter(None, (notes[names[part]], told)))
  if cell == "vanilla":
    notes["w_hh"] = "taken for tanh"
  rows = [Row(name, numbers[name].shape, f"{module}/{names[part]}", notes[names[part]])
          for part, name in its.items()]
  needed = {"b", "b_hh"} if biases and cell == "gru" else {"b"} if forget_offset else set()
  for parameter in sorted(needed - set(params)):
    w = params["w_hh"]
    params[parameter] = np.zeros(len(w), w.dtype)
    rows.append(Row("-", params[parameter].shape, f"{module}/{parameter}", "zeros"))
  if forget_offset:
    H = len(params["b"]) // len(GATES)
    at = GATES.index("f")
    params["b"] = params["b"].copy()
    with np.errstate(over="ignore"):  # it is an error below
      params["b"][at * H:(at + 1) * H] += forget_offset
    source = next((name for part, name in its.items() if names[part] == "b"), f"{module}/b")
    checked.check_finite(f"{source} with --forget_offset={forget_offset:g}", params["b"])
    rows = [row._replace(note="; ".join(filter(None, (
        row.note, f"{forget_offset:g} added to the forget gate"))))
            if row.place == f"{module}/b" else row for row in rows]
  return params, rows
