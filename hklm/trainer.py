"""`hklm.train`: corpus to run directory, the one call that joins text, model and training."""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence

import jax

from hklm import resuming
from hklm import run as runs
from hklm.config import TrainConfig
from hklm.data import corpora, random_streams, streams, texts
from hklm.errors import InputError, Stopped
from hklm.model import CellFactory, check_machine, language_model
from hklm.training import (
  averages,
  checkpoints,
  loop,
  memory,
  optimizers,
  processes,
  snapshots,
  step,
)
from hklm.training import mesh as meshes
from hklm.training.logs import rows, say
from hklm.training.saver import BEST, STEP, Saver
from hklm.watching import METRICS, watch


def train(config: TrainConfig, run_dir: str, corpus: corpora.Corpus | Sequence[str] = (),
          valid_corpus: corpora.Corpus | Sequence[str] = (), cell: CellFactory | None = None,
          overwrite: bool = False, files: Mapping[str, str] | None = None, resume: bool = False,
          init_from: str = "", stop: Callable[[], bool] = lambda: False, devices: int = 0,
          vocab_shards: int = 1, published: texts.Published | None = None) -> runs.Run:
  """Trains a model and writes the run directory.

  A run that ended before its last update goes on with `resume=True`, and then is the run that it
  would have been: on the CPU, with the same JAX and as many CPUs, bit for bit.

  Args:
    config: the run; a `model.vocab_size` of 0 becomes the tokenizer's.
    run_dir: where the run goes.
    corpus: paths, or an opened corpus; nothing: the built-in one.
    valid_corpus: validation text of its own, in place of `config.valid_fraction`.
    cell: your own cell, in place of `config.model.cell`.
    overwrite: whether an older run in `run_dir` is replaced.
    files: further text files for the run directory, by name.
    resume: whether the run in `run_dir` is gone on with, from the newest checkpoint that is whole;
      it keeps its configuration and text. What is not there is begun.
    init_from: a run directory, whose parameters and tokenizer this run begins with (fine-tuning).
    stop: asked after every update whether to save and end there; of several processes, a SIGTERM
      to one of them takes its place.
    devices: how many make an update together, each with its part of the batch; 0: all.
    vocab_shards: into how many parts the output table is cut.
    published: the sizes of a recipe's text; whether they are this one's is said.

  Returns:
    The run as `load_run` reads it: the best parameters, or the last ones without validation.

  Raises:
    InputError: bad input, before anything is written; or a loss that is not finite.
    Stopped: `stop` came true; the state is saved.

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
  run_dir = runs.check_free(run_dir, overwrite, resume)
  check_machine(config.model)
  with contextlib.ExitStack() as claims:
    if processes.is_first() and runs.is_run(run_dir):
      claims.enter_context(runs.claimed(run_dir))
    if valid_corpus:  # then nothing of `corpus` is held out, and the run says so
      config = dataclasses.replace(config, valid_fraction=0.0)
    older, newest, faults, base = found = resuming.find(run_dir, config, resume, init_from, cell)
    if found.complete:
      say(f"{run_dir} is already complete: all {checkpoints.step(newest):,} updates are made")
      return runs.load_run(run_dir, cell=cell)
    text = _prepare_text(config, corpus, valid_corpus, older, base)
    if published and any(published):
      say(texts.compared(text, published))
    config = dataclasses.replace(config, model=_with_vocabulary(config.model, text.tokenizer))
    lm = language_model(config.model, cell)
    config = dataclasses.replace(config, model=lm.config)
    mesh = meshes.make(config, devices, vocab_shards)
    windows = streams.Streams(text.train.ids, config.batch_size, config.bptt,
                              columns=meshes.columns(mesh, config.batch_size))
    if config.random_bptt:
      windows = random_streams.RandomStreams(windows, config.seed)
    steps = config.steps or windows.updates_in(config.epochs)
    optimizer = optimizers.optimizer(config, steps, windows.updates_in)
    _check_memory(lm, config, cell, mesh)
    start = functools.partial(step.init, lm, optimizer, config.batch_size, config.seed, config,
                              cell, base and resuming.fitting(base, lm))
    its = older or runs.Contents(config, text.tokenizer, text.fingerprint, found.base_fingerprint)
    if older and not its.text_fingerprint:
      raise InputError("the run was imported and has no state of training to go on from; needed: "
                       "--init_from and another --run_dir")
    if its.text_fingerprint != text.fingerprint:
      raise InputError("the text is not the one that the run began with; needed: the same --corpus "
                       "and --valid_corpus, unchanged, to resume it, or --init_from for a new run")
    count = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(lm.init, jax.random.key(0))))
    about = "about " * config.random_bptt
    say(f"model: {config.model.cell}, {count:,} parameters; {steps:,} updates, {about}"
        f"{windows.updates_in(1):,} an epoch, each epoch leaves out {windows.left_out:,} tokens")
    tied, progress = config.model.tie_embeddings, loop.Progress()
    if newest:
      state, progress = snapshots.restored(newest, checkpoints.manifest(newest), start())
      state = meshes.place(mesh, state, tied)
      progress = resuming.with_the_best_there_is(run_dir, its.identity, progress)
    else:
      state = meshes.init(mesh, start, tied)
    processes.wait_for_all("the run directory is read")
    if processes.is_first():
      if not older:
        runs.create(run_dir, its, overwrite, files)
        claims.enter_context(runs.claimed(run_dir))
      resuming.make_as_it_was(run_dir, its.identity, int(state.step), faults)
    if resume:
      say(f"resumed after update {int(state.step):,} of {steps:,}, from {newest}" if newest else
          f"{run_dir} holds no checkpoint to go on from: the run begins at update 0")
    update = meshes.update(mesh, step.make_update(lm, optimizer, config, cell), state)
    _run(run_dir, its, lm, update, text, windows, steps, state, progress, stop)
    return runs.load_run(run_dir, cell=cell)


def _run(run_dir, contents, lm, update, text, windows, steps, state, progress, stop):
  """Trains from `state` on, with all that is written besides."""
  config = contents.config
  saver = Saver(runs.checkpoint_folder(run_dir), config.keep_checkpoints,
                writes=processes.is_first())
  rate = optimizers.schedule(config, steps, windows.updates_in)
  with watch(run_dir, lm, text, config, rate, steps, int(state.step),
             progress.unlogged.tokens) as its:

    def training(*args):
      saver.check()  # what could not be saved ends the run soon
      its.training(*args)

    def save(*args):
      with its.paused():
        saver.save(*args)

    def validation(number, params):
      return its.validation(number, meshes.local(params))

    def save_best(number, params):
      save(BEST, number, {snapshots.PARAMS: meshes.local(params)},
           {"run": contents.identity})

    def save_state(state, progress):
      save(STEP, int(state.step), snapshots.parts(meshes.local(state)),
           snapshots.about(progress, steps) | {"run": contents.identity})

    def stops(number):
      return stop() if jax.process_count() == 1 else processes.stop_wanted(number)

    def trigger(history, nats):
      history, starts = averages.seen(history, nats, config)
      if starts:
        say("averaging starts: from now on the mean of the parameters is validated")
      return history, starts

    hooks = loop.Hooks(training, validation if text.valid else None, save_best, save_state, stops)
    try:
      state, progress = loop.run(update, state, progress, windows, steps, hooks, config.eval_every,
                                 config.checkpoint_every,
                                 config.decay_rate if config.schedule == "plateau" else 1.0,
                                 trigger)
    finally:
      saver.wait()
  processes.wait_for_all("all is saved")
  if int(state.step) < steps:
    raise Stopped(f"stopped after update {int(state.step):,} of {steps:,}; all is saved in "
                  f"{run_dir}: go on with --resume")


def _prepare_text(config, corpus, valid_corpus, older, base):
  """The run's text; an older run, or the one to begin from, has the tokenizer."""
  tokenizer = older.tokenizer if older else base.tokenizer if base else None
  if tokenizer and tokenizer.kind != config.tokenizer.kind:
    raise InputError(f"--tokenizer={config.tokenizer.kind}, but the run's is {tokenizer.kind}; "
                     "needed: the run's")
  try:
    text = texts.prepare(config, corpus, valid_corpus, tokenizer)
  except InputError as error:
    if not older:
      raise
    raise InputError(f"{error} (or the text has changed since the run began)") from error
  say(text.description)
  if config.average_trigger and not text.valid:
    raise InputError(f"--average_trigger={config.average_trigger} waits for validations, and there "
                     "are none; needed: --valid_corpus, or --valid_fraction above 0")
  if not text.valid:
    say("no validation: --valid_fraction is 0 and there is no --valid_corpus")
  return text


def best_validation(run_dir: str) -> dict | None:
  """The metrics.jsonl row of the validation whose parameters the run keeps as the best, or None."""
  kept = checkpoints.named(runs.checkpoint_folder(run_dir), BEST)
  step_ = checkpoints.step(kept[0]) if kept else 0
  return next((row for row in rows(os.path.join(run_dir, METRICS))
               if row["step"] == step_ and row.get("valid_nats_per_token") is not None), None)


def _check_memory(lm, config, cell, mesh):
  """Says what much memory is for; refuses what XLA would not even try: it ends the process."""
  shapes = jax.tree.leaves(jax.eval_shape(lm.init, jax.random.key(0)))
  if sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes) >= 2**40:
    raise InputError("the parameters would take a terabyte or more; lower --hidden_size, "
                     "--embedding_size or --vocab_size")
  of_a_device = dataclasses.replace(config, batch_size=config.batch_size // mesh.shape["data"])
  note = memory.note(memory.estimate(lm, of_a_device, cell), memory.available())
  if note:
    say(note)


def _with_vocabulary(model, tokenizer):
  if model.vocab_size not in (0, tokenizer.vocab_size):
    raise InputError(f"ModelConfig.vocab_size is {model.vocab_size} and the tokenizer has "
                     f"{tokenizer.vocab_size} ids; needed: equal, or 0 to take the tokenizer's")
  return dataclasses.replace(model, vocab_size=tokenizer.vocab_size)
