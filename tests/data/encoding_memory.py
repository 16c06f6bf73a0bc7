"""Measures the memory that encoding a large text takes, for each tokenizer.

    python -m tests.data.encoding_memory --megabytes=1000

writes an English-like text of that size to a temporary folder, makes each tokenizer from it and
encodes it, each in a process of its own, and prints a table. Fails if a peak is over 500 MB.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from hklm.config.tokenizer import TOKENIZERS, TokenizerConfig
from hklm.data import corpora, encoding, tokenizers

LIMIT = 500  # MB
_MEGABYTE = 1_000_000


def write_text(path: str, megabytes: float) -> None:
  """Sentences of made-up words whose frequencies fall as in English, with a long tail."""
  rng = np.random.default_rng(0)
  letters, share = list("etaoinshrdlucmfwygpb"), 1 / np.arange(3, 23)
  spelled = rng.choice(letters, size=[400_000, 10], p=share / share.sum())
  lengths = np.minimum(2 + np.arange(len(spelled)) // 40, 4) + rng.poisson(2, len(spelled))
  words = [" " + "".join(row[:n]) for row, n in zip(spelled, lengths, strict=True)]
  words[:3] = [",", ".", ".\n"]
  chances = np.cumsum(1 / np.arange(10, len(words) + 10))
  with open(path, "w", encoding="ascii") as file:
    left = int(megabytes * _MEGABYTE)
    while left > 0:
      ranks = np.searchsorted(chances, rng.random(100_000) * chances[-1])
      left -= file.write("".join([words[rank] for rank in ranks])[:left])


def encode(path: str, kind: str) -> dict:
  """Makes a tokenizer from a file, encodes the file, and says what it took."""
  start, before = time.perf_counter(), _peak()
  corpus = corpora.open_corpus(path)
  config = TokenizerConfig(kind, vocab_size=50_000 if kind == "word" else 0)
  tokenizer = tokenizers.build(config, corpus.chunks())
  tokens = encoding.encode_corpus(tokenizer, corpus)
  return {
      "tokenizer": kind,
      "MB": tokens.bytes / _MEGABYTE,
      "tokens": len(tokens.ids),
      "seconds": time.perf_counter() - start,
      "before MB": before,
      "peak MB": _peak(),
  }


def _peak() -> float:
  unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB, macOS in bytes
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MEGABYTE


def main():
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--megabytes", type=float, default=1000)
  parser.add_argument("--tokenizers", nargs="+", choices=TOKENIZERS, default=TOKENIZERS)
  arguments = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "text.txt")
    # Every step is a child of this small process: a child's peak starts from its parent's size.
    _child("write_text", path, arguments.megabytes)
    print(f"{'tokenizer':<10}{'MB':>8}{'tokens':>14}{'seconds':>9}{'before MB':>11}{'peak MB':>9}",
          flush=True)
    rows = []
    for kind in arguments.tokenizers:
      rows.append(row := json.loads(_child("encode", path, kind)))
      print(f"{row['tokenizer']:<10}{row['MB']:>8.0f}{row['tokens']:>14,}{row['seconds']:>9.1f}"
            f"{row['before MB']:>11.0f}{row['peak MB']:>9.0f}", flush=True)
  over = [row["tokenizer"] for row in rows if row["peak MB"] > LIMIT]
  if over:
    sys.exit(f"over {LIMIT} MB: {', '.join(over)}")


def _child(function: str, *arguments) -> str:
  program = (f"import json; from tests.data import encoding_memory as m; "
             f"print(json.dumps(m.{function}(*{arguments!r})))")
  return subprocess.run([sys.executable, "-c", program], check=True, text=True,
                        stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
  main()
