"""Costs of texts and of what goes on with a context, against NumPy and against tables by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.data import tokenizers, words
from hklm.errors import InputError
from hklm.inference import compare
from tests import oracle
from tests.inference import unigram

CHARS = tokenizers.build(hklm.TokenizerConfig("char"), ["abcdé \n"])


def model(vocab_size):
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=vocab_size, embedding_size=4, hidden_size=5, initial_state="learned"))
  return lm, oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=1.0)


def bits_of(truth, ids, start, first=None):
  """Of ids from `start` on, read one by one, in float64."""
  layers, found = truth.initial_state(), 0.0
  if first is not None:
    layers, _ = truth.read(first, layers)
  for place, token in enumerate(ids):
    if place >= start:
      found += oracle.nats(truth.readout(layers), token) / math.log(2)
    layers, _ = truth.read(token, layers)
  return found


class CostsTest(parameterized.TestCase):

  @parameterized.parameters("eol", "state")
  def test_sums_are_those_of_numpy_with_the_end_of_the_line(self, start):
    lm, params = model(CHARS.vocab_size)
    truth = oracle.NumpyModel(lm.config, params)
    texts = ["abba", "", "dé a cab", "abba"]
    found = compare.costs(lm, params, CHARS, texts, start)
    for text, cost in zip(texts, found, strict=True):
      ids = CHARS.encode(text + "\n").tolist()
      expected = bits_of(truth, ids, 0, CHARS.end_of_line if start == "eol" else None)
      np.testing.assert_allclose(cost.bits, expected, rtol=2e-5)
      self.assertEqual(cost.tokens, len(text) + 1)
    self.assertEqual(found[0], found[3])

  def test_zero_parameters_give_log_v_a_token_so_the_shorter_wins_and_equals_tie(self):
    lm, params = model(CHARS.vocab_size)
    zeros = jax.tree.map(jnp.zeros_like, params)
    long, short, other = compare.costs(lm, zeros, CHARS, ["abcd", "abc", "dé a"])
    np.testing.assert_allclose(long.bits, 5 * math.log2(7), rtol=1e-6)
    np.testing.assert_allclose(long.log_p, -5 * math.log(7), rtol=1e-6)
    self.assertEqual(compare.verdict(short.bits, long.bits), "good")
    self.assertEqual(compare.verdict(long.bits, short.bits), "bad")
    self.assertEqual(compare.verdict(long.bits, other.bits), "tie")
    self.assertEqual(compare.verdict(long.bits_per_token, short.bits_per_token), "tie")

  def test_by_hand_with_unknown_words(self):
    lm, params = unigram.model()
    found = compare.costs(lm, params, unigram.TOKENIZER, ["a b", "zebra a gnu", ""])
    np.testing.assert_allclose([cost.bits for cost in found], [8, 16, 5], rtol=1e-6)
    self.assertEqual([cost.tokens for cost in found], [3, 4, 1])
    self.assertEqual([cost.unknown for cost in found], [0, 2, 0])

  def test_a_tokenizer_without_ends_of_lines(self):
    tokenizer = tokenizers.build(hklm.TokenizerConfig("char"), ["abcd"])
    lm, params = model(4)
    found = compare.costs(lm, params, tokenizer, ["", "ab"], "state")
    self.assertEqual([cost.tokens for cost in found], [0, 2])
    self.assertEqual((found[0].bits, found[0].bits_per_token), (0.0, 0.0))
    with self.assertRaisesRegex(InputError, "knows no end of line"):
      compare.costs(lm, params, tokenizer, ["ab"])

  def test_no_texts_and_no_start(self):
    lm, params = unigram.model()
    self.assertEqual(compare.costs(lm, params, unigram.TOKENIZER, []), [])
    for function, things in ((compare.costs, ["a"]), (compare.continuations, [("a", "a")])):
      with self.assertRaisesRegex(InputError, "--start=none leaves out each text's first token"):
        function(lm, params, unigram.TOKENIZER, things, "none")


class ContinuationsTest(parameterized.TestCase):

  @parameterized.parameters("eol", "state")
  def test_sums_are_those_of_numpy_after_the_context(self, start):
    lm, params = model(CHARS.vocab_size)
    truth = oracle.NumpyModel(lm.config, params)
    pairs = [("ab", "ba"), ("", "dé"), ("abb", "a"), ("é" * 9, " cab")]
    for (context, candidate), cost in zip(
        pairs, compare.continuations(lm, params, CHARS, pairs, start), strict=True):
      ids = CHARS.encode(context + candidate).tolist()
      expected = bits_of(truth, ids, len(context),
                         CHARS.end_of_line if start == "eol" else None)
      np.testing.assert_allclose(cost.bits, expected, rtol=2e-5)
      self.assertEqual(cost.tokens, len(candidate))

  def test_all_characters_together_have_the_probability_of_no_end(self):
    lm, params = model(CHARS.vocab_size)
    truth = oracle.NumpyModel(lm.config, params)
    context = "bad é"
    found = compare.continuations(lm, params, CHARS, [(context, other) for other in "abcdé "])
    end = bits_of(truth, CHARS.encode(context + "\n").tolist(), len(context), CHARS.end_of_line)
    np.testing.assert_allclose(sum(2 ** -cost.bits for cost in found), 1 - 2 ** -end, rtol=1e-5)

  @parameterized.parameters(
      ("lo", "w", 1),  # one token, of both; and below low| lowe|r
      ("low", " lower", 2), ("low ", "lower", 2), ("low low", "er", 2),
      ("low", "é", 2), ("é", "é", 2), ("", "é", 2), ("é", "low", 1),  # a token for each byte of é
  )
  def test_pieces_at_the_border_count_with_the_candidate(self, context, candidate, tokens):
    tokenizer = tokenizers.build(hklm.TokenizerConfig("bpe", vocab_size=260), ["low lower lowest"])
    lm, params = model(tokenizer.vocab_size)
    zeros = jax.tree.map(jnp.zeros_like, params)
    (cost,) = compare.continuations(lm, zeros, tokenizer, [(context, candidate)])
    spelled = [tokenizer.symbol(token) for token in tokenizer.encode(context + candidate)]
    self.assertEqual(cost.tokens, tokens, spelled)
    np.testing.assert_allclose(cost.bits, tokens * math.log2(260), rtol=1e-6)

  def test_bytes(self):
    tokenizer = tokenizers.build(hklm.TokenizerConfig("byte"), [])
    lm, params = model(256)
    found = compare.continuations(lm, params, tokenizer, [("é", "é"), ("aé", "né ")])
    self.assertEqual([cost.tokens for cost in found], [2, 4])

  def test_words_by_hand(self):
    lm, params = unigram.model()
    pairs = [("a b", " c"), ("a b ", "c d"), ("a", "b"), (" ", "a"), ("a", " zebra")]
    found = compare.continuations(lm, params, unigram.TOKENIZER, pairs)
    np.testing.assert_allclose([cost.bits for cost in found], [3, 7, 5, 1, 5], rtol=1e-6)
    self.assertEqual([cost.unknown for cost in found], [0, 0, 1, 0, 1])  # "ab" is no word

  def test_a_candidate_that_is_no_token(self):
    lm, params = unigram.model()
    with self.assertRaisesRegex(InputError, "the candidate '  ' after 'a' is no token of its own"):
      compare.continuations(lm, params, unigram.TOKENIZER, [("a", " b"), ("a", "  ")])

  def test_a_word_tokenizer_without_ends_of_lines(self):
    tokenizer = words.WordTokenizer(("a", "b"), end_of_line_symbol="")
    lm, params = model(3)
    (cost,) = compare.continuations(lm, params, tokenizer, [("a", " b a")], "state")
    self.assertEqual(cost.tokens, 2)


class OrderTest(parameterized.TestCase):

  def test_ranks_by_hand(self):
    self.assertEqual(compare.ranks([8.0, 2.0, 8.000001, 5.0]), [3, 1, 3, 2])
    self.assertEqual(compare.ranks([1.0]), [1])
    self.assertEqual(compare.ranks([]), [])

  def test_rounding_is_a_tie_and_more_is_not(self):
    self.assertEqual(compare.verdict(100.0, 100.00009), "tie")
    self.assertEqual(compare.verdict(100.0, 100.0002), "good")
    self.assertEqual(compare.verdict(100.0002, 100.0), "bad")
    self.assertEqual(compare.verdict(0.0, 0.0), "tie")


if __name__ == "__main__":
  absltest.main()
