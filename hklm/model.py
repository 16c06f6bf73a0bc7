"""`ModelConfig -> LanguageModel`: objects inside, pure functions outside.

Dimension letters: T time, B batch, V vocabulary, E embedding, H hidden, D what the head reads.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import NamedTuple

import chex
import haiku as hk
import jax
import jax.numpy as jnp

from hklm.config import ModelConfig
from hklm.config.model import CELLS
from hklm.errors import InputError
from hklm.losses import Loss
from hklm.nn import catalogue, cudnn, embedding, heads, initializers, regularisers, stack
from hklm.nn.dropout import dropout, in_training
from hklm.nn.stack import State

CellFactory = Callable[[int, int], hk.RNNCore]


class LanguageModel(NamedTuple):
  """A bundle of pure, compiled functions; nothing else holds state.

  `key=None` means evaluation: no dropout, no randomness. A key means training. Where a mask
  `[T, B]` is false the state passes through and losses are 0.

  Attributes:
    config: the `ModelConfig` it was made from.
    init: `(key) -> params`, a nested dict.
    initial_state: `(params, batch_size) -> State`.
    readout: `(params, state) -> logits [B, V]`: what comes next, given only the state.
    step: `(params, key, tokens [B], state) -> logits [B, V], state`.
    unroll: `(params, key, tokens [T, B], state, mask=None) -> logits [T, B, V], state`.
    hidden: as `unroll`, to what the head reads, before output dropout `[T, B, D]`.
    head: `(params, hidden [..., D]) -> logits [..., V]`.
    loss: `(params, key, inputs [T, B], targets [T, B], state, mask=None) -> Loss [T, B], state`.
    activations: `(params, tokens [T, B], state) -> a Trace per layer`.
  """

  config: ModelConfig
  init: Callable
  initial_state: Callable
  readout: Callable
  step: Callable
  unroll: Callable
  hidden: Callable
  head: Callable
  loss: Callable
  activations: Callable


def language_model(config: ModelConfig, cell: CellFactory | None = None) -> LanguageModel:
  """The pure functions of the model that `config` describes.

  Args:
    config: a config with its `vocab_size` set.
    cell: `cell(layer, size) -> hk.RNNCore`, your own cell, built inside the transform; in place of
      `config.cell`.

  Returns:
    The bundle; the same one for the same arguments, so that jitted callers do not recompile.

  Raises:
    InputError: no vocabulary size, float64 without x64, an unknown initialiser, a cell that cannot
      be found or that puts out another width than `hidden_size`.

  >>> lm = language_model(ModelConfig(vocab_size=5, embedding_size=3, hidden_size=4))
  >>> params = lm.init(jax.random.key(0))
  >>> {name: sorted(module) for name, module in sorted(params.items())}
  {'embedding': ['table'], 'head': ['b', 'w'], 'lstm_0': ['b', 'w_hh', 'w_ih']}
  >>> logits, state = lm.unroll(params, None, jnp.zeros([7, 2], int), lm.initial_state(params, 2))
  >>> logits.shape, state.output.shape
  ((7, 2, 5), (2, 4))
  """
  if not config.vocab_size:
    raise InputError("ModelConfig.vocab_size is 0; needed: the number of ids of the tokenizer")
  check_machine(config)
  if cell is not None:  # the config names it, so that a run directory says what it holds
    name = getattr(cell, "__qualname__", type(cell).__qualname__)
    config = dataclasses.replace(config, cell=f"{cell.__module__}:{name}")
  elif config.cell not in CELLS:
    cell = import_cell(config.cell)
  return _bundle(config, cell)


def check_machine(config: ModelConfig):
  """Refuses a model that cannot be computed here, whatever its vocabulary.

  Raises:
    InputError: float64 without x64; `lstm_impl="cudnn"` where cuDNN cannot serve.

  >>> check_machine(ModelConfig(lstm_impl="cudnn", dtype="bfloat16"))
  Traceback (most recent call last):
  hklm.errors.InputError: --lstm_impl=cudnn computes in float32; found --dtype=bfloat16; needed: \
--dtype=float32 or --lstm_impl=auto
  """
  if config.dtype == "float64" and not jax.config.jax_enable_x64:
    raise InputError("dtype float64 was asked for and 64-bit numbers are off; needed: "
                     "jax.config.update('jax_enable_x64', True) first")
  if config.lstm_impl == "cudnn":
    cudnn.check(config.dtype)


def import_cell(name: str) -> CellFactory:
  """The function that a name names.

  Args:
    name: `package.module:function`.

  Returns:
    The function, `(layer, size) -> hk.RNNCore`.

  Raises:
    InputError: the module cannot be imported, or has no such function.

  >>> import_cell("os.path:no_such_cell")
  Traceback (most recent call last):
  hklm.errors.InputError: --cell=os.path:no_such_cell: module os.path has no function no_such_cell
  """
  module_name, _, function_name = name.partition(":")
  try:
    module = importlib.import_module(module_name)
  except (Exception, SystemExit) as error:  # a user's module may raise anything
    raise InputError(f"--cell={name}: {type(error).__name__}: {error}; needed: "
                     "package.module:function that can be imported from here") from error
  if not callable(getattr(module, function_name, None)):
    raise InputError(f"--cell={name}: module {module_name} has no function {function_name}")
  return getattr(module, function_name)


@functools.lru_cache(maxsize=128)
def _bundle(config: ModelConfig, cell: CellFactory | None) -> LanguageModel:
  """The bundle, tried out once: what cannot make a model is refused here and now."""
  try:
    lm = _transform(config, cell)
    jax.eval_shape(lm.init, jax.random.key(0))
    if cell is not None:
      _try_out(lm)
  except InputError:
    raise
  except Exception as error:  # a user's cell may raise anything
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    raise InputError(f"the cell cannot serve ({reason:.300}); needed: an hk.RNNCore that maps x "
                     "[B, D] and its state to an output [B, hidden_size] and a state of the same "
                     "shapes and dtypes, every leaf [B, ...], also without a key") from error
  return lm


def _transform(config: ModelConfig, cell: CellFactory | None) -> LanguageModel:
  transformed = hk.multi_transform(lambda: _functions(config, cell))
  apply = transformed.apply

  # Written out, so that arguments go by position or by name (Haiku keeps `state` for itself).
  # Compiled, every leaf of the initial state has a buffer of its own: the update donates them, and
  # a shared one would be deleted under its other owner.
  @jax.jit
  def init(key):
    return transformed.init(key)

  @functools.partial(jax.jit, static_argnames="batch_size")
  def initial_state(params, batch_size):
    return apply.initial_state(params, None, batch_size)

  @jax.jit
  def readout(params, state):
    return apply.readout(params, None, state)

  @jax.jit
  def step(params, key, tokens, state):
    return apply.step(params, key, tokens, state)

  @jax.jit
  def unroll(params, key, tokens, state, mask=None):
    return apply.unroll(params, key, tokens, state, mask)

  @jax.jit
  def hidden(params, key, tokens, state, mask=None):
    return apply.hidden(params, key, tokens, state, mask)

  @jax.jit
  def head(params, hidden):
    return apply.head(params, None, hidden)

  @jax.jit
  def loss(params, key, inputs, targets, state, mask=None):
    return apply.loss(params, key, inputs, targets, state, mask)

  @jax.jit
  def activations(params, tokens, state):
    return apply.activations(params, None, tokens, state)

  return LanguageModel(config, init, initial_state, readout, step, unroll, hidden, head, loss,
                       activations)


def _try_out(lm: LanguageModel):
  """Traces what any use will trace, so that a cell that cannot serve fails here."""
  key, tokens = jax.random.key(0), jnp.zeros([2, 3], jnp.int32)

  def losses():
    params = lm.init(key)
    state = lm.initial_state(params, 3)
    for k, mask in ((key, None), (None, tokens == 0)):
      _, after = lm.loss(params, k, tokens, tokens, state, mask)
      chex.assert_trees_all_equal_shapes_and_dtypes(state, after)

  jax.eval_shape(losses)


class _Functions(NamedTuple):
  """The functions of a transform; the fields are those of `LanguageModel`."""

  initial_state: Callable
  readout: Callable
  step: Callable
  unroll: Callable
  hidden: Callable
  head: Callable
  loss: Callable
  activations: Callable


def _functions(config: ModelConfig, cell: CellFactory | None):
  """Builds the model's objects and the functions over them, inside `hk.multi_transform`."""
  dtype = jnp.dtype(config.dtype)
  inits = initializers.parse(config.init, config.top_size)
  embed = embedding.Embedding(config.vocab_size, config.embedding_size, inits["embedding"], dtype)
  cores = [_core(config, cell, layer) for layer in range(config.num_layers)]
  output = heads.head(config, inits)
  how = stack.Reading(_lstm_impl(config), config.connections, config.layer_dropout,
                      config.dropout_per_step, config.weight_dropout, config.state_dropout,
                      config.zoneout, config.zoneout_cell)

  def initial_state(batch_size: int) -> State:
    return stack.initial_state(cores, batch_size, config.output_sizes, dtype, config.connections)

  def tied_table():
    return embed.table if config.tie_embeddings else None

  def head(h):  # [..., D] -> [..., V]
    return output(h, tied_table())

  def readout(state: State):
    return head(state.output)

  def hidden(tokens, state: State, mask=None):
    _check_tokens(tokens, state, mask)
    its = how if len(tokens) > 1 else how._replace(impl="scan")  # one step is the cell itself
    fused = its.impl == "fused" and config.cell == "lstm" and its.at_once(cores[0])
    forward_mode = not fused or config.tie_embeddings
    if fused and not (config.input_dropout or config.embedding_dropout):
      x = embed.lookup(tokens, forward_mode)
    else:
      x = embed(tokens, forward_mode)  # [T, B, E]
      x = embedding.row_dropout(x, tokens, config.vocab_size, config.embedding_dropout)
      x = dropout(x, config.input_dropout, config.dropout_per_step)
    return stack.unroll(cores, x, state, mask, its)

  def dropped(h):  # [T, B, D]
    return dropout(h, config.output_dropout, config.dropout_per_step)

  def unroll(tokens, state: State, mask=None):
    h, state = hidden(tokens, state, mask)  # [T, B, D]
    return head(dropped(h)), state

  def step(tokens, state: State):
    logits, state = unroll(tokens[None], state)
    return logits[0], state

  def loss(inputs, targets, state: State, mask=None):
    chex.assert_equal_shape([inputs, targets])
    h, state = hidden(inputs, state, mask)  # [T, B, D]
    read = dropped(h)
    nats = output.nats(read, targets, tied_table())  # [T, B]
    if mask is not None:
      nats = jnp.where(mask, nats, jnp.zeros_like(nats))
    if not (config.activation_penalty or config.change_penalty) or not in_training():
      return Loss(nats, jnp.zeros_like(nats)), state
    penalty = regularisers.penalties(h, read, config.activation_penalty, config.change_penalty,
                                     mask)
    return Loss(nats, penalty.astype(nats.dtype)), state

  def activations(tokens, state: State):
    _check_tokens(tokens, state, None)
    return stack.traces(cores, embed(tokens), state, how)

  def init():
    """Touches every parameter, whatever the length of later inputs."""
    h, _ = hidden(jnp.zeros([1, 1], jnp.int32), initial_state(1))
    if h.shape != (1, 1, config.top_size):
      raise InputError(f"the cell put out {h.shape[2:]}; needed: width {config.top_size} "
                       "(hidden_size)")
    return head(h)

  return init, _Functions(initial_state, readout, step, unroll, hidden, head, loss, activations)


def _lstm_impl(config: ModelConfig) -> str:
  """`scan`, `fused` or `cudnn`: what `auto` stands for on the device at hand."""
  if config.lstm_impl != "auto":
    return config.lstm_impl
  if cudnn.available() and cudnn.supported(config.dtype):
    return "cudnn"
  return "scan" if jax.default_backend() == "tpu" else "fused"


def _core(config: ModelConfig, cell: CellFactory | None, layer: int) -> hk.RNNCore:
  if cell is None:
    return catalogue.core(config, layer)
  core = cell(layer, config.sizes[layer])
  if not isinstance(core, hk.RNNCore):
    raise InputError(f"cell({layer}, {config.sizes[layer]}) returned {type(core).__name__}; "
                     "needed: an hk.RNNCore")
  return core


def _check_tokens(tokens, state, mask):
  """Shapes at the public edge, once, while tracing."""
  chex.assert_rank(tokens, 2)
  chex.assert_type(tokens, int)
  chex.assert_equal(tokens.shape[1], state.output.shape[0])
  if mask is not None:
    chex.assert_shape(mask, tokens.shape)
