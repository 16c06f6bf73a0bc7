"""Moments and ranges of each term, and what is refused."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.config import ModelConfig
from hklm.errors import InputError
from hklm.model import language_model
from hklm.nn import cells, initializers

SHAPE = (200, 100)


def draw(spec, group="cell", hidden_size=16, shape=SHAPE, dtype=jnp.float32):
  """What the group's initialiser draws, in float64."""
  init = initializers.parse(spec, hidden_size)[group]
  run = hk.transform(lambda: init(shape, dtype))
  numbers = run.apply({}, jax.random.key(0))
  assert numbers.shape == shape and numbers.dtype == dtype
  return np.asarray(numbers, np.float64)


class TermTest(parameterized.TestCase):

  @parameterized.parameters(
      ("uniform:0.3", -0.3, 0.3), ("uniform:2", -2.0, 2.0), ("unit", 0.0, 1.0),
      ("inverse_sqrt", -0.25, 0.25))
  def test_uniform(self, spec, low, high):
    numbers, width = draw(spec), high - low
    self.assertBetween(numbers.min(), low, low + 0.01 * width)
    self.assertBetween(numbers.max(), high - 0.01 * width, high)
    error = 5 * width / (12 * numbers.size) ** 0.5  # five standard deviations of the mean
    self.assertAlmostEqual(numbers.mean(), (low + high) / 2, delta=error)
    self.assertAlmostEqual(numbers.std(), width / 12**0.5, delta=0.02 * width)

  @parameterized.parameters(("normal:0.5", 0.5), ("normal:2", 2.0), ("normal_fan", 0.1))
  def test_normal(self, spec, deviation):
    numbers = draw(spec)  # normal_fan: SHAPE[1] numbers are added up
    self.assertAlmostEqual(numbers.mean(), 0.0, delta=5 * deviation / numbers.size**0.5)
    self.assertAlmostEqual(numbers.std() / deviation, 1.0, delta=5 / (2 * numbers.size) ** 0.5)
    within = (np.abs(numbers) < deviation).mean()
    self.assertAlmostEqual(within, 0.6827, delta=0.02)  # neither uniform nor truncated
    self.assertGreater(np.abs(numbers).max(), 3 * deviation)

  @parameterized.parameters("zeros", "uniform:0", "normal:0")
  def test_zeros(self, spec):
    np.testing.assert_array_equal(draw(spec), 0.0)

  @parameterized.parameters("float32", "bfloat16")
  def test_dtype(self, dtype):
    for spec in ("zeros", "unit", "uniform:1", "inverse_sqrt", "normal:1", "normal_fan"):
      draw(spec, shape=(3, 2), dtype=jnp.dtype(dtype))


class SpecTest(parameterized.TestCase):

  def test_named_groups_override_the_first_term(self):
    spec = "unit, cell=uniform:0.5 ,output=zeros"
    self.assertLess(draw(spec, "cell").min(), -0.4)
    np.testing.assert_array_equal(draw(spec, "output"), 0.0)
    for group in ("embedding", "bias", "output_bias"):
      self.assertBetween(draw(spec, group).min(), 0.0, 0.01)
      self.assertGreater(draw(spec, group).max(), 0.99)

  def test_the_last_of_two_wins(self):
    np.testing.assert_array_equal(draw("unit,cell=uniform:1,cell=zeros"), 0.0)

  @parameterized.parameters(
      "glorot", "", "uniform", "uniform:", "uniform:x", "uniform:-1", "uniform:inf", "uniform:nan",
      "normal", "normal:-0.1", "zeros:1", "unit:2", "inverse_sqrt:3", "normal_fan:1",
      "zeros,cell=glorot", "zeros,cell=cell=zeros")
  def test_unknown_terms_are_refused(self, spec):
    with self.assertRaisesRegex(InputError, "^--init: found '.*'; needed: zeros, uniform:A, unit"):
      initializers.parse(spec, 4)

  @parameterized.parameters(
      "zeros,unit", "zeros,cells=unit", "zeros,cell=", "zeros,", "zeros,=unit")
  def test_unknown_groups_are_refused(self, spec):
    with self.assertRaisesRegex(InputError, r"^--init: found '.*'; needed: GROUP=TERM with GROUP "
                                "one of embedding, cell, bias, output, output_bias$"):
      initializers.parse(spec, 4)


class ModelTest(parameterized.TestCase):
  """Each group reaches the parameters it names."""

  H, E, V = 24, 40, 30

  def init(self, spec, **changes):
    sizes = {"vocab_size": self.V, "embedding_size": self.E, "hidden_size": self.H}
    config = ModelConfig(**{**sizes, "num_biases": 2, "init": spec, **changes})
    return jax.tree.map(np.asarray, language_model(config).init(jax.random.key(0)))

  def test_groups(self):
    # each group in a range of its own, told apart by its largest magnitude
    params = self.init("zeros,embedding=uniform:1,cell=uniform:2,bias=uniform:4,output=uniform:8,"
                       "output_bias=uniform:16", initial_state="learned")
    limits = {("embedding", "table"): 1, ("lstm_0", "w_ih"): 2, ("lstm_0", "w_hh"): 2,
              ("lstm_0", "b"): 4, ("lstm_0", "b_hh"): 4, ("lstm_0", "c_0"): 0,
              ("head", "w"): 8, ("head", "b"): 16}
    found = {(module, name): np.abs(leaf).max()
             for module, leaves in params.items() for name, leaf in leaves.items()}
    self.assertEqual(set(found), set(limits))
    for name, limit in limits.items():
      self.assertBetween(found[name], 0.8 * limit, limit, str(name))

  def test_default_is_pytorchs(self):
    params = self.init("inverse_sqrt")
    for module, leaves in params.items():
      for name, leaf in leaves.items():
        self.assertBetween(np.abs(leaf).max(), 0.8 * self.H**-0.5, self.H**-0.5, f"{module}/{name}")

  def test_each_layer_goes_by_its_own_width(self):
    params = self.init("inverse_sqrt", layer_sizes=(64, 16), num_layers=2, hidden_size=64)
    for layer, H in ((0, 64), (1, 16)):
      for name, leaf in params[f"lstm_{layer}"].items():
        self.assertBetween(np.abs(leaf).max(), 0.8 * H**-0.5, H**-0.5, f"{layer}/{name}")
    self.assertBetween(np.abs(params["head"]["w"]).max(), 0.8 * 16**-0.5, 16**-0.5)

  def test_normal_fan_counts_both_matrices(self):
    params = self.init("zeros,cell=normal_fan")["lstm_0"]
    for name in ("w_ih", "w_hh"):
      deviation = (self.E + self.H) ** -0.5
      self.assertAlmostEqual(params[name].std() / deviation, 1.0, delta=0.08)

  def test_the_two_matrices_are_drawn_apart(self):
    params = self.init("normal:1", embedding_size=self.H)
    self.assertFalse((params["lstm_0"]["w_ih"] == params["lstm_0"]["w_hh"]).any())
    self.assertFalse((params["lstm_0"]["b"] == params["lstm_0"]["b_hh"]).any())

  def test_forget_bias_moves_the_forget_gate_of_one_bias(self):
    plain, moved = (self.init("uniform:0.1", forget_bias=bias)["lstm_0"] for bias in (0.0, 2.5))
    difference = moved["b"] - plain["b"]
    expected = np.zeros(4 * self.H)
    expected[self.H:2 * self.H] = 2.5  # rows i, f, g, o
    np.testing.assert_allclose(difference, expected, atol=1e-6)
    for name in ("b_hh", "w_ih", "w_hh"):
      np.testing.assert_array_equal(moved[name], plain[name])

  def test_a_cell_alone_has_the_default_of_pytorch(self):
    run = hk.transform(lambda x: cells.LSTM(100)(x, cells.LSTM(100).initial_state(1)))
    params = run.init(jax.random.key(0), jnp.ones([1, 50]))
    leaves = next(iter(params.values()))
    self.assertEqual(set(leaves), {"w_ih", "w_hh", "b"})
    for leaf in leaves.values():
      self.assertBetween(float(np.abs(leaf).max()), 0.09, 0.1)


if __name__ == "__main__":
  absltest.main()
