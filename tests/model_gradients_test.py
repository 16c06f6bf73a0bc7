"""Derivatives of the loss against finite differences, in float64, and against each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from tests import oracle
from tests.oracle import B, T, ready

MODELS = {model.name: model for model in oracle.MODELS}
STEP = 1e-5  # of central differences: error about STEP**2 and 1e-16 / STEP


def objective(model, key=None, mask=None):
  """`params -> scalar`: a weighted sum of losses and of the final state, from the initial state."""
  lm, params, _, inputs, targets, *_ = ready(model)
  weights = np.random.RandomState(2).uniform(0.5, 1.5, size=[T, B])

  def total(params):
    state = lm.initial_state(params, B)
    loss, state = lm.loss(params, key, inputs, targets, state, mask)
    return (weights * loss.nats).sum() + 0.1 * jnp.sin(state.output).sum()

  return total, params


def scanned(model):
  """The same numbers by the scan, which forward mode needs."""
  return oracle.replaced(model, lstm_impl="scan")


def dot(a, b):
  return sum(jax.tree.leaves(jax.tree.map(lambda a, b: (a * b).sum(), a, b)))


def shift(params, direction, amount):
  return jax.tree.map(lambda p, v: np.asarray(p) + amount * np.asarray(v), params, direction)


def central(f, params, direction):
  """`(f(p + hv) - f(p - hv)) / 2h`, leaf by leaf."""
  return jax.tree.map(lambda up, down: (np.asarray(up) - np.asarray(down)) / (2 * STEP),
                      f(shift(params, direction, STEP)), f(shift(params, direction, -STEP)))


class FirstOrderTest(oracle.X64TestCase):

  @oracle.over_all
  def test_reverse_and_forward_are_the_finite_difference(self, model):
    total, params = objective(model, key=jax.random.key(1) if model.drops else None,
                              mask=ready(model).holes)
    stepped, _ = objective(scanned(model), key=jax.random.key(1) if model.drops else None,
                           mask=ready(model).holes)
    value = jax.jit(total)
    derivatives = jax.jit(lambda p, v: (jax.grad(total)(p), _directional(stepped, v, p)))
    for seed in range(2):
      direction = oracle.random_like(params, seed=100 + seed)
      expected = central(value, params, direction)
      self.assertGreater(abs(float(expected)), 1e-2)
      gradient, forward = oracle.as_numpy(derivatives(params, direction))
      reverse = dot(gradient, oracle.as_numpy(direction))
      self.assert_close(reverse, expected, 1e-7)
      self.assert_close(forward, reverse, 1e-11)
    for leaf in jax.tree.leaves(gradient):
      self.assertGreater(np.abs(leaf).max(), 1e-6)  # every parameter learns

  @parameterized.parameters("article", "one_hot_learned", "own_cell")
  def test_a_learned_start_learns(self, name):
    model = MODELS[name]
    lm, params, _, inputs, targets, *_ = ready(model)
    module, leaf = ("own_0", "start") if model.cell else ("lstm_0", "c_0")
    total, _ = objective(model)
    gradient = oracle.as_numpy(jax.jit(jax.grad(total))(params)[module][leaf])
    total = jax.jit(total)
    for index in range(len(gradient)):
      direction = jax.tree.map(lambda p: np.zeros(p.shape), params)
      direction[module][leaf][index] = 1.0
      expected = central(total, params, direction)
      self.assertGreater(abs(float(expected)), 1e-5)
      self.assert_close(gradient[index], expected, 1e-7)

    # made outside the differentiated function, the state is only an argument
    state = lm.initial_state(params, B)
    stuck = jax.jit(jax.grad(
        lambda p: lm.loss(p, None, inputs, targets, state)[0].nats.sum()))(params)
    np.testing.assert_array_equal(stuck[module][leaf], 0.0)

  def test_c_0_learns_from_the_first_prediction_alone(self):
    model = MODELS["article"]  # logits E tanh(c_0): the gradient by hand
    lm, params, _, _, targets, *_ = ready(model)

    def first(params):
      logits = lm.readout(params, lm.initial_state(params, B))
      return -jax.nn.log_softmax(logits)[jnp.arange(B), targets[0]].sum()

    table, c = np.asarray(params["embedding"]["table"]), np.asarray(params["lstm_0"]["c_0"])
    scores = np.exp(table @ np.tanh(c))
    error = B * scores / scores.sum() - np.bincount(targets[0], minlength=len(table))
    self.assert_close(jax.grad(first)(params)["lstm_0"]["c_0"],
                      (1 - np.tanh(c)**2) * (table.T @ error))

  def test_gradient_of_the_state_crosses_windows(self):
    lm, params, state, inputs, targets, *_ = ready(MODELS["two_layers_two_biases"])

    def total(state):
      state = state._replace(output=jnp.zeros_like(state.output))  # only cells are read
      loss, after = lm.loss(params, None, inputs[:3], targets[:3], state)
      rest, _ = lm.loss(params, None, inputs[3:], targets[3:], after)
      return loss.nats.sum() + rest.nats.sum()

    def whole(state):
      return lm.loss(params, None, inputs, targets, state)[0].nats.sum()

    windows = oracle.as_numpy(jax.jit(jax.grad(total))(state))
    self.assert_close(windows, jax.jit(jax.grad(whole))(state))
    direction = oracle.as_numpy(oracle.random_like(state, seed=3))
    self.assert_close(dot(windows, direction), central(jax.jit(whole), state, direction), 1e-7)

  def test_gradient_of_a_batch_is_the_sum_of_its_rows(self):
    lm, params, _, inputs, targets, _, holes = ready(MODELS["one_hot_learned"])

    def total(params, inputs, targets, mask):
      state = lm.initial_state(params, inputs.shape[1])
      return lm.loss(params, None, inputs, targets, state, mask)[0].nats.sum()

    rows = oracle.as_numpy(jax.jit(jax.vmap(jax.grad(total), in_axes=(None, 1, 1, 1)))(
        params, inputs[:, :, None], targets[:, :, None], holes[:, :, None]))
    self.assert_close(jax.tree.map(lambda leaf: leaf.sum(axis=0), rows),
                      jax.jit(jax.grad(total))(params, inputs, targets, holes))
    for leaf in jax.tree.leaves(rows):
      np.testing.assert_array_equal(leaf[2], 0.0)  # the row that is all padding

  @parameterized.parameters("article", "dropout_per_step", "own_cell")
  def test_remat_changes_nothing(self, name):
    model = MODELS[name]
    total, params = objective(model, key=jax.random.key(1) if model.drops else None)
    self.assert_close(jax.jit(jax.grad(jax.checkpoint(total)))(params),
                      jax.jit(jax.grad(total))(params))
    remat = jax.make_jaxpr(jax.grad(jax.checkpoint(total)))(params)
    self.assertGreater(oracle.count_equations(remat.jaxpr),  # it really computes more
                       oracle.count_equations(jax.make_jaxpr(jax.grad(total))(params).jaxpr))

  def test_forward_and_reverse_jacobians_agree(self):
    lm, params, _, inputs, targets, *_ = ready(scanned(MODELS["article"]))

    def each(c_0):
      changed = {**params, "lstm_0": {**params["lstm_0"], "c_0": c_0}}
      state = lm.initial_state(changed, B)
      return lm.loss(changed, None, inputs, targets, state)[0].nats

    c_0 = params["lstm_0"]["c_0"]
    forward = oracle.as_numpy(jax.jit(jax.jacfwd(each))(c_0))  # [T, B, H]
    self.assert_close(forward, jax.jit(jax.jacrev(each))(c_0), 1e-11)
    self.assert_close(forward[..., 0], central(jax.jit(each), c_0, np.eye(len(c_0))[0]), 1e-7)


class SecondOrderTest(oracle.X64TestCase):

  @parameterized.parameters("two_layers_two_biases", "own_cell")
  def test_hessian_vector_products(self, name):
    model = MODELS[name]
    total, params = objective(model, mask=ready(model).prefix)
    stepped, _ = objective(scanned(model), mask=ready(model).prefix)
    direction = oracle.random_like(params, seed=100)
    gradient = jax.jit(jax.grad(total))
    expected = central(gradient, params, direction)
    self.assertGreater(float(dot(expected, expected)), 1e-2)

    def forward_over_reverse(params):
      return jax.jvp(jax.grad(total), (params,), (direction,))[1]

    def reverse_over_forward(params):
      return jax.grad(lambda p: jax.jvp(stepped, (p,), (direction,))[1])(params)

    def reverse_over_reverse(params):
      return jax.grad(lambda p: dot(jax.grad(total)(p), direction))(params)

    def forward_over_forward(params):
      inner = functools.partial(_directional, stepped, direction)
      return jax.jvp(inner, (params,), (direction,))[1]

    product, *others, second = oracle.as_numpy(jax.jit(lambda params: (
        forward_over_reverse(params), reverse_over_forward(params), reverse_over_reverse(params),
        forward_over_forward(params)))(params))
    self.assert_close(product, expected, 1e-6)
    for other in others:
      self.assert_close(other, product, 1e-10)
    self.assert_close(second, dot(product, oracle.as_numpy(direction)), 1e-10)


def _directional(f, direction, params):
  return jax.jvp(f, (params,), (direction,))[1]


if __name__ == "__main__":
  absltest.main()
