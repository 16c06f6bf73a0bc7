"""The LSTM over a whole sequence, with a derivative of its own: the numbers of stepping the cell.

Differentiating a scan of the cell adds a product of rank B to a `[4H, H]` accumulator at every
step. Here the backward loop carries `dh, dc` alone and leaves the gates' gradients behind, from
which one large product makes the weights' gradient. What makes it fast on a CPU:

- one buffer is first the input's share, then the gates, then their gradients, each step written
  over what it has read: memory that was never touched before costs as much as arithmetic;
- one `tanh` serves all four gates, since `sigmoid(z) = tanh(z / 2) / 2 + 1 / 2`;
- how the arrays lie depends on their sizes, see `_Layout`.

Dimension letters: T time, B batch, D input, H hidden, G = 4H.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

from hklm.nn import varying
from hklm.nn.reverse_only import reverse_only

LINE = 16  # float32 numbers in a cache line
LARGE = (768, 32)  # H and B from which `W h` is the faster, whatever B fills
FORWARD_MODE = ("forward-mode differentiation of the fused LSTM; needed: lstm_impl=scan "
                "(ModelConfig, or --lstm_impl=scan)")


def sequence(w_ih: jax.Array, w_hh: jax.Array, b: jax.Array, xs: jax.Array, h: jax.Array,
             c: jax.Array, mask: jax.Array | None = None
             ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
  """Reads a sequence; equations and layout as in `hklm.nn.cells.LSTM`.

  Differentiable in reverse mode, any number of times, and forward over reverse, if T is 1 or more.
  Arguments of several types are computed in what they promote to.

  Args:
    w_ih: `[4H, D]`.
    w_hh: `[4H, H]`; an argument, so that weight drop can mask it.
    b: `[4H]`.
    xs: `[T, B, D]`.
    h: `[B, H]`.
    c: `[B, H]`.
    mask: `[T, B]`; where false the state passes through. None: all true.

  Returns:
    `h` after every step `[T, B, H]`, and the state `(h, c)` after the last.

  Raises:
    AssertionError: shapes that do not fit.
    TypeError: under `jax.jvp`.

  >>> ys, (h, c) = sequence(jnp.ones([4, 2]), jnp.ones([4, 1]), jnp.zeros(4), jnp.ones([3, 5, 2]),
  ...                       jnp.zeros([5, 1]), jnp.zeros([5, 1]))
  >>> ys.shape, bool((ys[-1] == h).all())
  ((3, 5, 1), True)
  """
  (_, B, D), H = xs.shape, h.shape[-1]
  chex.assert_shape([w_ih, w_hh, b, h, c], [(4 * H, D), (4 * H, H), (4 * H,), (B, H), (B, H)])
  if mask is not None:
    chex.assert_shape(mask, xs.shape[:2])
  dtype = jnp.result_type(w_ih, w_hh, b, xs, h, c)  # the loops' buffers are of one
  inputs = (reverse_only(x.astype(dtype), FORWARD_MODE)
            for x in varying.alike(w_ih, w_hh, b, xs, h, c))
  return _core(*inputs, mask)


@jax.custom_vjp
def _core(w_ih, w_hh, b, xs, h, c, mask):
  """Where no derivative is wanted, nothing is kept."""
  (T, B, D), G = xs.shape, len(b)
  lies = _Layout(_large(G // 4, B), planes=False)
  turn, axis = lies.turn, lies.axis
  narrow = h.shape[1] >= 2 * D  # then one product reads input and state, and less is stored
  w = jnp.concatenate([w_ih, w_hh], axis=1) if narrow else w_hh  # [4H, D + H] or [4H, H]
  w = w if axis == 0 else w.T
  if not narrow:
    xs = (xs.reshape(T * B, D) @ w_ih.T).reshape(T, B, G)
  b, half = (jnp.expand_dims(v, 1 - axis) for v in (b, _by_gate(G, xs.dtype, 0.5, 1.0)))

  def step(carry, x_and_live):
    (h, c), (x, live) = carry, x_and_live
    x = turn(x)
    read = jnp.concatenate([x, h], axis) if narrow else h
    z = w @ read if axis == 0 else read @ w
    a = jnp.tanh(half * ((z if narrow else z + x) + b))
    i, f, g, o = _gates(a, axis)
    new_c = f * c + i * g
    new_h = o * jnp.tanh(new_c)
    if live is not None:
      live = jnp.expand_dims(live, axis)
      new_h, new_c = (jnp.where(live, *pair) for pair in ((new_h, h), (new_c, c)))
    return (new_h, new_c), turn(new_h)

  (h, c), ys = lax.scan(step, (turn(h), turn(c)), (xs, mask))
  return ys, (turn(h), turn(c))


def _core_forward(w_ih, w_hh, b, xs, h, c, mask):
  T, B, D = xs.shape
  G = len(b)
  lies = _layout(G // 4, B)
  turn, axis = lies.turn, lies.axis
  w = w_hh if axis == 0 else w_hh.T  # [4H, H] or [H, 4H]
  half = _by_gate(G, xs.dtype, 0.5, 1.0)
  b, half = (jnp.expand_dims(v, 1 - axis) for v in (b, half))

  def step(t, carry):
    h, c, gates, hs, cs = carry
    wh = w @ h if axis == 0 else h @ w
    a = jnp.tanh(half * (lies.inside(lies.read(gates, t), (B, G)) + wh + b))
    i, f, g, o = _gates(a, axis)
    new_c = f * c + i * g
    new_h = o * jnp.tanh(new_c)
    h, c = _where(mask, t, axis, new_h, h), _where(mask, t, axis, new_c, c)
    return h, c, lies.write(gates, a, t), _put(hs, turn(h), t + 1), _put(cs, c, t + 1)

  xs_flat = xs.reshape(T * B, D)  # one plain product
  z = (w_ih @ xs_flat.T).reshape(G, T, B) if lies.planes else (xs_flat @ w_ih.T).reshape(T, B * G)
  h, c = turn(h), turn(c)
  # Row 0 is the state before the first step. A buffer of zeros would be shared and then copied.
  hs = jnp.broadcast_to(turn(h), (T + 1, B, G // 4))
  cs = jnp.broadcast_to(c, (T + 1, *c.shape))
  h, c, gates, hs, cs = _loop(T, step, (h, c, z, hs, cs))
  return (hs[1:], (turn(h), turn(c))), (w_ih, w_hh, xs, mask, gates, hs, cs)


def _core_backward(kept, gradients):
  w_ih, w_hh, xs, mask, gates, hs, cs = kept  # hs [T + 1, B, H]; cs in the loop's orientation
  dys, (dh, dc) = gradients
  T, B, H = dys.shape
  lies = _layout(H, B)
  turn, axis = lies.turn, lies.axis
  w = lax.optimization_barrier(w_hh.T) if axis == 0 else w_hh
  shape = (4 * H, B) if axis == 0 else (B, 4 * H)
  quarter = jnp.expand_dims(_by_gate(4 * H, dys.dtype, 0.25, 1.0), 1 - axis)

  def step(n, carry):
    dh, dc, a, gates = carry  # a: the gates of step t; dh, dc: of the state after it
    t = jnp.uint32(T - 1) - n
    a = a.reshape(shape)
    i, f, g, o = _gates(a, axis)
    c, tanh_c = _get(cs, t), jnp.tanh(_get(cs, t + 1))
    dh += turn(_get(dys, t))
    dh, skipped_h = _split(mask, t, axis, dh)
    dc, skipped_c = _split(mask, t, axis, dc)
    dc += dh * o * (1 - tanh_c * tanh_c)
    # The barriers keep XLA from computing a shared factor once for each of its uses.
    dh, dc = lax.optimization_barrier((dh, dc))
    dz = jnp.concatenate([dc * g, dc * c, dc * i, dh * tanh_c], axis)
    dz = lax.optimization_barrier(dz * (quarter * (1 - a * a)))
    dh = w @ dz if axis == 0 else dz @ w
    # What is read is read after what is written: the other order would copy the whole buffer.
    gates = lies.write(gates, lies.outside(dz), t)
    return dh + skipped_h, dc * f + skipped_c, lies.read(gates, t - jnp.minimum(t, 1)), gates

  last = lies.read(gates, jnp.uint32(T - 1))
  dh, dc, _, dz = _loop(T, step, (turn(dh), turn(dc), last, gates))
  dz = dz.reshape(4 * H, T * B) if lies.planes else dz.reshape(T * B, 4 * H).T
  dw_ih, dw_hh = (dz @ x.reshape(T * B, x.shape[-1]) for x in (xs, hs[:-1]))
  dxs = (w_ih.T @ dz).T if lies.planes else dz.T @ w_ih
  return dw_ih, dw_hh, dz.sum(1), dxs.reshape(xs.shape), turn(dh), turn(dc), None


_core.defvjp(_core_forward, _core_backward)


class _Layout(NamedTuple):
  """How arrays lie.

  Vectors stand as columns where XLA's product `W h` is faster than `h W`, which must rearrange all
  of W at every step: where B fills cache lines or matrices are large.

  The gates of a step are a plane of `[G, T, B]` where B fills cache lines: then the products
  outside the loop read the buffer as it is. Else a plane would be written in pieces of lines, and
  they are a row of `[T, BG]`; before and after the loop it has B first, as those products want it.

  Attributes:
    columns: vectors of a step are `[H, B]`, else `[B, H]`.
    planes: the gates of all steps are `[G, T, B]`, else `[T, BG]`.
  """

  columns: bool
  planes: bool

  @property
  def axis(self):
    """Along which a step's gates lie."""
    return 0 if self.columns else 1

  def turn(self, x):
    """From `[B, n]`, or back."""
    return x.T if self.columns else x

  def read(self, gates, t):
    return _get(gates, t, int(self.planes))

  def write(self, gates, x, t):
    return _put(gates, x if self.planes else x.reshape(-1), t, int(self.planes))

  def inside(self, x, shape):
    """From what lies in the buffer before and after the loop to what a step uses."""
    return x if self.planes else self.turn(x.reshape(shape))

  def outside(self, x):
    return x if self.planes else self.turn(x)


def _layout(hidden_size, batch_size):
  planes = batch_size % LINE == 0
  return _Layout(planes or _large(hidden_size, batch_size), planes)


def _large(hidden_size, batch_size):
  return hidden_size >= LARGE[0] and batch_size >= LARGE[1]


def _loop(length, step, carry):
  """A scan over t alone, which can be differentiated again."""

  def count(t_and_carry, _):
    t, carry = t_and_carry
    return (t + 1, step(t, carry)), None

  # Unsigned: of a signed index XLA would ask at every use whether it counts from the end.
  (_, carry), _ = lax.scan(count, (jnp.uint32(0), carry), None, length=length)
  return carry


def _get(buffer, t, axis=0):
  return lax.dynamic_index_in_dim(buffer, t, axis, keepdims=False)


def _put(buffer, x, t, axis=0):
  return lax.dynamic_update_index_in_dim(buffer, x, t, axis)


def _by_gate(size, dtype, sigmoid, tanh):
  """`[4H]`: one number for i, f and o, another for g."""
  return jnp.repeat(jnp.array([sigmoid, sigmoid, tanh, sigmoid], dtype), size // 4)


def _gates(a, axis):
  """i, f, g, o from the tanh of their (halved) arguments."""
  i, f, g, o = jnp.split(a, 4, axis)
  return 0.5 * i + 0.5, 0.5 * f + 0.5, g, 0.5 * o + 0.5


def _where(mask, t, axis, new, old):
  return new if mask is None else jnp.where(jnp.expand_dims(_get(mask, t), axis), new, old)


def _split(mask, t, axis, gradient):
  """What enters the step, and what passes it by."""
  zero = jnp.zeros_like(gradient)
  if mask is None:
    return gradient, zero
  return _where(mask, t, axis, gradient, zero), _where(mask, t, axis, zero, gradient)
