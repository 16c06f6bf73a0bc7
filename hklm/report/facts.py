"""What a report of a run shows, as values: `hklm.report.html` makes a page of it."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax

from hklm import run as runs
from hklm.errors import InputError
from hklm.inference.generate import generate
from hklm.inference.score import scored_lines
from hklm.inference.scored import ScoredLine
from hklm.inference.states import States, states
from hklm.training import logs

TEMPERATURES = (0.5, 0.8, 1.0)
SAMPLE_TOKENS = 300
UNITS = {"char": "character", "byte": "byte", "word": "word", "bpe": "token"}


class Facts(NamedTuple):
  """Of a run.

  Attributes:
    title: of the page.
    about: what is said of the run, by name.
    unit: what a token is called: `character`, `byte`, `word` or `token`.
    cell: the cell's name.
    vocab_size: V.
    curves: rows of `metrics.jsonl`.
    lines: the text, scored as one.
    states: what the layers did at its tokens.
    samples: texts by temperature.
  """

  title: str
  about: Mapping[str, str]
  unit: str
  cell: str
  vocab_size: int
  curves: Sequence[Mapping]
  lines: Sequence[ScoredLine]
  states: States
  samples: Mapping[float, str]


def collect(run: runs.Run, lines: Sequence[str], source: str) -> Facts:
  """Scores a text with a run's model, looks at its layers, and lets it write.

  Args:
    run: of `hklm.load_run`.
    lines: the text, without line feeds; read as one, after the end of a line where the tokenizer
      knows one.
    source: what the text is, in words.

  Raises:
    InputError: as `hklm.score`; nothing to score.
  """
  tokenizer, model = run.tokenizer, run.config.model
  start = "state" if tokenizer.end_of_line is None else "eol"
  scored = list(scored_lines(run.lm, run.params, tokenizer, lines, start, carried=True))
  if not any(len(line.surprisals) for line in scored):
    raise InputError(f"{source}: nothing to score; needed: at least one token; see --input")
  its = states(run.lm, run.params, tokenizer, lines, start, carried=True)
  samples = {}
  for temperature in TEMPERATURES:
    tokens = generate(run.lm, run.params, jax.random.key(0), SAMPLE_TOKENS, temperature=temperature)
    samples[temperature] = tokenizer.decode(tokens[:, 0].tolist())
  about = {
      "run": run.path,
      "model": f"{model.num_layers} x {model.hidden_size} {model.cell}",
      "tokenizer": f"{tokenizer.kind}, vocabulary {tokenizer.vocab_size:,}",
      "text": source,
      "before its first token": {"eol": "the end of a line", "state": "the initial state"}[start],
  }
  return Facts(os.path.basename(run.path), about, UNITS[tokenizer.kind], model.cell,
               tokenizer.vocab_size, logs.rows(os.path.join(run.path, "metrics.jsonl")), scored,
               its, samples)
