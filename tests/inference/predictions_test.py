"""What is predicted at every place of lines, beside NumPy; each line as if it were alone."""

import functools
import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from hklm.inference import lines, predictions, streams
from hklm.inference.lines import WINDOW
from tests import oracle
from tests.inference import compilations

V = 7


@functools.cache
def model(dtype="float32", **changes):
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=V, embedding_size=5, hidden_size=6, num_layers=2, initial_state="learned",
      layer_dropout=0.5, output_dropout=0.5, dtype=dtype, **changes))
  return lm, oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=1.0)


def some_lines(lengths, vocab_size=V):
  draw = np.random.RandomState(0)
  return [draw.randint(vocab_size, size=length) for length in lengths]


class Truth:
  """The same in NumPy: a token after the other."""

  def __init__(self, lm, params, first):
    self._model = oracle.NumpyModel(lm.config, params)
    self._layers = self._model.initial_state()
    if first is not None:
      self._layers, _ = self._model.read(first, self._layers)

  def line(self, ids):
    nats, entropies, ranks = [], [self._entropy()], []
    for token in ids:
      p = self._distribution()
      nats.append(-np.log(p[token]))
      ranks.append(1 + sum(p > p[token]))
      self._layers, _ = self._model.read(token, self._layers)
      entropies.append(self._entropy())
    return np.array(nats), np.array(entropies), np.array(ranks, np.int64)

  def _distribution(self):
    logits = self._model.readout(self._layers)
    p = np.exp(logits - logits.max())
    return p / p.sum()

  def _entropy(self):
    p = self._distribution()
    return -(p * np.log(p)).sum()


class PredictionsTestCase(oracle.X64TestCase):

  def assert_same(self, found, expected, tolerance):
    for name, values, needed in zip(found._fields, found, expected, strict=True):
      self.assertEqual((values.dtype, values.shape), (needed.dtype, needed.shape), name)
      np.testing.assert_allclose(values, needed, rtol=tolerance, atol=tolerance, err_msg=name)


class LinesTest(PredictionsTestCase):

  @parameterized.parameters(None, 3)
  def test_all_figures_are_those_of_numpy(self, first):
    lm, params = model("float64")
    ids = some_lines((0, 1, 2, 9, 40, WINDOW - 1, WINDOW, WINDOW + 1, 0, 2 * WINDOW + 1))
    for line, found in zip(ids, predictions.predict_lines(lm, params, ids, first), strict=True):
      self.assert_same(found, Truth(lm, params, first).line(line), 1e-11)

  @parameterized.parameters(("float32", None), ("float32", 0), ("bfloat16", 2))
  def test_a_model_of_zeros_gives_log_v_and_no_rank_but_the_first(self, dtype, first):
    lm, params = model(dtype)
    zeros = jax.tree.map(jnp.zeros_like, params)
    for N in (1, 12, WINDOW + 1):
      (found,) = predictions.predict_lines(lm, zeros, some_lines([N]), first)
      np.testing.assert_allclose(found.nats, np.log(V), rtol=1e-15)
      np.testing.assert_allclose(found.entropies, np.log(V), rtol=1e-15)
      np.testing.assert_array_equal(found.ranks, 1)

  def test_equally_probable_ones_share_the_better_rank(self):
    logits = jnp.log(jnp.array([.2, .4, .2, .2, 0.0]))
    found = predictions.figures(jnp.tile(logits, [5, 1]), jnp.arange(5)).on_host()
    self.assertEqual(found.ranks.tolist(), [2, 1, 2, 2, 5])
    np.testing.assert_allclose(  # 0 log 0 is 0
        found.entropies, np.full(5, .6 * np.log(5) + .4 * np.log(2.5)), rtol=1e-6)

  def test_a_line_is_the_same_alone_in_any_batch_and_order(self):
    with jax.enable_x64(False):
      lm = hklm.language_model(hklm.ModelConfig(vocab_size=V, embedding_size=64, hidden_size=256))
      params = oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=1.0)
      ids = some_lines(np.random.RandomState(1).randint(0, 45, size=300))
      together = predictions.predict_lines(lm, params, ids, 1)
      order = np.random.RandomState(2).permutation(len(ids))
      shuffled = predictions.predict_lines(lm, params, [ids[n] for n in order], 1)
      for place, n in enumerate(order):
        self.assert_same(shuffled[place], together[n], 1e-6)
      for n in range(0, 300, 29):
        (alone,) = predictions.predict_lines(lm, params, [ids[n]], 1)
        self.assert_same(alone, together[n], 1e-6)

  def test_lines_are_read_side_by_side(self):
    lm, params = model()
    ids = some_lines(np.random.RandomState(1).randint(5, 41, size=2000))
    begin = mock.Mock(side_effect=predictions._begin)
    with mock.patch.object(predictions, "_begin", begin):
      predictions.predict_lines(lm, params, ids, 0)
    self.assertLess(begin.call_count, 2000 / 50)

  def test_long_lines_are_the_same_in_any_company(self):
    with jax.enable_x64(False):
      lm, params = model()
      ids = some_lines([WINDOW + 3, WINDOW + 70, 5, 2 * WINDOW])
      together = predictions.predict_lines(lm, params, ids, 1)
      for line, its in zip(ids[::-1], together[::-1], strict=True):
        (alone,) = predictions.predict_lines(lm, params, [line], 1)
        self.assert_same(alone, its, 1e-7)

  def test_a_large_vocabulary_bounds_the_windows(self):
    lm, params = model("float64")
    ids = some_lines([40, 3, WINDOW + 1])
    for logits in (64 * V * 11, 64 * V, 1):  # windows of 8 steps, of 1, and of 1 whatever B
      read = mock.Mock(side_effect=predictions.read)
      with (mock.patch.object(lines, "LOGITS", logits),
            mock.patch.object(predictions, "read", read)):
        found = predictions.predict_lines(lm, params, ids, 3)
      for line, its in zip(ids, found, strict=True):
        self.assert_same(its, Truth(lm, params, 3).line(line), 1e-11)
      sizes = [call.args[2].size for call in read.call_args_list]
      self.assertLessEqual(max(sizes), max(logits // V, 64))

  def test_10000_lines_compile_at_most_12_programs_and_none_again(self):
    lm, params = model(forget_bias=1.0)  # that nothing has compiled yet
    ids = some_lines(np.random.RandomState(1).randint(5, 41, size=10_000))
    with compilations.counted() as names:
      predictions.predict_lines(lm, params, ids, 0)
    self.assertLessEqual(len(names), 12)
    with compilations.counted() as names:
      predictions.predict_lines(lm, params, ids[::-1], 0)
    self.assertEmpty(names)

  def test_what_is_not_finite_is_named(self):
    lm, params = model()
    bad = jax.tree.map(lambda leaf: leaf * jnp.nan, params)
    with self.assertRaisesRegex(InputError, "line 1, token 0: the surprisal is nan"):
      predictions.finite(predictions.predict_lines(lm, params, [[1, 2]])[0]._replace(
          nats=np.full(2, np.nan)), 1)
    with self.assertRaisesRegex(InputError, "line 0, before token 0: the entropy is nan"):
      predictions.predict_lines(lm, bad, [[], [1, 2]])
    with self.assertRaisesRegex(InputError, "line 0, token 0: the surprisal is nan"):
      predictions.predict_lines(lm, bad, [[1, 2]])
    with self.assertRaisesRegex(InputError, "line 0, before token 0: the entropy is nan"):
      list(streams.predict_stream(lm, bad, [[], [], [1, 2]]))
    figures = predictions.figures(jnp.zeros([3, 1, V]), jnp.zeros([3, 1], int))
    figures = figures._replace(gaps=figures.gaps.at[2].set(jnp.inf))
    broken = streams.Reader(3, lambda params: None, lambda *args: (figures, None))
    with self.assertRaisesRegex(InputError, "line 2, token 1: the surprisal is inf"):
      list(streams.predict_stream(lm, params, [[1], [], [2, 3]], 0, broken))

  @parameterized.parameters((math.inf, "line 1, token 1: the surprisal is inf"),
                            (0.0, "line 1, before token 2: the entropy is nan"))
  def test_infinity_and_an_entropy_are_refused_too(self, nats, message):
    good = predictions.Predictions(np.ones(2), np.ones(3), np.ones(2, int))
    self.assertIs(predictions.finite(good, 1), good)
    bad = good._replace(nats=np.array([1, nats]), entropies=np.array([1, 1, math.nan]))
    with self.assertRaisesRegex(InputError, message):
      predictions.finite(bad, 1)

  def test_ids_that_the_model_cannot_read(self):
    lm, params = model()
    for read in (predictions.predict_lines, lambda *args: list(streams.predict_stream(*args))):
      with self.assertRaisesRegex(InputError, "line 1: id 7 at position 1 is outside"):
        read(lm, params, [[1], [0, V]])


class StreamTest(PredictionsTestCase):

  @parameterized.product(first=[None, 3], lengths=[
      (0, 1, 0, 2), (5,), (), (0,), (streams.WINDOW,), (streams.WINDOW - 1, 1, 1),
      (3, 2 * streams.WINDOW + 1, 0, 7, 300), (streams.WINDOW + 1, 0)])
  def test_lines_are_read_as_one_text(self, first, lengths):
    lm, params = model("float64")
    ids, truth = some_lines(lengths), Truth(lm, params, first)
    found = list(streams.predict_stream(lm, params, iter(ids), first))
    self.assertLen(found, len(ids))
    for line, its in zip(ids, found, strict=True):
      self.assert_same(its, truth.line(line), 1e-11)

  def test_lines_come_before_all_of_them_are_read(self):
    lm, params = model("float64")
    read = []

    def lines():
      for n in range(100):
        read.append(n)
        yield np.zeros(20, int)

    next(streams.predict_stream(lm, params, lines(), 0))
    self.assertLess(len(read), 100)


if __name__ == "__main__":
  absltest.main()
