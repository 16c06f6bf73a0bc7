"""Imports and exports without torch, against NumPy; `with_torch_test` compares with it."""

import dataclasses
import tracemalloc
import warnings

import jax
import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized

import hklm
from hklm.errors import InputError
from hklm.interop.torch import export_state_dict, import_state_dict
from tests import oracle
from tests.interop import sources
from tests.interop.sources import E, H, V, lstm, renamed, without

IDS = np.array([3, 1, 6, 0, 3])


def logits(its):
  lm = hklm.language_model(its.config)
  return np.asarray(lm.unroll(its.params, None, IDS[:, None].astype(np.int32),
                              lm.initial_state(its.params, 1))[0])[:, 0]


def half(tensors):
  return {name: tensor.astype(np.float16) for name, tensor in tensors.items()}


class OracleTest(oracle.X64TestCase):

  @parameterized.parameters(("ifgo", 0.0, 2), ("igfo", 1.0, 1), ("ifog", 0.0, 2), ("ogfi", 0.5, 0),
                            ("foig", -1.25, 2))
  def test_gate_order_and_forget_offset(self, order, offset, biases):
    tensors = lstm((H, H), biases=biases, dtype=np.float64)
    its = import_state_dict(tensors, order, offset)
    self.assertEqual(its.config.num_biases, max(biases, bool(offset)))
    self.assert_close(logits(its), sources.logits(tensors, IDS, order, offset))

  @parameterized.named_parameters(
      ("one_hot", {"embedding": 0}), ("tied", {"embedding": H, "tied": True, "output_bias": False}),
      ("widths", {"sizes": (6, 3, 4)}))
  def test_models(self, options):
    tensors = lstm(**options, dtype=np.float64)
    self.assert_close(logits(import_state_dict(tensors)), sources.logits(tensors, IDS))

  def test_gate_order_of_projections(self):
    tensors = lstm((6,), dtype=np.float64)
    draw = np.random.RandomState(1)
    hr, hh, decoder = (draw.normal(size=shape) for shape in ((H, 6), (24, H), (V, H)))
    theirs = tensors | {"rnn.weight_hh_l0": hh, "rnn.weight_hr_l0": hr, "decoder.weight": decoder}
    plain = tensors | {"rnn.weight_hh_l0": hh @ hr, "decoder.weight": decoder @ hr}
    its = import_state_dict(theirs, "igfo", 1.0)
    self.assertEqual(its.config.cell, "projected_lstm")
    self.assert_close(logits(its), sources.logits(plain, IDS, "igfo", 1.0))

  @parameterized.parameters("bias_ih", "bias_hh")
  def test_one_bias_alone(self, name):
    tensors = renamed(lstm(biases=1, dtype=np.float64), ("bias_ih", name))
    its = import_state_dict(tensors)
    self.assertEqual(its.config.num_biases, 1)
    self.assert_close(logits(its), sources.logits(tensors, IDS))
    notes = {row.source: row.note for row in its.report}
    self.assertEqual(notes.pop(f"rnn.{name}_l0"), "one bias alone")
    self.assertEqual(set(notes.values()), {""})
    row, = (row for row in import_state_dict(tensors, "igfo", 1.0).report if name in row.source)
    self.assertEqual(row.note, "one bias alone; gates igfo made ifgo; 1 added to the forget gate")

  def test_a_name_that_is_none(self):
    with self.assertRaisesRegex(InputError, "^found a tensor called 5; needed: names, such as"):
      import_state_dict({5: np.ones([8, 3])})


class ImportTest(parameterized.TestCase):

  def test_config(self):
    tensors = lstm((6, 3), biases=0, output_bias=False)
    self.assertEqual(import_state_dict(tensors).config, hklm.ModelConfig(
        vocab_size=V, embedding_size=E, hidden_size=6, num_layers=2, layer_sizes=(6, 3),
        num_biases=0, output_bias=False))

  def test_what_is_not_changed_is_not_copied(self):
    tensors = lstm((64, 64), vocab_size=10_000, embedding=64)
    size = sum(tensor.nbytes for tensor in tensors.values())
    tracemalloc.start()
    try:
      its = import_state_dict(tensors)
      _, peak = tracemalloc.get_traced_memory()
    finally:
      tracemalloc.stop()
    self.assertLess(peak, size / 10)
    self.assertTrue(np.shares_memory(its.params["embedding"]["table"], tensors["encoder.weight"]))

  @parameterized.parameters(np.float32, np.float64, ml_dtypes.bfloat16)
  def test_types_are_kept(self, dtype):
    its = import_state_dict(lstm(dtype=dtype))
    self.assertEqual(its.config.dtype, np.dtype(dtype).name)
    self.assertEqual({leaf.dtype for leaf in jax.tree.leaves(its.params)}, {np.dtype(dtype)})

  def test_half_precision_becomes_single(self):
    tensors = half(lstm())
    its = import_state_dict(tensors)
    self.assertEqual(its.config.dtype, "float32")
    np.testing.assert_array_equal(its.params["head"]["w"], tensors["decoder.weight"])
    self.assertEqual({row.note.partition(";")[0] for row in its.report}, {"float16 made float32"})

  def test_foreign_orders_of_bytes(self):
    tensors = lstm()
    its = import_state_dict({name: tensor.astype(">f4") for name, tensor in tensors.items()})
    self.assertTrue(its.params["head"]["b"].dtype.isnative)
    np.testing.assert_array_equal(its.params["head"]["b"], tensors["decoder.bias"])

  def test_a_gru_with_one_bias_has_a_second_of_zeros(self):
    its = import_state_dict(lstm(gates=3, biases=1))
    self.assertEqual((its.config.cell, its.config.num_biases), ("gru", 2))
    np.testing.assert_array_equal(its.params["gru_0"]["b_hh"], np.zeros(3 * H))
    self.assertEqual(its.report[-1], ("-", (3 * H,), "gru_0/b_hh", "zeros"))

  def test_every_tensor_is_in_the_report(self):
    tensors = renamed(lstm((H, H), embedding=H, tied=True), ("weight_hh_l0", "weight_hh_l0_raw"))
    tensors["rnn.weight_hh_l0"] = np.zeros_like(tensors["rnn.weight_hh_l0_raw"])
    rows = import_state_dict(tensors, forget_offset=1.0).report
    self.assertEqual([row.source for row in rows], list(tensors))
    rows = {row.source: row for row in rows}
    self.assertEqual(rows["rnn.weight_hh_l0_raw"][1:], ((4 * H, H), "lstm_0/w_hh", ""))
    self.assertEqual(rows["rnn.weight_hh_l0"].note, "copy of rnn.weight_hh_l0_raw, not used")
    self.assertEqual(rows["decoder.weight"][2:], ("embedding/table", "bit for bit encoder.weight"))
    self.assertEqual(rows["rnn.bias_ih_l1"].note, "1 added to the forget gate")

  @parameterized.named_parameters(
      ("order", {"gate_order": "ifgg"}, "--gate_order=ifgg is unknown"),
      ("offset", {"forget_offset": np.inf}, "--forget_offset=inf is no finite float32 number"),
      ("no_number", {"forget_offset": np.nan}, "--forget_offset=nan is no finite float32 number"))
  def test_options(self, options, message):
    with self.assertRaisesRegex(InputError, message):
      import_state_dict(lstm(), **options)

  @parameterized.product(
      cell=[(3, "gru"), (1, "vanilla")], options=[{"gate_order": "igfo"}, {"forget_offset": 1.0}])
  def test_gates_of_an_lstm_alone(self, cell, options):
    gates, name = cell
    with self.assertRaisesRegex(InputError, f"are of LSTMs; found {name}"):
      import_state_dict(lstm(gates=gates), **options)

  @parameterized.named_parameters(
      ("float32", np.float32, 2, 3e38, "tensor rnn.bias_ih_l0 with --forget_offset=3e[+]38: found"),
      ("bfloat16", ml_dtypes.bfloat16, 0, 3.4e38, "tensor lstm_0/b with --forget_offset=3.4e[+]38"))
  def test_an_offset_that_is_too_large(self, dtype, biases, offset, message):
    tensors = lstm(biases=biases, dtype=dtype)
    if biases:
      tensors["rnn.bias_ih_l0"][:] = 3e38
    with warnings.catch_warnings(), self.assertRaisesRegex(InputError, message):
      warnings.simplefilter("error")
      import_state_dict(tensors, forget_offset=offset)

  def test_what_is_given_stays_as_it_is(self):
    tensors = lstm()
    before = {name: tensor.copy() for name, tensor in tensors.items()}
    import_state_dict(tensors, forget_offset=1.0)
    for name, tensor in tensors.items():
      np.testing.assert_array_equal(tensor, before[name], name)
      tensor.flags.writeable = False
    its = import_state_dict(tensors, forget_offset=1.0)
    np.testing.assert_array_equal(its.params["lstm_0"]["b"][H:2 * H],
                                  before["rnn.bias_ih_l0"][H:2 * H] + 1)

  @parameterized.named_parameters(
      ("nan", "rnn.weight_hh_l1", (2, 3), np.nan, r"rnn.weight_hh_l1: found nan at \[2, 3\]"),
      ("inf", "decoder.bias", (5,), -np.inf, r"decoder.bias: found -inf at \[5\]"))
  def test_numbers_that_are_not_finite(self, name, place, number, message):
    tensors = lstm((H, H))
    tensors[name][place] = number
    with self.assertRaisesRegex(InputError, message):
      import_state_dict(tensors)

  def test_far_down_too(self):
    tensors = lstm(vocab_size=3000)
    tensors["encoder.weight"][2500, 1] = np.nan
    with self.assertRaisesRegex(InputError, r"encoder.weight: found nan at \[2500, 1\]"):
      import_state_dict(tensors)

  @parameterized.named_parameters(
      ("integers", "rnn.bias_ih_l0", np.int32, "rnn.bias_ih_l0 .* has type int32; needed: float16"),
      ("several", "decoder.bias", np.float64,
       r"several types: float32 \(encoder.weight\) and float64 \(decoder.bias\)"))
  def test_types(self, name, dtype, message):
    tensors = lstm()
    tensors[name] = tensors[name].astype(dtype)
    with self.assertRaisesRegex(InputError, message):
      import_state_dict(tensors)

  @parameterized.named_parameters(
      ("rows", "rnn.weight_hh_l0", [15, 4],
       r"rnn.weight_hh_l0: found \[15, 4\], needed \[4H, H\] of an LSTM"),
      ("turned", "rnn.weight_hh_l0", [4, 16], r"transposed: .*; give \[16, 4\]"),
      ("vector", "rnn.weight_hh_l0", [64], r"rnn.weight_hh_l0: found \[64\], needed a matrix"),
      ("input_turned", "rnn.weight_ih_l0", [5, 16], r"found \[5, 16\], needed \[16, D\]; it is t"),
      ("above", "rnn.weight_ih_l1", [16, 5], r"weight_ih_l1: found \[16, 5\], needed \[16, 4\]$"),
      ("bias", "rnn.bias_hh_l1", [12], r"rnn.bias_hh_l1: found \[12\], needed \[16\]"),
      ("empty", "decoder.bias", [0], r"decoder.bias \[0\] is empty"))
  def test_shapes(self, name, shape, message):
    with self.assertRaisesRegex(InputError, message):
      import_state_dict(lstm((H, H)) | {name: np.ones(shape, np.float32)})

  def test_layers_of_several_kinds(self):
    tensors = without(lstm((H, H)), "_l1") | {
        name: tensor for name, tensor in lstm((H, H), gates=3).items() if "_l1" in name}
    with self.assertRaisesRegex(InputError, r"lstm of 4 \(puts out 4\), gru of 4"):
      import_state_dict(tensors)

  def test_projections(self):
    tensors = lstm()
    tensors |= {"rnn.weight_hh_l0": np.ones([4 * H, 3], np.float32),
                "rnn.weight_hr_l0": np.ones([3, H], np.float32),
                "decoder.weight": np.ones([V, 3], np.float32)}
    config = import_state_dict(tensors).config
    self.assertEqual((config.cell, config.projection_size, config.hidden_size),
                     ("projected_lstm", 3, H))
    with self.assertRaisesRegex(InputError, r"weight_hr_l0: found \[2, 4\], needed \[3, H\]"):
      import_state_dict(tensors | {"rnn.weight_hr_l0": np.ones([2, H], np.float32)})


class ExportTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ("plain", {}), ("deep", {"sizes": (H, H)}), ("one_hot", {"embedding": 0, "biases": 0}),
      ("tied", {"embedding": H, "tied": True, "output_bias": False}),
      ("gru", {"gates": 3}), ("gru_without_biases", {"gates": 3, "biases": 0}),
      ("vanilla", {"gates": 1}))
  def test_what_came_in_goes_out(self, options):
    tensors = lstm(**options)
    its = import_state_dict(tensors)
    found = export_state_dict(its.config, its.params)
    self.assertEqual(list(found), list(tensors))
    for name, tensor in tensors.items():
      np.testing.assert_array_equal(found[name].view(np.uint32), tensor.view(np.uint32), name)

  def test_layers_of_several_widths_are_a_list(self):
    tensors = lstm((6, 3))
    its = import_state_dict(tensors)
    found = export_state_dict(its.config, its.params)
    expected = renamed(tensors, ("rnn.", "rnns."))
    for n in range(2):
      expected = {f"rnns.{n}.{name[5:-1]}0" if name.endswith(f"_l{n}") else name: tensor
                  for name, tensor in expected.items()}
    self.assertEqual(list(found), list(expected))
    for name in expected:
      np.testing.assert_array_equal(found[name], expected[name], name)

  def test_the_second_of_one_bias_is_zero(self):
    its = import_state_dict(lstm(biases=1))
    found = export_state_dict(its.config, its.params)
    np.testing.assert_array_equal(found["rnn.bias_ih_l0"], its.params["lstm_0"]["b"])
    np.testing.assert_array_equal(found["rnn.bias_hh_l0"], np.zeros(4 * H))

  @parameterized.parameters(
      {"initial_state": "learned"}, {"head_projection": True}, {"head": "mixture"},
      {"cell": "slstm"}, {"cell": "gru", "num_biases": 1}, {"input_gate": "capped"},
      {"connections": "sum", "num_layers": 2}, {"zoneout": 0.1}, {"zoneout_cell": 0.1})
  def test_what_modules_cannot_represent(self, **changes):
    config = dataclasses.replace(hklm.ModelConfig(vocab_size=V), **changes)
    name, value = next(iter(changes.items()))
    if changes.get("cell") == "gru":
      name, value = "num_biases", 1
    with self.assertRaisesRegex(InputError, f"^--{name}={value}: PyTorch's modules cannot"):
      export_state_dict(config, {})

  def test_a_sampled_head_is_a_linear_one(self):
    its = import_state_dict(lstm())
    found = export_state_dict(dataclasses.replace(its.config, head="sampled"), its.params)
    np.testing.assert_array_equal(found["decoder.weight"], its.params["head"]["w"])

  def test_parameters_of_another_model(self):
    its = import_state_dict(lstm())
    with self.assertRaisesRegex(InputError, "tensor lstm_1/b: found nothing, needed"):
      export_state_dict(dataclasses.replace(its.config, num_layers=2), its.params)
    with self.assertRaisesRegex(InputError, "tensor head/b: found .*, needed nothing"):
      export_state_dict(dataclasses.replace(its.config, output_bias=False), its.params)


if __name__ == "__main__":
  absltest.main()
