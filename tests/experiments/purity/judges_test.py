"""The judges: what counts as a checker's verdict and what as its failure, and runs set apart."""

import os
import subprocess
import sys
import types
from unittest import mock

import jax.numpy as jnp
from absl.testing import absltest, parameterized

from experiments.purity import catalogue, judges
from experiments.purity.apart import IMPURE, NOT_APPLIED, PURE, Judgement
from tests.experiments.article import binary

# Judges an example in a child process, from a process in which JAX was never started.
APART = """
import os, signal, sys, time
from experiments.purity.apart import Judgement, judge_apart
def judge(example):
  {body}
  return Judgement("pure", repr(result))
print(*judge_apart(judge, None, seconds={seconds}), sep="|")
"""


def example(function, *arguments):
  return catalogue.Example("example", function, lambda: arguments, "")


def identity(x):
  return x


def raising(error):
  """A decorator that objects, or fails, when the function is called for the third time."""
  def decorate(function, **unused_options):
    calls = []
    def wrapper(*args):
      calls.append(args)
      if len(calls) > 2:
        raise error
      return function(*args)
    return wrapper
  return decorate


def judged(decorator, decorate, function=identity, argument=1, **options):
  package = types.SimpleNamespace(**{decorator: decorate})
  with mock.patch.dict(sys.modules, {"pure_function_decorators": package}):
    return judges.decorated(decorator, **options)(example(function, argument))


def apart(body, seconds=60):
  code = APART.format(body=body, seconds=seconds)
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                        stdin=subprocess.DEVNULL, timeout=120,
                        env={**os.environ, "PYTHONPATH": str(binary.ROOT)})
  return done.stdout.strip(), done.stderr


class DecoratedTest(parameterized.TestCase):

  @parameterized.parameters(
      ("enforce_deterministic", ValueError("Non-deterministic output detected"), IMPURE),
      ("enforce_deterministic", ValueError("The truth value of an array ..."), NOT_APPLIED),
      ("forbid_globals", RuntimeError("Global names referenced: ['counter']"), IMPURE),
      ("forbid_globals", NameError("name 'counter' is not defined"), IMPURE),
      ("forbid_globals", AttributeError("no attribute '__globals__'"), NOT_APPLIED),
      ("forbid_side_effects", RuntimeError("Side effect blocked: print"), IMPURE),
      ("forbid_side_effects", ValueError("callback failed: Side effect blocked: print"), IMPURE),
      ("forbid_side_effects", ValueError("x"), NOT_APPLIED),
      ("immutable_arguments", RuntimeError("Argument mutated at arg[0]"), IMPURE),
      ("immutable_arguments", TypeError("cannot pickle"), NOT_APPLIED))
  def test_objections_are_told_from_failures(self, decorator, error, verdict):
    self.assertEqual(judged(decorator, raising(error)).verdict, verdict)

  @parameterized.parameters("enforce_deterministic", "forbid_globals", "forbid_side_effects",
                            "immutable_arguments")
  def test_silence_is_purity(self, decorator):
    judgement = judged(decorator, lambda function, **unused_options: function)
    self.assertEqual(judgement, Judgement(PURE))

  def test_methods_and_objects_are_decorated_in_their_class(self):
    class Thing:
      def method(self, x):
        return x

      def __call__(self, x):
        return x

    thing = Thing()
    for called, written in ((thing.method, Thing.method), (thing, Thing.__call__)):
      seen = []
      judged("immutable_arguments", lambda f, seen=seen: lambda *args: seen.append((f, args)),
             called)
      self.assertEqual(seen, [(written, (thing, 1))] * judges.CALLS)

  def test_modules_and_functions_are_allowed_as_globals(self):
    allowed = {}
    def forbid(function, allow, **options):
      allowed.update(options, names=allow)
      return function
    judged("forbid_globals", forbid)
    self.assertContainsSubset(("jnp", "sys", "identity", "Judgement"), allowed["names"])
    self.assertNotIn("APART", allowed["names"])
    self.assertTrue(allowed["check_names"])

  def test_compiled_before_calls_the_bare_function_first(self):
    order = []
    def decorate(function):
      order.append("decorated")
      return lambda *args: order.append("decorated call")
    def bare(x):
      order.append("bare call")
    judged("forbid_side_effects", decorate, bare, compiled_before=True)
    self.assertEqual(order, ["bare call", "decorated", *["decorated call"] * judges.CALLS])


class CheckingLeaksTest(absltest.TestCase):

  def test_leak_is_found(self):
    leaked = []
    def leaking(x):
      leaked.append(jnp.sin(x))
      return x
    self.assertEqual(judges.checking_leaks(example(leaking, jnp.ones(2))).verdict, IMPURE)

  def test_no_leak(self):
    self.assertEqual(judges.checking_leaks(example(jnp.sin, jnp.ones(2))), Judgement(PURE))

  def test_what_jit_does_not_take_is_no_leak(self):
    self.assertEqual(judges.checking_leaks(example(identity, "text")).verdict, NOT_APPLIED)


class ApartTest(parameterized.TestCase):

  @parameterized.parameters(
      ("result = input() + sys.stdin.readline()", "pure|'11\\n'"),
      ("result = os.listdir()", "pure|[]"),
      ("print('x'); print('y', file=sys.stderr); os.write(1, b'z'); result = 0", "pure|0"),
      ("raise ValueError('a  b')", "could not be applied|ValueError: a b"),
      ("sys.exit(3)", "could not be applied|SystemExit: 3"))
  def test_what_the_child_says(self, body, said):
    self.assertEqual(apart(body), (said, ""))

  @parameterized.parameters(("os.kill(os.getpid(), signal.SIGKILL)", 60), ("time.sleep(60)", 0.5))
  def test_a_child_without_an_answer(self, body, seconds):
    said, _ = apart(body, seconds)
    self.assertStartsWith(said, "could not be applied|the process ended with status")


if __name__ == "__main__":
  absltest.main()
