"""State dicts as other programs lay them out, and what they compute, in NumPy."""

import numpy as np

from tests.oracle import sigmoid

V, E, H = 7, 5, 4


def lstm(sizes=(H,), embedding=E, tied=False, biases=2, output_bias=True, seed=0,
         dtype=np.float32, vocab_size=V, gates=4):
  """Random tensors under the names of pytorch/examples; layers are `rnn.` whatever their widths."""
  draw = np.random.RandomState(seed)

  def normal(*shape):
    return draw.normal(size=shape, scale=0.7).astype(dtype)

  tensors = {"encoder.weight": normal(vocab_size, embedding)} if embedding else {}
  below = embedding or vocab_size
  for n, size in enumerate(sizes):
    tensors[f"rnn.weight_ih_l{n}"] = normal(gates * size, below)
    tensors[f"rnn.weight_hh_l{n}"] = normal(gates * size, size)
    for name in ("bias_ih", "bias_hh")[:biases]:
      tensors[f"rnn.{name}_l{n}"] = normal(gates * size)
    below = size
  tensors["decoder.weight"] = tensors["encoder.weight"] if tied else normal(vocab_size, below)
  return tensors | ({"decoder.bias": normal(vocab_size)} if output_bias else {})


def renamed(tensors, *pairs):
  """Each name with the first of every pair replaced by its second, in order."""
  result = {}
  for name, tensor in tensors.items():
    for old, new in pairs:
      name = name.replace(old, new)
    result[name] = tensor
  return result


def without(tensors, *parts):
  """All but those with one of these parts in their names."""
  return {name: tensor for name, tensor in tensors.items()
          if not any(part in name for part in parts)}


def logits(tensors, ids, order="ifgo", offset=0.0):
  """What an LSTM under the names of `lstm` says after each of some ids: `[T, V]`."""
  p = {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}
  depth = sum("weight_hh" in name for name in p)
  states = [(np.zeros(p[f"rnn.weight_hh_l{n}"].shape[1]),) * 2 for n in range(depth)]
  rows = []
  for token in ids:
    table = p.get("encoder.weight")
    x = np.eye(p["rnn.weight_ih_l0"].shape[1])[token] if table is None else table[token]
    for n, (h, c) in enumerate(states):
      z = p[f"rnn.weight_ih_l{n}"] @ x + p[f"rnn.weight_hh_l{n}"] @ h
      for name in ("bias_ih", "bias_hh"):
        z = z + p.get(f"rnn.{name}_l{n}", 0.0)
      gates = dict(zip(order, np.split(z, 4), strict=True))
      c = (sigmoid(gates["f"] + offset) * c + sigmoid(gates["i"]) * np.tanh(gates["g"]))
      x = sigmoid(gates["o"]) * np.tanh(c)
      states[n] = x, c
    rows.append(p["decoder.weight"] @ x + p.get("decoder.bias", 0.0))
  return np.array(rows)
