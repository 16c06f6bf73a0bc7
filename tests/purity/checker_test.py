"""What `check` finds in functions that break a rule in one way, and where."""

import ctypes
import functools
import inspect
import os
import random
import socket
import sys
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from jax.experimental import io_callback

from hklm import purity
from tests.purity import faulty

SAME, TRACE, OUTPUT = purity.Rule.SAME_OUTPUT, purity.Rule.NO_TRACE, purity.Rule.OUTPUT
SEED = (SAME, "output depends on the seed of a global random generator")
X = 21.0

# The function, its arguments, what must be found, and which finding stands at the marked line.
CASES = (
    (faulty.mutate_deep, ({"rows": [[]]},), [(TRACE, "changes argument 1['rows'][0]")]),
    (faulty.remember, (X,), [(TRACE, "changes `remember` default")]),
    (faulty.make_counting(), (X,),
     [(TRACE, "changes `make_counting.<locals>.counting` closure cell `count`")]),
    (faulty.make_pair()[0], (X,), [(SAME, "output depends on closure cell `rate`")]),
    (faulty.count_on_self, (X,), [(TRACE, "changes `count_on_self`.calls")]),
    (faulty.append_prime, (7,), [(TRACE, "changes global `PRIMES`"),
                                 (SAME, "output differs when it is called again")]),
    (faulty.memoize, (7,), [(TRACE, "changes global `lookup`")]),
    (faulty.tick, (1,), [(TRACE, "changes global `ticks`"),
                         (SAME, "output differs when it is called again")]),
    (faulty.take_ticket, (1,), [(TRACE, "changes global `tickets`")]),
    (faulty.greet, ("day",), [(SAME, "output depends on global `mood`")]),
    (faulty.choose, (1,), [(SAME, "output depends on global `threshold`")]),
    (faulty.fail_in_another_mood, (1,), [(SAME, "output depends on global `mood`")]),
    (faulty.set_mood, ("bad",), [(TRACE, "changes global `mood`")]),
    (faulty.make_global, (1,), [(TRACE, "changes global `made`")]),
    (faulty.warn, (1,), [(OUTPUT, "writes to standard error")]),
    (faulty.write_bytes, (1,), [(OUTPUT, "writes to standard output")]),
    (faulty.log, (1,), [(OUTPUT, "writes to the log")]),
    (faulty.issue_warning, (1,), [(OUTPUT, "writes to standard error, as a warning")]),
    (faulty.read_line, (1,), [(SAME, "reads standard input"),
                              (SAME, "output depends on what standard input says")]),
    (faulty.answer, (1,), [(SAME, "reads standard input")]),
    (faulty.now, (1,), [(SAME, "reads the clock")]),
    (faulty.imported_now, (1,), [(SAME, "reads the clock")]),
    (faulty.today, (1,), [(SAME, "reads the clock")]),
    (faulty.asked_through_a_name, (1,), [(SAME, "reads the clock")]),
    (faulty.entropy, (1,), [(SAME, "draws entropy from the system")]),
    (faulty.imported_draw, (1,), [(TRACE, "advances the generator of `random`"), SEED]),
    (faulty.reseed, (3,), [(TRACE, "advances the generator of `random`")]),
    (faulty.numpy_draw, (X,), [(TRACE, "advances the generator of `numpy.random`"), SEED]),
    (faulty.draw_from_global, (X,), [(TRACE, "changes global `generator`"),
                                     (SAME, "output differs when it is called again")]),
    (faulty.fill_weights, (X,), [(TRACE, "changes global `weights`")]),
    (faulty.set_environment, (1,), [(TRACE, "changes the environment")]),
    (faulty.configure, (1,), [(TRACE, "changes jax.config")]),
    (faulty.open_file, (1,), [(SAME, "reads files")]),
    (faulty.take_over_output, (1,), [(TRACE, "replaces `sys.stdout`")]),
    (faulty.remember_trace, (X,), [(TRACE, "leaks a tracer into global `traces`")]),
    (faulty.scaled_at_trace_time, (X,), [(SAME, "output depends on global `scale`")]),
    # jit hands over a copy of the dict: called, it leaves no trace; traced, what it does shows.
    (faulty.fill_in, ({"x": np.ones(2)},), [(TRACE, "changes argument 1")]),
    (faulty.only_under_jit, (X,), [(TRACE, "changes global `lookup`")]),
    (faulty.only_backwards, (X,), [(TRACE, "changes global `traces`")]),
    (faulty.third_time, (X,), [(TRACE, "changes `third_time` default"),
                               (SAME, "output differs when it is called again")]),
    (faulty.Meter().read, (X,), [(TRACE, "changes `Meter.read` self.total")]),
    (faulty.Meter().scaled, (X,), [(SAME, "output depends on `Meter.scaled` self.gain")]),
    (faulty.Meter().in_units, (X,), [(SAME, "output depends on class attribute `Meter.unit`")]),
)


def marked_line(function) -> str:
  """Where the function's source says `# here`: "file:line"."""
  function = inspect.unwrap(getattr(function, "bwd", function))
  lines, first = inspect.getsourcelines(function)
  number, = (n for n, line in enumerate(lines, start=first) if line.rstrip().endswith("# here"))
  return f"{inspect.getsourcefile(function)}:{number}"


def found(report) -> list:
  return [(finding.rule, finding.what) for finding in report.findings]


class CheckTest(parameterized.TestCase):

  @parameterized.named_parameters(
      (f"{number}_{case[0].__name__}", *case) for number, case in enumerate(CASES))
  def test_finds(self, function, args, expected):
    names = "PRIMES", "mood", "calls", "lookup", "traces", "scale", "weights"
    before = {name: repr(getattr(faulty, name)) for name in names}
    report = purity.check(function, *args)
    self.assertEqual(report.verdict, "impure")
    self.assertEqual(found(report), expected)
    self.assertEqual(report.findings[0].place, marked_line(function))
    self.assertTrue(all(finding.remedy for finding in report.findings))
    self.assertIn(report.findings[0].what, str(report))
    self.assertEqual({name: repr(getattr(faulty, name)) for name in names}, before)

  def test_every_trace_is_named_with_what_it_was_and_became(self):
    for function, args, detail in (
        (faulty.set_mood, ("bad",), "'good' -> 'bad'"),
        (faulty.make_global, (1,), "absent -> 1"),
        (faulty.mutate_deep, ({"rows": [[]]},), "[] -> [1]"),
        (faulty.fill_weights, (2,), "array([1., 1., 1.]) -> array([2., 1., 1.])"),
        (faulty.warn, (1,), "careful")):
      self.assertEqual(purity.check(function, *args).findings[0].detail, detail)

  def test_a_donated_argument_is_a_trace_and_stays_the_callers(self):
    x = jnp.ones(3)
    report = purity.check(faulty.donate, x)
    self.assertEqual(found(report), [(TRACE, "gives away the memory of argument 1")])
    self.assertFalse(x.is_deleted())
    self.assertTrue(purity.check(faulty.donate.__wrapped__, x).pure)

  def test_keys_kept_in_a_sequence_are_state(self):
    report = purity.check(faulty.next_key, X)
    self.assertIn((SAME, "output differs when it is called again"), found(report))
    self.assertTrue(any("global `keys`" in what for _, what in found(report)))

  def test_says_which_argument_by_position_and_name(self):
    def extend(first, second):
      second.extend(first)
    self.assertEqual(found(purity.check(extend, [1], [2])), [(TRACE, "changes argument 2")])
    self.assertEqual(found(purity.check(extend, [1], second=[2])),
                     [(TRACE, "changes argument `second`")])

  def test_arguments_given_are_not_touched(self):
    record, array = {"rows": [[]]}, np.zeros(2)
    purity.check(faulty.mutate_deep, record)
    def fill(array):
      array += 1
    self.assertEqual(found(purity.check(fill, array)), [(TRACE, "changes argument 1")])
    self.assertEqual(record, {"rows": [[]]})
    np.testing.assert_array_equal(array, 0)

  def test_knows_neither_name_nor_source(self):
    source = ("state = 4\n"
              "def double(x):\n  return state * x\n"
              "def set_state(x):\n  global state\n  state = x\n"
              "def counting_global_random_print(x):\n  return 2 * x\n")
    module = types.ModuleType("made_in_a_test")
    exec(source, vars(module))
    self.assertEqual(found(purity.check(module.double, 1)),
                     [(SAME, "output depends on global `state`")])
    self.assertTrue(purity.check(module.counting_global_random_print, 1).pure)
    # The same code is pure where nothing rebinds what it reads.
    del module.set_state
    self.assertTrue(purity.check(module.double, 1).pure)

  def test_between_does_what_the_rest_of_a_program_does(self):
    words = {"hello": 1}
    def count(word):
      return words.get(word, 0)
    self.assertTrue(purity.check(count, "hello").pure)  # nothing rebinds `words`
    report = purity.check(count, "hello", between=lambda: words.update(hello=2))
    self.assertEqual(found(report), [(SAME, "output depends on what `between` changes")])
    self.assertIn("closure cell `words`", report.findings[0].detail)
    self.assertEqual(words, {"hello": 1})

  def test_output_passes_when_it_is_allowed(self):
    self.assertTrue(purity.check(faulty.warn, 1, allow_output=True).pure)
    self.assertTrue(purity.check(faulty.log, 1, allow_output=True).pure)
    def show(x):
      jax.debug.print("{}", x)
      return x
    self.assertEqual([rule for rule, _ in found(purity.check(jax.jit(show), X))], [OUTPUT])
    self.assertTrue(purity.check(jax.jit(show), X, allow_output=True).pure)
    self.assertFalse(purity.check(faulty.now, 1, allow_output=True).pure)

  def test_callbacks_are_judged_by_what_they_do(self):
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    drawn = []
    def host(x):
      drawn.append(1)
      return x
    def calling(host):
      return lambda x: jax.pure_callback(host, shape, x)
    self.assertTrue(purity.check(calling(lambda x: x), jnp.float32(1)).pure)
    report = purity.check(calling(host), jnp.float32(1))
    self.assertEqual([rule for rule, _ in found(report)], [TRACE])
    self.assertEmpty(drawn)

  def test_what_only_other_surroundings_show(self):
    self.assertIn((SAME, "output depends on the command line"),
                  found(purity.check(lambda x: x * len(sys.argv[-1]), 1)))
    self.assertIn((SAME, "output depends on the working directory"),
                  found(purity.check(lambda name: os.path.abspath(name), "a")))
    self.assertIn((TRACE, "uses the network"),
                  found(purity.check(lambda: socket.getaddrinfo("localhost", 0)[0][0].name)))
    self.assertIn((TRACE, "starts or signals processes"),
                  found(purity.check(lambda: os.system("true"))))
    def follow(x):
      sys.settrace(lambda *event: None)
      return x
    self.assertIn((TRACE, "sets a trace function"), found(purity.check(follow, 1)))

  def test_what_is_read_while_tracing_is_varied_too(self):
    scale = jax.jit(lambda x: x * int(os.environ.get("HKLM_PURITY_SCALE", "2")))
    self.assertIn((SAME, "output depends on an environment variable"),
                  found(purity.check(scale, X)))
    rates = {"rate": 2.0}
    rated = jax.jit(lambda x: x * rates["rate"])
    rated(X)  # compiled: without a new trace it would never look again
    self.assertEqual(found(purity.check(rated, X, between=lambda: rates.update(rate=3.0))),
                     [(SAME, "output depends on what `between` changes")])

  def test_what_between_does_to_the_process_is_named_and_put_back(self):
    os.environ.pop("HKLM_PURITY_SCALE", None)
    report = purity.check(lambda x: x * int(os.environ.get("HKLM_PURITY_SCALE", "17")), 1,
                          between=lambda: os.environ.update(HKLM_PURITY_SCALE="3"))
    self.assertEqual(found(report), [(SAME, "output depends on what `between` changes")])
    self.assertIn("changes the environment", report.findings[0].detail)
    self.assertNotIn("HKLM_PURITY_SCALE", os.environ)
    def fails():
      raise KeyError("between")
    self.assertIn("`between` raised KeyError: 'between'",
                  purity.check(lambda x: x, 1, between=fails).unchecked)

  def test_runs_in_other_surroundings_start_from_the_same_state(self):
    def remember(x, memory={}):  # noqa: B006
      return memory.setdefault("x", x)
    self.assertEqual(found(purity.check(remember, 1.0)),
                     [(TRACE, f"changes `{remember.__qualname__}` default")])

  def test_derivatives_and_effects(self):
    @jax.custom_vjp
    def noisy(x):
      return x
    noisy.defvjp(lambda x: (x, None), lambda _, g: (g * np.random.normal(),))
    report = purity.check(noisy, X)
    self.assertIn((TRACE, "advances the generator of `numpy.random`"), found(report))
    self.assertIn((SAME, "output depends on the seed of a global random generator"), found(report))
    self.assertEqual({finding.when for finding in report.findings}, {"differentiated"})
    @jax.custom_vjp
    def drifting(x):
      return x
    drifting.defvjp(lambda x: (x, None), lambda _, g: (g * random.SystemRandom().random(),))
    self.assertIn((SAME, "its gradient differs from run to run"),
                  found(purity.check(drifting, X)))
    @jax.jit
    def drifting_trace(x):
      return x * random.SystemRandom().random()
    drifting_trace(X)
    self.assertIn((SAME, "what jit records differs from trace to trace"),
                  found(purity.check(drifting_trace, X)))
    effect = jax.jit(lambda x: io_callback(lambda y: y, jax.ShapeDtypeStruct((), jnp.float32), x))
    self.assertIn((TRACE, "calls back into Python for an effect"),
                  found(purity.check(effect, jnp.float32(1))))
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    drawn = jax.jit(lambda x: jax.pure_callback(
        lambda y: np.float32(random.SystemRandom().random()), shape, x))
    self.assertIn((SAME, "output of the compiled function differs when it runs again"),
                  found(purity.check(drawn, jnp.float32(1))))

  def test_a_tracer_is_leaked_where_one_was_leaked_before(self):
    class Kept:
      last = None
    @jax.jit
    def keep(x):
      Kept.last = x
      return x
    keep(X)
    name = f"class attribute `{Kept.__qualname__}.last`"
    self.assertEqual(found(purity.check(keep, X)), [(TRACE, f"leaks a tracer into {name}")])

  def test_report_says_all_of_it(self):
    report = purity.check(faulty.set_mood, "bad")
    lines = str(report).splitlines()
    self.assertEqual([line.strip().partition(":")[0] for line in lines[1:]],
                     ["changes global `mood`", "rule", "seen", "instead", "never checked"])
    self.assertIn(purity.LIMITS[0], lines[-1])
    self.assertIn(f"run at {faulty.__file__}:", lines[3])
    anew = purity.check(lambda x: jax.jit(lambda y: y + 1)(x), jnp.ones(3))
    self.assertIn("a repeated call compiled 1 programs: slow, not impure", str(anew))

  def test_environment_is_varied_only_where_it_is_read(self):
    def scaled(x):
      return x * float(os.environ.get("HKLM_PURITY_SCALE", "1"))
    def unused(x):
      os.environ.get("HKLM_PURITY_SCALE")
      return x
    self.assertEqual(found(purity.check(scaled, 3.0))[0],
                     (SAME, "output depends on an environment variable"))
    self.assertTrue(purity.check(unused, 3.0).pure)

  def test_number_of_runs(self):
    counter = ctypes.c_int(0)
    address = ctypes.addressof(counter)  # of C: a trace that cannot be seen, as the report says
    def counted(x):
      ctypes.c_int.from_address(address).value += 1
      return x
    report = purity.check(counted, 1.0)
    self.assertTrue(report.pure, report)
    # 4 in a row, 1 in other surroundings, 2 traces, 1 gradient.
    self.assertEqual((counter.value, report.runs), (8, 8))

  def test_compilations_of_a_repeated_call(self):
    @jax.jit
    def once(x):
      return x + 1
    def anew(x):
      return jax.jit(lambda y: y + 1)(x)
    self.assertEqual(purity.check(once, jnp.ones(3)).compilations, 0)
    report = purity.check(anew, jnp.ones(3))
    self.assertTrue(report.pure)
    self.assertGreater(report.compilations, 0)


def fails(x):
  raise ValueError(f"no {x}")


def yields(x):
  yield x


async def waits(x):
  return x


def lazy(x):
  return (y for y in [x])


def leaves(x):
  raise SystemExit(3)


class UnknownTest(parameterized.TestCase):

  @parameterized.parameters(
      (fails, "it raised ValueError: no 1"), (yields, "it is a generator"),
      (waits, "it is a coroutine"), (lazy, "its output holds a generator"),
      (leaves, "it raised SystemExit: 3"), (functools.partial(fails), "it raised ValueError"))
  def test_is_no_silent_pass(self, function, reason):
    report = purity.check(function, 1)
    self.assertEqual(report.verdict, "unknown")
    self.assertFalse(report.pure)
    self.assertStartsWith(report.unchecked[0], reason)
    self.assertIn(f"could not be checked: {reason}", str(report))
    with self.assertRaisesRegex(AssertionError, "could not be checked"):
      purity.assert_pure(function, 1)

  def test_uncopyable_argument(self):
    report = purity.check(lambda x: x, iter_of(3))
    self.assertEqual(report.verdict, "unknown")
    self.assertStartsWith(report.unchecked[0], "argument 1 cannot be copied (TypeError")
    self.assertEqual(report.runs, 0)

  def test_untraceable_function_is_checked_as_far_as_it_goes(self):
    def sort(x):
      return np.sort(x)
    report = purity.check(sort, jnp.ones(3))
    self.assertTrue(report.pure)
    self.assertStartsWith(report.unchecked[0], "it cannot be traced (TracerArrayConversionError")

  def test_what_was_left_out_is_said(self):
    def count_down(x):
      return jax.lax.while_loop(lambda y: y > 1, lambda y: y / 2, x)
    for function, args, reason in (
        (count_down, (X,), "it cannot be differentiated in reverse"),
        (len, ({1: 2, "a": 3},), "its arguments are no tree for jax"),
        (threading.Lock, (), "its output holds a lock, which is not compared"),
        (lambda: (lambda x: x), (), "its output holds a function, which was compared but not run")):
      report = purity.check(function, *args)
      self.assertTrue(report.pure, report)
      self.assertTrue(any(text.startswith(reason) for text in report.unchecked), report)

  def test_copies_that_are_the_original(self):
    class Self(list):
      def __deepcopy__(self, memo):
        return self
    kept = Self([0])
    report = purity.check(lambda xs: xs.append(1), kept)
    self.assertEqual((report.verdict, report.runs), ("unknown", 0))
    self.assertEqual(kept, [0])

  def test_traces_of_a_function_that_raises_are_found(self):
    def fail(xs):
      xs.append(1)
      raise ValueError("full")
    report = purity.check(fail, [])
    self.assertEqual(found(report), [(TRACE, "changes argument 1")])
    self.assertEqual(report.unchecked, ("it raised ValueError: full",))

  def test_what_cannot_be_called(self):
    with self.assertRaisesRegex(TypeError, "found int; needed: a function"):
      purity.check(3)


def iter_of(n):
  yield from range(n)


if __name__ == "__main__":
  absltest.main()
