"""The product of one row and of several, against NumPy; that one row leaves the matrix as it is."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn.product import times
from tests import oracle


class ProductTest(oracle.X64TestCase):

  @parameterized.parameters(((),), ((1,),), ((1, 1),), ((3,),), ((2, 1),), ((2, 3),), ((0,),))
  def test_is_that_of_numpy(self, rows):
    draw = np.random.RandomState(0)
    x, w = draw.normal(size=[*rows, 4]), draw.normal(size=[5, 4])
    found = times(jnp.asarray(x), jnp.asarray(w))
    self.assert_close(found, np.einsum("...d,nd->...n", x, w), 1e-14)

  @parameterized.parameters(((), False), ((1,), False), ((2,), True))
  def test_only_several_rows_turn_the_matrix(self, rows, turned):
    program = str(jax.make_jaxpr(times)(jnp.zeros([*rows, 4]), jnp.zeros([5, 4])))
    self.assertEqual("transpose" in program, turned)


if __name__ == "__main__":
  absltest.main()
