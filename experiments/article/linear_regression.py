"""The article's second part: derivatives, and linear regression in one dimension.

Follows "From PyTorch to JAX: towards neural net frameworks that purify stateful code"
(sjmielke.com/jax-purify.htm). The regressor is an object on the inside (a Haiku module that owns
its parameters) and a pure function on the outside (`hk.transform` hands the parameters in), so that
`jax.grad` can differentiate it in them, and a step of gradient descent is a map over two trees.

  python -m experiments.article.linear_regression

Every constant is a float32: the digits do not depend on `jax_enable_x64`.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import optax

from experiments import cli

NUM_STEPS = 15
RATE = 0.002


def product(w, x):
  """The article's first function to differentiate: f(w, x) = w x."""
  return w * x


def product_derivative(w, x):
  """df/dw, by hand."""
  del w
  return x


class LinearRegressor(hk.Module):
  """y = w x + b, in one dimension.

  Args:
    w: what the parameter `w` starts from.
    b: what the parameter `b` starts from.
    name: of the module, as Haiku wants it.
  """

  def __init__(self, w: float, b: float, name: str | None = None):
    super().__init__(name)
    self._start = {"w": w, "b": b}

  def __call__(self, xs):
    w, b = (hk.get_parameter(name, [], jnp.float32, hk.initializers.Constant(self._start[name]))
            for name in ("w", "b"))
    return w * xs + b


def root_of_squares(predictions, ys):
  """Root of the summed squared error, a scalar. For one point it has a kink at the solution."""
  return jnp.sqrt(jnp.sum(jnp.square(predictions - ys)))


class Regression(NamedTuple):
  """The regressor turned inside out, and its one data point.

  Attributes:
    init: () -> parameters, `{"linear_regressor": {"w": [], "b": []}}`.
    predict: parameters, xs [N] -> [N].
    loss: parameters, xs [N], ys [N] -> [].
    xs: [1]
    ys: [1]
  """

  init: Callable
  predict: Callable
  loss: Callable
  xs: jax.Array
  ys: jax.Array


def regression(w: float = 13., b: float = 0.) -> Regression:
  """The article's problem: start from (w, b), and learn that 42 becomes 500."""
  predict = hk.without_apply_rng(hk.transform(lambda xs: LinearRegressor(w, b)(xs)))
  xs, ys = jnp.array([42.], jnp.float32), jnp.array([500.], jnp.float32)

  def loss(params, xs, ys):
    return root_of_squares(predict.apply(params, xs), ys)

  return Regression(lambda: predict.init(None, xs), predict.apply, loss, xs, ys)


def loss_of_numbers(w, b, xs, ys):
  """The same loss with its parameters as two arguments rather than a tree."""
  return root_of_squares(w * xs + b, ys)


# Three ways to write a step of gradient descent. Each takes parameters and their gradients and
# returns the new parameters; nothing is changed in place.


def step_by_names(params, grads):
  """A loop over the names of modules and parameters."""
  return {module: {name: value - jnp.float32(RATE) * grads[module][name]
                   for name, value in values.items()}
          for module, values in params.items()}


def step_by_tree_map(params, grads):
  """One map over two trees of the same shape."""
  return jax.tree.map(lambda value, grad: value - jnp.float32(RATE) * grad, params, grads)


def step_by_optax(params, grads):
  """What one writes outside a tutorial."""
  sgd = optax.sgd(RATE)
  updates, _ = sgd.update(grads, sgd.init(params))  # plain SGD remembers nothing between steps
  return optax.apply_updates(params, updates)


STEPS = {"a loop over names": step_by_names, "jax.tree.map": step_by_tree_map,
         "optax.sgd": step_by_optax}


def descend(step) -> tuple[list[jax.Array], jax.Array]:
  """Takes fifteen steps of gradient descent from w = 13 and b = 0.

  Args:
    step: parameters, gradients -> parameters.

  Returns:
    The loss before each step, and the prediction at 42 after the last.
  """
  problem = regression()
  params, losses = problem.init(), []
  for _ in range(NUM_STEPS):
    loss, grads = jax.value_and_grad(problem.loss)(params, problem.xs, problem.ys)
    losses.append(loss)
    params = step(params, grads)
  prediction, = problem.predict(params, problem.xs)
  return losses, prediction


def derivatives() -> dict[str, object]:
  """What can be asked of a pure function, by name: values, gradients, derivatives."""
  w, x, b = (jnp.float32(number) for number in (13., 42., 0.))
  problem = regression()
  params, data = problem.init(), (problem.xs, problem.ys)
  by_grad = jax.grad(product)(w, x)
  chex.assert_trees_all_equal(by_grad, product_derivative(w, x))
  _, by_jvp = jax.jvp(lambda w: product(w, x), (w,), (jnp.ones_like(w),))
  return {
      "f(13, 42)": product(w, x),
      "gradient of f in w, by jax.grad (equals the hand-written one)": by_grad,
      "derivative of f in w, forward mode, by jax.jvp": by_jvp,
      "derivative of f in w, forward mode, by jax.jacfwd": jax.jacfwd(product)(w, x),
      "prediction of LinearRegressor(13, 0) at 42": problem.predict(params, problem.xs)[0],
      "its loss, 500 being right": problem.loss(params, *data),
      "gradient of the loss in the arguments (w, b)":
          jax.grad(loss_of_numbers, argnums=(0, 1))(w, b, *data),
      "gradient of the loss in a dict of parameters":
          jax.grad(problem.loss)(params, *data)["linear_regressor"],
      "derivative of the loss in w, forward mode": jax.jacfwd(loss_of_numbers)(w, b, *data),
      # Rounded, since the order of the multiplications inside is not ours: 1e-7 may be left.
      "second derivative of the loss in w, away from the kink, to five decimals":
          jnp.abs(jnp.round(jax.grad(jax.grad(loss_of_numbers))(w, b, *data), 5)),
  }


def readable(value) -> str:
  """Scalars as JAX prints them, in tuples and in dicts too."""
  if isinstance(value, dict):
    return "{" + ", ".join(f"{key!r}: {readable(value[key])}" for key in sorted(value)) + "}"
  if isinstance(value, tuple):
    return "(" + ", ".join(map(readable, value)) + ")"
  return str(value)


def main():
  for what, value in derivatives().items():
    print(f"{what}: {readable(value)}")
  for how, step in STEPS.items():
    losses, prediction = descend(step)
    print(f"\nFifteen steps of gradient descent, by {how}; the loss before each:")
    for start in range(0, NUM_STEPS, 5):
      print("  " + " ".join(map(str, losses[start:start + 5])))
    # `str`, since a format would turn the float32 into a float of Python and print more digits.
    print("  then the prediction at 42:", str(prediction))


if __name__ == "__main__":
  cli.run(main)
