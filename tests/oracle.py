"""What the model tests compare with: an LSTM written out in NumPy, and the models they run over.

The oracle reads one sequence at a time, without batches, scans or masks, in float64, straight from

  [i f g o] = W_ih x + W_hh h + b
  c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
  h' = sigmoid(o) * tanh(c')
"""

import dataclasses
import functools
import zlib
from typing import NamedTuple

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

import hklm.config
import hklm.model

T, B = 6, 3
LENGTHS = (6, 4, 0)  # of the padded rows


def sigmoid(x):
  return 1.0 / (1.0 + np.exp(-x))


class NumpyModel:
  """The language model of one sequence, as loops over vectors."""

  def __init__(self, config, params):
    self._config = config
    self._params = jax.tree.map(lambda p: np.asarray(p, np.float64), params)

  def initial_state(self):
    """`h [H]`, `c [H]` a layer."""
    layers = []
    for layer in range(self._config.num_layers):
      c = np.zeros(self._config.hidden_size)
      if self._config.initial_state == "learned":
        c = self._params[f"lstm_{layer}"]["c_0"]
      layers.append((np.tanh(c), c))
    return layers

  def readout(self, layers):
    """Logits `[V]` of what comes next."""
    return self.head(layers[-1][0])

  def head(self, h):
    table = (self._params["embedding"]["table"] if self._config.tie_embeddings
             else self._params["head"]["w"])
    logits = np.array([row @ h for row in table])
    return logits + self._params["head"]["b"] if self._config.output_bias else logits

  def read(self, token, layers):
    """The layers' states and gates after one more token."""
    if self._config.embedding_size:
      x = self._params["embedding"]["table"][token]
    else:
      x = np.array([float(v == token) for v in range(self._config.vocab_size)])
    after, gates = [], []
    for layer, (h, c) in enumerate(layers):
      p, H = self._params[f"lstm_{layer}"], self._config.hidden_size
      biases = [p[name] for name in ("b", "b_hh")[:self._config.num_biases]]
      z = p["w_ih"] @ x + p["w_hh"] @ h + sum(biases)
      i, f, g, o = sigmoid(z[:H]), sigmoid(z[H:2 * H]), np.tanh(z[2 * H:3 * H]), sigmoid(z[3 * H:])
      c = f * c + i * g
      x = h = o * np.tanh(c)
      after.append((h, c))
      gates.append({"i": i, "f": f, "g": g, "o": o})
    return after, gates

  def unroll(self, tokens, layers):
    """Logits `[T, V]` and the layers' states after the last token."""
    logits = []
    for token in tokens:
      layers, _ = self.read(token, layers)
      logits.append(self.readout(layers))
    return np.array(logits), layers

  def loss(self, inputs, targets, layers):
    """Nats `[T]`."""
    logits, _ = self.unroll(inputs, layers)
    return np.array([nats(row, target) for row, target in zip(logits, targets, strict=True)])


def nats(logits, target):
  """`-log softmax(logits)[target]`."""
  largest = np.max(logits)
  return largest + np.log(np.sum(np.exp(logits - largest))) - logits[target]


class OwnCell(hk.RNNCore):
  """A user's cell: a tanh layer with a learned start and a pair of leaves as its state."""

  def __init__(self, size, name):
    super().__init__(name=name)
    self._size = size

  def initial_state(self, batch_size):
    start = hk.get_parameter("start", [self._size], jnp.float64, jnp.zeros)
    return {"h": jnp.broadcast_to(start, [batch_size, self._size]),
            "steps": jnp.zeros([batch_size], jnp.int32)}

  def __call__(self, x, state):
    y = jnp.tanh(hk.Linear(self._size)(jnp.concatenate([x, state["h"]], axis=-1)))
    return y, {"h": y, "steps": state["steps"] + 1}


def own_cell(layer, size):
  return OwnCell(size, name=f"own_{layer}")


def gru(layer, size):
  return hk.GRU(size, name=f"gru_{layer}")


def vanilla(layer, size):
  return hk.VanillaRNN(size, name=f"vanilla_{layer}")


def haiku_lstm(layer, size):
  return hk.LSTM(size, name=f"haiku_lstm_{layer}")


class Model(NamedTuple):
  """A configuration and perhaps a user's cell. Properties are tested over all of `MODELS`."""

  name: str
  config: hklm.config.ModelConfig
  cell: hklm.model.CellFactory | None = None

  @property
  def drops(self):
    config = self.config
    return bool(config.input_dropout + config.layer_dropout + config.output_dropout)


def _config(**changes):
  sizes = {"vocab_size": 7, "embedding_size": 5, "hidden_size": 3, "dtype": "float64"}
  return hklm.config.ModelConfig(**{**sizes, **changes})


_DROPOUTS = {"input_dropout": 0.2, "layer_dropout": 0.4, "output_dropout": 0.3}

MODELS = (
    Model("one_layer", _config()),
    Model("two_layers_two_biases", _config(num_layers=2, num_biases=2)),
    Model("three_layers_forget_bias", _config(num_layers=3, forget_bias=1.5, output_bias=False)),
    Model("tied", _config(embedding_size=4, hidden_size=4, tie_embeddings=True, num_layers=2)),
    Model("article", _config(embedding_size=4, hidden_size=4, tie_embeddings=True,
                             output_bias=False, initial_state="learned", init="unit")),
    Model("one_hot", _config(embedding_size=0)),
    Model("one_hot_learned", _config(embedding_size=0, num_layers=2, initial_state="learned",
                                     num_biases=2, output_bias=False)),
    Model("dropout_per_window", _config(num_layers=3, initial_state="learned", **_DROPOUTS)),
    Model("dropout_per_step", _config(num_layers=2, dropout_per_step=True, num_biases=0,
                                         **_DROPOUTS)),
    Model("own_cell", _config(num_layers=2), own_cell),
    Model("gru", _config(embedding_size=3, tie_embeddings=True), gru),
    Model("vanilla", _config(num_layers=2, embedding_size=0, **_DROPOUTS), vanilla),
    Model("haiku_lstm", _config(output_bias=False), haiku_lstm),
)


def over(models):
  """Runs a test once for each model."""
  return parameterized.named_parameters((model.name, model) for model in models)


over_all = over(MODELS)
over_lstms = over([model for model in MODELS if model.cell is None])
over_dropping = over([model for model in MODELS if model.drops])


class Ready(NamedTuple):
  """A model with parameters, a state and data to run it on."""

  lm: hklm.model.LanguageModel
  params: dict
  state: hklm.model.State  # not the initial one: every leaf is random
  inputs: np.ndarray
  targets: np.ndarray
  prefix: np.ndarray  # a mask [T, B] of rows of LENGTHS
  holes: np.ndarray  # a mask with gaps


@functools.cache
def ready(model: Model) -> Ready:
  """Draws every leaf anew, so that no zero of an initialiser hides a fault."""
  lm = hklm.model.language_model(model.config, model.cell)
  params = random_like(jax.eval_shape(lm.init, jax.random.key(0)))
  state = random_like(jax.eval_shape(lambda p: lm.initial_state(p, B), params), seed=1)
  draw = np.random.RandomState(zlib.crc32(model.name.encode()))
  tokens = draw.randint(model.config.vocab_size, size=[T + 1, B]).astype(np.int32)
  holes = np.array([[1, 0, 1, 0, 1, 1], [0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]], bool).T
  return Ready(lm, params, state, tokens[:-1], tokens[1:],
               np.arange(T)[:, None] < np.array(LENGTHS), holes)


def random_like(tree, seed=0, scale=0.7):
  """Normal numbers (small integers for integer leaves) in the shape of `tree`."""
  draw = np.random.RandomState(seed)

  def leaf(like):
    if jnp.issubdtype(like.dtype, jnp.integer):
      return jnp.asarray(draw.randint(5, size=like.shape), like.dtype)
    return jnp.asarray(scale * draw.normal(size=like.shape), like.dtype)

  return jax.tree.map(leaf, tree)


def as_numpy(tree):
  """Leaves on the host, where looking at a part of one compiles nothing."""
  return jax.tree.map(np.asarray, tree)


def numpy_start(state, row):
  """One row of a `State` of LSTMs, as the oracle's."""
  return [(np.asarray(cell.h[row]), np.asarray(cell.c[row])) for cell in state.cells]


def count_equations(jaxpr):
  """Equations of a jaxpr and of all within it."""
  count = 0
  for equation in jaxpr.eqns:
    count += 1
    for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
      if _is_jaxpr(value):
        count += count_equations(getattr(value, "jaxpr", value))
  return count


def _is_jaxpr(value):
  return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")


def replaced(model, **changes):
  return model._replace(config=dataclasses.replace(model.config, **changes))


class X64TestCase(chex.TestCase):
  """Runs its tests with 64-bit numbers on, and leaves the switch as it was."""

  def setUp(self):
    super().setUp()
    self.enter_context(jax.enable_x64(True))

  def assert_close(self, actual, desired, tolerance=1e-12):
    """Same structure, and leaves within `tolerance`, absolute and relative."""
    chex.assert_trees_all_close(actual, desired, atol=tolerance, rtol=tolerance)

  def assert_same_bits(self, actual, desired):
    chex.assert_trees_all_equal(actual, desired, strict=True)
