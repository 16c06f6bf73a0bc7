import json

import numpy as np
from absl.testing import absltest, parameterized

from hklm.config import TokenizerConfig
from hklm.data import tokenizers
from hklm.data.words import WordTokenizer
from hklm.errors import InputError


def build(text, **options):
  return WordTokenizer.build(TokenizerConfig("word", **options), [text])


def split(text, **options):
  """The stretches of the text that the tokens stand for."""
  tokenizer = build(text, **options)
  _, starts, ends = tokenizer.encode_with_offsets(text)
  return [text[start:end] for start, end in zip(starts, ends, strict=True)]


class SplittingTest(parameterized.TestCase):

  @parameterized.parameters(
      "a b", "  a \t b\u00a0c\u3000d\u2028e ", "x\x1cy\x85z", "don't (stop), 3.14!",
      "中文 🙂 e\u0301")
  def test_white_space_is_what_python_splits_at(self, text):
    self.assertEqual(split(text), text.split())

  def test_each_line_feed_is_an_end_of_line_and_other_breaks_are_not(self):
    text = "a\n\n b\r\fc\u2029\n"
    tokenizer = build(text)
    self.assertEqual([tokenizer.symbol(i) for i in tokenizer.encode(text)],
                     ["a", "<eos>", "<eos>", "b", "c", "<eos>"])

  def test_without_the_symbol_line_feeds_are_white_space(self):
    self.assertEqual(split("a\nb\n", end_of_line=""), ["a", "b"])

  @parameterized.parameters(
      ("Hello, world!", ["Hello", ",", "world", "!"]),
      ("don't well-known O\u2019Neil's", ["don't", "well-known", "O\u2019Neil's"]),
      ("'tis rock-'n'-roll--no", ["'", "tis", "rock", "-", "'", "n", "'", "-", "roll", "-", "-",
                                  "no"]),
      ("3.14 1,000 a_b", ["3", ".", "14", "1", ",", "000", "a_b"]),
      ("e\u0301te\u0301. हिन्दी।", ["e\u0301te\u0301", ".", "हिन्दी", "।"]),
      ("«中文»。🙂🙂 $5+", ["«", "中文", "»", "。", "🙂", "🙂", "$", "5", "+"]),
      ("x]^\\[-y", ["x", "]", "^", "\\", "[", "-", "y"]))
  def test_punctuation(self, text, expected):
    self.assertEqual(split(text, split_punctuation=True), expected)

  def test_lower_case_keeps_offsets_true(self):
    text = "İİ HI\nHi"  # the lower case of İ has two code points
    self.assertEqual(split(text, lowercase=True), ["İİ", "HI", "\n", "Hi"])
    ids = build(text, lowercase=True).encode(text)
    self.assertEqual(ids[1], ids[3])


class VocabularyTest(parameterized.TestCase):
  TEXT = "b a b c a b d\n"

  def test_control_symbols_come_first_then_words_by_frequency_and_spelling(self):
    tokenizer = build(self.TEXT)
    self.assertEqual([tokenizer.symbol(i) for i in range(tokenizer.vocab_size)],
                     ["<unk>", "<eos>", "b", "a", "c", "d"])
    self.assertEqual((tokenizer.unknown, tokenizer.end_of_line), (0, 1))

  def test_minimum_count(self):
    tokenizer = build(self.TEXT, min_count=2)
    self.assertEqual(tokenizer.words, ("b", "a"))
    self.assertEqual(tokenizer.encode("a c b").tolist(), [3, 0, 2])

  @parameterized.parameters((3, ("b",)), (5, ("b", "a", "c")), (6, ("b", "a", "c", "d")),
                            (99, ("b", "a", "c", "d")))
  def test_the_size_limit_counts_control_symbols(self, vocab_size, words):
    tokenizer = build(self.TEXT, vocab_size=vocab_size)
    self.assertEqual(tokenizer.words, words)
    self.assertLessEqual(tokenizer.vocab_size, vocab_size)

  def test_a_limit_without_room_is_refused(self):
    with self.assertRaisesRegex(InputError, "--vocab_size=2 leaves no room"):
      build(self.TEXT, vocab_size=2)

  @parameterized.parameters({"min_count": 2}, {"vocab_size": 3})
  def test_dropped_words_need_a_symbol(self, **limit):
    with self.assertRaisesRegex(InputError, "--unknown is empty"):
      build(self.TEXT, unknown="", **limit)

  def test_without_the_symbol_an_unseen_word_is_named(self):
    tokenizer = build(self.TEXT, unknown="")
    self.assertIsNone(tokenizer.unknown)
    with self.assertRaisesRegex(InputError, "found the word 'zebra' at position 107,"):
      tokenizer.encode("a\nb a  zebra\n", at=100)

  def test_no_words_are_refused(self):
    with self.assertRaisesRegex(InputError, "found no words"):
      build(" \n\n ")

  def test_ids_of_a_vocabulary_over_16_bits(self):
    words = [f"w{i}" for i in range(65_535)]
    text = " ".join(words)
    tokenizer = build(text)
    self.assertEqual(tokenizer.vocab_size, 65_537)
    self.assertEqual(tokenizer.encode(text).dtype, np.uint32)
    self.assertEqual(tokenizer.encode(text).max(), 65_536)
    self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)

  def test_the_same_symbol_twice_is_refused(self):
    with self.assertRaisesRegex(InputError, "same spelling"):
      build(self.TEXT, unknown="<x>", end_of_line="<x>")

  def test_a_symbol_with_a_space_is_refused(self):
    with self.assertRaisesRegex(InputError, "without space"):
      build(self.TEXT, unknown="un known")


class ControlSymbolsInTextTest(parameterized.TestCase):

  def test_text_stays_text(self):
    text = "a <eos> <unk> b\n"
    tokenizer = build(text)
    ids = tokenizer.encode(text).tolist()
    self.assertEqual(tokenizer.vocab_size, 6)  # two symbols, and four words
    self.assertNotIn(tokenizer.unknown, ids)
    self.assertEqual(ids.index(tokenizer.end_of_line), 4)
    self.assertEqual(tokenizer.decode(ids), text)

  def test_an_unseen_literal_is_an_unknown_word(self):
    self.assertEqual(build("a b\n").encode("<eos>").tolist(), [0])

  @parameterized.parameters(False, True)
  def test_a_prepared_text_is_read_as_it_was_meant(self, split_punctuation):
    text = "a <unk> b <eos> <unk>s"
    tokenizer = build(text, symbols_in_text=True, split_punctuation=split_punctuation)
    self.assertEqual(tokenizer.encode("a <unk> b <eos>").tolist()[1::2], [0, 1])
    self.assertNotIn("<unk>", tokenizer.words)
    self.assertNotEqual(tokenizer.encode("<unk>s")[0], 0)

  def test_no_symbols_to_read(self):
    tokenizer = build("a (b)\n", symbols_in_text=True, split_punctuation=True, unknown="",
                      end_of_line="")
    self.assertCountEqual(tokenizer.words, ["a", "(", "b", ")"])

  def test_symbols_keep_their_case(self):
    tokenizer = build("A <UNK> <unk>", symbols_in_text=True, lowercase=True, unknown="<UNK>")
    self.assertEqual(tokenizer.words, ("<unk>", "a"))
    self.assertEqual(tokenizer.encode("a <UNK> <unk>").tolist(), [3, 0, 2])


class ControlIdsTest(parameterized.TestCase):
  """Control symbols among the words, as another program has numbered them."""

  @parameterized.parameters((("<unk>", "<eos>"), (3, 1), 3, 1), (("<unk>", ""), (2,), 2, None),
                            (("", "<eos>"), (4,), None, 4), (("<unk>", "<eos>"), (0, 4), 0, 4))
  def test_every_symbol_has_its_id(self, symbols, ids, unknown, end_of_line):
    tokenizer = WordTokenizer(("c", "a", "b", "d")[:5 - len(ids)], *symbols, symbols_in_text=True,
                              control_ids=ids)
    spelled = list(tokenizer.words)
    for token, symbol in sorted(zip(ids, filter(None, symbols), strict=True)):
      spelled.insert(token, symbol)
    self.assertEqual([tokenizer.symbol(token) for token in range(tokenizer.vocab_size)], spelled)
    self.assertEqual(tokenizer.vocab_size, 5)
    self.assertEqual((tokenizer.unknown, tokenizer.end_of_line), (unknown, end_of_line))
    text = " ".join(spelled)
    self.assertEqual(tokenizer.encode(text).tolist(), list(range(5)))
    found, starts, ends = tokenizer.encode_with_offsets(text)
    self.assertEqual(found.tolist(), list(range(5)))
    self.assertEqual([text[start:end] for start, end in zip(starts, ends, strict=True)], spelled)
    if unknown is not None:
      self.assertEqual(tokenizer.encode("a zebra")[1], unknown)
    if end_of_line is not None:
      self.assertEqual(tokenizer.encode("a\n")[1], end_of_line)
      self.assertEqual(tokenizer.decode([*tokenizer.encode("a\nc")]), "a\nc")
    self.assertEqual(tokenizers.from_json(json.loads(json.dumps(tokenizer.to_json()))), tokenizer)

  def test_a_word_spelled_as_a_symbol_stays_a_word(self):
    tokenizer = WordTokenizer(("<unk>", "a"), control_ids=(2, 1))
    self.assertEqual(tokenizer.encode("<unk> a b\n").tolist(), [0, 3, 2, 1])

  def test_the_usual_ids_are_not_told(self):
    usual = WordTokenizer(("a", "b"))
    self.assertEqual(WordTokenizer(("a", "b"), control_ids=(0, 1)), usual)
    self.assertNotIn("control_ids", usual.to_json())
    self.assertNotEqual(WordTokenizer(("a", "b"), control_ids=(1, 0)).fingerprint,
                        usual.fingerprint)

  @parameterized.parameters((0,), (0, 0), (0, 4), (-1, 0), (0, 1, 2))
  def test_ids_that_cannot_be(self, *ids):
    with self.assertRaisesRegex(InputError, r"found control_ids \(.*needed an id below 4 for each"):
      WordTokenizer(("a", "b"), control_ids=ids)


class DecodingTest(absltest.TestCase):

  def test_words_are_joined_by_single_spaces_and_lines_end(self):
    text = "to  be\tor\n\n not "
    tokenizer = build(text)
    self.assertEqual(tokenizer.decode(tokenizer.encode(text)), "to be or\n\nnot")
    self.assertEqual(list(tokenizer.decode_stream(tokenizer.encode("to be\nor"))),
                     ["to", " be", "\n", "or"])
    self.assertEqual(tokenizer.decode([]), "")
    self.assertEqual(tokenizer.decode(tokenizer.encode("to fly\n")), "to <unk>\n")

  def test_ids_of_another_tokenizer_are_refused(self):
    for token in (-1, 3):
      with self.assertRaisesRegex(InputError, f"found id {token}, needed 0 to 2"):
        build("one").decode([token])


if __name__ == "__main__":
  absltest.main()
