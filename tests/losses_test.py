"""Token losses against NumPy in float64, and at the edges; what they cost in memory."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl.testing import absltest, parameterized

import hklm
from hklm import losses
from hklm.training import optimizers, step
from tests import oracle

N, V, D = 5, 7, 3  # primes: no width of a block divides V


class TokenNatsTest(oracle.X64TestCase):

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(((), 1), ((5,), 3), ((4, 3), 7))
  def test_agrees_with_numpy(self, shape, size):
    draw = np.random.RandomState(0)
    logits = 3 * draw.normal(size=[*shape, size])
    targets = draw.randint(size, size=shape)
    expected = np.empty(shape)
    for place in np.ndindex(*shape):
      expected[place] = oracle.nats(logits[place], targets[place])
    nats = self.variant(losses.token_nats)(logits, jnp.asarray(targets))
    self.assertEqual(nats.dtype, jnp.float64)
    self.assert_close(nats, expected, 1e-13)

  @chex.variants(with_jit=True, without_jit=True)
  def test_a_constant_changes_nothing(self):
    logits = np.random.RandomState(0).normal(size=[4, 5])
    targets = np.array([0, 1, 4, 2])
    nats = self.variant(losses.token_nats)
    self.assert_close(nats(logits + 100.0, targets), nats(logits, targets), 1e-12)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters("float32", "float64")
  def test_huge_logits_stay_exact(self, dtype):
    logits = jnp.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]], dtype)
    nats = self.variant(losses.token_nats)
    rounding = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(nats(logits, jnp.array([0, 0])), [0.0, np.log(3.0)], rtol=rounding)
    np.testing.assert_array_equal(nats(logits, jnp.array([1, 2]))[0], 2e4)
    gradient = jax.grad(lambda x: nats(x, jnp.array([1, 2])).sum())(logits)
    np.testing.assert_allclose(gradient, [[1, -1, 0], [1 / 3, 1 / 3, -2 / 3]], rtol=1e-6)

  @chex.variants(with_jit=True, without_jit=True)
  def test_probabilities_of_all_targets_add_up_to_one(self):
    logits = np.random.RandomState(1).normal(size=[6])
    nats = self.variant(losses.token_nats)(np.tile(logits, [6, 1]), np.arange(6))
    self.assert_close(np.exp(-np.asarray(nats)).sum(), 1.0, 1e-14)

  @chex.variants(with_jit=True, without_jit=True)
  def test_gradient_is_softmax_minus_one_hot(self):
    logits = np.random.RandomState(2).normal(size=[3, 4])
    targets = np.array([3, 0, 1])
    gradient = self.variant(jax.grad(lambda x: losses.token_nats(x, targets).sum()))(logits)
    odds = np.exp(logits)
    self.assert_close(gradient, odds / odds.sum(-1, keepdims=True) - np.eye(4)[targets], 1e-13)

  @chex.variants(with_jit=True, without_jit=True)
  def test_an_id_that_is_not_in_the_vocabulary_gives_nan(self):
    nats = self.variant(losses.token_nats)(np.zeros([5, 4]), np.array([3, 4, 4000, -1, -4]))
    np.testing.assert_array_equal(np.isnan(nats), [False, True, True, True, True])

  @chex.variants(with_jit=True, without_jit=True)
  def test_bfloat16_logits_lose_no_more_than_they_have_lost(self):
    logits = np.random.RandomState(3).normal(size=[5, 4])
    targets = np.array([3, 0, 1, 2, 2])
    nats = self.variant(losses.token_nats)
    for dtype, wide in ((jnp.bfloat16, jnp.float32), (jnp.float32, jnp.float32),
                        (jnp.float64, jnp.float64)):
      narrow = jnp.asarray(logits, dtype)
      found = nats(narrow, targets)
      self.assertEqual(found.dtype, wide)
      exact = np.asarray(narrow).astype(np.float64)
      expected = [oracle.nats(row, target) for row, target in zip(exact, targets, strict=True)]
      np.testing.assert_allclose(found, expected, rtol=1e-5)


def drawn(bias=True):
  """`h, table, bias` and targets, which hit the first, the last and a middle column."""
  draw = np.random.RandomState(4)
  h, table, b = (draw.normal(size=size) for size in ([N, D], [V, D], [V]))
  return (h, table, b if bias else None), np.array([0, V - 1, 3, V - 2, 3])


def by_hand(inputs, targets):
  """Nats `[N]` and `softmax - onehot [N, V]`, from the definition."""
  h, table, bias = inputs
  logits = np.einsum("nd,vd->nv", h, table) + (0.0 if bias is None else bias)
  nats = [oracle.nats(row, target) for row, target in zip(logits, targets, strict=True)]
  odds = np.exp(logits)
  return np.array(nats), odds / odds.sum(axis=1, keepdims=True) - np.eye(len(table))[targets]


WEIGHTS = np.array([1.0, -0.5, 2.0, 0.3, 0.0])  # of the tokens
widths = parameterized.parameters(0, 1, 3, 6)  # of a block; 0: all at once


def objective(targets, columns):
  return lambda inputs: (WEIGHTS * losses.linear_nats(*inputs, targets, columns)).sum()


class LinearNatsTest(oracle.X64TestCase):

  @parameterized.product(columns=[0, 1, 2, 3, 4, 6], bias=[False, True])
  def test_values_and_gradients_agree_with_numpy(self, columns, bias):
    inputs, targets = drawn(bias)
    expected, d = by_hand(inputs, targets)
    nats, (h, table, b) = jax.jit(lambda inputs: (
        losses.linear_nats(*inputs, targets, columns),
        jax.grad(objective(targets, columns))(inputs)))(inputs)
    self.assertEqual(nats.dtype, jnp.float64)
    self.assert_close(nats, expected, 1e-13)
    g = WEIGHTS[:, None] * d
    self.assert_close(h, g @ inputs[1], 1e-13)
    self.assert_close(table, g.T @ inputs[0], 1e-13)
    np.testing.assert_array_equal(h[-1], 0.0)  # what weighs nothing moves nothing
    if bias:
      self.assert_close(b, g.sum(axis=0), 1e-13)
    else:
      self.assertIsNone(b)

  @widths
  def test_forward_mode_agrees_with_numpy(self, columns):
    inputs, targets = drawn()
    moves = oracle.as_numpy(oracle.random_like(inputs, seed=5))
    _, d = by_hand(inputs, targets)
    moved = moves[0] @ inputs[1].T + inputs[0] @ moves[1].T + moves[2]
    slope = jax.jit(lambda inputs, moves: jax.jvp(
        lambda *inputs: losses.linear_nats(*inputs, targets, columns), inputs, moves)[1])
    self.assert_close(slope(inputs, moves), (d * moved).sum(axis=1), 1e-13)

  @widths
  def test_second_derivatives_are_finite_differences_of_the_first(self, columns):
    inputs, targets = drawn()
    moves = oracle.as_numpy(oracle.random_like(inputs, seed=6))
    gradient = jax.grad(objective(targets, columns))

    def along(inputs):
      return sum(jax.tree.leaves(jax.tree.map(lambda g, v: (g * v).sum(), gradient(inputs), moves)))

    def by_numpy(inputs):
      g = WEIGHTS[:, None] * by_hand(inputs, targets)[1]
      return g @ inputs[1], g.T @ inputs[0], g.sum(axis=0)

    up, down = (by_numpy(jax.tree.map(lambda p, v: p + shift * v, inputs, moves))  # noqa: B023
                for shift in (1e-5, -1e-5))
    expected = jax.tree.map(lambda a, b: (a - b) / 2e-5, up, down)
    forward, reverse = jax.jit(lambda inputs: (
        jax.jvp(gradient, (inputs,), (moves,))[1], jax.grad(along)(inputs)))(inputs)
    self.assert_close(forward, expected, 1e-8)
    self.assert_close(reverse, forward, 1e-12)

  def test_hessian_in_closed_form(self):
    """Of one token in h: `W^T (diag(p) - p p^T) W`."""
    (h, table, bias), targets = drawn()
    odds = np.exp(table @ h[0] + bias)
    p = odds / odds.sum()
    expected = table.T @ (np.diag(p) - np.outer(p, p)) @ table
    for columns in (0, 3):
      hessian = jax.jit(jax.hessian(
          lambda h: losses.linear_nats(h, table, bias, targets[0], columns)))  # noqa: B023
      self.assert_close(hessian(h[0]), expected, 1e-13)

  @parameterized.parameters(0, 3)
  def test_transformed(self, columns):
    inputs, targets = drawn()
    f = jax.value_and_grad(objective(targets, columns))
    jitted = jax.jit(f)(inputs)
    self.assert_close(jax.jit(jax.value_and_grad(jax.checkpoint(objective(targets, columns))))(
        inputs), jitted, 1e-13)
    with jax.disable_jit():
      self.assert_close(f(inputs), jitted, 1e-13)
    many = jax.tree.map(lambda p: np.stack([p, 2 * p]), inputs)
    mapped = jax.jit(jax.vmap(f))(many)
    for row in range(2):
      self.assert_close(jax.tree.map(lambda leaf: leaf[row], mapped),  # noqa: B023
                        jax.jit(f)(jax.tree.map(lambda p: p[row], many)), 1e-13)  # noqa: B023

  @parameterized.parameters((), (1,), (0,), (2, 3), (1, 4, 2))
  def test_any_shape(self, *shape):
    (_, table, bias), _ = drawn()
    draw = np.random.RandomState(7)
    h, targets = draw.normal(size=[*shape, D]), draw.randint(V, size=shape)
    expected = by_hand((h.reshape(-1, D), table, bias), targets.reshape(-1))[0].reshape(shape)
    for columns in (0, 4):
      self.assert_close(losses.linear_nats(h, table, bias, targets, columns), expected, 1e-13)
    with self.assertRaises(AssertionError):
      losses.linear_nats(h[..., None, :], table, bias, targets)

  @parameterized.parameters(-1, V + 1)
  def test_a_block_wider_than_the_vocabulary_or_of_nothing(self, columns):
    (h, table, bias), targets = drawn()
    with self.assertRaisesRegex(ValueError, f"columns={columns} is out of range; needed: 0 to"):
      losses.linear_nats(h, table, bias, targets, columns)

  def test_a_vocabulary_of_one_is_certain(self):
    inputs = jnp.ones([N, D]), jnp.ones([1, D]), jnp.ones([1])
    nats, gradient = jax.jit(jax.value_and_grad(objective(np.zeros(N, int), 0)))(inputs)
    chex.assert_trees_all_equal((nats, gradient), jax.tree.map(jnp.zeros_like, (nats, inputs)))

  @parameterized.parameters(0, 1, 4)
  def test_an_id_that_is_not_in_the_vocabulary_gives_nan(self, columns):
    (h, table, bias), _ = drawn()
    # V and V + 1 lie within the width of a block that goes past the end
    targets = np.array([V - 1, V, V + 1, -1, -V])
    f = jax.jit(lambda h: losses.linear_nats(h, table, bias, targets, columns))
    np.testing.assert_array_equal(np.isnan(f(h)), [False, True, True, True, True])
    masked = jax.grad(lambda h: jnp.where(targets == V - 1, f(h), 0).sum())(h)
    np.testing.assert_array_equal(masked[1:], 0.0)
    self.assertGreater(np.abs(masked[0]).min(), 0)

  @parameterized.parameters(0, 1, 3)
  def test_huge_logits_stay_exact(self, columns):
    """In float32, `logsumexp - logit` would lose 3e-4 of these nats."""
    logits = np.array([[1e4, 1e4 + 1, -1e4, 0, 1e4], [-1e4, -1e4, -1e4, -1e4, -1e4]], np.float32)
    targets = np.array([0, 4])
    expected = [oracle.nats(*pair) for pair in zip(logits.astype(float), targets, strict=True)]
    table = np.eye(5, dtype=np.float32)
    f = jax.jit(lambda h: losses.linear_nats(h, table, None, targets, columns))
    self.assertEqual(f(logits).dtype, jnp.float32)
    np.testing.assert_allclose(f(logits), expected, rtol=3e-7)
    _, d = by_hand((logits.astype(float) % 1e4, table, None), targets)
    np.testing.assert_allclose(jax.grad(lambda h: f(h).sum())(logits)[1], d[1], rtol=1e-6)

  @parameterized.parameters(0, 2, 3)
  def test_ids_ruled_out_by_the_bias_have_no_part(self, columns):
    (h, table, bias), _ = drawn()
    targets = np.array([2, 3, 4, 3, 2])
    out = [0, 1, 5, 6]  # whole blocks, at both ends
    bias[out] = -np.inf
    few = [2, 3, 4]
    expected, d = by_hand((h, table[few], bias[few]), targets - 2)
    nats, gradient = jax.jit(lambda h: (
        losses.linear_nats(h, table, bias, targets, columns),
        jax.grad(lambda h: losses.linear_nats(h, table, bias, targets, columns).sum())(h)))(h)
    self.assert_close(nats, expected, 1e-13)
    self.assert_close(gradient, d @ table[few], 1e-13)

  @parameterized.product(columns=[0, 3], bias=[False, True], x64=[False, True])
  def test_bfloat16_and_float32_give_float32(self, columns, bias, x64):
    inputs, targets = drawn(bias)
    with jax.enable_x64(x64):
      for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.bfloat16, 0.05)):
        narrow = jax.tree.map(lambda p, dtype=dtype: jnp.asarray(p, dtype), inputs)
        exact = jax.tree.map(lambda p: np.asarray(p).astype(np.float64), narrow)
        expected, d = by_hand(exact, targets)
        nats = jax.jit(losses.linear_nats, static_argnums=4)(*narrow, targets, columns)
        self.assertEqual(nats.dtype, jnp.float32)
        np.testing.assert_allclose(nats, expected, atol=tolerance)
        h = jax.jit(jax.grad(lambda h, narrow=narrow: losses.linear_nats(
            h, *narrow[1:], targets, columns).sum()))(narrow[0])
        self.assertEqual(h.dtype, dtype)
        np.testing.assert_allclose(h.astype(jnp.float32), d @ exact[1], atol=3 * tolerance)


class ModelTest(oracle.X64TestCase):

  @oracle.over([model for model in oracle.MODELS if model.name in (
      "three_layers_forget_bias", "tied", "dropout_per_step", "haiku_lstm")])
  def test_the_loss_is_that_of_the_logits(self, model):
    lm, params, state, inputs, targets, *_ = oracle.ready(model)
    for key in (None, jax.random.key(8)):  # a key draws the same masks for both
      logits, after = oracle.as_numpy(lm.unroll(params, key, inputs, state))
      loss, loss_after = lm.loss(params, key, inputs, targets, state)
      expected = [[oracle.nats(logits[t, b], targets[t, b]) for b in range(oracle.B)]
                  for t in range(oracle.T)]
      self.assert_close(loss.nats, np.array(expected), 1e-12)
      self.assert_close(loss_after, after, 1e-12)


def compiled_gradient(tokens, size, width):
  """Of the mean of linear nats in all of h, table and bias, in float32."""
  floats = [jax.ShapeDtypeStruct(shape, jnp.float32)
            for shape in ([tokens, width], [size, width], [size])]
  targets = jax.ShapeDtypeStruct([tokens], jnp.int32)
  return jax.jit(jax.value_and_grad(
      lambda inputs, targets: losses.linear_nats(*inputs, targets).mean())).lower(
          floats, targets).compile()


def peak(compiled):
  """Bytes: what goes in, what comes out and what is made on the way."""
  memory = compiled.memory_analysis()
  return (memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
          - memory.alias_size_in_bytes)


class MemoryTest(parameterized.TestCase):

  @parameterized.parameters(1009, 10007)
  def test_a_gradient_is_products_and_no_scatter(self, tokens):
    """10,007 tokens of 10,007 ids take blocks; both are primes."""
    size, width = 10007, 64
    compiled = compiled_gradient(tokens, size, width)
    text = compiled.as_text()
    self.assertNotRegex(text, r"\bscatter\b.*\(")
    blocks = tokens * size * 4 > losses.WHOLE_BYTES
    products = re.findall(r"= f32\[[\d,]*\]\S* dot\(", text)
    self.assertLen(products, 4 if blocks else 3)  # logits, again for the derivative, h, table
    made = {int(rows) * int(columns) for rows, columns in re.findall(r"f32\[(\d+),(\d+)\]", text)}
    if blocks:
      self.assertLess(max(made), 2 * losses.BLOCK_BYTES / 4)
      self.assertLess(compiled.memory_analysis().temp_size_in_bytes, 4 * losses.BLOCK_BYTES)
    else:
      self.assertIn(tokens * size, made)

  def test_a_block_is_no_narrower_than_h(self):
    text = compiled_gradient(2**18, 200, 64).as_text()  # 16 columns would take BLOCK_BYTES
    self.assertRegex(text, r"= f32\[262144,50\]\S* dot\(")

  def test_a_training_step_takes_half_of_what_plain_cross_entropy_takes(self):
    config = hklm.ModelConfig(vocab_size=50_000, embedding_size=512, hidden_size=512,
                              tie_embeddings=True)
    lm = hklm.language_model(config)

    def plain_loss(params, key, inputs, targets, state):
      logits, state = lm.unroll(params, key, inputs, state)
      nats = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
      return losses.Loss(nats, jnp.zeros_like(nats)), state

    sgd = optimizers.optimizer(hklm.TrainConfig(optimizer="sgd", clip=1.0, schedule="constant"),
                               10, lambda epochs: epochs)
    window, reset = jax.ShapeDtypeStruct([36, 32], jnp.int32), jax.ShapeDtypeStruct([32], bool)
    state = jax.eval_shape(lambda: step.init(lm, sgd, 32, 0))
    fused, plain = (peak(step.make_update(model, sgd).lower(state, window, reset).compile())
                    for model in (lm, lm._replace(loss=plain_loss)))
    self.assertLess(fused, 0.55 * plain)


if __name__ == "__main__":
  absltest.main()
