"""Functions other than the article's, one for each thing `measure` must or must not notice."""

import builtins
import random
import sys
import time
import types
from random import gauss
from time import monotonic

from absl.testing import absltest, parameterized

from experiments.article import purity_measurement

FACTOR = 3  # nothing rebinds it: a constant
PRIMES = [2, 3, 5]
mood = "good"
calls = 0
threshold = True
lookup = {}
ticks = iter(range(1000))


def set_mood(new):
  global mood
  mood = new


def set_threshold(new):
  global threshold
  threshold = new


# Pure.


def scale(x):
  return FACTOR * x


def nth_prime(n):
  return PRIMES[n]


def nan(x):
  return x * float("nan")


def draw_from_seed(seed):
  return random.Random(seed).random()


def pair_with_function(x):
  return x, lambda y: x + y


def generate(n):
  yield from range(n)


def borrow_and_return(x):
  global calls
  calls += 1
  try:
    return x + 1
  finally:
    calls -= 1


def own_copy(record):
  record = {**record, "seen": True}
  return record


# Impure.


def mutate_deep(record):
  record["rows"][0].append(1)


def remember(x, memory):
  memory.append(x)
  return x


remember.__defaults__ = ([],)  # as `memory=[]` does, which linters refuse with good reason


def make_counting():
  count = 0
  def counting(x):
    nonlocal count
    count += 1
    return x
  return counting


def count_on_self(x):
  count_on_self.calls = getattr(count_on_self, "calls", 0) + 1
  return x, count_on_self.calls


def rebind_constant_list(x):
  PRIMES.append(x)
  return len(PRIMES)


def memoize(x):
  return lookup.setdefault(x, 2 * x)


def tick(x):
  return x + next(ticks)


def greet(x):
  return f"{mood} {x}"


def choose(x):
  return x if threshold else -x


def fail_in_another_mood(x):
  return {"good": x}[mood]


def make_global(x):
  globals()["made"] = x
  return x


def warn(x):
  sys.stderr.write("careful")
  return x


def write_bytes(x):
  sys.stdout.buffer.write(b"bytes")
  return x


def read_line(x):
  return sys.stdin.readline() * x


def answer(x):
  return input("x? ") * x


def now(x):
  return time.time_ns() + x


def imported_now(x):
  return monotonic() + x


def imported_draw(x):
  return gauss(0, 1) * x


def reseed(x):
  random.seed(x)
  return x


def take_over_output(x):
  sys.stdout = sys.stderr
  return x


def raise_error(x):
  global calls
  calls += 1
  PRIMES.append(x)
  random.random()
  print(input(), time.time())
  sys.stdout = None
  globals()["left"] = x
  raise KeyError("on purpose")


def surroundings():
  return (random.getstate(), sys.stdin, sys.stdout, sys.stderr, builtins.input, time.time,
          time.monotonic_ns, monotonic, calls, mood, list(PRIMES), PRIMES, lookup, set(globals()))


class MeasureTest(parameterized.TestCase):

  @parameterized.parameters(
      (scale, 2), (nth_prime, 1), (nan, 1.), (draw_from_seed, 5), (pair_with_function, 1),
      (generate, 3), (borrow_and_return, 1), (own_copy, {"rows": [[]]}))
  def test_pure(self, function, argument):
    self.assertEmpty(purity_measurement.measure(function, argument))

  @parameterized.parameters(
      (mutate_deep, {"rows": [[]]}, [(2, "changes its argument")]),
      (remember, 1, [(2, "changes what the function keeps")]),
      (make_counting(), 1, [(2, "changes what the function keeps")]),
      (count_on_self, 1, [(1, "different output when called again"),
                          (2, "changes what the function keeps")]),
      (rebind_constant_list, 7, [(2, "changes global `PRIMES`")]),
      (memoize, 7, [(2, "changes global `lookup`")]),
      (tick, 1, [(1, "different output when called again"), (2, "changes global `ticks`")]),
      (greet, "day", [(1, "different output when global `mood` is changed")]),
      (choose, 1, [(1, "different output when global `threshold` is changed")]),
      (fail_in_another_mood, 1, [(1, "different output when global `mood` is changed")]),
      (set_mood, "bad", [(2, "changes global `mood`")]),
      (make_global, 1, [(2, "changes global `made`")]),
      (warn, 1, [(2, "writes to standard error")]),
      (write_bytes, 1, [(2, "writes to standard output")]),
      (read_line, 1, [(1, "different output when input() answers something else"),
                      (2, "reads standard input")]),
      (answer, 1, [(1, "different output when input() answers something else"),
                   (2, "reads input()"), (2, "writes to standard output")]),
      (now, 1, [(1, "different output when the clock shows another time"), (2, "reads the clock")]),
      (imported_now, 1, [(1, "different output when the clock shows another time"),
                         (2, "reads the clock")]),
      (imported_draw, 1, [(1, "different output when the random generator is seeded differently"),
                          (2, "advances the random generator")]),
      (reseed, 3, [(2, "advances the random generator")]),
      (take_over_output, 3, [(2, "replaces what others use")]))
  def test_impure(self, function, argument, expected):
    before = surroundings()
    breaches = purity_measurement.measure(function, argument)
    self.assertEqual([(breach.rule, breach.by) for breach in breaches], expected)
    self.assertEqual(surroundings(), before)

  def test_says_what_changed(self):
    for function, argument, expected in (
        (set_mood, "bad", "changes global `mood`: 'good' -> 'bad'"),
        (make_global, 1, "changes global `made`: absent -> 1"),
        (mutate_deep, {"rows": [[]]}, "changes its argument: {'rows': [[]]} -> {'rows': [[1]]}")):
      breach, = purity_measurement.measure(function, argument)
      self.assertEqual(str(breach), expected)

  def test_arguments_given_are_not_touched(self):
    record = {"rows": [[]]}
    purity_measurement.measure(mutate_deep, record)
    self.assertEqual(record, {"rows": [[]]})

  def test_says_which_of_several_arguments(self):
    def extend(first, second):
      second.extend(first)
    breach, = purity_measurement.measure(extend, [1], [2])
    self.assertEqual(str(breach), "changes its argument 2: [2] -> [2, 1]")

  def test_surroundings_are_restored_when_it_raises(self):
    before = surroundings()
    with self.assertRaisesRegex(KeyError, "on purpose"):
      purity_measurement.measure(raise_error, 1)
    self.assertEqual(surroundings(), before)

  def test_knows_neither_name_nor_source(self):
    source = ("state = 4\n"
              "def double(x):\n  return state * x\n"
              "def set_state(x):\n  global state\n  state = x\n"
              "def counting_global_random_print(x):\n  return 2 * x\n")
    module = types.ModuleType("made_in_a_test")
    exec(source, vars(module))
    breach, = purity_measurement.measure(module.double, 1)
    self.assertEqual(breach.by, "different output when global `state` is changed")
    self.assertEmpty(purity_measurement.measure(module.counting_global_random_print, 1))
    # The same code is pure where nothing rebinds what it reads.
    del module.set_state
    self.assertEmpty(purity_measurement.measure(module.double, 1))


if __name__ == "__main__":
  absltest.main()
