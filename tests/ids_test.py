"""Ids are checked on the host, and the message says which, where and how many there are."""

import itertools
import os
import tempfile

import numpy as np
from absl.testing import absltest, parameterized

from hklm import ids
from hklm.errors import InputError


class CheckIdsTest(parameterized.TestCase):

  @parameterized.product(dtype=[np.uint8, np.int16, np.uint16, np.int32, np.int64])
  def test_all_ids_of_the_vocabulary_pass(self, dtype):
    ids.check_ids(np.arange(100, dtype=dtype), 100)
    ids.check_ids(np.zeros(0, dtype), 1)

  @parameterized.parameters(
      ([0, 1, 5, 7], "id 5 at position 2 is outside the vocabulary of 5; needed: 0 to 4"),
      ([4, -1], "id -1 at position 1 is outside the vocabulary of 5; needed: 0 to 4"),
      ([2**40], "id 1099511627776 at position 0 is outside the vocabulary of 5; needed: 0 to 4"),
      ([[1, 2]], "ids are int64 of shape [1, 2]; needed: integers [N]"),
      ([0.0, 1.0], "ids are float64 of shape [2]; needed: integers [N]"),
      ([True], "ids are bool of shape [1]; needed: integers [N]"),
  )
  def test_messages(self, values, message):
    with self.assertRaises(InputError) as caught:
      ids.check_ids(np.array(values), 5)
    self.assertEqual(str(caught.exception), message)

  def test_memory_map_is_read_in_blocks_with_positions_in_the_whole(self):
    path = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "ids")
    place = 2 * ids.BLOCK + 3
    written = np.memmap(path, np.uint16, "w+", shape=[place + 10])
    written[:] = 6
    written.flush()
    mapped = np.memmap(path, np.uint16, "r")
    ids.check_ids(mapped, 7)
    written[place] = 65_535
    written.flush()
    with self.assertRaisesRegex(InputError, f"id 65535 at position {place} is outside"):
      ids.check_ids(mapped, 7)


class CoverTest(parameterized.TestCase):

  def test_by_hand(self):
    # 7 targets over 3 streams: 3, 3 and 1; windows of 2.
    (tokens, mask), (tokens_2, mask_2) = ids.cover(np.arange(10, 18), streams=3, window=2)
    np.testing.assert_array_equal(tokens.T, [[10, 11, 12], [13, 14, 15], [16, 17, 0]])
    np.testing.assert_array_equal(mask.T, [[1, 1], [1, 1], [1, 0]])
    np.testing.assert_array_equal(tokens_2.T, [[12, 13, 0], [15, 16, 0], [0, 0, 0]])
    np.testing.assert_array_equal(mask_2.T, [[1, 0], [1, 0], [0, 0]])

  @parameterized.product(tokens=(2, 3, 4, 11, 64, 65), streams=(1, 2, 3, 10, 100),
                         window=(1, 2, 7, 1000))
  def test_each_target_once_after_its_own_input(self, tokens, streams, window):
    numbers = np.arange(tokens) + 1  # no id is the padding
    targets = []
    for w, mask in ids.cover(numbers, streams, window):
      self.assertEqual((w.shape, w.dtype), ((window + 1, streams), np.int32))
      self.assertEqual((mask.shape, mask.dtype), ((window, streams), np.bool_))
      np.testing.assert_array_equal(w[1:][mask], w[:-1][mask] + 1)
      np.testing.assert_array_equal(w[1:][~mask], 0)
      targets += w[1:][mask].tolist()
    self.assertEqual(sorted(targets), list(range(2, tokens + 1)))

  def test_streams_carry_over(self):
    windows = [w for w, mask in ids.cover(np.arange(1, 102), streams=4, window=5)]
    for first, second in itertools.pairwise(windows):
      np.testing.assert_array_equal(first[-1], second[0])

  def test_the_mask_does_not_look_at_ids(self):
    masks = [[mask.tolist() for _, mask in ids.cover(numbers, 3, 4)]
             for numbers in (np.zeros(30, np.uint8), np.arange(30))]
    self.assertEqual(*masks)
    self.assertEqual(np.sum([np.sum(mask) for mask in masks[0]]), 29)

  @parameterized.parameters(0, 1)
  def test_nothing_to_score_is_said_at_once(self, tokens):
    with self.assertRaisesRegex(InputError, f"nothing to score: found {tokens} tokens"):
      ids.cover(np.zeros(tokens, np.int32), 1, 10)

  @parameterized.parameters((0, 1), (1, 0))
  def test_sizes_below_one_are_refused(self, streams, window):
    with self.assertRaisesRegex(InputError, "needed at least 1 each"):
      ids.cover(np.arange(10), streams, window)


  def test_only_what_is_asked_for_is_read(self):
    class Counted(np.ndarray):
      read = 0

      def __getitem__(self, key):
        found = np.asarray(super().__getitem__(key))
        Counted.read += found.size
        return found

    numbers = np.zeros(1_000_000, np.uint8).view(Counted)
    next(ids.cover(numbers, streams=4, window=50))
    self.assertEqual(Counted.read, 4 * 51)


if __name__ == "__main__":
  absltest.main()
