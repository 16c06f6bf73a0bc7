"""Pure functions, first part: plain Python and NumPy that looks impure from afar.

They change what they made themselves, or put back what they changed before they return. As in
`impure`, what serves a function stands right above it, and no name is defined twice.
"""

import collections
import contextlib
import csv
import dataclasses
import decimal
import functools
import hashlib
import heapq
import io
import itertools
import json
import random
import re
import warnings

import numpy as np


def numbers_below(limit):
  numbers = []
  for number in range(limit):
    numbers.append(number)
  return numbers


def word_counts(text):
  counts = {}
  for word in text.lower().split():
    counts[word] = counts.get(word, 0) + 1
  return counts


def vocabulary_of(texts):
  words = set()
  for text in texts:
    words.update(text.split())
  return words


def sum_of_even_squares(limit):
  squares = (number * number for number in range(limit))
  total = 0
  for square in squares:
    if square % 2 == 0:
      total += square
  return total


def windows_of(items, size):
  def generate():
    window = collections.deque(maxlen=size)
    for item in items:
      window.append(item)
      if len(window) == size:
        yield tuple(window)
  return list(generate())


def fibonacci(n):
  return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def is_odd(n):
  return n != 0 and is_even(n - 1)


def is_even(n):
  return n == 0 or is_odd(n - 1)


def make_evaluator(scale):
  training = True

  def forward(x):
    return x * scale if training else x

  def evaluate(x):
    nonlocal training
    before, training = training, False
    try:
      return forward(x)
    finally:
      training = before
  return evaluate


evaluate_once = make_evaluator(3)

recursion_depth = 0


def nested_sum(tree):
  global recursion_depth
  before = recursion_depth
  recursion_depth = before + 1
  try:
    return sum(nested_sum(branch) if isinstance(branch, list) else branch for branch in tree)
  finally:
    recursion_depth = before


def dot_with_bias(weights, inputs):
  inputs.append(1.0)
  try:
    return sum(weight * value for weight, value in zip(weights, inputs, strict=True))
  finally:
    inputs.pop()


def median(values):
  ordered = list(values)
  ordered.sort()
  return ordered[len(ordered) // 2]


def unchanged(batch):
  return batch


def make_polynomial(coefficients):
  def polynomial(x):
    result = 0
    for coefficient in coefficients:
      result = result * x + coefficient
    return result
  return polynomial


cubic = make_polynomial((1, -2, 0, 5))


def encode_letters(word, table={"a": 0, "b": 1, "c": 2}):  # noqa: B006
  return [table[letter] for letter in word]


@functools.cache
def paths_through_grid(rows, columns):
  if rows == 0 or columns == 0:
    return 1
  return paths_through_grid(rows - 1, columns) + paths_through_grid(rows, columns - 1)


def chance_of_middle(size):
  return paths_through_grid(size, size) / 4 ** size


def seeded_split(items, seed):
  order = list(items)
  random.Random(seed).shuffle(order)
  return order[:2], order[2:]


def seeded_noise(image, seed):
  return image + np.random.default_rng(seed).normal(size=image.shape)


def table_as_text(rows):
  text = io.StringIO()
  csv.writer(text, lineterminator="\n").writerows(rows)
  return text.getvalue()


class Averager:
  """A mean that grows; harmless as long as it stays inside a function."""

  def __init__(self):
    self.total, self.count = 0.0, 0

  def add(self, value):
    self.total += value
    self.count += 1
    return self


def mean_of(values):
  averager = Averager()
  for value in values:
    averager.add(value)
  return averager.total / averager.count


def numbers_in(fields):
  numbers = []
  for field in fields:
    try:
      numbers.append(float(field))
    except ValueError:
      numbers.append(0.0)
  return numbers


def log_ratio(a, b):
  with np.errstate(divide="ignore", invalid="ignore"):
    return np.log(np.asarray(a)) - np.log(np.asarray(b))


def mean_of_none(values):
  return sum(values) / len(values) if values else float("nan")


def field_order(fields):
  positions = {}
  for position, field in enumerate(fields):
    positions.setdefault(field, position)
  return positions


def slug(title):
  return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def scaled_by(factor):
  return lambda x: factor * x


def power_of(exponent):
  return functools.partial(pow, exp=exponent)


@dataclasses.dataclass(frozen=True)
class Schedule:
  """A learning rate and how fast it falls."""

  rate: float
  decay: float


def decayed(schedule, steps):
  return dataclasses.replace(schedule, rate=schedule.rate * schedule.decay ** steps)


def product_of(numbers):
  return functools.reduce(lambda a, b: a * b, numbers, 1)


def standardized(features):
  features = features.copy()
  features -= features.mean(axis=0)
  features /= features.std(axis=0)
  return features


def printed_lines(items):
  with contextlib.redirect_stdout(io.StringIO()) as text:
    for item in items:
      print("-", item)
  return text.getvalue().splitlines()


def spread_of(values):
  import statistics
  return statistics.pstdev(values)


def quiet_mean(values):
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    return np.mean(np.asarray(values))


def exact_quotient(a, b):
  with decimal.localcontext() as context:
    context.prec = 50
    return str(decimal.Decimal(a) / decimal.Decimal(b))


def fingerprint(record):
  digest = hashlib.sha256()
  digest.update(json.dumps(record, sort_keys=True).encode())
  return digest.hexdigest()


def smallest(values, count):
  heap = list(values)
  heapq.heapify(heap)
  return [heapq.heappop(heap) for _ in range(count)]


def run_lengths(text):
  return [(letter, len(list(group))) for letter, group in itertools.groupby(text)]


ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def roman_number(letters):
  values = [ROMAN[letter] for letter in letters]
  return sum(-value if value < after else value
             for value, after in itertools.zip_longest(values, values[1:], fillvalue=0))
