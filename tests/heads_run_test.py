"""Every head in a whole model, and from a corpus to text: trained, evaluated, scored, sampled."""

import contextlib
import io
import os
import tempfile

import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from tests import oracle
from tests.training import texts

HEADS = {
    "mixture": {"head": "mixture", "tie_embeddings": True},
    "adaptive": {"head": "adaptive", "adaptive_cutoffs": (3, 6), "hidden_size": 16},
    "sampled_projected": {"head": "sampled", "sampled_tokens": 4, "head_projection": True,
                          "tie_embeddings": True},
}
over_all = parameterized.named_parameters((name, name) for name in HEADS)


class ModelTest(oracle.X64TestCase):

  @over_all
  def test_losses_are_those_of_the_logits_stepped_or_not(self, name):
    model = oracle.replaced(oracle.MODELS[0], **HEADS[name])
    lm, params, state, inputs, targets, prefix, _ = oracle.ready(model._replace(name=name))
    logits, _ = lm.unroll(params, None, inputs, state)
    log_p = np.asarray(jax.nn.log_softmax(logits))
    expected = -np.take_along_axis(log_p, targets[..., None], -1)[..., 0]
    loss, _ = lm.loss(params, None, inputs, targets, state, prefix)
    self.assert_close(loss.nats, np.where(prefix, expected, 0))
    for t in range(2):
      stepped, state = lm.step(params, None, inputs[t], state)
      self.assert_close(stepped, logits[t])
    self.assert_close(lm.readout(params, state), logits[t])

  def test_a_sample_is_for_training_alone(self):
    model = oracle.replaced(oracle.MODELS[0], **HEADS["sampled_projected"])
    lm, params, state, inputs, targets, *_ = oracle.ready(model)
    nats = [np.asarray(lm.loss(params, key, inputs, targets, state)[0].nats)
            for key in (None, *map(jax.random.key, (0, 0, 1)))]
    self.assert_same_bits(nats[1], nats[2])
    for n in (0, 3):
      self.assertGreater(np.abs(nats[1] - nats[n]).max(), 0.01)


class RunTest(parameterized.TestCase):

  @over_all
  def test_from_a_corpus_to_text(self, name):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    text = (" ".join(texts.WORDS) + "\n") * 60
    corpus = texts.write(folder, "corpus.txt", text)
    model = hklm.ModelConfig(**{"embedding_size": 6, "hidden_size": 12, **HEADS[name]})
    config = hklm.TrainConfig(model, hklm.TokenizerConfig("word"), batch_size=4, bptt=10, steps=60,
                              learning_rate=0.05)
    with contextlib.redirect_stderr(io.StringIO()):
      run = hklm.train(config, os.path.join(folder, "run"), [corpus])
    lm, params, tokenizer, *_ = run
    ids = tokenizer.encode(text[:300])
    metrics = hklm.evaluate(lm, params, ids, window=7)
    self.assertLess(metrics.perplexity, 0.5 * tokenizer.vocab_size)  # it has learned
    if name != "mixture":  # what follows asks every head for the same functions
      return
    rows = list(hklm.score(lm, params, tokenizer, text.splitlines()[:2]))
    self.assertLess(np.mean([row.surprisal_bits for row in rows]), 3)
    drawn = np.asarray(hklm.generate(lm, params, jax.random.key(0), 5))
    self.assertTrue(((drawn >= 0) & (drawn < tokenizer.vocab_size)).all())


if __name__ == "__main__":
  absltest.main()
