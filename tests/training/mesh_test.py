"""The batch of one device on several: the same losses and parameters; what they exchange."""

import dataclasses
import math
import re
import unittest

import chex
import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.data.random_streams import RandomStreams
from hklm.data.streams import Streams
from hklm.training import mesh as meshes
from hklm.training import optimizers, step
from tests import many_devices, oracle
from tests.training import updates

DEVICES, UPDATES = 8, 6
V, B, T = 16, 8, 5  # windows of 5, 5, 2
IDS = np.random.RandomState(0).randint(V, size=B * 12 + 1).astype(np.uint8)  # of 12 targets
DROPOUTS = {"input_dropout": 0.2, "layer_dropout": 0.2, "output_dropout": 0.2}
MODEL = hklm.ModelConfig(V, 8, 8, num_layers=2, initial_state="learned", dtype="float64",
                         **DROPOUTS)
CUT = {"vocab_shards": 2}
STEPS, ONE_LAYER = {"dropout_per_step": True}, {"num_layers": 1}
FOREIGN = ("all-gather", "all-to-all", "collective-permute", "reduce-scatter")


def run_config(**changes):
  return TrainConfig(dataclasses.replace(MODEL, **changes), batch_size=B, bptt=T)


def starting(config):
  """What makes a state, and the update of one device."""
  lm = hklm.language_model(config.model)
  optimizer = optimizers.optimizer(config, UPDATES, updates.epochs_of(UPDATES))
  return lambda: step.init(lm, optimizer, B, 0), step.make_update(lm, optimizer, config)


def curve(update, state, windows):
  """`nats, gradient norm` of each update, two epochs, and the state after the last."""
  rows = []
  for number in range(UPDATES):
    ids, length, first, _ = windows.at(number)
    state, metrics = update(state, ids, np.full(ids.shape[1], first), length)
    rows.append([float(metrics.nats), float(metrics.gradient_norm)])
  return np.array(rows), state


@unittest.skipUnless(many_devices.inside(), "run by ManyDevicesTest, with several devices")
class CurvesTest(oracle.X64TestCase):

  @parameterized.named_parameters(
      ("eight_in_float32", {"dtype": "float32"}, {}, T, 1e-5),
      ("two_cell_by_cell", {"lstm_impl": "scan", **STEPS}, {"devices": 2}, 4, 1e-10),
      ("cut_tables", {"output_bias": False, **ONE_LAYER}, {"devices": 2, **CUT}, 4, 1e-10),
      ("cut_tied_tables", {"tie_embeddings": True, **STEPS}, CUT, T, 1e-10),
      ("looked_up_later", {"embedding_size": 64, "input_dropout": 0.0, **ONE_LAYER}, {}, 4, 1e-10))
  def test_it_is_that_of_one_device(self, model, on, length, tolerance):
    config = run_config(**model)
    tied = config.model.tie_embeddings
    start, update_one = starting(config)
    mesh = meshes.make(config, **on)
    state = meshes.init(mesh, start, tied)
    alone, on_mesh = start(), meshes.local(state)
    self.assert_close(on_mesh._replace(key=jax.random.key_data(on_mesh.key)),
                      alone._replace(key=jax.random.key_data(alone.key)), 1e-15)
    windows = Streams(IDS, B, length, columns=meshes.columns(mesh, B))
    expected, alone = curve(update_one, alone, windows)
    found, state = curve(meshes.update(mesh, update_one, state), state, windows)
    np.testing.assert_allclose(found, expected, rtol=tolerance)
    self.assert_close(meshes.local(state.params), alone.params, 10 * tolerance)
    self.assert_close(meshes.local(state.state), alone.state, 10 * tolerance)

  def test_windows_of_random_length_and_streams_that_start_anew_at_random(self):
    config = dataclasses.replace(run_config(**ONE_LAYER), random_bptt=True, reset_rate=0.3)
    start, update_one = starting(config)
    mesh = meshes.make(config)
    state = meshes.init(mesh, start, tied=False)
    windows = RandomStreams(Streams(IDS, B, T, columns=meshes.columns(mesh, B)), seed=0)
    self.assertGreater(len({windows.at(n).length for n in range(UPDATES)}), 1)
    expected, alone = curve(update_one, start(), windows)
    found, state = curve(meshes.update(mesh, update_one, state), state, windows)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    self.assert_close(meshes.local(state.params), alone.params, 1e-9)
    self.assert_close(meshes.local(state.state), alone.state, 1e-9)

  def test_a_state_of_one_device_goes_on(self):
    config = run_config(**ONE_LAYER)
    start, update_one = starting(config)
    mesh = meshes.make(config, devices=4, vocab_shards=2)
    state = start()
    state = state._replace(params=oracle.random_like(state.params))
    state = state._replace(state=oracle.random_like(state.state, seed=1))
    placed = meshes.place(mesh, state, tied=False)
    chex.assert_trees_all_equal(*(jax.tree.map(lambda leaf: leaf.sharding, state) for state in
                                  (placed, meshes.init(mesh, start, tied=False))))
    windows = Streams(IDS, B, 6)
    found, _ = curve(meshes.update(mesh, update_one, placed), placed, windows)
    expected, _ = curve(update_one, state, windows)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@unittest.skipUnless(many_devices.inside(), "run by ManyDevicesTest, with several devices")
class ExchangeTest(parameterized.TestCase):

  @parameterized.parameters(("fused", 1, False), ("fused", 2, True), ("scan", 2, False))
  def test_devices_add_up_and_exchange_nothing_else(self, impl, vocab_shards, tied):
    config = run_config(lstm_impl=impl, tie_embeddings=tied, dtype="float32", **ONE_LAYER)
    start, update_one = starting(config)
    mesh = meshes.make(config, vocab_shards=vocab_shards)
    state = meshes.init(mesh, start, tied)
    program = meshes.update(mesh, update_one, state).__wrapped__.lower(
        state, np.zeros([T + 1, B], np.int32), np.zeros(B, bool), None).compile().as_text()
    self.assertRegex(program, r" all-reduce(-start)?\(")
    self.assertNotRegex(program, rf" ({'|'.join(FOREIGN)})(-start)?\(")
    # At no time step of the fused LSTM; where a cell is scanned, XLA leaves it so on a CPU.
    for body in re.findall(r"body=%([\w.-]+)", program) if impl == "fused" else ():
      self.assertNotIn("all-reduce", re.search(rf"^%{re.escape(body)} .*?^}}", program,
                                               re.MULTILINE | re.DOTALL)[0])

  @parameterized.parameters(False, True)
  def test_each_device_has_its_part_of_the_tables_and_of_the_state(self, tied):
    config = run_config(tie_embeddings=tied, dtype="float32")
    mesh = meshes.make(config, vocab_shards=2)
    state = meshes.init(mesh, starting(config)[0], tied)
    cut = {("head", "w"), ("head", "b")} | ({("embedding", "table")} if tied else set())
    found = set()
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
      names = tuple(getattr(key, "key", None) for key in path[-2:])
      share = leaf.size / math.prod(leaf.sharding.shard_shape(leaf.shape))
      kept = path[0].name in ("params", "opt_state")
      self.assertEqual(share, 4 if path[0].name == "state" else 2 if names in cut else 1, path)
      found |= {(path[0].name, names)} if kept and share == 2 else set()
    own = {name for name in cut if not (tied and name == ("head", "w"))}
    self.assertEqual(found, {(part, name) for part in ("params", "opt_state") for name in own})


@unittest.skipUnless(many_devices.inside(), "run by ManyDevicesTest, with several devices")
class RefusalsTest(parameterized.TestCase):

  @parameterized.parameters(
      ({"devices": 9}, {}, "--devices=9 .*needed: 1 to 8"),
      ({"devices": -1}, {}, "--devices=-1 .*needed: 1 to 8"),
      ({"vocab_shards": 3}, {}, "--vocab_shards=3 does not divide the 8 devices.*--devices"),
      ({"vocab_shards": 0}, {}, "--vocab_shards=0 "),
      ({"devices": 3, "vocab_shards": 3}, {}, "vocabulary of 16; .*--vocab_size"),
      ({"devices": 3}, {}, "--batch_size=8 cannot be cut over 3 devices.*--devices"),
      ({"vocab_shards": 2}, {"model": hklm.ModelConfig(8, head="adaptive", adaptive_cutoffs=(3,)),
                             "tokenizer": hklm.TokenizerConfig("word")},
       "--vocab_shards=2 cuts the output table; --head=adaptive has several; needed: --vocab_sha"),
      ({}, {"batch_size": 12}, "--batch_size=12 cannot be cut over 8 devices; needed: a multiple"))
  def test_what_does_not_fit_is_named(self, on, changes, message):
    config = dataclasses.replace(run_config(), **changes)
    with self.assertRaisesRegex(hklm.InputError, message):
      meshes.make(config, **on)


class ManyDevicesTest(parameterized.TestCase):

  @unittest.skipIf(many_devices.inside(), "this is the inside")
  def test_all_of_the_above(self):
    done = many_devices.run("tests.training.mesh_test", DEVICES)
    self.assertEqual(done.returncode, 0, done.stdout)
    self.assertRegex(done.stdout, r"Ran 22 tests in .*\n\nOK \(skipped=2\)")

  @unittest.skipIf(many_devices.inside(), "of one device")
  def test_of_one_device_nothing_is_wrapped(self):
    config = run_config(dtype="float32")
    start, update_one = starting(config)
    mesh = meshes.make(config, devices=1)
    state = meshes.init(mesh, start, tied=False)
    self.assertIs(meshes.update(mesh, update_one, state), update_one)
    self.assertIs(meshes.place(mesh, state, tied=False), state)
    self.assertEqual(meshes.columns(mesh, B), range(B))


if __name__ == "__main__":
  absltest.main()
