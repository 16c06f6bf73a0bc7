"""The recurrence `h_t = a_t h_{t-1} + b_t` of all steps at once.

Two steps in a row are one step of the same kind, so that a tree of pairs gives all T in log2 T
rounds (Blelloch 1990, section 1.4), each made of large arrays. The same of logarithms, for positive
`b`: Heinsen 2023, whose cumulative sums of all `log a` would lose float32's digits in a long
sequence. A tree adds only those between two steps.

What the derivative changes, `dh_t = a_t dh_{t-1} + (da_t h_{t-1} + db_t)`, is such a recurrence
too. Said so, it takes one more tree, in place of what the rules for every sum of the first make.
"""

import chex
import jax
import jax.numpy as jnp
from jax import lax


def linear(a: jax.Array, b: jax.Array, h: jax.Array, mask: jax.Array | None = None) -> jax.Array:
  """`h_t` for every t.

  Args:
    a: `[T, B, H]`.
    b: `[T, B, H]`.
    h: the state before the first step `[B, H]`.
    mask: `[T, B]`; where false the state passes through. None: all true.

  Returns:
    `[T, B, H]`.

  >>> a, b = jnp.full([3, 1, 1], 2.0), jnp.ones([3, 1, 1])
  >>> linear(a, b, jnp.ones([1, 1])).ravel().tolist()
  [3.0, 7.0, 15.0]
  >>> linear(a, b, jnp.ones([1, 1]), jnp.array([[True], [False], [True]])).ravel().tolist()
  [3.0, 3.0, 7.0]
  """
  return _linear(*_made_ready(a, b, h, mask, (1.0, 0.0)))


def log_linear(log_a: jax.Array, log_b: jax.Array, h: jax.Array, mask: jax.Array | None = None
               ) -> jax.Array:
  """`linear` from the logarithms of `a` and `b`, which may be -inf.

  Args:
    log_a: `[T, B, H]`.
    log_b: `[T, B, H]`.
    h: the state before the first step `[B, H]`, itself.
    mask: as for `linear`.

  Returns:
    `h_t` itself, `[T, B, H]`.

  >>> a, b = jnp.full([3, 1, 1], 2.0), jnp.ones([3, 1, 1])
  >>> log_linear(jnp.log(a), jnp.log(b), jnp.ones([1, 1])).ravel().round(4).tolist()
  [3.0, 7.0, 15.0]
  """
  return _log_linear(*_made_ready(log_a, log_b, h, mask, (0.0, -jnp.inf)))


@jax.custom_jvp
def _linear(a, b, h):
  def both(first, second):
    (a, b), (next_a, next_b) = first, second
    return next_a * a, next_a * b + next_b

  a, b = lax.associative_scan(both, (a, b))
  return a * h + b


@_linear.defjvp
def _linear_jvp(primals, tangents):
  (a, b, h), (da, db, dh) = primals, tangents
  hs = _linear(a, b, h)
  return hs, _linear(a, da * _before(hs, h) + db, dh)


@jax.custom_jvp
def _log_linear(log_a, log_b, h):
  def both(first, second):
    (a, b), (next_a, next_b) = first, second
    return next_a + a, jnp.logaddexp(next_a + b, next_b)

  log_a, log_b = lax.associative_scan(both, (log_a, log_b))
  return jnp.exp(log_a) * h + jnp.exp(log_b)


@_log_linear.defjvp
def _log_linear_jvp(primals, tangents):
  (log_a, log_b, h), (dlog_a, dlog_b, dh) = primals, tangents
  hs, a, b = _log_linear(log_a, log_b, h), jnp.exp(log_a), jnp.exp(log_b)
  return hs, _linear(a, a * _before(hs, h) * dlog_a + b * dlog_b, dh)


def _before(hs, h):
  return jnp.concatenate([h[None], hs[:-1]])


def _made_ready(a, b, h, mask, passing):
  """Of one type; where the mask is false, `passing` in place of a and b."""
  chex.assert_equal_shape([a, b])
  chex.assert_shape(h, a.shape[1:])
  if mask is not None:
    chex.assert_shape(mask, a.shape[:2])
    a, b = (jnp.where(mask[..., None], x, its) for x, its in zip((a, b), passing, strict=True))
  dtype = jnp.result_type(a, b, h)
  return a.astype(dtype), b.astype(dtype), h.astype(dtype)
