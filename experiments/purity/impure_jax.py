"""Impure functions, third part: what JAX, Haiku and tracing make possible.

As in `impure`, what serves a function stands right above it.
"""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

activations = []


@jax.jit
def hidden_layer(x):
  hidden = jnp.tanh(x)
  activations.append(hidden)
  return hidden.sum()


learning_rate = 0.1


def set_learning_rate(value):
  global learning_rate
  learning_rate = value


@jax.jit
def descend(weight, gradient):
  return weight - learning_rate * gradient


traced_shapes = {}


def sum_of_squares(x):
  if isinstance(x, jax.core.Tracer):
    traced_shapes[x.shape] = traced_shapes.get(x.shape, 0) + 1
  return jnp.sum(x * x)


@jax.jit
def cube_and_announce(x):
  print("compiling for", x.shape)
  return x ** 3


@jax.jit
def perturbed(x):
  return x + np.random.normal(size=x.shape)


gradient_norms = []


@jax.custom_vjp
def watched_identity(x):
  return x


def watched_identity_forward(x):
  return x, None


def watched_identity_backward(unused_residual, gradient):
  gradient_norms.append(jnp.linalg.norm(gradient))
  return (gradient,)


watched_identity.defvjp(watched_identity_forward, watched_identity_backward)


def gradient_through_watch(x):
  return jax.grad(lambda value: jnp.sum(watched_identity(value) ** 2))(x)


reversed_count = {"calls": 0}


def reversed_gradient_forward(x):
  return x, None


def reversed_gradient_backward(unused_residual, gradient):
  reversed_count["calls"] += 1
  return (-gradient,)


@jax.custom_vjp
def reversed_gradient(x):
  return x


reversed_gradient.defvjp(reversed_gradient_forward, reversed_gradient_backward)

tangents_seen = {"count": 0}


@jax.custom_jvp
def safe_log(x):
  return jnp.log(x)


@safe_log.defjvp
def safe_log_derivative(primals, tangents):
  tangents_seen["count"] += 1
  return safe_log(primals[0]), tangents[0] / jnp.maximum(primals[0], 1e-6)


def slope_of_safe_log(x):
  return jax.grad(safe_log)(x)


@jax.jit
def mean_and_show(x):
  mean = jnp.mean(x)
  jax.debug.print("mean {mean}", mean=mean)
  return mean


logged_norms = []


@jax.jit
def norm_and_log(x):
  norm = jnp.linalg.norm(x)
  jax.debug.callback(lambda value: logged_norms.append(float(value)), norm)
  return norm


host_totals = []


def add_to_host(total):
  host_totals.append(float(total))
  return np.float32(len(host_totals))


@jax.jit
def total_and_position(x):
  total = jnp.sum(x)
  return total, io_callback(add_to_host, jax.ShapeDtypeStruct((), np.float32), total)


def host_noise(x):
  return np.random.uniform(size=x.shape).astype(np.float32)


def uniform_from_host(x):
  return x + jax.pure_callback(host_noise, jax.ShapeDtypeStruct(x.shape, np.float32), x)


@functools.partial(jax.jit, donate_argnums=0)
def updated_in_place(weights, gradient):
  return weights - 0.1 * gradient


def precise_product(a, b):
  jax.config.update("jax_default_matmul_precision", "highest")
  return a @ b


seed = 0


def fresh_noise(x):
  global seed
  seed += 1
  return x + jax.random.normal(jax.random.key(seed), x.shape)


model = {"w": np.ones(3, np.float32)}


def train_step(gradient):
  model["w"] = model["w"] - 0.1 * np.asarray(gradient)
  return jnp.sum(model["w"])


class NoisyLinear(hk.Module):
  """A linear layer with noise on its output."""

  def __call__(self, x):
    return hk.Linear(2)(x) + np.random.normal(size=2).astype(np.float32)


noisy_linear = hk.without_apply_rng(hk.transform(lambda x: NoisyLinear()(x)))


def noisy_forward(params, x):
  return noisy_linear.apply(params, x)


kept_outputs = []


def kept_layers(x):
  for size in (3, 2):
    x = jax.nn.relu(hk.Linear(size)(x))
    kept_outputs.append(x)
  return x


kept_network = hk.without_apply_rng(hk.transform(kept_layers))


def kept_forward(params, x):
  return kept_network.apply(params, x)


layer_names = []


def named_layers(x):
  layer = hk.Linear(2)
  layer_names.append(layer.module_name)
  return layer(x)


def named_parameters(key, x):
  return hk.transform(named_layers).init(key, x)
