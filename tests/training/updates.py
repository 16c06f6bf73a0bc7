"""What the tests of the update share: windows, runs of updates, the gradient by NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import hklm
from hklm.config import TrainConfig
from hklm.data.streams import Window
from hklm.training import optimizers, step
from tests import oracle


def sgd(rate, **changes):
  """An optimiser that follows the gradient alone, unless `changes` say more."""
  settings = {"optimizer": "sgd", "learning_rate": rate, "schedule": "constant", "clip": 0.0}
  return optimizers.optimizer(TrainConfig(**{**settings, **changes}), 100, epochs_of(100))


def epochs_of(count):
  """`updates_in` where every epoch has so many updates."""
  return lambda epochs: epochs * count


@dataclasses.dataclass
class Listed:
  """The windows of an epoch, as a run reads them: again and again from the first."""

  windows: list

  def at(self, number):
    place = number % len(self.windows)
    return Window(self.windows[place], None, place == 0, place == len(self.windows) - 1)


def windows(count, T, B, vocab_size, seed=0):
  """Ids `[T + 1, B]`, int32."""
  draw = np.random.RandomState(seed)
  return [draw.randint(vocab_size, size=[T + 1, B]).astype(np.int32) for _ in range(count)]


def resets(count, B):
  """Bools `[B]`: every stream starts with the first window, and another one anew with each."""
  return [np.arange(B) % count == n if n else np.ones(B, bool) for n in range(count)]


def kept(tree):
  """NumPy copies: what they are taken from may be donated."""
  return jax.tree.map(np.array, tree)


def started(model, optimizer, config, B, cell=None):
  """The functions and the state before the first update, every parameter drawn anew."""
  lm = hklm.language_model(model, cell)
  state = step.init(lm, optimizer, B, 0, config, cell)
  params = oracle.random_like(state.params)
  average = None if state.average is None else jax.tree.map(
      lambda leaf, mean: jnp.array(leaf, mean.dtype), params, state.average)
  return lm, state._replace(params=params, average=average)


def run(model, optimizer, config, windows_, resets_, cell=None):
  """States after each update, their keys left out, and the metrics, all in NumPy."""
  lm, state = started(model, optimizer, config, len(resets_[0]), cell)
  update = step.make_update(lm, optimizer, config, cell)
  states, metrics = [], []
  for window, reset in zip(windows_, resets_, strict=True):
    state, told = update(state, window, reset)
    states.append(kept(state._replace(key=None)))
    metrics.append(kept(told))
  return states, metrics


def temporaries(model, config, T, B):
  """Bytes that XLA sets aside for the update besides its arguments and outputs."""
  lm, optimizer = hklm.language_model(model), sgd(0.1)
  state = jax.eval_shape(lambda: step.init(lm, optimizer, B, 0, config))
  compiled = step.make_update(lm, optimizer, config).lower(
      state, jax.ShapeDtypeStruct([T + 1, B], jnp.int32), jax.ShapeDtypeStruct([B], bool)).compile()
  return compiled.memory_analysis().temp_size_in_bytes


def numpy_gradient(config, params, window, layers_of_row):
  """Central differences of the mean of `nats [T, B]`; `layers_of_row(truth, row)` is the start."""

  def mean(params):
    truth = oracle.NumpyModel(config, params)
    return np.mean([truth.loss(window[:-1, row], window[1:, row], layers_of_row(truth, row))
                    for row in range(window.shape[1])])

  params = jax.tree.map(lambda leaf: np.array(leaf, np.float64), params)
  gradient = jax.tree.map(np.zeros_like, params)
  for leaf, out in zip(jax.tree.leaves(params), jax.tree.leaves(gradient), strict=True):
    for place in np.ndindex(leaf.shape):
      value, losses = leaf[place], []
      for shift in (1e-5, -1e-5):
        leaf[place] = value + shift
        losses.append(mean(params))
      leaf[place] = value
      out[place] = (losses[0] - losses[1]) / 2e-5
  return gradient
