import gzip
import io
import os
import subprocess
import sys
import tempfile
import unittest.mock

import numpy as np
from absl.testing import absltest, parameterized

from hklm.data import sources
from hklm.errors import InputError


def source_of(data, block=None):
  """A source whose reads return `block` bytes at a time."""

  class Reader(io.BytesIO):
    def read(self, size=-1):
      return super().read(block or size)

  return sources.Source("/texts/name.txt", lambda: Reader(data))


def text_of(data, encoding="utf-8", block=None):
  return "".join(source_of(data, block).read_text(encoding))


class TextTest(parameterized.TestCase):

  @parameterized.product(
      text=("a\r\nb\rc\nd\r\r\n\n\re\r", "\r\n\r\n", "é中🙂\r\né", "plain", ""),
      encoding=("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be", "utf-7", "gb18030"),
      block=(1, 2, 3, 1000))
  def test_lines_and_code_points_survive_read_borders(self, text, encoding, block):
    expected = io.StringIO(text, newline=None).read()  # Python's own universal newlines
    self.assertEqual(text_of(text.encode(encoding), encoding, block), expected)

  @parameterized.product(encoding=("utf-8", "utf-8-sig", "utf-16", "utf-16-be"), block=(1, 2, 1000))
  def test_a_byte_order_mark_is_stripped_once_and_only_at_the_start(self, encoding, block):
    mark = "" if encoding in ("utf-8-sig", "utf-16") else "\ufeff"  # these write it themselves
    data = (mark + "a\ufeffb").encode(encoding)
    self.assertEqual(text_of(data, encoding, block), "a\ufeffb")

  def test_random_line_ends(self):
    rng = np.random.default_rng(0)
    for _ in range(200):
      text = "".join(rng.choice(["\r", "\n", "a"], size=12))
      self.assertEqual(text_of(text.encode(), block=int(rng.integers(1, 5))),
                       text.replace("\r\n", "\n").replace("\r", "\n"))

  @parameterized.parameters(1, 2, 3, 1000)
  def test_bytes_are_untouched(self, block):
    data = b"\xef\xbb\xbfa\r\nb\r\xff\0"
    self.assertEqual(b"".join(source_of(data, block).read_bytes()), data)

  @parameterized.product(
      case=((b"abc\xff", 3, "ff"), (b"\xc3(", 0, "c3"), (b"ab\xe4\xb8", 2, "e4"),
            (b"\r\n\r\n\x80", 4, "80"), ("é中🙂".encode() + b"\xa9", 9, "a9")),
      block=(1, 2, 3, 1000))
  def test_a_byte_that_is_not_valid_is_named(self, case, block):
    data, offset, byte = case
    with self.assertRaises(UnicodeDecodeError) as python:
      data.decode("utf-8")
    self.assertEqual(python.exception.start, offset)
    with self.assertRaises(InputError) as raised:
      text_of(data, block=block)
    message = str(raised.exception)
    self.assertStartsWith(message, f"/texts/name.txt: found byte 0x{byte} at byte offset {offset},")
    self.assertIn("--encoding", message)
    self.assertNotIn("\n", message)

  def test_another_encoding_is_named(self):
    with self.assertRaisesRegex(InputError, "byte 0x81 at byte offset 5, .* not valid cp1252"):
      text_of(b"abcde\x81", "cp1252", block=2)
    with self.assertRaisesRegex(InputError, "name.txt.*utf-16.*--encoding"):
      text_of(b"no mark at all", "utf-16")


class FindTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = os.path.realpath(self.enter_context(tempfile.TemporaryDirectory()))

  def write(self, name, data):
    path = os.path.join(self.folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
      file.write(data)
    return path

  def read(self, path):
    return [b"".join(source.read_bytes()) for source in sources.find(path)]

  def test_a_file_can_be_read_again_and_again(self):
    source, = sources.find(self.write("a.txt", b"text"))
    self.assertEqual([list(source.read_bytes()) for _ in range(2)], [[b"text"]] * 2)

  def test_a_folder_is_all_that_is_not_hidden_in_order(self):
    for name in ("b.txt", "a.txt", "c/d/e.txt", "c/a.txt", ".hidden", ".git/config", "z.gz"):
      self.write(name, gzip.compress(b"z.gz") if name == "z.gz" else name.encode())
    self.assertEqual(self.read(self.folder),
                     [b"a.txt", b"b.txt", b"c/a.txt", b"c/d/e.txt", b"z.gz"])

  def test_gzip_in_several_members(self):
    path = self.write("a.gz", gzip.compress(b"one ") + gzip.compress(b"two"))
    self.assertEqual(self.read(path), [b"one two"])

  def test_paths_are_made_absolute_in_messages(self):
    here = os.getcwd()
    os.chdir(self.folder)
    try:
      with self.assertRaisesRegex(InputError, f"^{self.folder}/no.txt: No such file.*--corpus"):
        sources.find("no.txt")
    finally:
      os.chdir(here)

  @parameterized.parameters(
      ("empty.txt", b"", "found an empty file"), ("empty.gz", gzip.compress(b""), "an empty file"),
      ("text.gz", b"just text", "found broken gzip data"))
  def test_files_without_text_are_refused(self, name, data, message):
    path = self.write(name, data)
    for place in (path, self.folder):
      with self.assertRaisesRegex(InputError, f"^{path}: .*{message}.*--corpus"):
        sources.find(place)

  def test_a_truncated_or_damaged_gzip_file_is_refused_when_read(self):
    whole = gzip.compress(np.random.default_rng(0).bytes(2_000_000))
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for data in (whole[:-1000], bytes(damaged)):
      source, = sources.find(self.write("a.gz", data))
      with self.assertRaisesRegex(InputError, f"^{self.folder}/a.gz: found broken gzip data"):
        list(source.read_bytes())

  def test_a_folder_without_files_is_refused(self):
    os.mkdir(os.path.join(self.folder, "sub"))
    self.write(".hidden", b"text")
    with self.assertRaisesRegex(InputError, f"^{self.folder}: found a folder without files"):
      sources.find(self.folder)

  def test_a_file_that_may_not_be_read_is_refused(self):
    path = self.write("a.txt", b"text")
    # Permissions would not stop a superuser who runs the tests.
    denied = PermissionError(13, "Permission denied")
    with (unittest.mock.patch("builtins.open", side_effect=denied),
          self.assertRaisesRegex(InputError, f"^{path}: cannot be read .Permission denied")):
      sources.find(path)

  def test_a_file_that_disappears_is_refused(self):
    source, = sources.find(path := self.write("a.txt", b"text"))
    os.remove(path)
    with self.assertRaisesRegex(InputError, f"^{path}: cannot be read"):
      list(source.read_bytes())

  def test_standard_input_and_pipes_are_read_more_than_once(self):
    fifo = os.path.join(self.folder, "fifo")
    os.mkfifo(fifo)
    program = """
import sys
from hklm.data import sources
for source in sources.find("-") + sources.find(sys.argv[1]):
  readers = source.read_bytes(), source.read_bytes()
  print(b"".join(readers[0]) == b"".join(readers[1]), len(b"".join(source.read_bytes())))
try:
  sources.find("-")
except ValueError as error:
  print(error)
"""
    with subprocess.Popen([sys.executable, "-c", program, fifo], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
      process.stdin.write(b"x" * 1_000_000)
      process.stdin.close()
      with open(fifo, "wb") as file:
        file.write(b"pipe")
      output = process.stdout.read().decode()
    self.assertEqual(output.splitlines(), [
        "True 1000000", "True 4",
        "standard input: found an empty file, needed text; see --corpus"])

  def test_readers_of_one_copy_do_not_disturb_each_other(self):
    with unittest.mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab" * 500_000))):
      source, = sources.find("-")
    pairs = zip(source.read_bytes(), source.read_bytes(), strict=True)
    self.assertTrue(all(a == b for a, b in pairs))

  @parameterized.parameters("nonsense", "hex", "rot13", "", "utf 99", "a\0b")
  def test_an_unknown_encoding_is_refused(self, name):
    with self.assertRaisesRegex(InputError, "--encoding=.* is unknown"):
      sources.check_encoding(name)


if __name__ == "__main__":
  absltest.main()
