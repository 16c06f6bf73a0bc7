"""Files of .safetensors and .npz that are damaged or hostile: refused, and the line says why."""

import io
import math
import struct
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from hklm.errors import InputError
from hklm.interop import array_files
from tests.interop.torch_files import archive, npy
from tests.interop.weights_test import FileTest

ONES = np.ones([2, 3], np.float32)


def header(entries: str, values: bytes = b"") -> bytes:
  return struct.pack("<Q", len(entries)) + entries.encode() + values


def npy_header(kind: str, shape: str) -> bytes:
  text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n"
  return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode()


class ArrayFaultsTest(FileTest):

  @parameterized.parameters(
      "(True,)", "(-1,)", "(281474976710656,)", "(0x" + "f" * 9000 + ",)", "(1,) ",
      "(" + "1," * 33 + ")", "(" + "281474976710655," * 400 + ")", "(0, 281474976710655, 2)")
  def test_shapes(self, shape):
    data = npy_header("<f4", shape) + bytes(4)
    if shape == "(1,) ":
      self.assert_same(self.read(archive({"a.npy": data})).tensors, {"a": np.zeros(1, np.float32)})
    else:
      self.assert_refused(archive({"a.npy": data}), "a'")

  def test_many_axes_of_safetensors(self):
    shape = "[" + ",".join([str((1 << 48) - 1)] * 10_000) + "]"
    entry = f'{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4]}}}}'
    with mock.patch.object(math, "prod", side_effect=AssertionError("takes a square of them")):
      self.assert_refused(header(entry, bytes(4)), "tensor 'a' of shape that no array has: found "
                          "10000 axes")

  def test_a_long_header_of_safetensors(self):
    entry = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    with mock.patch.object(array_files, "_MOST_HEADER", len(entry)):
      self.assertLen(self.read(header(entry, bytes(4))).tensors, 1)
    with mock.patch.object(array_files, "_MOST_HEADER", len(entry) - 1):
      self.assert_refused(header(entry, bytes(4)), f"with at most {len(entry) - 1}")

  @parameterized.parameters(
      ("{", b"", "no header of"), ('{"a":1}', b"", "no header of"),
      ('{"a":{"dtype":"F32","shape":[1]}}', b"", "no header of"),
      ('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', bytes(4), "no header of"),
      ('{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}', bytes(4), "no header of"),
      ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
       '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4), "no header of"),
      ('{"a":' + "[" * 100_000, b"", "no header of"),
      ('{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}', bytes(4), "type 'F8_E4M3'"),
      ('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', bytes(4), "4 bytes of"),
      ('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(4), "bytes 0 to 8 of 4"),
      ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8), "its beginning at 0"),
      ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
       '"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4), "tensor 'b'"),
      ('{"a":{"dtype":"F32","shape":[0,99999999999,99999999999],"data_offsets":[0,0]}}', b"",
       "tensor 'a'"),
      ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(5), "1 bytes after"),
      ('{"__metadata__":{}}', b"", "no tensor"))
  def test_safetensors(self, entries, values, message):
    self.assert_refused(header(entries, values), message)

  def test_a_header_beyond_the_file(self):
    self.assert_refused(struct.pack("<Q", 100) + b"{}", "a header of 100 bytes in a file of 10")

  @parameterized.parameters(
      (np.array([{}], object), "'object'"), (np.ones(2, np.complex64), "'complex64'"),
      (np.ones(2, [("a", "f4")]), "needed: numbers"), (np.array(["a", "b"]), "found strings"),
      (np.ones(2, "i1,i1"), "needed: numbers"), (np.ones(2, [("a", "V2")]), "needed: numbers"),
      (np.ones(2, np.longdouble), "needed: numbers"), (np.array(b"a"), "needed: numbers"))
  def test_types(self, array, message):
    self.assert_refused(self.npz(weight=array), "array 'weight'", message)

  def test_headers(self):
    for data in (b"", b"\x93NUMPY", b"\x93NUMPY\3\0\1\0 ", b"\x93NUMPY\1\0\x0a\0" + b"(" * 10,
                 b"\x93NUMPY\1\0\xff\x20" + b"(" * 0x20ff, b"\x93NUMPY\2\0\xff\xff\xff\xff{}"):
      self.assert_refused(archive({"a.npy": data}), "array 'a'", "no header of NumPy's")
    whole = io.BytesIO()
    np.save(whole, ONES)
    for data in (whole.getvalue()[:-1], whole.getvalue() + b"\0",
                 whole.getvalue().replace(b"(2, 3)", b"(-2,3)"),
                 whole.getvalue().replace(b"(2, 3)", b"(9, 9)")):
      self.assert_refused(archive({"a.npy": data}), "tensor 'a' of shape")

  def test_vocabularies(self):
    for point, order in ((0x110000, "<"), (0xffffffff, "<"), (0x110000, ">")):
      words = np.array([ord("a"), point], f"{order}u4").view(f"{order}U1")
      for symbols in (True, False):
        with self.assertRaisesRegex(InputError, "array 'tokens': found a vocabulary that is no"):
          self.read(self.npz(a=ONES, tokens=words), symbols=symbols)
    none = npy_header("<U0", "(1000000000,)")
    self.assert_refused(archive({"a.npy": npy(ONES), "tokens.npy": none}),
                        "array 'tokens': found the type '<U0'")
    self.assert_refused(self.npz(a=ONES, tokens=np.array(["a"]), itos=np.array(["b"])), "differ")
    self.assert_refused(self.npz(a=ONES, tokens=np.array([["a"]])),
                        "array 'tokens' of shape [1, 1]")


if __name__ == "__main__":
  absltest.main()
