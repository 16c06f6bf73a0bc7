"""The softmax's temperature: what it changes, and that the one found costs least."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from hklm.inference import temperature
from tests import oracle
from tests.inference import adapting_oracle as truth
from tests.inference import compilations

N = 400


def sampled(lm, params, T, seed=0):
  """A text that the model wrote at a temperature, and the logits that predict it, in NumPy."""
  draw, model = np.random.RandomState(seed), oracle.NumpyModel(lm.config, params)
  layers, ids, rows = model.initial_state(), [0], []
  for _ in range(N - 1):
    layers, _ = model.read(ids[-1], layers)
    rows.append(model.readout(layers))
    p = np.exp(rows[-1] / T - np.max(rows[-1] / T))
    ids.append(draw.choice(len(p), p=p / p.sum()))
  return np.array(ids), np.array(rows)


def nats(logits, ids, T):
  return sum(oracle.nats(row / T, target) for row, target in zip(logits, ids[1:], strict=True))


class TunedTest(oracle.X64TestCase, parameterized.TestCase):

  @parameterized.parameters((0.7, 1), (1.3, 1), (1.3, 3))
  def test_no_other_temperature_costs_less(self, T, streams):
    lm, params = truth.model(scale=2.0)
    ids, logits = sampled(lm, params, T)
    found = temperature.tune_temperature(lm, params, ids, 32, streams)
    if streams == 1:
      grid = np.linspace(found - 0.01, found + 0.01, 201)
      costs = [nats(logits, ids, guess) for guess in grid]
      self.assertAlmostEqual(grid[np.argmin(costs)], found, delta=1.01e-4)
      coarse = [nats(logits, ids, guess) for guess in np.linspace(0.5, 2, 31)]
      self.assertLess(nats(logits, ids, found), min(coarse))
    costs = [hklm.evaluate(temperature.tempered(lm, guess), params, ids, 32, streams).nats
             for guess in (found, found - 0.01, found + 0.01)]
    self.assertEqual(np.argmin(costs), 0)

  def test_the_window_changes_nothing(self):
    lm, params = truth.model(scale=2.0)
    ids, _ = sampled(lm, params, 1.2)
    found = [temperature.tune_temperature(lm, params, ids, window) for window in (7, 10**6)]
    self.assert_close(*found)

  def test_it_stays_within_half_and_twice(self):
    lm, params = truth.model()
    bias = jnp.array([9.0, 0, 0, 0, 0])
    sure = jax.tree.map(jnp.zeros_like, params) | {"head": dict(params["head"], b=bias)}
    sure["head"]["w"] = jnp.zeros_like(sure["head"]["w"])
    self.assertEqual(temperature.tune_temperature(lm, sure, np.zeros(9, int)), 0.5)
    self.assertEqual(temperature.tune_temperature(lm, sure, np.ones(9, int)), 2.0)

  @parameterized.parameters(0.5, 1.7)
  def test_all_functions_of_the_bundle_agree(self, T):
    lm, params = truth.model()
    other, state = temperature.tempered(lm, T), lm.initial_state(params, 1)
    ids, model = truth.text(6), oracle.NumpyModel(lm.config, params)
    logits, _ = model.unroll(ids, model.initial_state())
    tokens, targets = ids[:5, None], ids[1:, None]
    mask = np.array([1, 1, 1, 1, 0], bool)[:, None]
    found, after = other.unroll(params, None, tokens, state)
    self.assert_close(found[:, 0], logits[:5] / T)
    self.assert_close(other.readout(params, after)[0], logits[4] / T)
    self.assert_close(other.step(params, None, ids[5:], after)[0][0], logits[5] / T)
    hidden, _ = other.hidden(params, None, tokens, state)
    self.assert_close(other.head(params, hidden)[:, 0], logits[:5] / T)
    loss, _ = other.loss(params, None, tokens, targets, state, mask)
    expected = [oracle.nats(row / T, target) for row, target in zip(logits, ids[1:], strict=False)]
    self.assert_close(loss.nats[:, 0], np.array([*expected[:4], 0.0]))
    self.assert_close(np.exp(jax.nn.log_softmax(found)).sum(axis=-1), np.ones([5, 1]))


class NeutralTest(parameterized.TestCase):

  def test_one_changes_no_figure(self):
    lm, params = truth.model("float32")
    ids = truth.text(50)
    its = hklm.score_lines(temperature.tempered(lm, 1.0), params, [ids])
    np.testing.assert_allclose(its, hklm.score_lines(lm, params, [ids]), rtol=1e-6)
    logits, _ = lm.unroll(params, None, ids[:, None], lm.initial_state(params, 1))
    same, _ = temperature.tempered(lm, 1.0).unroll(params, None, ids[:, None],
                                                   lm.initial_state(params, 1))
    np.testing.assert_array_equal(same, logits)

  def test_a_second_text_compiles_nothing(self):
    lm, params = truth.model("float32")
    temperature.tune_temperature(lm, params, truth.text(40), 16)
    with compilations.counted() as names:
      temperature.tune_temperature(lm, params, truth.text(99, seed=1), 16)
    self.assertEmpty(names)
    self.assertIs(temperature.tempered(lm, 1.5), temperature.tempered(lm, 1.5))

  @parameterized.parameters(0.0, -1.0, np.inf, np.nan)
  def test_refuses_temperatures(self, T):
    with self.assertRaisesRegex(InputError, "needed: above 0, and finite"):
      temperature.tempered(truth.model("float32")[0], T)

  def test_refuses_texts(self):
    lm, params = truth.model("float32")
    with self.assertRaisesRegex(InputError, "nothing to score: found 1 tokens"):
      temperature.tune_temperature(lm, params, [0])
    with self.assertRaisesRegex(InputError, "id 9 at position 1"):
      temperature.tune_temperature(lm, params, [0, 9])
    for wrong in ({"window": 0}, {"streams": 0}):
      with self.assertRaisesRegex(InputError, "needed: 1 or more"):
        temperature.tune_temperature(lm, params, [0, 1], **wrong)
    bad = jax.tree.map(lambda leaf: leaf * np.nan, params)
    with self.assertRaisesRegex(InputError, "needed: finite parameters"):
      temperature.tune_temperature(lm, bad, [0, 1])


if __name__ == "__main__":
  absltest.main()
