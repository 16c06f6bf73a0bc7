"""What of hklm must be pure, each with arguments to call it with; `library_test` checks it.

Arguments are built when a case is asked for, so that collecting the tests compiles nothing.
"""

import dataclasses
import functools
import json
from collections.abc import Callable

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from hklm import config, ids, losses, metrics, model, parameters, resuming, run, safetensors
from hklm.config import checks
from hklm.data import (
  base,
  bpe,
  characters,
  corpora,
  cuts,
  nbest,
  random_streams,
  sources,
  streams,
  texts,
  tokenizers,
  words,
)
from hklm.inference import (
  evaluate,
  generate,
  lines,
)
from hklm.interop import stablehlo
from hklm.nn import (
  catalogue,
  cells,
  cudnn,
  embedding,
  initializers,
  product,
  regularisers,
  reverse_only,
  sharded,
  stack,
  varying,
)
from hklm.nn import lstm as lstm_
from hklm.nn.dropout import in_training, window_key
from hklm.nn.heads import sampled
from hklm.training import (
  averages,
  checkpoints,
  gradients,
  logs,
  loop,
  memory,
  mesh,
  optimizers,
  precision,
  processes,
  saver,
  snapshots,
  step,
)
from tests.purity import (
  library_cells,
  library_interop,
  library_report,
  library_scanned,
  library_scoring,
  library_weights,
)
from tests.purity.library_makers import (
  KEY,
  TEXT,
  TRAINING,
  B,
  Call,
  E,
  H,
  T,
  V,
  call,
  cores,
  counting,
  dropped,
  embedded,
  fitted,
  got,
  headed,
  in_cudnns_place,
  inside,
  listed,
  lm,
  lstm_state,
  made_for,
  optimizer,
  params,
  piped_progress,
  random_windows,
  refused,
  reset,
  silent_hooks,
  started,
  text,
  train_state,
  undonated,
  window,
  windows,
  written,
)

MOSES = "0 ||| it is ||| lm= -2 ||| -3.5"
AVERAGED = dataclasses.replace(TRAINING, average="exponential")
ALL_ON = {"accumulate": 2, "compute_dtype": "bfloat16", "remat_steps": 2, "average": "polyak",
          "on_nonfinite": "skip", "optimizer": "sgd"}

def with_key(function, *args) -> Call:
  """A function of Haiku modules, applied with a key."""
  pair = hk.transform(function)
  return call(jax.jit(pair.apply), made_for(pair, *args), KEY(1), *args)


def dropping_weights(xs: jax.Array):
  core = cells.LSTM(H)
  with regularisers.weight_dropout(core, xs, core.initial_state(B), 0.5):
    return core.parameters(E)


def naming_bad(flag: str):
  with sources.naming(flag):
    sources.check_encoding("utf-9 --corpus")


def _of_a_head(full_name: str, width: int, changes: dict) -> dict[str, Callable[[], Call]]:
  """What makes a head is no call of its own: it shows when the head is called."""
  def case(use):
    return lambda: headed(use, jnp.ones([T, B, width]), hidden_size=width, **changes)
  called = case(lambda head, h: head(h))
  return {full_name: called, f"{full_name}.__call__": called,
          f"{full_name}.nats": case(lambda head, h: head.nats(h, window()[1:]))}


_ARGUMENTS = {"encode": (TEXT,), "encode_with_offsets": (TEXT,), "decode": ([1, 0, 2],),
              "decode_stream": ([1, 0, 2],), "symbol": (1,), "to_json": (), "fingerprint": (),
              "vocab_size": (), "unknown": (), "end_of_line": ()}


def _of_tokenizers() -> dict[str, Callable[[], Call]]:
  """Every method and property of every tokenizer, the inherited ones too."""
  cases = {}
  for cls, kind in ((characters.CharTokenizer, "char"), (characters.ByteTokenizer, "byte"),
                    (words.WordTokenizer, "word"), (bpe.BpeTokenizer, "bpe")):
    for name, args in _ARGUMENTS.items():
      owner = next(owner for owner in cls.__mro__ if name in vars(owner))
      member = vars(owner)[name]
      if not hasattr(member, "__get__"):
        continue  # a constant
      function = member if callable(member) else got(name)
      if name == "decode_stream":
        function = listed(function)
      full_name = f"{owner.__module__.removeprefix('hklm.')}.{owner.__qualname__}.{name}, {kind}"
      cases[full_name] = functools.partial(_with_tokenizer, function, kind, args)
  return cases


def _with_tokenizer(function, kind, args) -> Call:
  return call(function, fitted(kind), *args)


_DATA = {
    **_of_tokenizers(),
    "data.base.decode_utf8": lambda: call(listed(base.decode_utf8), [b"a", b"\xc3", b"\xa9"]),
    "data.base.describe": lambda: call(base.describe, "é"),
    "data.base.id_dtype": lambda: call(base.id_dtype, 257),
    "data.base.printable": lambda: call(base.printable, b"tab\t\xc3"),
    "data.base.utf8": lambda: call(base.utf8, TEXT),
    "data.bpe.BpeTokenizer": lambda: call(
        bpe.BpeTokenizer, fitted("bpe").pieces, fitted("bpe").merges),
    "data.bpe.BpeTokenizer.build": lambda: call(
        bpe.BpeTokenizer.build, config.TokenizerConfig("bpe", vocab_size=260), [TEXT]),
    "data.characters.CharTokenizer": lambda: call(characters.CharTokenizer, "abc"),
    "data.characters.CharTokenizer.build": lambda: call(characters.CharTokenizer.build, [TEXT]),
    "data.words.WordTokenizer": lambda: call(words.WordTokenizer, ("cab", "cat")),
    "data.words.WordTokenizer.build": lambda: call(
        words.WordTokenizer.build, config.TokenizerConfig("word", lowercase=True), [TEXT]),
    "data.tokenizers.build": lambda: call(
        tokenizers.build, config.TokenizerConfig("word"), [TEXT]),
    "data.tokenizers.from_json": lambda: call(tokenizers.from_json, fitted("word").to_json()),
    "data.cuts.cut": lambda: call(listed(cuts.cut), ["one\ntwo th", "ree\nfour"], 8),
    "data.cuts.last_cut": lambda: call(cuts.last_cut, "ab\ncd ef", 6),
    "data.cuts.lines": lambda: call(listed(cuts.lines), ["one\ntwo th", "ree\nfour"], 4),
    "data.cuts.next_cut": lambda: call(cuts.next_cut, "ab cd\nef\n", 2),
    "data.cuts.whole": lambda: call(listed(cuts.whole), [("a", False), ("b", True)]),
    "data.nbest.Hypothesis.written": lambda: call(
        nbest.Hypothesis.written, nbest.parse_moses(1, MOSES), -2.5),
    "data.nbest.number": lambda: call(nbest.number, -2.5),
    "data.nbest.parse_kaldi": lambda: call(nbest.parse_kaldi, 1, "a-b-1 it is"),
    "data.nbest.parse_moses": lambda: call(nbest.parse_moses, 1, MOSES),
    "data.corpora.corpus_of": lambda: call(corpora.corpus_of, TEXT),
    "data.corpora.builtin_corpus": lambda: call(corpora.builtin_corpus),
    "data.corpora.Corpus.chunks": lambda: call(listed(corpora.Corpus.chunks), written()),
    "data.corpora.Corpus.documents": lambda: call(got("documents"), written()),
    "data.corpora.Corpus.fingerprint": lambda: call(corpora.Corpus.fingerprint, written()),
    "data.corpora.Corpus.length": lambda: call(corpora.Corpus.length, written()),
    "data.corpora.Corpus.part": lambda: call(corpora.Corpus.part, written(), 2, 5),
    "data.corpora.Corpus.split": lambda: call(
        corpora.Corpus.split, written(), 0.25, 0.25, False, True),
    "data.sources.naming": lambda: call(refused(naming_bad), "--input"),
    "data.texts.compared": lambda: call(texts.compared, text(), texts.Published((1, 2), 3)),
    "data.texts.was_validation": lambda: call(
        texts.was_validation, text().train, "ab-cd"),
    "data.sources.Source.read_bytes": lambda: call(
        listed(sources.Source.read_bytes), *written().sources),
    "data.sources.Source.read_text": lambda: call(
        listed(sources.Source.read_text), *written().sources, "utf-8"),
    "data.sources.check_encoding": lambda: call(sources.check_encoding, "latin-1"),
    "data.streams.Streams": lambda: call(streams.Streams, np.arange(12), 2, 3),
    "data.streams.Streams.__getitem__": lambda: call(streams.Streams.__getitem__, windows(), 1),
    "data.streams.Streams.at": lambda: call(streams.Streams.at, windows(), 3),
    "data.streams.Streams.read": lambda: call(streams.Streams.read, windows(), 1, 2),
    "data.streams.Streams.updates_in": lambda: call(streams.Streams.updates_in, windows(), 3),
    "data.random_streams.RandomStreams.at": lambda: call(
        random_streams.RandomStreams.at, random_windows(), 5),
    "data.random_streams.RandomStreams.left_out": lambda: call(got("left_out"), random_windows()),
    "data.random_streams.RandomStreams.updates_in": lambda: call(
        random_streams.RandomStreams.updates_in, random_windows(), 2),
    "data.streams.Streams.__len__": lambda: call(streams.Streams.__len__, windows()),
    "data.streams.Streams.left_out": lambda: call(got("left_out"), windows()),
    "data.streams.Streams.targets": lambda: call(got("targets"), windows()),
    "ids.check_ids": lambda: call(ids.check_ids, np.array([0, 3, 2]), V),
    "ids.cover": lambda: call(listed(ids.cover), np.arange(1, 7), 2, 2),
}

_VALUES = {
    "config.model.ModelConfig": lambda: call(
        functools.partial(config.ModelConfig, forget_bias=1, dtype="bfloat16"), V),
    "config.model.ModelConfig.sizes": lambda: call(got("sizes"), TRAINING.model),
    "config.model.ModelConfig.output_sizes": lambda: call(got("output_sizes"), TRAINING.model),
    "config.model.ModelConfig.top_size": lambda: call(got("top_size"), TRAINING.model),
    "config.tokenizer.TokenizerConfig": lambda: call(config.TokenizerConfig, "word", 0, 2),
    "config.training.TrainConfig": lambda: call(config.TrainConfig, TRAINING.model),
    "config.jsons.to_json": lambda: call(config.to_json, TRAINING),
    "config.jsons.from_json": lambda: call(
        config.from_json, config.TrainConfig, json.loads(json.dumps(config.to_json(TRAINING)))),
    "config.checks.at_least": lambda: call(refused(checks.at_least), TRAINING, 9, "seed"),
    "config.checks.check_types": lambda: call(checks.check_types, TRAINING.model),
    "config.checks.finite": lambda: call(checks.finite, TRAINING, "clip"),
    "config.checks.one_of": lambda: call(
        functools.partial(refused(functools.partial(checks.one_of, loss=("a",))), TRAINING)),
    "config.checks.rates": lambda: call(checks.rates, TRAINING, "momentum"),
    "config.checks.sizes": lambda: call(checks.sizes, TRAINING, 1, "decay_at"),
    "metrics.perplexity": lambda: call(metrics.perplexity, 3.0, 2),
    "metrics.Metrics.__add__": lambda: call(
        metrics.Metrics.__add__, metrics.Metrics(3.0, 2), metrics.Metrics(1.0, 1)),
    "metrics.Metrics.bits_per": lambda: call(
        metrics.Metrics.bits_per, metrics.Metrics(3.0, 2), 5),
    **{f"metrics.Metrics.{name}": lambda name=name: call(
        got(name), metrics.Metrics(3.0, 2, 1.0, 1))
       for name in ("nats_per_token", "bits_per_token", "perplexity", "known_perplexity")},
    "parameters.check": lambda: call(parameters.check, parameters.flat(params()), lm()),
    "parameters.check_finite": lambda: call(parameters.check_finite, parameters.flat(params())),
    "parameters.described": lambda: call(parameters.described, lm()),
    "parameters.flat": lambda: call(parameters.flat, params()),
    "parameters.nested": lambda: call(parameters.nested, parameters.flat(params()), lm()),
    "parameters.shapes": lambda: call(parameters.shapes, lm()),
    "safetensors.contents": lambda: call(safetensors.contents, params(), "a run"),
    "interop.stablehlo.functions": lambda: call(stablehlo.functions, lm()),
    "run.checkpoint_folder": lambda: call(run.checkpoint_folder, "runs/1"),
    "resuming.check_same": lambda: call(
        resuming.check_same, run.Contents(TRAINING, None), TRAINING),
    "run.Contents.identity": lambda: call(
        run.Contents.identity.fget, run.Contents(TRAINING, fitted("char"))),
    "resuming.Found.base_fingerprint": lambda: call(
        resuming.Found.base_fingerprint.fget,
        resuming.Found(None, None, {}, run.Run(lm(), params(), None, TRAINING, "runs/1"))),
    "resuming.fingerprint": lambda: call(resuming.fingerprint, params()),
    "resuming.fitting": lambda: call(
        resuming.fitting, run.Run(lm(), params(), None, TRAINING, "runs/1"), lm()),
}

_MODEL = {
    "losses.linear_nats": lambda: call(
        losses.linear_nats, jnp.ones([B, H]), jnp.ones([V, H]), jnp.ones([V]), jnp.array([0, 3])),
    "losses.sharded_nats": lambda: call(
        losses.sharded_nats, jnp.ones([T, B, H]), jnp.ones([V, H]), None, window()[1:]),
    "losses.token_nats": lambda: call(losses.token_nats, jnp.zeros([B, V]), jnp.array([0, 3])),
    "model.check_machine": lambda: call(model.check_machine, TRAINING.model),
    "model.import_cell": lambda: call(model.import_cell, "experiments.own_cell:mgu"),
    "model.language_model": lambda: call(model.language_model, TRAINING.model),
    "nn.cudnn.available": lambda: call(cudnn.available),
    "nn.cudnn.check": lambda: call(refused(cudnn.check), "float32"),
    "nn.cudnn.pack": lambda: call(cudnn.pack, jnp.ones([4 * H, E]), jnp.ones([4 * H, H]),
                                  jnp.ones([4 * H])),
    "nn.cudnn.sequence": lambda: call(
        functools.partial(cudnn.sequence, lstm=in_cudnns_place), jnp.ones([4 * H, E]),
        jnp.ones([4 * H, H]), jnp.ones([4 * H]), jnp.ones([T, B, E]), *lstm_state()),
    "nn.cudnn.supported": lambda: call(cudnn.supported, "float32", window() > 0),
    "nn.dropout.dropout, a window": lambda: dropped(per_step=False),
    "nn.dropout.dropout, a step": lambda: dropped(per_step=True),
    "nn.embedding.Embedding": lambda: embedded(lambda embed, tokens: embed.table[tokens]),
    "nn.embedding.Embedding.__call__": lambda: embedded(lambda embed, tokens: embed(tokens)),
    "nn.embedding.Embedding.lookup": lambda: embedded(lambda embed, tokens: embed.lookup(tokens)),
    "nn.embedding.Embedding.table": lambda: embedded(lambda embed, tokens: embed.table),
    "nn.heads.head": lambda: headed(lambda head, h: head(h), jnp.ones([B, H])),
    **{name: made
       for full_name, changes, D in (
           ("linear.LinearHead", {}, H),
           ("projected.Projected", {"head_projection": True}, H),
           ("mixture.MixtureHead", {"head": "mixture"}, H),
           ("adaptive.AdaptiveHead", {"head": "adaptive", "adaptive_cutoffs": (2,)}, 4),
           ("sampled.SampledHead", {"head": "sampled", "sampled_tokens": 2}, H))
       for name, made in _of_a_head(f"nn.heads.{full_name}", D, changes).items()},
    "nn.heads.linear.LinearHead.parameters": lambda: headed(lambda head: head.parameters(H)),
    "nn.heads.sampled.chances": lambda: call(sampled.chances, V, 2),
    "nn.heads.sampled.draw": lambda: call(sampled.draw, KEY(0), np.ones(V)),
    "nn.heads.sampled.sampled_nats": lambda: call(
        sampled.sampled_nats, jnp.ones([T, B, H]), jnp.ones([V, H]), jnp.ones(V), window()[1:],
        jnp.arange(2), np.ones(V)),
    "nn.initializers.parse": lambda: call(initializers.parse, "unit,cell=normal_fan", H),
    "nn.lstm.sequence": lambda: call(
        lstm_.sequence, jnp.ones([4 * H, E]), jnp.ones([4 * H, H]), jnp.ones([4 * H]),
        jnp.ones([T, B, E]), *lstm_state(), window()[:T] > 0),
    "nn.product.times": lambda: call(product.times, jnp.ones([1, E]), jnp.ones([H, E])),
    "nn.sharded.by_device": lambda: call(
        lambda x: sharded.by_device(jnp.sin, sharded.ROWS, sharded.ROWS, 2)(x), jnp.ones(2)),
    "nn.sharded.parts": lambda: call(sharded.parts, "data"),
    "nn.varying.alike": lambda: call(lambda x, y: varying.alike(x, (y,)), 1.0, np.ones(2)),
    "nn.reverse_only.reverse_only": lambda: call(
        lambda x: jax.grad(lambda x: reverse_only.reverse_only(x, "no jvp here"))(x), 1.0),
    "nn.catalogue.core": lambda: inside(
        lambda x: catalogue.core(TRAINING.model, 0)(x, lstm_state()), jnp.ones([B, E])),
    "nn.catalogue.input_size": lambda: call(catalogue.input_size, TRAINING.model, 0),
    "nn.dropout.in_training": lambda: inside(in_training),
    "nn.dropout.window_key": lambda: with_key(lambda: window_key(0.5)),
    "nn.embedding.row_dropout": lambda: with_key(
        lambda x, ids: embedding.row_dropout(x, ids, V, 0.5), jnp.ones([T, B, E]),
        jnp.zeros([T, B], int)),
    "nn.regularisers.draw": lambda: with_key(
        lambda state: regularisers.draw(state, T, 0.5, 0.3, 0.2), lstm_state()),
    "nn.regularisers.dropped": lambda: call(
        lambda state: regularisers.dropped(state, jnp.ones([B, H], bool), 0.5), lstm_state()),
    "nn.regularisers.penalties": lambda: call(
        lambda h: regularisers.penalties(h, h, 1.0, 2.0, None), jnp.ones([T, B, H])),
    "nn.regularisers.weight_dropout": lambda: with_key(dropping_weights, jnp.ones([T, B, E])),
    "nn.regularisers.zoneout": lambda: call(
        lambda old: regularisers.zoneout(old, old, 0.3, 0.2, None), lstm_state()),
    "nn.stack.Reading.at_once": lambda: call(stack.Reading("fused").at_once, None),
    "nn.stack.initial_state": lambda: inside(started),
    "nn.stack.traces": lambda: inside(
        lambda xs: stack.traces(cores(), xs, started(), stack.Reading()), jnp.ones([T, B, E])),
    "nn.stack.unroll": lambda: inside(
        lambda xs, mask: stack.unroll(cores(), xs, started(), mask, stack.Reading("fused")),
        jnp.ones([T, B, E]), window()[1:] > 0),
    "inference.evaluate.evaluate": lambda: call(
        evaluate.evaluate, lm(), params(), [0, 1, 2, 3, 0], 2, 2, 3),
    "inference.generate.filter_logits": lambda: call(
        generate.filter_logits, jnp.log(jnp.array([[.5, .3, .2]])), jnp.int32(3), jnp.float32(.6)),
    "inference.generate.generate": lambda: call(
        generate.generate, lm(), params(), KEY(0), 3, [1], 0.5, 3, 0.9, 2, 0),
    "inference.generate.generate_stream": lambda: call(
        listed(generate.generate_stream), lm(), params(), KEY(0), 3, [1]),
    "inference.lines.groups": lambda: call(lambda *x: list(lines.groups(*x)), [3, 0, 40], 10),
    "inference.lines.score_lines": lambda: call(
        lines.score_lines, lm(), params(), [[0, 1, 2], [], [3]]),
}

_TRAINING = {
    # Where nothing is drawn, nothing is to be put away.
    "training.logs.Progress.close": lambda: call(logs.Progress.close, piped_progress()),
    "training.loop.run": lambda: call(
        loop.run, counting, train_state(), loop.Progress(), windows(), 3, silent_hooks(), 2, 0,
        0.5),
    "training.checkpoints.step": lambda: call(checkpoints.step, "best-12"),
    "training.saver.check_finite": lambda: call(saver.check_finite, params(), "params"),
    "training.saver.Saver.check": lambda: call(saver.Saver.check, saver.Saver("nowhere", 1)),
    "training.saver.Saver.wait": lambda: call(saver.Saver.wait, saver.Saver("nowhere", 1)),
    "training.snapshots.parts": lambda: call(snapshots.parts, train_state()),
    "training.snapshots.about": lambda: call(snapshots.about, loop.Progress(), 3),
    "data.texts.Text.fingerprint": lambda: call(texts.Text.fingerprint.fget, text()),
    "data.texts.Text.description": lambda: call(texts.Text.description.fget, text()),
    "training.memory.available": lambda: call(memory.available),
    "training.memory.estimate": lambda: call(memory.estimate, lm(), TRAINING),
    "training.memory.note": lambda: call(memory.note, 3 * 2**30, 2**33),
    "training.mesh.columns": lambda: call(lambda: mesh.columns(mesh.make(TRAINING, 1), B)),
    "training.mesh.init": lambda: call(
        lambda state: mesh.init(mesh.make(TRAINING, 1), lambda: state, tied=False),
        train_state()),
    "training.mesh.local": lambda: call(mesh.local, params()),
    "training.mesh.make": lambda: call(lambda: dict(mesh.make(TRAINING, 1).shape)),
    "training.mesh.place": lambda: call(
        lambda state: mesh.place(mesh.make(TRAINING, 1), state, tied=False), train_state()),
    "training.mesh.shardings": lambda: call(
        lambda state: str(mesh.shardings(mesh.make(TRAINING, 1), state, tied=False)),
        train_state()),
    "training.mesh.update": lambda: call(
        lambda state: mesh.update(mesh.make(TRAINING, 1), counting, state), train_state()),
    "training.optimizers.optimizer": lambda: call(optimizers.optimizer, TRAINING, 10, lambda n: n),
    **{f"training.optimizers.optimizer, its update by {name}": lambda name=name: call(
        jax.jit(optimizer(optimizer=name, schedule="constant").update), jnp.ones([2]),
        optimizer(optimizer=name).init(jnp.ones([2])), jnp.ones([2]))
       for name in config.training.OPTIMIZERS},
    "training.optimizers.schedule": lambda: call(optimizers.schedule, TRAINING, 10, lambda n: n),
    **{f"training.optimizers.schedule, its {name} rate": lambda name=name: call(
        optimizers.schedule(dataclasses.replace(TRAINING, schedule=name, warmup=2), 10,
                            lambda n: n),
        jnp.int32(3)) for name in config.training.SCHEDULES},
    "training.averages.move": lambda: call(
        averages.move, jnp.ones([2]), jnp.zeros([2]), jnp.int32(3), AVERAGED),
    "training.averages.seen": lambda: call(
        averages.seen, averages.History(2, (3.0, 2.0)), 2.5, dataclasses.replace(
            TRAINING, average="polyak", average_trigger="nonmonotone", average_patience=1)),
    "training.averages.starts_after": lambda: call(averages.starts_after, AVERAGED),
    "training.averages.start": lambda: call(averages.start, jnp.ones([2]), AVERAGED),
    "training.gradients.make_gradient": lambda: call(gradients.make_gradient, lm(), TRAINING),
    "training.precision.cast": lambda: call(
        precision.cast, params(), dataclasses.replace(TRAINING, compute_dtype="bfloat16")),
    "training.precision.computing": lambda: call(precision.computing, lm(), TRAINING),
    "training.precision.wide": lambda: call(precision.wide, "bfloat16"),
    "training.step.averaging": lambda: call(step.averaging, train_state(average="polyak")),
    "training.step.evaluated": lambda: call(step.evaluated, train_state(average="polyak")),
    "training.processes.is_first": lambda: call(processes.is_first),
    "training.processes.start": lambda: call(refused(processes.start), "", 2, 2),
    "training.processes.wait_for_all": lambda: call(processes.wait_for_all, "nothing"),
    "training.processes.stop_wanted": lambda: call(processes.stop_wanted, 3),
    "training.step.init": lambda: call(step.init, lm(), optimizer(), B, 0),
    "training.step.make_update": lambda: call(step.make_update, lm(), optimizer()),
    "training.step.make_update, its update with all that is off": lambda: call(
        undonated(**ALL_ON), train_state(**ALL_ON), window(), reset()),
}

PURE: dict[str, Callable[[], Call]] = {
    **_DATA, **_VALUES, **_MODEL, **_TRAINING, **library_cells.PURE, **library_interop.PURE,
    **library_report.PURE, **library_scanned.PURE, **library_scoring.PURE, **library_weights.PURE}
