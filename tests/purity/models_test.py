"""Whose fault it is when a model's functions are impure."""

import random
import time
from unittest import mock

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm import purity
from hklm.purity import models

calls = 0


# What is checked is what Python does: no program need be fast.
def setUpModule():
  jax.config.update("jax_disable_most_optimizations", True)


def tearDownModule():
  jax.config.update("jax_disable_most_optimizations", False)
  jax.clear_caches()  # no other test gets such a program


class Cell(hk.RNNCore):
  """A sound cell; the faulty ones differ in `trouble` alone."""

  def __init__(self, size, name):
    super().__init__(name=name)
    self.size = size
    self.scale = np.ones(size, np.float32)  # made with the module: no trace

  def initial_state(self, batch_size):
    return jnp.zeros([batch_size, self.size])

  def __call__(self, x, h):
    h = jnp.tanh(hk.Linear(self.size, name="mix")(jnp.concatenate([x, h], -1))) * self.scale
    return self.trouble(h), h

  def trouble(self, h):
    return h


class Keeping(Cell):
  def trouble(self, h):
    self.last = h
    return h


class KeepingInList(Cell):
  def trouble(self, h):
    self.seen = [*getattr(self, "seen", []), h]
    return h


class Drawing(Cell):
  def trouble(self, h):
    return h + np.random.normal()


class Tossing(Cell):
  def trouble(self, h):
    return h * random.random()


class Timing(Cell):
  def trouble(self, h):
    time.perf_counter()
    return h


class Talking(Cell):
  def trouble(self, h):
    print("thinking")
    return h


class Counting(Cell):
  def trouble(self, h):
    global calls
    calls += 1
    return h


class Mapping(Cell):
  def trouble(self, h):
    return jax.vmap(hk.Linear(self.size, name="each"))(h)


class Restoring(Cell):
  def trouble(self, h):
    former, self.size = self.size, jnp.ones(3)
    self.size = former
    return h


FAULTS = (
    (Keeping, "keeps an array on `self`", "self.last"),
    (KeepingInList, "keeps an array on `self`", "self.seen"),
    (Drawing, "advances the generator of `numpy.random`", ""),
    (Tossing, "advances the generator of `random`", ""),
    (Timing, "reads the clock", "time.perf_counter"),
    (Talking, "writes to standard output", "thinking"),
    (Counting, "changes global `tests.purity.models_test.calls`", " -> "),
    (Mapping, "reads or makes parameters or keys under a raw JAX transform", ""),
)


def model(cell):
  def good_then_bad(layer, size):
    return (Cell, cell)[layer](size, name=f"cell_{layer}")
  lm = hklm.language_model(hklm.ModelConfig(vocab_size=5, embedding_size=3, hidden_size=3,
                                            num_layers=2), cell=good_then_bad)
  return lm, lm.init(jax.random.key(0))


def check_unroll(cell, **options):
  lm, params = model(cell)
  return purity.check(lm.unroll, params, None, jnp.zeros([3, 2], int),
                      lm.initial_state(params, 2), **options)


class CheckModelTest(parameterized.TestCase):

  @parameterized.named_parameters((case[0].__name__, *case) for case in FAULTS)
  def test_names_the_module_at_fault(self, cell, what, detail):
    report = check_unroll(cell)
    self.assertEqual(report.verdict, "impure")
    fault = next(finding for finding in report.findings if finding.what == what)
    self.assertStartsWith(fault.module, "cell_1")
    self.assertIn(detail, fault.detail)
    self.assertIn("(module cell_1", str(report))
    self.assertTrue(fault.remedy)

  def test_all_functions_that_show_a_fault_are_named_in_one_finding(self):
    report = purity.check_model(*model(Keeping))
    fault, = (finding for finding in report.findings if finding.module)
    self.assertEqual((fault.what, fault.module), ("keeps an array on `self`", "cell_1"))
    self.assertEqual(fault.when.partition(":")[0],
                     "init, step, unroll, hidden, loss, activations")

  def test_sound_cells_are_pure(self):
    for cell in (Cell, Restoring):
      report = check_unroll(cell)
      self.assertTrue(report.pure, report)

  def test_output_passes_when_it_is_allowed(self):
    self.assertTrue(check_unroll(Talking, allow_output=True).pure)

  def test_covers_every_function_of_the_bundle(self):
    lm, params = model(Cell)
    with mock.patch.object(models, "check") as check:
      check.return_value = purity.PurityReport("f", runs=1)
      purity.check_model(lm, params)
    checked = [call.args[0] for call in check.call_args_list]
    for name in set(lm._fields) - {"config"}:
      self.assertIn(getattr(lm, name), checked)
    # With a key and without, where a function takes one.
    for function in (lm.step, lm.unroll, lm.hidden, lm.loss):
      keys = [call.args[2] for call in check.call_args_list if call.args[0] is function]
      self.assertLen(keys, 2)
      self.assertIsNone(keys[0])
    more = type("More", (), {"_fields": (*lm._fields, "extra"), **lm._asdict()})
    with mock.patch.object(models, "check", check):
      self.assertEqual(purity.check_model(more, params).unchecked,
                       ("extra: what it takes is not known here",))


class HaikuTest(absltest.TestCase):
  """A Haiku function of one's own, through `check`."""

  def test_the_module_is_named(self):
    transformed = hk.transform(lambda x: Drawing(3, name="noisy")(x, jnp.zeros([1, 3]))[0])
    x = jnp.ones([1, 2])
    params = transformed.init(jax.random.key(0), x)
    report = purity.check(transformed.apply, params, None, x)
    self.assertIn(("advances the generator of `numpy.random`", "noisy"),
                  [(finding.what, finding.module) for finding in report.findings])

  def test_parameters_that_leak_out_of_a_raw_transform(self):
    def forward(x):
      return jax.jit(hk.Linear(2, name="inner"))(x)
    report = purity.check(hk.transform(forward).init, jax.random.key(0), jnp.ones([1, 2]))
    fault, = (finding for finding in report.findings if "raw JAX transform" in finding.what)
    self.assertEqual(fault.module, "inner")
    self.assertNotEmpty(fault.place)


if __name__ == "__main__":
  absltest.main()
