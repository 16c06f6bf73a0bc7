"""Files that PyTorch wrote once, with what its models said: no PyTorch is needed to read them."""

import numpy as np
from absl.testing import absltest, parameterized

from tests.interop import compared, record

LAYOUTS = sorted(path.name for path in record.RECORDED.iterdir())


class RecordedTest(compared.ComparedTestCase):

  @parameterized.parameters(*LAYOUTS)
  def test_logits_are_pytorchs(self, layout):
    folder = record.RECORDED / layout
    with np.load(folder / "expected.npz") as expected:
      self.check(str(folder), expected)

  def test_all_are_there(self):
    self.assertLen(LAYOUTS, 10)


if __name__ == "__main__":
  absltest.main()
