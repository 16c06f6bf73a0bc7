"""The recurrence of all steps at once against a loop in float64, in both spaces."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn.zoo import scans
from tests import oracle

T, B, H = 7, 3, 2


def loop(a, b, h, mask=None):
  """The equation, step by step."""
  hs = []
  for t in range(len(a)):
    live = np.ones_like(h, bool) if mask is None else mask[t][:, None]
    h = np.where(live, a[t] * h + b[t], h)
    hs.append(h)
  return np.array(hs)


def arguments(length=T, low=0.1):
  """a in (low, 1), b in (0, 1), h in (0, 1)."""
  draw = np.random.RandomState(0)
  return (draw.uniform(low, 1, size=[length, B, H]), draw.uniform(size=[length, B, H]),
          draw.uniform(size=[B, H]))


def in_logs(a, b, h, mask=None):
  return scans.log_linear(jnp.log(a), jnp.log(b), h, mask)


def holes(length=T):
  return np.random.RandomState(1).uniform(size=[length, B]) < 0.6


class ScansTest(oracle.X64TestCase):

  @parameterized.product(scan=[scans.linear, in_logs], masked=[False, True], length=[1, T])
  def test_is_the_loop(self, scan, masked, length):
    inputs, mask = arguments(length), holes(length) if masked else None
    self.assert_close(jax.jit(scan)(*inputs, mask), loop(*inputs, mask), 1e-13)

  def test_of_any_sign(self):
    a, b, h = (4 * x - 2 for x in arguments())
    self.assert_close(scans.linear(a, b, h), loop(a, b, h), 1e-12)

  @parameterized.parameters((scans.linear, np.float64, T, 1e-12), (in_logs, np.float64, T, 1e-12),
                            (in_logs, np.float32, 2048, 1e-4))
  def test_gradients_are_those_of_the_loop(self, scan, dtype, length, tolerance):
    """By hand, backwards: dh_{t-1} = a_t dh_t, da_t = h_{t-1} dh_t, db_t = dh_t."""
    (a, b, h), mask = arguments(length), holes(length)
    weights = np.random.RandomState(2).uniform(0.5, 1.5, size=a.shape)
    gradient = jax.grad(lambda *inputs: (weights * scan(*inputs, mask)).sum(), (0, 1, 2))
    found = jax.jit(gradient)(*(x.astype(dtype) for x in (a, b, h)))
    before = np.concatenate([h[None], loop(a, b, h, mask)[:-1]])
    da, db, dh = np.zeros_like(a), np.zeros_like(b), np.zeros_like(h)
    for t in reversed(range(length)):
      live = mask[t][:, None]
      dh = dh + weights[t]
      da[t], db[t] = live * before[t] * dh, live * dh
      dh = np.where(live, a[t] * dh, dh)
    for one, other in zip(found, (da, db, dh), strict=True):
      self.assertEqual(one.dtype, dtype)
      self.assert_close(np.float64(one), other, tolerance)

  def test_forward_mode_and_second_derivatives(self):
    """Forward over reverse, against reverse over forward and a difference of gradients.

    The derivative of `log_linear` is made of `linear`, so that this is of both.
    """
    inputs, mask, step = arguments(4), holes(4), 1e-5
    moves = [np.cos(9 * x) for x in inputs]

    def total(*inputs):
      return jnp.sin(in_logs(*inputs, mask)).sum()

    def slope(*inputs):
      return jax.jvp(total, inputs, tuple(moves))[1]

    gradient = jax.grad(total, (0, 1, 2))

    @jax.jit
    def both(*inputs):
      return (*jax.jvp(gradient, inputs, tuple(moves)), slope(*inputs),
              jax.grad(slope, (0, 1, 2))(*inputs))

    first, second, along, other = both(*inputs)
    self.assert_close(along, sum((g * m).sum() for g, m in zip(first, moves, strict=True)))
    self.assert_close(second, other)
    up, down = (both(*(x + amount * m for x, m in zip(inputs, moves, strict=True)))[0]
                for amount in (step, -step))
    self.assert_close(second, tuple((u - d) / (2 * step) for u, d in zip(up, down, strict=True)),
                      1e-7)

  def test_zeros_have_logarithms(self):
    """And gradients are numbers: of -inf, of what is masked, of a state of zero."""
    a, b, h = arguments()
    a[2], b[1:4], h[0] = 0.0, 0.0, 0.0
    log_a, log_b = (np.where(x > 0, np.log(np.maximum(x, 1e-9)), -np.inf) for x in (a, b))
    mask = holes()

    def total(*inputs):
      hs = scans.log_linear(*inputs, mask)
      return jnp.square(hs).sum(), hs

    gradient, hs = jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(log_a, log_b, h)
    self.assert_close(hs, loop(a, b, h, mask), 1e-13)
    for leaf in gradient:
      self.assertTrue(np.isfinite(leaf).all())

  @parameterized.product(scan=[scans.linear, in_logs], low=[1e-6, 0.999])
  def test_long_sequences_in_float32(self, scan, low):
    """Gates that forget at once, and gates that keep what they read for long."""
    inputs, mask = arguments(2048, low), holes(2048)
    expected = loop(*inputs, mask)
    self.assertGreater(expected.max(), 300 if low > 0.9 else 1)
    narrow = [np.float32(x) for x in inputs]
    found = jax.jit(scan)(*narrow, mask)
    self.assertEqual(found.dtype, jnp.float32)
    # What a loop in float32 would make of a that is rounded: 2048 steps of 2**-24 each.
    np.testing.assert_allclose(found, expected, rtol=2e-5 if low < 0.9 else 2048 * 2**-24)

  def test_large_logarithms_in_float32(self):
    """A cumulative sum of all `log a` would have no digits left behind the point."""
    log_a, log_b = np.full([256, 1, 1], -1e5), np.tile([0.0, -1e5], 128)[:, None, None]
    found = jax.jit(scans.log_linear)(*map(np.float32, (log_a, log_b, np.ones([1, 1]))))
    np.testing.assert_array_equal(found[::2], 1.0)
    self.assertTrue(np.isfinite(found).all())

  @parameterized.parameters(scans.linear, scans.log_linear)
  def test_shapes_are_checked(self, scan):
    a, b, h = arguments()
    for wrong in ((a, b[1:], h), (a, b, h[1:]), (a, b, h, np.ones([T, 1], bool))):
      with self.assertRaises(AssertionError):
        scan(*wrong)


if __name__ == "__main__":
  absltest.main()
