"""Which Haiku module is at work, and what it does that no module should."""

import contextlib
import random
from collections.abc import Iterator
from typing import NamedTuple

import haiku as hk
import jax
import numpy as np

from hklm.purity.image import text
from hklm.purity.places import numpy_state
from hklm.purity.values import TooLarge, fingerprint, walk


class Fault(NamedTuple):
  """Something a module did: its name, a phrase, and the attribute or generator."""

  module: str
  what: str
  detail: str
  remedy: str


class Watch:
  """Follows Haiku's modules: `current()` is the one at work, `faults` what they did.

  A module lives as long as its transform runs: what it keeps on `self` is gone at the next call,
  or comes back as a leaked tracer, so an array kept there by any method but `__init__` is a fault.
  """

  def __init__(self):
    self.faults: list[Fault] = []
    self.seen = False  # whether any module was at work
    self._stack: list[str] = []
    self._draws: dict[str, object] = {}

  def current(self) -> str:
    """The name of the module at work, or of the one whose error is on its way; may be empty."""
    return self._stack[-1] if self._stack else ""

  @contextlib.contextmanager
  def watching(self) -> Iterator[None]:
    """Within it, modules are followed."""
    with hk.intercept_methods(self._intercept):
      try:
        yield
      finally:
        self._stack.clear()

  def _intercept(self, method, args, kwargs, context):
    module = context.module
    name = getattr(module, "module_name", type(module).__name__)  # none yet inside __init__
    self.seen = True
    self._stack.append(name)
    before = {key: fingerprint(value) for key, value in vars(module).items() if _keeps_array(value)}
    outer, self._draws = self._draws, _generators()
    result = method(*args, **kwargs)  # where it raises, the stack still names the module
    now = _generators()
    for generator, state in now.items():
      if state != self._draws[generator]:
        self.faults.append(Fault(name, f"advances the generator of `{generator}`", "",
                                 "draw with jax.random and hk.next_rng_key()"))
    # An outer module starts again from here: a draw is told of the innermost module alone.
    self._draws = {generator: now[generator] for generator in outer} if outer else outer
    if context.method_name != "__init__":
      for attribute, value in vars(module).items():
        if _keeps_array(value) and before.get(attribute) != fingerprint(value):
          self.faults.append(Fault(
              name, "keeps an array on `self`", f"self.{attribute} = {text(value)}",
              "return it, or keep it with hk.set_state; a module lives for one call"))
    self._stack.pop()
    return result


def _generators():
  return {"random": random.getstate(),
          "numpy.random": numpy_state()}


def _keeps_array(value) -> bool:
  if isinstance(value, hk.Module):
    return False
  try:
    return any(isinstance(thing, (jax.Array, np.ndarray))
               for _, thing, _ in walk(value, lambda kind: False))
  except TooLarge:
    return False

