"""Depth: layers of cells read one after the other, each over the whole sequence."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.nn import cells as cells_
from hklm.nn.dropout import dropout
from hklm.nn.embedding import Lookup


class State(NamedTuple):
  """What a model remembers between calls; every leaf is `[B, ...]`.

  Attributes:
    cells: the state of each layer's cell.
    output: the last undropped output vector `[B, D]`: what the head reads next.
  """

  cells: tuple[Any, ...]
  output: jax.Array


class Trace(NamedTuple):
  """What one layer did at every time step.

  Attributes:
    gates: gate activations by name, each `[T, B, H]`; empty for a cell that does not tell.
    cell: the cell's state after each step: its `c` for an LSTM, else the whole pytree.
    output: `[T, B, H]`.
  """

  gates: dict[str, jax.Array]
  cell: Any
  output: jax.Array


def initial_state(cores: Sequence[hk.RNNCore], batch_size: int, size: int, dtype) -> State:
  """The state before the first token.

  Args:
    cores: the layers' cells, from the input up.
    batch_size: B.
    size: D, the width of the top layer's output.
    dtype: of every floating-point leaf, whatever a cell's own default is (`hk.GRU` starts from
      float64 zeros where x64 is on).
  """
  def cast(leaf):
    return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

  cells = jax.tree.map(cast, tuple(core.initial_state(batch_size) for core in cores))
  if hasattr(cores[-1], "output"):
    return State(cells, cores[-1].output(cells[-1]))
  return State(cells, jnp.zeros([batch_size, size], dtype))


def unroll(cores: Sequence[hk.RNNCore], xs: jax.Array | Lookup, state: State,
           mask: jax.Array | None, layer_dropout: float, per_step: bool, impl: str
           ) -> tuple[jax.Array, State]:
  """Reads `xs` through every layer.

  Args:
    cores: the layers' cells.
    xs: `[T, B, E]`; a `Lookup` only for an `LSTM` that is not scanned.
    state: the state before.
    mask: `[T, B]`; where false the state passes through. None: all true.
    layer_dropout: rate between layers.
    per_step: whether masks are fresh at each step.
    impl: how an `LSTM` reads: `scan`, `fused` or `cudnn`. Other cells are scanned.

  Returns:
    The top layer's outputs `[T, B, D]` and the state after.
  """
  cells = []
  for layer, (core, cell) in enumerate(zip(cores, state.cells, strict=True)):
    if layer:
      xs = dropout(xs, layer_dropout, per_step)
    if impl != "scan" and isinstance(core, cells_.LSTM):
      xs, cell = core.sequence(xs, cell, mask, impl)
    else:
      xs, cell = _scan(core, xs, cell, mask)
    cells.append(cell)
  return xs, State(tuple(cells), _last(xs, state.output, mask))


def traces(cores: Sequence[hk.RNNCore], xs: jax.Array, state: State) -> tuple[Trace, ...]:
  """What each layer does while reading `xs` `[T, B, E]`, without dropout."""
  result = []
  for core, cell in zip(cores, state.cells, strict=True):
    def step(cell, x, core=core):
      if hasattr(core, "trace"):
        y, cell, gates = core.trace(x, cell)
        return cell, Trace(gates, cell.c, y)
      y, cell = core(x, cell)
      return cell, Trace({}, cell, y)

    _, trace = hk.scan(step, cell, xs)
    result.append(trace)
    xs = trace.output
  return tuple(result)


def _scan(core, xs, cell, mask):
  if mask is None:
    def step(cell, x):
      y, cell = core(x, cell)
      return cell, y

    cell, ys = hk.scan(step, cell, xs)
    return ys, cell

  def masked_step(cell, x_and_mask):
    x, live = x_and_mask  # [B, D], [B]
    y, new = core(x, cell)
    return jax.tree.map(lambda new, old: jnp.where(_like(live, new), new, old), new, cell), y

  cell, ys = hk.scan(masked_step, cell, (xs, mask))
  return ys, cell


def _last(ys, before, mask):
  """The output at each row's last true step, or the one before the window: `[B, D]`."""
  if mask is None:
    return ys[-1]
  steps = jnp.arange(1, len(ys) + 1)[:, None]
  last = jnp.max(jnp.where(mask, steps, 0), axis=0)  # [B]; 0: no step was true
  every = jnp.concatenate([before[None], ys])
  return jnp.take_along_axis(every, last[None, :, None], axis=0)[0]


def _like(live, leaf):
  return live.reshape(live.shape + (1,) * (leaf.ndim - 1))
