"""Pairs and contexts from files: every form, and what each mistake is called."""

import gzip
import json
import os
import tempfile

from absl.testing import absltest, parameterized

from hklm.data import comparisons
from hklm.errors import InputError


class FilesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())

  def write(self, name, text):
    path = os.path.join(self.folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode()
    with open(path, "wb") as file:
      file.write(gzip.compress(data) if name.endswith(".gz") else data)
    return path

  def assert_refused(self, read, text, message):
    path = self.write("bad.txt", text)
    with self.assertRaises(InputError) as caught:
      read(path)
    self.assertStartsWith(str(caught.exception), path)
    self.assertIn(message, str(caught.exception).removeprefix(path))
    self.assertNotIn("\n", str(caught.exception))


class PairsTest(FilesTest):

  def read(self, *paths):
    return comparisons.read_pairs(paths)

  def test_a_table_with_a_head(self):
    path = self.write("pairs.tsv", "id\tsentence_bad\tsentence_good\n"
                      "x1\the go\the goes\n\nx2\t\"a \"\"b\"\"\"\t  ünd so \n")
    self.assertEqual(self.read(path), [
        (path, 2, 0, "he goes", "he go", {"id": "x1"}),
        (path, 4, 1, "  ünd so ", 'a "b"', {"id": "x2"})])

  def test_two_columns_without_a_head(self):
    path = self.write("pairs.txt.gz", "he goes\the go\r\nthey go\tthey goes")
    self.assertEqual(self.read(path), [(path, 1, 0, "he goes", "he go", {}),
                                       (path, 2, 1, "they go", "they goes", {})])

  def test_json_lines(self):
    rows = [{"sentence_good": "né", "sentence_bad": "n", "UID": "u", "lexically_identical": True},
            {"sentence_bad": "b", "pairID": "7", "sentence_good": "g"}]
    path = self.write("pairs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    self.assertEqual(self.read(path), [
        (path, 1, 0, "né", "n", {"UID": "u", "lexically_identical": True}),
        (path, 2, 1, "g", "b", {"pairID": "7"})])

  def test_several_files_and_folders_are_numbered_each(self):
    first = self.write("one.tsv", "a\tb\nc\td\n")
    self.write("folder/y.tsv", "e\tf\n")
    self.write("folder/x/z.tsv", "g\th\n")
    folder = os.path.join(self.folder, "folder")
    found = self.read(first, folder + "/")
    self.assertEqual([(pair.file, pair.number, pair.good) for pair in found], [
        (first, 0, "a"), (first, 1, "c"), (f"{folder}/x/z.tsv", 0, "g"),
        (f"{folder}/y.tsv", 0, "e")])

  @parameterized.parameters(
      ("a\tb\nc\n", ", line 2: found 1 cells between tabs; needed: 2 (sentence_good, sen"),
      ("a\tb\tc\n", ", line 1: found 3 cells between tabs; needed: 2"),
      ("a\tb\n\nc\t\n", ', line 3: found sentence_bad ""; needed: a text on one line, not empty'),
      ("sentence_good\tbad\na\tb\n", ", line 1: found the columns sentence_good, bad; needed"),
      ("sentence_good\tsentence_bad\tx\tx\n1\t2\t3\t4\n", ", line 1: found the columns"),
      ("sentence_good\tsentence_bad\n\n", ": nothing to score: found no row; see --pairs"),
      ("\n \n", ": nothing to score: found no row"),
      ('"a\tb\n"c\td\n', ", line 1: unexpected end of data; needed: quotes around"),
      ('{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_good": "a"}\n',
       ", line 2: found sentence_bad null; needed: a text"),
      ('{"sentence_good": "a", "sentence_bad": 3}\n', ", line 1: found sentence_bad 3; needed"),
      ('{"sentence_good": "a", "sentence_bad": "b\\nc"}\n', "needed: a text on one line"),
      ('{"sentence_good": "a", "sentence_bad": "b"}\n[1]\n', ", line 2: found list; needed: a"),
      ('{"sentence_good": "a"\n', ", line 1: found no JSON (Expecting"),
      (b"a\tb\n\xff\tc\n", ": found byte 0xff at byte offset 4"), ("", ": found an empty file"),
  )
  def test_refused(self, text, message):
    self.assert_refused(self.read, text, message)

  def test_no_such_file_names_the_flag(self):
    with self.assertRaisesRegex(InputError, "/no/such: No such file or directory; .*see --pairs$"):
      self.read("/no/such")


class CompletionsTest(FilesTest):

  def read(self, path):
    return comparisons.read_completions(path)

  def test_a_table(self):
    path = self.write("c.tsv", "the keys\t are\t is\t\t\n\n\ta\n")
    self.assertEqual(self.read(path), [(1, "the keys", [" are", " is"], {}), (3, "", ["a"], {})])

  def test_json_lines(self):
    path = self.write("c.jsonl", '{"candidates": ["x", "y"], "context": "", "id": 4}\n')
    self.assertEqual(self.read(path), [(1, "", ["x", "y"], {"id": 4})])

  @parameterized.parameters(
      ("a\tb\nc\n", ", line 2: found candidates []; needed: one or more texts"),
      ("a\tb\t\tc\n", ', line 1: found candidates ["b", "", "c"]; needed'),
      ('{"context": "a"}\n', ", line 1: found candidates null; needed"),
      ('{"context": "a", "candidates": "b"}\n', ', line 1: found candidates "b"; needed'),
      ('{"context": "a", "candidates": [1]}\n', ", line 1: found candidates [1]; needed"),
      ('{"candidates": ["b"]}\n', ", line 1: found context null; needed: a text on one line"),
      ("\n", ": nothing to score: found no row; see --completions"),
  )
  def test_refused(self, text, message):
    self.assert_refused(self.read, text, message)

  def test_a_folder(self):
    self.write("folder/a", "a\tb\n")
    self.write("folder/b", "a\tb\n")
    with self.assertRaisesRegex(InputError, "found a folder; needed: a file; see --completions"):
      self.read(os.path.join(self.folder, "folder"))


if __name__ == "__main__":
  absltest.main()
