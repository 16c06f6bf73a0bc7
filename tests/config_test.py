"""Configs: what they refuse, that they are values, and their JSON."""

import dataclasses
import json
import re

from absl.testing import absltest, parameterized

from hklm.config import ModelConfig, TokenizerConfig, TrainConfig, from_json, to_json
from hklm.errors import InputError

NAN, INF = float("nan"), float("inf")

# One config of each kind in which no field has its default.
OTHER = (
    ModelConfig(vocab_size=9, embedding_size=8, hidden_size=8, num_layers=3, cell="a.b:c",
                tie_embeddings=True, output_bias=False,
                init="unit,bias=zeros", input_dropout=0.1, layer_dropout=0.2, output_dropout=0.3,
                dropout_per_step=True, dtype="bfloat16", lstm_impl="scan"),
    ModelConfig(initial_state="learned", num_biases=2, forget_bias=1.5, zoneout=0.1,
                zoneout_cell=0.2, state_dropout=0.3, weight_dropout=0.4, embedding_dropout=0.5,
                activation_penalty=2.0, change_penalty=1.0),
    ModelConfig(8, 4, 9, 2, (9, 7), "residual", "mogrifier", "capped", mogrifier_rounds=3,
                mogrifier_rank=2, head="mixture", mixture_components=3,
                mixture_dropout=0.1),
    ModelConfig(num_layers=2, cell="projected_lstm", projection_size=16, connections="sum",
                head="adaptive", adaptive_cutoffs=(3, 5), output_bias=False),
    ModelConfig(cell="qrnn", qrnn_window=2, head="sampled", sampled_tokens=7,
                head_projection=True),
    TokenizerConfig(kind="word", vocab_size=300, min_count=2, lowercase=True,
                    split_punctuation=True, unknown="<u>", end_of_line="", symbols_in_text=True,
                    bpe_sample=7),
    TrainConfig(model=ModelConfig(num_layers=2), tokenizer=TokenizerConfig("bpe"),
                valid_fraction=0.2, test_fraction=0.3, batch_size=2, bptt=3, epochs=4, steps=5,
                optimizer="momentum", learning_rate=1.0, momentum=0.8, rms_decay=0.7,
                weight_decay=0.6, clip=0.0, clip_elementwise=5.0, schedule="step", warmup=6,
                decay_rate=0.4, decay_start=12, decay_every=8, eval_every=9, checkpoint_every=10,
                keep_checkpoints=5, seed=11, accumulate=2, compute_dtype="bfloat16", remat_steps=2,
                average="polyak", average_decay=0.9, average_start=13, on_nonfinite="skip",
                adam_beta1=0.1, adam_beta2=0.2, weight_decay_first=True, loss="sum"),
    TrainConfig(schedule="step", decay_at=(2, 3), random_bptt=True, reset_rate=0.01,
                average="polyak", average_trigger="no_gain", average_patience=7,
                average_latest=8),
)
DEFAULTS = (ModelConfig(), TokenizerConfig(), TrainConfig())


class JsonTest(parameterized.TestCase):

  def test_the_examples_leave_no_field_out(self):
    for kind, default in ((type(default), default) for default in DEFAULTS):
      for field in dataclasses.fields(kind):
        others = [getattr(config, field.name) for config in OTHER if type(config) is kind]
        self.assertTrue(any(other != getattr(default, field.name) for other in others),
                        f"{kind.__name__}.{field.name}")

  @parameterized.parameters(*OTHER, *DEFAULTS)
  def test_round_trip(self, config):
    text = json.dumps(to_json(config))
    back = from_json(type(config), json.loads(text))
    self.assertEqual(back, config)
    self.assertEqual(hash(back), hash(config))
    self.assertEqual(json.dumps(to_json(back)), text)
    for field in dataclasses.fields(config):
      self.assertIs(type(getattr(back, field.name)), type(getattr(config, field.name)))

  @parameterized.parameters(*((type(default), field.name) for default in DEFAULTS
                              for field in dataclasses.fields(default)))
  def test_each_missing_field_is_named(self, kind, name):
    values = to_json(kind())
    del values[name]
    with self.assertRaisesRegex(InputError, f"^{kind.__name__}: missing fields {name}$"):
      from_json(kind, values)

  @parameterized.parameters(*DEFAULTS)
  def test_unknown_fields_are_named(self, config):
    values = {**to_json(config), "zeal": 1, "apple": 2}
    with self.assertRaisesRegex(InputError, "unknown fields apple, zeal$"):
      from_json(type(config), values)

  def test_nested_fields_are_checked_alike(self):
    values = to_json(TrainConfig())
    del values["model"]["num_layers"]
    with self.assertRaisesRegex(InputError, "^ModelConfig: missing fields num_layers$"):
      from_json(TrainConfig, values)
    for wrong in (None, 3, [], "lstm"):
      with self.assertRaisesRegex(InputError, re.escape(f"TrainConfig.tokenizer: found {wrong!r}")):
        from_json(TrainConfig, {**to_json(TrainConfig()), "tokenizer": wrong})

  @parameterized.parameters(*((type(default), field.name) for default in DEFAULTS
                              for field in dataclasses.fields(default)))
  def test_each_wrong_type_is_named(self, kind, name):
    for wrong in (None, [1.5], {"a": 1} if kind is not TrainConfig else ("1",)):
      with self.assertRaisesRegex(InputError, rf"^{kind.__name__}\.{name}: found .*, needed "):
        from_json(kind, {**to_json(kind()), name: wrong})

  @parameterized.parameters(
      ("hidden_size", "8"), ("hidden_size", 8.0), ("hidden_size", True), ("tie_embeddings", 1),
      ("tie_embeddings", "true"), ("forget_bias", "1"), ("forget_bias", True), ("cell", 3))
  def test_no_type_passes_for_another(self, name, wrong):
    with self.assertRaisesRegex(InputError, rf"^ModelConfig\.{name}: found {wrong!r}, needed "):
      ModelConfig(**{name: wrong})

  @parameterized.parameters(0, 2, "1", None)
  def test_another_format_is_refused(self, version):
    with self.assertRaisesRegex(InputError, f"found format {version!r}, this version"):
      from_json(ModelConfig, {**to_json(ModelConfig()), "format": version})

  def test_no_format_and_no_object_are_refused(self):
    values = to_json(ModelConfig())
    del values["format"]
    with self.assertRaisesRegex(InputError, "found format None"):
      from_json(ModelConfig, values)
    for wrong in ([], None, "x", 3):
      with self.assertRaisesRegex(InputError, "needed a JSON object"):
        from_json(ModelConfig, wrong)

  def test_values_out_of_range_are_refused_when_read(self):
    with self.assertRaisesRegex(InputError, "--hidden_size=0 is out of range"):
      from_json(ModelConfig, {**to_json(ModelConfig()), "hidden_size": 0})


class ValueTest(parameterized.TestCase):

  @parameterized.parameters(*OTHER, *DEFAULTS)
  def test_frozen_and_hashed_by_value(self, config):
    name = dataclasses.fields(config)[0].name
    with self.assertRaises(dataclasses.FrozenInstanceError):
      setattr(config, name, getattr(config, name))
    copy = dataclasses.replace(config)
    self.assertIsNot(copy, config)
    self.assertEqual({config: 1}[copy], 1)

  @parameterized.parameters(*DEFAULTS)
  def test_an_integer_is_the_same_number(self, config):
    floats = [field.name for field in dataclasses.fields(config) if field.type in (float, "float")]
    for name in floats:
      number = 0 if name not in ("learning_rate", "decay_rate") else 1
      whole = dataclasses.replace(config, **{name: number})
      real = dataclasses.replace(config, **{name: float(number)})
      self.assertIs(type(getattr(whole, name)), float)
      self.assertEqual(whole, real)
      self.assertEqual(hash(whole), hash(real))
      self.assertEqual(repr(whole), repr(real))
    self.assertEqual(bool(floats), config != TokenizerConfig())


class RangeTest(parameterized.TestCase):
  """Every refusal is one line that names the flag and the value."""

  def assert_refused(self, config_class, message, /, **values):
    with self.assertRaises(InputError) as caught:
      config_class(**values)
    text = str(caught.exception)
    self.assertNotIn("\n", text)
    self.assertIn(message, text)

  @parameterized.product(
      case=[(ModelConfig, "input_dropout"), (ModelConfig, "layer_dropout"),
            (ModelConfig, "output_dropout"), (TrainConfig, "valid_fraction"),
            (TrainConfig, "test_fraction"), (TrainConfig, "momentum"), (TrainConfig, "rms_decay"),
            (TrainConfig, "average_decay")],
      rate=[1.0, -0.1, 1.5, NAN, INF, 1])
  def test_rates(self, case, rate):
    kind, name = case
    self.assert_refused(kind, f"--{name}={float(rate)} is out of range; needed: at least 0 and "
                        "below 1", **{name: rate})

  @parameterized.parameters(
      (ModelConfig, "embedding_size", 0), (ModelConfig, "hidden_size", 1),
      (ModelConfig, "vocab_size", 0), (ModelConfig, "num_layers", 1),
      (TokenizerConfig, "min_count", 1), (TokenizerConfig, "bpe_sample", 1),
      (TokenizerConfig, "vocab_size", 0), (TrainConfig, "batch_size", 1), (TrainConfig, "bptt", 1),
      (TrainConfig, "epochs", 1), (TrainConfig, "decay_every", 1), (TrainConfig, "steps", 0),
      (TrainConfig, "warmup", 0), (TrainConfig, "decay_start", 0), (TrainConfig, "eval_every", 0),
      (TrainConfig, "checkpoint_every", 0), (TrainConfig, "accumulate", 1),
      (TrainConfig, "remat_steps", 0), (TrainConfig, "average_start", 0))
  def test_sizes(self, kind, name, least):
    self.assertEqual(getattr(kind(**{name: least}), name), least)
    for value in (least - 1, -5, 2**31):
      self.assert_refused(kind, f"--{name}={value} is out of range; needed: {least} or more",
                          **{name: value})

  @parameterized.product(name=["weight_decay", "clip", "clip_elementwise"], value=[-0.5, NAN, INF])
  def test_magnitudes(self, name, value):
    self.assertEqual(getattr(TrainConfig(**{name: 0.0}), name), 0.0)
    self.assert_refused(TrainConfig, f"--{name}={value} is ", **{name: value})

  @parameterized.product(name=["learning_rate", "decay_rate"], value=[0.0, -1.0, 1e39, NAN, INF])
  def test_positive_numbers(self, name, value):
    self.assert_refused(TrainConfig, f"--{name}={value} is ", **{name: value})

  @parameterized.parameters(NAN, INF, -INF, 3.5e38)
  def test_forget_bias_is_finite(self, value):
    self.assert_refused(ModelConfig, f"--forget_bias={value} is not a finite float32 number",
                        forget_bias=value)

  @parameterized.parameters(
      (ModelConfig, "initial_state", "random", "zeros, learned"),
      (ModelConfig, "dtype", "float16", "float32, float64, bfloat16"),
      (ModelConfig, "num_biases", 3, "0, 1, 2"), (ModelConfig, "num_biases", -1, "0, 1, 2"),
      (TrainConfig, "optimizer", "lion", "sgd, momentum, adam, adamw, rmsprop"),
      (TrainConfig, "schedule", "linear", "constant, cosine, step, plateau"),
      (TrainConfig, "average", "mean", "none, polyak, exponential"),
      (TrainConfig, "on_nonfinite", "ignore", "stop, skip"),
      (TrainConfig, "compute_dtype", "float16", "bfloat16, or nothing for --dtype"))
  def test_names(self, kind, name, value, needed):
    self.assert_refused(kind, f"--{name}={value} is unknown; needed: {needed}", **{name: value})

  @parameterized.parameters("rnn", "", "a:", ":b", "LSTM")
  def test_cells(self, cell):
    self.assert_refused(ModelConfig, f"--cell={cell} is unknown; needed: lstm, "
                        "peephole_lstm, ", cell=cell)

  def test_a_learned_start_belongs_to_built_in_cells(self):
    self.assert_refused(ModelConfig, "--initial_state=learned belongs to the LSTMs; let your cell",
                        cell="a.b:c", initial_state="learned")

  @parameterized.parameters(
      ({"input_gate": "capped", "cell": "gru"}, "--input_gate=capped is for --cell=lstm or mogrif"),
      ({"projection_size": 3}, "--projection_size=3 is for --cell=projected_lstm; found --cell=ls"),
      ({"cell": "projected_lstm"}, "--cell=projected_lstm needs --projection_size"),
      ({"cell": "qrnn", "weight_dropout": 0.5}, "--cell=qrnn has no recurrent matrix"),
      ({"cell": "qrnn", "zoneout": 0.1}, "--cell=qrnn carries no output from step to step; drop"),
      ({"cell": "gru", "state_dropout": 0.5}, "--state_dropout=0.5 is for --cell=lstm or"),
      ({"cell": "a.b:c", "forget_bias": 1.0}, "--forget_bias=1.0 is for --cell=lstm or"),
      ({"cell": "slstm", "num_biases": 2}, "--num_biases=2 is for --cell=lstm or projected_lstm"),
      ({"num_biases": 0, "forget_bias": 1.0}, "--forget_bias=1.0 is added to a bias; found --num_"),
      ({"layer_sizes": (3, 4)}, "goes with --num_layers=2 and --hidden_size=4; found 1 and 256"),
      ({"head": "adaptive"}, "--head=adaptive goes with --adaptive_cutoffs"),
      ({"head": "adaptive", "adaptive_cutoffs": (5, 5), "output_bias": False}, "does not rise"),
      ({"head": "adaptive", "adaptive_cutoffs": (3, 9), "vocab_size": 9},
       "--adaptive_cutoffs=3,9 goes past the vocabulary of 9"),
      ({"head": "adaptive", "adaptive_cutoffs": (5,), "tie_embeddings": True, "hidden_size": 128},
       "--head=adaptive has several tables; needed: --notie_embeddings"),
      ({"head": "adaptive", "adaptive_cutoffs": (5, 9), "hidden_size": 15},
       "--adaptive_cutoffs=5,9: the table of cluster n has width 15 / 4^n; needed: 16 or more"),
      ({"head": "adaptive", "adaptive_cutoffs": (5,), "embedding_size": 3,
        "head_projection": True}, "has width 3 / 4"),
      ({"mixture_components": 3}, "--mixture_components=3 is for --head=mixture; found --head=l"),
      ({"sampled_tokens": 3}, "--sampled_tokens=3 is for --head=sampled; found --head=linear"),
      ({"head": "mixture", "head_projection": True}, "drop --head_projection"),
      ({"head": "mixture", "embedding_size": 0}, "found --embedding_size=0; needed: 1 or more"),
      ({"layer_sizes": (0, 256), "num_layers": 2}, "--layer_sizes: 0 is out of range"),
      ({"layer_sizes": (9, 7), "num_layers": 2, "hidden_size": 9, "connections": "sum"},
       "--connections=sum adds what the layers put out"))
  def test_options_that_do_not_go_together(self, changes, message):
    self.assert_refused(ModelConfig, message, **changes)

  @parameterized.parameters(
      ({"decay_at": (3,)}, "--decay_at is for --schedule=step; found --schedule=cosine"),
      ({"decay_at": (3, 3), "schedule": "step"}, "--decay_at=3,3 does not rise"),
      ({"average_trigger": "no_gain"}, "--average_trigger=no_gain starts --average=polyak"),
      ({"average_latest": 9}, "--average_latest=9 is for --average_trigger; needed: nonmonotone"),
      ({"weight_decay_first": True, "optimizer": "adamw"}, "--optimizer=adamw has none; needed"),
      ({"remat_steps": 2, "model": ModelConfig(dropout_per_step=True, weight_dropout=0.1)},
       "--remat_steps with --dropout_per_step draws anew"),
      ({"model": ModelConfig(head="adaptive", adaptive_cutoffs=(9,))},
       "--head=adaptive is for ids in the order of their frequency; found --tokenizer=char"),
      ({"remat_steps": 2, "random_bptt": True}, "--remat_steps and --random_bptt"),
      ({"remat_steps": 2, "model": ModelConfig(zoneout=0.1)}, "--remat_steps reads a window in"))
  def test_training_options_that_do_not_go_together(self, changes, message):
    self.assert_refused(TrainConfig, message, **changes)

  def test_tied_tables_need_one_size(self):
    self.assert_refused(ModelConfig, "--embedding_size=32 and --hidden_size=64",
                        tie_embeddings=True, embedding_size=32, hidden_size=64)
    self.assert_refused(ModelConfig, "--embedding_size=0 and --hidden_size=64",
                        tie_embeddings=True, embedding_size=0, hidden_size=64)
    self.assertTrue(ModelConfig(tie_embeddings=True, embedding_size=64, hidden_size=64))

  @parameterized.parameters("chars", "", "Word")
  def test_tokenizer_kinds(self, kind):
    self.assert_refused(TokenizerConfig, f"--tokenizer={kind} is unknown; needed: char, byte, word,"
                        " bpe", kind=kind)

  @parameterized.parameters(2**33, 10**400)
  def test_numbers_beyond_any_size(self, value):
    self.assert_refused(ModelConfig, "needed a number below 2", hidden_size=value)
    self.assert_refused(TrainConfig, "needed a number below 2", learning_rate=value)
    self.assert_refused(TokenizerConfig, "needed a number below 2", kind="bpe", vocab_size=value)
    self.assert_refused(TokenizerConfig, "out of range", kind="bpe", vocab_size=2**20 + 1)

  @parameterized.parameters("char", "byte")
  def test_alphabets_take_their_size_from_the_text(self, kind):
    self.assert_refused(TokenizerConfig, "drop --vocab_size", kind=kind, vocab_size=300)

  def test_bpe_holds_all_bytes(self):
    self.assert_refused(TokenizerConfig, "--vocab_size=255 is out of range", kind="bpe",
                        vocab_size=255)
    self.assertEqual(TokenizerConfig("bpe", vocab_size=256).vocab_size, 256)
    self.assertEqual(TokenizerConfig("word", vocab_size=255).vocab_size, 255)

  @parameterized.parameters((0.5, 0.5), (0.9, 0.2))
  def test_something_is_left_to_train_on(self, valid, test):
    self.assert_refused(TrainConfig, f"--valid_fraction={valid} and --test_fraction={test} leave "
                        "nothing to train on", valid_fraction=valid, test_fraction=test)

  @parameterized.parameters((32, 3), (2, 4))
  def test_parts_of_a_batch_are_equal(self, batch_size, accumulate):
    self.assert_refused(TrainConfig, f"--accumulate={accumulate} does not divide --batch_size="
                        f"{batch_size}", batch_size=batch_size, accumulate=accumulate)
    self.assertTrue(TrainConfig(batch_size=batch_size * accumulate, accumulate=accumulate))

  @parameterized.parameters("float64", "bfloat16")
  def test_only_float32_has_another_dtype_to_compute_in(self, dtype):
    self.assert_refused(TrainConfig, f"found --dtype={dtype}; needed: --dtype=float32, or drop "
                        "--compute_dtype", model=ModelConfig(dtype=dtype),
                        compute_dtype="bfloat16")

  def test_cudnn_computes_in_float32_alone(self):
    self.assert_refused(TrainConfig, "--compute_dtype=bfloat16 is not for --lstm_impl=cudnn",
                        model=ModelConfig(lstm_impl="cudnn"), compute_dtype="bfloat16")

  def test_seeds(self):
    for seed in (0, 2**32 - 1):
      self.assertEqual(TrainConfig(seed=seed).seed, seed)
    for seed in (-1, 2**32):
      self.assert_refused(TrainConfig, f"--seed={seed} is out of range", seed=seed)


if __name__ == "__main__":
  absltest.main()
