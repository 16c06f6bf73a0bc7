"""Heads against NumPy in float64, PyTorch and finite differences; normalised; their memory."""

import functools
from unittest import mock

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm import losses
from hklm.config import ModelConfig
from hklm.nn import dropout, heads, initializers
from tests import oracle

T, B, V, D, E, K = 3, 2, 7, 16, 5, 3
CUTOFFS = (2, 5)
WEIGHTS = np.arange(1, T * B + 1).reshape(T, B) / 3 - 0.7  # of the tokens
KEY = jax.random.key

HEADS = {
    "linear": {},
    "projected": {"head_projection": True},
    "projected_tied": {"head_projection": True, "tie_embeddings": True, "output_bias": False},
    "mixture": {"head": "mixture", "mixture_components": K},
    "mixture_of_one": {"head": "mixture", "mixture_components": 1},
    "mixture_tied": {"head": "mixture", "tie_embeddings": True, "output_bias": False},
    "adaptive": {"head": "adaptive", "adaptive_cutoffs": CUTOFFS},
    "adaptive_no_bias": {"head": "adaptive", "adaptive_cutoffs": (1,), "output_bias": False},
    "adaptive_projected": {"head": "adaptive", "adaptive_cutoffs": (6,), "head_projection": True},
    "sampled": {"head": "sampled", "sampled_tokens": 3},
    "sampled_tied": {"head": "sampled", "sampled_tokens": 4, "tie_embeddings": True,
                     "head_projection": True},
}
over_all = parameterized.named_parameters((name, name) for name in HEADS)


def config_of(name, dtype="float64", **changes):
  return ModelConfig(**{"vocab_size": V, "embedding_size": E, "hidden_size": D, "dtype": dtype,
                        **HEADS[name], **changes})


@functools.cache
def pure(config):
  """`(params, key, h, table)` to logits; `(params, key, h, table, targets)` to nats; compiled."""
  def run(h, table, targets=None):
    head = heads.head(config, initializers.parse("normal:1", D))
    table = table if config.tie_embeddings else None
    return head(h, table) if targets is None else head.nats(h, targets, table)

  f = hk.transform(run)
  return f._replace(apply=jax.jit(f.apply))


def linear(bias, tied):
  def run(h, table):
    head = heads.LinearHead(V, initializers.parse("normal:1", D), h.dtype, bias)
    table = table if tied else None
    return head(h, table), head.parameters(D, table)

  return hk.without_apply_rng(hk.transform(run))


def ready(config, seed=0, scale=0.7):
  """The functions of a head, parameters, h [T, B, D], a table and targets."""
  draw, f = np.random.RandomState(seed), pure(config)
  h = draw.normal(size=[T, B, config.hidden_size])
  table = draw.normal(size=[config.vocab_size, config.embedding_size])
  h, table = (jnp.asarray(x, config.dtype) for x in (h, table))
  params = oracle.random_like(jax.eval_shape(f.init, KEY(0), h, table), seed, scale)
  targets = draw.permutation(np.arange(T * B) % config.vocab_size).reshape(T, B)
  return f.apply, params, h, table, targets


def softmax(logits):
  odds = np.exp(logits - logits.max())
  return odds / odds.sum()


def by_numpy(config, params, h, table):
  """The probabilities `[V]` after one h `[D]`, from the equations."""
  p = jax.tree.map(np.asarray, params)
  if config.head_projection:
    h = p["projection"]["w"] @ h
  own = p.get("head", {})
  w, b = (table if config.tie_embeddings else own["w"]), own.get("b", 0.0)
  if config.head == "mixture":
    m, total = p["mixture"], 0.0
    pi = softmax(m["w_pi"] @ h)
    for k in range(config.mixture_components):
      its = slice(k * E, (k + 1) * E)
      total += pi[k] * softmax(w @ np.tanh(m["w_k"][its] @ h + m["b_k"][its]) + b)
    return total
  if config.head == "adaptive":
    first, common = softmax(w @ h + b), config.adaptive_cutoffs[0]
    tails = [first[common + n] * softmax(own[f"u_{n + 1}"] @ own[f"p_{n + 1}"] @ h)
             for n in range(len(config.adaptive_cutoffs))]
    return np.concatenate([first[:common], *tails])
  return softmax(w @ h + b)


def blocks():
  """Within it, every loss is made in blocks of 3 ids."""
  return mock.patch.object(losses, "_columns", lambda N, table: min(3, len(table)))


class HeadTest(oracle.X64TestCase):

  @over_all
  def test_agrees_with_numpy(self, name):
    config = config_of(name)
    apply, params, h, table, targets = ready(config)
    expected = np.array([[by_numpy(config, params, h[t, b], np.asarray(table)) for b in range(B)]
                         for t in range(T)])
    logits = apply(params, None, h, table)
    self.assertEqual((logits.shape, logits.dtype), ((T, B, V), jnp.float64))
    self.assert_close(jax.nn.softmax(logits), expected, 1e-13)
    self.assert_close(apply(params, None, h[0, 0], table), logits[0, 0], 1e-13)
    nats = -np.log(np.take_along_axis(expected, targets[..., None], -1))[..., 0]
    self.assert_close(apply(params, None, h, table, targets), nats, 1e-13)
    with blocks():  # other ids, so that it is compiled anew
      self.assert_close(apply(params, None, h, table, targets.astype(np.uint8)), nats, 1e-13)

  @over_all
  def test_gradients_are_finite_differences(self, name):
    config = config_of(name)
    apply, params, h, table, targets = ready(config, seed=1)
    for key in (None, KEY(3)) if config.head == "sampled" else (None,):
      def objective(inputs, key=key):
        params, h, table = inputs
        return (WEIGHTS * apply(params, key, h, table, targets)).sum()

      inputs = oracle.as_numpy((params, h, table))
      gradient = oracle.as_numpy(jax.jit(jax.grad(objective))(inputs))
      for seed in range(3):
        move = oracle.as_numpy(oracle.random_like(inputs, seed=seed))
        up, down = (objective(jax.tree.map(lambda p, v: p + step * v, inputs, move))  # noqa: B023
                    for step in (1e-5, -1e-5))
        along = sum(jax.tree.leaves(jax.tree.map(lambda g, v: (g * v).sum(), gradient, move)))
        self.assert_close(along, (up - down) / 2e-5, 1e-7)

  @parameterized.product(name=["mixture", "adaptive"], dtype=["float32", "float64"])
  def test_normalised_over_the_whole_vocabulary(self, name, dtype):
    size = 1000
    config = config_of(name, dtype, vocab_size=size)
    if config.head == "adaptive":
      config = config_of(name, dtype, vocab_size=size, adaptive_cutoffs=(100, 400))
    apply, params, h, table, _ = ready(config)
    limit = 1e-6 if dtype == "float32" else 1e-12
    logits = apply(params, None, h, table)
    np.testing.assert_allclose(np.exp(np.asarray(logits, float)).sum(-1), 1, atol=limit)
    rows = jnp.broadcast_to(h[0, 0], [size, 1, D])
    nats = apply(params, None, rows, table, np.arange(size)[:, None])
    np.testing.assert_allclose(np.exp(-np.asarray(nats, float)).sum(), 1, atol=limit)

  @parameterized.parameters("projected_tied", "mixture", "adaptive", "sampled")
  def test_bfloat16(self, name):
    config = config_of(name, "bfloat16")
    apply, params, h, table, targets = ready(config, scale=0.3)
    wide = jax.tree.map(lambda p: p.astype(jnp.float64), (params, h, table))
    logits, nats = apply(params, None, h, table), apply(params, None, h, table, targets)
    self.assertEqual((logits.dtype, nats.dtype), (jnp.bfloat16, jnp.float32))
    exact = ready(config_of(name))[0](wide[0], None, *wide[1:], targets)
    np.testing.assert_allclose(nats, exact, atol=0.05)
    if config.head == "sampled":
      self.assertEqual(apply(params, KEY(0), h, table, targets).dtype, jnp.float32)

  @parameterized.parameters("projected", "mixture", "adaptive", "sampled")
  def test_an_id_that_is_not_in_the_vocabulary_gives_nan(self, name):
    apply, params, h, table, targets = ready(config_of(name))
    targets[0, 0], targets[2, 1], targets[1, 0] = -1, V, V + 3
    for key in (None, KEY(0)) if name == "sampled" else (None,):
      nats = apply(params, key, h, table, targets)
      np.testing.assert_array_equal(np.isnan(nats), (targets < 0) | (targets >= V))

  @parameterized.named_parameters(
      ("projected", "projected", {"projection": {"w": (E, D)}, "head": {"w": (V, E), "b": (V,)}}),
      ("tied", "projected_tied", {"projection": {"w": (E, D)}}),
      ("mixture", "mixture", {"mixture": {"w_pi": (K, D), "w_k": (K * E, D), "b_k": (K * E,)},
                              "head": {"w": (V, E), "b": (V,)}}),
      ("adaptive", "adaptive", {"head": {"w": (4, D), "b": (4,), "p_1": (4, D), "u_1": (3, 4),
                                         "p_2": (1, D), "u_2": (2, 1)}}),
      ("sampled", "sampled", {"head": {"w": (V, D), "b": (V,)}}))
  def test_parameters(self, name, shapes):
    _, params, *_ = ready(config_of(name))
    self.assertEqual(jax.tree.map(jnp.shape, params), shapes)

  def test_huge_logits_of_a_mixture_stay_exact(self):
    """Where every softmax rules out the target, its nats are those of the one that does least."""
    config = config_of("mixture_tied", "float32", embedding_size=1, hidden_size=1)
    params = {"mixture": {"w_pi": jnp.zeros([2, 1]), "b_k": jnp.zeros(2),
                          "w_k": jnp.array([[100.0], [0.0]])}}  # z = 1, 0 where h = 1
    table = jnp.array([[0.0], [-1e4]] + [[0.0]] * (V - 2))
    nats = pure(config).apply(params, None, jnp.ones([1, 1, 1]), table, jnp.array([[1]]))
    np.testing.assert_allclose(nats, np.log(2 * V), rtol=1e-6)
    params["mixture"]["w_k"] = jnp.full([2, 1], 100.0)
    nats = pure(config).apply(params, None, jnp.ones([1, 1, 1]), table, jnp.array([[1]]))
    np.testing.assert_allclose(nats, 1e4 + np.log(V - 1), rtol=1e-6)


class MixtureDropoutTest(oracle.X64TestCase):

  @parameterized.parameters(False, True)
  def test_it_is_on_the_vectors(self, per_step):
    config = config_of("mixture", mixture_dropout=0.4, dropout_per_step=per_step)
    inits = initializers.parse(config.init, config.hidden_size)
    run = hk.transform(lambda h: heads.head(config, inits)(h))
    h = jnp.asarray(np.random.RandomState(0).normal(size=[T, B, config.hidden_size]))
    params = oracle.random_like(jax.eval_shape(run.init, KEY(0), h))
    K, E_ = config.mixture_components, config.embedding_size
    keep = np.asarray(hk.transform(lambda: dropout.dropout(
        jnp.ones([T, B, K * E_]), 0.4, per_step)).apply({}, KEY(1)))
    found = softmax_of_all(run.apply(params, KEY(1), h))
    m, w, b = params["mixture"], params["head"]["w"], params["head"]["b"]
    for t, row in np.ndindex(T, B):
      z = (np.tanh(m["w_k"] @ h[t, row] + m["b_k"]) * keep[t, row]).reshape(K, E_)
      pi = softmax(np.asarray(m["w_pi"] @ h[t, row]))
      needed = sum(pi[k] * softmax(np.asarray(w @ z[k] + b)) for k in range(K))
      self.assert_close(found[t, row], needed)
    self.assertEqual(len(np.unique(keep.reshape(T, -1), axis=0)) > 1, per_step)
    plain = config_of("mixture")
    same = hk.transform(lambda h: heads.head(plain, inits)(h)).apply(params, None, h)
    np.testing.assert_array_equal(run.apply(params, None, h), same)


def softmax_of_all(logits):
  return np.asarray(jax.nn.softmax(logits))


class LinearHeadTest(oracle.X64TestCase):

  @parameterized.product(bias=[False, True], tied=[False, True], shape=[(), (2,), (4, 2)])
  def test_agrees_with_numpy(self, bias, tied, shape):
    draw = np.random.RandomState(0)
    h, table = draw.normal(size=[*shape, D]), draw.normal(size=[V, D])
    f = linear(bias, tied)
    params = oracle.random_like(jax.eval_shape(f.init, KEY(0), h, table))
    own = params.get("head", {})
    self.assertEqual({name: leaf.shape for name, leaf in own.items()},
                     {**({} if tied else {"w": (V, D)}), **({"b": (V,)} if bias else {})})
    w = table if tied else np.asarray(own["w"])
    expected = np.einsum("vd,...d->...v", w, h) + (np.asarray(own["b"]) if bias else 0.0)
    logits, parameters = f.apply(params, h, table)
    self.assert_close(logits, expected, 1e-14)
    chex.assert_trees_all_equal(parameters, (w, own.get("b")))

  @parameterized.parameters("float32", "bfloat16")
  def test_dtype(self, dtype):
    h, table = jnp.ones([2, D], dtype), jnp.ones([V, D], dtype)
    params = linear(True, False).init(KEY(0), h, table)
    for leaf in jax.tree.leaves((params, linear(True, False).apply(params, h, table)[0])):
      self.assertEqual(leaf.dtype, jnp.dtype(dtype))


class TorchTest(oracle.X64TestCase):

  @parameterized.parameters(False, True)
  def test_adaptive_is_that_of_pytorch(self, bias):
    try:
      import torch
    except ImportError:
      self.skipTest("PyTorch is not installed")
    config = config_of("adaptive", vocab_size=20, adaptive_cutoffs=(4, 9), output_bias=bias)
    apply, params, h, table, _ = ready(config)
    targets = np.array([[0, 3], [4, 8], [9, 19]])
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(D, 20, [4, 9], div_value=4.0, head_bias=bias,
                                                 dtype=torch.float64)
    own = {name: torch.tensor(np.asarray(p)) for name, p in params["head"].items()}
    weights = {"head.weight": own["w"], **({"head.bias": own["b"]} if bias else {}),
               **{f"tail.{n}.{m}.weight": own[f"{kind}_{n + 1}"]
                  for n in (0, 1) for m, kind in enumerate("pu")}}
    theirs.load_state_dict(weights)
    flat = torch.tensor(np.asarray(h).reshape(-1, D), requires_grad=True)
    said = theirs(flat, torch.tensor(targets.reshape(-1)))
    said.loss.backward()
    self.assert_close(apply(params, None, h, table).reshape(-1, 20),
                      theirs.log_prob(flat).detach().numpy(), 1e-12)
    self.assert_close(apply(params, None, h, table, targets).reshape(-1),
                      -said.output.detach().numpy(), 1e-12)
    gradient = jax.grad(lambda h: apply(params, None, h, table, targets).mean())(h)
    self.assert_close(gradient.reshape(-1, D), flat.grad.numpy(), 1e-12)


class MemoryTest(parameterized.TestCase):

  @parameterized.parameters(
      ({"head": "mixture"}, 0.25),
      ({"head_projection": True}, 0.25),
      ({"head": "sampled", "sampled_tokens": 4096, "head_projection": True}, 0.5))
  def test_a_gradient_needs_a_part_of_all_logits(self, changes, share):
    steps, rows, ids, width = 70, 32, 33_278, 64
    config = ModelConfig(ids, 32, width, tie_embeddings=True, **changes)
    f = pure(config)
    h, table, targets = (jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in (
        ([steps, rows, width], jnp.float32), ([ids, 32], jnp.float32), ([steps, rows], jnp.int32)))
    params = jax.eval_shape(f.init, KEY(0), h, table)
    compiled = jax.jit(jax.grad(lambda inputs, key, targets: f.apply(
        inputs[0], key, *inputs[1:], targets).mean())).lower(
            (params, h, table), jax.eval_shape(lambda: KEY(0)), targets).compile()
    logits = 4 * steps * rows * ids
    self.assertLess(compiled.memory_analysis().temp_size_in_bytes, share * logits)


if __name__ == "__main__":
  absltest.main()
