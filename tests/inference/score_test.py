"""A row a token: each line by itself, nothing missing, nothing twice."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.data import tokenizers
from hklm.errors import InputError
from tests import oracle
from tests.inference import compilations

ALPHABET = " abcdé"
TOKENIZER = tokenizers.build(hklm.TokenizerConfig("char"), [ALPHABET])


@functools.cache
def model(vocab_size=6):
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=vocab_size, embedding_size=4, hidden_size=5, num_layers=2,
      initial_state="learned", output_dropout=0.5))
  return lm, oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=1.0)


def some_lines(count, longest=60):
  draw = np.random.RandomState(0)
  return ["".join(draw.choice(list(ALPHABET), draw.randint(1, longest + 1)))
          for _ in range(count)]


def of_line(rows, line):
  return [row for row in rows if row.line == line]


class ScoreTest(parameterized.TestCase):

  def test_surprisals_are_those_of_numpy_from_the_initial_state(self):
    lm, params = model()
    truth = oracle.NumpyModel(lm.config, params)
    lines = some_lines(5)
    rows = hklm.score(lm, params, TOKENIZER, lines)
    for n, line in enumerate(lines):
      layers, expected = truth.initial_state(), []
      for token in TOKENIZER.encode(line):
        expected.append(oracle.nats(truth.readout(layers), token) / math.log(2))
        layers, _ = truth.read(token, layers)
      np.testing.assert_allclose([row.surprisal_bits for row in of_line(rows, n)], expected,
                                 rtol=2e-5)

  def test_sum_is_that_of_evaluate_and_the_first_token(self):
    lm, params = model()
    (line,) = some_lines(1, longest=300)
    first, *others = (row.surprisal_bits for row in hklm.score(lm, params, TOKENIZER, [line]))
    metrics = hklm.evaluate(lm, params, TOKENIZER.encode(line))
    np.testing.assert_allclose(sum(others) * math.log(2), metrics.nats, rtol=1e-6)
    start = jax.nn.log_softmax(lm.readout(params, lm.initial_state(params, 1)))[0]
    np.testing.assert_allclose(first, -start[TOKENIZER.encode(line)[0]] / math.log(2), rtol=1e-5)

  def test_a_line_is_scored_the_same_alone_and_among_others(self):
    lm, params = model()
    lines = some_lines(40)  # several groups
    together = hklm.score(lm, params, TOKENIZER, lines)
    for n in (0, 17, 39):
      alone = hklm.score(lm, params, TOKENIZER, [lines[n]])
      np.testing.assert_allclose([row.surprisal_bits for row in of_line(together, n)],
                                 [row.surprisal_bits for row in alone], rtol=1e-5)

  def test_rows_are_in_order_and_joined_offsets_give_the_text_back(self):
    lm, params = model()
    lines = ["", *some_lines(20), "", "é", ""]
    rows = hklm.score(lm, params, TOKENIZER, lines)
    self.assertEqual([(row.line, row.index) for row in rows],
                     [(n, i) for n, line in enumerate(lines) for i in range(len(line))])
    for n, line in enumerate(lines):
      self.assertEqual("".join(line[row.start:row.end] for row in of_line(rows, n)), line)
    self.assertEqual("".join(row.token for row in rows), "".join(lines))

  def test_no_lines_and_empty_lines_have_no_rows(self):
    lm, params = model()
    self.assertEqual(hklm.score(lm, params, TOKENIZER, []), [])
    self.assertEqual(hklm.score(lm, params, TOKENIZER, ["", ""]), [])

  def test_zero_parameters_give_log_v_from_the_first_token_on(self):
    lm, params = model()
    zeros = jax.tree.map(jnp.zeros_like, params)
    rows = hklm.score(lm, zeros, TOKENIZER, ["a", "", "bad dad"])
    self.assertLen(rows, 8)
    np.testing.assert_allclose([row.surprisal_bits for row in rows], np.log2(6), rtol=1e-6)

  def test_words_with_unknown_ones_and_spaces_between(self):
    tokenizer = tokenizers.build(hklm.TokenizerConfig("word", lowercase=True), ["the cat\n"])
    lm, params = model(tokenizer.vocab_size)
    line = "  The  black cat "
    rows = hklm.score(lm, params, tokenizer, [line])
    self.assertEqual([row.token for row in rows], ["the", "<unk>", "cat"])
    self.assertEqual([line[row.start:row.end] for row in rows], ["The", "black", "cat"])

  def test_pieces_of_words_join_to_the_line(self):
    tokenizer = tokenizers.build(hklm.TokenizerConfig("bpe", vocab_size=260), ["low lower lowest"])
    lm, params = model(tokenizer.vocab_size)
    line = "low é🙂 lowly"
    rows = hklm.score(lm, params, tokenizer, [line])
    self.assertEqual("".join(line[row.start:row.end] for row in rows), line)
    self.assertTrue(all(math.isfinite(row.surprisal_bits) for row in rows))

  def test_twice_is_the_same_bit_for_bit(self):
    lm, params = model()
    lines = some_lines(20)
    self.assertEqual(hklm.score(lm, params, TOKENIZER, lines),
                     hklm.score(lm, params, TOKENIZER, lines))

  def test_line_lengths_compile_a_bounded_number_of_programs(self):
    lm, params = model()
    with compilations.counted() as names:
      for length in (1, 2, 3, 4, 5, 8, 9, 15, 16, 7, 12, 6, 10, 11, 13, 14):
        hklm.score(lm, params, TOKENIZER, ["a" * length])
    self.assertLessEqual(len(names), 2)  # padded to 8 and to 16


class RefusedTest(absltest.TestCase):

  def test_parameters_that_are_not_finite(self):
    lm, params = model()
    bad = jax.tree.map(lambda leaf: leaf * jnp.nan, params)
    with self.assertRaisesRegex(InputError, "line 1, token 0: the surprisal is nan"):
      hklm.score(lm, bad, TOKENIZER, ["", "ab"])

  def test_a_character_that_the_tokenizer_lacks(self):
    lm, params = model()
    with self.assertRaisesRegex(InputError, r"'x' \(U\+0078\) at position 2"):
      hklm.score(lm, params, TOKENIZER, ["ab", "abx"])

  def test_a_tokenizer_with_more_ids_than_the_model(self):
    lm, params = model()
    larger = tokenizers.build(hklm.TokenizerConfig("char"), ["abcdefgh"])
    with self.assertRaisesRegex(InputError, "id 7 at position 1 is outside the vocabulary of 6"):
      hklm.score(lm, params, larger, ["ah"])


if __name__ == "__main__":
  absltest.main()
