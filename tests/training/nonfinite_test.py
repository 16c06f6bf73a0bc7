"""An update that is not finite: left out with `skip`, passed on with `stop`."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.training import step
from tests.training import updates

T, B, V, COUNT, BAD = 3, 2, 4, 5, 2
MODEL = hklm.ModelConfig(vocab_size=V, embedding_size=2, hidden_size=3)
WINDOWS, RESETS = updates.windows(COUNT, T, B, V), [np.zeros(B, bool)] * COUNT
OUTSIDE = np.full_like(WINDOWS[0], V)  # ids that the model has not: their loss is NaN
BROKEN = [*WINDOWS[:BAD], OUTSIDE, *WINDOWS[BAD:]]


def run(windows, **changes):
  config = TrainConfig(batch_size=B, average="polyak", **changes)
  optimizer = updates.sgd(0.1, optimizer="adam", schedule="cosine", clip=1.0)
  return updates.run(MODEL, optimizer, config, windows, [np.zeros(B, bool)] * len(windows))


def nan_gradient(lm):
  """The functions with a loss whose value is finite and whose derivative is not."""

  def loss(params, key, inputs, targets, state):
    loss, state = lm.loss(params, key, inputs, targets, state)
    nothing = params["head"]["b"][0] * 0
    return loss._replace(penalty=loss.penalty + jnp.sqrt(nothing)), state

  return lm._replace(loss=loss)


class SkipTest(parameterized.TestCase):

  @parameterized.parameters({}, {"accumulate": 2})
  def test_everything_but_the_step_is_as_if_it_had_not_been(self, **changes):
    with_bad, told = run(BROKEN, on_nonfinite="skip", **changes)
    without, _ = run(WINDOWS, on_nonfinite="skip", **changes)
    self.assertEqual([int(state.skipped) for state in with_bad], [0, 0, 1, 1, 1, 1])
    self.assertEqual([int(state.step) for state in with_bad], [1, 2, 3, 4, 5, 6])
    without.insert(BAD, without[BAD - 1])
    for found, expected in zip(with_bad, without, strict=True):
      chex.assert_trees_all_equal(
          found, expected._replace(step=found.step, skipped=found.skipped))
    self.assertEqual([int(metrics.skipped) for metrics in told], [0, 0, 1, 0, 0, 0])
    self.assertEqual([int(metrics.tokens) for metrics in told], [6, 6, 0, 6, 6, 6])
    self.assertEqual((told[BAD].nats, told[BAD].gradient_norm), (0, 0))
    self.assertGreater(min(told[n].nats for n in range(6) if n != BAD), 0)

  def test_a_gradient_alone_that_is_not_finite(self):
    config = TrainConfig(on_nonfinite="skip")
    lm, state = updates.started(MODEL, updates.sgd(0.1), config, B)
    before = updates.kept(state._replace(key=None))
    state, metrics = step.make_update(nan_gradient(lm), updates.sgd(0.1), config)(
        state, WINDOWS[0], RESETS[0])
    chex.assert_trees_all_equal(
        updates.kept(state._replace(key=None)),
        before._replace(step=np.int32(1), skipped=np.int32(1)))
    self.assertEqual(tuple(metrics), (0, 0, 0, 1))


class StopTest(parameterized.TestCase):

  def test_what_is_not_finite_is_passed_on(self):
    states, told = run(BROKEN)
    self.assertTrue(np.isnan(told[BAD].nats))
    self.assertTrue(np.isnan(states[BAD].params["head"]["w"]).any())
    self.assertEqual([int(metrics.skipped) for metrics in told], [0] * 6)
    self.assertEqual([int(metrics.tokens) for metrics in told], [6] * 6)
    self.assertEqual(int(states[-1].skipped), 0)

  def test_nothing_is_selected(self):
    lm = hklm.language_model(MODEL)
    state = jax.eval_shape(functools.partial(step.init, lm, updates.sgd(0.1), B, 0))
    for on_nonfinite in ("stop", "skip"):
      update = step.make_update(lm, updates.sgd(0.1), TrainConfig(on_nonfinite=on_nonfinite))
      text = update.lower(state, WINDOWS[0], RESETS[0]).as_text()
      self.assertEqual("is_finite" in text, on_nonfinite == "skip")


if __name__ == "__main__":
  absltest.main()
