import hashlib
import json
import os
import subprocess
import sys
import tempfile

from absl.testing import absltest, parameterized

from hklm.config import TokenizerConfig
from hklm.data import tokenizers
from hklm.data.bpe import BpeTokenizer
from hklm.data.characters import ByteTokenizer, CharTokenizer
from hklm.data.words import WordTokenizer
from hklm.errors import InputError

TEXT = "To be, or not to be,\nthat is the question: é 中 🙂 \0 <unk>\n"

CONFIGS = (
    TokenizerConfig("char"), TokenizerConfig("byte"), TokenizerConfig("word"),
    TokenizerConfig("word", vocab_size=8, lowercase=True, split_punctuation=True,
                    unknown="<new>", end_of_line="", symbols_in_text=True),
    TokenizerConfig("bpe", vocab_size=270))


class BuildTest(parameterized.TestCase):

  @parameterized.parameters(
      ("char", CharTokenizer), ("byte", ByteTokenizer), ("word", WordTokenizer),
      ("bpe", BpeTokenizer))
  def test_kinds(self, kind, expected):
    tokenizer = tokenizers.build(TokenizerConfig(kind), [TEXT])
    self.assertIsInstance(tokenizer, expected)
    self.assertEqual(tokenizer.kind, kind)
    self.assertEqual(tokenizer.reads_bytes, kind == "byte")

  @parameterized.parameters(*CONFIGS)
  def test_the_same_text_gives_the_same_tokenizer_however_cut(self, config):
    line_end = TEXT.index("\n") + 1
    whole = tokenizers.build(config, [TEXT])
    cut = tokenizers.build(config, iter([TEXT[:line_end], TEXT[line_end:]]))
    self.assertEqual(whole, cut)
    self.assertEqual(whole.fingerprint, cut.fingerprint)

  @parameterized.parameters(*CONFIGS)
  def test_every_id_is_in_range_and_has_a_symbol(self, config):
    tokenizer = tokenizers.build(config, [TEXT])
    self.assertLess(tokenizer.encode(TEXT).max(), tokenizer.vocab_size)
    for token in range(tokenizer.vocab_size):
      self.assertTrue(tokenizer.symbol(token).isprintable())
      self.assertNotEmpty(tokenizer.symbol(token))

  def test_fingerprints_differ_where_content_does(self):
    found = {tokenizers.build(config, [text]).fingerprint
             for config in CONFIGS for text in (TEXT, TEXT + " more text\n" * 9)}
    self.assertLen(found, 2 * len(CONFIGS) - 1)  # the byte tokenizer is always the same

  def test_the_fingerprint_is_of_the_canonical_json(self):
    self.assertEqual(
        CharTokenizer("aé").fingerprint,
        hashlib.sha256(rb'{"alphabet":"a\u00e9","format":1,"kind":"char"}').hexdigest())


class FileTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = os.path.realpath(self.enter_context(tempfile.TemporaryDirectory()))
    self.path = os.path.join(self.folder, "tokenizer.json")

  @parameterized.parameters(*CONFIGS)
  def test_survives_json(self, config):
    tokenizer = tokenizers.build(config, [TEXT])
    values = json.loads(json.dumps(tokenizer.to_json()))
    self.assertEqual(tokenizers.from_json(values), tokenizer)
    self.assertEqual(tokenizers.from_json(values).fingerprint, tokenizer.fingerprint)

  def test_half_a_surrogate_pair_survives(self):
    tokenizers.save(CharTokenizer("a\ud83d"), self.path)
    self.assertEqual(tokenizers.load(self.path), CharTokenizer("a\ud83d"))

  def test_a_new_process_encodes_alike(self):
    expected = []
    for number, config in enumerate(CONFIGS):
      tokenizer = tokenizers.build(config, [TEXT])
      tokenizers.save(tokenizer, f"{self.path}{number}")
      expected.append([tokenizer.fingerprint, tokenizer.encode(TEXT).tolist()])
    program = """
import json, sys
from hklm.data import tokenizers
path, text, count = json.loads(sys.argv[1])
found = [tokenizers.load(f"{path}{number}") for number in range(count)]
print(json.dumps([[t.fingerprint, t.encode(text).tolist()] for t in found]))
"""
    arguments = json.dumps([self.path, TEXT, len(CONFIGS)])
    output = subprocess.run([sys.executable, "-c", program, arguments], check=True,
                            stdout=subprocess.PIPE).stdout
    self.assertEqual(json.loads(output), expected)

  def test_saving_replaces_and_leaves_nothing_else(self):
    tokenizers.save(CharTokenizer("ab"), self.path)
    tokenizers.save(CharTokenizer("xyz"), self.path)
    self.assertEqual(tokenizers.load(self.path), CharTokenizer("xyz"))
    self.assertEqual(os.listdir(self.folder), ["tokenizer.json"])

  def test_a_failed_save_leaves_what_was_there(self):
    tokenizers.save(CharTokenizer("ab"), self.path)
    broken = CharTokenizer("ab")
    object.__setattr__(broken, "alphabet", object())  # JSON cannot hold it
    with self.assertRaises(TypeError):
      tokenizers.save(broken, self.path)
    self.assertEqual(tokenizers.load(self.path), CharTokenizer("ab"))
    self.assertEqual(os.listdir(self.folder), ["tokenizer.json"])

  @parameterized.parameters(
      ({"format": 2}, "found format 2, this version of hklm reads format 1"),
      ({"format": None}, "found format None"),
      ({"kind": "syllable"}, "found kind 'syllable', needed one of char, byte, word, bpe"),
      ({"size": 3, "extra": 1}, "unknown fields extra, size"),
      ({"lowercase": 1}, "found 1 as lowercase, needed <class 'bool'>"),
      ({"words": ["a", 3]}, "as words, needed"),
      ({"words": "ab"}, "found 'ab' as words, needed"),
      ({"words": ["a", "a"]}, "two words or two control symbols have the same spelling"),
      ({"words": ["a b"]}, "found the word 'a b', needed characters without space"))
  def test_other_content_is_refused_by_name(self, change, message):
    values = WordTokenizer(("a", "b")).to_json() | change
    with self.assertRaises(InputError) as raised:
      tokenizers.from_json(values)
    self.assertIn(message, str(raised.exception))
    with open(self.path, "w", encoding="utf-8") as file:
      json.dump(values, file)
    with self.assertRaises(InputError) as raised:
      tokenizers.load(self.path)
    self.assertStartsWith(str(raised.exception), f"{self.path}: tokenizer: ")

  def test_missing_fields_are_named(self):
    values = WordTokenizer(("a", "b")).to_json()
    del values["words"], values["lowercase"]
    with self.assertRaisesRegex(InputError, "missing fields lowercase, words$"):
      tokenizers.from_json(values)

  @parameterized.parameters([[[]]], "text", None, 3)
  def test_json_that_is_no_tokenizer_is_refused(self, values):
    with self.assertRaisesRegex(InputError, "found format"):
      tokenizers.from_json(values)

  def test_no_file_and_no_json_are_refused_with_the_path(self):
    with self.assertRaisesRegex(InputError, f"^{self.path}: No such file"):
      tokenizers.load(self.path)
    for content in (b"{", b"\xff"):
      with open(self.path, "wb") as file:
        file.write(content)
      with self.assertRaisesRegex(InputError, f"^{self.path}: not JSON"):
        tokenizers.load(self.path)


if __name__ == "__main__":
  absltest.main()
