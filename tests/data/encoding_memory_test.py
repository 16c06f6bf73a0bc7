import subprocess
import sys

from absl.testing import absltest


def measure(megabytes, *kinds):
  """MB before and at the peak of each; the script itself fails at its limit of 500 MB."""
  output = subprocess.run(
      [sys.executable, "-m", "tests.data.encoding_memory", f"--megabytes={megabytes}",
       "--tokenizers", *kinds],
      check=True, stdout=subprocess.PIPE, text=True).stdout
  rows = [line.split() for line in output.splitlines()[1:]]
  return {kind: (int(before), int(peak)) for kind, *_, before, peak in rows}


class EncodingMemoryTest(absltest.TestCase):

  def test_neither_the_text_nor_its_ids_are_held(self):
    for kind, (before, peak) in measure(30, "char", "byte").items():
      self.assertLess(peak - before, 20, kind)  # each of them would be 30

  def test_vocabularies_are_made_under_the_limit(self):
    self.assertEqual(list(measure(1, "word", "bpe")), ["word", "bpe"])


if __name__ == "__main__":
  absltest.main()
