"""Every layout of PyTorch's programs, made by the PyTorch that is installed, there and back."""

import importlib.util
import tempfile

import jax
import numpy as np
from absl.testing import absltest, parameterized

from hklm.interop import torch as interop
from tests.interop import compared

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
  import torch

  from tests.interop import foreign


@absltest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class LayoutsTest(compared.ComparedTestCase):

  @parameterized.parameters([(layout,) for layout in (foreign.LAYOUTS if HAS_TORCH else ["none"])])
  def test_logits_are_pytorchs(self, layout):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    model, expected = foreign.make(layout, folder)
    source = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    with jax.enable_x64(expected["logits"].dtype == np.float64):
      run = self.check(folder, expected)
      tensors = interop.export_state_dict(run.config.model, run.params)
    # Bit for bit, whatever the names; under the same names where they are pytorch/examples's.
    self.assertCountEqual([its.tobytes() for its in tensors.values()],
                          [its.tobytes() for its in source.values()])
    if isinstance(model, foreign.WordModel):
      with torch.no_grad():
        for parameter in model.parameters():
          parameter.fill_(7.0)
      model.load_state_dict({name: torch.from_numpy(its.copy()) for name, its in tensors.items()})
      for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), source[name], name)


if __name__ == "__main__":
  absltest.main()
