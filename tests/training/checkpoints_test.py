"""Parameters come back from disk bit for bit, or not at all."""

import contextlib
import os
import resource
import signal
import tempfile

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.errors import InputError
from hklm.training import checkpoints


def tree(scale=1.0):
  draw = np.random.RandomState(0)
  return {"lstm_0": {"w": jnp.asarray(scale * draw.normal(size=[3, 2]), jnp.float32),
                     "b": jnp.asarray(draw.normal(size=[4]), jnp.bfloat16)},
          "tokenizer": np.arange(32, dtype=np.uint8),
          "step": jnp.int32(7)}


def shapes(of):
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), of)


class CheckpointsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "at")

  def test_save_and_restore_bit_for_bit_and_replaced_by_the_next(self):
    for scale in (1.0, 1e-40, 3.0):
      checkpoints.save(self.path, tree(scale))
      restored = checkpoints.restore(self.path, shapes(tree()))
      chex.assert_trees_all_equal(restored, tree(scale), strict=True)
      chex.assert_trees_all_equal_shapes_and_dtypes(restored, tree())
    self.assertEqual(os.listdir(os.path.dirname(self.path)), ["at"])  # no temporaries

  def test_relative_path(self):
    self.enter_context(contextlib.chdir(os.path.dirname(self.path)))
    checkpoints.save("at", tree())
    self.assertTrue(os.path.isdir(self.path))
    chex.assert_trees_all_equal(checkpoints.restore("at", shapes(tree())), tree())

  @parameterized.named_parameters(
      ("shape", lambda t: t["lstm_0"].update(w=jnp.zeros([3, 3])),
       r"parameter \['lstm_0'\]\['w'\]: found \(\(3, 2\), 'float32'\), needed \(\(3, 3\)"),
      ("dtype", lambda t: t["lstm_0"].update(b=jnp.zeros([4])), r"\['b'\]: found .*bfloat16"),
      ("more", lambda t: t.update(head=jnp.zeros([1])), r"\['head'\]: found nothing"),
      ("less", lambda t: t.pop("lstm_0"), r"\['lstm_0'\]\['b'\]: .* needed nothing"))
  def test_another_structure_is_refused_by_name(self, change, message):
    checkpoints.save(self.path, tree())
    target = shapes(tree())
    change(target)
    with self.assertRaisesRegex(InputError, message):
      checkpoints.restore(self.path, target)

  def test_nothing_there(self):
    with self.assertRaisesRegex(InputError, f"{self.path}: no checkpoint; needed: a folder"):
      checkpoints.restore(self.path, shapes(tree()))

  def test_damage_of_any_file_is_refused(self):
    checkpoints.save(self.path, tree())
    files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(self.path)
                   for name in names)
    contents = {}
    for file in files:
      with open(file, "rb") as reader:
        contents[file] = reader.read()
    refused = 0
    for file in files:
      for left in (None, b"", contents[file][:len(contents[file]) // 2]):
        os.remove(file)
        if left is not None:
          with open(file, "wb") as writer:
            writer.write(left)
        try:  # what is not needed may be missing; whatever comes back is right
          restored = checkpoints.restore(self.path, shapes(tree()))
          chex.assert_trees_all_equal(restored, tree())
        except InputError as error:
          refused += 1
          self.assertStartsWith(str(error), self.path)
        with open(file, "wb") as writer:
          writer.write(contents[file])
    self.assertGreater(refused, 5)  # not every file is needed; how many there are varies
    chex.assert_trees_all_equal(checkpoints.restore(self.path, shapes(tree())), tree())

  def test_an_empty_folder_is_refused(self):
    os.mkdir(self.path)
    with self.assertRaisesRegex(InputError, f"{self.path}: not a readable checkpoint"):
      checkpoints.restore(self.path, shapes(tree()))


class FullDiskTest(absltest.TestCase):

  def test_what_was_there_stays_and_nothing_half_written(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    path = os.path.join(folder, "best")
    params = {"w": np.arange(5000, dtype=np.float32)}
    checkpoints.save(path, params)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
      resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limit[1]))
      with self.assertRaisesRegex(InputError, "best: cannot be saved .*needed: room to write"):
        checkpoints.save(path, {"w": np.random.RandomState(0).rand(5000).astype(np.float32)})
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, limit)
      signal.signal(signal.SIGXFSZ, handler)
    self.assertEqual(os.listdir(folder), ["best"])
    np.testing.assert_array_equal(checkpoints.restore(path, params)["w"], params["w"])


if __name__ == "__main__":
  absltest.main()
