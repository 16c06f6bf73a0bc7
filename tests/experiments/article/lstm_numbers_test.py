"""The article's language model: its losses, its tokens, and PyTorch's gradients."""

import functools
import importlib.util
import unittest

import chex
import jax
import numpy as np
from absl.testing import absltest, parameterized

from experiments.article import lstm_numbers
from tests.experiments.article import binary

FLOAT64_LOSSES = (25.953861819, 3.764226049, 1.953721088)
HAS_TORCH = importlib.util.find_spec("torch") is not None


@functools.cache
def results(dtype):
  return lstm_numbers.results(dtype)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def numpy_losses(params):
  """Both windows' losses from the equations, in float64 NumPy and one token at a time."""
  weights = jax.tree.map(lambda value: np.asarray(value, np.float64), params)
  table, cell = weights["embedding"]["table"], weights["lstm_0"]
  c = cell["c_0"]
  h = np.tanh(c)
  losses = []
  for window in lstm_numbers.WINDOWS:
    nats = 0.
    for token in window:
      logits = table @ h
      nats += np.log(np.sum(np.exp(logits))) - logits[token]
      i, f, g, o = np.split(cell["w_ih"] @ table[token] + cell["w_hh"] @ h + cell["b"], 4)
      c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
      h = sigmoid(o) * np.tanh(c)
    losses.append(nats)
  return losses


class LstmNumbersTest(parameterized.TestCase):

  def test_float32_losses(self):
    np.testing.assert_allclose(results("float32").losses, lstm_numbers.ARTICLE_LOSSES,
                               rtol=0, atol=1e-5)

  def test_float64_losses(self):
    np.testing.assert_allclose(results("float64").losses, FLOAT64_LOSSES, rtol=0, atol=1e-8)
    self.assertFalse(jax.config.jax_enable_x64)
    chex.assert_type(jax.tree.leaves(results("float64").epochs), np.float64)

  @parameterized.parameters("float32", "float64")
  def test_greedy(self, dtype):
    self.assertEqual(results(dtype).greedy_before, [0, 34, 34, 34, 34, 34])
    self.assertEqual(results(dtype).greedy_after, [4, 8, 15, 16, 23, 42])
    self.assertEqual(results(dtype).ties, 43)

  def test_model_is_the_librarys(self):
    lm = lstm_numbers.model()
    self.assertEqual(jax.tree.map(np.shape, lstm_numbers.initial_params(lm)),
                     {"embedding": {"table": (43, 17)},
                      "lstm_0": {"w_ih": (68, 17), "w_hh": (68, 17), "b": (68,), "c_0": (17,)}})
    chex.assert_trees_all_equal_shapes_and_dtypes(lstm_numbers.initial_params(lm),
                                                  lm.init(jax.random.key(0)))

  def test_initial_values_are_those_of_the_mersenne_twister(self):
    params = lstm_numbers.initial_params(lstm_numbers.model())
    # The low 24 bits of the generator's first outputs for seed 0: 2357136044, 2546248239, ...
    outputs = np.array([2357136044, 2546248239, 3071714933, 3626093760])
    np.testing.assert_array_equal(params["lstm_0"]["w_ih"][0, :4], (outputs % 2**24) / 2**24)
    for value in (params["lstm_0"]["b"], params["lstm_0"]["c_0"]):
      np.testing.assert_array_equal(value, np.zeros_like(value))
    for value in (params["lstm_0"]["w_ih"], params["lstm_0"]["w_hh"],
                  params["embedding"]["table"]):
      self.assertBetween(float(np.mean(value)), 0.45, 0.55)
      self.assertBetween(float(np.min(value)), 0., 0.01)
      self.assertBetween(float(np.max(value)), 0.99, 1. - 2**-24)

  @parameterized.parameters(0, 50, 100)
  def test_numpy_gets_the_same_loss_from_the_equations(self, number):
    epoch = results("float64").epochs[number]
    # The second window is run with parameters that the first has moved.
    moved = jax.tree.map(lambda value, grad: value - lstm_numbers.RATE * grad,
                         epoch.params, epoch.grads[0])
    first = numpy_losses(epoch.params)[0]
    np.testing.assert_allclose(epoch.losses[0], first, rtol=1e-12)
    self.assertGreater(abs(numpy_losses(moved)[0] - first), 1e-3)

  def test_first_windows_gradient_against_differences(self):
    epoch = results("float64").epochs[50]
    directions = jax.tree.map(
        lambda value: np.random.RandomState(1).standard_normal(value.shape), epoch.params)
    def loss_at(distance):
      return numpy_losses(jax.tree.map(lambda value, direction: value + distance * direction,
                                       epoch.params, directions))[0]
    slope = sum(np.vdot(grad, direction) for grad, direction in zip(
        jax.tree.leaves(epoch.grads[0]), jax.tree.leaves(directions), strict=True))
    np.testing.assert_allclose((loss_at(1e-5) - loss_at(-1e-5)) / 2e-5, slope, rtol=1e-7)

  def test_initial_state_learns_in_the_first_window_only(self):
    for epoch in results("float32").epochs:
      first, second = (grad["lstm_0"]["c_0"] for grad in epoch.grads)
      self.assertGreater(np.linalg.norm(first), 0.01)
      np.testing.assert_array_equal(second, np.zeros(17))

  def test_every_parameter_moves_by_its_gradients(self):
    this, following = results("float64").epochs[3:5]
    expected = jax.tree.map(lambda value, *grads: value - lstm_numbers.RATE * sum(grads),
                            this.params, *this.grads)
    chex.assert_trees_all_close(following.params, expected, rtol=0, atol=1e-14)

  def test_state_crosses_the_edge_and_its_gradient_does_not(self):
    lm = lstm_numbers.model()
    params = results("float32").epochs[100].params
    first, second = lstm_numbers.WINDOWS
    _, state = lstm_numbers.window_loss(lm, params, first)
    loss, _ = lstm_numbers.window_loss(lm, params, second, state)
    np.testing.assert_allclose(loss, numpy_losses(params)[1], rtol=1e-5)
    grad = jax.grad(lambda state: lstm_numbers.window_loss(lm, params, second, state)[0])(state)
    chex.assert_trees_all_equal(grad, jax.tree.map(np.zeros_like, state))

  @parameterized.parameters("0", "1")
  def test_binary(self, x64):
    process = binary.run("experiments.article.lstm_numbers", JAX_ENABLE_X64=x64)
    self.assertEqual((process.returncode, process.stderr), (0, ""))
    self.assertStartsWith(process.stdout, "greedy before training: 0 34 34 34 34 34\n")
    self.assertIn("The first is a tie: h_0 is zero, and so are all 43 logits", process.stdout)
    self.assertIn("\ngreedy after training: 4 8 15 16 23 42\n", process.stdout)
    rows = {}
    for line in filter(None, process.stdout.splitlines()):
      first, *others = line.split()
      rows.setdefault(first, others)  # losses come before c_0, whose units are numbers too
    for number, article, exact in zip(("0", "50", "100"), lstm_numbers.ARTICLE_LOSSES,
                                      FLOAT64_LOSSES, strict=True):
      printed = list(map(float, rows[number]))
      self.assertEqual(printed[0], article)
      self.assertAlmostEqual(printed[1], article, delta=1e-5)
      self.assertAlmostEqual(printed[2], exact, delta=1e-8)
    for name in ("embedding/table", "lstm_0/b", "lstm_0/c_0", "lstm_0/w_hh", "lstm_0/w_ih"):
      self.assertLen(rows[name], 6)

  @unittest.skipUnless(HAS_TORCH, "PyTorch, the extra `torch`, is not installed")
  def test_torch_has_the_same_gradients(self):
    torch_model = lstm_numbers.import_torch_model()
    found = lstm_numbers.compare_with_torch(torch_model, results("float32"))
    self.assertEqual(found["windows whose gradients agree"], 202)
    self.assertEqual(found["greedy before training"], "0 34 34 34 34 34")
    self.assertEqual(found["greedy after training"], "4 8 15 16 23 42")
    np.testing.assert_allclose(list(map(float, found["losses"].split())),
                               lstm_numbers.ARTICLE_LOSSES, rtol=0, atol=1e-5)

  @unittest.skipUnless(HAS_TORCH, "PyTorch, the extra `torch`, is not installed")
  def test_torch_comparison_notices_a_wrong_gradient(self):
    ours = results("float32")
    wrong = jax.tree.map(np.copy, ours.epochs[7])
    wrong.grads[1]["lstm_0"]["b"][3] += 1e-4
    epochs = [*ours.epochs[:7], wrong, *ours.epochs[8:]]
    with self.assertRaisesRegex(AssertionError, "epoch 7, window 1"):
      lstm_numbers.compare_with_torch(lstm_numbers.import_torch_model(),
                                      ours._replace(epochs=epochs))

  @unittest.skipIf(HAS_TORCH, "PyTorch is installed: its absence cannot be shown")
  def test_torch_missing_is_one_line(self):
    process = binary.run("experiments.article.lstm_numbers", "--torch")
    self.assertEqual((process.returncode, process.stdout), (1, ""))
    self.assertEqual(
        process.stderr, "error: --torch: found no module torch; needed: PyTorch, which the extra "
                        "`torch` installs: pip install '.[torch]'\n")


if __name__ == "__main__":
  absltest.main()
