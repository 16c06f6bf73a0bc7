"""Parts of a model that every device computes for its own rows, where a mesh of devices is set.

Left to itself, XLA cannot cut arrays in which the batch is not an axis of its own, as the fused
LSTM's buffers: it would gather all rows on every device. Inside `jax.shard_map` each device has its
rows alone, and JAX's transpose sums the gradients of what the devices share.
"""

from collections.abc import Callable

import jax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

DATA, VOCAB = "data", "vocab"  # axes of the mesh: over rows of the batch, over rows of a table
SHARED, ROWS, STEPS = P(), P(DATA), P(None, DATA)  # weights; [B, ...]; [T, B, ...]


def parts(axis: str) -> int:
  """How many parts an axis of the mesh at hand has; 1 where no mesh is set, or not to be cut.

  >>> mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
  >>> with jax.set_mesh(mesh):
  ...   parts("data"), parts("vocab")
  (1, 1)
  """
  mesh = jax.sharding.get_abstract_mesh()
  types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
  return mesh.shape[axis] if types.get(axis) == AxisType.Auto else 1


def by_device(f: Callable, in_specs, out_specs, batch_size: int, check: bool = True) -> Callable:
  """`f` over the rows of each device, or `f` itself where one device has all or B cannot be cut.

  Args:
    f: a function whose rows do not depend on each other.
    in_specs: how each argument lies, as for `jax.shard_map`; the mesh's axes are DATA and VOCAB.
    out_specs: how the results lie.
    batch_size: B, the rows of all devices.
    check: whether `f` can be checked for what varies; not if it calls a foreign kernel.

  >>> by_device(len, ROWS, SHARED, batch_size=3)([1, 2, 3])  # no mesh
  3
  """
  if parts(DATA) * parts(VOCAB) == 1 or batch_size % parts(DATA):
    return f
  return jax.shard_map(f, in_specs=in_specs, out_specs=out_specs, check_vma=check)
