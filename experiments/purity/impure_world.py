"""Impure functions, second part: streams, clocks, entropy, files and settings of the process.

As in `impure`, what serves a function stands right above it.
"""

import datetime as calendar
import json
import logging
import os
import pathlib
import random
import secrets
import subprocess
import sys
import time
import uuid
import warnings
from datetime import datetime
from time import perf_counter as tick

import numpy as np


def describe_batch(batch):
  print(f"batch of {len(batch)}, from {min(batch)} to {max(batch)}")
  return len(batch)


def report_progress(done, total):
  sys.stderr.write(f"\r{done}/{total}")
  return done / total


def checked_learning_rate(learning_rate):
  if learning_rate > 1:
    logging.warning("a learning rate of %s is unusually high", learning_rate)
  return learning_rate


def wait_for_reader(page):
  input("press return for the next page ")
  return page + 1


def answered_number(question):
  sys.stdout.write(question)
  return int(sys.stdin.readline() or 0)


def timed_total(numbers):
  started = time.time()
  total = sum(numbers)
  _seconds = time.time() - started
  return total


def name_of_run(model):
  return f"{model}-{datetime.now():%Y-%m-%d}"


def year_of_report(title):
  return f"{title} ({calendar.date.today().year})"


def seconds_for_sorting(numbers):
  started = tick()
  sorted(numbers)
  return tick() - started


def seconds_budget_left(budget):
  return budget - time.monotonic()


def drop_words(words, rate):
  return [word for word in words if random.random() >= rate]


def jittered_weights(weights):
  return weights + np.random.normal(scale=0.01, size=weights.shape)


noise_generator = np.random.default_rng(0)


def noisy_image(image):
  return image + noise_generator.normal(size=image.shape)


def random_crop_start(length):
  generator = np.random.default_rng()
  return int(generator.integers(0, 1_000_000)) % length


def reproducible_order(count):
  random.seed(0)
  order = list(range(count))
  random.shuffle(order)
  return order


def seeded_weights(size):
  np.random.seed(0)
  return np.random.uniform(-1, 1, size)


def salted(text):
  salt = os.urandom(8)
  return text + salt.hex()


def with_identity(record):
  return {**record, "id": str(uuid.uuid4())}


def session_of(user):
  _token = secrets.token_hex(8)
  return f"session of {user}"


def seed_of_worker(seed):
  return seed + os.getpid()


def data_path(name):
  return os.path.join(os.environ.get("DATA_DIR", "/data"), name)


def limit_threads(count):
  os.environ["OMP_NUM_THREADS"] = str(count)
  return count


def number_of_lines(path):
  with open(path, encoding="utf-8") as lines:
    return sum(1 for unused_line in lines)


def has_checkpoint(directory):
  return pathlib.Path(directory, "checkpoint.json").exists()


def save_metrics(path, metrics):
  pathlib.Path(path).write_text(json.dumps(metrics), encoding="utf-8")
  return metrics["loss"]


def absolute_path(name):
  return os.path.abspath(name)


def enter_directory(directory):
  os.chdir(directory)
  return directory


def date_by_program(text):
  date = subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout
  return f"{text} {date.strip()}"


def log_of_counts(counts):
  np.seterr(divide="ignore")
  return np.log(counts)


def mean_without_warning(values):
  warnings.filterwarnings("ignore", category=RuntimeWarning)
  return float(np.mean(values))


def depth_of_tree(tree):
  sys.setrecursionlimit(20_000)
  return 1 + max((depth_of_tree(child) for child in tree), default=0)
