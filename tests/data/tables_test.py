"""Texts in, from lines and spreadsheets; rows out, and back by other readers."""

import csv
import gzip
import io
import json
import math
import os
import pathlib
import tempfile

from absl.testing import absltest, parameterized

from hklm.data import cuts, tables
from hklm.errors import InputError


class TablesTestCase(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())

  def file(self, name, content):
    path = os.path.join(self.folder, name)
    pathlib.Path(path).write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def items(*args):
  for text, columns, last in tables.items(*args):
    assert last
    yield text, columns


class ItemsTest(TablesTestCase):

  def test_lines(self):
    path = self.file("x.txt", "\ufeffto be\r\n\r\nor\tnot,\x0b\u2028\n\"to\n")
    self.assertEqual([*items(path)],
                     [("to be", {}), ("", {}), ("or\tnot,\x0b\u2028", {}), ('"to', {})])
    self.assertEqual([*items(self.file("y.txt", "a\nb"))], [("a", {}), ("b", {})])
    self.assertEqual([*items(self.file("z.txt", "\n"))], [("", {})])

  @parameterized.parameters(("x.csv", ","), ("x.tsv", "\t"), ("x.csv.gz", ","))
  def test_a_table(self, name, delimiter):
    made = io.StringIO()
    rows = [["item", "sentence", "note"], ["1", 'He said "no",\tthen left.', "a,b"],
            ["2", " ünder ", ""], ["3", "", "x"]]
    csv.writer(made, delimiter=delimiter, lineterminator="\r\n").writerows(rows)
    content = made.getvalue().encode()
    path = self.file(name, gzip.compress(content) if name.endswith(".gz") else content)
    self.assertEqual([*items(path, "sentence")],
                     [(row[1], {"item": row[0], "note": row[2]}) for row in rows[1:]])

  @parameterized.parameters("\t", ",")
  def test_another_file_is_a_table_where_a_column_is_named(self, delimiter):
    path = self.file("x.txt", delimiter.join(["a", "b"]) + "\n" + delimiter.join(["1", "2"]))
    self.assertEqual([*items(path, "b")], [("2", {"a": "1"})])

  @parameterized.parameters(
      ("a,b\n1,2\n", "", "found the columns a, b; needed: --text_column to name the one"),
      ("a,b\n1,2\n", "c", "found the columns a, b; .* found --text_column=c"),
      ("a,a\n1,2\n", "a", "found 2 columns called 'a'; needed: names that differ"),
      ("a,,\n1,,\n", "a", "found 2 columns called ''"),
      ("PK\3\4\x14\0", "a", "found a spreadsheet's own format; needed: it saved as CSV"),
      ('a,b\n"1\n2",3\n', "a", "row 2: found a line feed in a; needed: a text on one line"),
      ("", "a", "found an empty file"),
      ("a,b\n1,2\n1,2,3\n", "a", "row 3 has 3 cells, the first 2"),
      ("a,b\n1,2\n1\n", "a", "row 3 has 1 cells, the first 2"),
      ('a,b\n1,"2\n', "a", "row 2: unexpected end of data"),
      ('a,b\n1,"2"x\n', "a", "row 2: .*expected after"))
  def test_a_table_that_is_none(self, content, column, message):
    with self.assertRaisesRegex(InputError, message) as caught:
      list(tables.items(self.file("x.csv", content), column))
    self.assertNotIn("\n", str(caught.exception))
    self.assertIn("x.csv", str(caught.exception))

  @parameterized.parameters(("x.csv", ";"), ("x.csv", "\t"), ("x.tsv", ","))
  def test_another_separator_than_the_name_says(self, name, delimiter):
    path = self.file(name, "a,b;c".replace(",", delimiter).replace(";", delimiter) + "\n"
                     + delimiter.join("123"))
    self.assertEqual([*items(path, "b")], [("2", {"a": "1", "c": "3"})])

  def test_a_long_line_comes_in_parts(self):
    text = "to be or not " * 100_000  # more than a piece that is read at a time
    found = list(tables.items(self.file("x.txt", f"{text}\nend")))
    self.assertEqual([its.last for its in found], [False] * (len(found) - 2) + [True, True])
    self.assertTrue(list(cuts.whole((its.text, its.last) for its in found)) == [text, "end"])
    self.assertLessEqual(max(len(its.text) for its in found), cuts.PART)

  def test_a_column_alone_keeps_what_separates_elsewhere(self):
    path = self.file("x.csv", 'text\n"to be, or not; to"\n')
    self.assertEqual([*items(path, "text")], [("to be, or not; to", {})])

  def test_blank_rows_and_a_large_cell(self):
    path = self.file("x.csv", "a,b\n,\n1," + "x" * 200_000 + "\n\n,\n")
    self.assertEqual([*items(path, "b")], [("x" * 200_000, {"a": "1"})])

  def test_a_folder_of_tables(self):
    self.file("1.csv", "a\nx\n")
    self.file("2.csv", "a\ny\n")
    with self.assertRaisesRegex(InputError, "found a folder; needed: one table; see --input"):
      tables.items(self.folder, "a")

  def test_a_compressed_table_needs_its_column(self):
    path = self.file("x.csv.gz", gzip.compress(b"a\nx\n"))
    with self.assertRaisesRegex(InputError, "found the columns a; needed: --text_column"):
      list(tables.items(path))

  def test_a_file_that_is_none(self):
    with self.assertRaisesRegex(InputError, "No such file.*; see --input$"):
      list(tables.items(os.path.join(self.folder, "none.csv"), "a"))


class WriterTest(TablesTestCase):

  ROWS = ((1, "naïve", 0.1 + 0.2, math.nan, True), (2, 'a\t"b"', 1e-30, 1e30, False))
  NAMES = ("n", "text", "x", "y", "flag")

  def written(self, form):
    file = io.StringIO()
    write = tables.writer(file, self.NAMES, form)
    for row in self.ROWS:
      write(row)
    return file.getvalue()

  @parameterized.parameters(("tsv", "\t"), ("csv", ","))
  def test_a_table_reads_back(self, form, delimiter):
    names, *rows = csv.reader(io.StringIO(self.written(form)), delimiter=delimiter)
    self.assertEqual(names, [*self.NAMES])
    self.assertEqual(rows, [["1", "naïve", "0.3", "", "1"], ["2", 'a\t"b"', "1e-30", "1e+30", "0"]])

  def test_json_lines_read_back(self):
    first, second = map(json.loads, self.written("jsonl").splitlines())
    self.assertEqual(first, {"n": 1, "text": "naïve", "x": 0.1 + 0.2, "y": None, "flag": True})
    self.assertEqual(second["y"], 1e30)


if __name__ == "__main__":
  absltest.main()
