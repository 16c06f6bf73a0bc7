"""Rematerialisation over time: the same gradient from chunks of a window, in less memory."""

import dataclasses
import functools

import jax
from absl.testing import absltest, parameterized

import hklm
from hklm.config import TrainConfig
from hklm.training import gradients
from tests import oracle
from tests.training import updates

T, B, V = 7, 4, 5
WINDOWS, RESETS = updates.windows(2, T, B, V), updates.resets(2, B)
PLAIN = hklm.ModelConfig(vocab_size=V, embedding_size=3, hidden_size=4, num_layers=2,
                         initial_state="learned", dtype="float64")
DROPPING = {"input_dropout": 0.3, "layer_dropout": 0.4, "output_dropout": 0.5}
CASES = {"plain": ({}, None), "dropping": (DROPPING, None),
         "scanned": ({"lstm_impl": "scan", **DROPPING}, None),
         "own_cell": ({"initial_state": "zeros"}, oracle.own_cell)}


def model(**changes):
  return dataclasses.replace(PLAIN, **changes)


@functools.cache
def trained(case, remat_steps, accumulate=1):
  changes, cell = CASES[case]
  config = TrainConfig(batch_size=B, remat_steps=remat_steps, accumulate=accumulate)
  return updates.run(model(**changes), updates.sgd(0.5, clip=0.1), config, WINDOWS, RESETS, cell)


class EqualityTest(oracle.X64TestCase):

  # Chunks of one step; with a shorter last one; of even length; the window; more than that.
  @parameterized.parameters(
      ("plain", 3), ("dropping", 1), ("dropping", 3), ("dropping", 7), ("dropping", 9),
      ("scanned", 2), ("own_cell", 3))
  def test_updates_are_those_without(self, case, remat_steps):
    self.assert_close(trained(case, remat_steps), trained(case, 0))

  def test_together_with_parts_of_the_batch(self):
    self.assert_close(trained("dropping", 3, accumulate=2), trained("dropping", 0, accumulate=2))

  @parameterized.parameters((3, [3, 3, 1]), (4, [4, 3]))
  def test_masks_per_step_are_drawn_anew_for_each_chunk(self, remat_steps, lengths):
    lm = hklm.language_model(model(dropout_per_step=True, **DROPPING))
    params = oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)))
    key, (window, reset) = jax.random.key(5), (WINDOWS[0], RESETS[0])
    carried = lm.initial_state(params, B)

    def chunk_by_chunk(params):
      state, nats, begin = lm.initial_state(params, B), 0.0, 0
      for n, length in enumerate(lengths):
        part = slice(begin, begin + length)
        loss, state = lm.loss(params, jax.random.fold_in(key, n), window[:-1][part],
                              window[1:][part], state)
        nats, begin = nats + loss.nats.sum(), begin + length
      return nats / (T * B), (nats, state)

    (_, (nats, state)), gradient = jax.value_and_grad(chunk_by_chunk, has_aux=True)(params)
    chunked = jax.jit(gradients.make_gradient(lm, TrainConfig(remat_steps=remat_steps)))
    self.assert_close(chunked(params, key, window, reset, carried), (gradient, nats, state))


class MemoryTest(parameterized.TestCase):

  def bytes_of(self, T, **changes):
    config = hklm.ModelConfig(vocab_size=10, embedding_size=8, hidden_size=32)
    return updates.temporaries(config, TrainConfig(**changes), T, 32)

  def test_activations_of_a_chunk_alone_are_there_at_a_time(self):
    self.assertLess(self.bytes_of(256, remat_steps=16), 0.2 * self.bytes_of(256))

  def test_each_further_chunk_keeps_a_state(self):
    once, twice = (self.bytes_of(T, remat_steps=16) for T in (256, 512))
    state = 4 * 32 * 32 * 3  # h, c and the output, float32 [B, H] each
    self.assertLess(twice - once, 2 * 16 * state)


if __name__ == "__main__":
  absltest.main()
