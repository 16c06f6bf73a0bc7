"""What is exported computes what the model computes, in a process that has jax and not hklm."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from jax import export

import hklm
from hklm import parameters
from hklm.config.model import CELLS
from hklm.data.characters import CharTokenizer
from hklm.errors import InputError
from hklm.interop import stablehlo
from tests import oracle
from tests.training import texts

ROOT = pathlib.Path(__file__).parents[2]
WIDE = {"vocab_size": 9, "embedding_size": 40, "hidden_size": 24}  # beyond `stack.WIDE` rows
PLAIN = hklm.ModelConfig(vocab_size=4, embedding_size=3, hidden_size=5, num_layers=2)

# Nothing of these can be imported after it.
BLOCKER = """
import sys
class Blocker:
  def find_spec(self, name, path=None, target=None):
    if name.partition(".")[0] in ("hklm", "haiku", "optax", "chex", "orbax", "safetensors"):
      raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
sys.path = [place for place in sys.path if place not in ("", %r)]
"""


def ready(config):
  lm = hklm.language_model(config)
  return lm, oracle.random_like(parameters.shapes(lm), scale=0.3)


class ExportedTest(parameterized.TestCase):

  @parameterized.parameters(
      ({"num_layers": 2, "embedding_size": 24, "tie_embeddings": True, "initial_state": "learned",
        "zoneout": 0.3, "output_dropout": 0.5}, 2e-6),
      ({"cell": "experiments.own_cell:mgu", "head": "adaptive", "adaptive_cutoffs": (3,)}, 2e-6),
      ({"cell": "qrnn", "dtype": "bfloat16"}, 0.05), ({"dtype": "float64"}, 1e-14))
  def test_the_numbers_of_the_model_at_any_size(self, changes, tolerance):
    self.addCleanup(jax.config.update, "jax_enable_x64", jax.config.jax_enable_x64)
    jax.config.update("jax_enable_x64", changes.get("dtype") == "float64")
    lm, params = ready(hklm.ModelConfig(**{**WIDE, **changes}))
    start, step, unroll = (jax.jit(export.deserialize(bytearray(its)).call)
                           for its in stablehlo.exported(lm).values())
    flat = {name: np.asarray(leaf) for name, leaf in parameters.flat(params).items()}

    def assert_close(found, needed):
      for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(needed), strict=True):
        self.assertEqual((one.shape, one.dtype), (other.shape, other.dtype))
        np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64),
                                   rtol=0, atol=tolerance)

    ids = np.random.RandomState(0).randint(WIDE["vocab_size"], size=[4, 3]).astype(np.int32)
    state = lm.initial_state(params, 3)
    logits, before = start(flat, ids[0])
    assert_close([logits, before], [lm.readout(params, state), state])
    needed = lm.unroll(params, None, ids, state)
    assert_close(unroll(flat, ids, before), needed)
    for n, now in enumerate(ids):
      logits, before = step(flat, now, before)
      assert_close(logits, needed[0][n])
    assert_close(before, needed[1])

  @parameterized.parameters(*CELLS)
  def test_every_cell_for_all_platforms_with_nothing_of_a_devices_own(self, cell):
    sizes = {"projection_size": 20} if cell == "projected_lstm" else {}
    lm = hklm.language_model(hklm.ModelConfig(**WIDE, cell=cell, **sizes))
    shapes = []
    for serialized in stablehlo.exported(lm).values():
      self.assertNotIn(b".py", serialized)  # nothing of this machine's paths
      its = export.deserialize(bytearray(serialized))
      self.assertEqual(its.platforms, ("cpu", "cuda", "tpu"))
      self.assertEqual(set(re.findall(r"custom_call @(\w+)", its.mlir_module())),
                       {"shape_assertion"})
      shapes.append(str(its.in_avals[len(parameters.described(lm))].shape))
    self.assertEqual(shapes, ["(b,)", "(b,)", "(t, b)"])

  def test_a_cell_that_needs_to_know_the_batch_size_is_refused(self):
    lm, _ = ready(hklm.ModelConfig(**WIDE, cell=f"{__name__}:picky"))
    with self.assertRaisesRegex(InputError, r"--cell=.*:picky cannot be exported \(.*; needed: a "
                                "cell that computes with a batch of any size"):
      stablehlo.exported(lm)


def picky(layer, size):
  """A cell that goes through the rows of its batch."""
  from experiments import own_cell

  class Picky(type(own_cell.mgu(layer, size))):

    def __call__(self, x, state):
      return super().__call__(jnp.stack([x[n] for n in range(x.shape[0])]), state)

  return Picky(size, name=f"picky_{layer}")


class FolderTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = os.path.join(self.folder, "functions")

  def save(self, path=None, params=None, **kwargs):
    lm, drawn = ready(PLAIN)
    stablehlo.save(path or self.path, lm, params or drawn, CharTokenizer("abcd"), **kwargs)
    return lm, drawn

  def test_the_pages_program_has_the_models_numbers_where_there_is_no_hklm(self):
    lm, params = self.save()
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    (program,) = re.findall(r'^```python\n("""Scores.*?)^```$', page, re.MULTILINE | re.DOTALL)
    code = (BLOCKER % str(ROOT) + f"exec(compile({program!r}, 'use_model.py', 'exec'))\n"
            "np.save('logits.npy', logits)\nprint(sorted(sys.modules))")
    done = subprocess.run([sys.executable, "-c", code, self.path, "abca"], cwd=self.folder,
                          capture_output=True, text=True, timeout=300)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertNotRegex(done.stdout, r"'(hklm|haiku|optax|chex|orbax|safetensors)['.]")
    ids = jnp.array([[0], [1], [2], [0]])
    state = lm.initial_state(params, 1)
    logits, _ = lm.unroll(params, None, ids, state)
    needed = np.concatenate([lm.readout(params, state)[None], logits])
    np.testing.assert_allclose(np.load(os.path.join(self.folder, "logits.npy")), needed, rtol=0,
                               atol=1e-6)
    bits, text, _ = done.stdout.splitlines()
    chances = jax.nn.log_softmax(needed)[np.arange(4), 0, ids[:, 0]] / np.log(2)
    self.assertAlmostEqual(float(bits.removesuffix(" bits")), -chances.sum(), delta=1e-3)
    likeliest = hklm.generate(lm, params, jax.random.key(0), 40, (0, 1, 2, 0), temperature=0.0)
    self.assertEqual(text, "abca" + CharTokenizer("abcd").decode(likeliest[:, 0].tolist()))

  def test_parameters_are_kept_exactly_in_every_dtype(self):
    for dtype in ("float32", "bfloat16"):
      lm = hklm.language_model(hklm.ModelConfig(vocab_size=4, hidden_size=5, embedding_size=3,
                                                dtype=dtype))
      params = oracle.random_like(parameters.shapes(lm))
      stablehlo.save(self.path, lm, params, CharTokenizer("abcd"), overwrite=True)
      with np.load(os.path.join(self.path, "params.npz"), allow_pickle=False) as file:
        for name, leaf in parameters.flat(params).items():
          np.testing.assert_array_equal(file[name].view(dtype), np.asarray(leaf))

  def test_what_is_there_stays_unless_it_is_an_export_that_may_go(self):
    self.save()
    self.assertCountEqual(os.listdir(self.path), ["start.stablehlo", "step.stablehlo",
                          "unroll.stablehlo", "params.npz", "tokenizer.json"])
    with self.assertRaisesRegex(InputError, "functions is there; give --overwrite to replace it"):
      self.save()
    self.save(overwrite=True)
    texts.write(self.path, "notes.txt", "mine")
    with self.assertRaisesRegex(InputError, "is there and is not what export wrote"):
      self.save(overwrite=True)
    self.assertLen(os.listdir(self.path), 6)

  def test_nothing_is_left_of_what_fails(self):
    _, params = ready(PLAIN)
    params["head"]["b"] = params["head"]["b"].at[0].set(np.inf)
    with self.assertRaisesRegex(InputError, "tensor head/b is not finite"):
      self.save(params=params)
    params["head"]["b"] = params["head"]["b"][1:]
    with self.assertRaisesRegex(InputError, "tensor head/b: found .*, needed"):
      self.save(params=params)
    file = texts.write(self.folder, "file", "text")
    with self.assertRaisesRegex(InputError, r"cannot be written "):
      self.save(os.path.join(file, "functions"))
    self.assertEqual(os.listdir(self.folder), ["file"])


if __name__ == "__main__":
  absltest.main()
