"""A cell that reads a sequence at once, and the same step by step, through the stack."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from hklm.nn import stack
from tests import oracle

HOLES = np.array([[1, 0, 1, 0, 1, 1], [0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]], bool).T  # [T, B]
T, B = HOLES.shape


class Reader:
  """One cell with random parameters, and a state in which it was left."""

  def __init__(self, make, input_size, dtype=np.float64):
    def run(xs, state, mask, impl):
      before = stack.State((state,), jnp.zeros_like(jax.tree.leaves(state)[0]))
      hs, after = stack.unroll([make()], xs, before, mask, stack.Reading(impl))
      return hs, after.cells[0]

    its = hk.without_apply_rng(hk.transform(run))
    self.xs = np.random.RandomState(0).normal(size=[T, B, input_size]).astype(dtype)
    start = hk.without_apply_rng(hk.transform(lambda: make().initial_state(B)))
    self.start = start.apply({})
    self.state = jax.tree.map(abs, oracle.random_like(self.start, seed=1))
    self.params = oracle.random_like(jax.eval_shape(
        lambda key: its.init(key, self.xs, self.start, None, "scan"), jax.random.key(0)))
    self.run = {impl: functools.partial(its.apply, impl=impl) for impl in ("fused", "scan")}
    self._compiled = {impl: jax.jit(run) for impl, run in self.run.items()}

  def read(self, impl, xs=None, state=None, mask=None):
    """Outputs `[T, B, H]` and the state after."""
    return oracle.as_numpy(self._compiled[impl](
        self.params, self.xs if xs is None else xs, self.state if state is None else state, mask))

  def objective(self, impl, mask):
    """A number in which all live outputs and the state after have a share."""
    def total(params, xs, state):
      hs, after = self.run[impl](params, xs, state, mask)
      weights = np.random.RandomState(2).uniform(0.5, 1.5, size=hs.shape) * mask[..., None]
      return (weights * jnp.sin(hs)).sum() + sum(
          (leaf * jnp.cos(leaf)).sum() for leaf in jax.tree.leaves(after))
    return total


class BothWaysTestCase(oracle.X64TestCase):
  """What holds of every such cell; `self.reader(option)` makes a `Reader`."""

  def check_windows(self, reader):
    whole = reader.read("fused", mask=HOLES)
    self.assert_close(reader.read("scan", mask=HOLES)[1], whole[1])
    state, outputs = reader.state, []
    for impl, steps in (("fused", slice(0, 3)), ("scan", slice(3, 4)), ("fused", slice(4, T))):
      hs, state = reader.read(impl, reader.xs[steps], state, HOLES[steps])
      outputs.append(hs)
    live = HOLES[..., None]
    self.assert_close(np.concatenate(outputs) * live, whole[0] * live)
    self.assert_close(state, whole[1])
    self.assert_same_bits(jax.tree.map(lambda leaf: leaf[2], state),  # of a row that read nothing
                          jax.tree.map(lambda leaf: np.asarray(leaf[2]), reader.state))

  def check_gradients(self, reader):
    inputs = reader.params, reader.xs, reader.state
    gradient, stepped = (
        oracle.as_numpy(jax.jit(jax.grad(reader.objective(impl, HOLES), argnums=(0, 1, 2)))(
            *inputs)) for impl in ("fused", "scan"))
    self.assert_close(gradient, stepped, 1e-11)
    total, step = jax.jit(reader.objective("fused", HOLES)), 1e-5
    for seed in range(2):
      direction = oracle.as_numpy(oracle.random_like(inputs, seed=100 + seed))
      up, down = (total(*jax.tree.map(lambda p, v, sign=sign: p + sign * step * v, inputs,
                                      direction)) for sign in (1, -1))
      slope = sum((g * v).sum() for g, v in zip(
          jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
      self.assert_close(slope, (up - down) / (2 * step), 1e-7)
      self.assertGreater(abs(slope), 1e-2)
