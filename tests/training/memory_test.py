"""What a run will need, beside what the compiled update takes; nothing is run."""

import contextlib
import dataclasses
import io
import os
import tempfile
from unittest import mock

import jax
import jax.numpy as jnp
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.training import memory, optimizers, step
from tests import oracle
from tests.inference import compilations
from tests.training import texts

GIB = 2**30


def config(V, E, H, layers, B, T, optimizer="sgd", **changes):
  return TrainConfig(hklm.ModelConfig(V, E, H, layers, **changes), batch_size=B, bptt=T,
                     optimizer=optimizer, schedule="constant")


def compiled_bytes(lm, config):
  """What XLA sets aside for the update: arguments, outputs and temporaries, each counted once."""
  T, B = config.bptt, config.batch_size
  optimizer = optimizers.optimizer(config, 10, lambda epochs: epochs)
  state = jax.eval_shape(lambda: step.init(lm, optimizer, B, 0, config))
  compiled = step.make_update(lm, optimizer, config).lower(
      state, jax.ShapeDtypeStruct([T + 1, B], jnp.int32), jax.ShapeDtypeStruct([B], bool)).compile()
  sizes = compiled.memory_analysis()
  return (sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
          - sizes.alias_size_in_bytes)


class EstimateTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ("char", config(65, 128, 256, 1, 64, 100, "adam")),
      ("scanned", config(65, 128, 256, 1, 64, 100, lstm_impl="scan")),
      ("words", config(10_000, 200, 200, 2, 20, 35, output_dropout=0.5)),
      ("many_words", config(50_000, 64, 128, 1, 8, 35, "momentum")),
      ("logits_in_pieces", config(50_000, 128, 128, 1, 32, 35)),
      ("deep", config(100, 64, 128, 6, 32, 64, "adam", layer_dropout=0.2, dropout_per_step=True)),
      ("mixture", config(10_000, 64, 128, 1, 12, 35, tie_embeddings=True, head="mixture",
                         mixture_components=15)),
      ("tied", config(20_000, 256, 256, 1, 16, 35, "adam", tie_embeddings=True)))
  def test_it_is_about_what_the_compiled_update_takes(self, settings):
    lm = hklm.language_model(settings.model)
    ratio = memory.estimate(lm, settings) / compiled_bytes(lm, settings)
    self.assertBetween(ratio, 1 / 1.5, 1.5)

  @parameterized.parameters(
      {"accumulate": 4}, {"remat_steps": 10}, {"remat_steps": 7, "accumulate": 2},
      {"average": "polyak"}, {"on_nonfinite": "skip"})
  def test_of_ways_to_need_less_or_more(self, **changes):
    for settings in (config(65, 32, 64, 1, 64, 100, "adam"), config(1000, 256, 256, 1, 8, 35)):
      settings = dataclasses.replace(settings, **changes)
      lm = hklm.language_model(settings.model)
      ratio = memory.estimate(lm, settings) / compiled_bytes(lm, settings)
      self.assertBetween(ratio, 1 / 1.5, 1.5)

  def test_bfloat16_activations_are_half_as_large(self):
    settings = config(10, 16, 256, 2, 32, 100)
    lm = hklm.language_model(settings.model)
    whole, half = (memory.estimate(lm, dataclasses.replace(settings, compute_dtype=dtype))
                   for dtype in ("", "bfloat16"))
    params = 4 * sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(
        lm.init, jax.random.key(0))))
    # Besides parameters and their gradient; the parameters are there in bfloat16 as well.
    self.assertBetween((half - 2.5 * params) / (whole - 2 * params), 0.5, 0.52)

  def test_of_an_own_cell_too(self):
    settings = config(100, 64, 128, 2, 32, 64)
    lm = hklm.language_model(settings.model, oracle.gru)
    ratio = memory.estimate(lm, settings) / compiled_bytes(lm, settings)
    self.assertBetween(ratio, 1 / 1.5, 1.5)

  def test_the_optimisers_state_is_in_it(self):
    settings = config(1000, 32, 32, 1, 4, 4)
    lm = hklm.language_model(settings.model)
    params = 4 * (1000 * 32 + 1000 * 32 + 1000 + 128 * 64 + 128)
    sgd, momentum, adam = (
        memory.estimate(lm, dataclasses.replace(settings, optimizer=name))
        for name in ("sgd", "momentum", "adam"))
    self.assertEqual(momentum - sgd, params)
    self.assertBetween(adam - momentum, params, params + 8)  # and a count

  @parameterized.parameters({"batch_size": 64}, {"bptt": 200})
  def test_activations_double_with_the_window(self, **doubled):
    settings = config(10, 16, 256, 2, 32, 100)
    lm = hklm.language_model(settings.model)
    once = memory.estimate(lm, settings)
    twice = memory.estimate(lm, dataclasses.replace(settings, **doubled))
    gates = 4 * 100 * 32 * 4 * 256 * 2
    self.assertBetween(twice - once, gates, 4 * gates)

  def test_parameters_of_more_words_are_in_it_twice_and_logits_once(self):
    few, many = (config(V, 4, 4, 1, 50, 20) for V in (5000, 10_000))
    more = (memory.estimate(hklm.language_model(many.model), many)
            - memory.estimate(hklm.language_model(few.model), few))
    params = 4 * 5000 * (4 + 4 + 1)  # embedding, output matrix, bias
    logits = 4 * 20 * 50 * 5000
    # Parameters with their gradient, but for the embedding's, which comes when the logits are gone.
    self.assertBetween(more, params + logits, 2 * params + logits)

  def test_nothing_is_compiled_or_allocated(self):
    settings = config(2**20, 2**14, 2**14, 4, 2**10, 2**10)  # far more than any machine has
    lm = hklm.language_model(settings.model)
    with compilations.counted() as names:
      self.assertGreater(memory.estimate(lm, settings), 1000 * GIB)
    self.assertEmpty(names)

  def test_a_warm_up_or_a_schedule_is_no_matter(self):
    settings = config(50, 8, 8, 1, 4, 4)
    lm = hklm.language_model(settings.model)
    warm = dataclasses.replace(settings, warmup=1000, schedule="cosine")
    self.assertEqual(memory.estimate(lm, warm), memory.estimate(lm, settings))


class NoteTest(parameterized.TestCase):

  @parameterized.parameters(
      (GIB - 1, 2 * GIB, False), (GIB, 100 * GIB, True), (GIB - 1, 2 * GIB - 2, True),
      (GIB - 1, None, False), (GIB, None, True), (10, 20, True), (10, 21, False))
  def test_what_is_large_is_said(self, needed, there, said):
    self.assertEqual(bool(memory.note(needed, there)), said)

  @parameterized.parameters((2 * GIB, 3 * GIB, False), (3 * GIB, 3 * GIB, True),
                            (2 * GIB, None, False))
  def test_flags_are_named_where_it_may_not_fit(self, needed, there, named):
    self.assertEqual("lower --batch_size" in memory.note(needed, there), named)

  def test_of_this_machine(self):
    with open("/proc/meminfo", encoding="ascii") as file:
      total = int(file.readline().split()[1]) * 1024  # kB
    self.assertAlmostEqual(memory.available() / total, 1, places=2)

  def test_training_says_it(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    corpus = texts.write(folder, "corpus", texts.sentences(300))
    settings = dataclasses.replace(config(0, 4, 4, 1, 2, 5), steps=1)
    for large, count in ((1, 1), (GIB, 0)):
      with contextlib.redirect_stderr(io.StringIO()) as said, \
          mock.patch.object(memory, "LARGE", large):
        hklm.train(settings, os.path.join(folder, "run"), [corpus], overwrite=True)
      self.assertEqual(said.getvalue().count(
          "memory: about 0.0 GiB for parameters, optimiser, activations and logits ("), count)


if __name__ == "__main__":
  absltest.main()
