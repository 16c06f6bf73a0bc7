"""Lines of ids: each by itself, whatever its length and its neighbours, in few compiled shapes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from hklm.inference import lines
from hklm.inference.lines import WINDOW
from tests import oracle
from tests.inference import compilations

V = 7
LENGTHS = (0, 1, 2, 3, 7, 8, 9, 63, 64, 65, WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 2,
           2 * WINDOW + 1, 2 * WINDOW + 2)


@functools.cache
def model(dtype="float32", **changes):
  """A model with dropout in its config and every parameter drawn."""
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=V, embedding_size=5, hidden_size=6, num_layers=2, initial_state="learned",
      layer_dropout=0.5, output_dropout=0.5, dtype=dtype, **changes))
  return lm, oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=1.0)


def zero_model(dtype="float32"):
  lm, params = model(dtype)
  return lm, jax.tree.map(jnp.zeros_like, params)


def some_lines(lengths):
  draw = np.random.RandomState(0)
  return [draw.randint(V, size=length) for length in lengths]


def numpy_nats(lm, params, ids):
  """Of every token, in NumPy, from the initial state."""
  truth = oracle.NumpyModel(lm.config, params)
  layers, nats = truth.initial_state(), []
  for token in ids:
    nats.append(oracle.nats(truth.readout(layers), token))
    layers, _ = truth.read(token, layers)
  return np.array(nats)


class NatsTest(parameterized.TestCase):

  def assert_nats(self, actual, expected, tolerance):
    self.assertLen(actual, len(expected))
    for found, needed in zip(actual, expected, strict=True):
      self.assertEqual((found.dtype, found.shape), (np.float64, np.shape(needed)))
      np.testing.assert_allclose(found, needed, rtol=tolerance, atol=tolerance)

  def test_every_length_and_order_is_that_of_numpy_in_float64(self):
    with jax.enable_x64(True):
      lm, params = model("float64")
      ids = some_lines(LENGTHS)
      expected = [numpy_nats(lm, params, line) for line in ids]
      for order in (range(len(ids)), np.random.RandomState(1).permutation(len(ids))):
        self.assert_nats(hklm.score_lines(lm, params, [ids[n] for n in order]),
                         [expected[n] for n in order], 1e-12)

  def test_a_line_costs_the_same_alone_and_among_others(self):
    lm, params = model()
    ids = some_lines(np.random.RandomState(1).randint(0, 70, size=200))
    ids[50] = ids[150] = ids[3]  # the same line thrice
    together = hklm.score_lines(lm, params, ids)
    for n in (0, 3, 50, 150, 199):
      self.assert_nats([together[n]], hklm.score_lines(lm, params, [ids[n]]), 1e-5)
    self.assert_nats([together[50], together[150]], [together[3]] * 2, 1e-6)

  def test_many_short_lines_of_one_length(self):
    lm, params = model()
    ids = some_lines([5] * (2 * lines.MOST // 8 + 3))  # two full groups and three lines
    for n, nats in enumerate(hklm.score_lines(lm, params, ids)):
      if n % 100 == 0 or n >= len(ids) - 3:
        np.testing.assert_allclose(nats, numpy_nats(lm, params, ids[n]), rtol=2e-5)

  @parameterized.parameters("one_hot", "gru", "own_cell", "tied")
  def test_other_models_agree_with_evaluate_and_readout(self, name):
    (case,) = [case for case in oracle.MODELS if case.name == name]
    with jax.enable_x64(True):
      ready = oracle.ready(case)
      lm, params = ready.lm, ready.params
      ids = some_lines([20, 13, 1])
      start = np.asarray(lm.readout(params, lm.initial_state(params, 1)))[0]
      for line, nats in zip(ids, hklm.score_lines(lm, params, ids), strict=True):
        np.testing.assert_allclose(nats[0], oracle.nats(start, line[0]), rtol=1e-12)
        if len(line) > 1:
          np.testing.assert_allclose(nats[1:].sum(), hklm.evaluate(lm, params, line).nats,
                                     rtol=1e-12)

  @parameterized.parameters("float32", "bfloat16")
  def test_zero_parameters_give_log_v_in_full_float32(self, dtype):
    lm, params = zero_model(dtype)
    for nats in hklm.score_lines(lm, params, some_lines([1, 12, WINDOW + 1])):
      np.testing.assert_allclose(nats, np.log(V), rtol=1e-6)

  def test_whatever_holds_the_ids(self):
    lm, params = model()
    ids = [[3, 1, 4], [1, 5], [], [6]]
    expected = hklm.score_lines(lm, params, ids)
    for same in (tuple(map(tuple, ids)), (line for line in ids), iter(map(jnp.int32, ids)),
                 *([np.array(line, dtype) for line in ids]
                   for dtype in (np.uint8, np.int16, np.int32, np.int64, np.uint64))):
      self.assert_nats(hklm.score_lines(lm, params, same), expected, 0)
    self.assert_nats(hklm.score_lines(lm, params, np.array([[3, 1, 4]])), expected[:1], 1e-6)

  def test_nothing(self):
    lm, params = model()
    self.assertEqual(hklm.score_lines(lm, params, []), [])
    self.assert_nats(hklm.score_lines(lm, params, [[], np.zeros(0, np.uint8)]), [[], []], 0)


class ShapesTest(absltest.TestCase):

  def test_300_lengths_compile_few_programs_and_never_again(self):
    lm, params = model(forget_bias=1.0)  # that nothing has compiled yet
    ids = some_lines(range(300))
    with compilations.counted() as names:
      hklm.score_lines(lm, params, ids)
    self.assertBetween(len(names), 5, 15)
    with compilations.counted() as names:
      hklm.score_lines(lm, params, ids[::-1])
      hklm.score_lines(lm, params, some_lines(range(300)))
    self.assertEmpty(names)

  def test_lengths_and_counts_of_lines_share_programs(self):
    lm, params = model(num_biases=2)
    with compilations.counted() as names:
      for length in range(57, 65):
        hklm.score_lines(lm, params, some_lines([length]))
      for count in range(5, 17):
        hklm.score_lines(lm, params, some_lines([64] * count))
    self.assertLen(names, 2)  # 64 by 1 and 64 by 16

  def test_lines_of_less_than_half_the_length_wait(self):
    groups = [group for group, _ in lines.groups([100] * 3 + [40] * 3 + [7, 0, 1], V)]
    self.assertLen(groups, 3)
    for found, expected in zip(groups, ({0, 1, 2}, {3, 4, 5}, {6, 8}), strict=True):
      self.assertEqual(set(found), expected)

  def test_lines_of_half_the_length_do_not_wait(self):
    (group, _), = lines.groups([100] * 3 + [50] * 3, V)
    self.assertCountEqual(group, range(6))

  def test_a_long_line_is_read_in_windows(self):
    lm, params = model()
    sizes = []

    def recorded(params, key, inputs, *rest):
      sizes.append(inputs.shape)
      return lm.loss(params, key, inputs, *rest)

    (ids,) = some_lines([20_000])
    nats, *_ = hklm.score_lines(lm._replace(loss=recorded), params, [ids, ids[:9], ids[:15_000]])
    self.assertLessEqual(max(steps for steps, _ in sizes), WINDOW)
    self.assertLessEqual(max(steps * columns for steps, columns in sizes), lines.MOST)
    self.assertLen(sizes, 2)  # the windows are of one shape
    np.testing.assert_allclose(nats[1:].sum(), hklm.evaluate(lm, params, ids).nats, rtol=1e-6)

  def test_the_vocabulary_bounds_the_logits(self):
    sizes = []

    def recorded(params, key, inputs, *rest):
      sizes.append(inputs.size)
      return lm.loss(params, key, inputs, *rest)

    lm = hklm.language_model(hklm.ModelConfig(vocab_size=20_000, embedding_size=1, hidden_size=1))
    nats = hklm.score_lines(lm._replace(loss=recorded), lm.init(jax.random.key(0)),
                            [[0, 19_999] * 12] * 100)
    self.assertLen(nats, 100)
    self.assertLessEqual(max(sizes) * 20_000, lines.LOGITS)


class RefusedTest(parameterized.TestCase):

  @parameterized.parameters(
      ([[0], [1, V]], f"line 1: id {V} at position 1 is outside the vocabulary of {V}"),
      ([[], [], [0, 0, -1]], "line 2: id -1 at position 2"),
      ([[0], [[0, 1], [2]]], "line 1: found lists of several lengths; needed: integers"),
      ([[0.5]], "line 0: ids are float64 of shape .1.; needed: integers"),
      ([1, 2], r"line 0: ids are int64 of shape \[\]; needed: integers"))
  def test_ids_that_the_model_cannot_read(self, ids, message):
    lm, params = model()
    with self.assertRaisesRegex(InputError, message):
      hklm.score_lines(lm, params, ids)

  @parameterized.parameters(np.nan, np.inf)
  def test_parameters_that_are_not_finite(self, value):
    lm, params = model()
    bad = dict(params, head=dict(params["head"], b=params["head"]["b"].at[3].set(value)))
    with self.assertRaisesRegex(InputError, "line 1, token 0: the surprisal is (nan|inf)"):
      hklm.score_lines(lm, bad, [[], [1, 2], [1]])

  def test_what_the_model_excludes_is_named_and_padding_is_not_judged(self):
    lm, params = model()
    never = dict(params, head=dict(params["head"], b=params["head"]["b"].at[0].set(-np.inf)))
    ids = [[1, 2], [2] * 20, [1]]
    for nats in hklm.score_lines(lm, never, ids):
      self.assertTrue(np.isfinite(nats).all())
    with self.assertRaisesRegex(InputError, "line 2, token 1: the surprisal is inf"):
      hklm.score_lines(lm, never, [*ids[:2], [1, 0]])


if __name__ == "__main__":
  absltest.main()
