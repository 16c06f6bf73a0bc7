"""Dynamic evaluation: its steps are those of the equation, and come after the scores."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from hklm.inference import dynamic, streams
from hklm.inference.adaptive import evaluate_adapting, reader
from hklm.inference.cache import CacheSettings
from hklm.inference.dynamic import DynamicSettings
from tests import oracle
from tests.inference import adapting_oracle as truth
from tests.inference import compilations

N = 16
WINDOWS = np.stack([truth.text(9, seed) for seed in (3, 4)], axis=1)  # [9, 2]
WINDOWS = [WINDOWS[start:start + 5] for start in (0, 4)]


def predicted(lm, params, ids, **settings):
  """Of the tokens after the first."""
  (line,) = streams.predict_stream(lm, params, [ids[1:]], int(ids[0]), reader(lm, **settings))
  return line


class EquationTest(oracle.X64TestCase, parameterized.TestCase):

  def test_sizes_of_gradients_are_those_of_finite_differences(self):
    lm, params = truth.model()
    self.assert_close(dynamic.gradient_sizes(lm, params, WINDOWS),
                      truth.gradient_sizes(lm, params, WINDOWS), 1e-8)

  @parameterized.named_parameters(
      ("small_steps", DynamicSettings(0.02, 0.02, 5, 0.01), None),
      ("decay_at_its_limit", DynamicSettings(0.05, 0.9, 3, 0.1), None),
      ("no_decay", DynamicSettings(0.05, 0.0, 3, 0.1), None),
      ("a_token_at_a_time", DynamicSettings(0.01, 0.1, 1, 0.1), None),
      ("with_a_cache", DynamicSettings(0.05, 0.05, 4, 0.1), CacheSettings(3, 0.2, 2.0)))
  def test_predictions_are_those_of_numpy(self, settings, cache):
    lm, params = truth.model()
    ids, sizes = truth.text(N), truth.gradient_sizes(lm, params, WINDOWS)
    p = truth.probabilities(lm, params, ids, cache, settings, sizes)
    self.assert_close(p.sum(axis=-1), np.ones(N))
    true = p[np.arange(N - 1), ids[1:]]
    its = predicted(lm, params, ids, cache=cache, dynamic=settings, sizes=sizes, window=7)
    self.assert_close(its.nats, -np.log(true), 1e-7)
    self.assert_close(its.entropies, -(p * np.log(p)).sum(axis=-1), 1e-7)
    np.testing.assert_array_equal(its.ranks, 1 + (p[:-1] > true[:, None]).sum(axis=-1))
    plain = predicted(lm, params, ids)
    self.assertGreater(np.abs(its.nats - plain.nats)[settings.segment:].min(), 1e-5)

  @parameterized.parameters(1, 9)
  def test_windows_and_lines_change_nothing(self, window):
    lm, params = truth.model()
    ids, sizes = truth.text(N), dynamic.gradient_sizes(lm, params, WINDOWS)
    how = {"dynamic": DynamicSettings(0.1, 0.02, 2, 0.1), "sizes": sizes}
    whole = predicted(lm, params, ids, **how)
    lines = streams.predict_stream(lm, params, np.split(ids[1:], [1, 4, 4, 11]), int(ids[0]),
                                   reader(lm, window=window, **how))
    self.assert_close(np.concatenate([line.nats for line in lines]), whole.nats)


class OrderTest(parameterized.TestCase):

  def test_a_segment_is_scored_before_it_is_learned_from(self):
    lm, params = truth.model("float32")
    how = {"dynamic": DynamicSettings(1.0, 0.0, 5, 0.1),
           "sizes": dynamic.gradient_sizes(lm, params, WINDOWS)}
    ids, plain = truth.text(N), predicted(lm, params, truth.text(N))
    its = predicted(lm, params, ids, **how)
    np.testing.assert_allclose(its.nats[:5], plain.nats[:5], rtol=1e-6)
    self.assertGreater(np.abs(its.nats - plain.nats)[5:].min(), 1e-3)
    for changed in range(1, N):  # what a token is changes its own surprisal and later ones alone
      other = predicted(lm, params, np.where(np.arange(N) == changed, (ids + 1) % truth.V, ids),
                        **how)
      np.testing.assert_array_equal(other.nats[:changed - 1], its.nats[:changed - 1])
      np.testing.assert_array_equal(other.entropies[:changed], its.entropies[:changed])

  def test_a_reader_with_neither_is_the_plain_one(self):
    lm, params = truth.model("float32")
    (plain,) = streams.predict_stream(lm, params, [truth.text(N)], 0)
    (its,) = streams.predict_stream(lm, params, [truth.text(N)], 0, reader(lm))
    for found, expected in zip(its, plain, strict=True):
      np.testing.assert_array_equal(found, expected)

  def test_a_text_of_one_token_is_learned_by_heart(self):
    lm, params = truth.model("float32")
    how = reader(lm, dynamic=DynamicSettings(0.1, 0.0),
                 sizes=dynamic.gradient_sizes(lm, params, WINDOWS))
    ids = np.full(200, 3)
    adapted = evaluate_adapting(lm, params, ids, how, unknown=3)
    self.assertEqual((adapted.tokens, adapted.unknown_tokens, adapted.streams), (199, 199, 1))
    self.assertEqual(adapted.nats, adapted.unknown_nats)
    self.assertLess(adapted.nats, 0.5 * hklm.evaluate(lm, params, ids).nats)

  def test_small_steps_are_not_lost_in_bfloat16(self):
    lm, params = truth.model("bfloat16")
    how = reader(lm, dynamic=DynamicSettings(1e-7, 0.0),
                 sizes=dynamic.gradient_sizes(lm, params, WINDOWS))
    tokens = jnp.asarray(truth.text(255))[:, None]
    _, carried = how.read(params, tokens, tokens, how.start(params))
    for theta, before in zip(jax.tree.leaves(carried.theta), jax.tree.leaves(params), strict=True):
      self.assertGreater(np.abs(theta - before.astype(np.float32)).max(), 0)
      np.testing.assert_array_equal(theta.astype(before.dtype), before)

  def test_settings_and_lengths_compile_nothing_anew(self):
    lm, params = truth.model("float32")
    sizes = dynamic.gradient_sizes(lm, params, WINDOWS)
    predicted(lm, params, truth.text(N), dynamic=DynamicSettings(0.1, 0.1), sizes=sizes, window=20)
    with compilations.counted() as names:
      predicted(lm, params, truth.text(77), dynamic=DynamicSettings(0.2, 0.0, epsilon=1.0),
                sizes=sizes, window=20)
    self.assertEmpty(names)


class RefusedTest(parameterized.TestCase):

  @parameterized.parameters((0.0, 0.1), (np.inf, 0.1), (0.1, -1.0), (0.1, 0.1, 0),
                            (0.1, 0.1, 5, 0.0))
  def test_settings(self, *settings):
    with self.assertRaisesRegex(InputError, "--dynamic_rate.*--dynamic_segment.*needed"):
      reader(truth.model("float32")[0], dynamic=DynamicSettings(*settings))

  @parameterized.parameters(([0], "nothing to score: found 1"), ([5, 0], "id 5 at position 0"))
  def test_texts(self, ids, message):
    lm, params = truth.model("float32")
    with self.assertRaisesRegex(InputError, message):
      evaluate_adapting(lm, params, ids, reader(lm))

  def test_no_training_text_or_no_gradients(self):
    lm, params = truth.model("float32")
    with self.assertRaisesRegex(InputError, "no window of training text.*--dynamic_corpus"):
      dynamic.gradient_sizes(lm, params, [])
    bad = jax.tree.map(lambda leaf: leaf * np.nan, params)
    with self.assertRaisesRegex(InputError, "mean size of gradients is nan"):
      dynamic.gradient_sizes(lm, bad, WINDOWS)


if __name__ == "__main__":
  absltest.main()
