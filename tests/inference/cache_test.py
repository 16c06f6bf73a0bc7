"""The neural cache: its probabilities are those of the equation, and sum to one."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.errors import InputError
from hklm.inference import cache, streams
from hklm.inference.adaptive import reader
from hklm.inference.cache import CacheSettings
from tests import oracle
from tests.inference import adapting_oracle as truth
from tests.inference import compilations

N = 12


def log_probabilities(lm, params, ids, settings, windows):
  """`[N, B, V]` after ids `[N, B]` that are read in windows of these lengths."""
  state, rows = lm.initial_state(params, ids.shape[1]), []
  held = cache.empty_cache(lm, params, settings.size, ids.shape[1])
  for tokens in np.split(ids, np.cumsum(windows)[:-1]):
    hidden, state = lm.hidden(params, None, tokens, state)
    log_p, held = cache.with_cache(lm.head(params, hidden), hidden, jnp.asarray(tokens), held,
                                   settings.weight, settings.flatness)
    rows.append(np.asarray(log_p))
  return np.concatenate(rows)


class EquationTest(oracle.X64TestCase, parameterized.TestCase):

  @parameterized.parameters(
      (CacheSettings(100, 0.3, 1.5), [N]), (CacheSettings(4, 0.3, 1.5), [N]),
      (CacheSettings(4, 0.3, 1.5), [3, 1, 2, 6]), (CacheSettings(1, 0.9, 0.0), [5, 7]),
      (CacheSettings(5, 0.1, -2.0), [1] * N))
  def test_all_probabilities_are_those_of_numpy_whatever_the_windows(self, settings, windows):
    lm, params = truth.model()
    ids = np.stack([truth.text(N), truth.text(N, seed=1)], axis=1)
    found = np.exp(log_probabilities(lm, params, ids, settings, windows))
    for column in range(2):
      self.assert_close(found[:, column],
                        truth.probabilities(lm, params, ids[:, column], settings))
    self.assert_close(found.sum(axis=-1), np.ones([N, 2]))

  def test_nothing_cached_is_the_model_itself(self):
    lm, params = truth.model()
    ids = truth.text(N)[:, None]
    plain, _ = lm.unroll(params, None, ids, lm.initial_state(params, 1))
    plain = np.asarray(jax.nn.log_softmax(plain))
    found = log_probabilities(lm, params, ids, CacheSettings(3, 0.5, 1.0), [1] * N)
    np.testing.assert_array_equal(found[0], plain[0])
    self.assertGreater(np.abs(found[1:] - plain[1:]).max(axis=-1).min(), 1e-3)
    self.assert_close(log_probabilities(lm, params, ids, CacheSettings(3, 0.0, 1.0), [N]), plain)

  @parameterized.parameters(1, 5, 7, 256)
  def test_lines_of_a_stream(self, window):
    lm, params = truth.model()
    ids, settings = truth.text(N), CacheSettings(4, 0.3, 1.5)
    lines = list(streams.predict_stream(lm, params, np.split(ids[1:], [4, 4, 9]), ids[0],
                                        reader(lm, settings, window=window)))
    p = truth.probabilities(lm, params, ids, settings)
    true = p[np.arange(N - 1), ids[1:]]
    self.assert_close(np.concatenate([line.nats for line in lines]), -np.log(true))
    np.testing.assert_array_equal(np.concatenate([line.ranks for line in lines]),
                                  1 + (p[:-1] > true[:, None]).sum(axis=-1))
    entropies = -(p * np.log(p)).sum(axis=-1)
    for line, places in zip(lines, ([0, 5], [4, 5], [4, 10], [9, 12]), strict=True):
      self.assert_close(line.entropies, entropies[slice(*places)])


class RangesTest(parameterized.TestCase):

  @parameterized.product(dtype=["float32", "bfloat16"], flatness=[0.0, 1.0, 1e4])
  def test_sums_to_one_in_other_types(self, dtype, flatness):
    lm, params = truth.model(dtype, 3.0)
    found = log_probabilities(lm, params, truth.text(60)[:, None],
                              CacheSettings(20, 0.4, flatness), [30, 30])
    self.assertEqual(found.dtype, np.float32)
    np.testing.assert_allclose(np.exp(found.astype(float)).sum(axis=-1), 1, atol=1e-6)

  def test_settings_and_lengths_compile_nothing_anew(self):
    lm, params = truth.model("float32")
    list(streams.predict_stream(lm, params, [truth.text(40)], 0,
                                reader(lm, CacheSettings(20, 0.4, 1.0), window=16)))
    with compilations.counted() as names:
      list(streams.predict_stream(lm, params, [truth.text(73), [1]], 0,
                                  reader(lm, CacheSettings(20, 0.1, 0.3), window=16)))
    self.assertEmpty(names)

  @parameterized.parameters((0, 0.1, 1.0), (5, 1.0, 1.0), (5, -0.1, 1.0), (5, 0.1, np.nan))
  def test_refuses(self, *settings):
    with self.assertRaisesRegex(InputError, "--cache_size.*--cache_weight.*--cache_flatness"):
      reader(truth.model("float32")[0], CacheSettings(*settings))


if __name__ == "__main__":
  absltest.main()
