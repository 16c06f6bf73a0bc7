"""The sampled softmax: its samples, and expectations over all of them, which are few."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm import losses
from hklm.nn.heads import sampled
from tests import oracle

V, D, T, B = 12, 4, 2, 2
SIZES = (1, 2, 4, 8, V)
TARGETS = np.array([[0, 11], [3, 7]])


def drawn():
  """h, table, bias: logits differ by a few nats."""
  draw = np.random.RandomState(0)
  return draw.normal(size=[T, B, D]), draw.normal(size=[V, D]), draw.normal(size=V)


def systematic(chances, u):
  """The ids in which u, u + 1, u + 2 and so on lie."""
  ids, end = [], 0.0
  for i, chance in enumerate(chances):
    if np.ceil(end - u) < np.ceil(end + chance - u):
      ids.append(i)
    end += chance
  return np.array(ids)


def expectation(f, chances):
  """Of f over all samples: u between two neighbours among the ends draws one of them."""
  ends = np.unique(np.concatenate([[0.0, 1.0], np.cumsum(chances)[:-1] % 1.0]))
  parts = [jax.tree.map(lambda x, share=high - low: share * np.asarray(x),
                        f(systematic(chances, (low + high) / 2)))
           for low, high in itertools.pairwise(ends) if high - low > 1e-12]
  return jax.tree.map(lambda *its: sum(its), *parts)


@jax.jit
def estimate(inputs, ids, chances):
  return sampled.sampled_nats(*inputs, TARGETS, ids, chances)


def by_numpy(inputs, ids, chances):
  """Nats `[T, B]` from the definition."""
  h, table, bias = inputs
  nats = np.empty([T, B])
  for t, b in np.ndindex(T, B):
    logits, y = table @ h[t, b] + bias, TARGETS[t, b]
    others = sum(np.exp(logits[i]) / chances[i] for i in ids if i != y)
    nats[t, b] = np.log(np.exp(logits[y]) + others) - logits[y]
  return nats


class DrawTest(oracle.X64TestCase):

  @parameterized.parameters(*SIZES, V + 1, 8192)
  def test_chances(self, size):
    found, S = sampled.chances(V, size), min(size, V)
    self.assertAlmostEqual(found.sum(), S, places=12)
    self.assertBetween(found.min(), 1e-9, found.max())
    self.assertLessEqual(found.max(), 1.0)
    zipf = np.log([(i + 2) / (i + 1) for i in range(V)])
    ratios = found / zipf
    below = found < 1  # all others would have more than 1
    self.assert_close(ratios[below], np.full(below.sum(), ratios.max()))

  @parameterized.parameters(*SIZES)
  def test_a_sample_is_what_lies_a_step_apart(self, size):
    chances = sampled.chances(V, size)
    keys = jax.random.split(jax.random.key(size), 300)
    found = np.asarray(jax.jit(jax.vmap(lambda key: sampled.draw(key, chances)))(keys))
    for key, ids in zip(keys[:50], found, strict=False):
      u = float(jax.random.uniform(key, dtype=jnp.float32))
      np.testing.assert_array_equal(ids, systematic(chances, u))
    often = (found[..., None] == np.arange(V)).any(1).mean(0)
    np.testing.assert_allclose(often, chances, atol=4 * np.sqrt(0.25 / len(keys)))

  def test_of_many_in_float32(self):
    """Of 800,000 ids, the rarest have chances of 1/1200; one float32 could not tell their ends."""
    many, size = 800_000, 8192
    with jax.enable_x64(False):
      chances = sampled.chances(many, size)
      ids = np.asarray(jax.jit(lambda key: sampled.draw(key, chances))(jax.random.key(0)))
    self.assertEqual(ids.shape, (size,))
    self.assertTrue((np.diff(ids) > 0).all())
    self.assertBetween(ids.min(), 0, many - 1)
    for low, high in ((0, 100), (10_000, 20_000), (790_000, many)):
      count = ((ids >= low) & (ids < high)).sum()
      self.assertLess(abs(count - chances[low:high].sum()), 1 + 1e-6)


class NatsTest(oracle.X64TestCase):

  @parameterized.parameters(*SIZES)
  def test_agrees_with_numpy_hits_and_all(self, size):
    inputs, chances = drawn(), sampled.chances(V, size)
    for u in (0.1, 0.6):  # with size 1, id 0, which is also a target; and a later one
      ids = systematic(chances, u)
      self.assert_close(estimate(inputs, ids, chances), by_numpy(inputs, ids, chances))
    nothing = estimate(inputs, np.array([0]), np.ones(V))[0, 0]  # the target alone
    self.assertEqual(nothing, 0.0)

  def test_of_all_ids_it_is_exact(self):
    inputs, chances = drawn(), sampled.chances(V, V)
    ids = sampled.draw(jax.random.key(0), chances)
    exact, slope = jax.jit(jax.value_and_grad(
        lambda inputs: losses.linear_nats(*inputs, TARGETS).sum()))(inputs)
    self.assert_close(estimate(inputs, ids, chances).sum(), exact)
    self.assert_close(jax.grad(lambda x: estimate(x, ids, chances).sum())(inputs), slope)

  @parameterized.parameters(*SIZES)
  def test_the_sum_over_all_ids_is_unbiased(self, size):
    """`exp(nats) = Z / exp(l_y)`, in expectation 1 / p(y)."""
    inputs, chances = drawn(), sampled.chances(V, size)
    found = expectation(lambda ids: np.exp(estimate(inputs, ids, chances)), chances)
    self.assert_close(found, np.exp(losses.linear_nats(*inputs, TARGETS)), 1e-11)

  def test_the_expected_gradient_goes_to_the_exact_one(self):
    inputs = drawn()
    exact = jax.grad(lambda x: losses.linear_nats(*x, TARGETS).sum())(inputs)
    errors = []
    for size in SIZES:
      chances = sampled.chances(V, size)
      gradient = jax.jit(jax.grad(
          lambda x, ids: sampled.sampled_nats(*x, TARGETS, ids, chances).sum()))  # noqa: B023
      found = expectation(lambda ids: gradient(inputs, ids), chances)  # noqa: B023
      errors.append(max(np.abs(a - b).max() for a, b in zip(found, exact, strict=True)))
    for fewer, more in itertools.pairwise(errors):
      self.assertLess(more, 0.95 * fewer)
    self.assertLess(errors[-1], 1e-12)

  def test_a_sample_of_the_target_alone_has_gradient_zero(self):
    gradient = jax.jit(jax.grad(lambda h: sampled.sampled_nats(
        h, *drawn()[1:], np.zeros([T, B], int), np.array([0]), np.ones(V)).sum()))(drawn()[0])
    np.testing.assert_array_equal(gradient, 0.0)


if __name__ == "__main__":
  absltest.main()
