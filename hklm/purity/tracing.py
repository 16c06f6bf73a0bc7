"""A function as jax sees it: traced, compiled and differentiated, and what its traces contain."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.interpreters.partial_eval import dce_jaxpr

from hklm.purity.parts import top
from hklm.purity.values import fingerprint

_numbers = itertools.count(1)


def tracing_anew():
  """A context in which no jitted function finds what an earlier trace left.

  jit's caches are keyed by the metadata that XLA is to attach to operations: under a new one all is
  traced anew, inner jitted functions too, while what was compiled before stays where it is. (A
  context of `jax.make_user_context` would do the same, but making it empties those caches once.)
  """
  return set_xla_metadata(hklm_purity=str(next(_numbers)))


class Traced(NamedTuple):
  """A trace of a function.

  Attributes:
    jaxpr: what jax recorded.
    contents: its text, constants and literals; equal for traces that say the same.
    others: the outputs that are no arrays.
    callbacks: names of the primitives that call back into Python.
    custom: whether there are derivatives in it that are not jax's own.
  """

  jaxpr: Any
  contents: tuple
  others: tuple
  callbacks: tuple[str, ...]
  custom: bool

  def outputs(self, values) -> tuple:
    """Fingerprint of what the recorded program gives for these inputs, compiled."""
    with tracing_anew():
      return fingerprint(jax.jit(jex.jaxpr_as_fun(self.jaxpr))(*values))


class Split(NamedTuple):
  """Arguments as numbers to trace and the rest to leave as it is."""

  leaves: list
  structure: Any
  places: tuple[int, ...]

  def values(self) -> list:
    """The numbers, in order."""
    return [self.leaves[place] for place in self.places]

  def joined(self, values):
    """The arguments with these values in place of the numbers."""
    leaves = list(self.leaves)
    for place, value in zip(self.places, values, strict=True):
      leaves[place] = value
    return jax.tree.unflatten(self.structure, leaves)


def split(args, kwargs, scalars: bool) -> Split:
  """Separates arrays (and Python numbers, if `scalars`) from the rest."""
  leaves, structure = jax.tree.flatten((args, kwargs))
  return Split(leaves, structure,
               tuple(i for i, leaf in enumerate(leaves) if _numeric(leaf, scalars)))


def _numeric(leaf, scalars: bool) -> bool:
  if isinstance(leaf, (np.ndarray, np.generic)):
    return np.issubdtype(leaf.dtype, np.number) or leaf.dtype == bool
  return isinstance(leaf, jax.Array) or (scalars and isinstance(leaf, (bool, int, float, complex)))


def beneath_jit(function):
  """The function that `jit` was given, so that a trace sees what it does to its containers."""
  while top(type(function).__module__) == "jaxlib" and hasattr(function, "__wrapped__"):
    function = function.__wrapped__
  return function


def _array_leaves(result) -> list:
  return [leaf for leaf in jax.tree.leaves(result) if _numeric(leaf, scalars=False)]


def trace(function: Callable, parts: Split, around: Callable) -> Traced:
  """Traces a function on abstract values.

  Args:
    function: takes the arguments that were split.
    parts: the arguments.
    around: `around(args, kwargs, call)` calls `call()` and may look at the arguments.

  Raises:
    Exception: what the function raises when it meets a tracer.
  """
  others = []

  def traced(values):
    args, kwargs = parts.joined(values)
    result = around(args, kwargs, lambda: beneath_jit(function)(*args, **kwargs))
    others.append(fingerprint(jax.tree.map(
        lambda leaf: None if _numeric(leaf, scalars=False) else leaf, result)))
    return _array_leaves(result)

  with tracing_anew():
    jaxpr = jax.make_jaxpr(traced)(parts.values())
  return _described(jaxpr, others)


def compiled(function: Callable, parts: Split) -> tuple:
  """Fingerprint of what the compiled function gives."""
  def joined(values):
    args, kwargs = parts.joined(values)
    return function(*args, **kwargs)
  return fingerprint(jax.jit(joined)(parts.values()))


def gradient(function: Callable, parts: Split, around: Callable, traced: bool):
  """The gradients of a function's real outputs in its real inputs, summed with ones.

  Args:
    function, parts, around: as for `trace`.
    traced: whether it can be traced; else it runs on its values.

  Returns:
    A `Traced`, or a fingerprint if not `traced`, or None where no real number comes out.
  """
  values = parts.values()
  real = [i for i, value in enumerate(values) if _real(value)]
  outputs = []

  def pulled_back(values):
    def forward(inputs):
      merged = list(values)
      for place, value in zip(real, inputs, strict=True):
        merged[place] = value
      args, kwargs = parts.joined(merged)
      result = around(args, kwargs, lambda: beneath_jit(function)(*args, **kwargs))
      return [jnp.asarray(leaf) for leaf in _array_leaves(result) if _real(leaf)]
    result, pull = jax.vjp(forward, [jnp.asarray(values[place]) for place in real])
    outputs.append(len(result))
    return pull([jnp.ones_like(leaf) for leaf in result])

  with tracing_anew():
    result = jax.make_jaxpr(pulled_back)(values) if traced else pulled_back(values)
  if not outputs[0]:
    return None
  return _described(result, []) if traced else fingerprint(result)


def has_real(values) -> bool:
  """Whether there is anything to differentiate by."""
  return any(map(_real, values))


def _real(value) -> bool:
  dtype = getattr(value, "dtype", None)
  return isinstance(value, float) or (dtype is not None and jnp.issubdtype(dtype, jnp.floating))


def _described(closed, others) -> Traced:
  inner = closed.jaxpr
  live, _ = dce_jaxpr(inner, [True] * len(inner.outvars), instantiate=True)  # the rest is unused
  callbacks, values, custom = [], list(map(fingerprint, closed.consts)), False
  for jaxpr in _all(live):
    values += map(fingerprint, getattr(jaxpr, "consts", ()))
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in inner.eqns:
      values += [fingerprint(v.val) for v in equation.invars if hasattr(v, "val")]
      name = equation.primitive.name
      custom |= "custom" in name
      if "callback" in name or name == "debug_print":
        callbacks.append(name)
  text = re.sub("0x[0-9a-fA-F]+", "0x", str(live))
  return Traced(closed, (text, tuple(values)), tuple(others), tuple(callbacks), custom)


def _all(jaxpr) -> Iterator[Any]:
  """A jaxpr and all those in the parameters of its equations, however deep."""
  yield jaxpr
  for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
    waiting = list(equation.params.values())
    while waiting:
      parameter = waiting.pop()
      if hasattr(parameter, "eqns"):
        yield from _all(parameter)
      elif isinstance(parameter, (tuple, list)):
        waiting += parameter
