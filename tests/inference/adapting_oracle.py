"""Neural cache and dynamic evaluation as loops over NumPy vectors, straight from the equations.

Gradients are finite differences: no line of the library's is in them.
"""

import functools

import jax
import numpy as np

import hklm
from tests import oracle

V = 5
STEP = 1e-5  # of a finite difference; its error is about the square of it


@functools.cache
def model(dtype="float64", scale=1.0):
  """A model and drawn parameters; about a hundred numbers."""
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=V, embedding_size=2, hidden_size=3, output_dropout=0.5, dtype=dtype))
  return lm, oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=scale)


def text(length, seed=0):
  return np.random.RandomState(seed).randint(V, size=length)


def probabilities(lm, params, ids, cache=None, dynamic=None, sizes=None):
  """What is predicted after each of the tokens `[N]`: `[N, V]`."""
  theta, theta_0 = _flat(params), _flat(params)
  truth = oracle.NumpyModel(lm.config, params)
  layers, outputs, rows = truth.initial_state(), [], []
  segment = dynamic.segment if dynamic else len(ids)
  for start in range(0, len(ids), segment):
    before = layers
    for t in range(start, min(start + segment, len(ids))):
      layers, _ = truth.read(ids[t], layers)
      p = _softmax(truth.readout(layers))
      if cache:
        p = _mixed(p, layers[-1][0], outputs, ids[:t + 1], cache)
      outputs.append(layers[-1][0])
      rows.append(p)
    if dynamic and start + segment < len(ids):
      g = gradient(lm, params, theta, [(ids[start:start + segment + 1], before)])
      ms = _flat(sizes)
      mean = np.mean([np.mean(leaf) for leaf in jax.tree.leaves(sizes)])
      with np.errstate(divide="ignore"):
        most = np.float64(1) / dynamic.decay
      theta = (theta + dynamic.decay * np.minimum(ms / mean, most) * (theta_0 - theta)
               - dynamic.rate * g / (ms + dynamic.epsilon))
      truth = oracle.NumpyModel(lm.config, _tree(theta, params))
  return np.array(rows)


def gradient_sizes(lm, params, windows):
  """MS of ids `[T + 1, B]` a window, the state carried."""
  truth, theta, squares = oracle.NumpyModel(lm.config, params), _flat(params), 0
  states = [truth.initial_state()] * windows[0].shape[1]
  for window in windows:
    squares += gradient(lm, params, theta, list(zip(window.T, states, strict=True)))**2
    states = [truth.unroll(ids[:-1], layers)[1]
              for ids, layers in zip(window.T, states, strict=True)]
  return _tree(np.sqrt(squares / len(windows)), params)


def gradient(lm, like, theta, rows):
  """Of the mean nats of `rows`, each of ids `[T + 1]` and the state before them."""
  def nats(theta):
    truth = oracle.NumpyModel(lm.config, _tree(theta, like))
    return np.mean([truth.loss(ids[:-1], ids[1:], layers) for ids, layers in rows])

  moves = STEP * np.eye(len(theta))
  return np.array([(nats(theta + move) - nats(theta - move)) / (2 * STEP) for move in moves])


def _mixed(p, h, outputs, read, cache):
  """`outputs` are those before h; `read` are the tokens so far, the one that led to h included."""
  places = range(max(0, len(outputs) - cache.size), len(outputs))
  if not places:
    return p
  scores = _softmax(np.array([cache.flatness * sum(outputs[i] * h) for i in places]))
  pointed = np.zeros(len(p))
  for i, score in zip(places, scores, strict=True):
    pointed[read[i + 1]] += score
  return (1 - cache.weight) * p + cache.weight * pointed


def _softmax(logits):
  exponentials = np.exp(logits - np.max(logits))
  return exponentials / exponentials.sum()


def _flat(tree):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def _tree(flat, like):
  leaves, structure = jax.tree.flatten(like)
  parts = np.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1])
  return structure.unflatten([part.reshape(leaf.shape)
                              for part, leaf in zip(parts, leaves, strict=True)])
