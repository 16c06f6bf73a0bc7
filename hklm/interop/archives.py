"""Zip archives whose members are views of the mapped file, as torch and NumPy write them."""

import mmap
import struct
import zipfile
import zlib

from hklm.errors import InputError

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of the name and of what follows it
_MOST_EXPANSION = 20  # weights shrink by a fifth; a thousandfold is a trap
_MOST_DIRECTORY = 16_000_000  # bytes, of 100000 members; objects of them take 10 times that
_SMALL = 1 << 20  # bytes that may be anything, as a few zeros


class _Bounded:
  """The file as `zipfile` reads it, which never asks how large a directory is."""

  def __init__(self, data: mmap.mmap):
    self._data, self.seek, self.tell = data, data.seek, data.tell

  def read(self, size: int | None = None) -> bytes:
    if size is not None and size > _MOST_DIRECTORY:
      raise InputError(f"found a zip archive with a directory of {size} bytes; needed: at most "
                       f"{_MOST_DIRECTORY}")
    return self._data.read(size)


class Archive:
  """A zip archive.

  Attributes:
    names: of its members, in the archive's order.
  """

  def __init__(self, data: mmap.mmap):
    """Reads the directory at the end.

    Raises:
      InputError: no whole archive, a directory of more than 16 MB, a name twice, a member that
        does not fit into the file, or compressed ones that would grow by more than 20 times the
        file.
    """
    self._data = data
    try:
      members = zipfile.ZipFile(_Bounded(data)).infolist()
    except InputError:
      raise
    except (zipfile.BadZipFile, struct.error, ValueError, LookupError, OverflowError,
            NotImplementedError, EOFError) as error:
      raise InputError(f"found a zip archive without a directory at its end ({error}); "
                       "needed: a whole file; copy or download it again") from None
    self._members = {member.filename: member for member in members}
    if len(self._members) < len(members):
      raise InputError("found a zip archive with two members of one name; needed: one of each")
    grown = sum(member.file_size for member in members if member.compress_type)
    if grown > _MOST_EXPANSION * len(data) + _SMALL:
      raise InputError(f"found compressed members that grow to {grown} bytes, from a file of "
                       f"{len(data)}; needed: at most {_MOST_EXPANSION} times the file")
    self.names = tuple(self._members)

  def bytes(self, name: str) -> memoryview:
    """A member's bytes: as they lie in the file, or a copy where they are compressed.

    Raises:
      InputError: damaged, encrypted, or compressed in a way other than deflation.
    """
    member = self._members[name]
    begin, size = member.header_offset, member.compress_size
    header = self._data[begin:begin + _LOCAL_HEADER.size] if begin >= 0 else b""
    if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
      raise _damaged(name, "no header")
    _, name_size, extra_size = _LOCAL_HEADER.unpack(header)
    begin += _LOCAL_HEADER.size + name_size + extra_size
    found = memoryview(self._data)[begin:begin + size]
    if len(found) < size:
      raise _damaged(name, f"{len(found)} bytes instead of {size}")
    if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED,
                                                           zipfile.ZIP_DEFLATED):
      raise InputError(f"found the member {name!r} encrypted, or compressed in a way that is "
                       "not read; needed: as torch.save or numpy.savez writes it")
    if member.compress_type == zipfile.ZIP_DEFLATED:
      try:
        found = memoryview(zlib.decompressobj(-15).decompress(found, member.file_size + 1))
      except zlib.error as error:
        raise _damaged(name, error) from None
    if len(found) != member.file_size:
      raise _damaged(name, f"{len(found)} bytes instead of {member.file_size}")
    # torch writes 0 where it was told to compute none.
    if member.CRC and zlib.crc32(found) != member.CRC:
      raise _damaged(name, "a checksum that differs")
    return found


def _damaged(name: str, what: object) -> InputError:
  return InputError(f"found the member {name!r} of the archive damaged ({what}); needed: a whole "
                    "file; copy or download it again")
