import numpy as np
from absl.testing import absltest, parameterized

from hklm.data.characters import ByteTokenizer, CharTokenizer
from hklm.errors import InputError

TEXTS = ("", "a", "hello\n", "\0nul\0", "ünïcödé", "中文🙂e\u0301", "a\n\n b\t", "\ud83d alone")


class CharTokenizerTest(parameterized.TestCase):

  @parameterized.parameters(*TEXTS)
  def test_encodes_as_a_dictionary_would(self, text):
    tokenizer = CharTokenizer.build([text, "zyx"])
    ids = {c: i for i, c in enumerate(sorted({*text, *"zyx"}))}
    self.assertEqual(tokenizer.encode(text).tolist(), [ids[c] for c in text])
    self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)

  def test_ids_widen_with_the_alphabet(self):
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 257)))
    narrow, wide = CharTokenizer(letters[:256]), CharTokenizer(letters)
    self.assertEqual(narrow.encode(letters[:256]).dtype, np.uint8)
    self.assertEqual(wide.encode(letters).dtype, np.uint16)
    self.assertEqual(wide.encode(letters)[-1], 256)

  @parameterized.parameters(
      ("cat ~", "'~' (U+007E) at position 4"), ("\0", "'\\x00' (U+0000) at position 0"),
      ("act🙂", "'🙂' (U+1F642) at position 3"), ("c\ud800", "'\\ud800' (U+D800) at position 1"))
  def test_an_unseen_character_is_named(self, text, expected):
    with self.assertRaises(InputError) as raised:
      CharTokenizer(" act").encode(text)
    self.assertIn(expected, str(raised.exception))
    self.assertIn("--tokenizer=byte", str(raised.exception))
    self.assertNotIn("\n", str(raised.exception))

  def test_positions_count_from_the_start_of_the_whole(self):
    with self.assertRaisesRegex(InputError, "at position 1002,"):
      CharTokenizer("ab").encode("abc", at=1000)

  def test_end_of_line_is_the_line_feed_if_there_is_one(self):
    self.assertEqual(CharTokenizer("\nab").end_of_line, 0)
    self.assertIsNone(CharTokenizer("ab").end_of_line)
    self.assertIsNone(CharTokenizer("ab").unknown)

  def test_an_order_of_its_own(self):
    tokenizer = CharTokenizer("b🙂\na")
    self.assertEqual(tokenizer.encode("ab\n🙂").tolist(), [3, 0, 2, 1])
    self.assertEqual(tokenizer.decode([3, 0, 2, 1]), "ab\n🙂")
    self.assertEqual((tokenizer.end_of_line, tokenizer.symbol(2)), (2, "\\n"))
    self.assertNotEqual(tokenizer.fingerprint, CharTokenizer("\nab🙂").fingerprint)
    with self.assertRaisesRegex(InputError, "found 'c' .* not among the 4 characters"):
      tokenizer.encode("c")
    with self.assertRaisesRegex(InputError, "a character is in the alphabet twice"):
      CharTokenizer("aba")

  def test_offsets(self):
    ids, starts, ends = CharTokenizer("a🙂").encode_with_offsets("🙂a")
    self.assertEqual((ids.tolist(), starts.tolist(), ends.tolist()), ([1, 0], [0, 1], [1, 2]))

  @parameterized.parameters(-1, 2, 300)
  def test_ids_of_another_tokenizer_are_refused(self, token):
    for tokenizer_call in (CharTokenizer("ab").symbol, lambda i: CharTokenizer("ab").decode([i])):
      with self.assertRaisesRegex(InputError, f"found id {token}, needed 0 to 1"):
        tokenizer_call(token)

  def test_no_text_is_refused(self):
    with self.assertRaisesRegex(InputError, "found no text"):
      CharTokenizer.build([])

  def test_symbols_are_printable(self):
    tokenizer = CharTokenizer("\t\na")
    self.assertEqual([tokenizer.symbol(i) for i in range(3)], ["\\t", "\\n", "a"])

  def test_values(self):
    self.assertEqual(CharTokenizer("ab"), CharTokenizer("ab"))
    self.assertNotEqual(CharTokenizer("ab").fingerprint, CharTokenizer("ac").fingerprint)
    with self.assertRaises(AttributeError):
      CharTokenizer("ab").alphabet = "xy"


class ByteTokenizerTest(parameterized.TestCase):

  @parameterized.parameters(*TEXTS[:-1])
  def test_is_utf8(self, text):
    tokenizer = ByteTokenizer()
    self.assertEqual(tokenizer.encode(text).tolist(), list(text.encode("utf-8")))
    self.assertEqual(tokenizer.encode(text.encode("utf-8")).tolist(), list(text.encode("utf-8")))
    self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)

  def test_reads_what_is_no_text(self):
    every = bytes(range(256))
    self.assertEqual(ByteTokenizer().encode(every).tolist(), list(range(256)))
    self.assertEqual(ByteTokenizer().decode(every), every.decode("utf-8", errors="replace"))

  def test_half_a_surrogate_pair_is_named(self):
    with self.assertRaisesRegex(InputError, r"U\+D83D\) at position 2"):
      ByteTokenizer().encode("ab\ud83d")

  def test_offsets_count_bytes(self):
    _, starts, ends = ByteTokenizer().encode_with_offsets("aé")
    self.assertEqual((starts.tolist(), ends.tolist()), ([0, 1, 2], [1, 2, 3]))

  def test_symbols_are_printable(self):
    symbols = [ByteTokenizer().symbol(i) for i in (10, 65, 0xC3)]
    self.assertEqual(symbols, ["\\n", "A", "\\xc3"])
    self.assertEqual(ByteTokenizer().end_of_line, 10)


if __name__ == "__main__":
  absltest.main()
