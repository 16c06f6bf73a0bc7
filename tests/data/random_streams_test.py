"""Windows of random length: every target once an epoch, few shapes, lengths as they are drawn."""

import numpy as np
from absl.testing import absltest, parameterized

from hklm.data.random_streams import RandomStreams
from hklm.data.streams import Streams


def windows(N, batch_size, length, seed=0, columns=None):
  return RandomStreams(Streams(np.arange(N), batch_size, length, columns), seed)


def lengths(its, epochs):
  return np.array([its.at(n).length for n in range(its.updates_in(epochs))])


class RandomStreamsTest(parameterized.TestCase):

  @parameterized.product(N=[74, 500, 1201], batch_size=[1, 3], length=[4, 17])
  def test_each_target_once_an_epoch_after_its_own_input(self, N, batch_size, length):
    its, number = windows(N, batch_size, length), 0
    for epoch in range(3):
      self.assertEqual(number, its.updates_in(epoch))
      targets, first = [], True
      while True:
        window = its.at(number)
        number += 1
        self.assertEqual(window.first, first)
        live = window.ids[:window.length + 1]
        self.assertEqual((live.dtype, live.shape), (np.int32, (window.length + 1, batch_size)))
        np.testing.assert_array_equal(live[1:], live[:-1] + 1)
        targets += live[1:].ravel().tolist()
        first = False
        if window.last:
          break
      expected = (N - 1) // batch_size * batch_size
      self.assertEqual(sorted(targets), list(range(1, expected + 1)))
    self.assertEqual(its.left_out, N - 1 - expected)

  @parameterized.parameters(8, 35, 70)
  def test_ids_come_in_few_shapes(self, length):
    its = windows(200_001, 2, length)
    shapes = {}
    for n in range(its.updates_in(1)):
      window = its.at(n)
      steps = len(window.ids) - 1
      shapes.setdefault(steps, []).append(window.length)
      self.assertFalse(window.ids[window.length + 1:].any())
      self.assertTrue(steps % 10 == 0 or steps == length + 20)
    self.assertLessEqual(len(shapes), length / 10 + 3)
    for steps, its_lengths in shapes.items():
      self.assertBetween(max(its_lengths), min(its_lengths), steps)
      self.assertGreater(min(its_lengths), steps - 10)

  def test_lengths_are_normal_about_the_window_and_now_and_then_about_its_half(self):
    found = lengths(windows(4_000_001, 4, 70), 1)[:-1]
    halves, wholes = found[found < 53], found[found >= 53]  # 3.5 deviations from either
    count = len(found)
    self.assertBetween(len(halves) / count, 0.05 - 4 * np.sqrt(0.05 / count),
                       0.05 + 4 * np.sqrt(0.05 / count))
    for part, mean in ((halves, 35), (wholes, 70)):  # rounding down takes half of one away
      self.assertAlmostEqual(part.mean(), mean - 0.5, delta=20 / np.sqrt(len(part)))
      self.assertAlmostEqual(part.std(), 5, delta=0.5)
    self.assertBetween(found.max(), 71, 90)

  def test_lengths_have_bounds(self):
    found = lengths(windows(400_001, 1, 6), 1)[:-1]
    self.assertEqual((found.min(), found.max()), (5, 26))
    self.assertGreater((found == 5).mean(), 0.3)

  def test_any_window_can_be_had_by_its_number(self):
    its = windows(2001, 2, 11)
    count = its.updates_in(5)
    forward = [its.at(n) for n in range(count)]
    for n in np.random.RandomState(0).permutation(count):
      found = windows(2001, 2, 11).at(int(n))
      np.testing.assert_array_equal(found.ids, forward[n].ids)
      self.assertEqual(found[1:], forward[n][1:])

  def test_each_epoch_and_each_seed_has_its_own_lengths(self):
    its = windows(2001, 2, 11)
    epochs = [tuple(lengths(its, n + 1)[its.updates_in(n):]) for n in range(4)]
    other = tuple(lengths(windows(2001, 2, 11, seed=1), 1))
    self.assertLen({*epochs, other}, 5)

  def test_some_of_the_streams(self):
    whole, some = windows(500, 3, 12), windows(500, 3, 12, columns=range(1, 3))
    for n in range(whole.updates_in(2)):
      np.testing.assert_array_equal(some.at(n).ids, whole.at(n).ids[:, 1:])
      self.assertEqual(some.at(n)[1:], whole.at(n)[1:])


class FixedTest(parameterized.TestCase):
  """What `Streams` has of the same."""

  def test_windows_come_one_after_the_other_epoch_after_epoch(self):
    streams = Streams(np.arange(101), 2, 8)
    count = len(streams)
    self.assertEqual(streams.updates_in(3), 3 * count)
    for n in range(3 * count):
      window = streams.at(n)
      np.testing.assert_array_equal(window.ids, streams[n % count])
      self.assertEqual(window[1:], (None, n % count == 0, n % count == count - 1))


if __name__ == "__main__":
  absltest.main()
