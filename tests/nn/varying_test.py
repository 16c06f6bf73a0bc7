"""Under `jax.shard_map`, with its check of what varies: the values and gradients of one device."""

import dataclasses
import unittest

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from jax.sharding import PartitionSpec as P

import hklm
from hklm.losses import linear_nats
from hklm.nn import lstm
from tests import many_devices, oracle

DEVICES = 4


def sharded(f, in_specs, out_specs):
  mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
  return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs))


def normal(*shapes):
  draw = np.random.RandomState(0)
  return [draw.normal(size=shape) for shape in shapes]


@unittest.skipUnless(many_devices.inside(), "run by ManyDevicesTest, with several devices")
class ShardedTest(oracle.X64TestCase):

  @parameterized.product(impl=["fused", "scan"], masked=[False, True])
  def test_a_models_loss(self, impl, masked):
    model = oracle.MODELS[3]
    ready = oracle.ready(model)
    lm = hklm.language_model(dataclasses.replace(model.config, lstm_impl=impl))
    inputs, targets = (np.concatenate([x] * DEVICES, 1) for x in (ready.inputs, ready.targets))
    state = jax.tree.map(lambda x: jnp.concatenate([x] * DEVICES), ready.state)
    mask = np.random.RandomState(0).rand(*inputs.shape) < .7 if masked else None

    def gradient(params, inputs, targets, state, mask):
      def loss(params):
        return lm.loss(params, None, inputs, targets, state, mask)[0].nats.sum()

      return jax.grad(loss)(params)

    own = P(None, "data")
    found = sharded(gradient, (P(), own, own, P("data"), own), P())(
        ready.params, inputs, targets, state, mask)
    self.assert_close(found, gradient(ready.params, inputs, targets, state, mask), 1e-12)

  @parameterized.parameters(3, 16)  # rows, planes
  def test_the_lstm_over_a_sequence(self, B):
    T, D, H = 4, 2, 5
    arguments = normal(
        (4 * H, D), (4 * H, H), (4 * H,), (T, B * DEVICES, D), (B * DEVICES, H), (B * DEVICES, H))

    def gradients(*arguments):
      return jax.grad(lambda *x: jnp.sin(lstm.sequence(*x)[0]).sum(), range(6))(*arguments)

    specs = P(), P(), P(), P(None, "data"), P("data"), P("data")
    self.assert_close(sharded(gradients, specs, specs)(*arguments), gradients(*arguments),
                          1e-12)

  @parameterized.product(columns=[0, 3], bias=[False, True])
  def test_the_loss_with_the_output_matrix(self, columns, bias):
    h, table, b = normal((8, 3), (7, 3), (7,))
    targets = np.arange(8) % 7

    def gradients(h, table, b, targets):
      def loss(h, table, b):
        return linear_nats(h, table, b if bias else None, targets, columns).sum()

      return jax.grad(loss, range(3))(h, table, b)

    own = P("data")
    found = sharded(gradients, (own, P(), P(), own), (own, P(), P()))(h, table, b, targets)
    self.assert_close(found, gradients(h, table, b, targets), 1e-13)


class ManyDevicesTest(parameterized.TestCase):

  @unittest.skipIf(many_devices.inside(), "this is the inside")
  def test_all_of_the_above(self):
    done = many_devices.run("tests.nn.varying_test", DEVICES)
    self.assertEqual(done.returncode, 0, done.stdout)
    self.assertRegex(done.stdout, r"Ran 11 tests in .*\n\nOK \(skipped=1\)")


if __name__ == "__main__":
  absltest.main()
