"""Watching a run: metrics.jsonl, TensorBoard events, curves.png, the progress bar.

None of it changes what is trained, and none but metrics.jsonl can end a run.
"""

import contextlib
import importlib.util
import os
import shlex
import time
from collections.abc import Callable, Iterator

import numpy as np

from hklm.config import TrainConfig
from hklm.data import texts
from hklm.inference.evaluate import evaluate
from hklm.metrics import Metrics
from hklm.model import LanguageModel
from hklm.report import curves, events
from hklm.training import memory, processes
from hklm.training.logs import Progress, append_jsonl, rows, say

METRICS, PICTURE, EVENTS = "metrics.jsonl", "curves.png", "tensorboard"  # in the run directory
UNITS = {"char": "char", "byte": "byte", "word": "word", "bpe": "token"}
_NEEDED = {PICTURE: "matplotlib", EVENTS: "tensorboardX"}  # the extra `plots`


@contextlib.contextmanager
def watch(run_dir: str, lm: LanguageModel, text: texts.Text, config: TrainConfig,
          rate: Callable[[np.ndarray], float], steps: int, done: int = 0,
          unlogged: int = 0) -> Iterator["_Watch"]:
  """Opens what a run is watched by, says how to look at it, and closes it.

  Args:
    run_dir: the run directory.
    lm: the bundle of functions.
    text: what it trains on.
    config: the run.
    rate: the schedule: updates made, int32 `[]`, to the rate of the next.
    steps: updates in all.
    done: updates made.
    unlogged: tokens of those among them that come with the next row.

  Yields:
    The hooks `training` and `validation`, and `paused`, around what takes time and is not training.
  """
  first = processes.is_first()  # of several processes one writes and draws
  metrics_path = os.path.join(run_dir, METRICS) if first else os.devnull
  found = [name for name, package in _NEEDED.items() if first and importlib.util.find_spec(package)]
  with contextlib.ExitStack() as stack:
    progress = stack.enter_context(
        contextlib.closing(Progress(done, steps, UNITS[config.tokenizer.kind])))
    its = _Watch(metrics_path, lm, text, config, rate, progress, unlogged)
    if PICTURE in found:
      its.views[PICTURE] = lambda: curves.plot(
          os.path.join(run_dir, METRICS), os.path.join(run_dir, PICTURE),
          UNITS[config.tokenizer.kind])
    if EVENTS in found:
      with its.unharmed(EVENTS):
        its.views[EVENTS] = stack.enter_context(
            events.writer(os.path.join(run_dir, EVENTS), done))
    _say_how_to_look(run_dir, found)
    yield its
    if its.newer:
      its.draw()


def _say_how_to_look(run_dir, found):
  ways = {PICTURE: os.path.join(run_dir, PICTURE),
          EVENTS: f"tensorboard --logdir={shlex.quote(run_dir)}"}
  say(f"to watch it: {', '.join([os.path.join(run_dir, METRICS), *map(ways.get, found)])}")
  missing = [f"without {package} no {name}" for name, package in _NEEDED.items()
             if name not in found]
  if missing:
    say(f"{', '.join(missing)}: pip install -e '.[plots]'")


class _Watch:
  """The hooks that write metrics.jsonl, draw and move the progress bar."""

  def __init__(self, metrics_path, lm, text, config, rate, progress, unlogged):
    self._lm, self._text, self._config, self._rate = lm, text, config, rate
    self._path, self._progress = metrics_path, progress
    self._unit = UNITS[config.tokenizer.kind]
    self._earlier_tokens = unlogged  # read before this process began
    self._since = time.monotonic()  # training alone, from the last row on
    self._start = self._since - _seconds(metrics_path)
    self._told = set()
    self.views = {}  # what is only looked at: functions by name
    self.newer = True  # whether metrics.jsonl is newer than the picture

  def training(self, step: int, metrics: Metrics, gradient_norm: float, skipped: int,
               rate_factor: float):
    now = time.monotonic()
    tokens, self._earlier_tokens = metrics.tokens - self._earlier_tokens, 0
    # The schedule counts the updates that were made, from 0.
    rate = float(self._rate(np.int32(max(0, step - skipped - 1)))) * rate_factor
    self._progress.update(step, metrics.nats_per_token, metrics.bits_per_token, tokens, skipped)
    self._row(step, train_nats_per_token=metrics.nats_per_token, **self._by_text(metrics),
              tokens=metrics.tokens, learning_rate=rate, gradient_norm=gradient_norm,
              skipped_updates=skipped, tokens_per_second=round(tokens / (now - self._since), 1),
              memory_bytes=memory.peak(), seconds=round(now - self._start, 3))
    self._since = time.monotonic()

  def validation(self, step: int, params) -> Metrics:
    valid, config = self._text.valid, self._config
    with self.paused():
      count = max(1, min(config.batch_size, (len(valid.ids) - 1) // config.bptt))
      metrics = evaluate(self._lm, params, valid.ids, config.bptt, count)
      bits_per_char = metrics.bits_per(valid.scored_characters)
      say(f"validation after update {step}: {metrics.nats_per_token:.4f} nats/{self._unit}, "
          f"{bits_per_char:.4f} bits/char, perplexity {metrics.perplexity:.2f} "
          f"({metrics.streams} streams)")
      self._row(step, valid_nats_per_token=metrics.nats_per_token,
                valid_bits_per_char=bits_per_char, valid_perplexity=metrics.perplexity,
                valid_tokens=metrics.tokens, valid_streams=metrics.streams)
      self.draw()
    return metrics

  @contextlib.contextmanager
  def paused(self):
    """What happens meanwhile is not training."""
    begin = time.monotonic()
    try:
      yield
    finally:
      self._since += time.monotonic() - begin

  def draw(self):
    self._show(PICTURE)
    self.newer = False

  @contextlib.contextmanager
  def unharmed(self, name):
    """Whatever goes wrong with a view, the run goes on; the first time it is said."""
    try:
      yield
    except Exception as error:  # other people's code, which may raise anything
      if name not in self._told:
        say(f"no {name}: {type(error).__name__}: {' '.join(str(error).split())}")
      self._told.add(name)

  def _row(self, step, **values):
    row = append_jsonl(self._path, step=step, **values)
    self.newer = True
    self._show(EVENTS, row.pop("step"), row)

  def _show(self, name, *args):
    if name in self.views:
      with self.unharmed(name):
        self.views[name](*args)

  def _by_text(self, metrics):
    """The loss in the unit that runs with this tokenizer are compared in."""
    if self._config.tokenizer.kind not in ("char", "byte"):
      return {"train_perplexity": metrics.perplexity}
    train = self._text.train
    # Of bytes, not every one begins a character: so many do in this text.
    characters = metrics.tokens * (train.scored_characters / (len(train.ids) - 1))
    return {"train_bits_per_char": metrics.bits_per(characters)}


def _seconds(path):
  """What the clock of a run said last."""
  return ([0.0] + [row["seconds"] for row in rows(path) if "seconds" in row])[-1]
