import numpy as np
from absl.testing import absltest, parameterized

from hklm.data import base


class IdDtypeTest(parameterized.TestCase):

  @parameterized.parameters(
      (1, "uint8"), (256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "uint32"),
      (1_000_000, "uint32"))
  def test_the_greatest_id_fits(self, vocab_size, name):
    dtype = base.id_dtype(vocab_size)
    self.assertEqual(dtype.name, name)
    self.assertEqual(int(np.array([vocab_size - 1]).astype(dtype)[0]), vocab_size - 1)


class DecodeUtf8Test(absltest.TestCase):

  def test_any_division_of_valid_utf8_gives_the_text(self):
    text = "aé中🙂\0e\u0301\n"
    data = text.encode()
    rng = np.random.default_rng(0)
    for _ in range(50):
      borders = sorted(rng.integers(0, len(data) + 1, size=5))
      pieces = [data[a:b] for a, b in zip([0, *borders], [*borders, len(data)], strict=True)]
      self.assertEqual("".join(base.decode_utf8(pieces)), text)

  def test_any_bytes_decode_as_python_decodes_them(self):
    rng = np.random.default_rng(1)
    for _ in range(200):
      # Mostly from the top: lead and continuation bytes in the wrong places.
      data = bytes(rng.choice([0x41, 0x80, 0xA9, 0xC3, 0xE4, 0xF0, 0xFF], size=8).tolist())
      self.assertEqual("".join(base.decode_utf8(data[i:i + 1] for i in range(8))),
                       data.decode("utf-8", errors="replace"))

  def test_text_comes_when_it_is_certain_and_a_cut_tail_is_marked(self):
    pieces = [b"\xf0", b"\x9f", b"\x99\x82", b"ok", b"\xf0\x9f"]
    self.assertEqual(list(base.decode_utf8(pieces)), ["", "", "🙂", "ok", "", "\ufffd"])


if __name__ == "__main__":
  absltest.main()
