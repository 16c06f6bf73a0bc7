"""Functions that break a rule, one way each; the line at fault ends in `# here`."""

import functools
import itertools
import logging
import os
import random
import sys
import time
import warnings
from datetime import datetime
from random import gauss
from time import monotonic

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

PRIMES = [2, 3, 5]
mood = "good"
calls = 0
threshold = True
lookup = {}
ticks = iter(range(1000))
tickets = itertools.count()
weights = np.ones(3)
generator = np.random.default_rng(0)
keys = hk.PRNGSequence(0)
traces = []
scale = jnp.float32(2)


def set_mood(new):
  global mood
  mood = new  # here


def set_threshold(new):
  global threshold
  threshold = new


def set_scale(new):
  global scale
  scale = new


def mutate_deep(record):
  record["rows"][0].append(1)  # here
  return record


def remember(x, memory):
  memory.append(x)  # here
  return x


remember.__defaults__ = ([],)  # as `memory=[]` does, which linters refuse with good reason


def make_counting():
  count = 0
  def counting(x):
    nonlocal count
    count += 1  # here
    return x
  return counting


def make_pair():
  rate = 1
  def set_rate(new):
    nonlocal rate
    rate = new
  def scaled(x):
    return rate * x  # here
  return scaled, set_rate


def count_on_self(x):
  count_on_self.calls = getattr(count_on_self, "calls", 0) + 1  # here
  return x


def append_prime(x):
  PRIMES.append(x)  # here
  return len(PRIMES)


def memoize(x):
  return lookup.setdefault(x, 2 * x)  # here


def tick(x):
  return x + next(ticks)  # here


def take_ticket(x):
  next(tickets)  # here
  return x


def greet(x):
  return f"{mood} {x}"  # here


def choose(x):
  return x if threshold else -x  # here


def fail_in_another_mood(x):
  return {"good": x}[mood]  # here


def make_global(x):
  globals()["made"] = x  # here
  return x


def warn(x):
  sys.stderr.write("careful")  # here
  return x


def write_bytes(x):
  sys.stdout.buffer.write(b"bytes")  # here
  return x


def log(x):
  logging.getLogger("faulty").warning("careful with %s", x)  # here
  return x


def issue_warning(x):
  warnings.warn("careful", stacklevel=2)  # here
  return x


def read_line(x):
  return sys.stdin.readline() * x  # here


def answer(x):
  input()  # here
  return x


def now(x):
  time.time_ns()  # here
  return x


def imported_now(x):
  monotonic()  # here
  return x


def today(x):
  datetime.now()  # here
  return x


def asked_through_a_name(x):
  ask = getattr(time, "perf_" + "counter")
  ask()  # here
  return x


def entropy(x):
  os.urandom(1)  # here
  return x


def imported_draw(x):
  return gauss(0, 1) * x  # here


def reseed(x):
  random.seed(x)  # here
  return x


def numpy_draw(x):
  return x + np.random.normal()  # here


def draw_from_global(x):
  return x + generator.normal()  # here


def next_key(x):
  return jax.random.normal(next(keys), jnp.shape(x))  # here


def fill_weights(x):
  weights[0] = x  # here
  return x


def set_environment(x):
  os.environ["HKLM_PURITY_TEST"] = str(x)  # here
  return x


def configure(x):
  jax.config.update("jax_debug_nans", True)  # here
  return x


def open_file(x):
  with open(__file__) as file:  # here
    file.read(1)
  return x


def take_over_output(x):
  sys.stdout = sys.stderr  # here
  return x


@jax.jit
def remember_trace(x):
  y = 2 * x
  traces.append(y)  # here
  return y


@jax.jit
def scaled_at_trace_time(x):
  return x * scale  # here


@jax.jit
def fill_in(record):
  record["sum"] = record["x"].sum()  # here
  return record["sum"]


def only_under_jit(x):
  if isinstance(x, jax.core.Tracer):
    lookup["traced"] = True  # here
  return x


@jax.custom_vjp
def only_backwards(x):
  return 2 * x


def _forwards(x):
  return 2 * x, None


def _backwards(_, gradient):
  traces.append("backwards")  # here
  return (2 * gradient,)


only_backwards.defvjp(_forwards, _backwards)


@functools.partial(jax.jit, donate_argnums=0)
def donate(x):
  return x + 1


def third_time(x, state=PRIMES):
  state.append(x)  # here
  return x if len(state) < 6 else -x


class Meter:
  """A model that counts on itself, and whose unit others may set."""

  unit = 1.0

  def __init__(self):
    self.total = 0.0
    self.gain = 1.0

  def read(self, x):
    self.total += x  # here
    return x

  def scaled(self, x):
    return self.gain * x  # here

  def in_units(self, x):
    return x * type(self).unit  # here

  def amplify(self):
    self.gain = 2.0

  @classmethod
  def set_unit(cls, unit):
    cls.unit = unit
