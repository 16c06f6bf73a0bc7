"""Properties of the language model, over every kind of model in `tests.oracle.MODELS`."""

import functools

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm.model
from hklm.config import ModelConfig
from hklm.errors import InputError
from tests import oracle
from tests.oracle import B, T, ready

KEY = jax.random.key


class NumpyTest(oracle.X64TestCase):
  """Against the equations."""

  @oracle.over_lstms
  def test_agrees_with_numpy_from_any_state(self, model):
    lm, params, state, inputs, targets, _, holes = ready(model)
    truth = oracle.NumpyModel(model.config, params)
    logits, after = lm.unroll(params, None, inputs, state)
    loss, _ = lm.loss(params, None, inputs, targets, state)
    masked, after_masked = lm.loss(params, None, inputs, targets, state, holes)
    logits, after, loss, masked, after_masked, state = oracle.as_numpy(
        (logits, after, loss, masked, after_masked, state))
    np.testing.assert_array_equal(loss.penalty, np.zeros([T, B]))
    for row in range(B):
      start = oracle.numpy_start(state, row)
      expected, end = truth.unroll(inputs[:, row], start)
      self.assert_close(logits[:, row], expected, 1e-10)
      self.assert_close(oracle.numpy_start(after, row), end, 1e-10)
      self.assert_close(after.output[row], end[-1][0], 1e-10)
      self.assert_close(loss.nats[:, row], truth.loss(inputs[:, row], targets[:, row], start),
                        1e-10)
      live = holes[:, row]  # the row without its gaps
      _, end = truth.unroll(inputs[live, row], start)
      self.assert_close(oracle.numpy_start(after_masked, row), end, 1e-10)
      self.assert_close(
          masked.nats[live, row],
          truth.loss(inputs[live, row], targets[live, row], start).reshape(live.sum()), 1e-10)

  @oracle.over_lstms
  def test_starts_as_numpy_does(self, model):
    lm, params = ready(model)[:2]
    truth = oracle.NumpyModel(model.config, params)
    state = lm.initial_state(params, B)
    logits, state = oracle.as_numpy((lm.readout(params, state), state))
    for row in range(B):
      self.assert_close(oracle.numpy_start(state, row), truth.initial_state(), 1e-14)
      self.assert_close(logits[row], truth.readout(truth.initial_state()), 1e-12)

  @oracle.over_lstms
  def test_activations_are_those_of_numpy(self, model):
    lm, params, state, inputs = ready(model)[:4]
    traces, state = oracle.as_numpy((lm.activations(params, inputs, state), state))
    self.assertLen(traces, model.config.num_layers)
    truth = oracle.NumpyModel(model.config, params)
    for row in range(B):
      layers = oracle.numpy_start(state, row)
      for t in range(T):
        layers, gates = truth.read(inputs[t, row], layers)
        for trace, (h, c), names in zip(traces, layers, gates, strict=True):
          self.assert_close(trace.output[t, row], h, 1e-10)
          self.assert_close(trace.cell[t, row], c, 1e-10)
          self.assert_close({name: gate[t, row] for name, gate in trace.gates.items()}, names,
                            1e-10)


class SameTest(oracle.X64TestCase):
  """One computation, written in two ways."""

  @oracle.over_all
  def test_stepped_is_unrolled_is_split(self, model):
    lm, params, state, inputs, targets, *_ = ready(model)
    logits, after = lm.unroll(params, None, inputs, state)
    logits, after = oracle.as_numpy((logits, after))
    half, between = lm.unroll(params, None, inputs[:T // 2], state)
    rest, split_after = lm.unroll(params, None, inputs[T // 2:], between)
    self.assert_close(np.concatenate([half, rest]), logits)
    self.assert_close(split_after, after)

    stepped, now = [], state
    for tokens in inputs:
      step, now = lm.step(params, None, tokens, now)
      stepped.append(step)
      self.assert_close(lm.readout(params, now), step)
    self.assert_close(np.stack(stepped), logits)
    self.assert_close(now, after)

    hidden, hidden_after = lm.hidden(params, None, inputs, state)
    self.assert_close(lm.head(params, hidden), logits)
    self.assert_close(np.asarray(hidden)[-1], after.output)
    self.assert_close(hidden_after, after)
    loss, loss_after = lm.loss(params, None, inputs, targets, state)
    expected = [[oracle.nats(logits[t, b], targets[t, b]) for b in range(B)] for t in range(T)]
    self.assert_close(loss.nats, np.array(expected))
    self.assert_close(loss_after, after)

  @oracle.over_all
  def test_padded_is_unpadded(self, model):
    lm, params, state, inputs, targets, prefix, holes = ready(model)
    whole = oracle.as_numpy(lm.loss(params, None, inputs, targets, state)[0])
    for mask in (prefix, holes):
      now, logits = state, []
      for tokens, live in zip(inputs, mask, strict=True):  # rows that are not live stand still
        step, new = lm.step(params, None, tokens, now)
        logits.append(step)
        now = jax.tree.map(functools.partial(_choose, live), new, now)
      loss, after = oracle.as_numpy(lm.loss(params, None, inputs, targets, state, mask))
      unrolled, unrolled_after = oracle.as_numpy(lm.unroll(params, None, inputs, state, mask))
      self.assert_close(after, now)
      self.assert_close(unrolled_after, now)
      np.testing.assert_array_equal(loss.nats[~mask], 0.0)
      np.testing.assert_array_equal(loss.penalty[~mask], 0.0)
      self.assertGreater(float(loss.nats[mask].min()), 0.0)
      if mask is prefix:
        self.assert_close(loss.nats[mask], whole.nats[mask])
      self.assert_close(unrolled[mask], np.stack(logits)[mask])

  @oracle.over_all
  def test_nothing_to_read_leaves_the_state_as_it_is(self, model):
    lm, params, state, inputs, targets, prefix, _ = ready(model)
    nothing = np.zeros_like(prefix)
    key = KEY(0) if model.drops else None
    loss, after = lm.loss(params, key, inputs, targets, state, nothing)
    self.assert_same_bits(after, state)
    np.testing.assert_array_equal(loss.nats, 0.0)

  def test_what_is_masked_is_not_looked_at(self):
    lm, params, state, inputs, targets, prefix, _ = ready(oracle.MODELS[1])
    expected, after = lm.loss(params, None, inputs, targets, state, prefix)
    junk = np.where(prefix, targets, 1000)  # an id that would give NaN
    loss, junk_after = lm.loss(params, None, np.where(prefix, inputs, 1), junk, state, prefix)
    self.assert_same_bits(loss, expected)
    self.assert_same_bits(junk_after, after)

  @oracle.over_all
  def test_batched_is_alone(self, model):
    lm, params, state, inputs, targets, _, holes = ready(model)
    together, after, state = oracle.as_numpy(
        (*lm.loss(params, None, inputs, targets, state, holes), state))
    for row in range(B):
      one = slice(row, row + 1)
      alone, alone_after = lm.loss(params, None, inputs[:, one], targets[:, one],
                                   jax.tree.map(lambda leaf, one=one: leaf[one], state),
                                   holes[:, one])
      alone, alone_after = oracle.as_numpy((alone, alone_after))
      self.assert_close(alone.nats[:, 0], together.nats[:, row])
      self.assert_close(jax.tree.map(lambda leaf: leaf[0], alone_after),
                        jax.tree.map(lambda leaf, row=row: leaf[row], after))

  @oracle.over_all
  def test_jit_is_no_jit(self, model):
    lm, params, state, inputs, targets, _, holes = ready(model)

    def both(params, state):
      start = lm.initial_state(params, B)
      loss, after = lm.loss(params, KEY(3), inputs[:3], targets[:3], state, holes[:3])
      return start, lm.readout(params, start), loss, after

    expected = jax.jit(both)(params, state)
    with jax.disable_jit():
      self.assert_close(both(params, state), expected)

  @oracle.over_all
  def test_vmap_over_parameters(self, model):
    lm, params, _, inputs, targets, *_ = ready(model)
    several = [params, oracle.random_like(params, seed=9)]

    def total(params):
      loss, after = lm.loss(params, None, inputs, targets, lm.initial_state(params, B))
      return loss.nats, after

    mapped = oracle.as_numpy(jax.jit(jax.vmap(total))(
        jax.tree.map(lambda *leaves: np.stack(leaves), *several)))
    for index, alone in enumerate(several):
      self.assert_close(jax.tree.map(lambda leaf, index=index: leaf[index], mapped), total(alone))

  def test_vmap_over_keys(self):
    model = next(model for model in oracle.MODELS if model.name == "dropout_per_step")
    lm, params, state, inputs, targets, *_ = ready(model)
    keys = jax.random.split(KEY(5), 2)
    mapped = np.asarray(jax.jit(jax.vmap(
        lambda key: lm.loss(params, key, inputs, targets, state)[0].nats))(keys))
    self.assertGreater(float(np.abs(mapped[0] - mapped[1]).max()), 1e-3)
    for index, key in enumerate(keys):
      self.assert_close(mapped[index], lm.loss(params, key, inputs, targets, state)[0].nats)

  def test_vmap_over_rows_is_a_batch(self):
    lm, params, state, inputs, targets, *_ = ready(oracle.MODELS[1])

    def row(inputs, targets, state):
      state = jax.tree.map(lambda leaf: leaf[None], state)
      return lm.loss(params, None, inputs[:, None], targets[:, None], state)[0].nats[:, 0]

    self.assert_close(jax.vmap(row, in_axes=(1, 1, 0), out_axes=1)(inputs, targets, state),
                      lm.loss(params, None, inputs, targets, state)[0].nats)


def _choose(live, new, old):
  return np.where(np.reshape(live, [-1] + [1] * (np.ndim(new) - 1)), new, old)


class PureTest(oracle.X64TestCase):
  """Arguments in, results out, and nothing else."""

  @oracle.over_all
  def test_arguments_are_unchanged(self, model):
    lm, params, state, inputs, targets, prefix, _ = ready(model)
    # NumPy arrays: those could be written to
    arguments = jax.tree.map(np.array, (params, state, inputs, targets, prefix))
    structure = jax.tree.structure(arguments)
    params, state, inputs, targets, prefix = arguments
    lm.loss(params, None, inputs, targets, state, prefix)
    if model.drops:
      lm.loss(params, KEY(0), inputs, targets, state, prefix)
    lm.unroll(params, None, inputs, state, prefix)
    lm.hidden(params, None, inputs, state)
    lm.step(params, None, inputs[0], state)
    lm.readout(params, state)
    lm.initial_state(params, B)
    lm.activations(params, inputs, state)
    self.assertEqual(jax.tree.structure(arguments), structure)
    fresh = ready(model)
    self.assert_same_bits(arguments, jax.tree.map(
        np.array, (fresh.params, fresh.state, fresh.inputs, fresh.targets, fresh.prefix)))

  @oracle.over_all
  def test_no_effects(self, model):
    lm, params, state, inputs, targets, prefix, _ = ready(model)
    calls = {
        "init": lambda: lm.init(KEY(0)),
        "initial_state": lambda: lm.initial_state(params, B),
        "readout": lambda: lm.readout(params, state),
        "step": lambda: lm.step(params, KEY(0), inputs[0], state),
        "loss": lambda: lm.loss(params, KEY(0), inputs, targets, state, prefix),
        "activations": lambda: lm.activations(params, inputs, state),
        "gradient": lambda: jax.grad(
            lambda p: lm.loss(p, KEY(0), inputs, targets, state)[0].nats.sum())(params),
    }
    for name, call in calls.items():
      with self.subTest(name):
        self.assertEmpty(jax.make_jaxpr(call)().effects)
    noisy = jax.make_jaxpr(lambda: jax.debug.print("a print is an effect"))()
    self.assertNotEmpty(noisy.effects)

  @oracle.over_all
  def test_twice_is_the_same(self, model):
    lm, params, state, inputs, targets, *_ = ready(model)
    evaluated = [lm.loss(params, None, inputs, targets, state) for _ in range(2)]
    self.assert_same_bits(*evaluated)
    trained = [lm.loss(params, KEY(4), inputs, targets, state) for _ in range(2)]
    self.assert_same_bits(*trained)
    other, _ = lm.loss(params, KEY(40), inputs, targets, state)
    for loss in (evaluated[0][0], other):
      difference = np.abs(np.asarray(loss.nats) - np.asarray(trained[0][0].nats)).max()
      if model.drops:
        self.assertGreater(difference, 1e-3)
      else:
        self.assertEqual(difference, 0.0)

  @parameterized.parameters(*(model for model in oracle.MODELS if model.drops))
  def test_rate_0_is_no_dropout(self, *model):
    model = oracle.replaced(oracle.Model(*model), input_dropout=0.0, layer_dropout=0.0,
                            output_dropout=0.0)
    lm, params, state, inputs, targets, *_ = ready(model)
    self.assert_same_bits(lm.loss(params, KEY(1), inputs, targets, state),
                          lm.loss(params, None, inputs, targets, state))

  def test_haiku_finds_no_parameters_made_under_raw_transforms(self):
    sizes = {"vocab_size": 11, "embedding_size": 2, "hidden_size": 2, "num_layers": 2}
    config = ModelConfig(**sizes, initial_state="learned", layer_dropout=0.5)
    tokens, mask = jnp.zeros([4, B], int), jnp.ones([4, B], bool)

    def use(lm):
      def total(params):
        state = lm.initial_state(params, B)
        return lm.loss(params, KEY(0), tokens, tokens, state, mask)[0].nats.sum()
      params = jax.eval_shape(lm.init, KEY(0))
      jax.eval_shape(jax.grad(total), params)
      state = jax.eval_shape(lambda p: lm.initial_state(p, B), params)
      jax.eval_shape(lm.step, params, KEY(0), tokens[0], state)
      jax.eval_shape(lm.activations, params, tokens, state)

    # `__wrapped__`: without the cache, so that everything is traced while Haiku looks
    make = hklm.model._bundle.__wrapped__
    with hk.config.context(check_jax_usage=True):
      use(make(config, None))
      use(make(ModelConfig(**sizes), oracle.gru))
      with self.assertRaisesRegex(ValueError, "Haiku"):  # it does look
        use(make(ModelConfig(**sizes), lambda layer, size: _RawScan(size)))


class _RawScan(hk.RNNCore):
  """Makes a parameter inside `jax.jit`."""

  def __init__(self, size):
    super().__init__()
    self._size = size

  def initial_state(self, batch_size):
    return jnp.zeros([batch_size, self._size])

  def __call__(self, x, state):
    return jax.jit(lambda x: x * hk.get_parameter("w", [], init=jnp.ones))(x), state


class ParametersTest(oracle.X64TestCase):

  @oracle.over_lstms
  def test_count_is_the_closed_form(self, model):
    c = model.config
    V, E, H = c.vocab_size, c.embedding_size, c.hidden_size
    expected = V * E
    for layer in range(c.num_layers):
      D = H if layer else (E or V)
      expected += 4 * H * (D + H + c.num_biases) + (H if c.initial_state == "learned" else 0)
    expected += (0 if c.tie_embeddings else V * H) + (V if c.output_bias else 0)
    params = jax.eval_shape(ready(model).lm.init, KEY(0))
    self.assertEqual(sum(leaf.size for leaf in jax.tree.leaves(params)), expected)

  def test_names_and_shapes(self):
    def shapes(model):
      params = jax.eval_shape(ready(model).lm.init, KEY(0))
      return {f"{module}/{name}": leaf.shape
              for module, leaves in params.items() for name, leaf in leaves.items()}

    models = {model.name: model for model in oracle.MODELS}
    self.assertEqual(shapes(models["one_layer"]), {
        "embedding/table": (7, 5), "head/w": (7, 3), "head/b": (7,),
        "lstm_0/w_ih": (12, 5), "lstm_0/w_hh": (12, 3), "lstm_0/b": (12,)})
    self.assertEqual(shapes(models["article"]), {
        "embedding/table": (7, 4), "lstm_0/w_ih": (16, 4), "lstm_0/w_hh": (16, 4),
        "lstm_0/b": (16,), "lstm_0/c_0": (4,)})
    self.assertEqual(shapes(models["one_hot_learned"]), {
        "head/w": (7, 3),
        "lstm_0/w_ih": (12, 7), "lstm_0/w_hh": (12, 3), "lstm_0/b": (12,), "lstm_0/b_hh": (12,),
        "lstm_0/c_0": (3,),
        "lstm_1/w_ih": (12, 3), "lstm_1/w_hh": (12, 3), "lstm_1/b": (12,), "lstm_1/b_hh": (12,),
        "lstm_1/c_0": (3,)})
    self.assertEqual(shapes(models["own_cell"]), {
        "embedding/table": (7, 5), "head/w": (7, 3), "head/b": (7,),
        "own_0/start": (3,), "own_0/linear/w": (8, 3), "own_0/linear/b": (3,),
        "own_1/start": (3,), "own_1/linear/w": (6, 3), "own_1/linear/b": (3,)})

  def test_init_is_the_same_with_and_without_jit(self):
    lm = ready(oracle.MODELS[4]).lm
    with jax.disable_jit():
      plain = lm.init(KEY(0))
    self.assert_close(plain, lm.init(KEY(0)), 1e-15)
    with self.assertRaises(AssertionError):
      self.assert_close(plain, lm.init(KEY(1)))

  @parameterized.parameters(1, 4)
  def test_functions_ask_for_the_same_parameters_in_any_order(self, index):
    model = oracle.MODELS[index]
    _, params, state, inputs, targets, *_ = ready(model)
    calls = [
        lambda lm: lm.readout(params, state),
        lambda lm: lm.head(params, state.output),
        lambda lm: lm.loss(params, None, inputs, targets, state)[1],
        lambda lm: lm.step(params, None, inputs[0], state),
        lambda lm: lm.unroll(params, None, inputs[:2], state),
        lambda lm: lm.initial_state(params, 2),
    ]
    make = hklm.model._bundle.__wrapped__  # fresh: nothing has been traced yet
    results = [[call(lm) for call in order]
               for lm, order in ((make(model.config, None), calls),
                                 (make(model.config, None), calls[::-1]))]
    self.assert_same_bits(results[0], results[1][::-1])

  @oracle.over_all
  def test_all_zero_gives_log_v(self, model):
    lm, params, _, inputs, targets, *_ = ready(model)
    zeros = jax.tree.map(lambda p: np.zeros(p.shape, p.dtype), params)
    loss, _ = lm.loss(zeros, KEY(0), inputs, targets, lm.initial_state(zeros, B))
    np.testing.assert_allclose(loss.nats, np.full([T, B], np.log(7.0)), rtol=1e-15)


class DtypeTest(chex.TestCase):
  """`ModelConfig.dtype` decides, whatever the 64-bit switch says."""

  @parameterized.product(
      model=[model for model in oracle.MODELS if model.cell is not oracle.own_cell],
      case=[("float32", True), ("bfloat16", True), ("bfloat16", False)])
  def test_everything_is_of_the_dtype(self, model, case):
    dtype, x64 = case
    with jax.enable_x64(x64):
      lm = hklm.model.language_model(oracle.replaced(model, dtype=dtype).config, model.cell)
      tokens, mask = np.zeros([T, B], np.int32), np.ones([T, B], bool)
      params = jax.eval_shape(lm.init, KEY(0))
      state = jax.eval_shape(lambda p: lm.initial_state(p, B), params)

      def results(params, state):
        def total(params):
          return lm.loss(params, KEY(0), tokens, tokens, state, mask)[0].nats.sum()
        return (lm.readout(params, state), lm.unroll(params, KEY(0), tokens, state),
                lm.unroll(params, None, tokens, state, mask),
                lm.step(params, None, tokens[0], state), lm.hidden(params, None, tokens, state),
                lm.activations(params, tokens, state), jax.grad(total)(params))

      for name, tree in (("params", params), ("state", state),
                         ("results", jax.eval_shape(results, params, state))):
        with self.subTest(name):
          self.assertEqual({str(leaf.dtype) for leaf in jax.tree.leaves(tree)}, {dtype})
      loss, after = jax.eval_shape(
          lambda p, s: lm.loss(p, None, tokens, tokens, s, mask), params, state)
      chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
      self.assertEqual({leaf.dtype for leaf in loss}, {jnp.dtype("float32")})  # to be summed

  def test_one_bundle_serves_both_switches(self):
    config = ModelConfig(vocab_size=7, embedding_size=3, hidden_size=2)
    nats = []
    for x64 in (False, True, False):
      with jax.enable_x64(x64):
        lm = hklm.model.language_model(config)
        params = oracle.random_like(jax.eval_shape(lm.init, KEY(0)))
        tokens = np.arange(6).reshape(3, 2)
        loss, _ = lm.loss(params, None, tokens, tokens, lm.initial_state(params, 2))
        self.assertEqual(loss.nats.dtype, jnp.float32)
        nats.append(np.asarray(loss.nats))
    np.testing.assert_allclose(nats[0], nats[1], rtol=1e-6)
    np.testing.assert_array_equal(nats[0], nats[2])

  def test_float32_and_bfloat16_are_near_float64(self):
    with jax.enable_x64(True):
      model = oracle.MODELS[1]
      _, params, state, inputs, targets, *_ = ready(model)
      truth = np.array([oracle.NumpyModel(model.config, params).loss(
          inputs[:, row], targets[:, row], oracle.numpy_start(state, row)) for row in range(B)]).T
      for dtype, tolerance in (("float32", 2e-6), ("bfloat16", 0.1)):
        lm = hklm.model.language_model(oracle.replaced(model, dtype=dtype).config)
        narrow = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), (params, state))
        loss, _ = lm.loss(narrow[0], None, inputs, targets, narrow[1])
        np.testing.assert_allclose(loss.nats.astype(jnp.float64), truth, rtol=0, atol=tolerance)

  def test_every_leaf_of_a_state_has_a_batch_axis(self):
    with jax.enable_x64(True):
      for model in oracle.MODELS:
        lm, params, *_ = ready(model)
        state = jax.eval_shape(lambda p, lm=lm: lm.initial_state(p, 2), params)
        self.assertNotEmpty(jax.tree.leaves(state))
        chex.assert_tree_shape_prefix(state, (2,))
        self.assertEqual(state.output.shape, (2, model.config.hidden_size))
        self.assertLen(state.cells, model.config.num_layers)


class BufferTest(chex.TestCase):
  """Donation deletes a buffer, and with it whoever shares it."""

  @parameterized.parameters(
      {"initial_state": "zeros"}, {"initial_state": "learned"},
      {"initial_state": "learned", "batch_size": 1}, {"initial_state": "zeros", "batch_size": 1},
      {"cell": oracle.gru}, {"cell": oracle.vanilla},
      {"cell": lambda layer, size: _ParameterStart(size), "batch_size": 1})
  def test_no_two_leaves_share_a_buffer(self, initial_state="zeros", cell=None, batch_size=3):
    config = ModelConfig(vocab_size=4, embedding_size=4, hidden_size=4, num_layers=2,
                         tie_embeddings=True, initial_state=initial_state, init="zeros")
    lm = hklm.model.language_model(config, cell)
    params = lm.init(KEY(0))
    state = lm.initial_state(params, batch_size)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((params, state))]
    self.assertLen(set(pointers), len(pointers))

    tokens = jnp.zeros([2, batch_size], jnp.int32)

    def update(params, state):
      loss, state = lm.loss(params, None, tokens, tokens, state)
      return jax.tree.map(lambda p: p + 1.0, params), state, loss.nats

    expected = jax.jit(update)(params, state)
    before = jax.tree.map(np.array, params)
    only_state = jax.jit(update, donate_argnums=1)(params, state)
    # the cells' states were donated, and everything else still lives
    self.assertTrue(all(leaf.is_deleted() for leaf in jax.tree.leaves(state.cells)))
    chex.assert_trees_all_equal(params, before)
    chex.assert_trees_all_close(only_state, expected, rtol=1e-6)
    both = jax.jit(update, donate_argnums=(0, 1))(params, lm.initial_state(params, batch_size))
    self.assertTrue(all(leaf.is_deleted() for leaf in jax.tree.leaves(params)))
    chex.assert_trees_all_close(both, expected, rtol=1e-6)


class _ParameterStart(hk.RNNCore):
  """Starts from a parameter as it is, and puts that out: jit would hand its buffer on."""

  def __init__(self, size):
    super().__init__()
    self._size = size

  def initial_state(self, batch_size):
    start = hk.get_parameter("start", [1, self._size], jnp.float32, jnp.ones)
    return start if batch_size == 1 else jnp.repeat(start, batch_size, axis=0)

  def output(self, state):
    return state

  def __call__(self, x, state):
    return x + state, x + state


class CompilationTest(oracle.X64TestCase):

  @oracle.over_all
  def test_the_program_does_not_grow_with_length(self, model):
    lm, params, state, *_ = ready(model)

    def equations(length):
      tokens, mask = np.zeros([length, B], np.int32), np.ones([length, B], bool)

      def total(params, state):
        loss, state = lm.loss(params, KEY(0), tokens, tokens, state, mask)
        return loss.nats.sum(), state

      gradient = jax.make_jaxpr(jax.grad(total, has_aux=True))(params, state)
      traces = jax.make_jaxpr(lm.activations)(params, tokens, state)
      return oracle.count_equations(gradient.jaxpr), oracle.count_equations(traces.jaxpr)

    self.assertEqual(equations(1000), equations(10))
    self.assertGreater(equations(10)[0], 50)  # it does look into the scans

  @parameterized.parameters(False, True)
  def test_jitted_callers_trace_once(self, static):
    config = {"vocab_size": 9, "embedding_size": 2, "hidden_size": 2}

    def total(lm, params, tokens):
      state = lm.initial_state(params, 2)
      return lm.loss(params, None, tokens, tokens, state)[0].nats.sum()

    chex.clear_trace_counter()
    traced_once = chex.assert_max_traces(total, n=1)
    params = hklm.model.language_model(ModelConfig(**config)).init(KEY(0))
    compiled = jax.jit(traced_once, static_argnums=0)
    closed = jax.jit(lambda params, tokens: traced_once(
        hklm.model.language_model(ModelConfig(**config)), params, tokens))
    results = []
    for token in (1, 2):
      tokens = jnp.full([3, 2], token)
      lm = hklm.model.language_model(ModelConfig(**config))  # built anew each time
      results.append(compiled(lm, params, tokens) if static else closed(params, tokens))
      self.assertAlmostEqual(float(results[-1]), float(total(lm, params, tokens)), places=5)
    self.assertNotEqual(float(results[0]), float(results[1]))

  def test_functions_of_the_bundle_are_compiled_once(self):
    lm, params, state, inputs, *_ = ready(oracle.MODELS[0])
    lm.step(params, None, inputs[0], state)
    size = lm.step._cache_size()
    for tokens in inputs:
      _, state = lm.step(params, None, tokens, state)
    self.assertEqual(lm.step._cache_size(), size)


class _Changing(hk.GRU):
  """Its state grows narrower."""

  def __call__(self, x, state):
    y, state = super().__call__(x, state)
    return y, state[:, :1]


class _Random(hk.GRU):
  """Draws whether it is given a key or not."""

  def __call__(self, x, state):
    y, state = super().__call__(x, state)
    return y + jax.random.normal(hk.next_rng_key(), y.shape), state


class BundleTest(chex.TestCase):

  def test_same_config_same_bundle(self):
    config = {"vocab_size": 5, "hidden_size": 4, "embedding_size": 4}
    lm = hklm.model.language_model(ModelConfig(**config))
    self.assertIs(lm, hklm.model.language_model(ModelConfig(**config, forget_bias=0)))
    self.assertIsNot(lm, hklm.model.language_model(ModelConfig(**config, forget_bias=1)))
    own = hklm.model.language_model(ModelConfig(**config), oracle.gru)
    self.assertIsNot(lm, own)
    self.assertIs(own, hklm.model.language_model(ModelConfig(**config), oracle.gru))
    self.assertEqual(lm.config, ModelConfig(**config))

  def test_arguments_go_by_name_as_well(self):
    lm = hklm.model.language_model(ModelConfig(vocab_size=5, embedding_size=3, hidden_size=4))
    params, tokens = lm.init(key=KEY(0)), jnp.ones([2, 3], int)
    state = lm.initial_state(params=params, batch_size=3)
    by_name = {"params": params, "key": None, "state": state}
    for found, expected in [
        (lm.readout(params=params, state=state), lm.readout(params, state)),
        (lm.step(**by_name, tokens=tokens[0]), lm.step(params, None, tokens[0], state)),
        (lm.unroll(**by_name, tokens=tokens), lm.unroll(params, None, tokens, state)),
        (lm.hidden(**by_name, tokens=tokens), lm.hidden(params, None, tokens, state)),
        (lm.head(params=params, hidden=state.output), lm.head(params, state.output)),
        (lm.loss(**by_name, inputs=tokens, targets=tokens, mask=tokens > 0),
         lm.loss(params, None, tokens, tokens, state)),
        (lm.activations(params=params, tokens=tokens, state=state),
         lm.activations(params, tokens, state)),
    ]:
      chex.assert_trees_all_close(found, expected, atol=1e-6)

  def test_a_cell_by_name_is_that_cell(self):
    config = {"vocab_size": 5, "hidden_size": 4, "embedding_size": 4}
    named = hklm.model.language_model(ModelConfig(**config, cell="tests.oracle:gru"))
    given = hklm.model.language_model(ModelConfig(**config), oracle.gru)
    params = named.init(KEY(0))
    chex.assert_trees_all_equal(params, given.init(KEY(0)))
    self.assertIn("gru_0", params)

  def test_no_vocabulary_is_refused(self):
    with self.assertRaisesRegex(InputError, r"vocab_size is 0; needed: the number of ids"):
      hklm.model.language_model(ModelConfig())

  def test_float64_needs_the_switch(self):
    with jax.enable_x64(False), self.assertRaisesRegex(InputError, "jax_enable_x64"):
      hklm.model.language_model(ModelConfig(vocab_size=3, dtype="float64"))

  @parameterized.named_parameters(
      ("wrong_width", lambda layer, size: hk.GRU(size + 1),
       r"^the cell put out \(5,\); needed: width 4 \(hidden_size\)$"),
      ("not_a_core", lambda layer, size: hk.Linear(size),
       r"^cell\(0, 4\) returned Linear; needed: an hk.RNNCore$"),
      ("nothing", lambda layer, size: None,
       r"^cell\(0, 4\) returned NoneType; needed: an hk.RNNCore$"),
      ("takes_no_layer", lambda size: hk.GRU(size), r"cannot serve \(TypeError: .*takes 1"),
      ("changes_its_state", lambda layer, size: _Changing(size), r"the cell cannot serve .*carry"),
      ("needs_a_key", lambda layer, size: _Random(size), r"the cell cannot serve \(MissingRNG"))
  def test_a_wrong_cell_is_refused_at_once(self, cell, message):
    config = ModelConfig(vocab_size=5, embedding_size=3, hidden_size=4)
    with self.assertRaisesRegex(InputError, message):
      hklm.model.language_model(config, cell)

  @parameterized.parameters(
      ("no_such_module_anywhere:f", "No module named 'no_such_module_anywhere'"),
      ("tests.oracle:no_such_cell", "module tests.oracle has no function no_such_cell"),
      ("tests.oracle:MODELS", "module tests.oracle has no function MODELS"))
  def test_a_cell_that_cannot_be_found_is_refused(self, name, message):
    with self.assertRaisesRegex(InputError, f"^--cell={name}: .*{message}"):
      hklm.model.language_model(ModelConfig(vocab_size=5, cell=name))

  def test_an_unknown_initialiser_is_refused_at_once(self):
    with self.assertRaisesRegex(InputError, "--init: found 'glorot'"):
      hklm.model.language_model(ModelConfig(vocab_size=5, init="glorot"))

  def test_wrong_shapes_are_refused_while_tracing(self):
    lm = hklm.model.language_model(ModelConfig(vocab_size=5, embedding_size=3, hidden_size=4))
    params = jax.eval_shape(lm.init, KEY(0))
    state = jax.eval_shape(lambda p: lm.initial_state(p, 2), params)
    tokens = np.zeros([3, 2], np.int32)
    wrong = {
        "rank": lambda p, s: lm.unroll(p, None, tokens[0], s),
        "type": lambda p, s: lm.unroll(p, None, tokens.astype(np.float32), s),
        "batch": lambda p, s: lm.unroll(p, None, tokens[:, :1], s),
        "mask": lambda p, s: lm.unroll(p, None, tokens, s, np.ones([2, 3], bool)),
        "targets": lambda p, s: lm.loss(p, None, tokens, tokens[:2], s),
        "trace": lambda p, s: lm.activations(p, tokens[:, :1], s),
    }
    for name, call in wrong.items():
      with self.subTest(name), self.assertRaises(AssertionError):
        jax.eval_shape(call, params, state)


class DropoutTest(chex.TestCase):
  """Where masks fall: identity cells, vectors of ones and an identity output matrix show them."""

  SIZE, STEPS, ROWS = 64, 40, 4

  def masks(self, num_layers=1, **rates):
    """What the head reads, what it puts out, and the state, all ones but for dropout."""
    config = ModelConfig(vocab_size=self.SIZE, embedding_size=self.SIZE, hidden_size=self.SIZE,
                         num_layers=num_layers, output_bias=False, **rates)
    lm = hklm.model.language_model(config, _identity)
    params = {"embedding": {"table": jnp.ones([self.SIZE, self.SIZE], jnp.float32)},
              "head": {"w": jnp.eye(self.SIZE, dtype=jnp.float32)}}
    tokens = jnp.zeros([self.STEPS, self.ROWS], jnp.int32)
    state = lm.initial_state(params, self.ROWS)
    logits, after = lm.unroll(params, KEY(7), tokens, state)
    hidden, _ = lm.hidden(params, KEY(7), tokens, state)
    return np.asarray(hidden), np.asarray(logits), np.asarray(after.output)

  def assert_share(self, kept, share):
    """Within five standard deviations; draws that repeat over time count once."""
    draws = kept.size if (kept != kept[0]).any() else kept[0].size
    self.assertAlmostEqual(kept.mean(), share, delta=5 * (share * (1 - share) / draws) ** 0.5)

  @parameterized.product(
      case=[("input_dropout", 0.1), ("layer_dropout", 0.75), ("output_dropout", 0.5)],
      per_step=[False, True])
  def test_share_of_zeros_scale_and_repetition(self, case, per_step):
    where, rate = case
    hidden, logits, output = self.masks(
        num_layers=2, dropout_per_step=per_step, **{where: rate})
    if where == "output_dropout":  # what the head reads is dropped, what the state keeps is not
      np.testing.assert_array_equal(hidden, 1.0)
      np.testing.assert_array_equal(output, 1.0)
    else:
      np.testing.assert_array_equal(logits, hidden)
      np.testing.assert_array_equal(output, hidden[-1])
    self.assertEqual(sorted(set(logits.ravel().tolist())), [0.0, float(np.float32(1 / (1 - rate)))])
    self.assert_share(logits > 0, 1 - rate)
    self.assertEqual(bool((logits == logits[0]).all()), not per_step)
    self.assertFalse((logits[:, :1] == logits).all())  # rows differ

  @parameterized.parameters(False, True)
  def test_masks_of_layers_are_independent(self, per_step):
    # two masks of one half between three layers keep a quarter; one and the same would keep half
    hidden, _, _ = self.masks(num_layers=3, layer_dropout=0.5, dropout_per_step=per_step)
    self.assertEqual(sorted(set(hidden.ravel().tolist())), [0.0, 4.0])
    self.assert_share(hidden > 0, 0.25)

  def test_masks_of_places_are_independent(self):
    _, logits, _ = self.masks(num_layers=2, input_dropout=0.5, layer_dropout=0.5,
                              output_dropout=0.5, dropout_per_step=True)
    self.assertEqual(sorted(set(logits.ravel().tolist())), [0.0, 8.0])
    self.assert_share(logits > 0, 0.125)

  def test_masks_of_steps_are_independent(self):
    hidden, _, _ = self.masks(input_dropout=0.5, dropout_per_step=True)
    both = (hidden[1:] > 0) & (hidden[:-1] > 0)
    self.assert_share(both, 0.25)

  @parameterized.parameters("dropout_per_window", "dropout_per_step")
  def test_output_dropout_is_not_in_the_carried_state(self, name):
    with jax.enable_x64(True):
      (model,) = (model for model in oracle.MODELS if model.name == name)
      model = oracle.replaced(model, input_dropout=0.0, layer_dropout=0.0)
      lm, params, state, inputs, *_ = ready(model)
      dropped, after = lm.unroll(params, KEY(1), inputs, state)
      plain, plain_after = lm.unroll(params, None, inputs, state)
      chex.assert_trees_all_close(after, plain_after, rtol=1e-12)
      self.assertGreater(float(jnp.abs(dropped - plain).max()), 0.1)


def _identity(layer, size):
  del layer, size
  return hk.IdentityCore()


if __name__ == "__main__":
  absltest.main()
