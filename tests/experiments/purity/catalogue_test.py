"""The catalogue: large and various enough, and every example runs."""

import json
import os
import subprocess
import sys
import tempfile
import warnings

import jax
import numpy as np
from absl.testing import absltest, parameterized

from experiments.purity import calls, catalogue, chex_calls, optax_calls
from tests.experiments.article import binary

# Imports the catalogue, then runs its impure examples, in a process that may be changed.
RUN_IMPURE = """
import json, logging, os, random, warnings, jax, haiku, optax, chex, numpy
def state():
  return repr([random.getstate(), numpy.random.get_state(), dict(os.environ), os.getcwd(),
               warnings.filters, numpy.geterr(), logging.getLogger().handlers,
               sorted(jax.config.values.items(), key=str)])
before = state()
from experiments.purity import catalogue
found = {"import_changed_nothing": before == state()}
# Devices can only be added as long as none has been looked for.
jax.config.update("jax_num_cpu_devices", 2)
found["devices"] = len(jax.devices())
found["errors"] = {}
for example in catalogue.IMPURE:
  try:
    for _ in range(3):
      example.function(*example.arguments())
  except Exception as error:
    found["errors"][example.name] = repr(error)
print("\\n" + json.dumps(found))
"""


def last_line(code: str, folder: str, typed: str = ""):
  """What a new process, running `code` in this folder, prints last, as JSON; and its stderr."""
  environment = {**os.environ, "PYTHONPATH": str(binary.ROOT), "TMPDIR": folder,
                 "JAX_PLATFORMS": "cpu"}
  there = os.path.join(folder, "there")
  os.mkdir(there)
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=there,
                        env=environment, input=typed, timeout=300, check=True)
  return json.loads(done.stdout.splitlines()[-1]), done.stderr


def leaves(output):
  """An output's parts; a function's are those of its value at 5."""
  parts = jax.tree.leaves(output(5) if callable(output) else output)
  return [jax.random.key_data(part) if isinstance(part, jax.Array) and jax.dtypes.issubdtype(
      part.dtype, jax.dtypes.prng_key) else part for part in parts]


class CatalogueTest(parameterized.TestCase):

  def test_sizes(self):
    self.assertGreaterEqual(len(catalogue.IMPURE), 36)
    self.assertGreaterEqual(len({example.kind for example in catalogue.IMPURE}), 30)
    self.assertGreaterEqual(len(catalogue.PURE), 100)
    of_libraries = len(optax_calls.CALLS) + len(chex_calls.CALLS)
    self.assertGreaterEqual(len(catalogue.PURE) - of_libraries, 35)
    self.assertGreaterEqual(len(optax_calls.CALLS), 62)
    self.assertGreaterEqual(len(chex_calls.CALLS), 12)

  def test_names_are_unique_and_in_order(self):
    names = [example.name for example in (*catalogue.IMPURE, *catalogue.PURE)]
    self.assertLen(set(names), len(names))
    for examples in (catalogue.IMPURE, catalogue.PURE):
      self.assertSequenceEqual(examples, catalogue.by_name(reversed(examples)))
    for module in (optax_calls, chex_calls):
      self.assertLen({call.function for call in module.CALLS}, len(module.CALLS))

  def test_importing_changes_and_starts_nothing_and_impure_examples_run(self):
    found, errors = last_line(RUN_IMPURE, self.enterContext(tempfile.TemporaryDirectory()),
                              "1\n" * 100)
    self.assertEqual(found, {"import_changed_nothing": True, "devices": 2, "errors": {}}, errors)

  @parameterized.named_parameters(
      (example.name, example) for example in catalogue.PURE)
  def test_pure_example_gives_the_same_again_without_warning(self, example):
    with warnings.catch_warnings():
      warnings.simplefilter("error")
      arguments = example.arguments()
      first = leaves(example.function(*arguments))
      again = leaves(example.function(*arguments))
      anew = leaves(example.function(*example.arguments()))
    for other in (again, anew):
      self.assertEqual(len(first), len(other))
      for one, two in zip(first, other, strict=True):
        np.testing.assert_array_equal(one, two)

  def test_arguments_are_new_each_time(self):
    for example in (*catalogue.IMPURE, *catalogue.PURE):
      for one, two in zip(example.arguments(), example.arguments(), strict=True):
        if isinstance(one, list | dict | np.ndarray | jax.Array):
          self.assertIsNot(one, two, example.name)

  def test_temporary_files_stay_in_the_temporary_directory(self):
    for example in catalogue.IMPURE:
      for argument in example.arguments():
        if isinstance(argument, str) and argument.startswith(os.sep):
          self.assertTrue(argument.startswith(tempfile.gettempdir())
                          or argument.startswith(str(binary.ROOT)), example.name)


class CallTest(absltest.TestCase):

  def test_a_call_becomes_a_function(self):
    call = calls.Call("optax.linear_schedule", "1.0, 0.0, 10", "(count)")
    self.assertEqual(call.source(), "def optax_linear_schedule(count):\n"
                                    "  return optax.linear_schedule(1.0, 0.0, 10)(count)\n")
    function = calls.functions("somewhere", "import optax", (call,))["optax_linear_schedule"]
    self.assertEqual(function.__module__, "somewhere")
    self.assertAlmostEqual(float(function(*calls.arguments(call))), 0.7, places=6)

  def test_parameters_are_what_a_call_names(self):
    self.assertEqual(calls.Call("optax.l2_loss", "y, x").parameters, ("x", "y"))
    self.assertEqual(calls.Call("chex.assert_equal", "3, 3").parameters, ())


if __name__ == "__main__":
  absltest.main()
