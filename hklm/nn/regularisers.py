"""What keeps a recurrent network from learning its text by heart, besides dropout of vectors.

Call them inside a Haiku transform: masks come from Haiku's key, and where the transform was applied
without a key there are none.
"""

import contextlib
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from hklm.errors import InputError
from hklm.nn.dropout import window_key
from hklm.nn.embedding import Lookup

RECURRENT = ("w_hh",)  # names of the recurrent matrices of a cell that does not say otherwise


class Masks(NamedTuple):
  """Of one layer and one window; None where there is none.

  Attributes:
    keep: which elements of h a cell reads back, bool `[B, H]`.
    stays: which elements of h and of c stay as they were, bool `[T, B, H]` each.
  """

  keep: jax.Array | None
  stays: tuple[jax.Array | None, jax.Array | None] | None


def draw(cell: Any, steps: int, state_dropout: float, zoneout: float, zoneout_cell: float) -> Masks:
  """The masks of a layer for a window.

  Args:
    cell: the state of its cell, with `h` and perhaps `c`.
    steps: T.
    state_dropout: rate of `keep`'s zeros, one mask for all steps.
    zoneout: share of ones for h, fresh at every step.
    zoneout_cell: the same for c.
  """
  def bernoulli(rate, shape):
    key = window_key(rate)
    return None if key is None else jax.random.bernoulli(key, rate, shape)

  lost = bernoulli(state_dropout, cell.h.shape) if state_dropout else None
  stays = tuple(bernoulli(rate, (steps, *getattr(cell, name).shape)) if rate else None
                for rate, name in ((zoneout, "h"), (zoneout_cell, "c")))
  return Masks(None if lost is None else ~lost,
               None if all(its is None for its in stays) else stays)


def dropped(cell: Any, keep: jax.Array | None, rate: float) -> Any:
  """The state that a cell reads, `h` with dropout (Gal and Ghahramani 2016, equation 7).

  Args:
    cell: a state with `h`.
    keep: bool `[B, H]`, or None for no dropout.
    rate: of dropout.
  """
  if keep is None:
    return cell
  return cell._replace(h=jnp.where(keep, cell.h / (1.0 - rate), jnp.zeros_like(cell.h)))


def zoneout(old: Any, new: Any, rate: float, rate_cell: float,
            stays: tuple[jax.Array | None, jax.Array | None] | None) -> Any:
  """The state after a step, some elements as before it (Krueger et al. 2017, equations 5 and 6).

  Args:
    old: the state before, with `h` and perhaps `c`.
    new: after.
    rate: chance of an element of h to stay.
    rate_cell: the same of c.
    stays: which do, bool `[B, H]` each; None, in evaluation: all take their expected value.
  """
  changes = {}
  for n, (name, its) in enumerate((("h", rate), ("c", rate_cell))):
    if its:
      before, after = getattr(old, name), getattr(new, name)
      changes[name] = (its * before + (1 - its) * after if stays is None or stays[n] is None
                       else jnp.where(stays[n], before, after))
  return new._replace(**changes) if changes else new


def weight_dropout(core: hk.RNNCore, xs: jax.Array | Lookup, cell: Any, rate: float
                   ) -> contextlib.AbstractContextManager:
  """Within it, the recurrent matrices of a cell have dropout: one mask, scaled by 1 / (1 - rate).

  Wan et al. 2013, on recurrent matrices: Merity et al. 2017, section 2.

  Args:
    core: the cell; `core.recurrent` names its recurrent matrices, `RECURRENT` where it is not said.
    xs: what it will read, `[T, B, D]`.
    cell: its state before.
    rate: share of zeros.

  Raises:
    InputError: a cell without a parameter of those names.
  """
  key = window_key(rate)
  if key is None:
    return contextlib.nullcontext()
  names, masked = getattr(core, "recurrent", RECURRENT), {}

  def draw(next_getter, value, context):
    value = next_getter(value)
    if context.name in names:
      keep = jax.random.bernoulli(jax.random.fold_in(key, len(masked)), 1 - rate, value.shape)
      masked[context.full_name] = jnp.where(keep, value / (1 - rate), jnp.zeros_like(value))
    return value

  # Outside the loop over time: drawn once, multiplied once. Nobody reads what the cell puts out
  # here, so that XLA leaves it out.
  width = xs.table.shape[1] if isinstance(xs, Lookup) else xs.shape[-1]
  dtype = xs.table.dtype if isinstance(xs, Lookup) else xs.dtype
  with hk.custom_getter(draw):
    core(jnp.zeros([jax.tree.leaves(cell)[0].shape[0], width], dtype), cell)
  if not masked:
    raise InputError(f"--weight_dropout={rate}: the cell has no parameter called "
                     f"{' or '.join(names)}; needed: the names of its recurrent matrices in its "
                     "attribute `recurrent`, or no --weight_dropout")

  def read(next_getter, value, context):
    return masked.get(context.full_name, next_getter(value))

  return hk.custom_getter(read)


def penalties(h: jax.Array, h_dropped: jax.Array, activation: float, change: float,
              mask: jax.Array | None) -> jax.Array:
  """What large and quickly changing activations add to the loss (Merity et al. 2017, section 4.5).

      activation * mean_d h_dropped^2  +  change * mean_d (h_t - h_{t-1})^2

  Summed and divided by the number of (live) tokens, the second is the mean over all pairs of
  neighbours in the window.

  Args:
    h: what the stack puts out, `[T, B, D]`.
    h_dropped: the same after output dropout.
    activation: of the first term.
    change: of the second.
    mask: `[T, B]`; false steps, at the end of their rows, have no penalty. None: all true.

  Returns:
    `[T, B]`.
  """
  live = jnp.ones(h.shape[:2], bool) if mask is None else mask
  total = activation * jnp.square(h_dropped).mean(-1)
  if change:
    count = live.sum()
    pairs = (live[1:] & live[:-1]).sum()
    squares = jnp.square(h[1:] - h[:-1]).mean(-1)
    scaled = squares * (count / jnp.maximum(pairs, 1)).astype(h.dtype)
    total += change * jnp.pad(scaled, [(1, 0), (0, 0)])
  return jnp.where(live, total, jnp.zeros_like(total))
