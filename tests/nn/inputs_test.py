"""A cell's product with its inputs, before the loop over time or within: the same numbers."""

from unittest import mock

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm.nn import cells, stack
from hklm.nn.zoo import gated, lstms, slstm
from tests import oracle

T, B, D, H = 5, 3, 4, 6
XS = np.random.RandomState(0).normal(size=[T, B, D])
MASK = np.array([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]], bool).T
CELLS = {
    "lstm": lambda **its: cells.LSTM(H, 2, learned_state=True, **its),
    "coupled": lambda **its: cells.LSTM(H, input_gate="coupled", **its),
    "peephole_lstm": lambda **its: lstms.PeepholeLSTM(H, **its),
    "layer_norm_lstm": lambda **its: lstms.LayerNormLSTM(H, **its),
    "projected_lstm": lambda **its: lstms.ProjectedLSTM(H, 2, **its),
    "gru": lambda **its: gated.GRU(H, **its),
    "gru_two_biases": lambda **its: gated.GRU(H, 2, **its),
    "vanilla": lambda **its: gated.VanillaRNN(H, 2, **its),
    "slstm": lambda **its: slstm.SLSTM(H, **its),
}
HOW = stack.Reading(weight_dropout=0.4, state_dropout=0.4, zoneout=0.3, zoneout_cell=0.4)
PLAIN = stack.Reading()
WITHOUT_C = ("gru", "gru_two_biases", "vanilla")


def reading(make, how=PLAIN, mask=None):
  """A stack of one cell over `xs [T, B, D]`, as a Haiku transform."""
  def run(xs):
    core = make()
    state = stack.initial_state([core], xs.shape[1], [core.output_size], xs.dtype)
    return stack.unroll([core], xs, state, mask, how)

  return hk.transform(run)


def products(make, input_size):
  """How many matrix products a step of the loop has."""
  run, xs = reading(make), np.zeros([T, B, input_size], np.float32)
  params = jax.eval_shape(run.init, jax.random.key(0), xs)
  eqns = jax.make_jaxpr(run.apply)(params, None, xs).eqns
  loop, = (eqn for eqn in eqns if eqn.primitive.name == "scan")
  return str(loop.params["jaxpr"]).count("dot_general[")


class InputsTest(oracle.X64TestCase):

  @parameterized.named_parameters(*((name, name) for name in CELLS))
  def test_before_the_loop_as_at_every_step(self, name):
    def make():
      return CELLS[name](dtype=jnp.float64)

    how = HOW._replace(zoneout_cell=0.0) if name in WITHOUT_C else HOW
    run = reading(make, how, MASK)
    params = oracle.random_like(jax.eval_shape(run.init, jax.random.key(0), XS))

    def objective(params, xs):
      ys, after = run.apply(params, jax.random.key(1), xs)
      return jnp.sin(ys).sum() + after.output.sum(), (ys, after)

    @jax.jit
    def both(params, xs):
      found = []
      for wide in (0, 10**9):
        with mock.patch.object(stack, "WIDE", wide):
          found.append(jax.value_and_grad(objective, (0, 1), has_aux=True)(params, xs))
      return found

    before, at_every_step = oracle.as_numpy(both(params, XS))
    self.assert_close(before, at_every_step)
    for leaf in jax.tree.leaves(before[1]):
      self.assertGreater(np.abs(leaf).max(), 0)

  @parameterized.parameters(("coupled", 1), ("layer_norm_lstm", 1), ("projected_lstm", 2),
                            ("gru", 2), ("gru_two_biases", 1), ("vanilla", 1), ("slstm", 1))
  def test_of_wide_inputs_no_product_is_left_in_the_loop(self, name, needed):
    self.assertEqual(products(CELLS[name], stack.WIDE * B), needed)
    self.assertEqual(products(CELLS[name], stack.WIDE * B - 1), needed + 1)

  def test_a_derived_cells_own_step_is_made(self):
    class Doubled(gated.VanillaRNN):

      def trace(self, x, state):
        return super().trace(2 * x, state)

    class Called(gated.VanillaRNN):

      def __call__(self, x, state):
        return super().__call__(2 * x, state)

    def read(kind, xs):
      run = reading(lambda: kind(H, dtype=jnp.float64, name="cell"))
      params = oracle.random_like(jax.eval_shape(run.init, jax.random.key(0), xs))
      return run.apply(params, None, xs)

    xs = np.random.RandomState(0).normal(size=[T, B, stack.WIDE * B])
    for kind in (Doubled, Called):
      self.assert_close(read(kind, xs), read(gated.VanillaRNN, 2 * xs))


if __name__ == "__main__":
  absltest.main()
