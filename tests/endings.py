"""What a run has ended with, read without hklm, and how it differs from what another ended with."""

import json
import os

import numpy as np
import orbax.checkpoint as ocp

TIMING = {"seconds", "tokens_per_second", "memory_bytes"}  # fields of a row that are no results


def steps(run_dir: str, kind: str) -> list[int]:
  """The updates that checkpoints of a kind, `step` or `best`, are named after; the newest last."""
  folder = os.path.join(run_dir, "checkpoints")
  names = os.listdir(folder) if os.path.isdir(folder) else []
  return sorted(int(name.partition("-")[2]) for name in names if name.startswith(f"{kind}-"))


def rows(run_dir: str) -> list[dict]:
  """The rows of metrics.jsonl that are written to their end, without what tells only of time."""
  path = os.path.join(run_dir, "metrics.jsonl")
  if not os.path.exists(path):
    return []
  with open(path, encoding="utf-8") as file:
    whole = [json.loads(line) for line in file if line.endswith("\n")]
  return [{name: value for name, value in row.items() if name not in TIMING} for row in whole]


def differences(run_dir: str, unbroken: str) -> list[str]:
  """How the results of one run differ from those of another; empty: to the last bit not at all."""
  found = []
  for index, (one, other) in enumerate(zip(rows(run_dir), rows(unbroken), strict=False)):
    if one != other:
      found.append(f"metrics.jsonl, line {index + 1}: {one}, not {other}")
  if len(rows(run_dir)) != len(rows(unbroken)):
    found.append(f"metrics.jsonl: {len(rows(run_dir))} lines, not {len(rows(unbroken))}")
  for kind in ("step", "best"):
    one, other = ({f"update of the newest {kind}": np.array(steps(path, kind)[-1:])}
                  | arrays(path, kind) for path in (run_dir, unbroken))
    for name in sorted(set(one) | set(other)):
      if _bits(one.get(name)) != _bits(other.get(name)):
        found.append(f"{kind}: {name} differs")
  return found


def arrays(run_dir: str, kind: str) -> dict[str, np.ndarray]:
  """The arrays of the newest checkpoint of a kind, and the numbers of its manifest."""
  found = {}
  for step in steps(run_dir, kind)[-1:]:
    path = os.path.join(os.path.abspath(run_dir), "checkpoints", f"{kind}-{step}")
    with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
      manifest = json.load(file)
    found |= {name: np.array(str(value))  # digits enough to tell any two numbers apart
              for name, value in manifest.items() if name not in ("files", "sha256")}
    for part in sorted(name for name in os.listdir(path) if name != "manifest.json"):
      with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        _flatten(part, checkpointer.restore(os.path.join(path, part)), found)
  return found


def _flatten(name, tree, found):
  if isinstance(tree, dict):
    for key, value in tree.items():
      _flatten(f"{name}/{key}", value, found)
  else:
    found[name] = np.asarray(tree)


def _bits(array):
  return array if array is None else (str(array.dtype), array.shape, array.tobytes())
