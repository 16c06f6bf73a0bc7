"""The contender `flax`: a language model of Flax's NNX modules, with optax around it.

Flax is imported where it is used: it need not be installed.
"""

import jax.numpy as jnp

from experiments.speed import jax_work
from experiments.speed.workloads import Workload


def update(work: Workload, params, window) -> jax_work.Update:
  """A training step: embed to SGD, the state carried."""
  apply, state = _model(work, params)
  return jax_work.optax_update(apply, state, _start(work), window)


def train(work: Workload, params, window):
  """A function that makes the next step and returns its mean nats a token."""
  return jax_work.stepper(update(work, params, window))


def evaluate(work: Workload, params, ids):
  """A function that returns the mean nats of a token of `ids`, read in B streams."""
  apply, state = _model(work, params)
  return jax_work.optax_evaluation(apply, state, _start(work), work, ids)


def lstm(work: Workload, params, xs, direction):
  """A layer's passes by name; see `jax_work.passes`."""
  from flax import nnx

  definition, state = nnx.split(_layer(params["lstm_0"], nnx.Rngs(0)))

  def outputs(state, xs):
    return nnx.merge(definition, state)(xs, initial_carry=_start(work)[0])[1]

  return jax_work.passes(outputs, state, xs, direction)


def _model(work: Workload, params):
  """A pure `apply(state, tokens, carried)` and the modules' state."""
  from flax import nnx

  rngs = nnx.Rngs(0)
  embed = nnx.Embed(work.vocab_size, work.embedding_size, rngs=rngs)
  embed.embedding = _param(params["embedding"]["table"])
  layers = [_layer(params[f"lstm_{layer}"], rngs) for layer in range(work.num_layers)]
  modules = {"embed": embed, "layers": layers}
  if work.tied:
    modules["bias"] = _param(params["head"]["b"])
  else:
    modules["head"] = nnx.Linear(work.hidden_size, work.vocab_size, rngs=rngs)
    modules["head"].kernel = _param(params["head"]["w"].T)
    modules["head"].bias = _param(params["head"]["b"])
  definition, state = nnx.split(modules)

  def apply(state, tokens, carried):
    modules = nnx.merge(definition, state)
    hidden, after = modules["embed"](tokens), []
    for layer, carry in zip(modules["layers"], carried, strict=True):
      carry, hidden = layer(hidden, initial_carry=carry)
      after.append(carry)
    if work.tied:
      return modules["embed"].attend(hidden) + modules["bias"], after
    return modules["head"](hidden), after

  return apply, state


def _layer(values, rngs):
  """An RNN over time-major sequences; its gates are in our order."""
  from flax import nnx

  rows, D = values["w_ih"].shape
  cell = nnx.OptimizedLSTMCell(D, rows // 4, rngs=rngs)
  cell.dense_i.kernel = _param(values["w_ih"].T)
  cell.dense_h.kernel = _param(values["w_hh"].T)
  cell.dense_h.bias = _param(values["b"])
  return nnx.RNN(cell, time_major=True, return_carry=True, rngs=False)


def _param(value):
  from flax import nnx

  return nnx.Param(jnp.array(value))


def _start(work: Workload) -> list[tuple[jnp.ndarray, jnp.ndarray]]:
  """`c` and `h` of each layer: zeros, each array with a buffer of its own for donation."""
  shape = work.batch_size, work.hidden_size
  return [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(work.num_layers)]
