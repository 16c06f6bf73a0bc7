"""What a training run will need on the device, said before anything is compiled; what it took."""

import collections
import math
import os
import resource

import jax
import jax.numpy as jnp

from hklm import losses
from hklm.config import ModelConfig, TrainConfig
from hklm.model import CellFactory, LanguageModel
from hklm.training import averages, optimizers, precision

LARGE = 2**30  # bytes: less than that, and less than half of what there is, is not worth a line


def estimate(lm: LanguageModel, config: TrainConfig, cell: CellFactory | None = None) -> int:
  """Bytes of one update, from shapes alone: nothing is computed or compiled.

  Parameters, their gradient and average and the optimiser's state; what the forward pass keeps for
  the backward pass, whatever the cell, of the streams and steps that are read at a time, softmaxes
  among it. What is compiled takes between two thirds and three halves of it (on a CPU, which widens
  bfloat16, up to three times).

  Args:
    lm: the bundle of functions.
    config: the run.
    cell: your own cell, where `lm` was made with one in place of `lm.config.cell`.

  Returns:
    Bytes.

  >>> import hklm
  >>> lm = hklm.language_model(hklm.ModelConfig(vocab_size=50))
  >>> sgd, momentum = (estimate(lm, TrainConfig(lm.config, optimizer=name))
  ...                  for name in ("sgd", "momentum"))
  >>> momentum - sgd == 4 * 413_490  # a float32 more for each parameter
  True
  """
  # No shape depends on the lengths.
  optimizer = optimizers.optimizer(config, config.warmup + 1, lambda epochs: epochs)
  params = jax.eval_shape(lambda: lm.init(jax.random.key(0)))
  opt_state = jax.eval_shape(optimizer.init, params)
  average = jax.eval_shape(lambda p: averages.start(p, config), params)
  lm = precision.computing(lm, config, cell)
  read = jax.eval_shape(lambda p: precision.cast(p, config), params)
  T = min(config.remat_steps or config.bptt, config.bptt)
  B = config.batch_size // config.accumulate
  chunks = (config.bptt - 1) // T  # before the last one: of each, the state before it is kept
  state = jax.eval_shape(lambda p: lm.initial_state(p, B), read)
  # What does not grow with the batch is made of parameters alone, transposed ones for example,
  # which XLA does not store.
  activations = _kept(lm, read, T, B) - _kept(lm, read, T, B + 1)
  logits = 4 * T * B * lm.config.vocab_size
  # While logits are there, the gradient of the table that was looked up is not yet.
  later = 0 if lm.config.tie_embeddings else min(logits, _bytes(params.get("embedding", [])))
  return (_bytes([params, params, opt_state, average, read if config.compute_dtype else None])
          + _sums(params, config, chunks) + chunks * _bytes(state)
          + _bytes(list(activations.elements())) + _blocks(T * B, lm.config) - later)


def available() -> int | None:
  """Bytes that arrays may take on the first device; None where it does not say."""
  device = jax.local_devices()[0]
  stats = device.memory_stats() or {}
  if device.platform == "cpu" and hasattr(os, "sysconf"):
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  return stats.get("bytes_limit")


def peak() -> int:
  """Bytes taken so far, at most: of arrays, on the local device that has held most.

  Where no device says so, as a CPU does not, of the whole process in memory.
  """
  stats = [device.memory_stats() or {} for device in jax.local_devices()]
  told = [its["peak_bytes_in_use"] for its in stats if "peak_bytes_in_use" in its]
  if told:
    return max(told)
  if os.path.exists("/proc/self/status"):  # Linux, whose getrusage counts what the parent took too
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
      return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts in bytes


def note(needed: int, there: int | None) -> str:
  """What to say of a run that needs so many bytes where there are so many: a line, or nothing.

  >>> note(3 * 2**30, 8 * 2**30)
  'memory: about 3.0 GiB for parameters, optimiser, activations and logits (8.0 GiB here)'
  >>> note(9 * 2**30, 8 * 2**30)
  'memory: about 9.0 GiB for parameters, optimiser, activations and logits (8.0 GiB here); if it \
does not fit, lower --batch_size, --bptt, --hidden_size, --num_layers or --vocab_size'
  >>> note(1000, 8 * 2**30)
  ''
  """
  if needed < LARGE and (there is None or needed < there / 2):
    return ""
  line = f"memory: about {_gib(needed)} for parameters, optimiser, activations and logits"
  if there is None:
    return line
  line += f" ({_gib(there)} here)"
  if needed < there:
    return line
  return (line + "; if it does not fit, lower --batch_size, --bptt, --hidden_size, --num_layers or "
          "--vocab_size")


def _kept(lm, params, T, B) -> collections.Counter[jax.ShapeDtypeStruct]:
  """What the derivative of a window's loss holds from the forward pass for the backward pass."""

  def backward(params, tokens):
    def objective(params):
      state = lm.initial_state(params, B)
      loss, _ = lm.loss(params, jax.random.key(0), tokens, tokens, state)
      return (loss.nats + loss.penalty).mean()

    return jax.vjp(objective, params)[1]

  held = jax.eval_shape(backward, params, jax.ShapeDtypeStruct([T, B], jnp.int32))
  return collections.Counter(
      jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(held))


def _sums(params, config, chunks):
  """Bytes of the sums that parts of a batch, and chunks of a window, add their gradients to."""
  wide = jax.eval_shape(lambda p: jax.tree.map(
      lambda leaf: leaf.astype(precision.wide(leaf.dtype)), p), params)
  return ((config.accumulate > 1) + (chunks > 0)) * _bytes(wide)


def _blocks(N: int, config: ModelConfig) -> int:
  """Bytes of a block of logits, if they are made in blocks; else what is kept is written over them.
  """
  size = max(4, jnp.dtype(config.dtype).itemsize)
  mixed = config.head == "mixture"
  N *= config.mixture_components if mixed else 1
  if size * N * config.vocab_size <= losses.WHOLE_BYTES:
    return 0
  # A mixture's block is there beside its derivative: its table is small beside them.
  return (1 + mixed) * max(losses.BLOCK_BYTES, size * N * config.hidden_size)


def _gib(count: int) -> str:
  return f"{count / 2**30:.1f} GiB"


def _bytes(tree):
  return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
