"""The article's third part: an LSTM language model learns six numbers by heart.

Follows "From PyTorch to JAX: towards neural net frameworks that purify stateful code"
(sjmielke.com/jax-purify.htm). The model is `hklm.language_model` with the config below, its initial
values are those that PyTorch would draw, and the losses are the article's.

  python -m experiments.article.lstm_numbers           # ours, in float32 and in float64
  python -m experiments.article.lstm_numbers --torch   # and the article's PyTorch model beside it

Dimension letters: T time, B batch, V vocabulary, H hidden and embedding size.
"""

import contextlib
import dataclasses
import functools
import importlib
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import hklm
from experiments import cli
from hklm.errors import InputError
from hklm.losses import token_nats

CONFIG = hklm.ModelConfig(
    vocab_size=43, embedding_size=17, hidden_size=17, num_layers=1, tie_embeddings=True,
    output_bias=False, initial_state="learned")
NUMBERS = (4, 8, 15, 16, 23, 42)
WINDOWS = (NUMBERS[:3], NUMBERS[3:])
NUM_EPOCHS = 101
RATE = 0.1
REPORTED_EPOCHS = (0, 50, 100)

TOLERANCE = 1e-5  # of a gradient's numbers, between PyTorch and JAX

TORCH = flags.DEFINE_bool(
    "torch", False, "Train the article's PyTorch model too and compare its gradients with ours.")

# What the article prints.
ARTICLE_LOSSES = (25.953862190246582, 3.7642268538475037, 1.9537211656570435)
ARTICLE_GREEDY_BEFORE = (42, 34, 34, 34, 34, 34)


class Epoch(NamedTuple):
  """What is known of one pass over the numbers.

  Attributes:
    params: at its start.
    losses: nats of each window, summed over its tokens.
    grads: the gradient of each window, in the parameters as they were then.
  """

  params: Any
  losses: tuple[jax.Array, ...]
  grads: tuple[Any, ...]


def model(dtype: str = "float32") -> hklm.LanguageModel:
  """The article's model; `float64` needs x64 to be on."""
  return hklm.language_model(dataclasses.replace(CONFIG, dtype=dtype))


def initial_params(lm):
  """The parameters that PyTorch draws with `torch.manual_seed(0)`; biases and `c_0` are zero.

  PyTorch seeds a Mersenne Twister as NumPy's legacy generator does. `torch.rand` keeps the low 24
  bits of each output, the most that a float32 between 0 and 1 tells apart.
  """
  shapes = jax.eval_shape(lm.init, jax.random.key(0))
  params = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
  outputs = np.random.RandomState(0)
  for module, name in (("lstm_0", "w_ih"), ("lstm_0", "w_hh"), ("embedding", "table")):
    zeros = params[module][name]
    bits = outputs.randint(0, 2**32, size=zeros.shape, dtype=np.uint32) & 0xFFFFFF
    params[module][name] = jnp.asarray(bits * 2.**-24, zeros.dtype)
  return params


def window_loss(lm, params, window, state=None):
  """Nats of a window, each token predicted before it is read.

  Windows do not overlap: the first token is predicted by the state that the window starts from.

  Args:
    lm: the model.
    params: its parameters.
    window: tokens [T].
    state: of the window before, not to be differentiated; None starts from the initial state, whose
      `c_0` is a parameter and gets its gradient here.

  Returns:
    The loss [], and the state after the window.
  """
  state = lm.initial_state(params, 1) if state is None else jax.lax.stop_gradient(state)
  tokens = jnp.asarray(window)[:, None]  # [T, 1]
  first = lm.readout(params, state)  # [1, V]
  following, state = lm.unroll(params, None, tokens, state)  # [T, 1, V]
  logits = jnp.concatenate([first[None], following[:-1]])
  return jnp.sum(token_nats(logits, tokens)), state


@functools.partial(jax.jit, static_argnums=0)
def run_epoch(lm, params):
  """One pass over the windows, with a step of gradient descent after each.

  Returns:
    The parameters afterwards, and the `Epoch`.
  """
  start, losses, grads, state = params, [], [], None
  for window in WINDOWS:
    (loss, state), grad = jax.value_and_grad(window_loss, argnums=1, has_aux=True)(
        lm, params, window, state)
    # In PyTorch a parameter outside the tape (c_0, in all windows but the first) has no gradient
    # and stays. Here its gradient is zero, and so is the step.
    params = jax.tree.map(lambda value, slope: value - RATE * slope, params, grad)
    losses.append(loss)
    grads.append(grad)
  return params, Epoch(start, tuple(losses), tuple(grads))


def train(lm):
  """All epochs from the article's initial values; returns the last parameters and the epochs."""
  params, epochs = initial_params(lm), []
  for _ in range(NUM_EPOCHS):
    params, epoch = run_epoch(lm, params)
    epochs.append(epoch)
  return params, epochs


def greedy(lm, params, length: int = len(NUMBERS)) -> list[int]:
  """The likeliest token, fed back, `length` times; the first comes from the initial state."""
  state = lm.initial_state(params, 1)
  logits, tokens = lm.readout(params, state), []
  for _ in range(length):
    token = jnp.argmax(logits, axis=-1)  # [1]: the first of equals
    tokens.append(int(token[0]))
    logits, state = lm.step(params, None, token, state)
  return tokens


class Results(NamedTuple):
  """What the binary prints, as NumPy arrays and numbers of Python.

  Attributes:
    ties: how many tokens are the likeliest at first, all alike, before training.
    greedy_before: six tokens before training.
    greedy_after: six tokens after training.
    losses: the windows' losses added, at the epochs that the article prints.
    epochs: all epochs.
  """

  ties: int
  greedy_before: list[int]
  greedy_after: list[int]
  losses: tuple[float, ...]
  epochs: list[Epoch]


def results(dtype: str = "float32") -> Results:
  """Decodes, trains and decodes again, with numbers of this type."""
  with jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext():
    lm = model(dtype)
    start = initial_params(lm)
    logits = lm.readout(start, lm.initial_state(start, 1))
    params, epochs = train(lm)
    return Results(
        ties=int(jnp.sum(logits == jnp.max(logits))),
        greedy_before=greedy(lm, start),
        greedy_after=greedy(lm, params),
        losses=tuple(float(sum(epochs[number].losses)) for number in REPORTED_EPOCHS),
        epochs=jax.device_get(epochs))


def import_torch_model():
  """The module that needs PyTorch, which all else does without.

  Raises:
    InputError: PyTorch is not installed.
  """
  try:
    return importlib.import_module("experiments.article.torch_model")
  except ModuleNotFoundError as error:
    raise InputError(f"--torch: found no module {error.name}; needed: PyTorch, which the extra "
                     "`torch` installs: pip install '.[torch]'") from error


def compare_with_torch(torch_model, ours: Results) -> dict[str, Any]:
  """Trains the article's PyTorch model too, and asserts that every window's gradients agree.

  Args:
    torch_model: what `import_torch_model` returned.
    ours: float32 results.

  Returns:
    What it compared and found, by name.

  Raises:
    AssertionError: a drawn value differs at all, or a gradient by more than `TOLERANCE`.
  """
  theirs = torch_model.seeded_model(CONFIG.vocab_size, CONFIG.hidden_size)
  chex.assert_trees_all_equal(theirs.values(), ours.epochs[0].params)
  greedy_before = theirs.greedy(len(NUMBERS))
  epochs = torch_model.train(theirs, WINDOWS, NUM_EPOCHS, RATE)
  worst = 0.
  for number, ((_, their_grads), our_epoch) in enumerate(zip(epochs, ours.epochs, strict=True)):
    for window, (their_grad, our_grad) in enumerate(zip(their_grads, our_epoch.grads, strict=True)):
      differences = jax.tree.map(lambda a, b: float(np.max(np.abs(a - b))), their_grad, our_grad)
      worst = max(worst, *jax.tree.leaves(differences))
      if not worst <= TOLERANCE:
        raise AssertionError(f"gradients differ at epoch {number}, window {window}: {differences}")
  return {
      "greedy before training": " ".join(map(str, greedy_before)),
      "losses": " ".join(str(sum(epochs[number][0])) for number in REPORTED_EPOCHS),
      "greedy after training": " ".join(map(str, theirs.greedy(len(NUMBERS)))),
      "windows whose gradients agree": NUM_EPOCHS * len(WINDOWS),
      "largest difference of two gradients": f"{worst:.1e}",
  }


def print_results(single: Results, double: Results):
  """Prints ours beside the article's."""
  print("greedy before training:", *single.greedy_before)
  print("  the article prints:  ", *ARTICLE_GREEDY_BEFORE)
  if single.ties > 1:
    print(f"  The first is a tie: h_0 is zero, and so are all {single.ties} logits."
          "\n  Of equals, JAX and today's PyTorch take the first; the article's took the last.")
  print("\nloss, in nats, of the two windows together")
  print("epoch  article             float32    float64")
  for row in zip(REPORTED_EPOCHS, ARTICLE_LOSSES, single.losses, double.losses, strict=True):
    print("{:5}  {:<18}  {:9.6f}  {:13.10f}".format(*row))
  print("\ngreedy after training:", *single.greedy_after)


def print_parameters(epochs: list[Epoch]):
  """Prints how single parameters change: their gradients' norms, and `c_0` itself."""
  reported = [epochs[number] for number in REPORTED_EPOCHS]
  print("\nnorm of the gradient in each of an epoch's two windows (float64); the second one's ends"
        "\nat the window's edge, before it reaches c_0")
  print(f"{'parameter':15}" + "".join(f"  {f'epoch {number}':>19}" for number in REPORTED_EPOCHS))
  for module, values in sorted(epochs[0].params.items()):
    for name in sorted(values):
      norms = [np.linalg.norm(grad[module][name]) for epoch in reported for grad in epoch.grads]
      print(f"{f'{module}/{name}':15}" + "".join("  {:9.3e} {:9.3e}".format(*norms[start:start + 2])
                                                 for start in range(0, len(norms), 2)))
  print("\nc_0 at the start of the epoch (float64)")
  print(f"{'unit':15}" + "".join(f"  {f'epoch {number}':>19}" for number in REPORTED_EPOCHS))
  c_0 = np.stack([epoch.params["lstm_0"]["c_0"] for epoch in reported], axis=1)  # [H, 3]
  for unit, values in enumerate(c_0):
    print(f"{unit:<15}" + "".join(f"  {value:19.6f}" for value in values))


def main():
  # First of all, so that a missing PyTorch is told at once.
  torch_model = import_torch_model() if TORCH.value else None
  single, double = results("float32"), results("float64")
  print_results(single, double)
  print_parameters(double.epochs)
  if torch_model:
    print("\nthe article's model in PyTorch")
    for what, found in compare_with_torch(torch_model, single).items():
      print(f"  {what}: {found}")


if __name__ == "__main__":
  cli.run(main)
