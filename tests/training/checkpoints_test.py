"""Arrays come back from disk bit for bit, or not at all; the newest that is whole is found."""

import contextlib
import json
import os
import pathlib
import resource
import shutil
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
          "a/b": {".x['y'][0]": np.arange(32, dtype=np.uint8)},
          "step": jnp.int32(7)}


def shapes(of):
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), of)


class CheckpointsTestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "checkpoints")

  def write(self, step=3, scale=1.0, **about):
    return checkpoints.write(self.folder, "step", step, {"all": tree(scale)}, about)


class WriteTest(CheckpointsTestCase):

  def test_all_comes_back_bit_for_bit(self):
    for step, scale in ((3, 1.0), (4, 1e-40), (4, 3.0)):  # the last replaces the one before
      path = self.write(step, scale)
      self.assertEqual(path, f"{self.folder}/step-{step}")
      restored = checkpoints.restore(path, "all", shapes(tree()))
      chex.assert_trees_all_equal(restored, tree(scale), strict=False)
      chex.assert_trees_all_equal_shapes_and_dtypes(restored, tree())
    self.assertEqual(sorted(os.listdir(self.folder)), ["step-3", "step-4"])  # no temporaries

  def test_a_lean_one_is_in_pieces_and_comes_back_the_same(self):
    array = np.random.RandomState(0).normal(size=[5, checkpoints.PIECE // 16])  # 2.5 pieces
    sizes = []
    for step, lean in enumerate((False, True)):
      path = checkpoints.write(self.folder, "step", step, {"all": {"w": array}}, {}, lean)
      sizes.append(max(its["bytes"] for its in checkpoints.verify(path)["files"].values()))
      with jax.enable_x64(True):
        restored = checkpoints.restore(path, "all", shapes({"w": array}))
      chex.assert_trees_all_equal(restored, {"w": array}, strict=False)
    self.assertGreater(sizes[0], array.nbytes / 2)
    self.assertLess(sizes[1], 1.1 * checkpoints.PIECE)

  def test_what_it_says_of_itself(self):
    manifest = checkpoints.verify(self.write(7, best=0.1, of="text"))
    self.assertEqual((manifest["step"], manifest["best"], manifest["of"]), (7, 0.1, "text"))
    self.assertGreater(len(manifest["files"]), 3)

  def test_relative_path(self):
    self.enter_context(contextlib.chdir(os.path.dirname(self.folder)))
    checkpoints.write("checkpoints", "step", 3, {"all": tree()}, {})
    restored = checkpoints.restore("checkpoints/step-3", "all", shapes(tree()))
    chex.assert_trees_all_equal(restored, tree())
    self.assertEqual(checkpoints.newest("checkpoints", "step"), ("checkpoints/step-3", {}))

  def test_a_run_directory_that_is_gone_is_not_made_again(self):
    shutil.rmtree(os.path.dirname(self.folder))
    with self.assertRaisesRegex(InputError, "step-3: cannot be saved .*needed: the run directory"):
      self.write()
    self.assertFalse(os.path.exists(os.path.dirname(self.folder)))
    os.mkdir(os.path.dirname(self.folder))  # for the clean-up


class RestoreTest(CheckpointsTestCase):

  @parameterized.named_parameters(
      ("shape", lambda t: t["lstm_0"].update(w=jnp.zeros([3, 3])),
       r"array \['lstm_0'\]\['w'\]: found \(\(3, 2\), 'float32'\), needed \(\(3, 3\)"),
      ("dtype", lambda t: t["lstm_0"].update(b=jnp.zeros([4])), r"\['b'\]: found .*bfloat16"),
      ("more", lambda t: t.update(head=jnp.zeros([1])), r"\['head'\]: found nothing"),
      ("less", lambda t: t.pop("lstm_0"), r"\['lstm_0'\]\['b'\]: .* needed nothing"))
  def test_another_structure_is_refused_by_name(self, change, message):
    path = self.write()
    target = shapes(tree())
    change(target)
    with self.assertRaisesRegex(InputError, message):
      checkpoints.restore(path, "all", target)

  def test_nothing_there(self):
    with self.assertRaisesRegex(InputError, "step-3/all: not readable"):
      checkpoints.restore(f"{self.folder}/step-3", "all", shapes(tree()))


def _flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


DAMAGE = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: os.truncate(path, 0),
    "flipped": _flip,
    "missing": os.remove,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
}


class VerifyTest(CheckpointsTestCase):

  @parameterized.parameters(*DAMAGE)
  def test_damage_of_any_file_is_found_and_the_older_one_taken(self, damage):
    older, newer = self.write(3), self.write(20)
    files = [path for path in pathlib.Path(newer).rglob("*") if path.is_file()]
    self.assertGreater(len(files), 4)
    for file in files:
      content = file.read_bytes()
      if not content and damage in ("truncated", "emptied", "flipped"):
        continue
      if file.name == checkpoints.MANIFEST and damage == "longer":
        file.write_bytes(content + b" ")  # which changes nothing of what it says
        checkpoints.verify(newer)
      DAMAGE[damage](file)
      with self.assertRaisesRegex(InputError, "step-20: .*needed: a checkpoint as train wrote"):
        checkpoints.verify(newer)
      found, faults = checkpoints.newest(self.folder, "step")
      self.assertEqual((found, list(faults)), (older, [newer]))
      self.assertIn(file.name, faults[newer])
      file.write_bytes(content)
    self.assertEqual(checkpoints.newest(self.folder, "step"), (newer, {}))

  def test_every_bit_of_a_manifest_counts(self):
    path = self.write(best=0.25, run="ab12", unlogged_nats=3.5)
    manifest = pathlib.Path(path, checkpoints.MANIFEST)
    content = manifest.read_bytes()
    said = json.loads(content)
    for at in range(0, len(content), 3):
      manifest.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])
      try:
        changed = json.loads(manifest.read_bytes()) != said
      except ValueError:
        changed = True
      if changed:  # not so where white space became another
        with self.assertRaisesRegex(InputError, "manifest.json cannot be read"):
          checkpoints.manifest(path)

  def test_one_of_another_run_is_skipped(self):
    older, newer = self.write(3, run="mine"), self.write(4, run="theirs")
    found, faults = checkpoints.newest(self.folder, "step", "mine")
    self.assertEqual((found, list(faults)), (older, [newer]))
    self.assertIn("another run's, or config.json has changed", faults[newer])

  @parameterized.parameters(
      "[]", "{}", '{"files": {}}', '{"files": {}, "step": 4}', '{"files": [], "step": 3}',
      '{"files": {"x": 1}, "step": 3}', '{"files": {"x": {"bytes": 1}}, "step": 3}', "3", "\x00")
  def test_a_manifest_that_is_none(self, text):
    path = self.write()
    pathlib.Path(path, checkpoints.MANIFEST).write_text(text)
    with self.assertRaisesRegex(InputError, "manifest.json (cannot be read|is of update 4)"):
      checkpoints.verify(path)

  def test_folders_that_are_no_checkpoints(self):
    path = self.write(3)
    for name in ("step-9", "step-100"):
      os.mkdir(os.path.join(self.folder, name))
    for name in ("best-7", "step-", "step-x", ".unfinished-step-8", "damaged-0-step-12"):
      shutil.copytree(path, os.path.join(self.folder, name))
    shutil.copytree(path, os.path.join(self.folder, "step-30"))  # of another update
    found, faults = checkpoints.newest(self.folder, "step")
    self.assertEqual(found, path)
    self.assertEqual([os.path.basename(name) for name in faults], ["step-100", "step-30", "step-9"])
    self.assertIn("manifest.json is of update 3", faults[f"{self.folder}/step-30"])
    self.assertIn("manifest.json is missing", faults[f"{self.folder}/step-9"])

  def test_no_folder(self):
    self.assertEqual(checkpoints.newest(self.folder, "step"), (None, {}))


class RemoveTest(CheckpointsTestCase):

  def test_a_removed_one_is_gone_and_what_was_unfinished_is_swept(self):
    checkpoints.remove(self.write(3))
    self.assertEqual(os.listdir(self.folder), [])
    path = self.write(4)
    shutil.copytree(path, os.path.join(self.folder, ".unfinished-step-5"))
    checkpoints.sweep(self.folder)
    self.assertEqual(os.listdir(self.folder), ["step-4"])

  def test_a_damaged_one_is_kept_under_another_name(self):
    for number in (0, 1):
      aside = checkpoints.set_aside(self.write(4))
      self.assertEqual(os.path.basename(aside), f"damaged-{number}-step-4")
    self.assertEqual(checkpoints.named(self.folder, "step"), [])


class FullDiskTest(CheckpointsTestCase):

  def test_what_was_there_stays_and_nothing_half_written(self):
    params = {"w": np.arange(5000, dtype=np.float32)}
    checkpoints.write(self.folder, "step", 1, {"all": params}, {})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
      resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limit[1]))
      for step in (1, 2):
        with self.assertRaisesRegex(InputError, f"step-{step}: cannot be saved .*and room to"):
          checkpoints.write(self.folder, "step", step, {
              "all": {"w": np.random.RandomState(0).rand(5000).astype(np.float32)}}, {})
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, limit)
      signal.signal(signal.SIGXFSZ, handler)
    self.assertEqual(os.listdir(self.folder), ["step-1"])
    path, faults = checkpoints.newest(self.folder, "step")
    self.assertEqual(faults, {})
    np.testing.assert_array_equal(checkpoints.restore(path, "all", params)["w"], params["w"])


if __name__ == "__main__":
  absltest.main()
