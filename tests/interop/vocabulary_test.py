import os
import pickle
import tempfile

from absl.testing import absltest, parameterized

from hklm.data.characters import CharTokenizer
from hklm.data.words import WordTokenizer
from hklm.errors import InputError
from hklm.interop import vocabulary


class ReadTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())

  def read(self, content, name="vocabulary"):
    path = os.path.join(self.folder, name)
    with open(path, "wb") as file:
      file.write(content)
    return vocabulary.read(path)

  @parameterized.parameters(
      (b"the\n<eos>\n\xc3\xa9\n", ("the", "<eos>", "é")), (b"a\nb", ("a", "b")),
      (b"a\r\nb\r\n", ("a", "b")), (b"\xef\xbb\xbfa\nb\n", ("a", "b")),
      (b" \n\\n\n\\t\n\\r\n\\\\\n\\\n\\na\n", (" ", "\n", "\t", "\r", "\\", "\\", "\\na")),
      (b"\r\na\n\xe2\x80\xa8\n\x0c\n", ("\r", "a", "\u2028", "\x0c")), (b"[\na\n", ("[", "a")),
      (b"[\n]\n", ("[", "]")),
      (b"{\n}", ("{", "}")), (b"3\n", ("3",)),
      (b'["a", "\\n"]', ("a", "\n")), (b'{"b": 1, "a": 0}', ("a", "b")))
  def test_symbols(self, content, expected):
    self.assertEqual(self.read(content), expected)

  @parameterized.parameters(
      (b"a\n\nb\n", "line 2 is empty; needed: a symbol a line, \\n for a line feed"),
      (b"", "line 1 is empty"), (b"a\n\xff\n", "not UTF-8 (byte 2)"),
      (b'["a", 1]', "found 1, needed strings alone"), (b'[["a", 1]]', "found ['a', 1], needed str"),
      (b'{"a": 1, "b": 2}', "found the id 2, needed each of 0 to 1 once"),
      (b'{"a": 0, "b": 0}', "found an id twice"), (b'{"a": 0, "b": "1"}', "found the id '1'"),
      (b'{"a": false, "b": 1}', "found the id False"), (b'{"a": 0.0}', "found the id 0.0"),
      (b'{"a": 0, "b": -1}', "found the id -1"),
      (b'{"a": 1, "b": 1, "a": 0}', "found 'a' twice, needed each symbol once"),
      (pickle.dumps(["a"]), "found a pickle; needed: one symbol a line, or JSON; in Python, json"))
  def test_what_is_refused(self, content, message):
    with self.assertRaises(InputError) as raised:
      self.read(content)
    self.assertIn(message, str(raised.exception))
    self.assertIn(os.path.join(self.folder, "vocabulary: "), str(raised.exception))

  def test_json_by_name_is_json(self):
    with self.assertRaisesRegex(InputError, "not JSON"):
      self.read(b'["a", ', "vocabulary.json")
    self.assertEmpty(self.read(b"[\n]\n", "empty.json"))

  def test_devices_and_pipes(self):
    pipe = os.path.join(self.folder, "pipe")
    os.mkfifo(pipe)
    for path in ("/dev/zero", pipe):
      with self.assertRaisesRegex(InputError, f"^{path}: found a pipe or device; needed: a file"):
        vocabulary.read(path)

  def test_what_a_shell_pipes_is_read(self):
    reader, writer = os.pipe()
    self.addCleanup(os.close, reader)
    with os.fdopen(writer, "wb") as file:
      file.write(b"a\nb\n")
    self.assertEqual(vocabulary.read(f"/dev/fd/{reader}"), ("a", "b"))

  def test_no_more_is_read_than_a_vocabulary_has(self):
    path = os.path.join(self.folder, "weights")
    with open(path, "wb") as file:
      file.truncate(1 << 40)  # a hole: nothing is on the disk
    with self.assertRaisesRegex(InputError, f"^{path}: found more than 67108864 bytes; needed: a"):
      vocabulary.read(path)

  def test_no_file(self):
    with self.assertRaisesRegex(InputError, "No such file or directory; needed"):
      vocabulary.read(os.path.join(self.folder, "none"))


class TokenizerTest(parameterized.TestCase):

  @parameterized.parameters(
      (("b", "\n", "a"), "", CharTokenizer("b\na")),
      (("b", "a"), "word", WordTokenizer(("b", "a"), "", "", symbols_in_text=True)),
      (("the", "<eos>", "<unk>"), "", WordTokenizer(
          ("the",), symbols_in_text=True, control_ids=(2, 1))),
      (("<unk>", "<eos>", "a"), "", WordTokenizer(("a",), symbols_in_text=True)),
      (("the", "<eos>"), "", WordTokenizer(("the",), "", symbols_in_text=True, control_ids=(1,))),
      (("<pad>", "UNK"), "", WordTokenizer(("<pad>", "UNK"), "", "", symbols_in_text=True)))
  def test_kinds(self, symbols, kind, expected):
    its = vocabulary.tokenizer(symbols, len(symbols), kind)
    self.assertEqual(its, expected)
    self.assertEqual([its.symbol(n) for n in range(len(symbols))],
                     [symbol.replace("\n", "\\n") for symbol in symbols])

  def test_control_symbols_by_name(self):
    its = vocabulary.tokenizer(("a", "</s>", "UNK"), 3, unknown="UNK", end_of_line="</s>")
    self.assertEqual(its.encode("a b\nUNK </s>").tolist(), [0, 2, 1, 2, 1])

  @parameterized.parameters(
      (("a", "b"), 3, "", "the vocabulary has 2 symbols, the model 3 ids"),
      (("a", "b", "a"), 3, "", "the vocabulary has 'a' twice"),
      (("a", "<unk>"), 2, "char", "'<unk>' is no character; needed for --tokenizer=char: .* \\\\n"),
      (("a", ""), 2, "char", "'' is no character"), (("a", ""), 2, "", "'' is not a word"),
      (("the", "a b"), 2, "", "'a b' is not a word, which has no white space"),
      (("the", "\n"), 2, "", r"'\\n' is not a word, .* and <eos> for the end of a line"),
      (("a", "b"), 2, "byte", "--tokenizer=byte: a vocabulary is of --tokenizer=char or word"))
  def test_what_is_refused(self, symbols, size, kind, message):
    with self.assertRaisesRegex(InputError, message):
      vocabulary.tokenizer(symbols, size, kind)

  def test_control_symbols_that_are_needed(self):
    its = vocabulary.tokenizer(["a", "UNK"], 2, unknown="UNK", needed=["unknown"])
    self.assertEqual((its.unknown, its.end_of_line), (1, None))
    its = vocabulary.tokenizer(["aa", "UNK"], 2, unknown="", needed=["unknown"])
    self.assertIsNone(its.unknown)
    with self.assertRaisesRegex(InputError, "--end_of_line=<eos> is not in the vocabulary; needed"):
      vocabulary.tokenizer(["aa", "UNK"], 2, unknown="UNK", needed=["unknown", "end_of_line"])


if __name__ == "__main__":
  absltest.main()
