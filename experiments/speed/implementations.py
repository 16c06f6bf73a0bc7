"""The implementations of the LSTM (`--lstm_impl`): do they agree, and who takes part on a GPU.

Each computes a layer: `(w_ih [4H, D], w_hh [4H, H], b [4H], xs [T, B, D], h [B, H], c [B, H]) ->
ys [T, B, H], (h, c)`.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from experiments import cli
from experiments.speed import contenders, jax_work, with_hklm, workloads
from experiments.speed.workloads import Workload
from hklm.nn import cells, cudnn, lstm


class Hklm(NamedTuple):
  """One implementation, as a contender of the benchmark."""

  lstm_impl: str

  def update(self, work: Workload, params, window) -> jax_work.Update:
    """The benchmark's training step."""
    return with_hklm.update(work, params, window, self.lstm_impl)

  def lstm(self, work: Workload, params, xs, direction) -> dict[str, Callable]:
    """The benchmark's passes through a layer."""
    return with_hklm.lstm(work, params, xs, direction, sequence_of(self.lstm_impl))


class Torch(NamedTuple):
  """The benchmark's PyTorch on another device, such as `cuda`."""

  device: str

  def train(self, *args) -> Callable:
    """The benchmark's training step."""
    import torch

    with torch.device(self.device):
      return contenders.module("torch").train(*args)

  def lstm(self, *args) -> dict[str, Callable]:
    """The benchmark's passes through a layer."""
    import torch

    with torch.device(self.device):
      return contenders.module("torch").lstm(*args)


def field() -> dict[str, Hklm | Torch]:
  """Who takes part on an NVIDIA GPU, by name; the fused implementation stands for hklm."""
  its = {contenders.BASE: Hklm("fused"), "scan": Hklm("scan"), "cudnn": Hklm("cudnn")}
  if contenders.installed("torch"):
    import torch

    if torch.cuda.is_available():
      return its | {"torch": Torch("cuda")}
  cli.note("PyTorch with CUDA is not installed: it does not take part")
  return its


@contextlib.contextmanager
def precision(name: str):
  """Has JAX and PyTorch multiply float32 matrices in `float32`, or in `tensorfloat32`."""
  if contenders.installed("torch"):
    import torch

    torch.set_float32_matmul_precision("highest" if name == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = name != "float32"
  with jax.default_matmul_precision(name):
    yield


def sequence_of(lstm_impl: str) -> Callable:
  """A layer's function, at the precision that `jax_default_matmul_precision` says."""
  return {"fused": lstm.sequence, "scan": scan,
          "cudnn": lambda *args: cudnn.sequence(*args, precision=None)}[lstm_impl]


def scan(w_ih, w_hh, b, xs, h, c):
  """A layer by Haiku's own unrolling of the cell."""
  def unroll(xs, h, c):
    return hk.dynamic_unroll(cells.LSTM(h.shape[-1]), xs, cells.LSTMState(h, c))

  params = {"lstm": {"w_ih": w_ih, "w_hh": w_hh, "b": b}}
  return hk.without_apply_rng(hk.transform(unroll)).apply(params, xs, h, c)


def agreement(sequences: dict[str, Callable], models: Sequence[str],
              layer: Workload = workloads.LSTM, whole: Workload = workloads.NAMED["small"]
              ) -> dict[str, dict[str, float]]:
  """How far implementations are from the scan in float32, by `differences`.

  Args:
    sequences: a layer's functions, by name.
    models: `lstm_impl` of whole models.
    layer: the layer's sizes.
    whole: the models' sizes.
  """
  with precision("float32"):
    layers, wholes = layer_results(scan, layer), model_results("scan", whole)
    return {**{f"layer, {name}": differences(layer_results(sequence, layer), layers)
               for name, sequence in sequences.items()},
            **{f"model, {name}": differences(model_results(name, whole), wholes)
               for name in models}}


def differences(ours, reference) -> dict[str, float]:
  """The largest difference in each array, relative to the largest number of the reference's.

  >>> differences({"w": jnp.array([1., 2.])}, {"w": jnp.array([1., 4.])})
  {'w': 0.5}
  """
  relative = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))),
                          ours, reference)
  return {jax.tree_util.keystr(path, simple=True, separator="."): value
          for path, value in jax.tree_util.tree_leaves_with_path(relative)}


def layer_results(sequence: Callable, work: Workload) -> dict:
  """All that a layer gives back: values, and gradients in all it was given."""
  layer, (xs, direction) = workloads.weights(work)["lstm_0"], workloads.sequences(work)
  h, c = np.random.default_rng(6).standard_normal([2, work.batch_size, work.hidden_size],
                                                  np.float32)
  args = {**layer, "xs": xs, "h": h, "c": c}

  @jax.jit
  def results(args):
    def objective(args):
      ys, (h, c) = sequence(*(args[name] for name in ("w_ih", "w_hh", "b", "xs", "h", "c")))
      return (ys * direction).sum() + h.sum() + c.sum(), {"ys": ys, "h": h, "c": c}

    (_, values), gradient = jax.value_and_grad(objective, has_aux=True)(args)
    return {"value": values, "gradient": gradient}

  return results(args)


def model_results(lstm_impl: str, work: Workload) -> dict:
  """The nats of a window, and their gradient in all parameters."""
  lm = with_hklm.model(work, lstm_impl)
  params, window = workloads.weights(work), workloads.window(work)
  start = lm.initial_state(params, work.batch_size)

  def objective(params):
    nats = lm.loss(params, None, window[:-1], window[1:], start)[0].nats
    return nats.sum(), nats

  (_, nats), gradient = jax.value_and_grad(objective, has_aux=True)(params)
  return {"nats": nats, "gradient": gradient}
