"""One update over many devices: a mesh, how a training state lies on it, the update on it.

The mesh has two axes. The rows of a window and of the carried state are cut over `data`; the output
table, its bias and what the optimiser keeps of them over `vocab`, if that has more than one part;
all else every device has. What is computed is what one device would: sums over the batch are
over all rows, and random numbers do not depend on where they are drawn.
"""

import functools
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from hklm.config import TrainConfig
from hklm.errors import InputError
from hklm.nn.sharded import DATA, ROWS, SHARED, STEPS, VOCAB
from hklm.training.step import StepMetrics, TrainState

TABLES = (("head", "w"), ("head", "b"), ("embedding", "table"))  # the last where tables are tied


def make(config: TrainConfig, devices: int = 0, vocab_shards: int = 1) -> Mesh:
  """The mesh of a run.

  Args:
    config: the run, its `model.vocab_size` set.
    devices: how many, of those of all processes; 0: all.
    vocab_shards: into how many parts the output table is cut.

  Raises:
    InputError: more devices than there are, a process without one, or numbers that do not divide.

  >>> mesh = make(TrainConfig(), devices=1)
  >>> dict(mesh.shape)
  {'data': 1, 'vocab': 1}
  """
  there = jax.devices()
  if not 0 <= devices <= len(there):
    raise InputError(f"--devices={devices} is out of range; needed: 1 to {len(there)}, the devices "
                     "that jax sees, or 0 for all")
  used = there[:devices or len(there)]
  if {device.process_index for device in used} != set(range(jax.process_count())):
    raise InputError(f"--devices={devices} leaves a process without a device; needed: more, or a "
                     "lower --process_count")
  if vocab_shards > 1 and config.model.head == "adaptive":
    raise InputError(f"--vocab_shards={vocab_shards} cuts the output table; --head=adaptive has "
                     "several; needed: --vocab_shards=1, or another --head")
  if vocab_shards < 1 or len(used) % vocab_shards:
    raise InputError(f"--vocab_shards={vocab_shards} does not divide the {len(used)} devices; "
                     "needed: a number that does, or other --devices")
  if config.model.vocab_size % vocab_shards:
    raise InputError(f"--vocab_shards={vocab_shards} does not divide the vocabulary of "
                     f"{config.model.vocab_size}; needed: a number that does, or another "
                     "--vocab_size")
  rows = len(used) // vocab_shards
  if config.batch_size % (rows * config.accumulate):
    raise InputError(f"--batch_size={config.batch_size} cannot be cut over {rows} devices"
                     + f" and {config.accumulate} parts" * (config.accumulate > 1)
                     + f"; needed: a multiple of {rows * config.accumulate}, or fewer --devices")
  # In the order of their processes, which `jax.make_mesh` need not keep: streams lie side by side.
  return Mesh(np.array(used).reshape(rows, vocab_shards), (DATA, VOCAB), (AxisType.Auto,) * 2)


def columns(mesh: Mesh, batch_size: int) -> range:
  """The streams that this process reads; `Streams` takes them.

  Args:
    mesh: the run's.
    batch_size: B, a multiple of the mesh's `data` axis.

  >>> columns(make(TrainConfig(), devices=1), 32)
  range(0, 32)
  """
  places = NamedSharding(mesh, ROWS).addressable_devices_indices_map((batch_size,)).values()
  bounds = [rows.indices(batch_size) for (rows,) in places]
  return range(min(start for start, _, _ in bounds), max(stop for _, stop, _ in bounds))


def shardings(mesh: Mesh, state: TrainState, tied: bool) -> TrainState:
  """How each leaf of a training state lies on the mesh, as `NamedSharding`s.

  Args:
    mesh: the run's.
    state: arrays or shapes.
    tied: whether the embedding table is also the output table.

  >>> import optax
  >>> params = {"head": {"w": np.zeros([4, 2])}, "lstm_0": {"b": np.zeros(8)}}
  >>> state = TrainState(params, optax.adam(0.1).init(params), (), None, 0, 1.0,
  ...                    None, 0)
  >>> mesh = make(TrainConfig(), devices=1)
  >>> [x.spec == P("vocab") for x in jax.tree.leaves(shardings(mesh, state, tied=False).params)]
  [True, False]
  """
  cut = TABLES if tied else TABLES[:-1]

  def spec(path, _):
    if path[0].name == "state":
      return NamedSharding(mesh, ROWS)
    # The optimiser keeps trees like that of the parameters, which end in the same names.
    names = tuple(getattr(key, "key", None) for key in path[-2:])
    return NamedSharding(mesh, P(VOCAB) if names in cut else SHARED)

  return jax.tree_util.tree_map_with_path(spec, state)


def init(mesh: Mesh, start: Callable[[], TrainState], tied: bool) -> TrainState:
  """The training state that `start` makes, each device its own part; called by every process.

  Args:
    mesh: the run's.
    start: makes it on one device, a function of nothing; compiled.
    tied: as for `shardings`.
  """
  if mesh.size == 1:
    return start()
  return jax.jit(start, out_shardings=shardings(mesh, jax.eval_shape(start), tied))()


def place(mesh: Mesh, state: TrainState, tied: bool) -> TrainState:
  """A training state of one device, as a checkpoint gives it back, on the mesh.

  Every process calls it, with the same values.

  Args:
    mesh: the run's.
    state: the same in every process.
    tied: as for `shardings`.
  """
  if mesh.size == 1:
    return state
  key_type = jax.random.key_impl(state.key)  # typed keys cannot leave their process
  on_host = jax.device_get(state._replace(key=jax.random.key_data(state.key)))

  def whole(state):
    return state._replace(key=jax.random.wrap_key_data(state.key, impl=key_type))

  return jax.jit(whole, out_shardings=shardings(mesh, state, tied))(on_host)


def local(tree):
  """The same on this process's first device, for whatever knows of no mesh; until the next update.

  Every process calls it, in the same order: what is cut is put together from all of them.

  Args:
    tree: of arrays, on a mesh or not: a training state, parameters.

  >>> local(jax.numpy.arange(3)).tolist()
  [0, 1, 2]
  """
  def whole(leaf):
    if not leaf.is_fully_replicated:
      leaf = jax.jit(_same, out_shardings=NamedSharding(leaf.sharding.mesh, SHARED))(leaf)
    return leaf.addressable_data(0)

  return jax.tree.map(whole, tree)


def update(mesh: Mesh, update_one: Callable, state: TrainState
           ) -> Callable[..., tuple[TrainState, StepMetrics]]:
  """The update of one device as one over the mesh; called by every process.

  Args:
    mesh: the run's.
    update_one: `make_update`'s.
    state: as `init` made it: every later one lies alike.

  Returns:
    The update. Of its window `[T + 1, B]` and reset `[B]`, on the host, a process gives the
    `columns` that it reads; the length of the window is the same for all. The metrics are of all
    rows, and every process has them. The training state given is donated.
  """
  if mesh.size == 1:
    return update_one
  lies = jax.tree.map(lambda leaf: leaf.sharding, state)
  batch_size = len(jax.tree.leaves(state.state)[0])
  steps, rows, shared = (NamedSharding(mesh, spec) for spec in (STEPS, ROWS, SHARED))

  def on_mesh(state, window, reset, length):
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # `nn.sharded` asks for it
      return update_one(state, window, reset, length)

  compiled = jax.jit(on_mesh, in_shardings=(lies, steps, rows, shared),
                     out_shardings=(lies, shared), donate_argnums=0)

  @functools.wraps(compiled)
  def with_own_columns(state, window, reset, length=None):
    return compiled(state, _joined(steps, window, batch_size),
                    _joined(rows, reset, batch_size), length)

  return with_own_columns


def _joined(sharding, own, batch_size):
  """The array of all processes, from the columns that this one has."""
  first = columns(sharding.mesh, batch_size).start

  def of_device(places):
    *before, rows = places
    start, stop, _ = rows.indices(batch_size)
    return own[(*before, slice(start - first, stop - first))]

  return jax.make_array_from_callback((*own.shape[:-1], batch_size), sharding, of_device)


def _same(x):
  return x
