"""Where tokens are in a line: in characters, in bytes, in words.

Dimension letters: N tokens of a line, C its characters.
"""

import numpy as np

from hklm.data.base import Encoding


def both(text: str, encoding: Encoding, in_bytes: bool):
  """Starts and ends `[N]` in characters, and in bytes of UTF-8.

  Args:
    text: the line; a line feed may follow it.
    encoding: of the line.
    in_bytes: whether its offsets count bytes. A byte within a character lies in that character.

  >>> encoding = Encoding(np.zeros(2), np.array([0, 1]), np.array([1, 3]))
  >>> [[found.tolist() for found in pair] for pair in both("né", encoding, in_bytes=True)]
  [[[0, 1], [1, 2]], [[0, 1], [1, 3]]]
  """
  byte_of = _bytes_before(text + "\n")
  starts, ends = encoding.starts, encoding.ends
  if not in_bytes:
    return (starts, ends), (byte_of[starts], byte_of[ends])
  characters = (np.searchsorted(byte_of, starts, side="right") - 1,
                np.searchsorted(byte_of, ends, side="left"))
  return characters, (starts, ends)


def words(text: str, starts: np.ndarray) -> np.ndarray:
  """The index of each token's word, int64 `[N]`.

  Words are what white space separates, and have the white space before them; what is after the
  last word is one more.

  Args:
    text: the line.
    starts: of the tokens, in characters.

  >>> words(" so be it", np.array([0, 1, 3, 4, 6, 9])).tolist()
  [0, 0, 1, 1, 2, 3]
  """
  space = np.array([character.isspace() for character in text] + [True], bool)
  begun = np.cumsum(~space & np.concatenate([[True], space[:-1]]))  # words, this place included
  word_of = np.where(space, begun, begun - 1)  # [C + 1]
  return word_of[starts]  # one that begins with white space is of the word that it goes on with


def size(text: str) -> int:
  """Bytes of UTF-8."""
  return len(text.encode("utf-8", "surrogatepass"))


def _bytes_before(text):
  """How many bytes of UTF-8 are before each character, and in all, int64 `[C + 1]`."""
  codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
  sizes = 1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF)
  return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
