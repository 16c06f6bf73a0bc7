"""Lists of hypotheses in both formats: read, written, and refused by line."""

import os
import tempfile

from absl.testing import absltest, parameterized

from hklm.data import nbest
from hklm.errors import InputError
from tests.training import texts

MOSES = ("0 ||| das  ist ||| LM= -4 TM0= -1 -2 ||| -3.50 ||| 0-0 1-1 ||| x\n"
         "0 |||  ||| LM= 1 |||  2e1\t\n"
         "10 ||| ja ||| LM= 1 ||| -1\n"
         "2 ||| nein ||| LM= 1 ||| -1\n")
KALDI = "a-b-1 yes  it is\na-b-02\tno\nc-1\n"


class FilesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())

  def write(self, name, text):
    return texts.write(self.folder, name, text)


class ListsTest(FilesTest):

  def test_moses(self):
    found = nbest.read(self.write("list", MOSES))
    self.assertEqual([(its.line, its.key, its.id, its.text, its.total) for its in found], [
        (1, "", "0", "das  ist", -3.5), (2, "", "0", "", 20.0), (3, "", "10", "ja", -1.0),
        (4, "", "2", "nein", -1.0)])

  def test_all_but_the_total_is_kept(self):
    first, second, *_ = nbest.read(self.write("list", MOSES))
    self.assertEqual(first.written(-1 / 3),
                     "0 ||| das  ist ||| LM= -4 TM0= -1 -2 ||| -0.333333333333 ||| 0-0 1-1 ||| x")
    self.assertEqual(second.written(-7.0), "0 |||  ||| LM= 1 |||  -7\t")

  def test_a_total_whose_digits_come_again(self):
    self.assertEqual(nbest.parse_moses(1, "1 ||| 1 ||| 1 ||| 1 ||| 1").written(2.0),
                     "1 ||| 1 ||| 1 ||| 2 ||| 1")

  def test_kaldi_with_and_without_costs(self):
    path = self.write("list", KALDI)
    found = nbest.read(path)
    self.assertEqual([(its.line, its.key, its.id, its.text, its.total) for its in found], [
        (1, "a-b-1", "a-b", "yes  it is", 0.0), (2, "a-b-02", "a-b", "no", 0.0),
        (3, "c-1", "c", "", 0.0)])
    self.assertEqual([its.written(5.0) for its in found], KALDI.splitlines())
    costs = self.write("costs", "c-1 2.5\nother-1 9\na-b-02 1\na-b-1   -3\n")
    self.assertEqual([its.total for its in nbest.read(path, costs)], [3.0, -1.0, -2.5])

  @parameterized.parameters(
      ("0 ||| a ||| -1\n", ", line 1: found 3 fields between |||; needed: id ||| text |||"),
      ("0 ||| a ||| s ||| -1\n1 ||| b ||| s ||| x\n", ", line 2: found 'x' as a score; needed"),
      ("0 ||| a ||| s ||| nan\n", ", line 1: found 'nan' as a score"),
      ("0 ||| a ||| s ||| \n", ", line 1: found '' as a score"),
      ("0 ||| a ||| s ||| 1\nu-1 a\n", ", line 2: found 1 fields between |||"),
      ("0 ||| a ||| s ||| 1\n\n", ", line 2: found 1 fields between |||"),
      ("u-1 a\n0 ||| a ||| s ||| 1\n", ", line 2: found '0 ||| a"),
      ("u-1 a\nv b\n", ", line 2: found 'v b'; needed: 'utterance-n text' as Kaldi has it"),
      ("u-1 a\n\n", ", line 2: found ''; needed"),
      ("u-x a\n", ", line 1: found 'u-x a'"), ("-1 a\n", ", line 1: found '-1 a'"),
      ("u-1 a\nu-2 b\nu-1 c\n", ", line 3: found the key u-1 of line 1 again"),
  )
  def test_refused(self, text, message):
    path = self.write("list", text)
    with self.assertRaises(InputError) as caught:
      nbest.read(path)
    self.assertStartsWith(str(caught.exception), path + message)
    self.assertEndsWith(str(caught.exception), "; see --nbest")

  @parameterized.parameters(
      ("c-1 2\na-b-1 3\n", ": found no cost of a-b-02, line 2 of "),
      ("c-1 2 3\n", ", line 1: found 3 words; needed: key and cost"),
      ("c-1 2\na-b-1 inf\n", ", line 2: found 'inf' as a score"))
  def test_costs_that_are_refused(self, text, message):
    costs = self.write("costs", text)
    with self.assertRaises(InputError) as caught:
      nbest.read(self.write("list", KALDI), costs)
    self.assertStartsWith(str(caught.exception), costs + message)
    self.assertEndsWith(str(caught.exception), "; see --nbest_scores")

  def test_costs_of_a_list_that_has_totals(self):
    with self.assertRaisesRegex(InputError, "needed: no --nbest_scores"):
      nbest.read(self.write("list", MOSES), self.write("costs", "0 1\n"))


class ReferencesTest(FilesTest):

  def references(self, list_text, text):
    found = nbest.read(self.write("list", list_text))
    return nbest.read_references(self.write("references", text), found)

  def test_by_id_in_any_order_and_more_than_needed(self):
    self.assertEqual(self.references(KALDI, "c\nd ja\n\na-b\tyes  it is\n"),
                     {"a-b": "yes it is", "c": ""})
    self.assertEqual(self.references(MOSES, "10 ja\n2 nein\n0 das ist\n"),
                     {"0": "das ist", "10": "ja", "2": "nein"})

  def test_of_moses_by_the_order_of_ids(self):
    self.assertEqual(self.references(MOSES, "das ist\nnein\nja ja\n"),
                     {"0": "das ist", "2": "nein", "10": "ja ja"})

  @parameterized.parameters(
      (KALDI, "yes it is\nno\n", ": found no reference of a-b; needed: a line 'id text'"),
      (KALDI, "c x\na-b y\nc z\n", ", line 3: found a second reference of c; needed: one"),
      (MOSES, "das ist\nja\n", ": found no line that starts with 0, and 2 lines for 3 ids"),
      ("x ||| a ||| s ||| 1\n", "das ist\n", ": found no line that starts with x, and ids that"),
      (KALDI, "c\na-b\n", ": found no word in the references"))
  def test_references_that_are_refused(self, list_text, text, message):
    with self.assertRaises(InputError) as caught:
      self.references(list_text, text)
    self.assertStartsWith(str(caught.exception), os.path.join(self.folder, "references") + message)
    self.assertEndsWith(str(caught.exception), "; see --nbest_tune")


if __name__ == "__main__":
  absltest.main()
