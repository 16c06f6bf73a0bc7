"""Masks of weights, states and rows, zoneout and penalties, beside NumPy."""

import dataclasses
from unittest import mock

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from hklm.nn import cells, dropout, embedding, regularisers, stack
from tests import oracle

T, B, D, H, V = 5, 3, 4, 6, 7
DRAW = np.random.RandomState(0)
XS = DRAW.normal(size=[T, B, D])


def lstm(name="lstm"):
  return cells.LSTM(H, dtype=jnp.float64, name=name)


def transformed(function, *args):
  """A function inside a Haiku transform, and parameters for it."""
  its = hk.transform(function)
  return its.apply, oracle.random_like(jax.eval_shape(its.init, jax.random.key(0), *args))


def numpy_lstm(params, xs, state, read=lambda h, t: h, after=lambda old, new, t: new):
  """Outputs [T, B, H] and the state of an LSTM, by NumPy."""
  w_ih, w_hh, b = (np.asarray(params[name]) for name in ("w_ih", "w_hh", "b"))
  (h, c), ys = state, []
  for t, x in enumerate(xs):
    i, f, g, o = np.split(x @ w_ih.T + read(h, t) @ w_hh.T + b, 4, axis=-1)
    i, f, o = (1 / (1 + np.exp(-z)) for z in (i, f, o))
    new_c = f * c + i * np.tanh(g)
    h, c = after((h, c), (o * np.tanh(new_c), new_c), t)
    ys.append(h)
  return np.stack(ys), (h, c)


def start():
  draw = np.random.RandomState(1)
  return draw.normal(size=[B, H]), draw.normal(size=[B, H])


class WeightDropoutTest(oracle.X64TestCase, parameterized.TestCase):

  @parameterized.parameters("scan", "fused")
  def test_one_mask_for_all_steps_on_the_recurrent_matrix_alone(self, impl):
    def run(xs, h, c):
      core = lstm()
      state = cells.LSTMState(h, c)
      with regularisers.weight_dropout(core, xs, state, 0.4):
        masked = core.parameters(D)
        ys, after = (core.sequence(xs, state, None, "fused") if impl == "fused" else
                     hk.scan(lambda s, x: core(x, s)[::-1], state, xs)[::-1])
      return masked, core.parameters(D), ys, after

    h, c = start()
    apply, params = transformed(run, XS, h, c)
    masked, plain, ys, after = apply(params, jax.random.key(3), XS, h, c)
    for n in (0, 2):
      np.testing.assert_array_equal(masked[n], plain[n])
    w, kept = np.asarray(masked[1]), np.asarray(plain[1])
    self.assertBetween((w == 0).mean(), 0.25, 0.55)
    self.assert_close(w[w != 0], (kept / 0.6)[w != 0])
    needed, (h_needed, c_needed) = numpy_lstm({**params["lstm"], "w_hh": w}, XS, (h, c))
    self.assert_close(ys, needed)
    self.assert_close(after.h, h_needed)
    self.assert_close(after.c, c_needed)
    again, *_ = apply(params, jax.random.key(4), XS, h, c)
    self.assertGreater(abs(np.asarray(again[1]) - w).max(), 0)
    unmasked, *_ = apply(params, None, XS, h, c)
    np.testing.assert_array_equal(unmasked[1], kept)

  def test_layers_have_masks_of_their_own_and_the_gradient_is_masked(self):
    lm = hklm.language_model(hklm.ModelConfig(V, H, H, 2, weight_dropout=0.5, dtype="float64"))
    params = oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)))
    tokens = DRAW.randint(V, size=[T + 1, B])

    def loss(params):
      losses, _ = lm.loss(params, jax.random.key(1), tokens[:-1], tokens[1:],
                          lm.initial_state(params, B))
      return losses.nats.sum()

    slopes = jax.grad(loss)(params)
    first, second = (np.asarray(slopes[f"lstm_{n}"]["w_hh"]) == 0 for n in (0, 1))
    for zeros in (first, second):
      self.assertBetween(zeros.mean(), 0.3, 0.7)
    self.assertBetween((first == second).mean(), 0.3, 0.7)
    self.assertTrue((np.asarray(slopes["lstm_0"]["w_ih"]) != 0).all())

  def test_a_cell_without_such_a_matrix_is_refused(self):
    with self.assertRaisesRegex(InputError, "--weight_dropout=0.5: the cell has no parameter "
                                "called w_hh; needed: the names of its recurrent matrices"):
      hklm.language_model(hklm.ModelConfig(V, D, H, weight_dropout=0.5),
                          cell=lambda layer, size: hk.GRU(size))

  def test_parameters_do_not_depend_on_what_is_dropped(self):
    changes = {"weight_dropout": 0.5, "state_dropout": 0.5, "embedding_dropout": 0.5,
               "zoneout": 0.5, "zoneout_cell": 0.5}
    plain, dropping = (hklm.language_model(hklm.ModelConfig(V, D, H, 2, **its)).init(
        jax.random.key(0)) for its in ({}, changes))
    jax.tree.map(np.testing.assert_array_equal, plain, dropping)

  def test_a_lookup_is_read_too(self):
    config = hklm.ModelConfig(V, 8, H, weight_dropout=0.5, dtype="float64")
    lm = hklm.language_model(config)
    params = lm.init(jax.random.key(0))  # V 7, E 8: the first layer multiplies the rows out itself
    tokens = DRAW.randint(V, size=[T, B])
    state = lm.initial_state(params, B)
    scanned = hklm.language_model(dataclasses.replace(config, lstm_impl="scan"))
    for key in (None, jax.random.key(5)):
      self.assert_close(lm.unroll(params, key, tokens, state)[0],
                        scanned.unroll(params, key, tokens, state)[0])


class StateTest(oracle.X64TestCase, parameterized.TestCase):

  def unrolled(self, how, key, masks=None):
    def run(xs, h, c):
      state = stack.State((cells.LSTMState(h, c),), h)
      return stack.unroll([lstm()], xs, state, None, how)

    h, c = start()
    apply, params = transformed(run, XS, h, c)
    if masks is not None:
      with mock.patch.object(regularisers, "draw", lambda *unused_args: masks):
        return params["lstm"], (h, c), apply(params, key, XS, h, c)
    return params["lstm"], (h, c), apply(params, key, XS, h, c)

  @parameterized.parameters("scan", "fused")
  def test_state_dropout_is_on_what_the_gates_read(self, impl):
    keep = np.random.RandomState(2).rand(B, H) < 0.7
    how = stack.Reading(impl, state_dropout=0.3)
    params, state, (ys, after) = self.unrolled(how, jax.random.key(0),
                                               regularisers.Masks(keep, None))
    needed, (h, c) = numpy_lstm(params, XS, state, read=lambda h, t: keep * h / 0.7)
    self.assert_close(ys, needed)
    self.assert_close(after.cells[0].h, h)
    self.assert_close(after.cells[0].c, c)
    params, state, (ys, _) = self.unrolled(how, None)
    self.assert_close(ys, numpy_lstm(params, XS, state)[0])

  def test_zoneout_keeps_elements_as_they_were(self):
    draw = np.random.RandomState(2)
    stays = draw.rand(T, B, H) < 0.3, draw.rand(T, B, H) < 0.5
    how = stack.Reading("fused", zoneout=0.3, zoneout_cell=0.5)
    params, state, (ys, after) = self.unrolled(how, jax.random.key(0),
                                               regularisers.Masks(None, stays))

    def zoned(old, new, t):
      return tuple(np.where(its[t], *pair) for its, *pair in zip(stays, old, new, strict=True))

    needed, (h, c) = numpy_lstm(params, XS, state, after=zoned)
    self.assert_close(ys, needed)
    self.assert_close(after.cells[0].h, h)
    self.assert_close(after.cells[0].c, c)

  @parameterized.parameters((0.3, 0.0), (0.0, 0.5), (0.3, 0.5))
  def test_zoneout_is_its_expectation_in_evaluation(self, rate, rate_cell):
    how = stack.Reading("fused", zoneout=rate, zoneout_cell=rate_cell)
    params, state, (ys, after) = self.unrolled(how, None)

    def expected(old, new, unused_t):
      return tuple(r * before + (1 - r) * its
                   for r, before, its in zip((rate, rate_cell), old, new, strict=True))

    needed, (h, c) = numpy_lstm(params, XS, state, after=expected)
    self.assert_close(ys, needed)
    self.assert_close(after.cells[0].h, h)
    self.assert_close(after.cells[0].c, c)

  @parameterized.parameters((0.3, 0.0), (0.0, 0.4))
  def test_of_one_kind_alone_the_other_is_not_drawn(self, rate, rate_cell):
    def run():
      state = cells.LSTMState(jnp.zeros([B, H]), jnp.zeros([B, H]))
      return regularisers.draw(state, T, 0.0, rate, rate_cell)

    keep, stays = hk.transform(run).apply({}, jax.random.key(0))
    self.assertIsNone(keep)
    self.assertEqual([its is not None for its in stays], [rate > 0, rate_cell > 0])

  def test_zoneout_needs_an_output_that_is_carried(self):
    with self.assertRaisesRegex(InputError, "--zoneout=0.5 is for a cell whose state is a Name"):
      hklm.language_model(hklm.ModelConfig(V, D, H, zoneout=0.5),
                          cell=lambda layer, size: hk.GRU(size))

  def test_masks_have_their_shares_and_shapes(self):
    def run():
      state = cells.LSTMState(jnp.zeros([40, 50]), jnp.zeros([40, 50]))
      return regularisers.draw(state, 30, 0.2, 0.3, 0.4)

    keep, (h, c) = hk.transform(run).apply({}, jax.random.key(0))
    self.assertEqual((keep.shape, h.shape, c.shape), ((40, 50), (30, 40, 50), (30, 40, 50)))
    for its, share in ((keep, 0.8), (h, 0.3), (c, 0.4)):
      self.assertAlmostEqual(float(its.mean()), share, delta=0.05)
    self.assertEqual(hk.transform(run).apply({}, None), (None, None))
    for its in (h, c):  # fresh at every step
      self.assertBetween(float((its[0] == its[1]).mean()), 0.4, 0.7)

  def test_traces_show_what_was_read(self):
    config = hklm.ModelConfig(V, 3, H, 2, zoneout=0.3, zoneout_cell=0.2, connections="residual",
                              dtype="float64")
    lm = hklm.language_model(config)
    params = oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)))
    tokens, state = DRAW.randint(V, size=[T, B]), lm.initial_state(params, B)
    below, top = lm.activations(params, tokens, state)
    hidden, after = lm.hidden(params, None, tokens, state)
    self.assert_close(below.output + top.output, hidden)
    self.assert_close(top.cell[-1], after.cells[1].c)


class RowsTest(oracle.X64TestCase):

  def test_rows_go_as_a_whole(self):
    tokens = np.arange(400).reshape(20, 20) % 100
    x = np.ones([20, 20, 3])
    run = hk.transform(lambda: embedding.row_dropout(x, tokens, 100, 0.25))
    found = np.asarray(run.apply({}, jax.random.key(0)))
    rows = found.reshape(4, 100, 3)
    np.testing.assert_array_equal(rows, np.broadcast_to(rows[:1, :, :1], rows.shape))
    self.assertEqual(set(found.ravel().round(12)), {0.0, round(1 / 0.75, 12)})
    self.assertBetween((rows[0, :, 0] == 0).mean(), 0.1, 0.4)
    np.testing.assert_array_equal(run.apply({}, None), x)

  def test_a_model_uses_them_in_training_alone(self):
    lm = hklm.language_model(hklm.ModelConfig(V, 3, H, embedding_dropout=0.5, dtype="float64"))
    plain = hklm.language_model(hklm.ModelConfig(V, 3, H, dtype="float64"))
    params = oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)))
    tokens, state = DRAW.randint(V, size=[T, B]), lm.initial_state(params, B)
    self.assert_close(lm.unroll(params, None, tokens, state)[0],
                      plain.unroll(params, None, tokens, state)[0])
    slope = jax.grad(lambda params: lm.hidden(
        params, jax.random.key(2), jnp.arange(V)[:, None].repeat(B, 1), state)[0].sum())(params)
    lost = (np.asarray(slope["embedding"]["table"]) == 0).all(axis=1)
    self.assertBetween(lost.sum(), 1, V - 1)


class PenaltiesTest(oracle.X64TestCase):

  def test_they_are_the_published_means(self):
    h, dropped = DRAW.normal(size=[2, T, B, D])
    found = regularisers.penalties(h, dropped, 2.0, 3.0, None)
    needed = 2 * (dropped**2).mean() + 3 * ((h[1:] - h[:-1])**2).mean()
    self.assert_close(found.sum() / (T * B), needed)

  def test_where_rows_end_early(self):
    h, dropped = DRAW.normal(size=[2, T, B, D])
    lengths = [5, 1, 3]
    live = np.arange(T)[:, None] < np.array(lengths)
    found = regularisers.penalties(h, dropped, 2.0, 3.0, live)
    squares = [(dropped[:n, b]**2).mean(-1) for b, n in enumerate(lengths)]
    changes = [((h[1:n, b] - h[:n - 1, b])**2).mean(-1) for b, n in enumerate(lengths)]
    self.assert_close(found.sum() / live.sum(), 2 * np.concatenate(squares).mean()
                      + 3 * np.concatenate(changes).mean())
    np.testing.assert_array_equal(found[~live], 0)

  def test_a_single_step_has_no_change(self):
    found = regularisers.penalties(np.ones([1, B, D]), np.ones([1, B, D]), 1.0, 5.0, None)
    np.testing.assert_array_equal(found, np.ones([1, B]))

  def test_the_loss_has_them_in_training_alone(self):
    config = hklm.ModelConfig(V, 3, H, activation_penalty=2.0, change_penalty=1.0,
                              output_dropout=0.4, dtype="float64")
    lm = hklm.language_model(config)
    params = oracle.random_like(jax.eval_shape(lm.init, jax.random.key(0)))
    tokens, state = DRAW.randint(V, size=[T + 1, B]), lm.initial_state(params, B)
    losses, _ = lm.loss(params, None, tokens[:-1], tokens[1:], state)
    np.testing.assert_array_equal(losses.penalty, 0)
    losses, _ = lm.loss(params, jax.random.key(0), tokens[:-1], tokens[1:], state)
    h, _ = lm.hidden(params, None, tokens[:-1], state)  # its only dropout is that of the output
    # The mask is the model's first draw.
    read = hk.transform(lambda: dropout.dropout(h, 0.4, False)).apply({}, jax.random.key(0))
    self.assertGreater(np.abs(read - h).max(), 0.1)
    needed = 2 * np.square(read).mean() + np.square(np.diff(h, axis=0)).mean()
    self.assert_close(losses.penalty.sum() / (T * B), needed)


if __name__ == "__main__":
  absltest.main()
