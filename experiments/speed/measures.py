"""The measures: each sets the work to everyone who knows it, and returns a row for each of them.

`field` is the contenders' modules by name, the base among them; `rounds` how often each does its
work. Sizes are arguments: the defaults are what the binary measures.
"""

from typing import NamedTuple

from experiments import cli
from experiments.speed import jax_work, peak, saving, timing, workloads, zoo
from experiments.speed.contenders import BASE
from experiments.speed.workloads import Workload
from hklm.inference import lines as hklm_lines

CUBE = 2048  # of the matrix product whose rate gives the floor
WINDOWS = 4  # of an evaluation
UPDATES, PIECES = 100, 10  # for each checkpoint, and in how many pieces they are timed
TOKENS = 256  # of a text sampled with each cell
_PRODUCT = "matrix product"


class Row(NamedTuple):
  """What was measured of one contender at one piece of work.

  Attributes:
    measure: its name.
    work: the sizes.
    contender: the contender's name.
    seconds: that the work took, a number a round; none where it was not timed.
    amount: of what the work makes, if it is told as a rate: tokens or lines.
    unit: that is counted in `amount`.
    floor_seconds: that the work's matrix products alone would take.
    compile_seconds: from the function to its executable.
    compiled_bytes: memory that the executable says it needs.
    peak_bytes: peak of resident memory of a process of its own.
    base: the contender that it is compared with.
  """

  measure: str
  work: Workload
  contender: str
  seconds: tuple[float, ...] = ()
  amount: int = 0
  unit: str = ""
  floor_seconds: float | None = None
  compile_seconds: float | None = None
  compiled_bytes: int | None = None
  peak_bytes: int | None = None
  base: str = BASE


def train(field, work: Workload, rounds: int, peaks: bool = True, cube: int = CUBE,
          measure: str = "train") -> list[Row]:
  """One training step, embed to SGD: its time, its compilation, the peak of memory."""
  params, window = workloads.weights(work), workloads.window(work)
  steps, told = {}, {}
  for name, module in field.items():
    cli.note(f"{measure} {work.name}: {name} gets ready")
    told[name] = {"peak_bytes": peak.peak_bytes(name, work)} if peaks else {}
    if hasattr(module, "update"):
      update = module.update(work, params, window)
      executable, told[name]["compile_seconds"] = jax_work.compiled(update)
      steps[name] = jax_work.stepper(update._replace(function=executable))
    else:
      steps[name] = module.train(work, params, window)
  rows = _timed(measure, work, steps, rounds, operations=3 * work.operations(), cube=cube)
  return [row._replace(**told[row.contender]) for row in rows]


def lstm(field, work: Workload = workloads.LSTM, rounds: int = 7, cube: int = CUBE) -> list[Row]:
  """A layer alone over a sequence: forward, and forward and backward."""
  params, (xs, direction) = workloads.weights(work), workloads.sequences(work)
  passes = {name: module.lstm(work, params, xs, direction) for name, module in field.items()}
  rows = []
  for kind, times in (("forward", 1), ("forward+backward", 3)):
    works = {name: its[kind] for name, its in passes.items()}
    rows += _timed("lstm", work._replace(name=kind), works, rounds,
                   operations=times * work.operations(), cube=cube)
  return rows


def evaluate(field, work: Workload, rounds: int, cube: int = CUBE) -> list[Row]:
  """Forward pass and loss of a text of a few windows."""
  params, ids = workloads.weights(work), workloads.text(work, WINDOWS)
  works = {name: module.evaluate(work, params, ids) for name, module in field.items()}
  return _timed("evaluate", work, works, rounds, operations=WINDOWS * work.operations(), cube=cube)


def generate(field, work: Workload, rounds: int) -> list[Row]:
  """Sampling T tokens at temperature 1, B texts side by side."""
  params = workloads.weights(work)
  works = {name: module.generate(work, params) for name, module in field.items()
           if hasattr(module, "generate")}
  return _timed("generate", work, works, rounds, amount=work.steps * work.batch_size,
                unit="tokens")


def score(field, work: Workload = workloads.LINES, rounds: int = 7) -> list[Row]:
  """The nats of every token of many lines, read in the groups that hklm makes."""
  params, lines = workloads.weights(work), workloads.lines(work)
  groups = [group for group, _ in hklm_lines.groups(list(map(len, lines)), work.vocab_size)]
  works = {name: module.score(work, params, lines, groups) for name, module in field.items()
           if hasattr(module, "score")}
  return _timed("score", work, works, rounds, amount=len(lines), unit="lines")


def memory(field, work: Workload = workloads.LARGE_VOCABULARY, peaks: bool = True) -> list[Row]:
  """What a training step needs: as its executable says, and as the system does."""
  params, window = workloads.weights(work), workloads.window(work)
  rows = []
  for name, module in field.items():
    cli.note(f"memory {work.name}: {name}")
    row = Row("memory", work, name)
    if hasattr(module, "update"):
      executable, _ = jax_work.compiled(module.update(work, params, window))
      row = row._replace(compiled_bytes=jax_work.needed_bytes(executable))
    rows.append(row._replace(peak_bytes=peak.peak_bytes(name, work) if peaks else None))
  return rows


def save(work: Workload, rounds: int, updates: int = UPDATES) -> list[Row]:
  """Training steps among which one checkpoint is saved, beside the same without.

  So many steps take half a minute, in which a machine changes its pace: the two take turns within a
  round, at each tenth of it.
  """
  works = saving.works(work, workloads.window(work), updates // PIECES, every=PIECES)
  cli.note(f"save {work.name}: {rounds} rounds of {', '.join(works)}")
  pieces = timing.alternate(works, rounds * PIECES, twice=False)
  return [Row("save", work, name, tuple(map(sum, zip(*[iter(its)] * PIECES, strict=True))),
              amount=updates * work.steps * work.batch_size, unit="tokens")
          for name, its in pieces.items()]


def cells(work: Workload, rounds: int, tokens: int = TOKENS) -> list[Row]:
  """A training step with every cell, and sampling a text: all beside hklm's own LSTM."""
  window, text = workloads.window(work), work._replace(batch_size=1, steps=tokens)
  steps, texts = {}, {}
  for name, its in zoo.options(work).items():
    steps[name] = zoo.training(work, window, its)
    texts[name] = zoo.generation(text, its)
  rows = _timed("cells", work._replace(name=f"{work.name} training"), steps, rounds, base=zoo.LSTM)
  return rows + _timed("cells", text._replace(name=f"{work.name} generation"), texts, rounds,
                       amount=tokens, unit="tokens", base=zoo.LSTM)


def _timed(measure, work, works, rounds, operations=0, cube=CUBE, **more) -> list[Row]:
  """A row for each of `works`; with operations, their floor is timed among them."""
  cli.note(f"{measure} {work.name}: {rounds} rounds of {', '.join(works)}")
  probe = {_PRODUCT: timing.cube(cube)} if operations else {}
  seconds = timing.alternate(works | probe, rounds)
  floor = timing.floor(operations, cube, seconds.pop(_PRODUCT)) if operations else None
  return [Row(measure, work, name, tuple(its), floor_seconds=floor, **more)
          for name, its in seconds.items()]
