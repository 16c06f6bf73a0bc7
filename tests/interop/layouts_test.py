"""Which tensor is what: names and shapes as programs write them, and what is refused."""

from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from hklm.errors import InputError
from hklm.interop import layouts
from tests.interop.sources import E, H, V, lstm, renamed


def rnn(*prefixes, layers=1, biases=2):
  """Recurrent layers under each prefix."""
  names = [name for name in lstm((H,) * layers, biases=biases) if name.startswith("rnn.")]
  return {f"{prefix}{name[4:]}": np.zeros(1) for prefix in prefixes for name in names}


def table(*shape, seed=0):
  return np.random.RandomState(seed).normal(size=shape)


class RecurrentTest(parameterized.TestCase):

  @parameterized.parameters("", "rnn.", "module.rnn.", "model.lstm.", "rnn.module.", "a_b_")
  def test_prefixes(self, prefix):
    found = layouts.recurrent(rnn(prefix, layers=2))
    self.assertEqual([its["bias_hh"] for its in found.layers],
                     [f"{prefix}bias_hh_l0", f"{prefix}bias_hh_l1"])
    self.assertEmpty(found.copies)

  def test_layers_go_by_number_not_by_spelling(self):
    names = [f"rnns.{n}.module." for n in (10, 2, 0)]
    found = layouts.recurrent(rnn(*names))
    self.assertEqual([its["weight_ih"] for its in found.layers],
                     [f"rnns.{n}.module.weight_ih_l0" for n in (0, 2, 10)])
    found = layouts.recurrent(dict(reversed(rnn("rnn.", layers=12).items())))
    self.assertEqual([its["weight_ih"] for its in found.layers],
                     [f"rnn.weight_ih_l{n}" for n in range(12)])

  def test_several_layers_in_each_of_a_list(self):
    found = layouts.recurrent(rnn("rnns.1.", "rnns.0.", layers=2))
    self.assertEqual([its["weight_hh"] for its in found.layers], [
        f"rnns.{n}.weight_hh_l{layer}" for n in range(2) for layer in range(2)])

  def test_cells(self):
    names = renamed(rnn("lstm1.", "lstm2."), ("_l0", ""))
    found = layouts.recurrent(names)
    self.assertEqual([its["bias_ih"] for its in found.layers], ["lstm1.bias_ih", "lstm2.bias_ih"])

  @parameterized.named_parameters(
      ("awd", ("rnns.0.module.", "rnns.1.module."), "rnns.1.module.weight_hh_l0"),
      ("fastai", ("0.rnns.0.module.", "0.rnns.1.module."), "0.rnns.1.weight_hh_l0"))
  def test_weight_drop(self, prefixes, renamed_to):
    names = rnn(*prefixes)
    for prefix in prefixes:
      raw = f"{prefix}weight_hh_l0"
      if renamed_to.startswith("0."):
        raw = raw.replace("module.", "")
      names[f"{raw}_raw"] = names.pop(f"{prefix}weight_hh_l0")
    found = layouts.recurrent(names)
    self.assertEqual(found.layers[1]["weight_hh"], f"{renamed_to}_raw")
    self.assertEmpty(found.copies)
    found = layouts.recurrent({f"{prefixes[1]}weight_hh_l0": np.zeros(1)} | names)
    self.assertEqual(found.layers[1]["weight_hh"], f"{renamed_to}_raw")
    self.assertEqual(found.copies, {f"{prefixes[1]}weight_hh_l0": f"{renamed_to}_raw"})

  @parameterized.named_parameters(
      ("none", {"encoder.weight": np.ones([V, E])}, r"no recurrent layer: .*encoder.weight \[7, 5"),
      ("nothing", {}, "found nothing"),
      ("bidirectional", rnn("rnn.") | {"rnn.weight_ih_l0_reverse": 0}, "reverse is of a bidirec"),
      ("encoder_and_decoder", rnn("encoder.", "decoder."), "under decoder. and encoder.: no num"),
      ("a_layer_is_missing", {name: 0 for name in rnn("rnn.", layers=3) if "_l1" not in name},
       "tensor rnn.weight_ih_l1 is missing: there is a layer above"),
      ("a_part_is_missing", {name: 0 for name in rnn("m.rnn.") if "weight_hh" not in name},
       "tensor m.rnn.weight_hh_l0 is missing"),
      ("a_bias_is_missing", {name: 0 for name in rnn("rnns.0.", "rnns.1.")
                             if name != "rnns.1.bias_hh_l0"},
       "tensor rnns.1.bias_hh_l0 is missing"),
      ("twice", rnn("rnn.", "module.rnn."), "are for the same place"),
      ("zeros_in_front", rnn("rnn.") | {"rnn.weight_ih_l00": 0}, "are for the same place"),
      ("copy_of_another_shape", rnn("rnn.") | {"rnn.weight_hh_l0_raw": np.ones(2)},
       r"weight_hh_l0: found \[1\], needed \[2\]"))
  def test_what_is_refused(self, tensors, message):
    with self.assertRaisesRegex(InputError, message):
      layouts.recurrent(tensors)


class TablesTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ("by_shape", ("one", V, E), ("two", V, H), "one", "two", ""),
      ("by_shape_turned", ("one", V, H), ("two", V, E), "two", "one", ""),
      ("by_both_names", ("decoder.weight", V, H), ("encoder.weight", V, H), "encoder.weight",
       "decoder.weight", "by its name"),
      ("by_the_last_part", ("decoder.out.weight", V, H), ("decoder.embed_tokens.weight", V, H),
       "decoder.embed_tokens.weight", "decoder.out.weight", "by its name"),
      ("by_one_name", ("w1", V, H), ("wte", V, H), "wte", "w1", "by its name"),
      ("by_the_other_name", ("fc.weight", V, H), ("w1", V, H), "w1", "fc.weight", "by its name"),
      ("by_order", ("w1", V, H), ("w2", V, H), "w1", "w2", "by its place in the file"))
  def test_two(self, first, second, embedding, output, decided_by):
    tensors = {name: table(*shape, seed=n) for n, (name, *shape) in enumerate((first, second))}
    tensors["b"] = np.zeros(V)
    self.assertEqual(layouts.tables(tensors, tensors[embedding].shape[1], H),
                     (embedding, output, "b", {}, decided_by))

  @parameterized.named_parameters(
      ("tied", {"encoder.weight": (V, H)}, H, "encoder.weight", None),
      ("tied_under_the_other_name", {"decoder.weight": (V, H)}, H, "decoder.weight", None),
      ("tied_square", {"encoder.weight": (H, H)}, H, "encoder.weight", None),
      ("one_hot", {"decoder.weight": (V, H)}, V, None, "decoder.weight"),
      ("one_hot_square", {"decoder.weight": (H, H)}, H, None, "decoder.weight"))
  def test_one(self, shapes, input_size, embedding, output):
    tensors = {name: table(*shape) for name, shape in shapes.items()}
    self.assertEqual(layouts.tables(tensors, input_size, H)[:3], (embedding, output, None))

  def test_copies_of_the_embedding(self):
    names = ("0.encoder.weight", "0.encoder_dp.emb.weight", "1.decoder.weight")
    found = layouts.tables({name: table(V, H) for name in names}, H, H)
    self.assertEqual(found[:3], (names[0], None, None))
    self.assertEqual(found.copies, dict.fromkeys(names[1:], names[0]))
    almost = table(V, H)
    almost[0, 0] = np.nextafter(almost[0, 0], 1)
    found = layouts.tables({names[0]: table(V, H), names[2]: almost}, H, H)
    self.assertEqual(found[:3], (names[0], names[2], None))

  @parameterized.named_parameters(
      ("none", {}, E, r"found nothing besides recurrent layers; needed: an embedding \[V, 5\]"),
      ("no_output", {"encoder.weight": (V, E)}, E, r"output matrix \[7, 4\] is missing; found enc"),
      ("no_embedding", {"decoder.weight": (V, H)}, E, r"embedding \[7, 5\] is missing; found dec"),
      ("three", {"a": (V, E), "b": (V, H), "c": (V, H)}, E, r"a \[7, 5\], b \[7, 4\], c"),
      ("two_embeddings", {"a": (V, E), "b": (V, E)}, E, r"a \[7, 5\] and b \[7, 5\]: needed an "),
      ("another_vocabulary", {"a": (V, E), "b": (8, H)}, E, r"b \[8, 4\]: .* of one V"),
      ("another_width", {"a": (V, E), "b": (V, 9)}, E,
       r"b: found \[7, 9\], needed \[V, 5\] as embedding or \[V, 4\] as output matrix$"),
      ("transposed", {"a": (V, E), "softmax_w": (H, V)}, E, r"softmax_w: .*transposed.*\[7, 4\]"),
      ("either", {"w": (H, H)}, H, "may be a tied embedding, or the output matrix over one-hot"),
      ("bias_of_another_size", {"a": (V, E), "b": (V, H), "bias": (8,)}, E,
       r"no place for bias \[8\]; needed, .*a bias \[7\]"),
      ("two_biases", {"a": (V, E), "b": (V, H), "bias": (V,), "bias2": (V,)}, E,
       r"no place for bias \[7\], bias2 \[7\]"),
      ("gains", {"a": (V, E), "b": (V, H), "norm.weight": (V,)}, E,
       r"no place for norm.weight \[7\]"),
      ("images", {"a": (V, E), "b": (V, H), "conv.weight": (2, 3, 4)}, E,
       r"no place for conv.weight \[2, 3, 4\]"))
  def test_what_is_refused(self, shapes, input_size, message):
    tensors = {name: table(*shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}
    with self.assertRaisesRegex(InputError, message):
      layouts.tables(tensors, input_size, H)

  def test_copies_differ_far_down_too(self):
    tensors = {"encoder.weight": table(2000, H), "decoder.weight": table(2000, H)}
    self.assertIsNone(layouts.tables(tensors, H, H).output)
    tensors["decoder.weight"][1500, 2] += 1
    self.assertEqual(layouts.tables(tensors, H, H).output, "decoder.weight")

  def test_many_matrices_are_refused_before_they_are_compared(self):
    tensors = {f"x{n}": table(V, H) for n in range(50)}
    self.assertLen(layouts.tables(tensors, H, H).copies, 49)
    tensors["x50"] = table(V, H)
    with (mock.patch.object(layouts, "same_bits", side_effect=AssertionError),
          self.assertRaisesRegex(InputError, r"x11 \[7, 4\] and 39 more besides recurrent layers")):
      layouts.tables(tensors, H, H)

  def test_integers_have_no_place(self):
    tensors = {"encoder.weight": table(V, H), "norm.num_batches_tracked": np.array(3),
               "mask": np.ones([V, H], int)}
    with self.assertRaisesRegex(
        InputError, r"no place for norm.num_batches_tracked \[\], mask \[7, 4\]; needed"):
      layouts.tables(tensors, H, H)

  def test_a_long_list_is_cut(self):
    tensors = {"encoder.weight": table(V, H)} | {f"x{n}": np.ones(3) for n in range(40)}
    with self.assertRaisesRegex(InputError, r"x11 \[3\] and 28 more; needed"):
      layouts.tables(tensors, H, H)


if __name__ == "__main__":
  absltest.main()
