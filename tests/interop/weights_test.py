"""Weights from files made by hand: whatever form they have, they are the same."""

import collections
import io
import os
import tempfile
import warnings
import zipfile

import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized
from safetensors import numpy as safetensors

from hklm.errors import InputError
from hklm.interop import weights
from tests.interop import torch_files as files

FORMATS = parameterized.named_parameters(*((name, name) for name in files.FORMATS))


def lstm(layers: int = 1, seed: int = 0, dtype: str = "float32") -> dict[str, np.ndarray]:
  rng = np.random.default_rng(seed)
  shapes = {"encoder.weight": (5, 3)}
  for layer in range(layers):
    shapes |= {f"rnn.weight_ih_l{layer}": (8, 2 if layer else 3),
               f"rnn.weight_hh_l{layer}": (8, 2), f"rnn.bias_ih_l{layer}": (8,)}
  shapes |= {"decoder.weight": (5, 2)}
  return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def tensors(arrays) -> collections.OrderedDict:
  return collections.OrderedDict((name, files.tensor(array)) for name, array in arrays.items())


class FileTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "weights.dat")

  def read(self, data: bytes, **options) -> weights.Weights:
    if os.path.exists(self.path):  # it is mapped: what was read before stays
      os.remove(self.path)
    with open(self.path, "wb") as file:
      file.write(data)
    return weights.read(self.path, **options)

  def npz(self, save=np.savez, **arrays) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()

  def assert_same(self, found, expected):
    self.assertEqual(list(found), list(expected))
    for name, array in expected.items():
      self.assertEqual(found[name].dtype, array.dtype, name)
      self.assertEqual(found[name].shape, array.shape, name)
      self.assertEqual(found[name].tobytes(), array.tobytes(), name)
      self.assertFalse(found[name].flags.writeable, name)

  def assert_refused(self, data: bytes, *parts: str):
    with self.assertRaises(InputError) as caught:
      self.read(data)
    message = str(caught.exception)
    self.assertStartsWith(message, f"{self.path}: ")
    self.assertNotIn("\n", message)
    for part in parts:
      self.assertIn(part, message)


class TorchTest(FileTest):

  @FORMATS
  def test_a_state_dict(self, form):
    expected = lstm(2)
    found = self.read(files.FORMATS[form](tensors(expected)))
    self.assert_same(found.tensors, expected)
    self.assertIsNone(found.symbols)

  @parameterized.parameters("float64", "float16", "bfloat16", "int64", "int32", "int16", "int8",
                            "uint8", "bool")
  def test_types(self, dtype):
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    expected = lstm(dtype="float32")
    expected["decoder.weight"] = (10 * expected["decoder.weight"]).astype(dtype)
    for form in files.FORMATS.values():
      self.assert_same(self.read(form(tensors(expected))).tensors, expected)
    self.assert_same(self.read(files.zipped(tensors(expected), order="big")).tensors, expected)

  @FORMATS
  def test_views(self, form):
    values = np.arange(24, dtype=np.float32)
    storage = files.Storage(values)
    found = self.read(files.FORMATS[form]({
        "weight_hh": files.view(storage, 4, (3, 2), (1, 3)),
        "tied": files.view(storage, 4, (6,), (1,)),
        "number": files.view(storage, 23, (), ()), "none": files.view(storage, 24, (0, 5), (5, 1)),
        "repeated": files.view(storage, 1, (4, 2), (0, 2))})).tensors
    self.assert_same(found, {
        "weight_hh": values[4:10].reshape(2, 3).T, "tied": values[4:10], "number": values[23],
        "none": np.zeros((0, 5), np.float32), "repeated": np.tile(values[[1, 3]], (4, 1))})
    self.assertTrue(np.shares_memory(found["weight_hh"], found["tied"]))

  def test_parts_of_storages_in_old_files(self):
    values = np.arange(24, dtype=np.float32)
    found = self.read(files.old({"weight_hh": files.view(
        files.Storage(values, start=5), 3, (2, 4), (4, 1))})).tensors
    self.assert_same(found, {"weight_hh": values[8:16].reshape(2, 4)})
    self.assert_refused(files.old({"weight_hh": files.view(
        files.Storage(values, start=5), 18, (2,), (1,))}), "needed: values 23 to 24 of it")

  def test_a_big_endian_storage_is_turned_once(self):
    storage = files.Storage(np.arange(6, dtype=np.float32))
    found = self.read(files.zipped({f"weight_hh{place}": files.view(storage, place, (2,), (1,))
                                    for place in range(5)}, order="big")).tensors
    self.assert_same(found, {f"weight_hh{place}": np.array([place, place + 1], np.float32)
                             for place in range(5)})
    starts = [array.__array_interface__["data"][0] for array in found.values()]
    self.assertEqual(np.diff(starts).tolist(), [4] * 4)  # all lie in one copy

  def test_nothing_is_copied(self):
    expected = lstm()
    for data in (files.zipped(tensors(expected)), files.old(tensors(expected)),
                 safetensors.save(expected), self.npz(**expected)):
      for array in self.read(data).tensors.values():
        while isinstance(array.base, np.ndarray):
          array = array.base
        self.assertEqual(type(memoryview(array.base).obj).__name__, "mmap")

  @FORMATS
  def test_a_whole_module_among_others(self, form):
    expected = lstm(1)
    rest = {name.rpartition(".")[2]: files.parameter(array) for name, array in expected.items()
            if name.startswith("rnn.")}
    model = files.module("model.RNNModel", modules={
        "encoder": files.module("torch.nn.Embedding", {
            "weight": files.parameter(expected["encoder.weight"])}),
        "rnn": files.module(
            "torch.nn.LSTM", rest, _flat_weights=list(rest.values()),
            _backend=files.Called(files.Name("torch.nn.backends.thnn",
                                             "_get_thnn_function_backend"))),
        "drop": files.module("torch.nn.Dropout"),
        "decoder": files.module("torch.nn.Linear", {
            "weight": files.parameter(expected["decoder.weight"]), "bias": None})},
        words=files.Made(files.Name("data", "Dictionary"),
                         {"word2idx": {"a": 0, "b": 1}, "idx2word": ["a", "b"]}))
    optimizer = files.Made(files.Name("torch.optim", "SGD"), {
        "state": {0: {"momentum": files.tensor(np.ones([2, 2]))}}, "param_groups": []})
    loss = files.module("splitcross.Loss")
    for value in (model, [model, loss, optimizer], {"net": model, "epoch": 3,
                                                    "loss": files.tensor(np.ones([]))}):
      found = self.read(files.FORMATS[form](value))
      self.assert_same(found.tensors, expected)
      self.assertEqual(found.symbols, ("a", "b"))
    parallel = files.module("torch.nn.DataParallel", modules={"module": model})
    self.assertEqual(list(self.read(files.FORMATS[form](parallel)).tensors),
                     [f"module.{name}" for name in expected])

  def test_modules_share_and_leave_out_as_their_state_dicts_do(self):
    shared = files.module("torch.nn.Linear", {"weight": files.tensor(np.ones([2, 3]))})
    top = files.module("m.Model", {"weight_hh": files.tensor(np.zeros(2))},
                       {"one": shared, "two": shared, "gone": None})
    top.state["_buffers"] = {"kept": files.tensor(np.ones(2)), "not": files.tensor(np.zeros(2))}
    top.state["_non_persistent_buffers_set"] = {"not"}
    found = self.read(files.zipped(top)).tensors
    self.assertEqual(list(found), ["weight_hh", "kept", "one.weight", "two.weight"])
    self.assertTrue(np.shares_memory(found["one.weight"], found["two.weight"]))

  def test_state_dicts_within_checkpoints(self):
    expected = lstm()
    others = {"epoch": 4, "optimizer": {"state": {0: {"step": 1, "exp_avg": files.tensor(
        np.ones([5, 3]))}}, "param_groups": [{"lr": 0.1}]}, "loss": files.tensor(np.ones(1))}
    for key in ("state_dict", "model_state_dict", "model", "net"):
      found = self.read(files.zipped(others | {key: tensors(expected)}))
      self.assert_same(found.tensors, expected)

  def test_parts_saved_by_themselves_are_all_there(self):
    parts = {"rnn": tensors({"weight_hh_l0": np.ones([4, 1])}), "encoder": tensors({
        "weight": np.zeros([3, 2])}), "more": [tensors({"weight": np.ones([1, 2])})]}
    self.assertEqual(list(self.read(files.zipped(parts)).tensors),
                     ["weight_hh_l0", "encoder.weight", "more.0.weight"])

  def test_older_classes(self):
    expected = lstm()
    makers = (lambda a: files.Called(files.Name("torch.nn.parameter", "Parameter"), files.tensor(a),
                                     state=(True, False, collections.OrderedDict())),
              lambda a: files.Called(files.Name("torch.autograd.variable", "Variable"),
                                     files.tensor(a)),
              lambda a: files.Called(files.Name("torch._utils", "_rebuild_tensor"),
                                     *files.tensor(a).args[:4]))
    for make in makers:
      found = self.read(files.old({name: make(array) for name, array in expected.items()}))
      self.assert_same(found.tensors, expected)

  def test_newer_classes(self):
    expected = lstm()
    def untyped(array):
      storage = files.Storage(array.view(np.uint8), "UntypedStorage")
      args = (storage, *files.tensor(array).args[1:], files.Name("torch", "float32"))
      return files.Called(files.Name("torch._tensor", "_rebuild_from_type_v2"),
                          files.Name("torch._utils", "_rebuild_tensor_v3"),
                          files.Name("my", "Tensor"), args, {"note": 1})
    found = self.read(files.zipped({name: untyped(array) for name, array in expected.items()}))
    self.assert_same(found.tensors, expected)

  @parameterized.parameters(range(6))
  def test_every_protocol(self, protocol):
    value = tensors(lstm()) | {"itos": ["a\u00e9", "\u4e2d"], "set": {1, 2}, "bytes": b"\xff",
                               "numbers": [1 << 40, -1.5, True, None, -3]}
    if protocol < 1:  # texts of persistent ids: torch never wrote such ones
      return self.assert_refused(files.zipped(value, protocol=1).replace(b"Q", b"P"), "damaged")
    found = self.read(files.zipped(value, protocol=protocol))
    self.assert_same(found.tensors, lstm())
    self.assertEqual(found.symbols, ("aé", "中"))


class ArraysTest(FileTest):

  def test_npz_of_python_2(self):
    file = io.BytesIO()
    np.save(file, np.ones([2, 3], np.float32))
    data = file.getvalue().replace(b"(2, 3), }  ", b"(2L, 3L), }")
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
      archive.writestr("weight.npy", data)
    with warnings.catch_warnings(action="error"):
      found = self.read(file.getvalue()).tensors
    self.assert_same(found, {"weight": np.ones([2, 3], np.float32)})

  def test_safetensors(self):
    expected = lstm() | {"half": np.ones([2, 3], np.float16), "none": np.zeros([0, 4]),
                         "number": np.array(3, np.int64)}
    expected["brain"] = np.array([[1.5, -2]], ml_dtypes.bfloat16)
    found = self.read(safetensors.save(expected, {"format": "pt"})).tensors
    self.assert_same(found, {name: expected[name] for name in found})
    self.assertSameElements(found, expected)

  @parameterized.parameters(np.savez, np.savez_compressed)
  def test_npz(self, save):
    expected = lstm(dtype="float64") | {
        "a/b": np.asfortranarray(np.arange(6).reshape(2, 3)), "none": np.zeros([3, 0, 2]),
        "brain": np.array([[1.5, -2]], ml_dtypes.bfloat16), "number": np.array(2.5)}
    big = np.array([1, -2], ">f4")
    found = self.read(self.npz(save, **expected, big=big, idx2word=np.array(["a", "né"])))
    self.assert_same(found.tensors, expected | {"big": big.astype(np.float32)})
    self.assertEqual(found.symbols, ("a", "né"))


if __name__ == "__main__":
  absltest.main()
