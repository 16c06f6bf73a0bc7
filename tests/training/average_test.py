"""Averages of the parameters, against those of NumPy over the parameters after each update."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.training import averages, step
from tests import oracle
from tests.training import updates

T, B, V, COUNT = 3, 2, 4, 6
WINDOWS, RESETS = updates.windows(COUNT, T, B, V), updates.resets(COUNT, B)


def model(dtype="float64"):
  return hklm.ModelConfig(vocab_size=V, embedding_size=2, hidden_size=3, initial_state="learned",
                          dtype=dtype)


def run(config, dtype="float64"):
  return updates.run(model(dtype), updates.sgd(0.5), config, WINDOWS, RESETS)[0]


def numpy_average(values, config):
  """After each update, from the `values` of a leaf after all of them up to it."""
  means = []
  for n in range(1, len(values) + 1):
    seen = np.array(values[config.average_start:n])
    if not len(seen):
      means.append(values[n - 1])
    elif config.average == "polyak":
      means.append(seen.mean(axis=0))
    else:
      mean = seen[0]
      for k, value in enumerate(seen[1:], 2):
        keep = min(config.average_decay, 1 - 1 / k)
        mean = keep * mean + (1 - keep) * value
      means.append(mean)
  return means


class AverageTest(oracle.X64TestCase):

  @parameterized.parameters(
      ("polyak", 0.5, 0), ("polyak", 0.5, 2), ("exponential", 0.6, 0), ("exponential", 0.6, 3),
      ("exponential", 0.0, 1), ("polyak", 0.5, 100))
  def test_it_is_numpys(self, average, decay, start):
    config = TrainConfig(average=average, average_decay=decay, average_start=start)
    states = run(config)
    paths = [jax.tree.leaves(state.params) for state in states]
    means = [jax.tree.leaves(state.average) for state in states]
    for leaf in range(len(paths[0])):
      expected = numpy_average([params[leaf] for params in paths], config)
      for n in range(COUNT):
        self.assert_close(means[n][leaf], expected[n])
        if n <= start:  # not averaged yet, or the first that is
          np.testing.assert_array_equal(means[n][leaf], paths[n][leaf])

  def test_of_a_long_run_exponential_weights_are_those_of_the_decay(self):
    """With parameters 0, ..., 0, 1 and then 0 again the average is `(1 - decay) decay^n`."""
    config = TrainConfig(average="exponential", average_decay=0.75)
    mean, found = jnp.float64(0.0), []
    for n in range(1, 31):
      mean = averages.move(mean, jnp.float64(n == 20), jnp.int32(n), config)
      found.append(float(mean))
    self.assert_close(np.array(found[19:]), 0.25 * 0.75 ** np.arange(11))

  @parameterized.parameters(1 - averages.NEVER, 0, 1)
  def test_at_first_it_is_the_parameters_to_the_bit(self, updates_made):
    config = TrainConfig(average="polyak")
    far, near = jnp.float32(1e8), jnp.float32(0.1)  # far + (near - far) is 0
    self.assertEqual(averages.move(far, near, jnp.int32(updates_made), config), near)

  def test_training_goes_on_as_without_it(self):
    plain, averaged = (run(TrainConfig(average=name)) for name in ("none", "polyak"))
    self.assert_close([state.params for state in averaged], [state.params for state in plain])
    self.assertIsNone(plain[-1].average)


class EvaluatedTest(parameterized.TestCase):

  @parameterized.parameters("float32", "bfloat16")
  def test_the_average_in_the_parameters_types(self, dtype):
    states = run(TrainConfig(average="polyak"), dtype)
    for state in states:
      for leaf in jax.tree.leaves(state.average):
        self.assertEqual(leaf.dtype, np.float32)
    evaluated = step.evaluated(states[-1])
    chex.assert_trees_all_equal_shapes_and_dtypes(evaluated, states[-1].params)
    chex.assert_trees_all_close(
        jax.tree.map(lambda leaf: leaf.astype(np.float32), evaluated), states[-1].average,
        rtol=0.004 if dtype == "bfloat16" else 0)
    with self.assertRaises(AssertionError):
      chex.assert_trees_all_close(evaluated, states[-1].params, atol=0.01)

  def test_the_parameters_where_there_is_none(self):
    lm, state = updates.started(model("float32"), updates.sgd(0.5), TrainConfig(), B)
    self.assertIs(step.evaluated(state), state.params)
    self.assertIsInstance(hklm.evaluate(lm, step.evaluated(state), [0, 1, 2]).nats, float)


class BuffersTest(parameterized.TestCase):

  @parameterized.parameters(0, 5)
  def test_no_two_leaves_share_one(self, average_start):
    config = TrainConfig(average="exponential", average_start=average_start)
    lm, optimizer = hklm.language_model(model("float32")), updates.sgd(0.5, optimizer="adam")
    state = step.init(lm, optimizer, B, 0, config)
    update = step.make_update(lm, optimizer, config)
    for window, reset in zip(WINDOWS, RESETS, strict=True):
      leaves = jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
      self.assertLen({leaf.unsafe_buffer_pointer() for leaf in leaves}, len(leaves))
      given = state
      state, _ = update(state, window, reset)
      self.assertTrue(all(leaf.is_deleted() for leaf in jax.tree.leaves(given.average)))
    self.assertEqual(update._cache_size(), 1)


if __name__ == "__main__":
  absltest.main()
