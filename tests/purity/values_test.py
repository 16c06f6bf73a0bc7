"""Objects taken apart, compared and put back."""

import collections
import copy
import enum
import functools
import io
import itertools
import random
import threading
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.purity import values
from hklm.purity.image import taken_of, text
from hklm.purity.parts import ABSENT


class Colour(enum.Enum):
  RED = 1


class Slotted:
  __slots__ = ("__dict__", "a")

  def __init__(self):
    self.a, self.b = 1, [2]


class Number(float):
  pass


def counter(start):
  count = start
  def step():
    return count
  return step


LOOP = [1]
LOOP.append(LOOP)
OTHER_LOOP = [1]
OTHER_LOOP.append(OTHER_LOOP)
PAIR = (1.5, "a")

ALIKE = (
    (float("nan"), float("nan")), ([1, (2, {3})], [1, (2, {3})]), (LOOP, OTHER_LOOP),
    (counter(1), counter(1)), ((PAIR, PAIR), ((1.5, "a"), (1.5, "a"))), (Colour.RED, Colour.RED),
    (jnp.ones(3), jnp.ones(3)), (jax.random.key(1), jax.random.key(1)), (Slotted(), Slotted()),
    ({"a": 1}.items(), {"a": 1}.items()), (random.Random(3), random.Random(3)),
    (np.random.default_rng(3), np.random.default_rng(3)), (Number(2), Number(2)),
)
UNLIKE = (
    (1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (counter(1), counter(2)), (jnp.ones(3), jnp.ones(3, jnp.bfloat16)), (np.ones(2), jnp.ones(2)),
    (jax.random.key(1), jax.random.key(2)), (random.Random(3), random.Random(4)),
    (Number(2), Number(3)), (Number(2), 2.0),
    (functools.partial(max, 1), functools.partial(max, 2)),
    (itertools.count(1), itertools.count(2)), (np.float32(1), np.float64(1)),
    (collections.OrderedDict(a=1), {"a": 1}), (np.ma.array([1], mask=[True]), np.ma.array([1])),
)


class FingerprintTest(parameterized.TestCase):

  @parameterized.parameters(*ALIKE)
  def test_alike(self, one, other):
    self.assertEqual(values.fingerprint(one), values.fingerprint(other))

  @parameterized.parameters(*UNLIKE)
  def test_unlike(self, one, other):
    self.assertNotEqual(values.fingerprint(one), values.fingerprint(other))

  def test_shared_lists_count_and_shared_tuples_do_not(self):
    shared = [1]
    self.assertNotEqual(values.fingerprint([shared, shared]), values.fingerprint([[1], [1]]))
    self.assertEqual(values.fingerprint([PAIR, PAIR]), values.fingerprint([PAIR, (1.5, "a")]))

  def test_too_large(self):
    things = [[i] for i in range(99)]
    with mock.patch.object(values, "NODES", 100):  # the list is one, too
      values.fingerprint(things)
      with self.assertRaises(values.TooLarge):
        values.fingerprint([*things, [], []])


def spoil(thing):
  """Changes an object in place, by what it is."""
  match thing:
    case list():
      thing.append(0)
    case dict():
      thing["spoilt"] = thing.pop(next(iter(thing)))
    case set():
      thing.add(0)
    case collections.deque():
      thing.rotate(1)
    case bytearray():
      thing[0] = 0
    case np.ndarray():
      thing += 1
    case random.Random():
      thing.random()
    case np.random.Generator() | np.random.RandomState():
      thing.normal()
    case io.StringIO():
      thing.write("spoilt")
    case Slotted():
      thing.a, thing.c = 5, 6
      thing.b.append(7)
    case threading.local():
      thing.new = 1


class PutBackTest(parameterized.TestCase):

  @parameterized.parameters(
      lambda: [1, 2], lambda: {"a": 1, "b": 2}, lambda: collections.OrderedDict(a=1, b=2),
      lambda: {1, 2}, lambda: collections.deque([1, 2], maxlen=2), lambda: bytearray(b"ab"),
      lambda: np.arange(3.), lambda: random.Random(1), lambda: np.random.default_rng(1),
      lambda: np.random.RandomState(1), lambda: io.StringIO("abc"), Slotted, threading.local,
      lambda: np.ma.array([1., 2.], mask=[True, False]), lambda: [[1], [{"a": [2]}]])
  def test_what_changed_is_put_back_in_place(self, make):
    thing = make()
    before = values.fingerprint(thing)
    picture = taken_of({"it": thing})
    self.assertEmpty(picture.changes())
    spoil(thing)
    self.assertNotEqual(values.fingerprint(thing), before)
    self.assertNotEmpty(picture.changes())
    self.assertTrue(all(change.path.startswith("it") for change in picture.changes()))
    picture.put_back()
    self.assertEqual(values.fingerprint(thing), before)
    self.assertEmpty(picture.changes())

  def test_an_equal_list_in_its_place_is_a_change_and_an_equal_number_is_none(self):
    holder = {"list": [1], "number": 10**20, "array": jnp.ones(2)}
    picture = taken_of({"it": holder})
    holder["number"], holder["array"] = 10**20, jnp.ones(2)
    self.assertEmpty(picture.changes())
    holder["list"] = [1]
    self.assertLen(picture.changes(), 1)

  def test_copies_are_apart_and_alike(self):
    thing = {"a": [np.ones(2), jnp.ones(2)], "device": jax.devices()[0], "module": copy}
    twin = values.copied(thing)
    self.assertEqual(values.fingerprint(twin), values.fingerprint(thing))
    self.assertIsNot(twin["a"], thing["a"])
    self.assertIs(twin["device"], thing["device"])


class TextTest(parameterized.TestCase):

  @parameterized.parameters(
      ([1, 2.5, None], "[1, 2.5, None]"), (jnp.zeros([3, 4]), "<float32[3, 4]>"),
      (np.array([1, 2]), "array([1, 2])"), (Slotted(), "<Slotted>"), (counter, "<counter>"),
      (iter([1]), "<list_iterator>"), (ABSENT, "absent"))
  def test_is_short_and_calls_nothing_of_the_users(self, value, expected):
    self.assertEqual(text(value), expected)

  def test_of_what_python_does_not_print(self):
    self.assertEqual(text(10**5000), "<int>")


if __name__ == "__main__":
  absltest.main()
