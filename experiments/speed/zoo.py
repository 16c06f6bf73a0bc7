"""What the benchmark trains and reads with each cell: a model of one workload's sizes."""

from typing import Any

import jax

from experiments.speed import jax_work, with_hklm
from experiments.speed.workloads import Workload
from hklm.config.model import CELLS

MOGRIFIER_RANK = 16
LSTM = CELLS[0]  # beside which the others are put


def options(work: Workload) -> dict[str, dict[str, Any]]:
  """What a `ModelConfig` has beside the sizes, by the name of the row.

  >>> list(options(Workload("tiny", 11, 4, 6, 1, 2, 3)))[:4]
  ['lstm', 'lstm, coupled gates', 'lstm, capped gate', 'peephole_lstm']
  >>> options(Workload("tiny", 11, 4, 6, 1, 2, 3))["projected_lstm"]
  {'cell': 'projected_lstm', 'projection_size': 3}
  """
  needed = {"projected_lstm": {"projection_size": max(1, work.hidden_size // 2)},
            "mogrifier": {"mogrifier_rank": MOGRIFIER_RANK}}
  its = {LSTM: {"cell": LSTM},
         f"{LSTM}, coupled gates": {"cell": LSTM, "input_gate": "coupled"},
         f"{LSTM}, capped gate": {"cell": LSTM, "input_gate": "capped"}}
  return its | {cell: {"cell": cell, **needed.get(cell, {})} for cell in CELLS if cell != LSTM}


def training(work: Workload, window, its: dict[str, Any]):
  """A function that makes the next training step with a cell and returns its mean nats a token."""
  return jax_work.stepper(with_hklm.update(work, _params(work, its), window, **its))


def generation(work: Workload, its: dict[str, Any]):
  """A function that returns T sampled tokens of each of B texts, int `[T, B]`."""
  return with_hklm.generate(work, _params(work, its), **its)


def _params(work, its):
  return with_hklm.model(work, **its).init(jax.random.key(0))
