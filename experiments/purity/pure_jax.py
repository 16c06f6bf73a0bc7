"""Pure functions, second part: JAX, Haiku and optax as they are meant to be used.

As in `impure`, what serves a function stands right above it.
"""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax


def two_noises(key, x):
  first, second = jax.random.split(key)
  return x + jax.random.normal(first, x.shape), x + jax.random.normal(second, x.shape)


def dropped_out(key, x):
  return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x / 0.5, 0.0)


@jax.jit
def stable_softmax(logits):
  exponentials = jnp.exp(logits - logits.max())
  return exponentials / exponentials.sum()


@jax.jit
def powers_of(x):
  powers = []
  for exponent in range(1, 4):
    powers.append(x ** exponent)
  return powers


@functools.partial(jax.jit, static_argnames="count")
def repeated(x, count):
  return jnp.concatenate([x] * count)


def pairwise_distances(points):
  return jax.vmap(lambda a: jax.vmap(lambda b: jnp.sum((a - b) ** 2))(points))(points)


def moving_average(values):
  def body(mean, value):
    mean = 0.9 * mean + 0.1 * value
    return mean, mean
  return jax.lax.scan(body, 0.0, values)[1]


def newton_root(x):
  return jax.lax.while_loop(lambda guess: jnp.abs(guess * guess - x) > 1e-4,
                            lambda guess: 0.5 * (guess + x / guess), x)


def factorial(n):
  return jax.lax.fori_loop(1, n + 1, lambda step, product: product * step, 1)


def leaky_or_not(x, leaky):
  return jax.lax.cond(leaky, lambda v: jnp.maximum(v, 0.1 * v), lambda v: jnp.maximum(v, 0.0), x)


def clipped_gradient_forward(x):
  return x, None


def clipped_gradient_backward(unused_residual, gradient):
  return (jnp.clip(gradient, -1.0, 1.0),)


@jax.custom_vjp
def clipped_gradient(x):
  return x


clipped_gradient.defvjp(clipped_gradient_forward, clipped_gradient_backward)


@jax.custom_jvp
def log_of_one_plus(x):
  return jnp.log(1.0 + jnp.exp(x))


@log_of_one_plus.defjvp
def log_of_one_plus_derivative(primals, tangents):
  return log_of_one_plus(primals[0]), jax.nn.sigmoid(primals[0]) * tangents[0]


def slope_of_log(x):
  return jax.grad(log_of_one_plus)(x)


def loss_and_gradient(params, x, y):
  def mean_squared(candidate):
    return jnp.mean((candidate["w"] * x + candidate["b"] - y) ** 2)
  return jax.value_and_grad(mean_squared)(params)


def compiled_double(x):
  return jax.jit(lambda value: 2 * value)(x)


def shifted_by_host(x):
  result = jax.ShapeDtypeStruct(x.shape, np.float32)
  return jax.pure_callback(lambda value: np.flip(np.asarray(value)), result, x)


def with_first_zero(x):
  return x.at[0].set(0.0)


def doubled_tree(params):
  return jax.tree.map(lambda leaf: 2 * leaf, params)


def shape_of_product(a, b):
  return jax.eval_shape(jnp.matmul, a, b).shape


def precise_matmul(a, b):
  with jax.default_matmul_precision("highest"):
    return a @ b


def remembered_activations(x):
  return jax.grad(jax.checkpoint(lambda value: jnp.sum(jnp.tanh(value) ** 2)))(x)


def log_of_negative(x):
  return jnp.log(-jnp.abs(x))


class Perceptron(hk.Module):
  """Two layers, kept in a list."""

  def __call__(self, x):
    layers = []
    for size in (3, 2):
      layers.append(hk.Linear(size))
    for layer in layers:
      x = jax.nn.relu(layer(x))
    return x


perceptron = hk.without_apply_rng(hk.transform(lambda x: Perceptron()(x)))


def perceptron_parameters(key, x):
  return perceptron.init(key, x)


def perceptron_forward(params, x):
  return perceptron.apply(params, x)


normalizer = hk.without_apply_rng(hk.transform_with_state(
    lambda x: hk.BatchNorm(True, True, 0.9)(x, is_training=True)))


def normalized_with_state(params, state, x):
  return normalizer.apply(params, state, x)


recurrent = hk.without_apply_rng(hk.transform(lambda x, state: hk.VanillaRNN(2)(x, state)))


def recurrent_step(params, x, state):
  return recurrent.apply(params, x, state)


optimizer = optax.adam(0.1)


def adam_step(params, state, gradients):
  updates, state = optimizer.update(gradients, state, params)
  return optax.apply_updates(params, updates), state
