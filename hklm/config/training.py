"""What a training run is."""

import dataclasses

from hklm.config import checks
from hklm.config.model import ModelConfig
from hklm.config.tokenizer import TokenizerConfig
from hklm.errors import InputError

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop")
SCHEDULES = ("constant", "cosine", "step", "plateau")
COMPUTE_DTYPES = ("", "bfloat16")
AVERAGES = ("none", "polyak", "exponential")
ON_NONFINITE = ("stop", "skip")
LOSSES = ("mean", "sum")
TRIGGERS = ("", "nonmonotone", "no_gain")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """A training run: a model, a tokenizer, and how parameters move.

  Attributes:
    model: the model; its `vocab_size` may be 0.
    tokenizer: how text becomes ids.
    valid_fraction: share of the corpus held out for validation, before the test share.
    test_fraction: share of the corpus held out at its very end; training never reads it.
    batch_size: B, the number of contiguous streams read side by side.
    bptt: T, the number of steps gradients flow back.
    random_bptt: windows of random length (Merity et al. 2017, section 5): about T, now and then
      T / 2; the rate is scaled by length / T.
    reset_rate: chance with which each stream starts a window from the initial state.
    epochs: passes over the streams.
    steps: updates in all; 0: as `epochs` says.
    optimizer: `sgd`, `momentum`, `adam`, `adamw` or `rmsprop`.
    learning_rate: the highest rate.
    momentum: of `momentum`.
    rms_decay: of `rmsprop`'s mean square.
    adam_beta1: decay of the mean gradient of `adam` and `adamw`.
    adam_beta2: decay of their mean square.
    weight_decay: L2 gradient added after clipping (torch's), decoupled for `adamw`.
    weight_decay_first: whether that gradient is added before clipping.
    loss: what is descended: `mean` over the tokens of a window, or `sum` over time of the mean over
      the batch, T times as much.
    clip: largest global norm of the gradient; 0: none.
    clip_elementwise: largest magnitude of a gradient's element, before `clip`; 0: none.
    schedule: `constant`, `cosine` (to 0 at the last update), `step` (times `decay_rate` after
      `decay_start` epochs and every `decay_every` from then on), `plateau` (times `decay_rate` when
      a validation is not the best).
    warmup: updates over which the rate rises linearly from 0, before the schedule.
    decay_rate: see `schedule`.
    decay_start: see `schedule`, in epochs; 0: `decay_every`.
    decay_every: see `schedule`, in epochs.
    decay_at: epochs after which `step` multiplies the rate, in place of the two above.
    eval_every: updates between validations; 0: once an epoch.
    checkpoint_every: updates between checkpoints; 0: once an epoch. The last update is always
      saved.
    keep_checkpoints: how many of the newest are kept, besides the best.
    seed: of parameters and dropout.
    accumulate: parts of B / `accumulate` streams that an update reads one after the other, adding
      up their gradients; divides B.
    compute_dtype: of the update's forward and backward pass: empty, the model's, or `bfloat16`, for
      a float32 model. Parameters, sums and the optimiser stay float32, and so do evaluations.
    remat_steps: steps of a window whose activations are kept at a time, made again for the
      gradient; 0: those of the whole window are kept.
    average: what is validated and kept as the best: `none`, the parameters; `polyak`, their mean
      over the updates; `exponential`, a running mean.
    average_decay: of `exponential`.
    average_start: updates before averaging starts.
    average_trigger: of `polyak`, which validation starts it in place of `average_start`:
      `nonmonotone`, one that is worse than the best before the last `average_patience` (Merity et
      al. 2017, algorithm 1); `no_gain`, one after `average_patience` without a new best.
    average_patience: see `average_trigger`, in validations.
    average_latest: the validation that starts averaging at the latest; 0: none.
    on_nonfinite: what follows a loss or gradient that is not finite: `stop` ends the run, `skip`
      leaves that update out.

  >>> TrainConfig(learning_rate=0.)
  Traceback (most recent call last):
  hklm.errors.InputError: --learning_rate=0.0 is out of range; needed: a number above 0
  """

  model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
  tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)
  valid_fraction: float = 0.1
  test_fraction: float = 0.0
  batch_size: int = 32
  bptt: int = 64
  random_bptt: bool = False
  reset_rate: float = 0.0
  epochs: int = 8
  steps: int = 0
  optimizer: str = "adam"
  learning_rate: float = 0.005
  momentum: float = 0.9
  rms_decay: float = 0.95
  adam_beta1: float = 0.9
  adam_beta2: float = 0.999
  weight_decay: float = 0.0
  weight_decay_first: bool = False
  loss: str = "mean"
  clip: float = 1.0
  clip_elementwise: float = 0.0
  schedule: str = "cosine"
  warmup: int = 0
  decay_rate: float = 0.5
  decay_start: int = 0
  decay_every: int = 1
  decay_at: checks.Sizes = ()
  eval_every: int = 0
  checkpoint_every: int = 0
  keep_checkpoints: int = 2
  seed: int = 0
  accumulate: int = 1
  compute_dtype: str = ""
  remat_steps: int = 0
  average: str = "none"
  average_decay: float = 0.999
  average_start: int = 0
  average_trigger: str = ""
  average_patience: int = 5
  average_latest: int = 0
  on_nonfinite: str = "stop"

  def __post_init__(self):
    checks.check_types(self)
    checks.one_of(self, optimizer=OPTIMIZERS, schedule=SCHEDULES, average=AVERAGES,
            on_nonfinite=ON_NONFINITE, loss=LOSSES, average_trigger=TRIGGERS)
    checks.at_least(self, 1, "batch_size", "bptt", "epochs", "decay_every", "accumulate",
              "keep_checkpoints", "average_patience")
    checks.sizes(self, 1, "decay_at")
    checks.at_least(self, 0, "steps", "warmup", "decay_start", "eval_every", "checkpoint_every",
              "weight_decay", "clip", "clip_elementwise", "remat_steps", "average_start",
              "average_latest")
    checks.finite(self, "learning_rate", "weight_decay", "clip", "clip_elementwise", "decay_rate")
    checks.rates(self, "valid_fraction", "test_fraction", "momentum", "rms_decay", "average_decay",
           "adam_beta1", "adam_beta2", "reset_rate")
    for name in ("learning_rate", "decay_rate"):
      if not getattr(self, name) > 0:
        raise InputError(f"--{name}={getattr(self, name)} is out of range; needed: a number above "
                         "0")
    if self.valid_fraction + self.test_fraction >= 1:
      raise InputError(f"--valid_fraction={self.valid_fraction} and --test_fraction="
                       f"{self.test_fraction} leave nothing to train on; lower one of them")
    if not 0 <= self.seed < 2**32:
      raise InputError(f"--seed={self.seed} is out of range; needed: 0 to 2**32 - 1")
    if self.batch_size % self.accumulate:
      raise InputError(f"--accumulate={self.accumulate} does not divide --batch_size="
                       f"{self.batch_size}; needed: equal parts: change one of them")
    self._check_schedule()
    self._check_compute_dtype()
    self._check_windows()

  def _check_schedule(self):
    if self.decay_at and self.schedule != "step":
      raise InputError(f"--decay_at is for --schedule=step; found --schedule={self.schedule}")
    if list(self.decay_at) != sorted(set(self.decay_at)):
      raise InputError(f"--decay_at={','.join(map(str, self.decay_at))} does not rise; needed: "
                       "epochs, each once")
    if self.weight_decay_first and self.optimizer == "adamw":
      raise InputError("--weight_decay_first adds an L2 gradient, and --optimizer=adamw has none; "
                       "needed: another optimizer, or neither")
    if self.average_latest and not self.average_trigger:
      raise InputError(f"--average_latest={self.average_latest} is for --average_trigger; needed: "
                       "nonmonotone or no_gain")
    if self.average_trigger and (self.average != "polyak" or self.average_start):
      raise InputError(f"--average_trigger={self.average_trigger} starts --average=polyak; found "
                       f"--average={self.average} --average_start={self.average_start}; needed: "
                       "polyak and 0")

  def _check_windows(self):
    """What a window is to a model's masks must be what the update reads at once."""
    if self.remat_steps and (self.model.change_penalty or self.model.zoneout
                             or self.model.zoneout_cell):
      raise InputError("--remat_steps reads a window in parts, and --change_penalty and --zoneout "
                       "are of all its steps; drop one of them")
    model = self.model
    if self.remat_steps and model.dropout_per_step and (
        model.weight_dropout or model.state_dropout or model.embedding_dropout
        or model.head == "sampled"):
      raise InputError("--remat_steps with --dropout_per_step draws anew for each part of a "
                       "window, and --weight_dropout, --state_dropout, --embedding_dropout and "
                       "--head=sampled draw once for all of it; drop one of them")
    if model.head == "adaptive" and self.tokenizer.kind != "word":
      raise InputError("--head=adaptive is for ids in the order of their frequency; found "
                       f"--tokenizer={self.tokenizer.kind}; needed: --tokenizer=word, or another "
                       "--head")
    if self.remat_steps and self.random_bptt:
      raise InputError("--remat_steps and --random_bptt do not go together; drop one of them")

  def _check_compute_dtype(self):
    if self.compute_dtype not in COMPUTE_DTYPES:
      raise InputError(f"--compute_dtype={self.compute_dtype} is unknown; needed: bfloat16, or "
                       "nothing for --dtype")
    if self.compute_dtype and self.model.dtype != "float32":
      raise InputError(f"--compute_dtype={self.compute_dtype} is for float32 parameters; found "
                       f"--dtype={self.model.dtype}; needed: --dtype=float32, or drop "
                       "--compute_dtype")
    if self.compute_dtype and self.model.lstm_impl == "cudnn":
      raise InputError(f"--compute_dtype={self.compute_dtype} is not for --lstm_impl=cudnn, which "
                       "computes in float32; needed: --lstm_impl=auto, or drop --compute_dtype")
