"""Sampling: what is likeliest, what is allowed, what stops, and that keys decide the rest."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from hklm.inference import generate
from tests import oracle
from tests.inference import compilations

KEY = jax.random.key
V = 6


@functools.cache
def model():
  """A two-layer model, so random that its likeliest tokens vary."""
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=V, embedding_size=5, hidden_size=6, num_layers=2, initial_state="learned",
      output_dropout=0.5))
  return lm, oracle.random_like(jax.eval_shape(lm.init, KEY(0)), seed=5, scale=1.0)


def fixed(probabilities):
  """A model that draws every token from `probabilities`, whatever it has read."""
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=len(probabilities), embedding_size=2, hidden_size=2))
  params = jax.tree.map(jnp.zeros_like, lm.init(KEY(0)))
  params["head"]["b"] = jnp.log(jnp.array(probabilities, jnp.float32))
  return lm, params


def draws(probabilities, count=400, **arguments):
  lm, params = fixed(probabilities)
  return hklm.generate(lm, params, KEY(3), 5, batch_size=count // 5, **arguments)


def numpy_greedy(lm, params, length, prompt=()):
  """By hand: read a token, take the arg max, read that."""
  truth = oracle.NumpyModel(lm.config, params)
  layers = truth.initial_state()
  for token in prompt:
    layers, _ = truth.read(token, layers)
  tokens = []
  for _ in range(length):
    tokens.append(int(np.argmax(truth.readout(layers))))
    layers, _ = truth.read(tokens[-1], layers)
  return tokens


class GreedyTest(parameterized.TestCase):

  @parameterized.parameters(0, 1e-30, 1e-300)
  def test_no_temperature_is_the_arg_max_of_stepping_by_hand(self, temperature):
    lm, params = model()
    prompt = [3, 1, 4, 1, 5]
    tokens = hklm.generate(lm, params, KEY(0), 70, prompt, temperature)
    self.assertEqual(tokens[:, 0].tolist(), numpy_greedy(lm, params, 70, prompt))
    self.assertGreater(len(set(tokens[:, 0].tolist())), 2)  # not one token over and over

  @parameterized.parameters({"top_k": 1}, {"top_p": 1e-9}, {"top_k": V, "top_p": 1e-30})
  def test_the_narrowest_filters_are_greedy(self, **filters):
    lm, params = model()
    tokens = hklm.generate(lm, params, KEY(0), 40, temperature=5.0, **filters)
    self.assertEqual(tokens[:, 0].tolist(), numpy_greedy(lm, params, 40))

  def test_of_equals_the_first(self):
    np.testing.assert_array_equal(draws([.2, .3, .3, .2], temperature=0), np.ones([5, 80]))

  @parameterized.parameters(
      0, 1, generate.CHUNK - 1, generate.CHUNK, generate.CHUNK + 1, 2 * generate.CHUNK,
      5 * generate.CHUNK + 3)
  def test_prompt_of_any_length(self, length):
    lm, params = model()
    prompt = np.random.RandomState(1).randint(V, size=length)
    tokens = hklm.generate(lm, params, KEY(0), 10, prompt, temperature=0)
    self.assertEqual(tokens[:, 0].tolist(), numpy_greedy(lm, params, 10, prompt))

  def test_a_long_prompt_is_as_unrolled_at_once(self):
    lm, params = model()
    prompt = np.random.RandomState(2).randint(V, size=3 * generate.CHUNK + 5).astype(np.int32)
    logits, _ = lm.unroll(params, None, prompt[:, None], lm.initial_state(params, 1))
    probabilities = np.asarray(jax.nn.softmax(logits[-1, 0]))
    first = hklm.generate(lm, params, KEY(0), 1, prompt, batch_size=4000)[0]
    np.testing.assert_allclose(np.bincount(first, minlength=V) / 4000, probabilities, atol=0.03)


class FilterTest(parameterized.TestCase):

  @parameterized.parameters(
      ([.1, .4, .2, .3], 1, {1}), ([.1, .4, .2, .3], 2, {1, 3}), ([.1, .4, .2, .3], 3, {1, 2, 3}),
      ([.1, .4, .2, .3], 4, {0, 1, 2, 3}),
      ([.2, .3, .3, .2], 1, {1}), ([.2, .3, .3, .2], 3, {0, 1, 2}),  # of equals the lower ids
      ([.25, .25, .25, .25], 2, {0, 1}))
  def test_top_k_is_exactly_the_k_likeliest(self, probabilities, top_k, expected):
    self.assertEqual(set(draws(probabilities, top_k=top_k).ravel().tolist()), expected)

  @parameterized.parameters(
      (0.01, {1}), (0.39, {1}), (0.41, {1, 3}), (0.69, {1, 3}), (0.71, {1, 2, 3}),
      (0.89, {1, 2, 3}), (0.91, {0, 1, 2, 3}), (1.0, {0, 1, 2, 3}))
  def test_top_p_keeps_the_token_that_crosses(self, top_p, expected):
    self.assertEqual(set(draws([.1, .4, .2, .3], top_p=top_p).ravel().tolist()), expected)

  def test_top_p_is_of_the_k_likeliest(self):
    # of .4 and .3 alone, the first has 4/7 = .571
    self.assertEqual(set(draws([.1, .4, .2, .3], top_k=2, top_p=.57).ravel().tolist()), {1})
    self.assertEqual(set(draws([.1, .4, .2, .3], top_k=2, top_p=.58).ravel().tolist()), {1, 3})

  def test_literal_logits(self):
    logits = np.log([[.5, .25, .15, .1], [.1, .15, .5, .25]])
    kept = np.exp(generate.filter_logits(jnp.array(logits), jnp.int32(3), jnp.float32(.7)))
    np.testing.assert_allclose(kept, [[.5, .25, 0, 0], [0, 0, .5, .25]], rtol=1e-6)

  def test_the_widest_filters_leave_everything_in(self):
    logits = jnp.array([[0., -30., -60., -90.]])  # the sums reach 1 long before the last
    np.testing.assert_array_equal(
        generate.filter_logits(logits, jnp.int32(4), jnp.float32(1)), logits)

  @parameterized.product(temperature=[1e-30, 1.0, 1e30], top_k=[1, 3], top_p=[1e-30, 1.0])
  def test_never_empty_whatever_the_logits(self, temperature, top_k, top_p):
    lm, params = fixed([.25, .25, .25, .25])
    params["head"]["b"] = jnp.array([3e38, -3e38, 0., 3e38])
    tokens = hklm.generate(lm, params, KEY(0), 20, temperature=temperature, top_k=top_k,
                           top_p=top_p)
    self.assertBetween(tokens.min(), 0, 3)
    if temperature < 1e30:
      self.assertContainsSubset(tokens.ravel().tolist(), [0, 3])


class FrequenciesTest(parameterized.TestCase):

  @parameterized.parameters((1.0, None), (2.0, None), (0.5, None), (1.0, 3))
  def test_frequencies_are_those_of_the_softmax(self, temperature, top_k):
    probabilities = np.array([.05, .5, .2, .1, .15])
    expected = probabilities ** (1 / temperature)
    if top_k:
      expected[np.argsort(-expected)[top_k:]] = 0
    expected *= 10_000 / expected.sum()
    counts = np.bincount(draws(probabilities, 10_000, temperature=temperature,
                               top_k=top_k).ravel(), minlength=5)
    possible = expected > 0
    self.assertEqual(counts[~possible].sum(), 0)
    chi_square = np.sum((counts - expected)[possible] ** 2 / expected[possible])
    self.assertLess(chi_square, 25)  # 4 degrees of freedom: more by chance once in 20,000

  def test_samples_in_a_batch_and_steps_are_independent(self):
    tokens = draws([.5, .5], 2000)
    self.assertLess(abs(np.mean(tokens[:-1] == tokens[1:]) - 0.5), 0.05)
    self.assertLess(abs(np.mean(tokens[:, :-1] == tokens[:, 1:]) - 0.5), 0.05)


class KeyTest(parameterized.TestCase):

  def test_same_key_same_tokens_and_another_key_others(self):
    lm, params = model()
    first, again, other = (hklm.generate(lm, params, KEY(seed), 50, batch_size=2)
                           for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    self.assertFalse(np.array_equal(first, other))
    self.assertFalse(np.array_equal(first[:, 0], first[:, 1]))

  def test_a_longer_sample_begins_with_the_shorter(self):
    lm, params = model()
    long = hklm.generate(lm, params, KEY(0), 150, [1], batch_size=3)
    for length in (0, 1, generate.CHUNK, 100):
      short = hklm.generate(lm, params, KEY(0), length, [1], batch_size=3)
      np.testing.assert_array_equal(short, long[:length])

  @parameterized.parameters(7, 1000)
  def test_chunks_never_change_the_tokens(self, chunk):
    lm, params = model()
    chunks = list(generate.generate_stream(lm, params, KEY(5), 100, [2, 0], 0.9, 5, 0.95, 2,
                                           chunk=chunk))
    self.assertLen(chunks, -(-100 // chunk))
    np.testing.assert_array_equal(
        np.concatenate(chunks), hklm.generate(lm, params, KEY(5), 100, [2, 0], 0.9, 5, 0.95, 2))

  @parameterized.parameters(1, 3)
  def test_shape_and_type(self, batch_size):
    lm, params = model()
    for length in (0, 1, 9):
      tokens = hklm.generate(lm, params, KEY(0), length, batch_size=batch_size)
      self.assertEqual(tokens.shape, (length, batch_size))
      self.assertEqual(tokens.dtype, np.int32)


class StopTest(parameterized.TestCase):

  @parameterized.parameters(0, 2)
  def test_samples_stop_separately_and_are_otherwise_the_same(self, stop):
    lm, params = model()
    plain = hklm.generate(lm, params, KEY(0), 200, [1], batch_size=8)
    stopped = hklm.generate(lm, params, KEY(0), 200, [1], batch_size=8, stop=stop)
    firsts = []
    for free, ended in zip(plain.T, stopped.T, strict=True):
      first = np.flatnonzero(free == stop)[0]
      np.testing.assert_array_equal(ended[:first], free[:first])
      self.assertTrue(np.all(ended[first:] == stop))
      firsts.append(first)
    self.assertGreater(len(set(firsts)), 3)

  def test_the_stream_ends_when_all_have_stopped(self):
    lm, params = fixed([.8, .2])
    chunks = list(generate.generate_stream(lm, params, KEY(0), 10_000, batch_size=3, stop=1,
                                           chunk=2))
    tokens = np.concatenate(chunks)
    self.assertBetween(len(tokens), 4, 40)
    self.assertTrue(np.all(tokens[-1] == 1))
    self.assertFalse(np.all(tokens[-1 - 2] == 1))  # no chunk too many
    self.assertLen(hklm.generate(lm, params, KEY(0), 10_000, batch_size=3, stop=1), 10_000)

  def test_a_stop_in_the_prompt_stops_nothing(self):
    tokens = draws([.9, .1], prompt=[1, 1], stop=1)
    self.assertTrue(np.any(tokens[0] == 0))


class RefusedTest(parameterized.TestCase):

  @parameterized.parameters(
      ({"length": -1}, "--length=-1 is out of range; needed: 0 to 2..31 - 1"),
      ({"length": 2**31}, "--length=2147483648 is out of range"),
      ({"batch_size": 2**31}, "--samples=2147483648"),
      ({"temperature": 1e39}, "--temperature=1e.39"),
      ({"batch_size": 0}, "--samples=0"), ({"temperature": -0.1}, "--temperature=-0.1"),
      ({"temperature": float("inf")}, "--temperature=inf"),
      ({"temperature": float("nan")}, "--temperature=nan"),
      ({"top_k": 0}, "--top_k=0 is out of range; needed: 1 to 6"), ({"top_k": 7}, "--top_k=7"),
      ({"top_p": 0.0}, "--top_p=0.0 is out of range"), ({"top_p": 1.1}, "--top_p=1.1"),
      ({"top_p": float("nan")}, "--top_p=nan"), ({"stop": 6}, "stop id 6"),
      ({"stop": -1}, "stop id -1"), ({"prompt": [0, 6]}, "id 6 at position 1"),
      ({"prompt": [-1]}, "id -1 at position 0"), ({"prompt": [0.5]}, "needed: integers"))
  def test_ranges_are_checked_before_the_first_token(self, arguments, message):
    lm, params = model()
    arguments = {"length": 5, **arguments}
    with self.assertRaisesRegex(InputError, message):
      hklm.generate(lm, params, KEY(0), **arguments)
    with self.assertRaisesRegex(InputError, message):
      generate.generate_stream(lm, params, KEY(0), **arguments)  # nothing was asked of it yet

  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_logits_that_are_not_finite(self, value):
    lm, params = fixed([.5, .5])
    params["head"]["b"] = jnp.array([value, 0.0])
    with self.assertRaisesRegex(InputError, "finite"):
      hklm.generate(lm, params, KEY(0), 5)


class CompilationTest(absltest.TestCase):

  def test_no_argument_compiles_anew(self):
    lm, params = model()

    def samples(seed, length, temperature, top_k, top_p, prompt_length):
      prompt = [0] * prompt_length
      hklm.generate(lm, params, KEY(seed), length, prompt, temperature)
      hklm.generate(lm, params, KEY(seed), length, prompt, temperature, top_k, top_p)
      hklm.generate(lm, params, KEY(seed), length, prompt, temperature, top_k, stop=seed)
      hklm.generate(lm, params, KEY(seed), length, prompt, temperature, top_p=top_p)

    samples(0, 5, 1.0, 2, 0.5, 3)
    with compilations.counted() as names:
      samples(1, 6, 0.5, 3, 0.6, 4)
      samples(2, 150, 0.0, 4, 0.7, 200)
      samples(3, 0, 3.0, 5, 0.8, 0)
      samples(4, np.int64(7), np.float64(0.9), np.int32(2), 1, 5)
    self.assertEmpty(names)
    with compilations.counted() as names:  # it does count
      hklm.generate(lm, params, KEY(0), 5, batch_size=17)
    self.assertNotEmpty(names)


if __name__ == "__main__":
  absltest.main()
