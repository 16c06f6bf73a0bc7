"""The curve of a run is a picture, whatever rows there are."""

import json
import os
import tempfile
import warnings

from absl.testing import absltest, parameterized

from hklm.report import curves

TRAIN = [{"step": n, "train_nats_per_token": 3.0 / n} for n in range(1, 6)]
VALID = [{"step": n, "valid_nats_per_token": 3.5 / n} for n in (2, 4)]
NAN = [{"step": 6, "train_nats_per_token": None}, {"step": 6, "valid_nats_per_token": None}]


class CurvesTest(parameterized.TestCase):

  @parameterized.parameters([[*TRAIN, *VALID]], [TRAIN], [VALID], [[*TRAIN, *NAN]], [NAN], [[]])
  def test_it_is_a_png(self, rows):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    metrics, picture = (os.path.join(folder, name) for name in ("metrics.jsonl", "curves.png"))
    with open(metrics, "w", encoding="utf-8") as file:
      file.writelines(json.dumps(row) + "\n" for row in rows)
    with warnings.catch_warnings(action="error"):  # they would show in a user's terminal
      curves.plot(metrics, picture, "char")
    with open(picture, "rb") as file:
      data = file.read()
    self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at:at + 4], "big") for at in (16, 20))
    self.assertEqual((width, height), (960, 540))


if __name__ == "__main__":
  absltest.main()
