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

  def differentiated(self, impl, mask):
    """`(params, xs, state) -> (total, outputs), gradient`, compiled.

    In the total, all live outputs and the state after have a share.
    """
    def total(params, xs, state):
      hs, after = self.run[impl](params, xs, state, mask)
      weights = np.random.RandomState(2).uniform(0.5, 1.5, size=hs.shape) * mask[..., None]
      return (weights * jnp.sin(hs)).sum() + sum(
          (leaf * jnp.cos(leaf)).sum() for leaf in jax.tree.leaves(after)), hs
    return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))


class BothWaysTestCase(oracle.X64TestCase):
  """What holds of every such cell."""

  def check_windows(self, reader):
    """They go on from each other, read either way; a row that reads nothing stays as it is."""
    whole = reader.read("fused", mask=HOLES)
    state, outputs = reader.state, []
    for impl, start in (("fused", 0), ("scan", 2), ("fused", 4)):
      steps = slice(start, start + 2)
      hs, state = reader.read(impl, reader.xs[steps], state, HOLES[steps])
      outputs.append(hs)
    live = HOLES[..., None]
    self.assert_close(np.concatenate(outputs) * live, whole[0] * live)
    self.assert_close(state, whole[1])
    for after in (state, whole[1]):
      self.assert_same_bits(jax.tree.map(lambda leaf: leaf[2], after),
                            jax.tree.map(lambda leaf: np.asarray(leaf[2]), reader.state))

  def check_gradients(self, reader):
    """They are the finite difference, and those of the steps."""
    inputs, step = (reader.params, reader.xs, reader.state), 1e-5
    fused, scan = (reader.differentiated(impl, HOLES) for impl in ("fused", "scan"))
    gradient = oracle.as_numpy(fused(*inputs)[1])
    self.assert_close(gradient, scan(*inputs)[1], 1e-11)
    for seed in range(2):
      direction = oracle.as_numpy(oracle.random_like(inputs, seed=100 + seed))
      up, down = (fused(*jax.tree.map(lambda p, v, sign=sign: p + sign * step * v, inputs,
                                      direction))[0][0] for sign in (1, -1))
      slope = sum((g * v).sum() for g, v in zip(
          jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
      self.assert_close(slope, (up - down) / (2 * step), 1e-7)
      self.assertGreater(abs(slope), 1e-2)

  def check_dtype(self, reader, dtype):
    """Parameters, state and outputs are of one."""
    found = [jax.eval_shape(run, reader.params, reader.xs, reader.state, HOLES)
             for run in reader.run.values()]
    leaves = jax.tree.leaves((reader.params, reader.start, found))
    self.assertEqual({str(leaf.dtype) for leaf in leaves}, {dtype})
