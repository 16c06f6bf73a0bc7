"""How long a resumed run takes to its first update, beside a fresh one.

`python -m tests.time_of_resume` starts processes by turns; each imports, reads the text, compiles,
makes one update and tells how long that took.
"""

import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

flags.DEFINE_integer("rounds", 5, "Fresh and resumed starts, in turns.")
flags.DEFINE_string("start", "", "Of a process that is measured: its run directory.")
FLAGS = flags.FLAGS


def _first_update(run_dir, born):
  """Seconds from `born` to the end of the first update; saves and ends there."""
  import hklm
  from hklm.errors import Stopped

  ended = []

  def stop():
    ended.append(time.time() - born)
    return True

  config = dataclasses.replace(hklm.TrainConfig(), model=hklm.ModelConfig(hidden_size=512))
  try:
    hklm.train(config, run_dir, resume=True, stop=stop)
  except Stopped:
    print(ended[0])


def main(_):
  """Prints medians."""
  if FLAGS.start:
    run_dir, _, born = FLAGS.start.rpartition("@")
    _first_update(run_dir, float(born))
    return
  seconds = {"fresh": [], "resumed": []}
  with tempfile.TemporaryDirectory() as folder:
    for number in range(FLAGS.rounds):
      for name, times in seconds.items():
        run_dir = os.path.join(folder, str(number))
        done = subprocess.run(
            [sys.executable, "-m", "tests.time_of_resume", f"--start={run_dir}@{time.time()}"],
            capture_output=True, text=True, check=True)
        assert ("resumed after update 1 of" in done.stderr) == (name == "resumed"), done.stderr
        times.append(float(done.stdout))
  medians = {name: statistics.median(times) for name, times in seconds.items()}
  print(f"seconds to the first update, medians of {FLAGS.rounds}: fresh {medians['fresh']:.2f}, "
        f"resumed {medians['resumed']:.2f} (with the checkpoint read)")


if __name__ == "__main__":
  app.run(main)
