"""The contender `hklm`: its own functions, as its users call them."""

import jax
import jax.numpy as jnp

import hklm
from experiments.speed import jax_work
from experiments.speed.workloads import CLIP, RATE, Workload
from hklm.nn.lstm import sequence
from hklm.training import optimizers, step


def update(work: Workload, params, window, lstm_impl: str = "auto", **options) -> jax_work.Update:
  """A training step: embed to SGD, the state carried."""
  lm = model(work, lstm_impl, **options)
  config = hklm.TrainConfig(optimizer="sgd", learning_rate=RATE, clip=CLIP, schedule="constant")
  optimizer = optimizers.optimizer(config, steps=1, updates_in=lambda epochs: epochs)
  state = step.init(lm, optimizer, work.batch_size, seed=0)._replace(params=_on_device(params))
  inputs = jnp.asarray(window), jnp.zeros([work.batch_size], bool)
  return jax_work.Update(step.make_update(lm, optimizer), state, inputs,
                         lambda told: float(told.nats) / float(told.tokens))


def train(work: Workload, params, window):
  """A function that makes the next step and returns its mean nats a token."""
  return jax_work.stepper(update(work, params, window))


def evaluate(work: Workload, params, ids):
  """A function that returns the mean nats of a token of `ids`, read in B streams."""
  lm, params = model(work), _on_device(params)

  def run():
    metrics = hklm.evaluate(lm, params, ids, window=work.steps, streams=work.batch_size)
    return metrics.nats / metrics.tokens

  return run


def lstm(work: Workload, params, xs, direction, sequence=sequence):
  """A layer's passes by name; see `jax_work.passes`. Another `sequence` is called as hklm's is."""
  zeros = jnp.zeros([work.batch_size, work.hidden_size])

  def outputs(layer, xs):
    return sequence(layer["w_ih"], layer["w_hh"], layer["b"], xs, zeros, zeros)[0]

  return jax_work.passes(outputs, _on_device(params["lstm_0"]), xs, direction)


def generate(work: Workload, params, **options):
  """A function that returns T sampled tokens, int `[T, B]`."""
  lm, params, key = model(work, **options), _on_device(params), jax.random.key(0)
  return lambda: hklm.generate(lm, params, key, work.steps, batch_size=work.batch_size)


def score(work: Workload, params, lines, unused_groups):
  """A function that returns the nats of each line's tokens; it makes its groups itself."""
  lm, params = model(work), _on_device(params)
  return lambda: hklm.score_lines(lm, params, lines)


def model(work: Workload, lstm_impl: str = "auto", **options) -> hklm.LanguageModel:
  """The model of a workload; `options` are further fields of its `ModelConfig`."""
  return hklm.language_model(hklm.ModelConfig(
      vocab_size=work.vocab_size, embedding_size=work.embedding_size,
      hidden_size=work.hidden_size, num_layers=work.num_layers, tie_embeddings=work.tied,
      lstm_impl=lstm_impl, **options))


def _on_device(params):
  return jax.tree.map(jnp.array, params)
