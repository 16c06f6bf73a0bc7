"""What of hklm is impure by its nature, and what a check must say of it: no less and no more.

It reads or writes files, says something, or trains: the edge of the library, around the functions
of `library_pure`. Arguments are made in a folder that is given.
"""

import contextlib
import dataclasses
import functools
import io
import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hklm import files, resuming, run, safetensors, trainer, watching
from hklm.config import ModelConfig
from hklm.data import comparisons, corpora, encoding, nbest, sources, tables, texts, tokenizers
from hklm.inference import states
from hklm.interop import folders, stablehlo, vocabulary
from hklm.report import curves, events, facts, html, inside, plots, png
from hklm.training import checkpoints, logs, loop, meeting, memory, saver, snapshots
from tests import on_disk
from tests.purity import library_weights
from tests.purity.library_makers import (
  TEXT,
  TRAINING,
  Call,
  call,
  fitted,
  listed,
  lm,
  params,
  piped_progress,
  train_state,
)
from tests.report import made

READS, WRITES, SAYS = "reads files", "changes files", "writes to standard error"
CLOCK, SYSTEM, THREAD = "reads the clock", "asks the system", "leaves a thread running"
WARNS, LOGS = "writes to standard error, as a warning", "writes to the log"

BENEATH = (CLOCK, SYSTEM, THREAD, WARNS, LOGS)


class Impure(NamedTuple):
  """A case.

  Attributes:
    whats: what a check must find.
    made_in: what to call, given a folder of its own.
    beneath: what it may find besides, from beneath hklm: orbax and matplotlib take times, ask
      for their thread and warn, a thread of orbax ends when it will, and asyncio logs what it finds
      slow.
  """

  whats: tuple[str, ...]
  made_in: Callable[[str], Call]
  beneath: tuple[str, ...] = ()


def text_file(folder: str, text: str = TEXT) -> str:
  path = os.path.join(folder, "text")
  with open(path, "w", encoding="utf-8") as file:
    file.write(text)
  return path


def source(folder: str) -> sources.Source:
  return sources.find(text_file(folder))[0]


def corpus(folder: str) -> corpora.Corpus:
  return corpora.open_corpus(text_file(folder))


def tokenizer_file(folder: str) -> str:
  path = os.path.join(folder, "tokenizer.json")
  tokenizers.save(fitted("char"), path)
  return path


def checkpoint(folder: str) -> str:
  return checkpoints.write(os.path.join(folder, "checkpoints"), "step", 1,
                           snapshots.parts(train_state()),
                           snapshots.about(loop.Progress(), 4))


def metrics_file(folder: str) -> str:
  path = os.path.join(folder, "metrics.jsonl")
  open(path, "w").close()
  for number in (1, 2):
    logs.append_jsonl(path, step=number, train_nats_per_token=2.0 / number,
                      valid_nats_per_token=3.0 / number)
  return path


def run_directory(folder: str) -> str:
  """What `train` leaves behind, but never trained."""
  path = run.create(os.path.join(folder, "run"), run.Contents(TRAINING, four()))
  on_disk.write(path, "last", params())
  return path


def four():
  """A tokenizer with as many ids as the model."""
  return tokenizers.CharTokenizer("abcd")


WEIGHTS = run.Contents(TRAINING, four())


# Parameters that are no arguments: orbax cannot take what is traced.
def writing(folder: str):
  checkpoints.write(folder, "step", 1, {"params": params()}, {})


def restoring(path: str):
  return checkpoints.restore(path, "params", params())


def claiming(path: str):
  with run.claimed(path):
    pass


def setting_aside(path: str):
  os.rename(checkpoints.set_aside(path), path)  # so that it can be done again


def removing(path: str):
  shutil.copytree(path, path + "0")
  checkpoints.remove(path + "0")


def sweeping(folder: str):
  os.mkdir(os.path.join(folder, ".unfinished-step-2"))
  checkpoints.sweep(folder)


def restoring_a_state(path: str):
  return snapshots.restored(path, checkpoints.manifest(path), train_state())[0].params


def saving(folder: str):
  saves = saver.Saver(folder, 1)
  saves.save("step", 1, {"params": params()}, {})
  saves.wait()


def making_progress() -> Call:
  piped_progress()  # with the first one of a process tqdm starts a thread, once and for all
  return call(logs.Progress, 0, 2, "char")


def plotting(folder: str) -> Call:
  args = metrics_file(folder), os.path.join(folder, "curves.png"), "char"
  curves.plot(*args)  # the first plot of a process imports matplotlib, which marks `builtins`
  return call(curves.plot, *args)


def drawing(function, *args) -> Call:
  """A function that draws, its last argument a folder."""
  *args, folder = args
  args.append(os.path.join(folder, "plot.png"))
  function(*args)  # as above
  return call(function, *args)


def drawing_nothing(path: str):
  with png.drawn(path, 1, 1):
    pass


def written_whole(path: str):
  with files.whole(path) as file:
    file.write(b"text")


def filling(opened, path: str):
  with opened(path) as folder, open(os.path.join(folder, "file"), "wb") as file:
    file.write(b"text")
  shutil.rmtree(path)  # so that it can be done again


def saving_weights(path: str):
  folders.save(path, WEIGHTS, params())
  shutil.rmtree(path)  # as above


def saving_functions(path: str):
  stablehlo.save(path, lm(), params(), four())
  shutil.rmtree(path)  # as above


def weights_file(folder: str) -> str:
  path = os.path.join(folder, "model.safetensors")
  with open(path, "wb") as file:
    file.write(safetensors.contents(params(), WEIGHTS.identity))
  return path


def saving_states(path: str):
  with files.written_whole(path, "states") as file:
    states.save(file, made.facts().states)


def writing_events(folder: str):
  with events.writer(folder, 0) as write:
    write(1, {"train_nats_per_token": 2.0})


def writing_events_again(folder: str) -> Call:
  writing_events(folder)  # the first ones of a process import tensorboardX
  return call(writing_events, folder)


def watching_nothing(folder: str):
  text = texts.Text(four(), encoding.encode_corpus(four(), corpora.corpus_of("abcd")), None)
  with watching.watch(folder, lm(), text, TRAINING, lambda step: 0.1, 2):
    pass


def watching_again(folder: str) -> Call:
  piped_progress()  # as above
  logs.keep_rows(os.path.join(folder, "metrics.jsonl"), 0)  # so that it is there
  with contextlib.redirect_stderr(io.StringIO()):
    watching_nothing(folder)  # as above
  return call(watching_nothing, folder)


def training(folder: str) -> Call:
  """The shortest run there is."""
  piped_progress()  # as above
  config = dataclasses.replace(
      TRAINING, model=ModelConfig(embedding_size=0, hidden_size=1), steps=1, optimizer="sgd",
      schedule="constant", clip=0.0, valid_fraction=0.0)
  return call(functools.partial(trainer.train, overwrite=True), config,
              os.path.join(folder, "run"), corpora.corpus_of(TEXT))


IMPURE: dict[str, Impure] = {
    **{name: Impure((READS,), made_in) for name, made_in in library_weights.READING.items()},
    "interop.vocabulary.read": Impure((READS,), lambda folder: call(
        vocabulary.read, text_file(folder, "a\nb\n"))),
    "data.tables.items": Impure((READS,), lambda folder: call(
        listed(tables.items), text_file(folder, "n,text\n1,a b\n"), "text")),
    "data.corpora.open_corpus": Impure((READS,), lambda folder: call(
        corpora.open_corpus, text_file(folder))),
    "data.corpora.Corpus.chunks, of a file": Impure((READS,), lambda folder: call(
        listed(corpora.Corpus.chunks), corpus(folder))),
    "data.corpora.Corpus.fingerprint, of a file": Impure((READS,), lambda folder: call(
        corpora.Corpus.fingerprint, corpus(folder))),
    "data.corpora.Corpus.length, of a file": Impure((READS,), lambda folder: call(
        corpora.Corpus.length, corpus(folder))),
    "data.corpora.Corpus.part, of a file": Impure((READS,), lambda folder: call(
        corpora.Corpus.part, corpus(folder), 2, 5)),
    "data.corpora.Corpus.split, of a file": Impure((READS,), lambda folder: call(
        corpora.Corpus.split, corpus(folder), 0.25, 0.25)),
    "data.comparisons.numbered_lines": Impure((READS,), lambda folder: call(
        comparisons.numbered_lines, text_file(folder), "utf-8", "--nbest")),
    "data.comparisons.read_completions": Impure((READS,), lambda folder: call(
        comparisons.read_completions, text_file(folder, "a\tb\n"))),
    "data.comparisons.read_pairs": Impure((READS,), lambda folder: call(
        comparisons.read_pairs, [text_file(folder, "a\tb\n")])),
    "data.nbest.read": Impure((READS,), lambda folder: call(
        nbest.read, text_file(folder, "u-1 a\n"))),
    "data.nbest.read_references": Impure((READS,), lambda folder: call(
        nbest.read_references, text_file(folder, "u a\n"), [nbest.parse_kaldi(1, "u-1 a")])),
    "data.texts.prepare": Impure((WRITES,), lambda folder: call(
        texts.prepare, TRAINING, corpora.corpus_of(2 * TEXT))),
    "data.encoding.encode_corpus": Impure((WRITES,), lambda folder: call(
        encoding.encode_corpus, fitted("byte"), corpora.corpus_of(TEXT))),
    "data.sources.Source.read_bytes, of a file": Impure((READS,), lambda folder: call(
        listed(sources.Source.read_bytes), source(folder))),
    "data.sources.Source.read_text, of a file": Impure((READS,), lambda folder: call(
        listed(sources.Source.read_text), source(folder), "utf-8")),
    "data.sources.find": Impure((READS,), lambda folder: call(sources.find, text_file(folder))),
    "data.tokenizers.load": Impure((READS,), lambda folder: call(
        tokenizers.load, tokenizer_file(folder))),
    "data.tokenizers.save": Impure((WRITES, SYSTEM, READS), lambda folder: call(
        tokenizers.save, fitted("char"), os.path.join(folder, "tokenizer.json"))),
    "report.curves.plot": Impure((READS, WRITES), plotting, BENEATH),
    "report.facts.collect": Impure((READS,), lambda folder: call(
        facts.collect, run.Run(lm(), params(), four(), TRAINING, folder), ["ab"], "text")),
    "report.html.page": Impure((READS,), lambda folder: call(html.page, made.facts())),
    "report.plots.cells": Impure((WRITES,), functools.partial(
        drawing, plots.cells, inside.Values("output", np.ones([2, 3]))), (READS, *BENEATH)),
    "report.plots.saturation": Impure((WRITES,), functools.partial(
        drawing, plots.saturation, made.facts().states), (READS, *BENEATH)),
    "report.plots.surprisal": Impure((WRITES,), functools.partial(
        drawing, plots.surprisal, [made.line("ab")], made.V), (READS, *BENEATH)),
    "report.png.drawn": Impure((WRITES,), lambda folder: drawing(
        drawing_nothing, folder), (READS, *BENEATH)),
    "files.whole": Impure((WRITES, SYSTEM, READS), lambda folder: call(
        written_whole, os.path.join(folder, "file"))),
    "files.written_whole": Impure((WRITES, SYSTEM, READS), lambda folder: call(
        saving_states, os.path.join(folder, "states.npz"))),
    "inference.states.save": Impure((WRITES, SYSTEM, READS), lambda folder: call(
        saving_states, os.path.join(folder, "states.npz"))),
    "report.events.writer": Impure((READS, WRITES), writing_events_again, BENEATH),
    "files.whole_folder": Impure((WRITES, READS), lambda folder: call(
        filling, files.whole_folder, os.path.join(folder, "new"))),
    "files.written_folder": Impure((WRITES, READS), lambda folder: call(
        filling, functools.partial(files.written_folder, flag="output", names=()),
        os.path.join(folder, "new"))),
    "interop.folders.save": Impure((WRITES, SYSTEM, READS), lambda folder: call(
        saving_weights, os.path.join(folder, "weights"))),
    "safetensors.read": Impure((READS,), lambda folder: call(
        safetensors.read, weights_file(folder), lm(), WEIGHTS.identity)),
    "interop.stablehlo.exported": Impure(  # equal bytes, but a lowering has its names anew
        ("what jit records differs from trace to trace",), lambda folder: call(
            stablehlo.exported, lm())),
    "interop.stablehlo.save": Impure((WRITES, SYSTEM, READS), lambda folder: call(
        saving_functions, os.path.join(folder, "functions"))),
    "run.holds_weights": Impure((READS,), lambda folder: call(run.holds_weights, folder)),
    "run.write_contents": Impure((WRITES, SYSTEM, READS), lambda folder: call(
        run.write_contents, folder, run.Contents(TRAINING, four()))),
    "run.check_free": Impure((READS,), lambda folder: call(
        run.check_free, os.path.join(folder, "run"))),
    "run.create": Impure((READS, WRITES, SYSTEM), lambda folder: call(
        run.create, os.path.join(folder, "run"), run.Contents(TRAINING, four()), True)),
    "resuming.find": Impure((READS,), lambda folder: call(
        resuming.find, run_directory(folder), TRAINING, True)),
    "resuming.Found.complete": Impure((READS,), lambda folder: call(
        resuming.Found.complete.fget, resuming.Found(None, checkpoint(folder), {}, None))),
    "resuming.make_as_it_was": Impure((READS, WRITES, SYSTEM), lambda folder: call(
        resuming.make_as_it_was, os.path.dirname(os.path.dirname(checkpoint(folder))), "", 1, {})),
    "resuming.with_the_best_there_is": Impure((READS, SAYS), lambda folder: call(
        resuming.with_the_best_there_is, folder, "", loop.Progress(1.0, 1.0, best_step=1))),
    "run.load_run": Impure((READS,), lambda folder: call(run.load_run, run_directory(folder)),
                           BENEATH),
    "run.next_free": Impure((READS,), lambda folder: call(run.next_free, folder)),
    "run.read_config": Impure((READS,), lambda folder: call(
        run.read_config, run_directory(folder))),
    "run.read_contents": Impure((READS,), lambda folder: call(
        run.read_contents, run_directory(folder))),
    "run.claimed": Impure((READS,), lambda folder: call(claiming, run_directory(folder))),
    "run.is_run": Impure((READS,), lambda folder: call(run.is_run, run_directory(folder))),
    "trainer.best_validation": Impure((READS,), lambda folder: call(
        trainer.best_validation, os.path.dirname(metrics_file(folder)))),
    "trainer.train": Impure((READS, WRITES, SAYS), training, BENEATH),
    "training.checkpoints.restore": Impure((READS,), lambda folder: call(
        restoring, checkpoint(folder)), BENEATH),
    "training.checkpoints.write": Impure((READS, WRITES), lambda folder: call(
        writing, os.path.join(folder, "checkpoints")), BENEATH),
    "training.checkpoints.manifest": Impure((READS,), lambda folder: call(
        checkpoints.manifest, checkpoint(folder))),
    "training.checkpoints.is_whole": Impure((READS,), lambda folder: call(
        checkpoints.is_whole, checkpoint(folder))),
    "training.checkpoints.verify": Impure((READS,), lambda folder: call(
        checkpoints.verify, checkpoint(folder))),
    "training.checkpoints.named": Impure((READS,), lambda folder: call(
        checkpoints.named, os.path.dirname(checkpoint(folder)), "step")),
    "training.checkpoints.newest": Impure((READS,), lambda folder: call(
        checkpoints.newest, os.path.dirname(checkpoint(folder)), "step")),
    "training.checkpoints.set_aside": Impure((READS, WRITES), lambda folder: call(
        setting_aside, checkpoint(folder))),
    "training.checkpoints.remove": Impure((READS, WRITES), lambda folder: call(
        removing, checkpoint(folder))),
    "training.checkpoints.sweep": Impure((READS, WRITES), lambda folder: call(
        sweeping, os.path.dirname(checkpoint(folder)))),
    "training.memory.peak": Impure((READS,), lambda folder: call(memory.peak), (
        "output differs when it is called again",
        "what jit records differs from trace to trace")),  # where it grew meanwhile
    "training.saver.Saver": Impure((READS,), lambda folder: call(
        saver.Saver, os.path.dirname(checkpoint(folder)), 1)),
    "training.saver.Saver.save": Impure((READS,), lambda folder: call(
        saving, os.path.join(folder, "checkpoints")), (*BENEATH, WRITES)),  # in a thread of its own
    "training.snapshots.restored": Impure((READS,), lambda folder: call(
        restoring_a_state, checkpoint(folder)), BENEATH),
    "training.logs.Progress": Impure(
        (CLOCK, "output differs when it is called again"), lambda folder: making_progress(),
        (SYSTEM,)),  # where standard error is a real file: whether it is a terminal
    "training.logs.Progress.update": Impure(
        (CLOCK, SAYS, "changes argument 1._said", "changes argument 1._tokens"),
        lambda folder: call(logs.Progress.update, piped_progress(), 2, 1.0, 1.5, 10)),
    "training.logs.append_jsonl": Impure((WRITES,), lambda folder: call(
        functools.partial(logs.append_jsonl, step=1), metrics_file(folder))),
    "training.logs.rows": Impure((READS,), lambda folder: call(logs.rows, metrics_file(folder))),
    "training.logs.keep_rows": Impure((READS, WRITES, SYSTEM), lambda folder: call(
        logs.keep_rows, metrics_file(folder), 1), (SAYS,)),  # a traced number compares with no row
    "training.logs.say": Impure((SAYS,), lambda folder: call(logs.say, "done")),
    "training.meeting.wait": Impure((CLOCK, "uses the network"), lambda folder: call(
        meeting.wait, "127.0.0.1", 0, 1, 0, 1.0)),  # for nobody, at whatever port is free
    "watching.watch": Impure((READS, WRITES, SAYS), watching_again, BENEATH),
}
