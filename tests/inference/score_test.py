"""A row a token, a row a word: nothing missing, nothing twice, at its place in the text."""

import functools
import itertools
import math
import tracemalloc
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.data import cuts, tokenizers
from hklm.data.cuts import Part
from hklm.errors import InputError
from hklm.inference import predictions, score, streams, totals
from tests import oracle

TEXT = "the cat, a 🙂 naïve\tone\n"
LINES = ("the cat", "", "  a  naïve 🙂 ", "the,the", " ", "one\tcat", "🙂")


@functools.cache
def tokenizer(kind):
  limit = {"word": 8, "bpe": 262}.get(kind, 0)
  return tokenizers.build(hklm.TokenizerConfig(kind, vocab_size=limit), [TEXT * 3])


@functools.cache
def model(vocab_size):
  lm = hklm.language_model(hklm.ModelConfig(
      vocab_size=vocab_size, embedding_size=4, hidden_size=5, num_layers=2,
      initial_state="learned", output_dropout=0.5))
  return lm, oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)), scale=1.0)


def scored(kind, lines=LINES, start="eol", carried=False):
  its = tokenizer(kind)
  return list(score.scored_lines(*model(its.vocab_size), its, lines, start, carried))


KINDS = parameterized.parameters("char", "byte", "word", "bpe")


class TokensTest(parameterized.TestCase):

  @KINDS
  def test_surprisals_entropies_and_ranks_are_those_of_the_ids(self, kind):
    its = tokenizer(kind)
    ids = [its.encode(line + "\n") for line in LINES]
    expected = predictions.predict_lines(*model(its.vocab_size), ids, its.end_of_line)
    for n, (line, needed) in enumerate(zip(scored(kind), expected, strict=True)):
      rows = list(line.tokens())
      self.assertEqual([row.line for row in rows], [n] * len(ids[n]))
      self.assertEqual([row.index for row in rows], list(range(len(ids[n]))))
      self.assertEqual([row.rank for row in rows], needed.ranks.tolist())
      bits = needed.entropies / math.log(2)
      for name, values in (("surprisal_bits", needed.nats / math.log(2)),
                           ("entropy_bits", bits[:-1]),
                           ("entropy_reduction_bits", bits[:-1] - bits[1:]),
                           ("entropy_reduction_bits_max0", np.clip(bits[:-1] - bits[1:], 0, None))):
        np.testing.assert_allclose([getattr(row, name) for row in rows], values, rtol=1e-12,
                                   atol=1e-12, err_msg=name)

  def test_the_first_token_follows_what_start_says(self):
    its = tokenizer("char")
    lm, params = model(its.vocab_size)
    truth = oracle.NumpyModel(lm.config, params)
    token = its.encode("c")[0]
    state = truth.initial_state()
    after, _ = truth.read(its.end_of_line, state)
    for start, layers in (("eol", after), ("state", state)):
      first, second = scored("char", ["c"], start)[0].tokens()
      self.assertAlmostEqual(first.surprisal_bits,
                             oracle.nats(truth.readout(layers), token) / math.log(2), 4)
      layers, _ = truth.read(token, layers)
      self.assertAlmostEqual(
          second.surprisal_bits,
          oracle.nats(truth.readout(layers), its.end_of_line) / math.log(2), 4)
    first, second = scored("char", ["c"], "none")[0].tokens()
    self.assertTrue(math.isnan(first.surprisal_bits) and math.isnan(first.entropy_bits))
    self.assertEqual(first.rank, 0)
    self.assertEqual(second, list(scored("char", ["c"], "state")[0].tokens())[1])

  @KINDS
  def test_places_are_those_of_the_text_in_characters_and_in_bytes(self, kind):
    for line, text in zip(scored(kind), LINES, strict=True):
      encoded = text.encode()
      found = []
      for row in line.tokens():
        piece = text[row.char_start:row.char_end]
        inside = encoded[row.byte_start:row.byte_end]
        found.append(piece)
        if kind != "byte":
          self.assertEqual(inside.decode(), piece)
        if kind == "word" and not row.unknown and row.token != "<eos>":
          self.assertEqual(piece, row.token)
      if kind in ("char", "bpe"):
        self.assertEqual("".join(found), text)
      if kind == "byte":
        pieces = [encoded[row.byte_start:row.byte_end] for row in line.tokens()]
        self.assertEqual(b"".join(pieces), encoded)
        for row in list(line.tokens())[:-1]:  # each within one character, which it may share
          character = text[row.char_start:row.char_end]
          self.assertLen(character, 1)
          before = len(text[:row.char_start].encode())
          self.assertBetween(row.byte_start, before, before + len(character.encode()) - 1)
      last = list(line.tokens())[-1]
      self.assertEqual((last.char_start, last.char_end, last.byte_start, last.byte_end),
                       (len(text), len(text), len(encoded), len(encoded)))

  def test_unknown_words_are_marked(self):
    (line,) = scored("word", ["the dog"])
    self.assertEqual([(row.token, row.unknown) for row in line.tokens()],
                     [("the", False), ("<unk>", True), ("<eos>", False)])

  def test_as_rows(self):
    its = tokenizer("char")
    self.assertEqual(hklm.score(*model(its.vocab_size), its, LINES),
                     [row for line in scored("char") for row in line.tokens()])
    self.assertEqual(hklm.score(*model(its.vocab_size), its, []), [])

  def test_lines_of_a_later_batch_keep_their_numbers(self):
    whole = scored("char")
    with mock.patch.object(score, "_BATCH", 9):
      batches = mock.Mock(side_effect=predictions.predict_lines)
      with mock.patch.object(score, "predict_lines", batches):
        parts = scored("char")
    self.assertLess(max(sum(map(len, call.args[2])) for call in batches.call_args_list), 30)
    self.assertEqual([line.number for line in parts], list(range(len(LINES))))
    for line, needed in zip(parts, whole, strict=True):
      np.testing.assert_allclose(line.surprisals, needed.surprisals, rtol=1e-5)

  @parameterized.product(kind=["char", "word"], start=score.STARTS)
  def test_carried_lines_are_one_text(self, kind, start):
    its = tokenizer(kind)
    ids = [its.encode(line + "\n") for line in LINES]
    first = its.end_of_line if start == "eol" else None
    expected = streams.predict_stream(*model(its.vocab_size), ids, first)
    for n, (line, needed) in enumerate(zip(scored(kind, start=start, carried=True), expected,
                                           strict=True)):
      bits = needed.nats / math.log(2)
      if start == "none" and n == 0:
        self.assertTrue(math.isnan(line.surprisals[0]))
        bits[0] = math.nan
      np.testing.assert_allclose(line.surprisals, bits, rtol=1e-12)


class PartsTest(parameterized.TestCase):
  """A long line comes in parts, and costs what it costs whole."""

  @parameterized.product(kind=["char", "byte", "word", "bpe"], carried=[False, True],
                         start=["eol", "none"])
  def test_rows_are_those_of_whole_lines(self, kind, carried, start):
    its = tokenizer(kind)
    lines = ["the cat", " naïve one, the cat 🙂 a  oat" * 3, "", "a the the a a the ", "one"]
    parts = list(cuts.lines(["\n".join(lines)], size=8))
    self.assertGreater(len(parts), 2 * len(lines))
    found = list(score.scored_parts(*model(its.vocab_size), its, parts, start, carried))
    whole = scored(kind, lines, start, carried)
    for rows in (lambda line: line.tokens(), lambda line: line.by_word()):
      expected = [row for line in whole for row in rows(line)]
      for row, needed in zip([row for part in found for row in rows(part)], expected, strict=True):
        for name, value in row._asdict().items():
          if isinstance(value, float):
            np.testing.assert_allclose(value, getattr(needed, name), rtol=1e-5, atol=2e-6)
          else:
            self.assertEqual(value, getattr(needed, name), name)
    sums, needed = totals.Totals(), totals.Totals()
    by_line = [counts for part in found if (counts := sums.add(part)) is not None and part.last]
    np.testing.assert_allclose(by_line, [needed.add(line) for line in whole], rtol=1e-6)
    self.assertEqual((sums.lines, sums.unknown), (needed.lines, needed.unknown))
    np.testing.assert_allclose(sums.interval("perplexity"), needed.interval("perplexity"),
                               rtol=1e-6)

  @parameterized.parameters(False, True)
  def test_memory_does_not_grow_with_the_line(self, carried):
    its = tokenizer("char")
    lm, params = model(its.vocab_size)

    def peak(tokens):
      pieces = itertools.repeat("the one ", tokens // 8)
      tracemalloc.start()
      found = score.scored_parts(lm, params, its, cuts.lines(pieces, 1000), carried=carried)
      count = sum(len(part.symbols) for part in found)
      self.assertEqual(count, tokens + 1)
      most = tracemalloc.get_traced_memory()[1]
      tracemalloc.stop()
      return most

    peak(8000)  # what is compiled is kept
    self.assertLess(peak(32_000), 1.1 * peak(8000))

  @parameterized.parameters(False, True)
  def test_what_is_wrong_is_named_by_its_place_in_the_line(self, carried):
    its = tokenizer("char")
    lm, params = model(its.vocab_size)
    parts = [Part("one", True), Part("the", False), Part(" cat", False), Part(" dog", True)]
    with self.assertRaisesRegex(InputError, "line 1, counted from 0: .*'d'.* at position 8"):
      list(score.scored_parts(lm, params, its, parts, carried=carried))

    def diverging(reader_params, tokens, targets, carried):
      figures, carried = plain.read(reader_params, tokens, targets, carried)
      return figures._replace(gaps=jnp.where(tokens == its.encode("c")[0], jnp.nan, figures.gaps)
                              ), carried

    plain = streams.plain_reader(lm)
    with (mock.patch.object(streams, "plain_reader", lambda lm: plain._replace(read=diverging)),
          self.assertRaisesRegex(InputError, "line 1, token 5: the surprisal is nan")):
      list(score.scored_parts(lm, params, its, parts[:-1], carried=carried))


class WordsTest(parameterized.TestCase):

  @KINDS
  def test_words_are_what_white_space_separates(self, kind):
    for line, text in zip(scored(kind), LINES, strict=True):
      *rows, end = line.by_word()
      self.assertEqual(([row.text for row in rows]), text.split())
      self.assertEqual([text[row.char_start:row.char_end] for row in rows], text.split())
      self.assertEqual([text.encode()[row.byte_start:row.byte_end].decode() for row in rows],
                       text.split())
      self.assertEqual(end.text, {"word": "<eos>"}.get(kind, "\\n"))
      self.assertEqual([row.word for row in (*rows, end)], list(range(len(rows) + 1)))

  @KINDS
  def test_sums_over_words_are_those_over_tokens(self, kind):
    for line in scored(kind, [*LINES, " ".join(LINES * 20)]):
      rows = list(line.by_word())
      self.assertAlmostEqual(math.fsum(row.surprisal_bits for row in rows),
                             math.fsum(line.surprisals), delta=1e-9 * math.fsum(line.surprisals))
      self.assertEqual(sum(row.tokens for row in rows), len(line.surprisals))
      reductions = math.fsum(row.entropy_reduction_bits for row in rows)
      self.assertAlmostEqual(reductions, line.entropies[0] - line.entropies[-1], 9)

  @KINDS
  def test_entropies_are_those_before_and_after_its_tokens(self, kind):
    for line in scored(kind):
      at = 0
      for row in line.by_word():
        reduction = line.entropies[at] - line.entropies[at + row.tokens]
        self.assertEqual(row.entropy_bits, line.entropies[at])
        self.assertEqual(row.entropy_reduction_bits, reduction)
        self.assertEqual(row.entropy_reduction_bits_max0, max(0.0, reduction))
        at += row.tokens

  def test_a_word_with_an_unknown_part(self):
    its = tokenizers.build(hklm.TokenizerConfig("word", split_punctuation=True), ["the cat .\n"])
    lm, params = model(its.vocab_size)
    (line,) = score.scored_lines(lm, params, its, ["the dog. cat"])
    rows = list(line.by_word())
    self.assertEqual([(row.text, row.tokens, row.unknown) for row in rows],
                     [("the", 1, False), ("dog.", 2, True), ("cat", 1, False),
                      ("<eos>", 1, False)])


class ZerosTest(parameterized.TestCase):

  @KINDS
  def test_every_token_has_log2_v_bits(self, kind):
    its = tokenizer(kind)
    lm, params = model(its.vocab_size)
    zeros = jax.tree.map(jnp.zeros_like, params)
    for carried in (False, True):
      for start in ("eol", "state"):
        for line in score.scored_lines(lm, zeros, its, LINES, start, carried):
          np.testing.assert_allclose(line.surprisals, np.log2(its.vocab_size), rtol=1e-15)
          np.testing.assert_allclose(line.entropies, np.log2(its.vocab_size), rtol=1e-15)


class RefusedTest(absltest.TestCase):

  def refused(self, message, its, *args, **kwargs):
    lm, params = model(its.vocab_size)
    with self.assertRaisesRegex(InputError, message):
      hklm.score(lm, params, its, *args, **kwargs)

  def test_what_cannot_be_scored(self):
    its = tokenizer("char")
    self.refused(r"line 1, counted from 0: found 'x' \(U\+0078\) at position 2", its, ["at", "atx"])
    self.refused("line 0, counted from 0: found a line feed at position 1; needed: one line a text",
                 its, ["a\nt"])
    self.refused("found the string 'at'; needed: a list of lines", its, "at")
    self.refused("--start=first is unknown; needed: eol, state, none", its, ["a"], start="first")

  def test_a_tokenizer_without_an_end_of_line(self):
    its = tokenizers.build(hklm.TokenizerConfig("char"), ["abcd"])
    self.refused("--start=eol: the tokenizer knows no end of line.*--start=state", its, ["a"])
    lm, params = model(4)
    self.assertEqual([row.token for row in hklm.score(lm, params, its, ["ab", ""], "state")],
                     ["a", "b"])

  def test_a_tokenizer_with_more_ids_than_the_model(self):
    lm, params = model(6)
    with self.assertRaisesRegex(InputError, "is outside the vocabulary of 6"):
      hklm.score(lm, params, tokenizer("char"), ["the"])


if __name__ == "__main__":
  absltest.main()
