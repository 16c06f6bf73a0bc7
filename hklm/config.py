"""Frozen configurations: what a model is, how text becomes ids, how it is trained.

They hold plain values and tuples only, compare and hash by value, and survive JSON both ways.
"""

import dataclasses
import typing

from hklm.errors import InputError

FORMAT_VERSION = 1

LARGEST_FLOAT32 = float.fromhex("0x1.fffffep127")

DTYPES = ("float32", "float64", "bfloat16")
INITIAL_STATES = ("zeros", "learned")
LSTM_IMPLS = ("auto", "scan", "fused", "cudnn")
TOKENIZERS = ("char", "byte", "word", "bpe")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop")
SCHEDULES = ("constant", "cosine", "step", "plateau")
COMPUTE_DTYPES = ("", "bfloat16")
AVERAGES = ("none", "polyak", "exponential")
ON_NONFINITE = ("stop", "skip")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """A recurrent language model: embedding, a stack of cells, an output table.

  Attributes:
    vocab_size: V, the number of ids. 0 stands for "as many as the tokenizer has" and is filled in
      by `hklm.train`.
    embedding_size: E, the width of a token's vector; 0 feeds one-hot vectors to the first layer.
    hidden_size: H, the width of every layer.
    num_layers: depth of the stack.
    cell: `lstm`, or `package.module:function` where `function(layer, size)` returns an
      `hk.RNNCore`.
    tie_embeddings: the embedding table is also the output matrix; needs E = H.
    num_biases: 1, or 2 as in PyTorch and cuDNN, where the two are added.
    output_bias: whether the output layer has a bias `[V]`.
    forget_bias: added to the forget gate's (first) bias at initialisation.
    initial_state: `zeros`, or `learned` (a parameter `c_0` a layer, `h_0 = tanh(c_0)`).
    init: initialisers by name; see `hklm.nn.initializers`.
    input_dropout: on the embedded input. All rates lie in [0, 1).
    layer_dropout: between layers.
    output_dropout: on what the output layer reads.
    dropout_per_step: fresh masks at every time step; otherwise one mask a window.
    dtype: of parameters, state and logits, whatever `jax_enable_x64` says.
    lstm_impl: how the LSTM reads a sequence: `scan`, cell by cell; `fused`, with a derivative of
      its own; `cudnn`, NVIDIA's; `auto`, the fastest that serves on the device at hand. The
      parameters are the same.

  Raises:
    InputError: when a value cannot make a model; the message names the flag.

  >>> ModelConfig(vocab_size=65, embedding_size=128, hidden_size=256).num_layers
  1
  >>> ModelConfig(vocab_size=65, embedding_size=32, hidden_size=64, tie_embeddings=True)
  Traceback (most recent call last):
  hklm.errors.InputError: tied tables need one size: found --embedding_size=32 and \
--hidden_size=64; make them equal or drop --tie_embeddings
  """

  vocab_size: int = 0
  embedding_size: int = 128
  hidden_size: int = 256
  num_layers: int = 1
  cell: str = "lstm"
  tie_embeddings: bool = False
  num_biases: int = 1
  output_bias: bool = True
  forget_bias: float = 0.0
  initial_state: str = "zeros"
  init: str = "inverse_sqrt"
  input_dropout: float = 0.0
  layer_dropout: float = 0.0
  output_dropout: float = 0.0
  dropout_per_step: bool = False
  dtype: str = "float32"
  lstm_impl: str = "auto"

  def __post_init__(self):
    _check_types(self)
    _at_least(self, 0, "vocab_size", "embedding_size")
    _at_least(self, 1, "hidden_size", "num_layers")
    _one_of(self, num_biases=(1, 2), initial_state=INITIAL_STATES, dtype=DTYPES,
            lstm_impl=LSTM_IMPLS)
    _finite(self, "forget_bias")
    _rates(self, "input_dropout", "layer_dropout", "output_dropout")
    if self.cell != "lstm" and not all(self.cell.partition(":")):
      raise InputError(
          f"--cell={self.cell} is unknown; needed: lstm, or package.module:function for your own")
    if self.cell != "lstm" and self.initial_state == "learned":
      raise InputError("--initial_state=learned belongs to the built-in cells; let your cell's "
                       "initial_state call hk.get_parameter, and use --initial_state=zeros")
    if self.tie_embeddings and self.embedding_size != self.hidden_size:
      raise InputError(
          f"tied tables need one size: found --embedding_size={self.embedding_size} and "
          f"--hidden_size={self.hidden_size}; make them equal or drop --tie_embeddings")


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
  """How text becomes ids.

  Attributes:
    kind: `char`, `byte`, `word` or `bpe`.
    vocab_size: the most ids a `word` or `bpe` vocabulary may have, control symbols included;
      0: no limit for words, 4096 for BPE.
    min_count: words seen less often are unknown.
    lowercase: words only.
    split_punctuation: punctuation marks are words of their own; words only.
    unknown: the spelling of the unknown word; empty: an unseen word is an error.
    end_of_line: the spelling of the end-of-line word; empty: line ends are only white space.
    symbols_in_text: read those two spellings in the text as the symbols themselves.
    bpe_sample: how many characters, from the start of the text, BPE is trained on at most; fewer
      once they hold 1.5 MB of different words.

  >>> TokenizerConfig("word", min_count=2).unknown
  '<unk>'
  """

  kind: str = "char"
  vocab_size: int = 0
  min_count: int = 1
  lowercase: bool = False
  split_punctuation: bool = False
  unknown: str = "<unk>"
  end_of_line: str = "<eos>"
  symbols_in_text: bool = False
  bpe_sample: int = 20_000_000

  def __post_init__(self):
    _check_types(self)
    if self.kind not in TOKENIZERS:
      raise InputError(f"--tokenizer={self.kind} is unknown; needed: {', '.join(TOKENIZERS)}")
    _at_least(self, 0, "vocab_size")
    _at_least(self, 1, "min_count", "bpe_sample")
    if self.kind in ("char", "byte") and self.vocab_size:
      raise InputError(f"--vocab_size={self.vocab_size} limits word and bpe vocabularies; "
                       f"--tokenizer={self.kind} takes its size from the text: drop --vocab_size")
    if self.kind == "bpe" and self.vocab_size and not 256 <= self.vocab_size <= 2**20:
      raise InputError(f"--vocab_size={self.vocab_size} is out of range for --tokenizer=bpe; "
                       "needed: 256, its bytes, to 2**20")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """A training run: a model, a tokenizer, and how parameters move.

  Attributes:
    model: the model; its `vocab_size` may be 0.
    tokenizer: how text becomes ids.
    valid_fraction: share of the corpus held out for validation, before the test share.
    test_fraction: share of the corpus held out at its very end; training never reads it.
    batch_size: B, the number of contiguous streams read side by side.
    bptt: T, the number of steps gradients flow back.
    epochs: passes over the streams.
    steps: updates in all; 0: as `epochs` says.
    optimizer: `sgd`, `momentum`, `adam`, `adamw` or `rmsprop`.
    learning_rate: the highest rate.
    momentum: of `momentum`.
    rms_decay: of `rmsprop`'s mean square.
    weight_decay: L2 gradient added after clipping (torch's), decoupled for `adamw`.
    clip: largest global norm of the gradient; 0: none.
    clip_elementwise: largest magnitude of a gradient's element, before `clip`; 0: none.
    schedule: `constant`, `cosine` (to 0 at the last update), `step` (times `decay_rate` after
      `decay_start` epochs and every `decay_every` from then on), `plateau` (times `decay_rate` when
      a validation is not the best).
    warmup: updates over which the rate rises linearly from 0, before the schedule.
    decay_rate: see `schedule`.
    decay_start: see `schedule`, in epochs; 0: `decay_every`.
    decay_every: see `schedule`, in epochs.
    eval_every: updates between validations; 0: once an epoch.
    checkpoint_every: updates between checkpoints; 0: once an epoch. The last update is always
      saved.
    keep_checkpoints: how many of the newest are kept, besides the best.
    seed: of parameters and dropout.
    accumulate: parts of B / `accumulate` streams that an update reads one after the other, adding
      up their gradients; divides B.
    compute_dtype: of the update's forward and backward pass: empty, the model's, or `bfloat16`, for
      a float32 model. Parameters, sums and the optimiser stay float32, and so do evaluations.
    remat_steps: steps of a window whose activations are kept at a time, made again for the
      gradient; 0: those of the whole window are kept.
    average: what is validated and kept as the best: `none`, the parameters; `polyak`, their mean
      over the updates; `exponential`, a running mean.
    average_decay: of `exponential`.
    average_start: updates before averaging starts.
    on_nonfinite: what follows a loss or gradient that is not finite: `stop` ends the run, `skip`
      leaves that update out.

  >>> TrainConfig(learning_rate=0.)
  Traceback (most recent call last):
  hklm.errors.InputError: --learning_rate=0.0 is out of range; needed: a number above 0
  """

  model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
  tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)
  valid_fraction: float = 0.1
  test_fraction: float = 0.0
  batch_size: int = 32
  bptt: int = 64
  epochs: int = 8
  steps: int = 0
  optimizer: str = "adam"
  learning_rate: float = 0.005
  momentum: float = 0.9
  rms_decay: float = 0.95
  weight_decay: float = 0.0
  clip: float = 1.0
  clip_elementwise: float = 0.0
  schedule: str = "cosine"
  warmup: int = 0
  decay_rate: float = 0.5
  decay_start: int = 0
  decay_every: int = 1
  eval_every: int = 0
  checkpoint_every: int = 0
  keep_checkpoints: int = 2
  seed: int = 0
  accumulate: int = 1
  compute_dtype: str = ""
  remat_steps: int = 0
  average: str = "none"
  average_decay: float = 0.999
  average_start: int = 0
  on_nonfinite: str = "stop"

  def __post_init__(self):
    _check_types(self)
    _one_of(self, optimizer=OPTIMIZERS, schedule=SCHEDULES, average=AVERAGES,
            on_nonfinite=ON_NONFINITE)
    _at_least(self, 1, "batch_size", "bptt", "epochs", "decay_every", "accumulate",
              "keep_checkpoints")
    _at_least(self, 0, "steps", "warmup", "decay_start", "eval_every", "checkpoint_every",
              "weight_decay", "clip", "clip_elementwise", "remat_steps", "average_start")
    _finite(self, "learning_rate", "weight_decay", "clip", "clip_elementwise", "decay_rate")
    _rates(self, "valid_fraction", "test_fraction", "momentum", "rms_decay", "average_decay")
    for name in ("learning_rate", "decay_rate"):
      if not getattr(self, name) > 0:
        raise InputError(f"--{name}={getattr(self, name)} is out of range; needed: a number above "
                         "0")
    if self.valid_fraction + self.test_fraction >= 1:
      raise InputError(f"--valid_fraction={self.valid_fraction} and --test_fraction="
                       f"{self.test_fraction} leave nothing to train on; lower one of them")
    if not 0 <= self.seed < 2**32:
      raise InputError(f"--seed={self.seed} is out of range; needed: 0 to 2**32 - 1")
    if self.batch_size % self.accumulate:
      raise InputError(f"--accumulate={self.accumulate} does not divide --batch_size="
                       f"{self.batch_size}; needed: equal parts: change one of them")
    self._check_compute_dtype()

  def _check_compute_dtype(self):
    if self.compute_dtype not in COMPUTE_DTYPES:
      raise InputError(f"--compute_dtype={self.compute_dtype} is unknown; needed: bfloat16, or "
                       "nothing for --dtype")
    if self.compute_dtype and self.model.dtype != "float32":
      raise InputError(f"--compute_dtype={self.compute_dtype} is for float32 parameters; found "
                       f"--dtype={self.model.dtype}; needed: --dtype=float32, or drop "
                       "--compute_dtype")
    if self.compute_dtype and self.model.lstm_impl == "cudnn":
      raise InputError(f"--compute_dtype={self.compute_dtype} is not for --lstm_impl=cudnn, which "
                       "computes in float32; needed: --lstm_impl=auto, or drop --compute_dtype")


def to_json(config) -> dict:
  """A config as JSON values, with the format version; `from_json` reads it back.

  >>> import json
  >>> from_json(TrainConfig, json.loads(json.dumps(to_json(TrainConfig(seed=3))))).seed
  3
  """
  return {"format": FORMAT_VERSION, **dataclasses.asdict(config)}


def from_json(kind, values: dict):
  """The config of class `kind` that `to_json` wrote.

  Args:
    kind: `ModelConfig`, `TokenizerConfig` or `TrainConfig`.
    values: JSON values.

  Raises:
    InputError: another format version, a field that is unknown or missing (named), a value of the
      wrong type.

  >>> from_json(TokenizerConfig, {"format": 1, "kind": "char", "size": 3})
  Traceback (most recent call last):
  hklm.errors.InputError: TokenizerConfig: unknown fields size; missing fields bpe_sample, \
end_of_line, lowercase, min_count, split_punctuation, symbols_in_text, unknown, vocab_size
  """
  if not isinstance(values, dict):
    raise InputError(f"{kind.__name__}: found {values!r}, needed a JSON object")
  if values.get("format") != FORMAT_VERSION:
    raise InputError(f"{kind.__name__}: found format {values.get('format')!r}, this version of "
                     f"hklm reads format {FORMAT_VERSION}")
  return _from_dict(kind, {name: v for name, v in values.items() if name != "format"})


def _from_dict(kind, values: dict):
  types_ = typing.get_type_hints(kind)
  unknown, missing = sorted(set(values) - set(types_)), sorted(set(types_) - set(values))
  if unknown or missing:
    parts = [f"{what} fields {', '.join(names)}"
             for what, names in (("unknown", unknown), ("missing", missing)) if names]
    raise InputError(f"{kind.__name__}: {'; '.join(parts)}")
  read = {}
  for name, value in values.items():
    nested = dataclasses.is_dataclass(types_[name])
    if nested and not isinstance(value, dict):
      raise InputError(f"{kind.__name__}.{name}: found {value!r}, needed a JSON object")
    read[name] = _from_dict(types_[name], value) if nested else value
  return kind(**read)


def _check_types(config):
  """Refuses a value of the wrong type, so that a config is what it says it is."""
  for name, kind in typing.get_type_hints(type(config)).items():
    value = getattr(config, name)
    if type(value) is int and abs(value) >= 2**33:  # beyond any size, count or seed
      raise InputError(f"{type(config).__name__}.{name}: found {str(value)[:20]}..., needed a "
                       "number below 2**33")
    if kind is float and type(value) is int:
      object.__setattr__(config, name, float(value))  # 1 and 1.0 must hash and print alike
    elif type(value) is not kind:
      raise InputError(f"{type(config).__name__}.{name}: found {value!r}, needed {kind.__name__}")


def _at_least(config, least, *names):
  for name in names:
    if not least <= getattr(config, name) < 2**31:  # arrays are indexed, and updates counted, so
      raise InputError(f"--{name}={getattr(config, name)} is out of range; needed: {least} or "
                       "more, below 2**31")


def _finite(config, *names):
  for name in names:
    if not abs(getattr(config, name)) <= LARGEST_FLOAT32:
      raise InputError(f"--{name}={getattr(config, name)} is not a finite float32 number")


def _rates(config, *names):
  for name in names:
    if not 0 <= getattr(config, name) < 1:
      raise InputError(f"--{name}={getattr(config, name)} is out of range; needed: at least 0 and "
                       "below 1")


def _one_of(config, **choices):
  for name, allowed in choices.items():
    if getattr(config, name) not in allowed:
      raise InputError(f"--{name}={getattr(config, name)} is unknown; needed: "
                       f"{', '.join(map(str, allowed))}")
