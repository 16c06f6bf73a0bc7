"""Files that are damaged, hostile or something else: refused, and the line says why."""

import io
import os
import pickle
import random
import zipfile
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from safetensors import numpy as safetensors

from hklm.errors import InputError
from hklm.interop import archives, standins, state_dicts, weights
from tests.interop import torch_files as files
from tests.interop.torch_files import archive, npy
from tests.interop.weights_test import FORMATS, FileTest, lstm, tensors

ONES = np.ones([2, 3], np.float32)


class OtherFilesTest(FileTest):

  @parameterized.parameters(
      (b"", "found an empty file"),
      (b"a text\nof two lines\n", "found a file that begins with b'a text\\nof tw'"),
      (b"  <!DOCTYPE html><html>", "a web page"), (b"<html>", "a web page"),
      (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
      (b"\x1f\x8b\x08\0", "gunzip"), (b"\x89HDF\r\n", "an HDF5 file"), (b"\x93NUMPY\1\0", ".npz"),
      (b"storages" + bytes(249) + b"ustar\x0000" + bytes(300), "a tar archive"),
      (b"\4\0\0\0\1\0\0\0\3\0\0\0V 1\x11\0\0\0torch.FloatTensor", "Torch7"),
      (b"\x80\x02]q\0.", "not one of torch's"), (b"\x80\x02K\x05.", "not one of torch's"),
      (b"\x80\x02cos\nsystem\nU\x06rm -rf\x85R.", "names 'os.system'"),
      (pickle.dumps(0x1950a86a20f9469cfc6c, 2) + pickle.dumps(7, 2), "another version"),
      (b"PK\3\4" + bytes(100), "a zip archive without a directory"),
      (archive({"a.txt": b"b"}), "0 members data.pkl"),
      (archive({"a/data.pkl": b"", "b/data.pkl": b""}), "2 members data.pkl"),
      (archive({"a/data.pkl": b"", "a/constants.pkl": b""}), "TorchScript"),
      (archive({"a/data.pkl": b"", "a/byteorder": b"middle"}), "order of bytes b'middle'"))
  def test_what_it_is_is_said(self, data, message):
    self.assert_refused(data, message, "needed: ")

  def test_no_file(self):
    for path, message in ((self.path, "No such file"), (os.path.dirname(self.path), "a folder"),
                          ("/dev/null", "a pipe or device"), ("a\0b", "null")):
      with self.assertRaisesRegex(InputError, message):
        weights.read(path)


class TorchFaultsTest(FileTest):

  def save(self, form, value):
    return files.FORMATS[form](value)

  @FORMATS
  def test_nothing_of_a_hostile_file_runs(self, form):
    mark = f"{self.path}.mark"
    call = files.Called(files.Name(os.mkdir.__module__, "mkdir"), mark)
    self.assert_refused(self.save(form, call), "no state dict", f"'{os.mkdir.__module__}.mkdir'")
    self.assert_same(self.read(self.save(form, [call, tensors(lstm())])).tensors, lstm())
    self.assertFalse(os.path.exists(mark))

  @FORMATS
  def test_nothing_to_read(self, form):
    for value in (3, [], {"a": {"b": "c"}}, [files.tensor(ONES)], files.module("m.M"),
                  {"state": {"a": files.tensor(ONES)}, "param_groups": []}):
      self.assert_refused(self.save(form, value), "no state dict")

  @FORMATS
  def test_several(self, form):
    two = {"model": tensors(lstm()), "ema": [tensors(lstm(seed=1))]}
    self.assert_refused(self.save(form, two), "found 2 state dicts, 'model', 'ema.0'")
    two["ema"] = two["model"]
    self.assert_same(self.read(self.save(form, two)).tensors, lstm())
    words = tensors(lstm()) | {"a": {"itos": ["a"]}, "b": [{"tokens": ("b",)}]}
    self.assert_refused(self.save(form, words),
                        "2 vocabularies that differ, 'a.itos', 'b.0.tokens'", "--vocabulary")
    self.assert_same(self.read(self.save(form, words), symbols=False).tensors, lstm())
    words["b"] = {"idx2word": {1: "b", 0: "a"}}
    words["a"] = {"itos": ("a", "b")}
    self.assertEqual(self.read(self.save(form, words)).symbols, ("a", "b"))

  @parameterized.product(form=sorted(files.FORMATS), case=[
      (0, (2, 4), (3, 1), "a storage of 6 values; needed: values 0 to 6"),
      (6, (1,), (1,), "values 6 to 6"), (0, (2, 2), (1 << 40, 1), "values 0 to"),
      (0, (7,), (0,), "values 0 to 0 of it, and as many"),
      (0, (1 << 47, 2), (0, 0), "no counts"), (0, (-1,), (1,), "no counts"),
      (0, (2.0,), (1,), "no counts"), (0, (True,), (1,), "no counts"),
      (0, (1 << 40, 0, 1 << 40), (1, 1, 1), "no counts"), (-1, (1,), (1,), "no counts"),
      (0, (2, 3), (1,), "2 axes with 1 strides"), (0, (1,) * 40, (1,) * 40, "at most 32"),
      (0, (1 << 9000,), (1,), "no counts")])
  def test_values_beyond_the_storage(self, form, case):
    offset, size, stride, message = case
    value = {"rnn.weight_hh": files.view(files.Storage(ONES), offset, size, stride)}
    named = () if "counts" in message or "axes" in message or "32" in message else (
        "tensor 'rnn.weight_hh' of shape [",)
    self.assert_refused(self.save(form, value), message, *named)

  @FORMATS
  def test_kinds_that_are_not_read(self, form):
    call = files.tensor(ONES)
    quantized = files.Called(files.Name("torch._utils", "_rebuild_qtensor"), *call.args)
    negative = files.Called(files.REBUILD, *call.args, {"neg": True})
    for value, message in ((quantized, "'torch._utils._rebuild_qtensor'"),
                           (negative, "a conjugate or negative of 'float32'"),
                           (files.tensor(ONES.astype(np.complex64)), "'ComplexFloatStorage'")):
      self.assert_refused(self.save(form, {"a.weight_hh": call, "b": value}), "tensor 'b'", message)

  @FORMATS
  def test_modules_that_compute_something_else(self, form):
    for attribute, message in (({"nonlinearity": "relu"}, "found a recurrent layer of relu"),
                               ({"mode": "RNN_RELU"}, "found a recurrent layer of relu"),
                               ({"max_norm": 1.0}, "found an embedding with max_norm")):
      inner = files.module("torch.nn.M", tensors(lstm()))
      inner.state |= {"nonlinearity": "tanh", "mode": "RNN_TANH", "max_norm": None}
      whole = files.module("m.M", modules={"inner": inner})
      self.assertLen(self.read(self.save(form, whole)).tensors, len(lstm()))
      inner.state |= attribute
      self.assert_refused(self.save(form, whole), "module 'inner'", message)

  @FORMATS
  def test_what_pickle_wrote(self, form):
    storage = files.Called(files.Name("torch.storage", "_load_from_bytes"), b"")
    value = files.Called(files.REBUILD, storage, 0, (1,), (1,))
    self.assert_refused(self.save(form, {"weight_hh": value}), "that Python's pickle has written")

  @FORMATS
  def test_names(self, form):
    for name in ("a\nb", "\x1b[31m", "a" * 2000, "\ud800"):
      self.assert_refused(self.save(form, {name: files.tensor(ONES)}), "a tensor called")
      self.assert_refused(self.save(form, {name: files.view(files.Storage(ONES), 9, (1,), (1,))}))
    self.assert_refused(self.save(form, tensors(lstm()) | {"itos": ["\ud800"]}), "vocabulary")

  def test_modules_without_end(self):
    loop = files.module("m.M", {"weight": files.tensor(ONES)})
    loop.state["_modules"] = {"again": loop}
    self.assert_refused(files.zipped(loop), "a tensor called 'again.again.")
    top = loop
    loop.state["_modules"] = {}
    for _ in range(40):
      top = files.module("m.M", modules={"a": top, "b": top})
    self.assert_refused(files.zipped(top), "more than 100000 modules")

  def test_modules_are_counted_over_the_whole_file(self):
    # Each list, dict and name is in the file once; what they make together is not.
    shared = {str(place): None for place in range(400)}
    empty = files.module("m.M")
    for count, refused in ((200, False), (300, True)):
      tops = [files.module("m.M") for _ in range(count)]
      for top in tops:
        top.state["_parameters"] = {"weight_hh": files.tensor(ONES)} if top is tops[0] else shared
        top.state |= {"_modules": {"a": empty}, "_non_persistent_buffers_set": []}
      data = files.zipped(tops)
      if refused:
        self.assert_refused(data, "more than 100000 modules")
      else:
        self.assertLen(self.read(data).tensors, 1)
    long = files.module("m.M", modules={"a" * 2000: files.module("m.M", {"b": None})})
    self.assert_same(self.read(files.zipped([long, tensors(lstm())])).tensors, lstm())

  @parameterized.parameters(
      ("_buffers", 5), ("_buffers", [1]), ("_parameters", "a"), ("_modules", ("a",)),
      ("_non_persistent_buffers_set", 5), ("_non_persistent_buffers_set", "abc"),
      ("_non_persistent_buffers_set", None))
  def test_modules_whose_parts_are_none(self, name, value):
    module = files.module("m.M")
    module.state["_buffers"] = {3: files.tensor(ONES)}
    module.state[name] = value
    message = "whose buffers are none" if name.endswith("set") else "no state dict"
    self.assert_refused(files.zipped(module), message)

  def test_searches_take_a_time_in_proportion(self):
    # Dicts are told apart by a hash of each: as many comparisons as there are dicts are enough.
    compared = []
    same = standins.Tensor.__eq__
    def counted(one, other):
      compared.append(1)
      return same(one, other)
    storage = files.Storage(np.ones(300, np.float32))
    many = [{"weight": files.view(storage, place, (1,), (1,))} for place in range(300)]
    with mock.patch.object(standins.Tensor, "__eq__", counted):
      self.assert_refused(files.zipped(many), "300 state dicts")
      self.assertLess(len(compared), 300)
    words = ["a"] * 5
    read = mock.Mock(wraps=state_dicts._strings)
    with mock.patch.object(state_dicts, "_strings", read):
      found = self.read(files.zipped(tensors(lstm()) | {"all": [
          {"itos": words, "place": place} for place in range(50)]}))
    self.assertEqual(found.symbols, tuple(words))
    self.assertLen([call for call in read.mock_calls if call.args == (words,)], 1)

  def test_members_missing_or_of_another_size(self):
    whole = zipfile.ZipFile(io.BytesIO(files.zipped({"a.weight_hh": files.tensor(ONES)})))
    members = {name: whole.read(name) for name in whole.namelist()}
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
      self.assert_same(self.read(archive(members, compression)).tensors, {"a.weight_hh": ONES})
    values = members.pop("archive/data/0")
    self.assert_refused(archive(members),
                        "tensor 'a.weight_hh' of shape [2, 3]: found none of the 24")
    for changed in (values[:-1], values + b"\0", b""):
      self.assert_refused(archive(members | {"archive/data/0": changed}),
                          f"found {len(changed)} of")
    bad = archive(members | {"archive/data/0": values}, zipfile.ZIP_BZIP2)
    self.assert_refused(bad, "compressed in a way that is not read")
    flipped = bytearray(files.zipped({"a.weight_hh": files.tensor(ONES)}))
    flipped[flipped.index(values)] ^= 1
    self.assert_refused(bytes(flipped), "tensor 'a.weight_hh'", "a checksum that differs")

  def test_two_members_of_one_name(self):
    first, second = ("a.npy", "b.npy")
    data = archive({first: npy(ONES), second: npy(0 * ONES)})
    self.assertLen(self.read(data).tensors, 2)
    self.assert_refused(data.replace(second.encode(), first.encode()), "two members of one name")

  def test_a_large_directory(self):
    data = archive({name: npy(ONES) for name in ("a.npy", "b.npy")})
    size = data.rindex(b"PK\5\6") - data.index(b"PK\1\2")
    with mock.patch.object(archives, "_MOST_DIRECTORY", size):
      self.assertLen(self.read(data).tensors, 2)
    with mock.patch.object(archives, "_MOST_DIRECTORY", size - 1):
      self.assert_refused(data, f"a directory of {size} bytes; needed: at most {size - 1}")

  def test_bombs(self):
    bomb = bytes(50_000_000)
    for members in ({"a.npy": bomb}, {"a/data.pkl": b"", "a/data/0": bomb}):
      self.assert_refused(archive(members, zipfile.ZIP_DEFLATED), "grow to 50000000 bytes")


class DamageTest(FileTest):

  def damaged(self):
    module = files.module("model.RNNModel", modules={"rnn": files.module("torch.nn.LSTM", {
        "weight_hh_l0": files.parameter(np.ones([4, 1])), "bias": None})}, itos=["a", "b"])
    yield from (files.zipped(module), files.old(module), safetensors.save(lstm()),
                self.npz(a=ONES, tokens=np.array(["a"])), self.npz(np.savez_compressed, a=ONES))

  def test_cut_short_anywhere(self):
    for data in self.damaged():
      for size in range(0, len(data), 50):
        self.assert_refused(data[:size])
      self.assert_refused(data[:-1])

  def test_bits_flipped_anywhere(self):
    randomly = random.Random(0)
    for data in self.damaged():
      for _ in range(300):
        changed = bytearray(data)
        for place in randomly.sample(range(len(data)), randomly.choice((1, 1, 5))):
          changed[place] ^= 1 << randomly.randrange(8)
        try:
          found = self.read(bytes(changed))
        except InputError as error:
          self.assertNotIn("\n", str(error))
        else:
          for array in found.tensors.values():
            self.assertLen(array.tobytes(), array.nbytes)


if __name__ == "__main__":
  absltest.main()
