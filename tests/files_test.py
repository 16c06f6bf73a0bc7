"""A file is there whole, or as it was before."""

import os
import pathlib
import tempfile

from absl.testing import absltest

from hklm import files
from hklm.errors import InputError


class FilesTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enter_context(tempfile.TemporaryDirectory())
    self.path = pathlib.Path(self.folder, "file")
    self.path.write_bytes(b"older")

  def test_it_is_there_when_all_is_written(self):
    with files.written_whole(str(self.path), "output") as file:
      file.write(b"new")
      file.flush()
      self.assertEqual(self.path.read_bytes(), b"older")
    self.assertEqual(self.path.read_bytes(), b"new")
    self.assertEqual(os.listdir(self.folder), ["file"])

  def test_whatever_goes_wrong_it_is_as_before(self):
    for error, raised in ((KeyboardInterrupt(), KeyboardInterrupt),
                          (OSError(28, "No space left on device"), InputError)):
      with self.assertRaises(raised), files.written_whole(str(self.path), "output") as file:
        file.write(b"half")
        raise error
      self.assertEqual(self.path.read_bytes(), b"older")
      self.assertEqual(os.listdir(self.folder), ["file"])

  def test_a_folder_is_refused_by_the_flags_name(self):
    with (self.assertRaisesRegex(InputError, f"--states={self.folder}: cannot be written"),
          files.written_whole(self.folder, "states")):
      pass
    self.assertEqual(os.listdir(self.folder), ["file"])


if __name__ == "__main__":
  absltest.main()
