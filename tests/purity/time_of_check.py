"""How long a check of a 3-layer, 512-unit model's `unroll` takes, with its first compilation.

  python -m tests.purity.time_of_check
"""

import time

import jax
import jax.numpy as jnp

import hklm


def main():
  lm = hklm.language_model(hklm.ModelConfig(vocab_size=10_000, embedding_size=512, hidden_size=512,
                                            num_layers=3))
  params = lm.init(jax.random.key(0))
  tokens, state = jnp.zeros([35, 20], jnp.int32), lm.initial_state(params, 20)
  start = time.perf_counter()
  report = hklm.purity.check(lm.unroll, params, None, tokens, state)
  print(f"{report.verdict} after {time.perf_counter() - start:.1f} s, {report.runs} runs")


if __name__ == "__main__":
  main()
