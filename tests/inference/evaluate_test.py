"""Every token but the first is scored once, whatever the windows; figures are exact sums."""

import functools
import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from tests import oracle
from tests.inference import compilations

N = 150


@functools.cache
def model(scale=0.7, dtype="float32"):
  """A model with dropout in its config, drawn parameters, and a text of ids."""
  config = hklm.ModelConfig(
      vocab_size=7, embedding_size=5, hidden_size=6, num_layers=2, initial_state="learned",
      input_dropout=0.5, layer_dropout=0.5, output_dropout=0.5, dtype=dtype)
  lm = hklm.language_model(config)
  params = oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=scale)
  return lm, params, np.random.RandomState(0).randint(7, size=N)


def numpy_nats(lm, params, ids):
  """Of the tokens after the first, in NumPy, from the initial state."""
  truth = oracle.NumpyModel(lm.config, params)
  return truth.loss(ids[:-1], ids[1:], truth.initial_state())


def zero_model(vocab_size):
  lm = hklm.language_model(
      hklm.ModelConfig(vocab_size=vocab_size, embedding_size=2, hidden_size=2))
  return lm, jax.tree.map(jnp.zeros_like, lm.init(jax.random.key(0)))


class FiguresTest(parameterized.TestCase):

  @parameterized.parameters((0.1, 1e-6), (0.7, 1e-6), (3.0, 1e-5))
  def test_sum_is_that_of_numpy(self, scale, tolerance):
    lm, params, ids = model(scale)
    expected = numpy_nats(lm, params, ids)
    for window in (1, 35, 256):
      metrics = hklm.evaluate(lm, params, ids, window=window)
      self.assertEqual(metrics.tokens, N - 1)
      np.testing.assert_allclose(metrics.nats, expected.sum(), rtol=tolerance)
      np.testing.assert_allclose(metrics.perplexity, np.exp(expected.mean()), rtol=10 * tolerance)

  @parameterized.parameters(1, 7, 35, N - 1, N, 10**9)
  def test_window_changes_nothing(self, window):
    # In float64: XLA adds up a product of another shape in another order, and in float32 that
    # moves a sum by its last digit.
    with jax.enable_x64(True):
      lm, params, ids = model(3.0, "float64")
      metrics = hklm.evaluate(lm, params, ids, window=window)
      np.testing.assert_allclose(metrics.nats, numpy_nats(lm, params, ids).sum(), rtol=1e-13)
      self.assertEqual((metrics.tokens, metrics.streams), (N - 1, 1))
      self.assertEqual(metrics.window, min(window, N - 1))

  def test_sum_is_that_of_one_unrolling(self):
    lm, params, ids = model()
    tokens = ids[:, None].astype(np.int32)
    logits, _ = lm.unroll(params, None, tokens[:-1], lm.initial_state(params, 1))
    logits = np.asarray(logits, np.float64)[:, 0]
    nats = np.log(np.exp(logits).sum(-1)) - logits[np.arange(N - 1), ids[1:]]
    np.testing.assert_allclose(hklm.evaluate(lm, params, ids).nats, nats.sum(), rtol=1e-6)

  @parameterized.parameters((2, 7), (4, 10), (20, 64), (149, 3))
  def test_streams_cover_every_target_once_from_a_cold_start(self, streams, window):
    lm, params, ids = model()
    metrics = hklm.evaluate(lm, params, ids, window, streams)
    each = -(-(N - 1) // streams)
    pieces = [ids[start:start + each + 1] for start in range(0, N - 1, each)]
    self.assertEqual((metrics.tokens, metrics.streams), (N - 1, len(pieces)))
    self.assertEqual(sum(len(piece) - 1 for piece in pieces), N - 1)
    expected = sum(numpy_nats(lm, params, piece).sum() for piece in pieces)
    np.testing.assert_allclose(metrics.nats, expected, rtol=2e-6)
    self.assertGreater(abs(metrics.nats - hklm.evaluate(lm, params, ids).nats), 1e-3)

  def test_more_streams_than_targets(self):
    lm, params = zero_model(4)
    metrics = hklm.evaluate(lm, params, [0, 1, 2], streams=50)
    self.assertEqual((metrics.tokens, metrics.streams), (2, 2))

  @parameterized.parameters(2, 100)
  def test_zero_parameters_give_log_v(self, vocab_size):
    lm, params = zero_model(vocab_size)
    metrics = hklm.evaluate(lm, params, np.arange(vocab_size), window=3)
    np.testing.assert_allclose(metrics.nats, (vocab_size - 1) * np.log(vocab_size), rtol=1e-6)
    np.testing.assert_allclose(metrics.bits_per_token, np.log2(vocab_size), rtol=1e-6)

  @parameterized.parameters(1, 3)
  def test_unknown_tokens_are_summed_apart(self, streams):
    lm, params, ids = model()
    metrics = hklm.evaluate(lm, params, ids, 11, streams, unknown=ids[1])
    plain = hklm.evaluate(lm, params, ids, 11, streams)
    self.assertEqual((metrics.nats, metrics.tokens), (plain.nats, plain.tokens))
    self.assertEqual((plain.unknown_nats, plain.unknown_tokens), (0.0, 0))
    self.assertEqual(metrics.unknown_tokens, np.sum(ids[1:] == ids[1]))
    if streams == 1:
      np.testing.assert_allclose(metrics.unknown_nats,
                                 numpy_nats(lm, params, ids)[ids[1:] == ids[1]].sum(), rtol=1e-6)

  def test_id_0_is_a_token_and_not_padding(self):
    lm, params = zero_model(4)
    metrics = hklm.evaluate(lm, params, np.zeros(10, int), window=4, streams=2, unknown=0)
    self.assertEqual((metrics.tokens, metrics.unknown_tokens), (9, 9))

  def test_two_runs_agree_bit_for_bit_whatever_dropout_the_config_names(self):
    lm, params, ids = model()
    runs = {hklm.evaluate(lm, params, ids, 16, 3) for _ in range(3)}
    self.assertLen(runs, 1)

  @parameterized.parameters(np.uint8, np.int64)
  def test_memory_maps_of_any_integer_type(self, dtype):
    lm, params, ids = model()
    path = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "ids")
    ids.astype(dtype).tofile(path)
    self.assertEqual(hklm.evaluate(lm, params, np.memmap(path, dtype, "r")),
                     hklm.evaluate(lm, params, ids.tolist()))


class RefusedTest(parameterized.TestCase):

  @parameterized.parameters(0, 1)
  def test_nothing_to_score(self, count):
    lm, params = zero_model(4)
    with self.assertRaisesRegex(InputError, f"nothing to score: found {count} tokens"):
      hklm.evaluate(lm, params, np.zeros(count, int))

  @parameterized.parameters(
      ({"window": 0}, "--window=0"), ({"streams": 0}, "--streams=0"), ({"window": -5}, "-5"))
  def test_ranges(self, arguments, message):
    lm, params = zero_model(4)
    with self.assertRaisesRegex(InputError, message):
      hklm.evaluate(lm, params, [0, 1, 2], **arguments)

  @parameterized.parameters(([1, 4, 0], "id 4 at position 1"), ([1, 0, -1], "id -1 at position 2"))
  def test_ids_outside_the_vocabulary(self, ids, message):
    lm, params = zero_model(4)
    with self.assertRaisesRegex(InputError, message):
      hklm.evaluate(lm, params, ids)

  @parameterized.parameters(np.nan, np.inf)
  def test_parameters_that_are_not_finite(self, value):
    lm, params, ids = model()
    bad = dict(params, head=dict(params["head"], b=params["head"]["b"].at[0].set(value)))
    with self.assertRaisesRegex(InputError, "finite"):
      hklm.evaluate(lm, bad, ids)


class CompilationTest(absltest.TestCase):

  def test_no_text_length_compiles_anew(self):
    lm, params, ids = model()
    hklm.evaluate(lm, params, ids, window=16)
    with compilations.counted() as names:
      for length in range(30, N, 9):
        hklm.evaluate(lm, params, ids[:length], window=16)
    self.assertEmpty(names)
    with compilations.counted() as names:  # it does count
      hklm.evaluate(lm, params, ids, window=13)
    self.assertLen(names, 1)


if __name__ == "__main__":
  absltest.main()
