"""What only an NVIDIA GPU can show, in one run of less than eight minutes.

  python -m experiments.gpu --output=DIR                    # every part
  python -m experiments.gpu --output=DIR --only=agreement   # one of our own parts, alone

Does cuDNN's LSTM agree with ours, in values and gradients? How fast are the implementations
(`--lstm_impl`) and PyTorch's, by turns? Do the article, the default training run and the benchmark
run there? Each part is a process of its own with a limit of time: one that fails or hangs is
reported, and the rest still runs. DIR gets `gpu.json`, `gpu.txt`, and what each part wrote.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
from absl import flags

from experiments import cli
from experiments import flags as shared_flags
from experiments.speed import contenders, implementations, machine, measures, tables, workloads
from experiments.speed.workloads import Workload
from hklm.errors import InputError
from hklm.nn import cudnn

ONLY = flags.DEFINE_enum("only", "", ["", "agreement", "layer", "steps"],
                         "The one part of gpu to run, in this process; empty: all.")

NAMES = ("output", "only")

ROOT = pathlib.Path(__file__).parents[1]
TOTAL = 465  # seconds for all parts together
ROUNDS = 7
TOLERANCE = 1e-5  # in float32, relative to the largest number of an array
PRECISIONS = ("float32", "tensorfloat32")  # jax's default there is the second


class Part(NamedTuple):
  """A process to run.

  Attributes:
    name: of the part, and of the files that hold what it writes.
    arguments: of the interpreter; `{output}` stands for the folder of results.
    limit: the seconds after which it is killed.
  """

  name: str
  arguments: tuple[str, ...]
  limit: float


def _own(name: str, limit: float) -> Part:
  return Part(name, ("-m", "experiments.gpu", "--output={output}", f"--only={name}"), limit)


PARTS = (
    _own("agreement", 90),
    _own("layer", 90),
    _own("steps", 150),
    Part("pure_functions", ("-m", "experiments.article.pure_functions"), 60),
    Part("linear_regression", ("-m", "experiments.article.linear_regression"), 40),
    Part("lstm_numbers", ("-m", "experiments.article.lstm_numbers"), 60),
    Part("train", ("-m", "experiments.train"), 150),
    # PyTorch would run on the CPU there; `layer` and `steps` have it on the GPU.
    Part("benchmark", ("-m", "experiments.benchmark", "--measures=train,lstm,evaluate,generate",
                       "--contenders=hklm,haiku", "--nopeak_memory",
                       "--json_file={output}/benchmark.json"), 120),
)


def run_parts(parts: Sequence[Part], folder: pathlib.Path, total: float
              ) -> Iterator[tuple[str, dict]]:
  """Runs parts one after the other, each in an empty working directory.

  Args:
    parts: what to run.
    folder: where `NAME.out` and `NAME.err` go, what a part wrote to its two streams.
    total: seconds for all of them; what has not begun by then does not begin.

  Yields:
    A name, and what became of that part: `status` (`done`, or what went wrong), `seconds`,
    `printed`, and `results`, what it left as `NAME.json`, all of it or not.
  """
  end = time.monotonic() + total
  for part in parts:
    for suffix in ("out", "err", "json"):  # an earlier run's
      (folder / f"{part.name}.{suffix}").unlink(missing_ok=True)
    start = time.monotonic()
    limit = min(part.limit, end - start)
    status = _run(part, folder, limit) if limit > 0 else "not started: no time was left"
    its = {"status": status, "seconds": time.monotonic() - start,
           "printed": _text(folder / f"{part.name}.out")}
    results = _text(folder / f"{part.name}.json")
    if results:
      its["results"] = json.loads(results)
    cli.note(f"{part.name}: {status} ({its['seconds']:.0f} s)")
    yield part.name, its


def _run(part: Part, folder: pathlib.Path, limit: float) -> str:
  """Runs a part and says how it ended."""
  arguments = [argument.replace("{output}", str(folder)) for argument in part.arguments]
  errors = folder / f"{part.name}.err"
  with (tempfile.TemporaryDirectory() as empty, open(folder / f"{part.name}.out", "w") as out,
        open(errors, "w") as err):
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=empty, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)
    try:
      status = process.wait(limit)
    except subprocess.TimeoutExpired:
      return f"stopped after {limit:.0f} s"
    finally:
      # With all that it started. A driver that hangs must not make us wait for ever.
      with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(5)
  if status:
    return f"failed: status {status}, {(_text(errors).strip().splitlines() or ['no message'])[-1]}"
  return "done"


def report(told: dict[str, dict]) -> str:
  """How each part ended, then what each printed.

  >>> print(report({"train": {"status": "done", "seconds": 1.6, "printed": "fine\\n"}}))
  train     2 s  done
  <BLANKLINE>
  == train
  fine
  """
  width = max(map(len, told))
  ends = [f"{name:{width}}  {its['seconds']:4.0f} s  {its['status']}"
          for name, its in told.items()]
  texts = [f"\n== {name}\n{its['printed'].rstrip()}" for name, its in told.items()]
  return "\n".join(ends + texts)


def compare(path: pathlib.Path):
  """Writes and prints how far cuDNN and the fused LSTM are from the scan; too far is status 1."""
  names = "fused", "cudnn"
  found = implementations.agreement(
      {name: implementations.sequence_of(name) for name in names}, models=names)
  write_json(path, found)
  print("differences from the scan in float32, relative to an array's largest number")
  for name, its in found.items():
    print(name, *(f"  {array:26}{value:.1e}" for array, value in its.items()), sep="\n")
  for name, its in found.items():
    print(f"{name}: the largest is {max(its.values()):.1e}; needed: at most {TOLERANCE:g}")
  # So that a NaN is too far as well.
  if not all(value <= TOLERANCE for its in found.values() for value in its.values()):
    cli.note("an implementation does not agree with the scan")
    sys.exit(1)


def time_by_turns(path: pathlib.Path, measure: Callable, works: Sequence[Workload]):
  """Measures every workload at both precisions; writes and prints after each.

  Args:
    path: of the file.
    measure: `(field, workload, name of the precision) -> rows`.
    works: the workloads.
  """
  print(f"{contenders.BASE} is --lstm_impl=fused. In a training step cuDNN's own products are "
        "float32 at either precision.")
  rows, field = [], implementations.field()
  for work in works:
    for precision in PRECISIONS:
      with implementations.precision(precision):
        its = measure(field, work, precision)
      rows += its
      write_json(path, [tables.values(row, rows) for row in rows])
      print(f"\n{tables.table(its)}", flush=True)


def time_layer(field, work: Workload, precision: str, rounds: int = ROUNDS,
               cube: int = measures.CUBE) -> list[measures.Row]:
  """The passes of a layer alone."""
  rows = measures.lstm(field, work, rounds, cube)
  return [row._replace(measure=f"lstm, {precision}") for row in rows]


def time_step(field, work: Workload, precision: str, rounds: int = ROUNDS,
              cube: int = measures.CUBE) -> list[measures.Row]:
  """A training step."""
  return measures.train(field, work, rounds, False, cube, f"train, {precision}")


def write_json(path: pathlib.Path, value):
  """Replaces the file in one go: whoever is killed while writing leaves the older one."""
  new = path.with_suffix(".new")
  new.write_text(json.dumps(value, indent=1), encoding="utf-8")
  new.replace(path)


def _text(path: pathlib.Path) -> str:
  return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _run_one(name: str, output: pathlib.Path):
  """One of our own parts, in this process."""
  path = output / f"{name}.json"
  if name == "agreement":
    compare(path)
  elif name == "layer":
    time_by_turns(path, time_layer, [workloads.LSTM])
  else:
    time_by_turns(path, time_step, [workloads.NAMED["char"], workloads.NAMED["medium"]])


def _run_all(output: pathlib.Path):
  """Every part, and what became of them as JSON and text, written anew after each."""
  device = jax.devices()[0]
  computer = machine.description() | {"device": device.device_kind,
                                      "platform": device.client.platform_version}
  told = {}
  for name, its in run_parts(PARTS, output, TOTAL):
    told[name] = its
    write_json(output / "gpu.json", {"machine": computer, "parts": told})
    (output / "gpu.txt").write_text(report(told) + "\n", encoding="utf-8")
  print(report(told))
  if any(its["status"] != "done" for its in told.values()):
    sys.exit(1)


def main():
  """Refuses to begin without a GPU; then one part, or all of them as processes of their own."""
  if not shared_flags.FLAGS.output:
    raise InputError("--output is not given; needed: a folder for the results")
  # Else jax takes most of the GPU's memory, and the other processes and PyTorch get none.
  os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
  if not cudnn.available():
    raise InputError(f"found {jax.devices()[0].device_kind}; needed: an NVIDIA GPU and jax's CUDA "
                     "plugin, which the extra `cuda` installs: pip install -e '.[cuda]'")
  output = pathlib.Path(shared_flags.FLAGS.output).absolute()
  output.mkdir(parents=True, exist_ok=True)
  cli.announce_device()
  if ONLY.value:
    _run_one(ONLY.value, output)
  else:
    _run_all(output)


if __name__ == "__main__":
  cli.run(main, NAMES)
