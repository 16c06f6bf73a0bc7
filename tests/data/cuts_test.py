import itertools

import numpy as np
from absl.testing import absltest, parameterized

from hklm.config import TokenizerConfig
from hklm.data import cuts, tokenizers

PIECES = ("word", "a", "don't", " ", "  ", "\n", "\n\n", " \n ", "\t", "🙂", "e\u0301", ".", ", ",
          "\u2028", "\u00a0", "中文", "\0", "12", "<eos>")

OPTIONS = (
    {"kind": "char"}, {"kind": "byte"}, {"kind": "word"}, {"kind": "word", "end_of_line": ""},
    {"kind": "word", "lowercase": True, "split_punctuation": True},
    {"kind": "word", "symbols_in_text": True, "split_punctuation": True},
    {"kind": "bpe", "vocab_size": 300})


def random_texts(count, pieces=PIECES):
  rng = np.random.default_rng(0)
  for _ in range(count):
    yield "".join(rng.choice(pieces, size=rng.integers(1, 80)))


class CutTest(parameterized.TestCase):

  @parameterized.parameters(*OPTIONS)
  def test_pieces_tokenize_as_the_whole(self, **options):
    texts = list(random_texts(60))
    tokenizer = tokenizers.build(TokenizerConfig(**options), ["".join(texts), *PIECES])
    cut = 0
    for text in texts:
      pieces = list(cuts.cut([text], size=20, limit=10_000))
      self.assertEqual("".join(pieces), text)
      self.assertEqual([i for piece in pieces for i in tokenizer.encode(piece).tolist()],
                       tokenizer.encode(text).tolist())
      cut += len(pieces) - 1
    self.assertGreater(cut, 100)

  def test_lines_in_parts(self):
    for text in random_texts(100):
      blocks = [text[i:i + 7] for i in range(0, len(text), 7)]
      parts = list(cuts.lines(blocks, size=6))
      lines = text.split("\n")
      self.assertEqual(list(cuts.whole(parts)), lines if lines[-1] else lines[:-1])
      self.assertLessEqual(max(len(part.text) for part in parts), 12)
      for part, after in itertools.pairwise(parts):  # only an empty line is empty
        self.assertTrue(part.text or part.last)
        if not part.last and len(part.text) <= 6:
          self.assertTrue(after.text.startswith(" "), (part, after))

  def test_pieces_are_as_long_as_promised(self):
    for text in random_texts(100):
      blocks = [text[i:i + 7] for i in range(0, len(text), 7)]
      pieces = list(cuts.cut(blocks, size=20, limit=40))
      self.assertEqual("".join(pieces), text)
      self.assertLessEqual(max(map(len, pieces)), 40)
      self.assertNotIn("", pieces)

  def test_a_long_line_is_cut_at_a_space_and_an_endless_word_anywhere(self):
    self.assertEqual(list(cuts.cut(["aaa bbb  ccc\n"], size=6, limit=20)),
                     ["aaa", " bbb  ccc\n"])
    self.assertEqual(list(cuts.cut(["a" * 25], size=5, limit=10)), ["a" * 10, "a" * 10, "a" * 5])
    self.assertEqual(list(cuts.cut([])), [])


class PlaceTest(absltest.TestCase):

  def test_places_against_a_search_of_all(self):
    def is_place(text, i):
      if text[i - 1] == "\n":
        return "line"
      if 0 < i < len(text) - 1 and text[i] == " " and not (text[i - 1] + text[i + 1]).isspace():
        return "space" if text[i - 1].strip() and text[i + 1].strip() else None
      return None

    for text in random_texts(200, ("a", "b", " ", " ", "  ", "\n", "\t")):
      for stop in range(1, len(text)):
        before = [(is_place(text, i), i) for i in range(1, stop + 1)]
        lines, spaces = ([i for kind, i in before if kind == k] for k in ("line", "space"))
        self.assertEqual(cuts.last_cut(text, stop), max(lines or spaces or [0]), (text, stop))
        after = [(is_place(text, i), i) for i in range(stop, len(text))]
        lines, spaces = ([i for kind, i in after if kind == k] for k in ("line", "space"))
        self.assertEqual(cuts.next_cut(text, stop), min(lines or spaces or [0]), (text, stop))


if __name__ == "__main__":
  absltest.main()
