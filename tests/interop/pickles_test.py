"""Pickles read as data: what Python writes is there, what it would run is not."""

import collections
import io
import os
import pickle
import sys
import tempfile
from unittest import mock

from absl.testing import absltest, parameterized

from hklm.errors import InputError
from hklm.interop import pickles, standins, state_dicts


def read(data: bytes):
  return pickles.read(io.BytesIO(data)).value


class Plain:

  def __init__(self):
    self.words = ["a"]


class Slotted:
  __slots__ = ("words",)


class Sequence(list):
  pass


class Mapping(dict):
  pass


class Keyword:

  def __new__(cls, *, word):
    return super().__new__(cls)

  def __getnewargs_ex__(self):
    return (), {"word": "a"}


class Hostile:
  """Would leave a mark, had anything been called."""

  def __init__(self, *call, state=None):
    self.call, self.state = call, state

  def __reduce__(self):
    return (self.call[0], self.call[1:], self.state)


class PicklesTest(parameterized.TestCase):

  @parameterized.product(protocol=list(range(6)), value=[
      (1, -1, 255, 256, 65536, -(1 << 31), 1 << 31, 1 << 70, -(1 << 2100), True, False, None, 1.5),
      {"a": [], "b": (), 3: ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), None: {},
       b"k": "é\n'\\中\U0001f600"},
      [[], ["x" * 300], list(range(2000)), dict.fromkeys(range(2000), "y")],
      collections.OrderedDict(a=1, b=[2])])
  def test_containers(self, protocol, value):
    self.assertEqual(read(pickle.dumps(value, protocol)), value)

  @parameterized.parameters(range(2, 6))
  def test_what_is_shared_or_in_itself_is_so_again(self, protocol):
    value = [[1], {}]
    value.append(value[0])
    value[1]["self"] = value
    found = read(pickle.dumps(value, protocol))
    self.assertIs(found[0], found[2])
    self.assertIs(found[1]["self"], found)

  @parameterized.parameters(range(2, 6))
  def test_objects_are_stand_ins(self, protocol):
    slotted = Slotted()
    slotted.words = 3
    sequence, mapping = Sequence([1, 2]), Mapping(a=1)
    sequence.name = "b"
    plain, slots, values, items, keyword = read(pickle.dumps(
        (Plain(), slotted, sequence, mapping, Keyword(word="a")), protocol))
    for found in (plain, slots, values, items, keyword):
      self.assertIsInstance(found, standins.StandIn)
    self.assertEqual(plain.made_by, f"{__name__}.Plain")
    self.assertEqual(plain.state, {"words": ["a"]})
    self.assertEqual(slots.state, (None, {"words": 3}))
    self.assertEqual((values.values, values.state), ([1, 2], {"name": "b"}))
    self.assertEqual(items.items, {"a": 1})
    self.assertEqual(read(pickle.dumps({1, 2, 3}, protocol)), [1, 2, 3])

  @parameterized.parameters(range(2, 6))
  def test_nothing_is_called_or_imported(self, protocol):
    mark = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "mark")
    hostile = [Hostile(os.mkdir, mark), Hostile(eval, f"__import__('os').mkdir({mark!r})"),
               Hostile(open, mark, "w")]
    found = pickles.read(io.BytesIO(pickle.dumps(hostile, protocol)))
    self.assertTrue(all(isinstance(part, standins.StandIn) for part in found.value))
    self.assertIn(f"{os.mkdir.__module__}.mkdir", found.calls)
    self.assertFalse(os.path.exists(mark))
    before = set(sys.modules)
    read(b"\x80\x02cthis\ns\n)R.")
    read(b"\x80\x02(ithis\ns\n.")
    read(b"\x80\x02(cthis\ns\no.")
    read(b"\x80\x04\x8c\x04this\x8c\x01s\x93)\x81.")
    self.assertNotIn("this", set(sys.modules) - before)

  def test_what_classes_here_are_stays_as_it_is(self):
    # A state for a name, or for what was built from known names, sets nothing.
    read(b"\x80\x02chklm.interop.standins\nStandIn\nN}X\x07\x00\x00\x00made_byK\x01s\x86b.")
    read(b"\x80\x02ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsK\x01sb.")
    self.assertNotIn("made_by", vars(standins.StandIn))

  def test_what_python_2_wrote(self):
    # Words are bytes there, an ordered dict is called with its pairs, old classes are instances.
    data = b"\x80\x02}U\x06tokens](U\x06d\xc3\xa9j\xc3\xa0U\x01\xffes."
    self.assertEqual(state_dicts.symbols(read(data)), ("déjà", "ÿ"))
    pairs = b"](](U\x01aK\x01e](U\x01bK\x02ee\x85R."
    self.assertEqual(read(b"\x80\x02ccollections\nOrderedDict\n" + pairs), {"a": 1, "b": 2})
    found = read(b"\x80\x02(cdata\nDictionary\no}U\x08idx2word]U\x01aasb.")
    self.assertEqual(state_dicts.symbols(found), ("a",))

  @parameterized.parameters(
      b"", b".", b"\x80\x02", b"\x80\x02K", b"\x80\x02\xff.", b"\x80\x02h\x01.", b"\x80\x02)R.",
      b"\x80\x02K\x01K\x02R.", b"\x80\x02K\x01K\x02a.", b"\x80\x02e.", b"\x80\x02}(K\x01u.",
      b"\x80\x02X\xff\xff\xff\xffa.", b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fa.",
      b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffa.", b"\x80\x02\x8b\xff\xff\xff\x7fa.",
      b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x0fa.", b"\x80\x02\x82\x01.", b"\x80\x05\x97.",
      b"\x80\x02K\x01Q.", b"\x80\x02)Q.", b"\x80\x02cab\n", b"\x80\x02X\x01\x00\x00\x00\xff.",
      b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", b"\x80\x02ctorch\nSize\nK\x01R.",
      b"\x80\x02ctorch._utils\n_rebuild_tensor_v3\n(NNNNNNt)R.",
      b"\x80\x02I" + b"1" * 9999 + b"\n.",
      b"\x80\x02ccollections\nOrderedDict\n]K\x01a\x85R.", b"\x80\x040.", b"\x80\x041.")
  def test_damaged(self, data):
    with self.assertRaises(InputError):
      read(data)

  def test_traps(self):
    # A memo of two thousand million places; nesting deeper than any stack; keys that take a
    # square of their number to store, or a stack to hash; a small file that is huge as a tree.
    self.assertEqual(read(b"\x80\x02K\x01r\xff\xff\xff\x7f."), 1)
    deep = b")" + b"\x85" * 150_000
    self.assertIsNone(state_dicts.symbols(read(b"\x80\x02" + deep + b".")))
    self.assertLen(read(b"\x80\x02}(" + deep + b"K\x01u."), 1)
    lists = b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"."
    with self.assertRaisesRegex(InputError, "no state dict"):
      state_dicts.state_dict(read(lists))
    step = ((1 << 61) - 1) << 64  # all these have the same hash
    keys = [b"\x8a\x14" + (step * place).to_bytes(20, "little") + b"N" for place in range(20_000)]
    self.assertLen(read(b"\x80\x02}(" + b"".join(keys) + b"u."), 20_000)
    shared = "x"
    for _ in range(60):
      shared = [shared, shared]
    self.assertIsNone(state_dicts.symbols(read(pickle.dumps(shared, 2))))

  def test_keywords_are_neither_copied_nor_hashed(self):
    deep = b")" + b"\x85" * 300_000
    with self.assertRaisesRegex(InputError, "damaged"):
      read(b"\x80\x02ca\nb\n)](" + deep + b"K\x01\x86e\x92.")
    first, second = read(b"\x80\x02ca\nb\nq\x000}q\x010](h\x00)h\x01\x92h\x00)h\x01\x92e.")
    self.assertIs(first.args[1], second.args[1])

  @parameterized.parameters(
      (b"c_codecs\nencode\n", b"X\x58\x02\x00\x00" + b"a" * 600),
      (b"ccollections\nOrderedDict\n", b"](" + b"K\x01K\x02\x86" * 9 + b"e"))
  def test_copies_of_one_value_are_counted(self, function, value):
    copies = b"](" + b"h\x00h\x01\x85R" * 50 + b"e."
    data = b"\x80\x02" + function + b"q\x00" + value + b"q\x01" + copies
    self.assertLen(read(data), 50)
    with (mock.patch.object(pickles, "_MOST_OPERATIONS", 500),  # 8 or 9 a copy, 200 to make them
          self.assertRaisesRegex(InputError, "more than 500 operations")):
      read(data)

  def test_names_and_shapes_are_short(self):
    # Each of these could be in the file once, and copied in each of a million operations.
    name = b"X\xd0\x07\x00\x00" + b"a" * 2000
    storage = (b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
               b"X\x01\x00\x00\x000NK\x01")
    tensor = b"ctorch._utils\n_rebuild_tensor\n(" + storage + b"tQK\x00"
    axes = b"(" + b"K\x01" * 99 + b"t"
    for data in (name + b"\x8c\x01b\x93", b"c" + b"a" * 2000 + b"\nb\n",
                 storage + b"N" * 9 + b"tQ"):
      with self.assertRaisesRegex(InputError, "damaged"):
        read(b"\x80\x04" + data + b".")
    with self.assertRaisesRegex(InputError, "99 axes with 99 strides"):
      read(b"\x80\x02" + tensor + axes + axes + b"tR.")

  def test_only_tensors_are_rebuilt_of_subclasses(self):
    found = read(b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\nc_codecs\nencode\nca\nb\n"
                 b"X\x01\x00\x00\x00a\x85\x87R.")
    self.assertEqual((found.made_by, found.args), ("a.b", ("a",)))

  def test_too_long(self):
    with (mock.patch.object(pickles, "_MOST_OPERATIONS", 10),
          self.assertRaisesRegex(InputError, "more than 10 operations")):
      read(pickle.dumps(list(range(20)), 2))


if __name__ == "__main__":
  absltest.main()
