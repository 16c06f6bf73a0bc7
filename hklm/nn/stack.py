"""Depth: layers of cells read one after the other, each over the whole sequence."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.errors import InputError
from hklm.nn import regularisers
from hklm.nn.core import Core
from hklm.nn.dropout import dropout
from hklm.nn.embedding import Lookup

# How many times the batch a layer's input is wide from where its product with W_ih is made of all
# steps at once, before the loop. That stores N numbers for each of T B inputs, and their gradients,
# but does not read W_ih and add to its gradient at every step.
WIDE = 8


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


class Reading(NamedTuple):
  """How a stack reads; the fields but `impl` as in `hklm.ModelConfig`.

  `impl` is `scan`, cell by cell, or how an LSTM reads a sequence at once: `fused` or `cudnn`. Other
  cells that can read it at once do so unless it is `scan`.
  """

  impl: str = "scan"
  connections: str = "plain"
  layer_dropout: float = 0.0
  dropout_per_step: bool = False
  weight_dropout: float = 0.0
  state_dropout: float = 0.0
  zoneout: float = 0.0
  zoneout_cell: float = 0.0

  def at_once(self, core: hk.RNNCore) -> bool:
    """Whether this cell reads a sequence by its own `sequence`."""
    stepwise = self.state_dropout or self.zoneout or self.zoneout_cell
    return self.impl != "scan" and not stepwise and getattr(core, "reads_sequences", False)


def initial_state(cores: Sequence[hk.RNNCore], batch_size: int, sizes: Sequence[int], dtype,
                  connections: str = "plain") -> State:
  """The state before the first token.

  Args:
    cores: the layers' cells, from the input up.
    batch_size: B.
    sizes: the widths of what they put out.
    dtype: of every floating-point leaf, whatever a cell's own default is (`hk.GRU` starts from
      float64 zeros where x64 is on).
    connections: as in `hklm.ModelConfig`.
  """
  def cast(leaf):
    return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

  cells = jax.tree.map(cast, tuple(core.initial_state(batch_size) for core in cores))
  made = [core.output(cell) if hasattr(core, "output") else jnp.zeros([batch_size, size], dtype)
          for core, cell, size in zip(cores, cells, sizes, strict=True)]
  tops = [made[0]]
  for ys in made[1:]:
    tops.append(_joined(connections, ys, tops[-1]))
  return State(cells, _top(connections, tops))


def unroll(cores: Sequence[hk.RNNCore], xs: jax.Array | Lookup, state: State,
           mask: jax.Array | None, how: Reading) -> tuple[jax.Array, State]:
  """Reads `xs` through every layer.

  Args:
    cores: the layers' cells.
    xs: `[T, B, E]`; a `Lookup` only for an `LSTM` that reads at once.
    state: the state before.
    mask: `[T, B]`; where false the state passes through. None: all true.
    how: see `Reading`.

  Returns:
    What the head reads `[T, B, D]` and the state after.
  """
  cells, tops = [], []
  for core, cell in zip(cores, state.cells, strict=True):
    if tops:
      xs = dropout(tops[-1], how.layer_dropout, how.dropout_per_step)
    with regularisers.weight_dropout(core, xs, cell, how.weight_dropout):
      if how.at_once(core):
        ys, cell = core.sequence(xs, cell, mask, how.impl)
      else:
        ys, cell = _scan(core, xs, cell, mask, how)
    tops.append(_joined(how.connections, ys, tops[-1]) if tops else ys)
    cells.append(cell)
  ys = _top(how.connections, tops)
  return ys, State(tuple(cells), _last(ys, state.output, mask))


def traces(cores: Sequence[hk.RNNCore], xs: jax.Array, state: State, how: Reading
           ) -> tuple[Trace, ...]:
  """What each layer does while reading `xs` `[T, B, E]`, without dropout."""
  result, below = [], None
  for core, cell in zip(cores, state.cells, strict=True):
    def step(cell, x, core=core):
      if hasattr(core, "trace"):
        y, new, gates = core.trace(x, cell)
      else:
        (y, new), gates = core(x, cell), {}
      if how.zoneout or how.zoneout_cell:
        new = regularisers.zoneout(cell, new, how.zoneout, how.zoneout_cell, None)
        y = core.output(new)
      return new, Trace(gates, new.c if gates and hasattr(new, "c") else new, y)

    _, trace = hk.scan(step, cell, xs)
    result.append(trace)
    xs = below = trace.output if below is None else _joined(how.connections, trace.output, below)
  return tuple(result)


def _joined(connections, made, below):
  """What a layer above the first hands up."""
  if connections == "residual" and made.shape == below.shape:
    return made + below
  return made


def _top(connections, tops):
  return sum(tops[1:], tops[0]) if connections == "sum" else tops[-1]


def _scan(core, xs, cell, mask, how):
  if how.zoneout and not (hasattr(cell, "h") and hasattr(cell, "_replace")
                          and hasattr(core, "output")):
    raise InputError(f"--zoneout={how.zoneout} is for a cell whose state is a NamedTuple with an "
                     "h, which `output(state)` returns; needed: such a one, or no --zoneout")
  masks = regularisers.draw(cell, len(xs), how.state_dropout, how.zoneout, how.zoneout_cell)
  xs, advance = _made_ready(core, xs)

  def step(cell, its):
    x, live, stays = its  # [B, D] or [B, N], [B], [B, H] each
    y, new = advance(x, regularisers.dropped(cell, masks.keep, how.state_dropout))
    if how.zoneout or how.zoneout_cell:
      new = regularisers.zoneout(cell, new, how.zoneout, how.zoneout_cell, stays)
      y = core.output(new)
    if live is not None:
      new = jax.tree.map(lambda new, old: jnp.where(_like(live, new), new, old), new, cell)
    return new, y

  cell, ys = hk.scan(step, cell, (xs, mask, masks.stays))
  return ys, cell


def _made_ready(core, xs):
  """What a loop over time reads, and what it does at a step: `(x, state) -> y, state`."""
  _, B, D = xs.shape
  # Whoever derives a cell from one of ours may have said in either what a step does.
  own = any(getattr(type(core), name, None) is not getattr(Core, name)
            for name in ("trace", "__call__"))
  # Of a batch of any size, as jax.export has them, no width is known to be large.
  if own or not isinstance(B, int) or D < WIDE * B:
    return xs, core
  return core.inputs(xs), lambda inputs, state: core.advance(inputs, state)[:2]


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
