"""The most memory that a contender's training takes, in a process of its own.

`python -m experiments.speed.peak CONTENDER SIZES` is that process; SIZES is a workload as JSON. It
imports no other contender's libraries.
"""

import json
import pathlib
import resource
import subprocess
import sys

from experiments.speed import contenders, workloads
from experiments.speed.workloads import Workload

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 3
# A child's peak starts from its parent's size: this small process stands between the two.
_BETWEEN = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"


def peak_bytes(contender: str, work: Workload) -> int:
  """The peak of resident memory of a new process that makes three training steps.

  Raises:
    InputError: it did not get that far.
  """
  from hklm.errors import InputError  # here, as hklm imports JAX

  done = subprocess.run(
      [sys.executable, "-c", _BETWEEN, sys.executable, "-m", "experiments.speed.peak", contender,
       json.dumps(work)], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
  if done.returncode:
    why = (done.stderr.strip().splitlines() or ["no message"])[-1]
    raise InputError(f"{contender} could not train in a process of its own ({work}): status "
                     f"{done.returncode}, {why}; lower its sizes, or give --nopeak_memory")
  return int(done.stdout.split()[-1])


def main(contender: str, sizes: str):
  """Makes the steps and prints the peak, in bytes."""
  work = Workload(*json.loads(sizes))
  step = contenders.module(contender).train(work, workloads.weights(work), workloads.window(work))
  for _ in range(STEPS):
    step()
  unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB, macOS in bytes
  print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


if __name__ == "__main__":
  main(*sys.argv[1:])
