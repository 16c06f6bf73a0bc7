"""Saving while training goes on: what is kept, what is copied, and that failures are heard."""

import os
import tempfile
import threading
from unittest import mock

import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.errors import InputError
from hklm.training import checkpoints, saver

ONE = {"params": {"w": np.ones(3, np.float32)}}


class SaverTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "checkpoints")

  def listing(self):
    return sorted(os.listdir(self.folder))

  def test_the_newest_are_kept_and_the_best_that_they_name(self):
    saves = saver.Saver(self.folder, keep=2)
    best = 0
    for step in range(10, 110, 10):
      if step in (30, 50, 80):
        best = step
        saves.save(saver.BEST, step, ONE, {})
      saves.save(saver.STEP, step, ONE, {"best_step": best})
      saves.wait()
      if step == 20:
        self.assertEqual(self.listing(), ["step-10", "step-20"])
      if step == 80:  # where step-70 would go on from
        self.assertEqual(self.listing(), ["best-50", "best-80", "step-70", "step-80"])
    self.assertEqual(self.listing(), ["best-80", "step-100", "step-90"])

  def test_a_best_one_stays_until_the_states_that_name_it_are_gone(self):
    saves = saver.Saver(self.folder, keep=1)
    for name, step, about in ((saver.BEST, 5, {}), (saver.STEP, 6, {"best_step": 5}),
                              (saver.BEST, 7, {}), (saver.BEST, 8, {})):
      saves.save(name, step, ONE, about)
    saves.wait()
    self.assertEqual(self.listing(), ["best-5", "best-8", "step-6"])
    saves.save(saver.STEP, 9, ONE, {"best_step": 8})
    saves.wait()
    self.assertEqual(self.listing(), ["best-8", "step-9"])

  def test_an_older_one_that_is_damaged_ends_no_run(self):
    saves = saver.Saver(self.folder, keep=3)
    for step in (2, 4, 6):
      saves.save(saver.STEP, step, ONE, {"best_step": 0})
      saves.wait()
    os.truncate(os.path.join(self.folder, "step-4", "manifest.json"), 1)
    saves.save(saver.STEP, 8, ONE, {"best_step": 0})
    saves.wait()
    self.assertEqual(self.listing(), ["step-4", "step-6", "step-8"])

  def test_saving_goes_on_in_the_background_from_a_copy(self):
    may_write, write = threading.Event(), checkpoints.write

    def slowly(*args):
      may_write.wait(60)
      return write(*args)

    array = np.arange(4, dtype=np.float32)
    with mock.patch.object(checkpoints, "write", slowly):
      saves = saver.Saver(self.folder, keep=1)
      saves.save(saver.STEP, 1, {"params": {"w": array}}, {})  # returns before it is written
      array[:] = 0
      self.assertFalse(os.path.exists(self.folder))
      may_write.set()
      saves.wait()
    restored = checkpoints.restore(f"{self.folder}/step-1", "params", {"w": array})
    np.testing.assert_array_equal(restored["w"], [0, 1, 2, 3])

  @parameterized.parameters("check", "wait", "save")
  def test_a_failure_is_raised_by_whatever_comes_next(self, call):
    saves = saver.Saver(self.folder, keep=1)
    with mock.patch.object(checkpoints, "write", side_effect=InputError("disk full")):
      saves.save(saver.STEP, 1, ONE, {})
      while threading.active_count() > 1 and saves._thread.is_alive():
        pass
      with self.assertRaisesRegex(InputError, "disk full"):
        saves.save(saver.STEP, 2, ONE, {}) if call == "save" else getattr(saves, call)()
    self.assertFalse(os.path.exists(self.folder))

  @parameterized.parameters(np.nan, np.inf)
  def test_what_is_not_finite_is_not_saved(self, value):
    saves = saver.Saver(self.folder, keep=1)
    saves.save(saver.STEP, 1, ONE, {})
    with self.assertRaisesRegex(InputError, r"^step-2/params: array \['w'\] is not finite"):
      saves.save(saver.STEP, 2, {"params": {"w": jnp.array([1, value], jnp.bfloat16)}}, {})
    saves.wait()
    self.assertEqual(self.listing(), ["step-1"])


if __name__ == "__main__":
  absltest.main()
