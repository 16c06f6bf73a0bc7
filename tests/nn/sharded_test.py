"""On a mesh, each device its rows and its part of the table: values and gradients of one device."""

import functools
import unittest
from unittest import mock

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from hklm import losses
from hklm.config import ModelConfig
from hklm.nn import cells, cudnn, heads, initializers, sharded
from tests import many_devices, oracle
from tests.nn import cudnn_test

DEVICES = 4
T, B, D, V = 3, 4, 5, 8


def mesh(data, vocab, kind=AxisType.Auto):
  return jax.make_mesh((data, vocab), ("data", "vocab"), axis_types=(kind,) * 2)


def on(mesh, f, *arguments):
  with jax.set_mesh(mesh):
    return jax.jit(f)(*arguments)


@unittest.skipUnless(many_devices.inside(), "run by ManyDevicesTest, with several devices")
class LossTest(oracle.X64TestCase):

  def setUp(self):
    super().setUp()
    draw = np.random.RandomState(0)
    self.inputs = [draw.normal(size=size) for size in ((T, B, D), (V, D), (V,))]
    self.targets = draw.randint(V, size=(T, B)).astype(np.uint8)

  @parameterized.product(shape=[(4, 1), (2, 2), (1, 4)], bias=[False, True], blocks=[False, True])
  def test_values_and_gradients(self, shape, bias, blocks):
    def nats(h, table, b):
      return losses.sharded_nats(h, table, b if bias else None, self.targets)

    def both(*inputs):
      return nats(*inputs), jax.grad(lambda *x: (nats(*x) ** 2).sum(), range(3))(*inputs)

    if blocks:  # of D ids, the last of a part in two blocks
      self.enter_context(mock.patch.multiple(losses, WHOLE_BYTES=0, BLOCK_BYTES=0))
      self.enter_context(mock.patch.object(losses, "_columns", lambda N, table: 3))
    found, gradient = on(mesh(*shape), both, *self.inputs)
    h, table, b = self.inputs
    logits = h @ table.T + b * bias
    expected = (np.log(np.exp(logits).sum(-1))
                - np.take_along_axis(logits, self.targets[..., None].astype(int), -1)[..., 0])
    self.assert_close(found, expected)
    slope = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True) - np.eye(V)[self.targets]
    slope *= 2 * expected[..., None]
    self.assert_close(gradient, (slope @ table, np.einsum("tbv,tbd->vd", slope, h),
                                 slope.sum((0, 1)) * bias))

  @parameterized.parameters((4, 1), (2, 2))
  def test_an_id_that_is_none_gives_nan(self, *shape):
    targets = np.zeros([T, B], np.int32)
    targets[0, 1], targets[2, 3] = -1, V
    found = on(mesh(*shape), losses.sharded_nats, *self.inputs, targets)
    np.testing.assert_array_equal(np.isnan(found), (targets < 0) | (targets == V))

  @parameterized.parameters((3, 8), (4, 7))
  def test_what_cannot_be_cut_is_right_all_the_same(self, B, V):
    h, table, b = self.inputs
    inputs = h[:, :B], table[:V], b[:V], self.targets[:, :B] % V
    self.assert_close(on(mesh(2, 2), losses.sharded_nats, *inputs), losses.linear_nats(*inputs))

  def test_large_logits_are_exact(self):
    h, table = np.full([T, B, 1], 1e4), np.arange(V, dtype=np.float64)[:, None]
    found = on(mesh(2, 2), losses.sharded_nats, h, table, None, np.full([T, B], 1))
    self.assert_close(found, np.full([T, B], 1e4 * (V - 2)))


@unittest.skipUnless(many_devices.inside(), "run by ManyDevicesTest, with several devices")
class HeadsTest(oracle.X64TestCase):

  @parameterized.parameters(
      ((2, 2), {"head": "mixture", "tie_embeddings": True}),
      ((4, 1), {"head": "adaptive", "adaptive_cutoffs": (2, 4), "hidden_size": 16}),
      ((2, 2), {"head": "sampled", "sampled_tokens": 4, "head_projection": True}))
  def test_values_and_gradients(self, shape, changes):
    config = ModelConfig(**{"vocab_size": V, "embedding_size": 3, "hidden_size": D,
                            "dtype": "float64", **changes})

    def nats(h, table):
      head = heads.head(config, initializers.parse("normal:1", D))
      return head.nats(h, targets, table if config.tie_embeddings else None)

    draw = np.random.RandomState(2)
    inputs = draw.normal(size=[T, B, config.hidden_size]), draw.normal(size=[V, 3])
    targets, f, key = draw.randint(V, size=[T, B]), hk.transform(nats), jax.random.key(0)
    params = oracle.random_like(jax.eval_shape(f.init, key, *inputs))

    def both(*inputs):
      return f.apply(inputs[0], key, *inputs[1:]), jax.grad(
          lambda inputs: (f.apply(inputs[0], key, *inputs[1:]) ** 2).sum())(inputs)

    cut, rows, whole = (NamedSharding(mesh(*shape), spec) for spec in (
        P("vocab"), sharded.STEPS, sharded.SHARED))
    tables = {name: cut if name in ("w", "b") else whole for name in params.get("head", {})}
    lies = {module: tables if module == "head" else dict.fromkeys(its, whole)
            for module, its in params.items()}
    if config.head == "adaptive":
      lies = whole
    placed = (*jax.device_put((params, inputs[0]), (lies, rows)),
              jax.device_put(inputs[1], cut if config.tie_embeddings else whole))
    self.assert_close(on(mesh(*shape), both, *placed), jax.jit(both)(params, *inputs))


@unittest.skipUnless(many_devices.inside(), "run by ManyDevicesTest, with several devices")
class LayerTest(oracle.X64TestCase):

  @parameterized.product(impl=["fused", "cudnn"], shape=[(4, 1), (2, 2)])
  def test_gradients(self, impl, shape):
    """cuDNN's place is taken by jax's reference: how it is called is what differs here."""
    kernel = functools.partial(cudnn.sequence, lstm=cudnn_test.reference)
    self.enter_context(mock.patch.object(cudnn, "sequence", kernel))

    def layer(xs):
      lstm = cells.LSTM(6, learned_state=True)
      return lstm.sequence(xs, lstm.initial_state(B), None, impl)

    model = hk.without_apply_rng(hk.transform(layer))
    xs = np.random.RandomState(1).normal(size=[T, B, D]).astype(np.float32)
    params = oracle.random_like(model.init(jax.random.key(0), xs))

    def gradient(params, xs):
      return jax.grad(lambda *x: sum((y ** 2).sum() for y in jax.tree.leaves(model.apply(*x))),
                      (0, 1))(params, xs)

    self.assert_close(on(mesh(*shape), gradient, params, xs), gradient(params, xs), 2e-5)


@unittest.skipUnless(many_devices.inside(), "run by ManyDevicesTest, with several devices")
class WhereTest(parameterized.TestCase):

  def called(self, mesh, batch_size):
    """The rows that a function is given of B."""
    rows = []

    def f(x):
      rows.append(len(x))
      return x

    on(mesh, lambda x: sharded.by_device(f, sharded.ROWS, sharded.ROWS, batch_size)(x),
       jnp.zeros([batch_size, 1]))
    return rows[0]

  @parameterized.parameters(
      (4, 1, AxisType.Auto, 8, 2), (2, 2, AxisType.Auto, 8, 4), (4, 1, AxisType.Auto, 6, 6),
      (4, 1, AxisType.Explicit, 8, 8))
  def test_rows_are_cut_where_they_can_be(self, data, vocab, kind, batch_size, expected):
    self.assertEqual(self.called(mesh(data, vocab, kind), batch_size), expected)

  def test_not_again_inside_shard_map(self):
    def inner(x):
      return x + sharded.parts("data")

    outer = jax.shard_map(inner, in_specs=sharded.ROWS, out_specs=sharded.ROWS)
    self.assertEqual(on(mesh(4, 1), outer, jnp.zeros(8)).tolist(), [1] * 8)


class ManyDevicesTest(parameterized.TestCase):

  @unittest.skipIf(many_devices.inside(), "this is the inside")
  def test_all_of_the_above(self):
    done = many_devices.run("tests.nn.sharded_test", DEVICES)
    self.assertEqual(done.returncode, 0, done.stdout)
    self.assertRegex(done.stdout, r"Ran 30 tests in .*\n\nOK \(skipped=1\)")


if __name__ == "__main__":
  absltest.main()
