"""Arrays that vary over the devices alike, as loops inside `jax.shard_map` demand."""

import jax
from jax import lax


def alike(*trees):
  """The same arrays; inside `jax.shard_map`, each varies over the mesh axes that any of them does.

  A loop's carry must vary alike before and after a step, and the rule of a `custom_vjp` must give
  gradients that vary as its arguments do. Converted here, a parameter that all devices share gets
  its gradient summed over them by JAX's own transpose. Outside `shard_map` nothing changes.

  >>> import jax.numpy as jnp
  >>> mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
  >>> shared, own = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("data")
  >>> add = lambda x, n: lax.scan(lambda x, n: (x + n, None), *alike(x, n))[0]
  >>> jax.shard_map(add, mesh=mesh, in_specs=(shared, own), out_specs=own)(
  ...     jnp.zeros(1), jnp.ones([2, 1])).tolist()
  [2.0]
  """
  everywhere = frozenset().union(*map(_axes, jax.tree.leaves(trees)))
  return jax.tree.map(lambda x: lax.pcast(x, tuple(everywhere - _axes(x)), to="varying"), trees)


def _axes(x):
  return jax.typeof(x).mat.varying
