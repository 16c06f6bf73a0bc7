import json
import os
import subprocess
import sys

import numpy as np
from absl.testing import absltest, parameterized

from hklm.config import TokenizerConfig
from hklm.data import corpora
from hklm.data.bpe import BpeTokenizer
from hklm.errors import InputError

TEXTS = ("", " ", "\0", "\0a\0\0", "hello world", "  two  spaces ", "a\n\n\n b\n", "tab\tcr\r\n",
         "🙂", "👩‍💻 e\u0301 中文。", "\u2028\u0085\u00a0", "<|endoftext|> <unk> <eos>",
         "don't 's 123", "\ufeffmark", "\U0010ffff\ue000")


def setUpModule():
  global TOKENIZER
  text = "".join(corpora.builtin_corpus().chunks())[:100_000]
  TOKENIZER = BpeTokenizer.build(TokenizerConfig("bpe", vocab_size=600), [text])


def random_texts(count):
  """From all planes but the surrogates, with much white space."""
  rng = np.random.default_rng(0)
  for _ in range(count):
    codes = [*rng.integers(0, 0xD800, 15), *rng.integers(0xE000, 0x110000, 10),
             *rng.choice([0, 9, 10, 13, 32, 32, 39, 65, 97, 0xA0, 0x301], 40)]
    yield "".join(map(chr, rng.permutation(codes)))


class BpeTokenizerTest(parameterized.TestCase):

  @parameterized.parameters(*TEXTS)
  def test_decodes_to_what_was_encoded(self, text):
    self.assertEqual(TOKENIZER.decode(TOKENIZER.encode(text)), text)

  def test_decodes_to_what_was_encoded_for_random_texts(self):
    for text in random_texts(100):
      self.assertEqual(TOKENIZER.decode(TOKENIZER.encode(text)), text)

  @parameterized.parameters(*TEXTS)
  def test_stretches_are_the_pieces_of_the_text(self, text):
    ids, starts, ends = TOKENIZER.encode_with_offsets(text)
    pieces = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    self.assertEqual("".join(pieces), text)
    self.assertEqual(pieces, list(TOKENIZER.decode_stream(ids)))
    self.assertEqual(starts.tolist(), [0, *ends.tolist()][:len(ids)])

  def test_a_split_character_belongs_to_its_last_token(self):
    # Bytes only: é is c3 a9 and 🙂 is f0 9f 99 82.
    bytes_only = BpeTokenizer.build(TokenizerConfig("bpe", vocab_size=256), [])
    encoding = bytes_only.encode_with_offsets("é🙂a")
    self.assertEqual(encoding.ends.tolist(), [0, 1, 1, 1, 1, 2, 3])

  def test_learns_merges(self):
    tokenizer = BpeTokenizer.build(TokenizerConfig("bpe", vocab_size=259), ["ab ab ab abc abc x"])
    # "ab" is seen 5 times; with a space before it 4 times; "abc" with its space twice.
    self.assertEqual([tokenizer.symbol(i) for i in range(256, 259)], ["ab", " ab", " abc"])
    self.assertEqual([tokenizer.symbol(i) for i in tokenizer.encode("ab abc x")],
                     ["ab", " abc", " ", "x"])

  def test_lines_tokenize_alone(self):
    text = "one\n\n  two \n\n\n three\n"
    lines = text.splitlines(keepends=True)
    self.assertEqual(TOKENIZER.encode(text).tolist(),
                     [i for line in lines for i in TOKENIZER.encode(line)])
    self.assertEqual(np.count_nonzero(TOKENIZER.encode(text) == TOKENIZER.end_of_line),
                     text.count("\n"))

  def test_nothing_is_unknown_and_ids_fit(self):
    self.assertIsNone(TOKENIZER.unknown)
    self.assertEqual(TOKENIZER.encode("x").dtype, np.uint16)
    self.assertEqual(TOKENIZER.vocab_size, 600)

  def test_a_small_text_gives_a_small_vocabulary(self):
    self.assertEqual(BpeTokenizer.build(TokenizerConfig("bpe"), ["ab"]).vocab_size, 257)

  def test_half_a_surrogate_pair_is_named(self):
    with self.assertRaisesRegex(InputError, r"U\+DC80\) at position 3"):
      TOKENIZER.encode("abc\udc80")

  def test_an_incomplete_tail_is_marked(self):
    ids = BpeTokenizer.build(TokenizerConfig("bpe", vocab_size=256), []).encode("a🙂")
    decode = BpeTokenizer.build(TokenizerConfig("bpe", vocab_size=256), []).decode
    self.assertEqual(decode(ids[:-1]), "a\ufffd")

  def test_trains_on_the_sample_only(self):
    config = TokenizerConfig("bpe", vocab_size=300, bpe_sample=1000)
    text = "".join(f"word{i} " for i in range(500))
    whole = BpeTokenizer.build(config, [text])
    self.assertEqual(whole, BpeTokenizer.build(config, [text[:1000]]))
    space = text.index(" ", 600)
    self.assertEqual(whole, BpeTokenizer.build(config, [text[:space], text[space:]]))
    self.assertNotEqual(whole, BpeTokenizer.build(config, [text[:900]]))

  @parameterized.parameters(
      ((), (), "lack one of the 256"), (("a", "a"), (), "repeat"))
  def test_damaged_content_is_refused(self, pieces, merges, message):
    with self.assertRaisesRegex(InputError, message):
      BpeTokenizer(pieces, merges)

  def test_a_merge_of_unknown_pieces_is_refused(self):
    with self.assertRaisesRegex(InputError, "needed two pieces that make one"):
      BpeTokenizer(TOKENIZER.pieces, (("q", "zz"),))


class DeterminismTest(absltest.TestCase):

  def test_any_hash_seed_and_thread_count_give_the_same_vocabulary(self):
    program = """
import json
from hklm.config import TokenizerConfig
from hklm.data import bpe, corpora
text = "".join(corpora.builtin_corpus().chunks())[:100_000]
tokenizer = bpe.BpeTokenizer.build(TokenizerConfig("bpe", vocab_size=1000), [text])
print(json.dumps([tokenizer.fingerprint, tokenizer.encode(text[5000:6000]).tolist()]))
"""
    found = []
    for seed, threads, parallel in (("0", "1", "false"), ("1", "2", "true"), ("77", "4", "true")):
      environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads,
                     "TOKENIZERS_PARALLELISM": parallel}
      output = subprocess.run([sys.executable, "-c", program], env=environment, check=True,
                              stdout=subprocess.PIPE).stdout
      found.append(json.loads(output))
    self.assertEqual(found[0], found[1])
    self.assertEqual(found[0], found[2])


if __name__ == "__main__":
  absltest.main()
