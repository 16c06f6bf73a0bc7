"""Lines side by side and one by one: `python -m tests.inference.time_of_scoring`.

Prints lines a second, of second passes, and their ratio, for a model of characters and one of
words; then the peak memory of a process that scores one line of 100,000 and of 1,000,000 tokens.
"""

import functools
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import hklm
from hklm.inference import predictions, streams
from hklm.training import memory

MODELS = {"2x128, 65 characters": (65, 128), "2x650, 10,000 words": (10_000, 650)}
LINES, ALONE = 10_000, 40  # of the second, so many are scored one by one


def model(V: int, H: int):
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=V, embedding_size=H, hidden_size=H, num_layers=2))
  return lm, lm.init(jax.random.key(0))


def one_by_one(lm, params, lines):
  """As one writes it: a compiled step a token."""
  @functools.partial(jax.jit, static_argnums=0)
  def step(lm, params, token, target, state):
    logits, state = lm.step(params, None, token, state)
    return predictions.figures(logits, target), state

  for ids in lines:
    state = lm.initial_state(params, 1)
    for token, target in zip([0, *ids[:-1]], ids, strict=True):
      its, state = step(lm, params, jnp.array([token]), jnp.array([target]), state)
      its.on_host()


def seconds(function) -> float:
  function()  # compiles
  start = time.perf_counter()
  function()
  return time.perf_counter() - start


def peak_of_a_line(tokens: int):
  """Prints the peak of this process, in bytes, after a line of so many tokens."""
  lm, params = model(*MODELS["2x128, 65 characters"])
  ids = np.random.default_rng(0).integers(65, size=tokens)
  for _ in streams.predict_stream(lm, params, [ids], 0):
    pass
  predictions.predict_lines(lm, params, [ids], 0)
  print(memory.peak())


def main():
  draw = np.random.default_rng(0)
  for name, sizes in MODELS.items():
    lm, params = model(*sizes)
    lines = [draw.integers(sizes[0], size=length) for length in draw.integers(5, 41, size=LINES)]
    together = LINES / seconds(functools.partial(predictions.predict_lines, lm, params, lines, 0))
    alone = ALONE / seconds(functools.partial(one_by_one, lm, params, lines[:ALONE]))
    print(f"{name}: {together:,.0f} lines/s side by side, {alone:,.1f} one by one: "
          f"{together / alone:.1f} times", flush=True)
  for tokens in (100_000, 1_000_000):
    code = f"from tests.inference import time_of_scoring as t; t.peak_of_a_line({tokens})"
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    print(f"a line of {tokens:,} tokens: peak {int(said) / 2**20:,.0f} MiB", flush=True)


if __name__ == "__main__":
  main()
