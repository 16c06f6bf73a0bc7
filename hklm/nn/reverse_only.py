"""An identity that lets reverse-mode differentiation through and refuses forward mode by name.

`jax.custom_vjp` refuses forward mode too, but cannot say what to do about it.
"""

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def reverse_only(x: jax.Array, message: str) -> jax.Array:
  """`x`; under `jax.jvp`, a `TypeError` that says `message`.

  Args:
    x: an array.
    message: what was found, and what is needed in its place.

  >>> float(jax.grad(lambda x: 2 * reverse_only(x, "no jvp here"))(1.0))
  2.0
  >>> try:
  ...   jax.jvp(lambda x: 2 * reverse_only(x, "no jvp here"), (1.0,), (1.0,))
  ... except TypeError as error:
  ...   print(error)
  no jvp here
  """
  @jax.custom_jvp
  def identity(x):
    return x

  # A tangent of zero is not computed: what does not vary may pass.
  def jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    known = isinstance(t, jax.custom_derivatives.SymbolicZero)
    return x, t if known else _tangent.bind(t, message=message)

  identity.defjvp(jvp, symbolic_zeros=True)
  return identity(x)


# The tangent passes through `_tangent`, which has a transpose but cannot be computed: reverse mode
# only ever transposes it. The primal result is `x` itself, so that an outer differentiation, as of
# forward over reverse, does not meet it.
_tangent = Primitive("reverse_only")


def _refuse(*_, message, **__):
  raise TypeError(message)


_tangent.def_abstract_eval(lambda t, message: t)
_tangent.def_impl(_refuse)
ad.deflinear2(_tangent, lambda ct, t, message: [ct])
batching.defvectorized(_tangent)
mlir.register_lowering(_tangent, _refuse)
