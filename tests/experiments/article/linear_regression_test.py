"""The article's regression, digit for digit."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from experiments.article import linear_regression
from tests.experiments.article import binary

LOSSES = ("46.0", "42.47003", "38.940002", "35.410034", "31.880066", "28.350098", "24.820068",
          "21.2901", "17.760132", "14.230164", "10.700165", "7.170166", "3.6401978", "0.110198975",
          "3.4197998")
PREDICTION = "500.1102"
STEPS = tuple(linear_regression.STEPS.values())


class LinearRegressionTest(parameterized.TestCase):

  @parameterized.product(step=STEPS, x64=(False, True))
  def test_descent_to_every_printed_digit(self, step, x64):
    with jax.enable_x64(x64):
      losses, prediction = linear_regression.descend(step)
      self.assertEqual(tuple(map(str, losses)), LOSSES)
      self.assertEqual(str(prediction), PREDICTION)
      chex.assert_type([*losses, prediction], np.float32)

  @parameterized.parameters(*STEPS[1:])
  def test_ways_agree_bitwise(self, step):
    chex.assert_trees_all_equal(linear_regression.descend(step),
                                linear_regression.descend(STEPS[0]))

  @parameterized.parameters(*STEPS)
  def test_step_leaves_its_arguments_alone(self, step):
    params = {"a": {"w": jnp.float32(1), "b": jnp.float32(2)}, "c": {"w": jnp.float32(3)}}
    grads = jax.tree.map(lambda value: 100 * value, params)
    moved = step(params, grads)
    chex.assert_trees_all_equal(params, {"a": {"w": np.float32(1), "b": np.float32(2)},
                                         "c": {"w": np.float32(3)}})
    chex.assert_trees_all_close(moved, {"a": {"w": 0.8, "b": 1.6}, "c": {"w": 2.4}}, rtol=1e-6)

  @parameterized.parameters(False, True)
  def test_derivatives(self, x64):
    with jax.enable_x64(x64):
      values = tuple(linear_regression.derivatives().values())
      # Value, gradient, twice forward mode; prediction, loss, its gradients and derivatives.
      self.assertEqual(jax.tree.map(float, values),
                       (546., 42., 42., 42., 546., 46., (42., 1.), {"b": 1., "w": 42.}, 42., 0.))
      chex.assert_type(jax.tree.leaves(values), np.float32)

  @parameterized.parameters((13., 42.), (-2.5, 0.75))
  def test_gradient_equals_the_hand_written(self, w, x):
    w, x = jnp.float32(w), jnp.float32(x)
    expected = linear_regression.product_derivative(w, x)
    self.assertEqual(jax.grad(linear_regression.product)(w, x), expected)
    self.assertEqual(jax.jacfwd(linear_regression.product)(w, x), expected)
    # The hand-written one against a difference, which knows no rule of calculus.
    difference = (linear_regression.product(w + 1, x) - linear_regression.product(w - 1, x)) / 2
    self.assertEqual(difference, expected)

  @parameterized.parameters(0., 7., 11., 13., 20.)
  def test_loss_is_a_kink(self, w):
    problem = linear_regression.regression()
    numbers = jnp.float32(w), jnp.float32(0.), problem.xs, problem.ys
    side = np.sign(42 * w - 500)
    slope = jax.grad(linear_regression.loss_of_numbers)(*numbers)
    self.assertAlmostEqual(float(slope), 42 * side, places=4)
    bend = jax.grad(jax.grad(linear_regression.loss_of_numbers))(*numbers)
    self.assertAlmostEqual(float(bend), 0., places=5)

  def test_object_inside_function_outside(self):
    problem = linear_regression.regression(w=2., b=-1.)
    params = problem.init()
    self.assertEqual(params, {"linear_regressor": {"w": 2., "b": -1.}})
    # The numbers given to the object are where its parameters start; the function reads those
    # that are handed in, here from a batch of two parameter trees at once.
    pair = {"linear_regressor": {"w": jnp.float32([1., 2.]), "b": jnp.float32([0., 5.])}}
    predictions = jax.jit(jax.vmap(problem.predict, (0, None)))(pair, jnp.float32([3., 4.]))
    np.testing.assert_array_equal(predictions, [[3., 4.], [11., 13.]])

  def test_gradients_agree_for_tree_and_numbers(self):
    problem = linear_regression.regression(w=3., b=7.)
    data = jnp.float32([1., 2., -4.]), jnp.float32([0., 50., 6.])
    grads = jax.grad(problem.loss)(problem.init(), *data)["linear_regressor"]
    w, b = jax.grad(linear_regression.loss_of_numbers, argnums=(0, 1))(
        jnp.float32(3.), jnp.float32(7.), *data)
    errors = 3. * np.array(data[0]) + 7. - np.array(data[1])
    root = np.sqrt(np.sum(errors**2))
    by_hand = {"w": np.sum(errors * data[0]) / root, "b": np.sum(errors) / root}
    chex.assert_trees_all_close(grads, {"w": w, "b": b}, by_hand, rtol=1e-6)

  @parameterized.parameters("0", "1")
  def test_binary(self, x64):
    process = binary.run("experiments.article.linear_regression", JAX_ENABLE_X64=x64)
    self.assertEqual((process.returncode, process.stderr), (0, ""))
    head, *descents = process.stdout.split("\n\n")
    self.assertEqual([line.rpartition(": ")[2] for line in head.replace("{'b'", "{").split("\n")],
                     ["546.0", "42.0", "42.0", "42.0", "546.0", "46.0", "(42.0, 1.0)", "42.0}",
                      "42.0", "0.0"])
    self.assertIn(": {'b': 1.0, 'w': 42.0}\n", process.stdout)
    self.assertLen(descents, 3)
    for descent in descents:
      title, *losses, prediction = descent.strip().split("\n")
      self.assertIn("Fifteen steps", title)
      self.assertEqual(tuple(" ".join(losses).split()), LOSSES)
      self.assertEqual(prediction, f"  then the prediction at 42: {PREDICTION}")


if __name__ == "__main__":
  absltest.main()
