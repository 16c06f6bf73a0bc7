"""Every optimiser and schedule against its rule written out in NumPy, or literal rates."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl.testing import absltest, parameterized

from hklm.config.training import OPTIMIZERS, TrainConfig
from hklm.errors import InputError
from hklm.training import optimizers
from tests import oracle
from tests.training.updates import epochs_of

RATE = 0.1
GRADIENTS = [{"a": np.array([3.0, -0.2, 1e-4]), "b": np.array([[0.5, -4.0]])},
             {"a": np.array([-1.0, 0.3, 2e-4]), "b": np.array([[0.0, 1.0]])},
             {"a": np.array([0.1, 0.1, 1e-4]), "b": np.array([[-0.2, 0.3]])}]
START = {"a": np.array([1.0, -2.0, 0.5]), "b": np.array([[4.0, -0.25]])}


def by_hand(config, params, gradients):
  """The parameters after each update, from the rules in the papers."""
  params = {name: p.copy() for name, p in params.items()}
  first = {name: np.zeros_like(p) for name, p in params.items()}
  second = {name: np.zeros_like(p) for name, p in params.items()}
  for n, gradient in enumerate(gradients, 1):
    g = {name: leaf.copy() for name, leaf in gradient.items()}
    if config.weight_decay_first:
      g = {name: leaf + config.weight_decay * params[name] for name, leaf in g.items()}
    if config.clip_elementwise:
      g = {name: np.clip(leaf, -config.clip_elementwise, config.clip_elementwise)
           for name, leaf in g.items()}
    norm = np.sqrt(sum(np.sum(leaf**2) for leaf in g.values()))
    if config.clip and norm > config.clip:
      g = {name: leaf * config.clip / norm for name, leaf in g.items()}
    for name, p in params.items():
      if config.optimizer != "adamw" and not config.weight_decay_first:
        g[name] = g[name] + config.weight_decay * p
      if config.optimizer == "sgd":
        move = g[name]
      elif config.optimizer == "momentum":
        first[name] = config.momentum * first[name] + g[name]
        move = first[name]
      elif config.optimizer == "rmsprop":
        second[name] = config.rms_decay * second[name] + (1 - config.rms_decay) * g[name]**2
        move = g[name] / (np.sqrt(second[name]) + 1e-8)
      else:
        beta1, beta2 = config.adam_beta1, config.adam_beta2
        first[name] = beta1 * first[name] + (1 - beta1) * g[name]
        second[name] = beta2 * second[name] + (1 - beta2) * g[name]**2
        move = first[name] / (1 - beta1**n) / (np.sqrt(second[name] / (1 - beta2**n)) + 1e-8)
        if config.optimizer == "adamw":
          move = move + config.weight_decay * p
      params[name] = p - config.learning_rate * move
    yield {name: p.copy() for name, p in params.items()}


class UpdateTest(oracle.X64TestCase):

  @parameterized.product(
      clips=[(0.0, 0.0), (2.0, 0.0), (0.0, 0.25), (0.5, 0.4), (1e9, 1e9)],
      optimizer=OPTIMIZERS, weight_decay=[0.0, 0.3])
  def test_three_updates_are_those_of_the_papers(self, clips, optimizer, weight_decay):
    clip, clip_elementwise = clips
    self.check(TrainConfig(optimizer=optimizer, weight_decay=weight_decay, learning_rate=RATE,
                           schedule="constant", momentum=0.8, rms_decay=0.9, clip=clip,
                           clip_elementwise=clip_elementwise))

  @parameterized.product(
      clips=[(2.0, 0.0), (0.5, 0.4)], optimizer=["sgd", "adam"], betas=[(0.0, 0.999), (0.7, 0.8)])
  def test_l2_before_clipping_and_other_betas(self, clips, optimizer, betas):
    self.check(TrainConfig(optimizer=optimizer, weight_decay=0.3, weight_decay_first=True,
                           learning_rate=RATE, schedule="constant", clip=clips[0],
                           clip_elementwise=clips[1], adam_beta1=betas[0], adam_beta2=betas[1]))

  def check(self, config):
    chain = optimizers.optimizer(config, steps=10, updates_in=epochs_of(10))
    params = jax.tree.map(jnp.asarray, START)
    state = chain.init(params)
    for gradient, expected in zip(GRADIENTS, by_hand(config, START, GRADIENTS), strict=True):
      updates, state = chain.update(jax.tree.map(jnp.asarray, gradient), state, params)
      params = optax.apply_updates(params, updates)
      self.assert_close(params, expected, 1e-6)

  def test_the_list_is_that_of_the_flag(self):
    for name in OPTIMIZERS:
      optimizers.optimizer(TrainConfig(optimizer=name), 10, epochs_of(10))
    with self.assertRaisesRegex(InputError, "--optimizer=adagrad is unknown; needed: sgd, "):
      TrainConfig(optimizer="adagrad")

  def test_the_schedule_counts_updates(self):
    config = TrainConfig(optimizer="sgd", learning_rate=1.0, schedule="cosine", clip=0.0)
    chain = optimizers.optimizer(config, steps=4, updates_in=epochs_of(4))
    state, moves = chain.init(jnp.zeros([])), []
    for _ in range(5):
      move, state = chain.update(jnp.ones([]), state, jnp.zeros([]))
      moves.append(float(-move))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(moves, [1, (1 + half) / 2, 0.5, (1 - half) / 2, 0], atol=1e-7)


class ScheduleTest(parameterized.TestCase):

  @parameterized.parameters(
      ("constant", 0, {0: 2, 1: 2, 99: 2}),
      ("plateau", 0, {0: 2, 1: 2, 99: 2}),
      ("constant", 4, {0: 0, 1: 0.5, 2: 1, 3: 1.5, 4: 2, 99: 2}),
      ("cosine", 0, {0: 2, 50: 1, 100: 0}),
      ("cosine", 20, {0: 0, 10: 1, 20: 2, 60: 1, 100: 0}),
      # halved every 2 epochs of 10 updates
      ("step", 0, {0: 2, 19: 2, 20: 1, 39: 1, 40: 0.5, 60: 0.25}),
      ("step", 10, {0: 0, 5: 1, 10: 2, 19: 2, 20: 1, 40: 0.5}),
      ("plateau", 2, {0: 0, 1: 1, 2: 2, 50: 2}))
  def test_literal_rates(self, name, warmup, expected):
    config = TrainConfig(schedule=name, warmup=warmup, learning_rate=2.0, decay_rate=0.5,
                         decay_every=2)
    rate = optimizers.schedule(config, steps=100, updates_in=epochs_of(10))
    np.testing.assert_allclose([float(rate(jnp.int32(n))) for n in expected],
                               list(expected.values()), atol=1e-6)

  @parameterized.parameters(
      ((2,), 0, {0: 2, 19: 2, 20: 1, 99: 1}), ((1, 4, 30), 0, {9: 2, 10: 1, 39: 1, 40: 0.5}),
      ((1, 2), 5, {5: 2, 9: 2, 10: 1, 19: 1, 20: 0.5}))
  def test_epochs_after_which_it_falls(self, decay_at, warmup, expected):
    config = TrainConfig(schedule="step", decay_at=decay_at, warmup=warmup, learning_rate=2.0,
                         decay_rate=0.5)
    rate = optimizers.schedule(config, 100, epochs_of(10))
    self.assertEqual([float(rate(np.int32(n))) for n in expected], list(expected.values()))

  def test_epochs_may_differ_in_length(self):
    config = TrainConfig(schedule="step", decay_start=2, learning_rate=2.0, decay_rate=0.5)
    rate = optimizers.schedule(config, 20, lambda epochs: [0, 3, 8, 10, 17, 25][epochs])
    self.assertEqual([float(rate(n)) for n in (0, 7, 8, 9, 10, 16, 17, 19)],
                     [2, 2, 1, 1, 0.5, 0.5, 0.25, 0.25])

  @parameterized.parameters(10, 11)
  def test_a_warm_up_without_end_is_refused(self, warmup):
    with self.assertRaisesRegex(InputError, f"--warmup={warmup} reaches the last of 10 updates"):
      optimizers.schedule(TrainConfig(warmup=warmup), 10, epochs_of(10))
    optimizers.schedule(TrainConfig(warmup=9), 10, epochs_of(10))


if __name__ == "__main__":
  absltest.main()
