"""The curve of a run is a picture, whatever rows there are."""

import json
import os
import pathlib
import tempfile
import warnings
from unittest import mock

from absl.testing import absltest, parameterized
from matplotlib.figure import Figure

from hklm.report import curves

TRAIN = [{"step": n, "train_nats_per_token": 3.0 / n} for n in range(1, 6)]
VALID = [{"step": n, "valid_nats_per_token": 3.5 / n} for n in (2, 4)]
NOTHING = [{"step": n, "train_nats_per_token": None} for n in (6, 7)]  # all updates were skipped


class CurvesTest(parameterized.TestCase):

  def drawn(self, rows):
    """The path of the picture."""
    folder = self.enter_context(tempfile.TemporaryDirectory())
    metrics, picture = (os.path.join(folder, name) for name in ("metrics.jsonl", "curves.png"))
    with open(metrics, "w", encoding="utf-8") as file:
      file.writelines(json.dumps(row) + "\n" for row in rows)
    with warnings.catch_warnings(action="error"):
      curves.plot(metrics, picture, "char")
    return picture

  @parameterized.parameters(
      [[*TRAIN, *VALID]], [TRAIN], [VALID], [[*TRAIN, *NOTHING]], [NOTHING], [[]])
  def test_it_is_a_png(self, rows):
    data = pathlib.Path(self.drawn(rows)).read_bytes()
    self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at:at + 4], "big") for at in (16, 20))
    self.assertEqual((width, height), (960, 540))

  def test_a_viewer_never_sees_half_of_it(self):
    picture = pathlib.Path(self.drawn(TRAIN))
    before, written = picture.read_bytes(), []

    def half(figure, file, **unused):
      file.write(before[:100])
      file.flush()
      written.append(picture.read_bytes())
      raise OSError("disk full")

    with mock.patch.object(Figure, "savefig", half), self.assertRaises(OSError):
      curves.plot(os.path.join(picture.parent, "metrics.jsonl"), str(picture), "char")
    self.assertEqual([*written, picture.read_bytes()], [before, before])


if __name__ == "__main__":
  absltest.main()
