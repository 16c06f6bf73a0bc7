"""What the contenders that run on JAX have in common: compiled, timed and called alike.

`apply(params, tokens [T, B], state) -> logits [T, B, V], state` is a library's model;
`outputs(params, xs [T, B, E]) -> ys [T, B, H]` its layer alone.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.speed.workloads import CLIP, RATE, Workload, windows


class Update(NamedTuple):
  """A training step.

  Attributes:
    function: `(state, *inputs) -> state, told`, under jit; the state is donated.
    state: the state before the first step.
    inputs: the same for every step.
    nats: what is told, to the mean loss of a token.
  """

  function: Callable
  state: Any
  inputs: tuple
  nats: Callable[[Any], float]


def compiled(update: Update) -> tuple[Any, float]:
  """The executable of a step that was never compiled before, and the seconds that took."""
  start = time.perf_counter()
  executable = update.function.lower(update.state, *update.inputs).compile()
  return executable, time.perf_counter() - start


def needed_bytes(executable) -> int:
  """Memory that a call needs: arguments, outputs and temporaries, what they share once."""
  stats = executable.memory_analysis()
  return (stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
          - stats.alias_size_in_bytes)


def stepper(update: Update) -> Callable[[], float]:
  """A function that makes the next step, waits for it, and returns its loss."""
  state = update.state

  def step():
    nonlocal state
    state, told = jax.block_until_ready(update.function(state, *update.inputs))
    return update.nats(told)

  return step


def optax_update(apply: Callable, params, start, window) -> Update:
  """The step as one writes it around a library's model: optax's loss, its clipping, its SGD."""
  rule = optax.chain(optax.clip_by_global_norm(CLIP), optax.sgd(RATE))

  def objective(params, window, carried):
    logits, carried = apply(params, window[:-1], carried)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, window[1:])
    return losses.mean(), carried

  @functools.partial(jax.jit, donate_argnums=0)
  def update(state, window):
    params, opt_state, carried = state
    (loss, carried), gradient = jax.value_and_grad(objective, has_aux=True)(
        params, window, carried)
    updates, opt_state = rule.update(gradient, opt_state, params)
    return (optax.apply_updates(params, updates), opt_state, carried), loss

  return Update(update, (params, rule.init(params), start), (jnp.asarray(window),), float)


def optax_evaluation(apply: Callable, params, start, work: Workload, ids) -> Callable[[], float]:
  """A function that reads the text window by window and returns the mean nats of a token."""
  @jax.jit
  def nats(params, window, carried):
    logits, carried = apply(params, window[:-1], carried)
    return optax.softmax_cross_entropy_with_integer_labels(logits, window[1:]).sum(), carried

  def evaluate():
    total, carried = 0.0, start
    for window in windows(work, ids):
      its_nats, carried = nats(params, window, carried)
      total += float(its_nats)
    return total / (len(ids) - 1)

  return evaluate


def passes(outputs: Callable, params, xs, direction) -> dict[str, Callable[[], float]]:
  """A layer's forward pass, and forward and backward together.

  The first returns the objective, the sum of `outputs * direction`; the second the first element of
  its gradient with respect to `xs`, after the gradients of all parameters and inputs.
  """
  xs, direction = jnp.asarray(xs), jnp.asarray(direction)

  def objective(params, xs):
    return (outputs(params, xs) * direction).sum()

  forward, gradients = jax.jit(objective), jax.jit(jax.value_and_grad(objective, argnums=(0, 1)))

  def backward():
    _, (_, dxs) = jax.block_until_ready(gradients(params, xs))
    return float(dxs[0, 0, 0])

  return {"forward": lambda: float(forward(params, xs)), "forward+backward": backward}
