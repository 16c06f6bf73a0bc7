
import numpy as np
from absl.testing import absltest, parameterized

from hklm.data.streams import Streams
from hklm.errors import InputError


class StreamsTest(parameterized.TestCase):

  def test_by_hand(self):
    # 14 ids, 13 targets: 2 streams of 6 targets, 1 left out; windows of 4 and 2 targets.
    streams = Streams(np.arange(100, 114), batch_size=2, length=4)
    self.assertLen(streams, 2)
    self.assertEqual(streams.left_out, 1)
    np.testing.assert_array_equal(streams[0].T, [[100, 101, 102, 103, 104],
                                                 [106, 107, 108, 109, 110]])
    np.testing.assert_array_equal(streams[1].T, [[104, 105, 106], [110, 111, 112]])

  @parameterized.product(tokens=(2, 3, 12, 13, 50, 101), batch_size=(1, 2, 3, 7),
                         length=(1, 3, 4, 11))
  def test_each_target_once_after_its_own_input(self, tokens, batch_size, length):
    if tokens < batch_size * length + 1:
      with self.assertRaises(InputError):
        Streams(np.arange(tokens), batch_size, length)
      return
    streams = Streams(np.arange(tokens), batch_size, length)
    targets = []
    for window in streams:
      self.assertEqual((window.dtype, window.shape[1]), (np.int32, batch_size))
      self.assertBetween(window.shape[0], 2, length + 1)
      np.testing.assert_array_equal(window[1:], window[:-1] + 1)
      targets += window[1:].ravel().tolist()
    expected = (tokens - 1) // batch_size * batch_size
    # The ids count up, so targets are numbered from 1; the last id can only be a target.
    self.assertEqual(sorted(targets), list(range(1, expected + 1)))
    self.assertEqual(streams.left_out, tokens - 1 - expected)
    self.assertBetween(streams.left_out, 0, batch_size - 1)

  def test_windows_follow_each_other_in_every_stream(self):
    streams = Streams(np.arange(1000), batch_size=3, length=10)
    for i in range(len(streams) - 1):
      np.testing.assert_array_equal(streams[i][-1], streams[i + 1][0])

  def test_some_of_the_streams(self):
    whole = Streams(np.arange(100, 114), batch_size=3, length=3)
    some = Streams(whole.ids, 3, 3, columns=range(1, 3))
    self.assertEqual((len(some), some.left_out), (len(whole), whole.left_out))
    for found, expected in zip(some, whole, strict=True):
      np.testing.assert_array_equal(found, expected[:, 1:])

  @parameterized.parameters((1, 1), (4, 5), (32, 64))
  def test_the_border_that_is_refused_is_the_number_printed(self, batch_size, length):
    needed = batch_size * length + 1
    self.assertLen(Streams(np.zeros(needed, np.uint8), batch_size, length), 1)
    with self.assertRaisesRegex(
        InputError, f"found {needed - 1} tokens, needed {needed} for --batch_size={batch_size} "
        f"--bptt={length}; lower"):
      Streams(np.zeros(needed - 1, np.uint8), batch_size, length)

  @parameterized.parameters((0, 1), (1, 0), (-1, -1))
  def test_sizes_below_one_are_refused(self, batch_size, length):
    with self.assertRaisesRegex(InputError, "--batch_size=.*--bptt=.*at least 1"):
      Streams(np.arange(10), batch_size, length)

  def test_windows_outside_are_refused(self):
    streams = Streams(np.arange(10), batch_size=1, length=3)
    for window in (-1, 3):
      with self.assertRaises(IndexError):
        streams[window]

  def test_great_ids_survive(self):
    ids = np.array([0, 65_535, 65_536, 70_000], np.uint32)
    np.testing.assert_array_equal(Streams(ids, 1, 3)[0][:, 0], ids)


class MemoryMapTest(absltest.TestCase):

  def test_only_what_is_asked_for_is_read(self):
    class Counted(np.ndarray):
      read = 0

      def __getitem__(self, key):
        found = np.asarray(super().__getitem__(key))
        Counted.read += found.size
        return found

    ids = np.zeros(1_000_000, np.uint8).view(Counted)
    _ = Streams(ids, batch_size=10, length=20)[3000]
    self.assertEqual(Counted.read, 10 * 21)
    _ = Streams(ids, batch_size=10, length=20, columns=range(4, 7))[3000]
    self.assertEqual(Counted.read, (10 + 3) * 21)


if __name__ == "__main__":
  absltest.main()
