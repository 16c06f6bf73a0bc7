"""The cells as NumPy steps of one row in float64, each written from its equations alone.

A step is `(p, x [D], state, config) -> h', state', gates`; p are the parameters of the cell, states
and gates go by name. Matrices are cut into those of the papers first.
"""

import numpy as np

from tests.oracle import sigmoid


def rows(p, letters, biases=("b",)):
  """By gate: its part of `w_ih`, of `w_hh`, and of the sum of its biases."""
  count = len(letters)
  cut = [np.split(p["w_ih"], count), np.split(p["w_hh"], count),
         np.split(sum((p[name] for name in biases), np.zeros(len(p["w_ih"]))), count)]
  return {letter: [part[n] for part in cut] for n, letter in enumerate(letters)}


def summed(its, x, h):
  w, u, b = its
  return w @ x + u @ h + b


def biases_of(config):
  return ("b", "b_hh")[:config.num_biases]


def told(h, c, **gates):
  return h, {"h": h, "c": c}, gates


def lstm(p, x, state, config):
  """As `tests.oracle`, and Greff et al. 2017 (coupled), Melis et al. 2018 (capped)."""
  coupled = config.input_gate == "coupled"
  its = rows(p, "fgo" if coupled else "ifgo", biases_of(config))
  z = {name: summed(its[name], x, state["h"]) for name in its}
  f, g, o = sigmoid(z["f"]), np.tanh(z["g"]), sigmoid(z["o"])
  i = 1 - f if coupled else sigmoid(z["i"])
  if config.input_gate == "capped":
    i = np.where(i < 1 - f, i, 1 - f)
  c = f * state["c"] + i * g
  return told(o * np.tanh(c), c, i=i, f=f, g=g, o=o)


def peephole_lstm(p, x, state, config):
  """Graves 2013, equations 7 to 11, with the matrices W_ci, W_cf, W_co written out."""
  del config
  its = rows(p, "ifco")
  w_ci, w_cf, w_co = (np.diag(row) for row in p["w_c"])
  h, c = state["h"], state["c"]
  i = sigmoid(summed(its["i"], x, h) + w_ci @ c)
  f = sigmoid(summed(its["f"], x, h) + w_cf @ c)
  g = np.tanh(summed(its["c"], x, h))
  new = f * c + i * g
  o = sigmoid(summed(its["o"], x, h) + w_co @ new)
  return told(o * np.tanh(new), new, i=i, f=f, g=g, o=o)


def layer_norm_lstm(p, x, state, config):
  """Ba et al. 2016, equations 20 to 22."""
  del config

  def norm(z, name):
    return (z - np.mean(z)) / np.sqrt(np.var(z) + 1e-5) * p[f"gain_{name}"] + p[f"bias_{name}"]

  z = norm(p["w_hh"] @ state["h"], "hh") + norm(p["w_ih"] @ x, "ih") + p["b"]
  i, f, g, o = np.split(z, 4)
  i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
  c = f * state["c"] + i * g
  return told(o * np.tanh(norm(c, "c")), c, i=i, f=f, g=g, o=o)


def projected_lstm(p, x, state, config):
  """Sak et al. 2014: what is read back is r = W_rm m."""
  its = rows(p, "ifgo", biases_of(config))
  i, f, o = (sigmoid(summed(its[name], x, state["h"])) for name in "ifo")
  g = np.tanh(summed(its["g"], x, state["h"]))
  c = f * state["c"] + i * g
  return told(p["w_hr"] @ (o * np.tanh(c)), c, i=i, f=f, g=g, o=o)


def gru(p, x, state, config):
  """Cho et al. 2014, equations 5 to 8; with two biases, PyTorch's documentation of `GRU`."""
  h = state["h"]
  (w_r, u_r, b_r), (w_z, u_z, b_z), (w_n, u_n, b_n) = rows(p, "rzn").values()
  c_r, c_z, c_n = np.split(p.get("b_hh", np.zeros(3 * len(h))), 3)
  r, z = sigmoid(w_r @ x + b_r + u_r @ h + c_r), sigmoid(w_z @ x + b_z + u_z @ h + c_z)
  before = u_n @ (r * h) if config.num_biases == 1 else r * (u_n @ h + c_n)
  n = np.tanh(w_n @ x + b_n + before)
  h = z * h + (1 - z) * n
  return h, {"h": h}, {"r": r, "z": z, "n": n}


def vanilla(p, x, state, config):
  h = np.tanh(summed(rows(p, "h", biases_of(config))["h"], x, state["h"]))
  return h, {"h": h}, {}


def slstm(p, x, state, config):
  """Beck et al. 2024, equations 8 to 14, without a stabiliser; then c, n, m by 15 to 17."""
  del config
  its = rows(p, "ifzo")
  z = {name: summed(its[name], x, state["h"]) for name in "ifzo"}
  scale = np.exp(state["m"])  # of c and n
  f, i = sigmoid(z["f"]), np.exp(z["i"])
  c = f * scale * state["c"] + i * np.tanh(z["z"])
  n = f * scale * state["n"] + i
  o = sigmoid(z["o"])
  h = o * (c / n)
  m = np.maximum(np.log(f) + state["m"], z["i"])
  gates = {"i": i / np.exp(m), "f": f * scale / np.exp(m), "z": np.tanh(z["z"]), "o": o}
  return h, {"h": h, "c": c / np.exp(m), "n": n / np.exp(m), "m": m}, gates


STEPS = {"lstm": lstm, "peephole_lstm": peephole_lstm, "layer_norm_lstm": layer_norm_lstm,
         "projected_lstm": projected_lstm, "gru": gru, "vanilla": vanilla, "slstm": slstm}

# How many parameters a layer has, by H, D, the number of biases and, for `projected_lstm`, R.
COUNTS = {
    "lstm": lambda H, D, biases, R: 4 * H * (D + H + biases),
    "peephole_lstm": lambda H, D, biases, R: 4 * H * (D + H + 1) + 3 * H,
    "layer_norm_lstm": lambda H, D, biases, R: 4 * H * (D + H + 1) + 2 * (4 + 4 + 1) * H,
    "projected_lstm": lambda H, D, biases, R: 4 * H * (D + R + biases) + R * H,
    "gru": lambda H, D, biases, R: 3 * H * (D + H + biases),
    "vanilla": lambda H, D, biases, R: H * (D + H + biases),
    "slstm": lambda H, D, biases, R: 4 * H * (D + H + 1),
}
