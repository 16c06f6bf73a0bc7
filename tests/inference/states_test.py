"""What layers do at every token is what NumPy says they do, alone or carried from line to line."""

import io

import jax
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.data import tokenizers
from hklm.errors import InputError
from hklm.inference import score, states
from tests import oracle

TOKENIZER = tokenizers.build(hklm.TokenizerConfig("char"), ["abcdef\n"])  # 7 ids
LINES = ["abc", "", "fedcba" * 50, "b"]  # the third is longer than a window
MODEL = next(model for model in oracle.MODELS if model.name == "two_layers_two_biases")


class StatesTest(oracle.X64TestCase, parameterized.TestCase):

  def expected(self, config, params, start, carried):
    """`NumpyModel` over every line: gates, cells and outputs of each token, by layer."""
    truth = oracle.NumpyModel(config, params)
    before = [TOKENIZER.end_of_line] if start == "eol" else []
    found, layers = [], None
    for line in LINES:
      fresh = layers is None or not carried
      if fresh:
        layers = truth.initial_state()
        for token in before:
          layers, _ = truth.read(token, layers)
      for token in TOKENIZER.encode(line + "\n"):
        layers, gates = truth.read(token, layers)
        found.append([(its, c, h) for its, (h, c) in zip(gates, layers, strict=True)])
    return found

  @parameterized.product(start=("eol", "state"), carried=(False, True))
  def test_they_are_numpys(self, start, carried):
    its = oracle.ready(MODEL)
    found = states.states(its.lm, its.params, TOKENIZER, LINES, start, carried)
    expected = self.expected(MODEL.config, its.params, start, carried)
    for number, layer in enumerate(found.layers):
      gates, cells, outputs = zip(*(token[number] for token in expected), strict=True)
      for name in "ifgo":
        np.testing.assert_allclose(layer.gates[name], [gate[name] for gate in gates], rtol=1e-9)
      np.testing.assert_allclose(layer.cells["cell"], cells, rtol=1e-9)
      np.testing.assert_allclose(layer.output, outputs, rtol=1e-9)
    rows = list(score.scored_lines(its.lm, its.params, TOKENIZER, LINES, start, carried))
    self.assertEqual(
        list(zip(found.line.tolist(), found.index.tolist(), strict=True)),
        [(row.line, row.index) for line in rows for row in line.tokens()])

  @parameterized.parameters("own_cell", "gru")
  def test_a_cell_that_tells_no_gates(self, name):
    model = next(model for model in oracle.MODELS if model.name == name)
    its = oracle.ready(model)
    found = states.states(its.lm, its.params, TOKENIZER, ["ab", "c"], "state")
    for layer in found.layers:
      self.assertEqual(layer.gates, {})
      self.assertEqual(layer.output.shape, (5, 3))
    names = {"own_cell": ["cell_h", "cell_steps"], "gru": ["cell"]}[name]
    self.assertEqual(list(found.layers[0].cells), names)
    if name == "own_cell":
      self.assertEqual(found.layers[0].cells["cell_steps"].tolist(), [1, 2, 3, 1, 2])

  def test_a_file_gives_them_back(self):
    its = oracle.ready(MODEL)
    found = states.states(its.lm, its.params, TOKENIZER, LINES)
    file = io.BytesIO()
    states.save(file, found)
    file.seek(0)
    read = np.load(file, allow_pickle=False)
    self.assertEqual(
        set(read), {"line", "index"} | {f"layer_{n}_{name}" for n in range(2) for name in (
            "gate_i", "gate_f", "gate_g", "gate_o", "cell", "output")})
    np.testing.assert_array_equal(read["line"], found.line)
    np.testing.assert_array_equal(read["layer_1_gate_f"], found.layers[1].gates["f"])

  def test_no_lines(self):
    its = oracle.ready(MODEL)
    found = states.states(its.lm, its.params, TOKENIZER, [])
    self.assertEmpty(found.line)
    self.assertEmpty(found.index)

  def test_bfloat16_is_widened_for_numpys_files(self):
    lm = hklm.language_model(hklm.ModelConfig(7, 2, 3, dtype="bfloat16"))
    found = states.states(lm, lm.init(jax.random.key(0)), TOKENIZER, ["ab"])
    self.assertEqual(found.layers[0].cells["cell"].dtype, np.float32)

  def test_mistakes_are_those_of_score(self):
    its = oracle.ready(MODEL)
    for lines, message in ((["ab", "x"], "line 1, counted from 0: found 'x'"),
                           (["a\nb"], "line 0, counted from 0: found a line feed")):
      with self.assertRaisesRegex(InputError, message):
        states.states(its.lm, its.params, TOKENIZER, lines)
    with self.assertRaisesRegex(InputError, "--start=now is unknown"):
      states.states(its.lm, its.params, TOKENIZER, ["a"], "now")


if __name__ == "__main__":
  absltest.main()
