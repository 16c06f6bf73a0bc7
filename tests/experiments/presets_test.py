"""Presets: each describes the model it names, counted exactly."""

import pathlib
import re

import jax
from absl import flags as absl_flags
from absl.testing import absltest, flagsaver

import hklm
from experiments import flags

PRESETS = pathlib.Path(flags.__file__).parent / "presets"

# Vocabulary size and parameter count. For torch-rnn, from the layers' shapes:
# 65*64 + 4*128*(64 + 128) + 4*128 + 4*128*(128 + 128) + 4*128 + 65*128 + 65.
COUNTS = {"torch_rnn.flags": (65, 242_945)}


class PresetsTest(absltest.TestCase):

  def test_every_preset_is_counted(self):
    self.assertSameElements(COUNTS, [path.name for path in PRESETS.iterdir()])

  def test_parameter_counts(self):
    for name, (vocab_size, count) in COUNTS.items():
      with self.subTest(name), flagsaver.flagsaver():
        absl_flags.FLAGS(["train", f"--flagfile={PRESETS / name}"])
        model = flags.train_config().model
        lm = hklm.language_model(
            hklm.ModelConfig(**{f: getattr(model, f) for f in flags.MODEL}, vocab_size=vocab_size))
        shapes = jax.eval_shape(lm.init, jax.random.key(0))
        self.assertEqual(sum(leaf.size for leaf in jax.tree.leaves(shapes)), count)
        stated = re.search(r"Parameters: ([\d,]+)\.", (PRESETS / name).read_text())
        self.assertEqual(int(stated[1].replace(",", "")), count)


if __name__ == "__main__":
  absltest.main()
