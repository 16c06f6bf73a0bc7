"""The contender `haiku`: a language model of Haiku's own modules, with optax around it."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed import jax_work
from experiments.speed.workloads import Workload


def update(work: Workload, params, window) -> jax_work.Update:
  """A training step: embed to SGD, the state carried."""
  return jax_work.optax_update(_model(work).apply, parameters(params), _start(work), window)


def train(work: Workload, params, window):
  """A function that makes the next step and returns its mean nats a token."""
  return jax_work.stepper(update(work, params, window))


def evaluate(work: Workload, params, ids):
  """A function that returns the mean nats of a token of `ids`, read in B streams."""
  return jax_work.optax_evaluation(_model(work).apply, parameters(params), _start(work), work, ids)


def lstm(work: Workload, params, xs, direction):
  """A layer's passes by name; see `jax_work.passes`."""
  def outputs(xs):
    return hk.dynamic_unroll(hk.LSTM(work.hidden_size, name="lstm_0"), xs, _start(work)[0])[0]

  layer = hk.without_apply_rng(hk.transform(outputs))
  return jax_work.passes(layer.apply, parameters({"lstm_0": params["lstm_0"]}), xs, direction)


def parameters(params) -> dict[str, dict[str, jax.Array]]:
  """The same model's parameters, as Haiku's modules name and lay them out."""
  tree = {}
  for name, values in params.items():
    if name == "embedding":
      tree["embed"] = {"embeddings": values["table"]}
    elif name == "head":
      tree["head"] = {name: value.T for name, value in values.items()}
    else:
      b = _reordered(values["b"])
      b[2 * len(b) // 4:3 * len(b) // 4] -= 1  # hk.LSTM adds 1 to the forget gate
      w = np.concatenate([values["w_ih"], values["w_hh"]], axis=1)
      tree[f"{name}/linear"] = {"w": _reordered(w).T, "b": b}
  return jax.tree.map(jnp.array, tree)


def _reordered(rows):
  """From our order of gates, i f g o, to hk.LSTM's, i g f o."""
  i, f, g, o = np.split(rows, 4)
  return np.concatenate([i, g, f, o])


def _model(work: Workload) -> hk.Transformed:
  def logits(tokens, state):
    embed = hk.Embed(work.vocab_size, work.embedding_size, name="embed")
    core = hk.DeepRNN([hk.LSTM(work.hidden_size, name=f"lstm_{layer}")
                       for layer in range(work.num_layers)])
    hidden, state = hk.dynamic_unroll(core, embed(tokens), state)
    if work.tied:
      head = hk.Bias(bias_dims=[-1], name="head")
      return head(hidden @ embed.embeddings.T), state
    return hk.Linear(work.vocab_size, name="head")(hidden), state

  return hk.without_apply_rng(hk.transform(logits))


def _start(work: Workload) -> tuple[hk.LSTMState, ...]:
  """Zeros, each array with a buffer of its own: a step's state is donated."""
  shape = work.batch_size, work.hidden_size
  return tuple(hk.LSTMState(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(work.num_layers))
