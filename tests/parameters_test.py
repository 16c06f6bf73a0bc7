"""Names and shapes of parameters are pinned: files of weights hold them, and outlive a renaming."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm import parameters
from hklm.config.model import CELLS
from hklm.errors import InputError
from tests import oracle

V, E, H = 7, 3, 4
EMBEDDING = {"embedding/table": (V, E)}
HEAD = {"head/b": (V,), "head/w": (V, H)}
LSTM = {"lstm_0/b": (16,), "lstm_0/w_hh": (16, H), "lstm_0/w_ih": (16, E)}

# What a config says besides the sizes above, and all parameters of its model.
MODELS = (
    ("plain", {}, {**EMBEDDING, **HEAD, **LSTM}),
    ("two_layers_tied_two_biases",
     {"num_layers": 2, "tie_embeddings": True, "embedding_size": 4, "num_biases": 2},
     {"embedding/table": (7, 4), "head/b": (7,),
      "lstm_0/b": (16,), "lstm_0/b_hh": (16,), "lstm_0/w_hh": (16, 4), "lstm_0/w_ih": (16, 4),
      "lstm_1/b": (16,), "lstm_1/b_hh": (16,), "lstm_1/w_hh": (16, 4), "lstm_1/w_ih": (16, 4)}),
    ("layer_sizes", {"layer_sizes": (4, 2), "num_layers": 2},
     {**EMBEDDING, **LSTM, "head/b": (7,), "head/w": (7, 2),
      "lstm_1/b": (8,), "lstm_1/w_hh": (8, 2), "lstm_1/w_ih": (8, 4)}),
    ("one_hot_learned_state", {"embedding_size": 0, "initial_state": "learned",
                               "output_bias": False},
     {"head/w": (7, 4), "lstm_0/b": (16,), "lstm_0/c_0": (4,), "lstm_0/w_hh": (16, 4),
      "lstm_0/w_ih": (16, 7)}),
    ("head_projection", {"head_projection": True},
     {**EMBEDDING, **LSTM, "head/b": (7,), "head/w": (7, 3), "projection/w": (3, 4)}),
    ("mixture", {"head": "mixture", "tie_embeddings": True},
     {**EMBEDDING, **LSTM, "head/b": (7,), "mixture/b_k": (6,), "mixture/w_k": (6, 4),
      "mixture/w_pi": (2, 4)}),
    ("adaptive", {"head": "adaptive", "adaptive_cutoffs": (3,)},
     {**EMBEDDING, **LSTM, "head/b": (4,), "head/p_1": (1, 4), "head/u_1": (4, 1),
      "head/w": (4, 4)}),
    ("sampled", {"head": "sampled", "sampled_tokens": 3}, {**EMBEDDING, **HEAD, **LSTM}),
)

# A layer of each cell, as `module: {name: shape}`.
LAYERS = {
    "lstm": {"lstm_0": {"b": (16,), "w_hh": (16, 4), "w_ih": (16, 3)}},
    "peephole_lstm": {"peephole_lstm_0": {
        "b": (16,), "w_c": (3, 4), "w_hh": (16, 4), "w_ih": (16, 3)}},
    "layer_norm_lstm": {"layer_norm_lstm_0": {
        "b": (16,), "bias_c": (4,), "bias_hh": (16,), "bias_ih": (16,), "gain_c": (4,),
        "gain_hh": (16,), "gain_ih": (16,), "w_hh": (16, 4), "w_ih": (16, 3)}},
    "projected_lstm": {"projected_lstm_0": {
        "b": (16,), "w_hh": (16, 2), "w_hr": (2, 4), "w_ih": (16, 3)}},
    "mogrifier": {
        "lstm_0": {"b": (16,), "w_hh": (16, 4), "w_ih": (16, 3)},
        "mogrifier_0": {
            "b_1": (3,), "b_2": (4,), "b_3": (3,), "b_4": (4,), "b_5": (3,), "q_1": (3, 4),
            "q_3": (3, 4), "q_5": (3, 4), "r_2": (4, 3), "r_4": (4, 3)}},
    "gru": {"gru_0": {"b": (12,), "w_hh": (12, 4), "w_ih": (12, 3)}},
    "vanilla": {"vanilla_0": {"b": (4,), "w_hh": (4, 4), "w_ih": (4, 3)}},
    "qrnn": {"qrnn_0": {"b": (12,), "w_ih": (12, 3)}},
    "min_lstm": {"min_lstm_0": {"b": (12,), "w_ih": (12, 3)}},
    "min_gru": {"min_gru_0": {"b": (8,), "w_ih": (8, 3)}},
    "slstm": {"slstm_0": {"b": (16,), "w_hh": (16, 4), "w_ih": (16, 3)}},
}


def model(**changes):
  return hklm.language_model(hklm.ModelConfig(
      **({"vocab_size": V, "embedding_size": E, "hidden_size": H} | changes)))


def shapes(lm):
  return {name: its.shape for name, its in parameters.described(lm).items()}


class DescribedTest(parameterized.TestCase):

  @parameterized.named_parameters(*MODELS)
  def test_models(self, changes, needed):
    self.assertEqual(shapes(model(**changes)), needed)

  @parameterized.parameters(*CELLS)
  def test_cells(self, cell):
    sizes = {"projection_size": 2} if cell == "projected_lstm" else {}
    found = {name: shape for name, shape in shapes(model(cell=cell, **sizes)).items()
             if not name.startswith(("embedding/", "head/"))}
    self.assertEqual(found, {f"{module}/{name}": shape for module, its in LAYERS[cell].items()
                             for name, shape in its.items()})

  def test_what_is_described_is_what_init_makes(self):
    lm = model(dtype="bfloat16")
    params = parameters.flat(lm.init(jax.random.key(0)))
    self.assertEqual(list(params), sorted(params))
    self.assertEqual({name: (leaf.shape, leaf.dtype) for name, leaf in params.items()},
                     {name: (its.shape, jnp.dtype("bfloat16"))
                      for name, its in parameters.described(lm).items()})


class NestedTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.lm = model()
    self.params = oracle.random_like(parameters.shapes(self.lm))
    self.tensors = {name: np.array(leaf) for name, leaf in parameters.flat(self.params).items()}

  def test_the_way_back_is_exact(self):
    found = parameters.nested(self.tensors, self.lm)
    chex.assert_trees_all_equal(found, self.params, strict=True)

  @parameterized.parameters(
      ("head/w", None, "F: tensor head/w: found nothing, needed float32[7, 4]"),
      ("head/v", np.zeros(2), "F: tensor head/v: found float64[2], needed nothing"),
      ("head/w", np.zeros([4, 7], np.float32), "found float32[4, 7], needed float32[7, 4]"),
      ("head/b", np.zeros(7, np.float16), "head/b: found float16[7], needed float32[7]"),
      ("head/b", np.full(7, np.nan, np.float32), "F: tensor head/b is not finite"),
      ("head/b", np.full(7, -np.inf, np.float32), "F: tensor head/b is not finite"))
  def test_what_does_not_fit_is_named(self, name, array, message):
    tensors = {key: leaf for key, leaf in (self.tensors | {name: array}).items()
               if leaf is not None}
    with self.assertRaises(InputError) as caught:
      parameters.nested(tensors, self.lm, "F")
    self.assertIn(message, str(caught.exception))

  def test_a_checkpoint_of_another_model_is_named_alike(self):
    wider = model(hidden_size=5)
    with self.assertRaisesRegex(InputError, r"head/w: found float32\[7, 4\], needed "
                                r"float32\[7, 5\]"):
      parameters.nested(self.tensors, wider)
    changed = dataclasses.replace(self.lm.config, cell="gru")
    with self.assertRaisesRegex(InputError, "tensor gru_0/b: found nothing, needed"):
      parameters.nested(self.tensors, hklm.language_model(changed))


if __name__ == "__main__":
  absltest.main()
