"""hklm is pure, but for the edge that `library_impure` names."""

import re
import tempfile

import jax
import jax.numpy as jnp
from absl.testing import absltest, parameterized

import hklm
from hklm import purity
from hklm.training import step
from tests.purity import library_makers
from tests.purity.library_impure import IMPURE
from tests.purity.library_listing import public_names
from tests.purity.library_pure import PURE

# What differs most: tables, starts, biases, masks. The plain model and cells of one's own are
# `check_model`'s examples.
MODELS = {
    "lstm": hklm.ModelConfig(  # so wide that its layer multiplies the table itself
        5, 8, 8, num_biases=2, tie_embeddings=True, output_bias=False, initial_state="learned",
        init="unit", output_dropout=0.3, dropout_per_step=True),
}


# What is checked is what Python does: no program need be fast. Saves a fifth of the time.
def setUpModule():
  jax.config.update("jax_disable_most_optimizations", True)


def tearDownModule():
  jax.config.update("jax_disable_most_optimizations", False)
  jax.clear_caches()  # no other test gets such a program


def over(cases):
  """Runs a test once for each case, of several names under the last; it gets the name."""
  names = {case: name for name, case in sorted(cases.items())}.values()
  return parameterized.named_parameters((re.sub(r"\W+", "_", name), name) for name in names)


class FunctionsTest(purity.PurityAssertions, parameterized.TestCase):

  @over(PURE)
  def test_it_is_pure(self, name):
    call = PURE[name]()
    self.assertPure(call.function, *call.args)

  @over(IMPURE)
  def test_it_is_impure_in_these_ways_and_no_other(self, name):
    case = IMPURE[name]
    call = case.made_in(self.enter_context(tempfile.TemporaryDirectory()))
    report = purity.check(call.function, *call.args)
    found = {finding.what for finding in report.findings}
    self.assertEqual(report.verdict, "impure")
    self.assertSetEqual(found - set(case.beneath), set(case.whats) - set(case.beneath), report)

  def test_every_public_function_is_in_one_of_the_lists(self):
    named = {name.partition(",")[0] for name in PURE | IMPURE}
    self.assertEmpty(sorted(public_names() - named), "put it into library_pure or library_impure")
    self.assertEmpty(sorted(named - public_names()), "there is no such function")

  def test_the_update_gives_away_the_training_state_and_nothing_else(self):
    # That is what donation means; beneath it the update is pure.
    changes = {"optimizer": "sgd", "schedule": "constant"}
    update = step.make_update(library_makers.lm(), library_makers.optimizer(**changes))
    state = library_makers.train_state(**changes)
    report = purity.check(update, state, library_makers.window(), library_makers.reset())
    found = {finding.what for finding in report.findings}
    given = {name: {f"gives away the memory of argument 1.{name}{jax.tree_util.keystr(path)}"
                    for path, _ in jax.tree_util.tree_leaves_with_path(part)}
             for name, part in state._asdict().items()}
    self.assertContainsSubset(given["params"] | given["opt_state"] | given["step"], found)
    # What no computation reads, as the output before an unmasked window, need not go.
    self.assertContainsSubset(found, set().union(*given.values()))
    self.assertTrue(report.ran)
    self.assertEmpty(report.unchecked)


class ModelsTest(purity.PurityAssertions, parameterized.TestCase):

  @over(MODELS)
  def test_all_functions_of_a_model_are_pure(self, name):
    lm = hklm.language_model(MODELS[name])
    self.assertModelPure(lm, lm.init(jax.random.key(0)))

  def test_a_model_of_a_usual_size_can_be_checked(self):
    lm = hklm.language_model(hklm.ModelConfig(100, 512, 512, num_layers=3))
    params = lm.init(jax.random.key(0))
    self.assertPure(lm.unroll, params, None, jnp.zeros([4, 2], jnp.int32),
                    lm.initial_state(params, 2))


if __name__ == "__main__":
  absltest.main()
