import hashlib
import math
import os
import tempfile

import numpy as np
from absl.testing import absltest, parameterized

from hklm.config import TokenizerConfig
from hklm.data import corpora, cuts, tokenizers
from hklm.errors import InputError

TRICKY = ("one\r\ntwo\rthree\n\n\n🙂 e\u0301\u0301 \u2028x\n", "\ufeffmark\n", "no final newline",
          "\n\nblank lines\n\n", " ends in a space ", "\r")


def text_of(corpus):
  return "".join(corpus.chunks())


def write(test, *documents):
  """Files 0.txt, 1.txt and so on in a folder that goes when the test ends."""
  folder = test.enter_context(tempfile.TemporaryDirectory())
  paths = [os.path.join(folder, f"{i}.txt") for i in range(len(documents))]
  for path, document in zip(paths, documents, strict=True):
    with open(path, "wb") as file:
      file.write(document)
  return paths


class CorpusTest(parameterized.TestCase):

  def test_documents_are_joined_by_a_line_feed(self):
    paths = write(self, *(document.encode() for document in TRICKY))
    corpus = corpora.open_corpus(paths)
    self.assertEqual(text_of(corpus),
                     "one\ntwo\nthree\n\n\n🙂 e\u0301\u0301 \u2028x\n" "\nmark\n"
                     "\nno final newline" "\n\n\nblank lines\n\n" "\n ends in a space " "\n\n")
    self.assertEqual(b"".join(corpus.chunks(raw=True)), b"\n".join(d.encode() for d in TRICKY))
    self.assertEqual(corpus.documents, 6)

  def test_the_boundary_is_the_end_of_line_of_every_tokenizer(self):
    corpus = corpora.open_corpus(write(self, b"a b", b"b a"))
    for kind in ("char", "byte", "word", "bpe"):
      tokenizer = tokenizers.build(TokenizerConfig(kind), corpus.chunks())
      raw = tokenizer.reads_bytes
      ids = np.concatenate([tokenizer.encode(chunk) for chunk in corpus.chunks(raw)])
      self.assertEqual(np.count_nonzero(ids == tokenizer.end_of_line), 1, kind)

  def test_a_carriage_return_and_a_boundary_are_two_line_ends(self):
    self.assertEqual(text_of(corpora.open_corpus(write(self, b"a\r", b"b"))), "a\n\nb")

  def test_lengths_and_fingerprints(self):
    corpus = corpora.open_corpus(write(self, "é\r\nx".encode()))
    self.assertEqual((corpus.length(), corpus.length(raw=True)), (3, 5))
    self.assertEqual(corpus.fingerprint(), hashlib.sha256("é\nx".encode()).hexdigest())
    self.assertEqual(corpus.fingerprint(raw=True), hashlib.sha256("é\r\nx".encode()).hexdigest())

  def test_paths_keep_their_order_and_one_path_needs_no_list(self):
    paths = write(self, b"first", b"second")
    self.assertEqual(text_of(corpora.open_corpus(paths[::-1])), "second\nfirst")
    self.assertEqual(text_of(corpora.open_corpus(paths[1])), "second")
    self.assertEqual(text_of(corpora.open_corpus(os.path.dirname(paths[0]))), "first\nsecond")

  def test_bad_arguments_are_refused_at_once(self):
    with self.assertRaisesRegex(InputError, "found no path.*--corpus"):
      corpora.open_corpus([])
    with self.assertRaisesRegex(InputError, "--encoding=utf-9 is unknown"):
      corpora.open_corpus(write(self, b"x"), encoding="utf-9")
    with self.assertRaisesRegex(InputError, "/missing: No such file"):
      corpora.open_corpus([*write(self, b"x"), "/missing"])

  def test_other_encodings(self):
    paths = write(self, "naïve".encode("latin-1"))
    self.assertEqual(text_of(corpora.open_corpus(paths, encoding="latin-1")), "naïve")
    with self.assertRaisesRegex(InputError, "0.txt: found byte 0xef at byte offset 2.*--encoding"):
      text_of(corpora.open_corpus(paths))

  def test_chunks_are_bounded_and_tokenize_as_the_whole(self):
    line = "The quick brown fox, jumped e\u0301 over 🙂 the lazy dog. "
    text = line * 20_000 + "\r\n" + ("short\n\n" * 60_000) + "\n"
    corpus = corpora.open_corpus(write(self, text.encode()))
    chunks = list(corpus.chunks())
    whole = text.replace("\r\n", "\n")
    self.assertEqual("".join(chunks), whole)
    self.assertGreater(len(chunks), 5)
    self.assertLessEqual(max(map(len, chunks)), cuts.LIMIT)
    for kind in ("word", "bpe"):
      tokenizer = tokenizers.build(TokenizerConfig(kind, vocab_size=300), [line])
      self.assertEqual([i for chunk in chunks for i in tokenizer.encode(chunk)],
                       tokenizer.encode(whole).tolist())

  def test_the_built_in_corpus(self):
    corpus = corpora.builtin_corpus()
    text = text_of(corpus)
    self.assertBetween(len(text), 400_000, 700_000)
    self.assertIn("The \"assert\" statement", text)
    self.assertEqual(text, text_of(corpora.builtin_corpus()))
    self.assertEqual(corpus.documents, 1)


class PartTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.text = "é1 two\nthree 🙂\n\nfour five\nsix"
    self.corpus = corpora.corpus_of(self.text)

  def test_parts_are_slices(self):
    data = self.text.encode()
    for start in range(len(self.text) + 1):
      for stop in range(start, len(self.text) + 1):
        part = self.corpus.part(start, stop)
        self.assertEqual(text_of(part), self.text[start:stop])
        self.assertEqual(part.length(), stop - start)
    part = self.corpus.part(1, len(data) - 1, raw=True)
    self.assertEqual(b"".join(part.chunks(raw=True)), data[1:-1])

  def test_parts_of_parts(self):
    self.assertEqual(text_of(self.corpus.part(3, 20).part(2, 9)), self.text[3:20][2:9])

  def test_parts_over_documents_and_blocks(self):
    corpus = corpora.open_corpus(write(self, b"a" * 300_000, b"b" * 300_000))
    self.assertEqual(text_of(corpus.part(299_998, 300_003)), "aa\nbb")
    self.assertEqual(corpus.part(0, 10).documents, 2)

  def test_places_outside_and_other_units_are_refused(self):
    for start, stop in ((-1, 3), (4, 3), (0, len(self.text) + 1)):
      with self.assertRaisesRegex(ValueError, "needed 0 <= start <= stop <= 29"):
        self.corpus.part(start, stop)
    with self.assertRaisesRegex(ValueError, "count characters: use raw=False"):
      list(self.corpus.part(1, 2).chunks(raw=True))
    with self.assertRaisesRegex(ValueError, "count bytes: use raw=True"):
      self.corpus.part(1, 2, raw=True).length()


class SplitTest(parameterized.TestCase):

  def test_tenths_of_tiny_shakespeare(self):
    # Its 1,115,394 characters are split like this by torch-rnn: 111,539 each.
    corpus = corpora.corpus_of("x" * 1_115_394)
    train, valid, test = corpus.split(0.1, 0.1)
    self.assertEqual((train.start, train.stop), (0, 892_316))
    self.assertEqual((valid.start, valid.stop), (892_316, 1_003_855))
    self.assertEqual((test.start, test.stop), (1_003_855, 1_115_394))

  @parameterized.product(valid=(0.0, 0.1, 0.33), test=(0.0, 0.25), raw=(False, True),
                         length=(1, 7, 30, 101))
  def test_sizes(self, valid, test, raw, length):
    parts = corpora.corpus_of("a" * length).split(valid, test, raw=raw)
    sizes = [part.length(raw) for part in parts]
    self.assertEqual(sizes[1:], [math.floor(valid * length), math.floor(test * length)])
    self.assertEqual(sum(sizes), length)

  def test_parts_follow_each_other(self):
    text = "".join(map(chr, range(200, 300)))
    parts = corpora.corpus_of(text).split(0.2, 0.1)
    self.assertEqual([text_of(part) for part in parts], [text[:70], text[70:90], text[90:]])
    data = text.encode()
    parts = corpora.corpus_of(text).split(0.2, 0.1, raw=True)
    self.assertEqual([b"".join(part.chunks(raw=True)) for part in parts],
                     [data[:140], data[140:180], data[180:]])

  @parameterized.parameters(
      # 20 characters, borders at 12 and 16. In the first, both lines start there already.
      ("0123456789a\nbcd\nefg\n", [12, 16]),
      ("01234567\n9abc\nefghi\n", [14, 20]),
      ("0123456789abcd\nf\nhi\n", [15, 17]),
      # No line starts after the border: the next space; or nothing is left.
      ("ab cd ef gh ij kl mn", [14, 17]),
      ("0123456789abcdefghij", [20, 20]))
  def test_at_lines(self, text, borders):
    _, valid, test = corpora.corpus_of(text).split(0.2, 0.2, at_lines=True)
    self.assertEqual([valid.start, test.start], borders)
    self.assertEqual([valid.stop, test.stop], [borders[1], len(text)])

  def test_lines_and_words_survive(self):
    rng = np.random.default_rng(0)
    for _ in range(50):
      text = "".join(rng.choice(["word", " ", "\n", "e\u0301"], size=60))
      parts = [text_of(part) for part in corpora.corpus_of(text).split(0.2, 0.2, at_lines=True)]
      self.assertEqual("".join(parts), text)
      self.assertEqual([word for part in parts for word in part.split()], text.split())

  @parameterized.parameters((-0.1, 0), (0, -0.1), (0.5, 0.5), (1, 0), (0, math.nan))
  def test_other_fractions_are_refused(self, valid, test):
    with self.assertRaisesRegex(InputError, "--valid_fraction=.*--test_fraction="):
      corpora.corpus_of("text").split(valid, test)


if __name__ == "__main__":
  absltest.main()
