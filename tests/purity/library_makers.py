"""Small things of hklm to call its functions with; `library_pure` and `library_impure` do."""

import contextlib
import dataclasses
import functools
import io
import operator
from collections.abc import Callable
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from hklm import config, metrics, model
from hklm.data import base, corpora, random_streams, streams, texts, tokenizers
from hklm.errors import InputError
from hklm.nn import cells, dropout, embedding, heads, initializers, stack
from hklm.training import logs, loop, optimizers, step

V, E, H, T, B = 4, 2, 3, 3, 2
TEXT = "a cab a\nbad cat é"
KEY = jax.random.key
TRAINING = config.TrainConfig(config.ModelConfig(vocab_size=V, embedding_size=E, hidden_size=H),
                              batch_size=B, bptt=T)


class Call(NamedTuple):
  """A function and what to call it with."""

  function: Callable
  args: tuple


def call(function, *args) -> Call:
  return Call(function, args)


def listed(function) -> Callable:
  """Uses up what a function yields: only then does its body run."""
  def all_of(*args):
    return list(function(*args))
  return all_of


def refused(function) -> Callable:
  """What a check has to say where it refuses, as a value: what raises cannot be checked."""
  def message(*args):
    try:
      function(*args)
    except InputError as error:
      return str(error)
    return ""
  return message


def got(name) -> Callable:
  """What reading an attribute runs: a property's function, kept or not."""
  return operator.attrgetter(name)


@functools.cache
def lm() -> model.LanguageModel:
  return model.language_model(TRAINING.model)


@functools.cache
def params():
  return lm().init(KEY(0))


def written() -> corpora.Corpus:
  """A corpus in memory; `library_impure` has files."""
  return corpora.corpus_of(TEXT)


def windows() -> streams.Streams:
  return streams.Streams(np.arange(12), 2, 3)


def random_windows() -> random_streams.RandomStreams:
  return random_streams.RandomStreams(streams.Streams(np.arange(61), 2, 9), 0)


def window() -> np.ndarray:
  """Ids `[T + 1, B]`."""
  return (np.arange((T + 1) * B) % V).reshape(T + 1, B).astype(np.int32)


def reset() -> np.ndarray:
  """One row starts anew, the other goes on."""
  return np.arange(B) == 0


def optimizer(**changes) -> optax.GradientTransformation:
  return optimizers.optimizer(dataclasses.replace(TRAINING, **changes), 10, lambda n: 5 * n)


def train_state(**changes) -> step.TrainState:
  return step.init(lm(), optimizer(**changes), B, 0, dataclasses.replace(TRAINING, **changes))


def undonated(**changes) -> Callable:
  """The update without its donation."""
  config = dataclasses.replace(TRAINING, **changes)
  return jax.jit(step.make_update(lm(), optimizer(**changes), config).__wrapped__)


def counting(state: step.TrainState, ids, reset, length=None
             ) -> tuple[step.TrainState, step.StepMetrics]:
  """An update that learns nothing: the loop around it is what is checked."""
  return state._replace(step=state.step + 1), step.StepMetrics(state.step, ids.size, 1.0, 0)


def piped_progress() -> logs.Progress:
  """A progress that says lines: a bar that is drawn cannot be copied."""
  with contextlib.redirect_stderr(io.StringIO()):
    return logs.Progress(0, 2, "char")


def silent_hooks() -> loop.Hooks:
  return loop.Hooks(log=lambda *args: None,
                    validate=lambda number, values: metrics.Metrics(nats=float(number), tokens=1),
                    save_best=lambda number, values: None, save=lambda state, progress: None,
                    stop=lambda number: False)


def text() -> texts.Text:
  """`TEXT` made ready."""
  return texts.prepare(TRAINING, corpora.corpus_of(2 * TEXT))


def fitted(kind: str) -> base.Tokenizer:
  """A tokenizer of `TEXT`."""
  return tokenizers.build(config.TokenizerConfig(kind, vocab_size=260 if kind == "bpe" else 0),
                          [TEXT])


def made_for(pair: hk.Transformed, *args):
  """Parameters of a transformed function; drawing them would compile each operation by itself."""
  return jax.tree.map(
      lambda leaf: jnp.asarray(np.linspace(-0.9, 1.0, leaf.size).reshape(leaf.shape), leaf.dtype),
      jax.eval_shape(pair.init, KEY(0), *args))


def inside(function, *args) -> Call:
  """A function of Haiku modules as its caller holds it: compiled, and with its parameters."""
  pair = hk.without_apply_rng(hk.transform(function))
  return call(jax.jit(pair.apply), made_for(pair, *args), *args)


def lstm(method: str, *args) -> Call:
  """A method of an LSTM of every option."""
  return inside(lambda *args: getattr(
      cells.LSTM(H, num_biases=2, forget_bias=1.0, learned_state=True), method)(*args), *args)


def lstm_state() -> cells.LSTMState:
  return cells.LSTMState(jnp.ones([B, H]), jnp.zeros([B, H]))


def in_cudnns_place(x, h, c, *_, **__):
  """What any machine can run where `cudnn.sequence` would call cuDNN."""
  return x @ jnp.ones([E, H]), h, c


def cores() -> list[cells.LSTM]:
  return [cells.LSTM(H, name="lower"), cells.LSTM(H, name="upper")]


def started() -> stack.State:
  return stack.initial_state(cores(), B, [H] * len(cores()), jnp.float32)


def embedded(use) -> Call:
  return inside(lambda tokens: use(
      embedding.Embedding(V, E, hk.initializers.RandomUniform(), jnp.float32), tokens), window())


def headed(use, *args, **changes) -> Call:
  """What `use` does with the head of a config, and the arguments."""
  its = dataclasses.replace(TRAINING.model, **changes)
  return inside(lambda *args: use(heads.head(its, initializers.parse("unit", H)), *args), *args)


def dropped(per_step: bool) -> Call:
  """With a key: without one there is nothing to draw."""
  apply = hk.transform(lambda x: dropout.dropout(x, 0.5, per_step)).apply
  return call(lambda key, x: apply({}, key, x), KEY(1), jnp.ones([T, B, H]))
