"""The whole-sequence LSTM against the scan of the cell's equation, however its arrays lie."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn import lstm
from tests import oracle

T, B, D, H = 5, 3, 2, 4
LAYOUTS = {
    "rows": lstm._Layout(columns=False, planes=False),
    "columns": lstm._Layout(columns=True, planes=False),
    "planes": lstm._Layout(columns=True, planes=True),
}


def scan(w_ih, w_hh, b, xs, h, c, mask=None):
  """The equation, step by step."""
  def step(state, x_and_live):
    h, c = state
    x, live = x_and_live
    i, f, g, o = jnp.split(x @ w_ih.T + h @ w_hh.T + b, 4, axis=-1)
    new_c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
    state = jnp.where(live[:, None], new_h, h), jnp.where(live[:, None], new_c, c)
    return state, state[0]

  mask = jnp.ones(xs.shape[:2], bool) if mask is None else mask
  state, ys = jax.lax.scan(step, (h, c), (xs, mask))
  return ys, state


def arguments(dtype=np.float64, length=T, scale=0.7):
  draw = np.random.RandomState(0)
  shapes = [(4 * H, D), (4 * H, H), (4 * H,), (length, B, D), (B, H), (B, H)]
  return tuple(jnp.asarray(scale * draw.normal(size=shape), dtype) for shape in shapes)


def holes():
  return np.random.RandomState(1).uniform(size=[T, B]) < 0.6


def objective(sequence, mask=None):
  """A number that every output and both final states have a share in."""
  def total(*arguments):
    ys, (h, c) = sequence(*arguments, mask)
    weights = np.random.RandomState(2).uniform(0.5, 1.5, size=ys.shape)
    return (weights * jnp.sin(ys)).sum() + (h * jnp.cos(h)).sum() + (c * c).sum()
  return total


def gradients(sequence, arguments, mask=None):
  return jax.jit(jax.value_and_grad(objective(sequence, mask), argnums=range(6)))(*arguments)


class SequenceTest(oracle.X64TestCase):

  def lay(self, layout):
    self.enter_context(mock.patch.object(lstm, "_layout", lambda *_: LAYOUTS[layout]))

  @parameterized.product(layout=tuple(LAYOUTS), masked=(False, True))
  def test_values_and_gradients_are_those_of_the_scan(self, layout, masked):
    self.lay(layout)
    mask = holes() if masked else None
    inputs = arguments()
    found = jax.jit(lambda *inputs: lstm.sequence(*inputs, mask))(*inputs)
    self.assert_close(found, scan(*inputs, mask), 1e-13)
    self.assert_close(gradients(lstm.sequence, inputs, mask), gradients(scan, inputs, mask), 1e-10)

  @parameterized.product(layout=tuple(LAYOUTS), masked=(False, True))
  def test_in_float32(self, layout, masked):
    self.lay(layout)
    mask = holes() if masked else None
    with jax.enable_x64(False):
      found = gradients(lstm.sequence, arguments(np.float32), mask)
    expected = gradients(scan, arguments(), mask)
    self.assertEqual({leaf.dtype for leaf in jax.tree.leaves(found)}, {jnp.dtype("float32")})
    self.assert_close(found, expected, 1e-5)

  @parameterized.product(large=((1, 1), (H + 1, B)), masked=(False, True))
  def test_values_where_no_derivative_is_wanted(self, large, masked):
    """Of a narrow input, read in one product with the state, and of a wide one."""
    self.enter_context(mock.patch.object(lstm, "LARGE", large))
    w_ih, *rest, xs, h, c = arguments()
    wide = jnp.concatenate([w_ih] * 3, axis=1) / 3, *rest, jnp.concatenate([xs] * 3, axis=2), h, c
    mask = holes() if masked else None
    expected = scan(w_ih, *rest, xs, h, c, mask)
    for inputs in (wide, (w_ih, *rest, xs, h, c)):
      self.assert_close(jax.jit(lambda *inputs: lstm.sequence(*inputs, mask))(*inputs), expected,
                        1e-13)

  @parameterized.product(layout=tuple(LAYOUTS), odd=((0, 1, 2), (3,), (4,), (4, 5)))
  def test_arguments_of_two_types(self, layout, odd):
    """As where parameters are rounded to bfloat16 and the carried state is not."""
    self.lay(layout)
    inputs = [x.astype(jnp.bfloat16) if n in odd else x for n, x in enumerate(arguments())]
    _, found = gradients(lstm.sequence, inputs)
    _, expected = gradients(scan, [x.astype(jnp.float64) for x in inputs])
    self.assertEqual([x.dtype for x in found], [x.dtype for x in inputs])
    for one, other in zip(found, expected, strict=True):
      self.assert_close(one, other.astype(one.dtype), 2**-7 if one.dtype == jnp.bfloat16 else 1e-10)

  @parameterized.parameters(*LAYOUTS)
  def test_bfloat16(self, layout):
    self.lay(layout)
    (value, found), (_, expected) = (
        gradients(lstm.sequence, arguments(jnp.bfloat16, scale=0.3)),
        gradients(scan, arguments(scale=0.3)))
    self.assertTrue(np.isfinite(value))
    for one, other in zip(found, expected, strict=True):
      self.assertEqual(one.dtype, jnp.bfloat16)  # 8 bits of mantissa
      error = np.abs(np.asarray(one, np.float64) - other).max()
      self.assertLess(error, 0.1 * np.abs(other).max())

  @parameterized.parameters(*LAYOUTS)
  def test_a_masked_recurrent_matrix(self, layout):
    """Weight drop: the matrix is an argument, and what was dropped gets no gradient."""
    self.lay(layout)
    w_ih, w_hh, *rest = arguments()
    kept = np.random.RandomState(3).uniform(size=w_hh.shape) < 0.5

    def dropped(sequence, w_hh):
      return objective(sequence)(w_ih, jnp.where(kept, w_hh / 0.5, 0.0), *rest)

    found, expected = (jax.jit(jax.grad(functools.partial(dropped, sequence)))(w_hh)
                       for sequence in (lstm.sequence, scan))
    self.assert_close(found, expected, 1e-10)
    np.testing.assert_array_equal(found[~kept], 0.0)
    self.assertGreater(np.abs(found[kept]).min(), 0.0)

  @parameterized.parameters(*LAYOUTS)
  def test_second_derivatives(self, layout):
    self.lay(layout)
    inputs = arguments(length=2)
    moves = jax.tree.map(jnp.cos, inputs)

    def curvature(sequence):
      def slope(*inputs):
        gradient = jax.grad(objective(sequence), argnums=range(6))(*inputs)
        return sum((g * m).sum() for g, m in zip(gradient, moves, strict=True))
      return jax.jit(jax.grad(slope, argnums=range(6)))(*inputs)

    def forward_over_reverse(sequence):
      gradient = jax.grad(objective(sequence), argnums=range(6))
      return jax.jit(lambda *inputs: jax.jvp(gradient, inputs, moves)[1])(*inputs)

    expected = curvature(scan)
    self.assert_close(curvature(lstm.sequence), expected, 1e-10)
    self.assert_close(forward_over_reverse(lstm.sequence), expected, 1e-10)

  def test_gradient_is_the_finite_difference(self):
    inputs, mask, step = arguments(), holes(), 1e-5
    total = objective(lstm.sequence, mask)
    gradient = jax.jit(jax.grad(total, argnums=range(6)))(*inputs)
    total = jax.jit(total)
    for n, slope in enumerate(gradient):
      direction = np.random.RandomState(n).normal(size=slope.shape)
      up, down = ([*inputs[:n], inputs[n] + amount * direction, *inputs[n + 1:]]
                  for amount in (step, -step))
      expected = (total(*up) - total(*down)) / (2 * step)
      self.assert_close((slope * direction).sum(), expected, 1e-7)

  @parameterized.parameters(
      ("planes", 200, 32), ("planes", 1150, 48), ("rows", 200, 20), ("rows", 767, 40),
      ("columns", 768, 40), ("rows", 768, 31))
  def test_full_cache_lines_are_planes_and_large_matrices_meet_columns(self, layout, *sizes):
    self.assertEqual(lstm._layout(*sizes), LAYOUTS[layout])

  def test_vmap_in_and_around_the_gradient(self):
    inputs = arguments()
    several = jax.tree.map(lambda x: jnp.stack([x, 2 * x, -x]), inputs)
    total = objective(lstm.sequence)
    around = jax.jit(jax.vmap(jax.grad(total, argnums=range(6))))(*several)
    inside = jax.jit(jax.grad(lambda *inputs: jax.vmap(total)(*inputs).sum(), argnums=range(6)))(
        *several)
    expected = [gradients(scan, [x[n] for x in several])[1] for n in range(3)]
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *expected)
    self.assert_close(around, expected, 1e-10)
    self.assert_close(inside, expected, 1e-10)

  def test_without_jit_and_with_remat(self):
    inputs = arguments()
    expected = gradients(scan, inputs)[1]
    total = objective(lstm.sequence)
    self.assert_close(jax.grad(total, argnums=range(6))(*inputs), expected, 1e-10)
    with jax.disable_jit():
      self.assert_close(jax.grad(total, argnums=range(6))(*inputs), expected, 1e-10)
    remat = jax.jit(jax.grad(jax.checkpoint(total), argnums=range(6)))(*inputs)
    self.assert_close(remat, expected, 1e-10)

  def test_forward_mode_names_the_switch(self):
    inputs = arguments()
    total = objective(lstm.sequence)
    calls = {
        "jvp": lambda: jax.jvp(total, inputs, inputs),
        "jit": lambda: jax.jit(lambda *inputs: jax.jvp(total, inputs, inputs))(*inputs),
        "jacfwd": lambda: jax.jacfwd(total)(*inputs),
        "linearize": lambda: jax.linearize(total, *inputs)[1](*inputs),
        "reverse over forward": lambda: jax.grad(
            lambda x: jax.jvp(lambda x: total(x, *inputs[1:]), (x,), (x,))[1])(inputs[0]),
    }
    for name, call in calls.items():
      with self.subTest(name), self.assertRaisesRegex(TypeError, "lstm_impl=scan"):
        call()

  @parameterized.parameters(*LAYOUTS)
  def test_no_buffer_is_copied_within_the_loops(self, layout):
    """What the speed rests on: a copy of a buffer a step would make it quadratic in T."""
    self.lay(layout)
    inputs = arguments(np.float32, length=50)
    text = jax.jit(jax.grad(objective(lstm.sequence))).lower(*inputs).compile().as_text()
    copies = [line for line in text.splitlines() if " copy(" in line]
    size = f"f32[{4 * H},50,{B}]" if layout == "planes" else f"f32[50,{B * 4 * H}]"
    self.assertIn(size, text)
    self.assertEmpty([line for line in copies if size in line])

  def test_shapes_are_checked(self):
    w_ih, w_hh, b, xs, h, c = arguments()
    for wrong in ((w_ih[:, 1:], w_hh, b, xs, h, c), (w_ih, w_hh[:, 1:], b, xs, h, c),
                  (w_ih, w_hh, b[1:], xs, h, c), (w_ih, w_hh, b, xs, h[1:], c),
                  (w_ih, w_hh, b, xs, h, c[:, 1:])):
      with self.assertRaises(AssertionError):
        lstm.sequence(*wrong)
    for shape in ((T - 2, B), (T, 1), (B,)):
      with self.assertRaises(AssertionError):
        jax.grad(objective(lstm.sequence, np.ones(shape, bool)))(w_ih, w_hh, b, xs, h, c)


if __name__ == "__main__":
  absltest.main()
