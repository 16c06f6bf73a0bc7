"""Ids are checked on the host, and the message says which, where and how many there are."""

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


if __name__ == "__main__":
  absltest.main()
