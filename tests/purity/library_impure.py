"""What of hklm is impure by its nature, and what a check must say of it: no less and no more.

It reads or writes files, says something, or trains: the edge of the library, around the functions
of `library_pure`. Arguments are made in a folder that is given.
"""

import dataclasses
import functools
import io
import os
from collections.abc import Callable
from typing import NamedTuple

from hklm import run, trainer
from hklm.config import ModelConfig
from hklm.data import corpora, encoding, sources, tokenizers
from hklm.report import curves
from hklm.training import checkpoints, logs
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
)

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
  path = os.path.join(folder, "checkpoint")
  checkpoints.save(path, params())
  return path


def metrics_file(folder: str) -> str:
  path = os.path.join(folder, "metrics.jsonl")
  with open(path, "w", encoding="utf-8") as file:
    for number in (1, 2):
      logs.append_jsonl(file, step=number, train_nats_per_token=2.0 / number,
                        valid_nats_per_token=3.0 / number)
  return path


def run_directory(folder: str) -> str:
  """What `train` leaves behind, but never trained."""
  path = run.create(os.path.join(folder, "run"), TRAINING, four())
  run.write_checkpoint(path, "last", params(), four())
  return path


def four():
  """A tokenizer with as many ids as the model."""
  return tokenizers.CharTokenizer("abcd")


# Parameters that are no arguments: orbax cannot take what is traced.
def saving(path: str):
  checkpoints.save(path, params())


def restoring(path: str):
  return checkpoints.restore(path, params())


def writing(path: str, tokenizer):
  run.write_checkpoint(path, "last", params(), tokenizer)


def making_progress() -> Call:
  piped_progress()  # with the first one of a process tqdm starts a thread, once and for all
  return call(logs.Progress, 2, "char")


def plotting(folder: str) -> Call:
  args = metrics_file(folder), os.path.join(folder, "curves.png"), "char"
  curves.plot(*args)  # the first plot of a process imports matplotlib, which marks `builtins`
  return call(curves.plot, *args)


def training(folder: str) -> Call:
  """The shortest run there is."""
  piped_progress()  # as above
  config = dataclasses.replace(
      TRAINING, model=ModelConfig(embedding_size=0, hidden_size=1), steps=1, optimizer="sgd",
      schedule="constant", clip=0.0, valid_fraction=0.0)
  return call(functools.partial(trainer.train, overwrite=True), config,
              os.path.join(folder, "run"), corpora.corpus_of(TEXT))


IMPURE: dict[str, Impure] = {
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
    "data.encoding.encode_corpus": Impure((WRITES,), lambda folder: call(
        encoding.encode_corpus, fitted("byte"), corpora.corpus_of(TEXT))),
    "data.sources.Source.read_bytes, of a file": Impure((READS,), lambda folder: call(
        listed(sources.Source.read_bytes), source(folder))),
    "data.sources.Source.read_text, of a file": Impure((READS,), lambda folder: call(
        listed(sources.Source.read_text), source(folder), "utf-8")),
    "data.sources.find": Impure((READS,), lambda folder: call(sources.find, text_file(folder))),
    "data.tokenizers.load": Impure((READS,), lambda folder: call(
        tokenizers.load, tokenizer_file(folder))),
    "data.tokenizers.save": Impure((WRITES, SYSTEM), lambda folder: call(
        tokenizers.save, fitted("char"), os.path.join(folder, "tokenizer.json"))),
    "report.curves.plot": Impure((READS, WRITES), plotting, BENEATH),
    "run.check_free": Impure((READS,), lambda folder: call(
        run.check_free, os.path.join(folder, "run"))),
    "run.create": Impure((READS, WRITES, SYSTEM), lambda folder: call(
        run.create, os.path.join(folder, "run"), TRAINING, four(), True)),
    "run.load_run": Impure((READS,), lambda folder: call(run.load_run, run_directory(folder)),
                           BENEATH),
    "run.next_free": Impure((READS,), lambda folder: call(run.next_free, folder)),
    "run.read_checkpoint": Impure((READS,), lambda folder: call(
        run.read_checkpoint, run_directory(folder), "last", lm(), four()), BENEATH),
    "run.read_config": Impure((READS,), lambda folder: call(
        run.read_config, run_directory(folder))),
    "run.write_checkpoint": Impure((READS, WRITES), lambda folder: call(
        writing, folder, four()), BENEATH),
    "trainer.best_validation": Impure((READS,), lambda folder: call(
        trainer.best_validation, os.path.dirname(metrics_file(folder)))),
    "trainer.prepare_text": Impure((WRITES, SAYS), lambda folder: call(
        trainer.prepare_text, TRAINING, corpora.corpus_of(2 * TEXT), ())),
    "trainer.train": Impure((READS, WRITES, SAYS), training, BENEATH),
    "training.checkpoints.restore": Impure((READS,), lambda folder: call(
        restoring, checkpoint(folder)), BENEATH),
    "training.checkpoints.save": Impure((READS, WRITES), lambda folder: call(
        saving, os.path.join(folder, "checkpoint")), BENEATH),
    "training.logs.Progress": Impure(
        (CLOCK, "output differs when it is called again"), lambda folder: making_progress(),
        (SYSTEM,)),  # where standard error is a real file: whether it is a terminal
    "training.logs.Progress.update": Impure(
        (CLOCK, SAYS, "changes argument 1._said", "changes argument 1._tokens"),
        lambda folder: call(logs.Progress.update, piped_progress(), 2, 1.0, 1.5, 10)),
    "training.logs.append_jsonl": Impure(("changes argument 1",), lambda folder: call(
        functools.partial(logs.append_jsonl, step=1), io.StringIO())),
    "training.logs.say": Impure((SAYS,), lambda folder: call(logs.say, "done")),
}
