"""`hklm.train`: corpus to run directory, the one call that joins text, model and training."""

import dataclasses
import importlib.util
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax

from hklm import run as runs
from hklm.config import TrainConfig
from hklm.data import base, corpora, encoding, streams, tokenizers
from hklm.errors import InputError
from hklm.inference.evaluate import evaluate
from hklm.metrics import Metrics
from hklm.model import CellFactory, LanguageModel, check_machine, language_model
from hklm.report import curves
from hklm.training import loop, memory, optimizers, step
from hklm.training.logs import Progress, append_jsonl, say

UNITS = {"char": "char", "byte": "byte", "word": "word", "bpe": "token"}


class Text(NamedTuple):
  """A corpus made ready: its tokenizer, and the encoded parts (`valid` None for none)."""

  tokenizer: base.Tokenizer
  train: encoding.Tokens
  valid: encoding.Tokens | None


def train(config: TrainConfig, run_dir: str, corpus: corpora.Corpus | Sequence[str] = (),
          valid_corpus: corpora.Corpus | Sequence[str] = (), cell: CellFactory | None = None,
          overwrite: bool = False, files: Mapping[str, str] | None = None) -> runs.Run:
  """Trains a model and writes the run directory.

  Args:
    config: the run; a `model.vocab_size` of 0 becomes the tokenizer's.
    run_dir: where the run goes.
    corpus: paths, or an opened corpus; nothing: the built-in one.
    valid_corpus: validation text of its own, in place of `config.valid_fraction`.
    cell: your own cell, in place of `config.model.cell`.
    overwrite: whether an older run in `run_dir` is replaced.
    files: further text files for the run directory, by name.

  Returns:
    The run as `load_run` reads it: the best parameters, or the last ones without validation.

  Raises:
    InputError: bad input, before anything is written; or a loss that is not finite.

  >>> import hklm, tempfile
  >>> folder = tempfile.mkdtemp()
  >>> with open(f"{folder}/text", "w") as file:
  ...   _ = file.write("abcabd" * 200)
  >>> config = hklm.TrainConfig(hklm.ModelConfig(embedding_size=4, hidden_size=8), batch_size=4,
  ...                           bptt=10, epochs=2)
  >>> run = train(config, f"{folder}/run", [f"{folder}/text"])
  >>> run.tokenizer.decode(hklm.generate(run.lm, run.params, jax.random.key(0), 6).ravel()) != ""
  True
  """
  run_dir = runs.check_free(run_dir, overwrite)
  check_machine(config.model)
  if valid_corpus:  # then nothing of `corpus` is held out, and the run says so
    config = dataclasses.replace(config, valid_fraction=0.0)
  text = prepare_text(config, corpus, valid_corpus)
  config = dataclasses.replace(config, model=_with_vocabulary(config.model, text.tokenizer))
  lm = language_model(config.model, cell)
  config = dataclasses.replace(config, model=lm.config)
  windows = streams.Streams(text.train.ids, config.batch_size, config.bptt)
  steps = config.steps or config.epochs * len(windows)
  optimizer = optimizers.optimizer(config, steps, len(windows))
  _check_memory(lm, config)
  state = step.init(lm, optimizer, config.batch_size, config.seed)
  say(f"model: {config.model.cell}, {sum(leaf.size for leaf in jax.tree.leaves(state.params)):,} "
      f"parameters; {steps:,} updates, {len(windows):,} an epoch, each epoch leaves out "
      f"{windows.left_out:,} tokens")

  runs.create(run_dir, config, text.tokenizer, overwrite, files)
  with open(os.path.join(run_dir, "metrics.jsonl"), "w", encoding="utf-8") as metrics_file:
    log = _Log(metrics_file, lm, text, config, steps)
    hooks = loop.Hooks(
        log.training, log.validation if text.valid else None,
        save_best=lambda p: runs.write_checkpoint(run_dir, "best", p, text.tokenizer),
        save_last=lambda p: runs.write_checkpoint(run_dir, "last", p, text.tokenizer))
    try:
      loop.run(step.make_update(lm, optimizer), state, windows, steps, hooks, config.eval_every,
               config.checkpoint_every,
               config.decay_rate if config.schedule == "plateau" else 1.0)
    finally:
      log.progress.close()
  _plot(run_dir, config)
  return runs.load_run(run_dir, cell=cell)


def prepare_text(config: TrainConfig, corpus: corpora.Corpus | Sequence[str],
                 valid_corpus: corpora.Corpus | Sequence[str]) -> Text:
  """Opens, splits and encodes; the sizes are checked before anything compiles.

  The character alphabet is that of all the text given, so that a rare character of the held-out
  part does not end the run; word and BPE vocabularies are those of the training part alone.

  Args:
    config: the run.
    corpus: paths, or an opened corpus; nothing: the built-in one.
    valid_corpus: as `corpus`; nothing: the share that `config.valid_fraction` says.

  Raises:
    InputError: text that cannot be read or encoded; a validation part of fewer than two tokens.
  """
  kind = config.tokenizer.kind
  raw, whole = kind == "byte", _opened(corpus)
  valid_fraction = 0.0 if valid_corpus else config.valid_fraction
  train_part, valid_part, _ = whole.split(
      valid_fraction, config.test_fraction, raw, at_lines=kind in ("word", "bpe"))
  sources = [train_part]
  if valid_corpus:
    valid_part = _opened(valid_corpus)
  if kind == "char":
    sources = [whole, valid_part] if valid_corpus else [whole]
  tokenizer = tokenizers.build(config.tokenizer, (c for s in sources for c in s.chunks(raw)))
  train_tokens = encoding.encode_corpus(tokenizer, train_part)
  has_valid = bool(valid_corpus or valid_fraction)
  valid_tokens = encoding.encode_corpus(tokenizer, valid_part) if has_valid else None
  say(f"text: {whole.documents} documents; {train_tokens.characters:,} characters to train on, "
      f"{valid_tokens.characters if valid_tokens else 0:,} for validation; tokenizer {kind}, "
      f"vocabulary {tokenizer.vocab_size:,}, {len(train_tokens.ids):,} training tokens, "
      f"{train_tokens.unknown_tokens:,} of them unknown")
  if not has_valid and config.schedule == "plateau":
    raise InputError("--schedule=plateau needs validations; raise --valid_fraction, give "
                     "--valid_corpus, or take another --schedule")
  if not has_valid:
    say("no validation: --valid_fraction is 0 and there is no --valid_corpus")
  elif len(valid_tokens.ids) < 2:
    raise InputError(f"the validation part has {len(valid_tokens.ids)} tokens; needed: 2 or more; "
                     "raise --valid_fraction, or set it to 0 for no validation")
  return Text(tokenizer, train_tokens, valid_tokens)


class _Log:
  """The hooks that write metrics.jsonl and move the progress bar."""

  def __init__(self, file, lm: LanguageModel, text: Text, config: TrainConfig, steps: int):
    self._file, self._lm, self._text, self._config = file, lm, text, config
    self._unit = UNITS[config.tokenizer.kind]
    self._start = time.monotonic()
    self.progress = Progress(steps, self._unit)

  def training(self, step_: int, metrics: Metrics, gradient_norm: float):
    self.progress.update(step_, metrics.nats_per_token, metrics.bits_per_token, metrics.tokens)
    append_jsonl(self._file, step=step_, train_nats_per_token=metrics.nats_per_token,
                 tokens=metrics.tokens, gradient_norm=gradient_norm,
                 seconds=round(time.monotonic() - self._start, 3))

  def validation(self, step_: int, params) -> Metrics:
    valid, config = self._text.valid, self._config
    count = max(1, min(config.batch_size, (len(valid.ids) - 1) // config.bptt))
    metrics = evaluate(self._lm, params, valid.ids, config.bptt, count)
    bits_per_char = metrics.bits_per(valid.scored_characters)
    say(f"validation after update {step_}: {metrics.nats_per_token:.4f} nats/{self._unit}, "
        f"{bits_per_char:.4f} bits/char, perplexity {metrics.perplexity:.2f} "
        f"({metrics.streams} streams)")
    append_jsonl(self._file, step=step_, valid_nats_per_token=metrics.nats_per_token,
                 valid_bits_per_char=bits_per_char, valid_perplexity=metrics.perplexity,
                 valid_tokens=metrics.tokens, valid_streams=metrics.streams)
    return metrics


def best_validation(run_dir: str) -> dict | None:
  """The metrics.jsonl row of the best validation of the run, or None without validation."""
  with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as file:
    rows = [row for row in map(json.loads, file) if "valid_nats_per_token" in row]
  return min(rows, key=lambda row: row["valid_nats_per_token"], default=None)


def _opened(corpus: corpora.Corpus | Sequence[str]) -> corpora.Corpus:
  if isinstance(corpus, corpora.Corpus):
    return corpus
  return corpora.open_corpus(corpus) if corpus else corpora.builtin_corpus()


def _check_memory(lm, config):
  """Says what much memory is for; refuses what XLA would not even try: it ends the process."""
  shapes = jax.tree.leaves(jax.eval_shape(lm.init, jax.random.key(0)))
  if sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes) >= 2**40:
    raise InputError("the parameters would take a terabyte or more; lower --hidden_size, "
                     "--embedding_size or --vocab_size")
  note = memory.note(memory.estimate(lm, config), memory.available())
  if note:
    say(note)


def _with_vocabulary(model, tokenizer):
  if model.vocab_size not in (0, tokenizer.vocab_size):
    raise InputError(f"ModelConfig.vocab_size is {model.vocab_size} and the tokenizer has "
                     f"{tokenizer.vocab_size} ids; needed: equal, or 0 to take the tokenizer's")
  return dataclasses.replace(model, vocab_size=tokenizer.vocab_size)


def _plot(run_dir, config):
  if importlib.util.find_spec("matplotlib") is None:
    say("no curves.png: matplotlib is not installed; pip install -e '.[plots]'")
    return
  curves.plot(os.path.join(run_dir, "metrics.jsonl"), os.path.join(run_dir, "curves.png"),
              UNITS[config.tokenizer.kind])
