import hashlib
import os
import subprocess
import sys
import tempfile
import unittest.mock

import numpy as np
from absl.testing import absltest, parameterized

from hklm.config import TokenizerConfig
from hklm.data import corpora, cuts, encoding, tokenizers
from hklm.data.characters import ByteTokenizer, CharTokenizer
from hklm.data.words import WordTokenizer
from hklm.errors import InputError

TEXT = "  Über 🙂 be e\u0301, or\nnot  to\n\nbe\n"


def tokens_of(text, **options):
  corpus = corpora.corpus_of(text)
  tokenizer = tokenizers.build(TokenizerConfig(**options), corpus.chunks())
  return tokenizer, encoding.encode_corpus(tokenizer, corpus)


class EncodeCorpusTest(parameterized.TestCase):

  @parameterized.parameters(
      {"kind": "char"}, {"kind": "byte"}, {"kind": "word"}, {"kind": "bpe", "vocab_size": 260})
  def test_ids_are_those_of_the_whole_text(self, **options):
    text = (TEXT + "a long line without end " * 40_000) * 2
    tokenizer, tokens = tokens_of(text, **options)
    self.assertGreater(len(text), 2 * cuts.CHUNK)
    self.assertEqual(tokens.ids.tolist(), tokenizer.encode(text).tolist())
    self.assertEqual(tokens.ids.dtype, tokenizer.encode(text).dtype)
    self.assertEqual((tokens.characters, tokens.bytes), (len(text), len(text.encode())))
    self.assertEqual((tokens.unknown_tokens, tokens.unknown_examples), (0, ()))
    self.assertEqual(tokens.documents, 1)

  def test_the_file_is_mapped_read_only(self):
    _, tokens = tokens_of(TEXT, kind="char")
    self.assertIsInstance(tokens.ids, np.memmap)
    with self.assertRaises(ValueError):
      tokens.ids[0] = 1

  @parameterized.parameters(
      # What follows the first token: all but a space; but a byte; but two spaces and "Über".
      ({"kind": "char"}, TEXT[1:], None),
      ({"kind": "byte"}, TEXT[1:], None),
      ({"kind": "word"}, TEXT[6:], None),
      ({"kind": "char"}, "", "x"), ({"kind": "word"}, "", "one"), ({"kind": "word"}, " ", "one "))
  def test_what_is_scored_starts_after_the_first_token(self, options, rest, text):
    _, tokens = tokens_of(text or TEXT, **options)
    self.assertEqual(tokens.scored_characters, len(rest))
    self.assertEqual(tokens.scored_bytes, len(rest.encode()))

  def test_a_first_token_after_much_white_space(self):
    text = "\n" * (2 * cuts.CHUNK) + "é b c"
    _, tokens = tokens_of(text, kind="word", end_of_line="")
    self.assertEqual((tokens.scored_characters, tokens.scored_bytes), (4, 4))
    self.assertEqual(tokens.bytes, len(text) + 1)

  def test_scored_bytes_and_characters_of_a_byte_tokenizer(self):
    _, tokens = tokens_of("é🙂a", kind="byte")  # c3 a9, f0 9f 99 82, 61
    self.assertEqual((tokens.characters, tokens.bytes), (3, 7))
    self.assertEqual((tokens.scored_characters, tokens.scored_bytes), (2, 6))

  def test_unknown_words_are_counted_and_shown_as_spelled(self):
    tokenizer = WordTokenizer(("be", "to"), lowercase=True)
    tokens = encoding.encode_corpus(tokenizer, corpora.corpus_of("To BE Or not, Or oR\n" * 5))
    self.assertEqual(tokens.unknown_tokens, 20)
    self.assertEqual(tokens.unknown_examples, ("Or", "not,", "oR"))

  def test_ten_examples_are_enough(self):
    text = " ".join(f"w{i}" for i in range(100)) + "\n"
    tokens = encoding.encode_corpus(WordTokenizer(()), corpora.corpus_of(text))
    self.assertEqual(tokens.unknown_tokens, 100)
    self.assertEqual(tokens.unknown_examples, tuple(f"w{i}" for i in range(10)))

  def test_no_tokens(self):
    corpus = corpora.corpus_of("abc").part(1, 1)
    tokens = encoding.encode_corpus(CharTokenizer("abc"), corpus)
    self.assertEqual((tokens.ids.dtype, len(tokens.ids)), (np.uint8, 0))
    self.assertEqual(tokens[1:], (0, 0, 0, 0, 0, (), 1, hashlib.sha256(b"").hexdigest()))

  def test_the_fingerprint_is_that_of_the_ids_however_the_text_is_cut(self):
    text = "abc\n" * 300_000  # longer than a chunk
    tokens = encoding.encode_corpus(CharTokenizer("\nabc"), corpora.corpus_of(text))
    self.assertEqual(tokens.fingerprint, hashlib.sha256(bytes([1, 2, 3, 0]) * 300_000).hexdigest())

  def test_an_unseen_character_has_its_position_in_the_corpus(self):
    text = "ab\n" * 300_000 + "ab~\n"
    with self.assertRaisesRegex(InputError, r"'~' \(U\+007E\) at position 900002,"):
      encoding.encode_corpus(CharTokenizer("\nab"), corpora.corpus_of(text))

  def test_a_byte_tokenizer_reads_what_is_no_text(self):
    with tempfile.TemporaryDirectory() as folder:
      path = os.path.join(folder, "bytes")
      data = b"\r\n\xff\xfe\0" * 100_000
      with open(path, "wb") as file:
        file.write(data)
      corpus = corpora.open_corpus(path)
      self.assertEqual(encoding.encode_corpus(ByteTokenizer(), corpus).ids.tobytes(), data)
      with self.assertRaisesRegex(InputError, "byte offset 2, .*--encoding"):
        encoding.encode_corpus(CharTokenizer("ab"), corpus)

  def test_a_full_disk_is_named(self):
    with (unittest.mock.patch("tempfile.TemporaryFile") as file,
          self.assertRaisesRegex(InputError, "No space left.*set TMPDIR")):
      file.return_value.__enter__.return_value.write.side_effect = OSError(28, "No space left")
      encoding.encode_corpus(CharTokenizer("ab"), corpora.corpus_of("ab"))

  def test_a_killed_process_leaves_nothing_behind(self):
    program = """
import os, signal
from hklm.data import characters, corpora, encoding
tokens = encoding.encode_corpus(characters.CharTokenizer("ab"), corpora.corpus_of("ab" * 100_000))
print(int(tokens.ids.sum()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with tempfile.TemporaryDirectory() as folder:
      ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE,
                             env={**os.environ, "TMPDIR": folder}, check=False)
      self.assertEqual((ended.stdout, ended.returncode), (b"100000\n", -9))
      self.assertEmpty(os.listdir(folder))


if __name__ == "__main__":
  absltest.main()
