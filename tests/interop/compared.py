"""What hklm makes of a file of PyTorch's beside what PyTorch said."""

import glob
import os
import tempfile
from collections.abc import Mapping

import jax
import numpy as np
from absl.testing import parameterized

from experiments import import_torch
from hklm import run as runs
from tests.experiments import binaries

T = 5


class ComparedTestCase(parameterized.TestCase):

  def imported(self, folder: str) -> runs.Run:
    """The run made of `model.*`, and `vocabulary.*` where there is one."""
    (model,) = glob.glob(os.path.join(folder, "model.*"))
    found = glob.glob(os.path.join(folder, "vocabulary.*"))
    vocabulary = [f"--vocabulary={path}" for path in found]
    run_dir = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "run")
    done = binaries.here(import_torch, f"--checkpoint={model}", f"--run_dir={run_dir}", *vocabulary)
    self.assertNotEmpty(done.stdout)
    return runs.load_run(run_dir)

  def check(self, folder: str, expected: Mapping[str, np.ndarray]) -> runs.Run:
    """Logits of the ids, the second half with the state carried, are those expected."""
    wide = expected["logits"].dtype == np.float64
    with jax.enable_x64(wide):
      run = self.imported(folder)
      self.assertEqual(run.tokenizer.vocab_size, expected["logits"].shape[-1])
      ids = expected["ids"].astype(np.int32)
      state = run.lm.initial_state(run.params, ids.shape[1])
      for half in (slice(0, T), slice(T, 2 * T)):
        logits, state = run.lm.unroll(run.params, None, ids[half], state)
        self.assertEqual(logits.dtype, expected["logits"].dtype)
        np.testing.assert_allclose(logits, expected["logits"][half], rtol=1e-12 if wide else 1e-5,
                                   atol=1e-13 if wide else 1e-6)
    return run
