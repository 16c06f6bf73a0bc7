"""Every flag once. A binary names those it reads; any other is refused there.

The defaults of a model, a tokenizer and a run are those of the configs in `hklm.config`.
"""

import dataclasses
import os
from collections.abc import Sequence

from absl import flags

from hklm import run as runs
from hklm.config import ModelConfig, TokenizerConfig, TrainConfig
from hklm.config.checks import Sizes
from hklm.config.model import CELLS
from hklm.data import corpora, sources
from hklm.errors import InputError

FLAGS = flags.FLAGS

TEXT = ("corpus", "encoding")
MODEL = tuple(f.name for f in dataclasses.fields(ModelConfig) if f.name != "vocab_size")
TOKENIZER = ("tokenizer",
             *(f.name for f in dataclasses.fields(TokenizerConfig) if f.name != "kind"))
TRAINING = tuple(f.name for f in dataclasses.fields(TrainConfig)
                 if f.name not in ("model", "tokenizer"))
MACHINES = ("devices", "vocab_shards", "coordinator", "process_count", "process_index")

flags.DEFINE_string("run_dir", "", "The run directory; train's default is the next free runs/N.")
flags.DEFINE_bool("overwrite", False, "Replace an older run in --run_dir; export: what is at "
                  "--output.")
flags.DEFINE_bool("resume", False, "Go on with the run in --run_dir, from its newest checkpoint.")
flags.DEFINE_string("init_from", "", "A run directory: begin with its parameters and tokenizer.")
flags.DEFINE_multi_string(
    "corpus", [], "A file, a folder, a .gz, or - for standard input; may be given several times. "
    "Default: the built-in English text.")
flags.DEFINE_multi_string("valid_corpus", [], "As --corpus: validation text of its own.")
flags.DEFINE_string("encoding", "utf-8", "The encoding of the texts that are read.")
flags.DEFINE_string("input", "", "score: texts, one a line; a .csv or .tsv with --text_column; "
                    "default: standard input. report: a text; default: the start of the run's "
                    "validation part. - for standard input.")
flags.DEFINE_string("output", "", "gpu: the folder that results go to. report: the HTML file. "
                    "export: a file or folder, see --format.")
flags.DEFINE_string("checkpoint", "", "best or last; default: the best there is. import_torch: a "
                    "file of weights.")
flags.DEFINE_float("dropout", 0.0, "Sets the three rates below that are not given themselves.")
flags.DEFINE_integer("devices", 0, "Devices to train on, of those of all processes; 0: all.")
flags.DEFINE_integer("vocab_shards", 1, "Parts of the output table, on devices of their own.")
flags.DEFINE_string("coordinator", "", "host:port of the first process, of several.")
flags.DEFINE_integer("process_count", 1, "Processes that train together.")
flags.DEFINE_integer("process_index", 0, "Of this process, from 0.")

_HELP = {
    # ModelConfig
    "embedding_size": "E, the width of a token's vector; 0: one-hot input.",
    "hidden_size": "H, the width of every layer.",
    "num_layers": "Layers in the stack.",
    "cell": f"{', '.join(CELLS)}, or package.module:function for a cell of your own.",
    "tie_embeddings": "Use the embedding table as the output matrix.",
    "num_biases": "1, 2 as in PyTorch, or 0.",
    "output_bias": "Give the output layer a bias.",
    "forget_bias": "Added to the forget gate's bias at initialisation.",
    "initial_state": "zeros or learned.",
    "init": "Initialisers by name, such as uniform:0.1 or inverse_sqrt,bias=zeros.",
    "input_dropout": "Dropout rate on the embedded input.",
    "layer_dropout": "Dropout rate between layers.",
    "output_dropout": "Dropout rate on what the output layer reads.",
    "dropout_per_step": "Fresh masks at every time step; otherwise one mask a window.",
    "layer_sizes": "The widths of the layers from the input up, as 1150,1150,400; empty: all H.",
    "connections": "How layers are joined: plain, residual or sum.",
    "input_gate": "Of --cell=lstm and mogrifier: free, coupled or capped.",
    "projection_size": "What a layer of --cell=projected_lstm puts out.",
    "mogrifier_rounds": "Of --cell=mogrifier.",
    "mogrifier_rank": "Rank of its matrices; 0: they are not factored.",
    "qrnn_window": "Of --cell=qrnn: 1 or 2 inputs.",
    "head": "linear, mixture, adaptive or sampled.",
    "head_projection": "A linear map to the width of embeddings before the output matrix.",
    "mixture_components": "Of --head=mixture.",
    "mixture_dropout": "Dropout rate on the vectors of --head=mixture.",
    "adaptive_cutoffs": "Of --head=adaptive: the first id of each tail cluster, as 2000,10000.",
    "sampled_tokens": "Of --head=sampled: ids drawn for a window.",
    "embedding_dropout": "Dropout rate of rows of the embedding table.",
    "weight_dropout": "Dropout rate of recurrent matrices.",
    "state_dropout": "Dropout rate on the output that a cell reads back.",
    "zoneout": "Share of a cell's outputs that stay as they were.",
    "zoneout_cell": "The same of an LSTM's c.",
    "activation_penalty": "Times the mean square of what the head reads.",
    "change_penalty": "Times the mean square of the top layer's changes.",
    "dtype": "float32, float64 or bfloat16.",
    "lstm_impl": "auto, scan, fused or cudnn: how the LSTM reads a sequence.",
    # TokenizerConfig
    "tokenizer": "char, byte, word or bpe. import_torch: char or word, by default what the "
                 "vocabulary is.",
    "vocab_size": "The most ids of a word or bpe vocabulary; 0: no limit, 4096 for bpe.",
    "min_count": "Words seen less often are unknown.",
    "lowercase": "Lower-case words.",
    "split_punctuation": "Punctuation marks are words of their own.",
    "unknown": "Spelling of the unknown word; empty: an unseen word is an error.",
    "end_of_line": "Spelling of the end-of-line word; empty: line ends are only white space.",
    "symbols_in_text": "Read those two spellings in the text as the symbols themselves.",
    "bpe_sample": "Characters, from the start of the text, that BPE is trained on.",
    # TrainConfig
    "valid_fraction": "Share of the corpus held out for validation, before the test share.",
    "test_fraction": "Share of the corpus held out at its very end.",
    "batch_size": "B, contiguous streams read side by side.",
    "bptt": "T, steps gradients flow back.",
    "epochs": "Passes over the text.",
    "steps": "Updates in all; 0: as --epochs says.",
    "optimizer": "sgd, momentum, adam, adamw or rmsprop.",
    "learning_rate": "The highest rate.",
    "momentum": "Of --optimizer=momentum.",
    "rms_decay": "Of --optimizer=rmsprop.",
    "weight_decay": "L2 gradient added after clipping; decoupled for adamw.",
    "clip": "Largest global norm of the gradient; 0: none.",
    "clip_elementwise": "Largest magnitude of a gradient's element; 0: none.",
    "schedule": "constant, cosine, step or plateau.",
    "warmup": "Updates over which the rate rises from 0.",
    "decay_rate": "What step and plateau schedules multiply the rate by.",
    "decay_start": "Epochs before the first decay of the step schedule; 0: as --decay_every.",
    "decay_every": "Epochs between decays of the step schedule.",
    "eval_every": "Updates between validations; 0: once an epoch.",
    "checkpoint_every": "Updates between checkpoints; 0: once an epoch.",
    "keep_checkpoints": "How many of the newest checkpoints are kept, besides the best.",
    "seed": "Of all randomness.",
    "accumulate": "Parts of the batch read one after the other, their gradients added up.",
    "compute_dtype": "bfloat16: updates compute in it, parameters stay float32; empty: --dtype.",
    "remat_steps": "Steps whose activations are kept at a time, made again for the gradient; 0: "
                   "all.",
    "average": "none, polyak or exponential: the mean of the parameters that is validated.",
    "average_decay": "Of --average=exponential.",
    "average_start": "Updates before averaging starts.",
    "random_bptt": "Windows of random length about --bptt.",
    "reset_rate": "Chance with which a stream starts a window from the initial state.",
    "adam_beta1": "Of --optimizer=adam and adamw.",
    "adam_beta2": "Of --optimizer=adam and adamw.",
    "weight_decay_first": "Add that gradient before clipping.",
    "loss": "mean over tokens, or sum over time of the mean over the batch.",
    "decay_at": "Epochs after which the step schedule multiplies the rate, as 25,35.",
    "average_trigger": "Which validation starts --average=polyak: nonmonotone or no_gain.",
    "average_patience": "Validations that --average_trigger looks back.",
    "average_latest": "The validation that starts averaging at the latest; 0: none.",
    "on_nonfinite": "stop, or skip: leave an update out whose loss or gradient is not finite.",
}


class _SizesParser(flags.ArgumentParser):
  """Whole numbers with commas between them, or nothing."""

  def parse(self, argument):
    if isinstance(argument, tuple):
      return argument
    try:
      return tuple(int(size) for size in argument.split(",")) if argument else ()
    except ValueError as error:
      raise ValueError("needed: whole numbers with commas between them") from error


class _SizesSerializer(flags.ArgumentSerializer):

  def serialize(self, value):
    return _text(value)


def _define_sizes(name, default, help_):
  flags.DEFINE(_SizesParser(), name, default, help_, serializer=_SizesSerializer())


def _text(value) -> str:
  return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


_DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float,
           str: flags.DEFINE_string, Sizes: _define_sizes}

_define_sizes("published_tokens", (), "What a recipe's text has to train on and for validation, as "
              "929589,73760: whether yours has too is said.")
flags.DEFINE_integer("published_vocabulary", 0, "The vocabulary of a recipe's text, as above.")

for _config in (ModelConfig, TokenizerConfig, TrainConfig):
  for _field in dataclasses.fields(_config):
    _name = "tokenizer" if _field.name == "kind" else _field.name
    if _field.type in _DEFINE and not (_config is ModelConfig and _name == "vocab_size"):
      _DEFINE[_field.type](_name, _field.default, _HELP[_name])


def train_config() -> TrainConfig:
  """The configuration that the flags describe."""
  model = {name: FLAGS[name].value for name in MODEL}
  if FLAGS["dropout"].present:
    model |= {name: FLAGS.dropout for name in ("input_dropout", "layer_dropout", "output_dropout")
              if not FLAGS[name].present}
  tokenizer = {name: FLAGS[name].value for name in TOKENIZER}
  return TrainConfig(
      model=ModelConfig(**model),
      tokenizer=TokenizerConfig(tokenizer.pop("tokenizer"), **tokenizer),
      **{name: FLAGS[name].value for name in TRAINING})


def corpus(name: str = "corpus") -> corpora.Corpus | None:
  """The corpus that flag `name` gives, or None where it is not given."""
  paths = FLAGS[name].value
  if not paths:
    return None
  with sources.naming(f"--{name}"):
    return corpora.open_corpus(paths, FLAGS.encoding)


def check_text_of_its_own(run: runs.Run, name: str):
  """Refuses a run that was trained on no text, where flag `name` does not give one."""
  if not runs.read_contents(run.path).text_fingerprint:
    raise InputError(f"{run.path} has no text of its own, its weights were imported; needed: "
                     f"--{name}")


def fill_from_file(path: str):
  """Sets the flags that were not given to what `flagfile` has written."""
  given = _given()
  with open(path, encoding="utf-8", errors="surrogateescape") as file:
    lines = file.read().splitlines()
  FLAGS([path, *(line for line in lines if line.partition("=")[0].lstrip("-") not in given)])


def fill(config: TrainConfig, names: Sequence[str]):
  """Sets those of these flags that were not given to those of a run."""
  for name, value in _values(config).items():
    if name in names and name not in _given():
      FLAGS[name].value = value


def _given() -> set[str]:
  """The names of the flags that were given, --dropout for the three that it sets."""
  given = {name for name in FLAGS if FLAGS[name].present}
  return given | ({"input_dropout", "layer_dropout", "output_dropout"} & set(FLAGS)
                  if "dropout" in given else set())


def _values(config: TrainConfig) -> dict:
  """The value of each flag that makes this configuration."""
  values = {name: getattr(config.model, name) for name in MODEL}
  values |= {name: getattr(config.tokenizer, "kind" if name == "tokenizer" else name)
             for name in TOKENIZER}
  return values | {name: getattr(config, name) for name in TRAINING}


def flagfile(config: TrainConfig) -> str:
  """The text of a `--flagfile` that gives this configuration and these corpora again."""
  values = _values(config) | {"encoding": FLAGS.encoding}
  if FLAGS.init_from:
    values["init_from"] = os.path.abspath(FLAGS.init_from)
  lines = [f"--{name}={_text(value)}" for name, value in values.items()]
  for name in ("corpus", "valid_corpus"):  # absolute: the replay may start elsewhere
    lines += [f"--{name}={path if path == '-' else os.path.abspath(path)}"
              for path in FLAGS[name].value]
  return "".join(f"{line}\n" for line in lines)
