"""A recurrent cell of one's own: `python -m experiments.train --cell=experiments.own_cell:mgu`."""

import haiku as hk
import jax
import jax.numpy as jnp


class MinimalGatedUnit(hk.RNNCore):
  """One gate: `f = sigmoid(W [x, h])`, `h' = (1 - f) h + f tanh(U [x, f h])`; Zhou et al. 2016."""

  def __init__(self, size, name):
    super().__init__(name=name)
    self.size = size

  def initial_state(self, batch_size):
    return jnp.zeros([batch_size, self.size])

  def __call__(self, x, h):
    f = jax.nn.sigmoid(hk.Linear(self.size, name="gate")(jnp.concatenate([x, h], -1)))
    g = jnp.tanh(hk.Linear(self.size, name="candidate")(jnp.concatenate([x, f * h], -1)))
    h = (1 - f) * h + f * g
    return h, h


def mgu(layer, size):
  """What `--cell` names: the cell of a layer."""
  return MinimalGatedUnit(size, name=f"mgu_{layer}")
