"""Impure functions, first part: state kept in arguments, globals, closures, classes and objects.

Each is written the way it is found in programs: a few lines for data or training that happen to
keep something. What serves a function stands right above it, from the end of the function before;
see `marked_source`. No name is defined twice here, since some checkers know functions by name only.
"""

import itertools
import random

from experiments.purity import settings


def append_total(numbers):
  numbers.append(sum(numbers))
  return numbers


def fill_in_defaults(config):
  config["optimizer"].setdefault("momentum", 0.9)
  config["optimizer"]["name"] = config["optimizer"]["name"].lower()
  return config["optimizer"]["momentum"]


def pop_learning_rate(options):
  learning_rate = options.pop("learning_rate", 1e-3)
  return learning_rate, options


def center_columns(features):
  features -= features.mean(axis=0)
  return features


class Document:
  """A text and what became known of it."""

  def __init__(self, text):
    self.text = text
    self.length = None


def measure_length(document):
  document.length = len(document.text.split())
  return document.length


def shuffled_rows(rows, seed):
  random.Random(seed).shuffle(rows)
  return rows


batches_seen = 0


def count_batch(batch):
  global batches_seen
  batches_seen += 1
  return len(batch)


last_loss = None


def remember_loss(loss):
  global last_loss
  last_loss = float(loss)
  return loss * 0.5


loss_scale = 128.0


def raise_loss_scale():
  global loss_scale
  loss_scale *= 2


def scaled_loss(loss):
  return loss * loss_scale


squares = {}


def square_from_table(n):
  if n not in squares:
    squares[n] = n * n
  return squares[n]


history = []


def record_accuracy(correct, total):
  accuracy = correct / total
  history.append(accuracy)
  return accuracy


recent_losses = []


def loss_is_stale(loss):
  recent_losses.append(loss)
  return len(recent_losses) > 2


def collect_words(text, vocabulary=[]):  # noqa: B006
  vocabulary.extend(text.split())
  return sorted(set(vocabulary))


def predict_and_count(x):
  predict_and_count.calls = getattr(predict_and_count, "calls", 0) + 1
  return 3 * x + 1


def make_step_numberer():
  step = 0

  def number_the_step(loss):
    nonlocal step
    step += 1
    return f"step {step}: loss {loss:.3f}"
  return number_the_step


number_step = make_step_numberer()


def make_threshold(threshold):
  def is_above(probability):
    return probability > threshold

  def move_to(value):
    nonlocal threshold
    threshold = value
  return is_above, move_to


is_confident, set_confidence = make_threshold(0.5)


class TokenCounter:
  """Counts the tokens of every encoder there is."""

  total = 0


def encode_and_count(text):
  tokens = text.encode()
  TokenCounter.total += len(tokens)
  return list(tokens)


class Rounding:
  """How many digits the report shows."""

  digits = 2


def set_digits(digits):
  Rounding.digits = digits


def rounded_score(score):
  return round(score, Rounding.digits)


class RunningMean:
  """The mean of the numbers seen so far."""

  def __init__(self):
    self.total = 0.0
    self.seen = 0

  def mean_with(self, value):
    self.total += value
    self.seen += 1
    return self.total / self.seen


running_mean = RunningMean()


class EveryOther:
  """Lets every other number through."""

  def __init__(self):
    self.passes = False

  def __call__(self, number):
    self.passes = not self.passes
    return number if self.passes else 0


every_other = EveryOther()


def turn_up_verbosity(level):
  settings.verbosity = max(settings.verbosity, level)
  return level


def set_precision(digits):
  settings.precision = digits


def formatted_loss(loss):
  return f"{loss:.{settings.precision}f}"


document_numbers = itertools.count(1)


def number_document(title):
  return f"{next(document_numbers)}. {title}"


def endless_batches():
  start = 0
  while True:
    yield [start, start + 1, start + 2]
    start += 3


batches = endless_batches()


def sum_of_next_batch(weight):
  return weight * sum(next(batches))
