"""Stacks of cells that only count, so that every number can be checked by hand."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn import cells, stack
from tests import oracle

T, B = 5, 4


class Counter(hk.RNNCore):
  """Counts its steps `[B]`; adds the count so far to what it reads."""

  def initial_state(self, batch_size):
    return jnp.zeros([batch_size], jnp.int32)

  def __call__(self, x, state):
    return x + state[:, None], state + 1


class Accumulator(hk.RNNCore):
  """Sums what it reads `[B, D]`; its start is a number of its own."""

  def __init__(self, size):
    super().__init__()
    self._size = size

  def initial_state(self, batch_size):
    return {"sum": jnp.full([batch_size, self._size], 10.0)}

  def output(self, state):
    return -state["sum"]

  def __call__(self, x, state):
    new = state["sum"] + x
    return new, {"sum": new}


def unroll(make, xs, mask=None, state=None, dtype=jnp.float64):
  """Start state, outputs and end state of the stack that `make` builds."""
  def run(xs, state):
    cores = make()
    sizes = [xs.shape[2]] * len(cores)
    start = stack.initial_state(cores, xs.shape[1], sizes, dtype) if state is None else state
    return start, *stack.unroll(cores, xs, start, mask, stack.Reading())

  return hk.without_apply_rng(hk.transform(run)).apply({}, xs, state)


class StackTest(oracle.X64TestCase):

  def test_a_counter_counts(self):
    xs = np.zeros([T, B, 2])
    start, ys, state = unroll(lambda: [Counter()], xs)
    np.testing.assert_array_equal(start.cells[0], 0)
    np.testing.assert_array_equal(ys, np.arange(T)[:, None, None] * np.ones([T, B, 2]))
    np.testing.assert_array_equal(state.cells[0], T)
    np.testing.assert_array_equal(state.output, T - 1)

  def test_two_layers_add_up(self):
    _, ys, state = unroll(lambda: [Counter(), Accumulator(2)], np.ones([T, B, 2]))
    # reads 1 + t, so the sum is 10 + 1 + 2 + ... + (t + 1)
    np.testing.assert_array_equal(ys[:, 0, 0], [11, 13, 16, 20, 25])
    np.testing.assert_array_equal(state.cells[1]["sum"], 25)
    np.testing.assert_array_equal(state.output, 25)

  def test_masks_hold_every_layer_still(self):
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], bool).T
    start, _, state = unroll(lambda: [Counter(), Accumulator(2)], np.ones([T, B, 2]), mask)
    np.testing.assert_array_equal(state.cells[0], [5, 2, 2, 0])
    np.testing.assert_array_equal(state.cells[1]["sum"][:, 0], [25, 13, 13, 10])
    np.testing.assert_array_equal(state.output[:, 1], [25, 13, 13, -10])  # -10: as before
    np.testing.assert_array_equal(start.output, -10)

  def test_a_second_window_goes_on(self):
    xs = np.random.RandomState(0).normal(size=[T, B, 2])

    def make():
      return [Counter(), Accumulator(2)]

    _, whole, end = unroll(make, xs)
    _, first, between = unroll(make, xs[:2])
    _, second, end_of_two = unroll(make, xs[2:], state=between)
    self.assert_close(np.concatenate([first, second]), whole)
    self.assert_close(end_of_two, end)

  @parameterized.parameters("float32", "bfloat16", "float64")
  def test_start_is_of_the_dtype_but_integers_stay(self, dtype):
    xs = jnp.zeros([T, B, 2], dtype)
    for make in (lambda: [Accumulator(2)], lambda: [hk.GRU(2)], lambda: [hk.LSTM(2)]):
      cores = hk.transform(lambda make=make: stack.initial_state(make(), B, [2], xs.dtype))
      state = cores.apply({}, None)
      self.assertEqual({str(leaf.dtype) for leaf in jax.tree.leaves(state)}, {dtype})
    start, ys, _ = unroll(lambda: [Counter()], xs, dtype=xs.dtype)
    self.assertEqual(start.cells[0].dtype, jnp.int32)
    self.assertEqual(start.output.dtype, xs.dtype)
    self.assertEqual(ys.dtype, xs.dtype)

  def test_a_cell_that_does_not_tell_puts_out_zeros_first(self):
    start, *_ = unroll(lambda: [hk.IdentityCore()], np.ones([T, B, 3]))
    np.testing.assert_array_equal(start.output, np.zeros([B, 3]))
    self.assertEqual(start.cells, ((),))

  def test_traces(self):
    def run(xs):
      cores = [Counter(), cells.LSTM(2, dtype=xs.dtype)]
      start = stack.initial_state(cores, B, [2, 2], xs.dtype)
      return stack.traces(cores, xs, start, stack.Reading())

    xs = np.random.RandomState(0).normal(size=[T, B, 3])
    run = hk.without_apply_rng(hk.transform(run))
    params = oracle.random_like(jax.eval_shape(run.init, jax.random.key(0), xs))
    counted, lstm = run.apply(params, xs)
    self.assertEqual(counted.gates, {})
    np.testing.assert_array_equal(counted.cell, np.arange(1, T + 1)[:, None] * np.ones([1, B]))
    np.testing.assert_array_equal(counted.output, xs + np.arange(T)[:, None, None])
    self.assertEqual(set(lstm.gates), {"i", "f", "g", "o"})
    before = np.concatenate([np.zeros([1, B, 2]), lstm.cell[:-1]])
    gates = oracle.as_numpy(lstm.gates)
    self.assert_close(gates["f"] * before + gates["i"] * gates["g"], lstm.cell)
    self.assert_close(gates["o"] * np.tanh(lstm.cell), lstm.output)

  @parameterized.parameters("plain", "residual", "sum")
  def test_connections(self, connections):
    how = stack.Reading(connections=connections)

    def run(xs, mask):
      cores = [Accumulator(2), Accumulator(2), Counter()]
      start = stack.initial_state(cores, B, [2, 2, 2], xs.dtype, connections)
      traced = stack.traces(cores, xs, start, how)
      return start.output, *stack.unroll(cores, xs, start, mask, how), traced

    run = hk.without_apply_rng(hk.transform(run))
    xs = np.random.RandomState(0).normal(size=[T, B, 2])
    mask = np.ones([T, B], bool)
    mask[2, 1] = False
    before, ys, state, traced = run.apply({}, xs, None)
    first = 10 + xs.cumsum(0)
    second = 10 + first.cumsum(0)
    up = second + (first if connections == "residual" else 0)
    third = up + np.arange(T)[:, None, None]
    expected = {"plain": third, "residual": third + up, "sum": first + second + third}[connections]
    self.assert_close(ys, expected)
    self.assert_close(state.output, expected[-1])
    # Before the first token the layers put out -10, -10 and 0.
    np.testing.assert_array_equal(
        before, np.full([B, 2], {"plain": 0, "residual": -20, "sum": -20}[connections]))
    for layer, its in zip(traced, (first, second, third), strict=True):
      self.assert_close(layer.output, its)
    _, masked, state, _ = run.apply({}, xs, mask)
    _, short, end, _ = run.apply({}, np.delete(xs, 2, 0)[:, 1:2].repeat(B, 1), None)
    self.assert_close(state.output[1], end.output[0])
    self.assert_close(np.delete(masked[:, 1], 2, 0), short[:, 0])

  def test_a_residual_needs_one_width(self):
    def run(xs):
      cores = [cells.LSTM(3, dtype=xs.dtype, name="a"), cells.LSTM(2, dtype=xs.dtype, name="b")]
      start = stack.initial_state(cores, B, [3, 2], xs.dtype, "residual")
      return [stack.unroll(cores, xs, start, None, stack.Reading(connections=its))[0]
              for its in ("residual", "plain")]

    run = hk.without_apply_rng(hk.transform(run))
    xs = np.random.RandomState(0).normal(size=[T, B, 3])
    self.assert_close(*run.apply(run.init(jax.random.key(0), xs), xs))


if __name__ == "__main__":
  absltest.main()
