"""What a model is."""

import dataclasses

from hklm.config import checks
from hklm.errors import InputError

DTYPES = ("float32", "float64", "bfloat16")
INITIAL_STATES = ("zeros", "learned")
LSTM_IMPLS = ("auto", "scan", "fused", "cudnn")
CELLS = ("lstm", "peephole_lstm", "layer_norm_lstm", "projected_lstm", "mogrifier", "gru",
         "vanilla", "qrnn", "min_lstm", "min_gru", "slstm")
INPUT_GATES = ("free", "coupled", "capped")
CONNECTIONS = ("plain", "residual", "sum")
HEADS = ("linear", "mixture", "adaptive", "sampled")

# Which cells each of these options is for.
_WITH_INPUT_GATES = ("lstm", "mogrifier")
_WITH_BIASES = ("lstm", "projected_lstm", "gru", "vanilla")
_WITH_LEARNED_STATE = ("lstm", "peephole_lstm", "layer_norm_lstm", "projected_lstm", "mogrifier")
_WITH_FORGET_BIAS = (*_WITH_LEARNED_STATE, "qrnn", "slstm")
_WITH_STATE_DROPOUT = (*_WITH_LEARNED_STATE, "vanilla")
_WITHOUT_RECURRENT_WEIGHTS = ("qrnn", "min_lstm", "min_gru")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """A recurrent language model: embedding, a stack of cells, an output layer.

  Attributes:
    vocab_size: V, the number of ids. 0 stands for "as many as the tokenizer has" and is filled in
      by `hklm.train`.
    embedding_size: E, the width of a token's vector; 0 feeds one-hot vectors to the first layer.
    hidden_size: H, the width of every layer; the widest where `layer_sizes` is given.
    num_layers: depth of the stack.
    layer_sizes: the widths of the layers from the input up; empty: all H.
    connections: how layers are joined: `plain`, each reads the one below; `residual`, a layer above
      the first hands up the sum of what it reads and makes, where both have one width; `sum`, the
      head reads the sum of what all put out.
    cell: one of `CELLS`, see `hklm.nn.zoo`; or `package.module:function` where
      `function(layer, size)` returns an `hk.RNNCore`.
    input_gate: of `lstm` and `mogrifier`: `free`; `coupled`, 1 - f; `capped`, at most 1 - f.
    projection_size: R, what a layer of `projected_lstm` puts out.
    mogrifier_rounds: of `mogrifier`.
    mogrifier_rank: k, the rank of its matrices; 0: they are not factored.
    qrnn_window: of `qrnn`: 1, or 2 to read the input before too.
    tie_embeddings: the embedding table is also the output matrix; it needs the width of what the
      head reads, or `head_projection`, or the `mixture`, which makes vectors as wide as it.
    head: `linear`; `mixture` of softmaxes; `adaptive` softmax, for ids in the order of their
      frequency; `sampled`, linear with a loss estimated from a sample of the ids in training.
    head_projection: whether a linear map to width E comes before the output matrix.
    mixture_components: K of `mixture`.
    mixture_dropout: on the K vectors that it makes.
    adaptive_cutoffs: of `adaptive`, the first id of each tail cluster.
    sampled_tokens: of `sampled`, how many ids are drawn for a window.
    num_biases: of a cell: 1, or 2 as in PyTorch and cuDNN, where the two are added; 0: none.
    output_bias: whether the output layer has a bias `[V]`.
    forget_bias: added to the forget gate's (first) bias at initialisation.
    initial_state: `zeros`, or `learned` (a parameter `c_0` a layer, `h_0 = tanh(c_0)`).
    init: initialisers by name; see `hklm.nn.initializers`.
    input_dropout: on the embedded input. All rates lie in [0, 1).
    layer_dropout: between layers.
    output_dropout: on what the output layer reads.
    dropout_per_step: fresh masks of these, and of `mixture_dropout`, at every time step; otherwise
      one mask a window.
    embedding_dropout: of whole rows of the embedding table, a mask a window.
    weight_dropout: of the elements of recurrent matrices, a mask a window.
    state_dropout: on the output that a cell reads back, a mask a window.
    zoneout: the share of a cell's outputs that stay as they were, drawn at every step.
    zoneout_cell: the same of an LSTM's c.
    activation_penalty: what the head reads is pulled to 0 by this times its mean square.
    change_penalty: the top layer's changes from step to step, by this times their mean square.
    dtype: of parameters, state and logits, whatever `jax_enable_x64` says.
    lstm_impl: how the LSTM reads a sequence: `scan`, cell by cell; `fused`, with a derivative of
      its own; `cudnn`, NVIDIA's; `auto`, the fastest that serves on the device at hand. The
      parameters are the same.

  Raises:
    InputError: when a value cannot make a model; the message names the flag.

  >>> ModelConfig(vocab_size=65, embedding_size=128, hidden_size=256).num_layers
  1
  >>> ModelConfig(vocab_size=65, embedding_size=32, hidden_size=64, tie_embeddings=True)
  Traceback (most recent call last):
  hklm.errors.InputError: tied tables need one size: found --embedding_size=32 and \
--hidden_size=64; make them equal, or give --head_projection, or drop --tie_embeddings
  """

  vocab_size: int = 0
  embedding_size: int = 128
  hidden_size: int = 256
  num_layers: int = 1
  layer_sizes: checks.Sizes = ()
  connections: str = "plain"
  cell: str = "lstm"
  input_gate: str = "free"
  projection_size: int = 0
  mogrifier_rounds: int = 5
  mogrifier_rank: int = 0
  qrnn_window: int = 1
  tie_embeddings: bool = False
  head: str = "linear"
  head_projection: bool = False
  mixture_components: int = 2
  mixture_dropout: float = 0.0
  adaptive_cutoffs: checks.Sizes = ()
  sampled_tokens: int = 8192
  num_biases: int = 1
  output_bias: bool = True
  forget_bias: float = 0.0
  initial_state: str = "zeros"
  init: str = "inverse_sqrt"
  input_dropout: float = 0.0
  layer_dropout: float = 0.0
  output_dropout: float = 0.0
  dropout_per_step: bool = False
  embedding_dropout: float = 0.0
  weight_dropout: float = 0.0
  state_dropout: float = 0.0
  zoneout: float = 0.0
  zoneout_cell: float = 0.0
  activation_penalty: float = 0.0
  change_penalty: float = 0.0
  dtype: str = "float32"
  lstm_impl: str = "auto"

  def __post_init__(self):
    checks.check_types(self)
    checks.at_least(self, 0, "vocab_size", "embedding_size", "projection_size", "mogrifier_rank",
                    "activation_penalty", "change_penalty")
    checks.at_least(self, 1, "hidden_size", "num_layers", "mogrifier_rounds", "mixture_components",
                    "sampled_tokens")
    checks.sizes(self, 1, "layer_sizes", "adaptive_cutoffs")
    checks.one_of(self, num_biases=(0, 1, 2), initial_state=INITIAL_STATES, dtype=DTYPES,
                  lstm_impl=LSTM_IMPLS, connections=CONNECTIONS, input_gate=INPUT_GATES,
                  head=HEADS, qrnn_window=(1, 2))
    checks.finite(self, "forget_bias", "activation_penalty", "change_penalty")
    checks.rates(self, "input_dropout", "layer_dropout", "output_dropout", "mixture_dropout",
                 "embedding_dropout", "weight_dropout", "state_dropout", "zoneout", "zoneout_cell")
    if self.cell not in CELLS and not all(self.cell.partition(":")):
      raise InputError(f"--cell={self.cell} is unknown; needed: {', '.join(CELLS)}, or "
                       "package.module:function for your own")
    self._check_sizes()
    self._check_cell()
    self._check_head()

  @property
  def sizes(self) -> tuple[int, ...]:
    """The widths of the layers, from the input up."""
    return self.layer_sizes or (self.hidden_size,) * self.num_layers

  @property
  def output_sizes(self) -> tuple[int, ...]:
    """The widths of what the layers put out."""
    if self.cell == "projected_lstm":
      return (self.projection_size,) * self.num_layers
    return self.sizes

  @property
  def top_size(self) -> int:
    """D, the width of what the stack puts out."""
    return self.output_sizes[-1]

  def _check_sizes(self):
    sizes = self.layer_sizes
    if sizes and (len(sizes) != self.num_layers or max(sizes) != self.hidden_size):
      raise InputError(f"--layer_sizes={','.join(map(str, sizes))} goes with --num_layers="
                       f"{len(sizes)} and --hidden_size={max(sizes)}; found "
                       f"{self.num_layers} and {self.hidden_size}; make them agree")
    if self.connections == "sum" and len(set(self.output_sizes)) > 1:
      raise InputError("--connections=sum adds what the layers put out; needed: equal widths in "
                       "--layer_sizes")
    maps = self.head_projection or self.head == "mixture"
    if self.tie_embeddings and not maps and self.embedding_size != self.top_size:
      name = {True: "layer_sizes (the last)", False: "hidden_size"}[bool(sizes)]
      if self.cell == "projected_lstm":
        name = "projection_size"
      raise InputError(
          f"tied tables need one size: found --embedding_size={self.embedding_size} and "
          f"--{name}={self.top_size}; make them equal, or give --head_projection, or drop "
          "--tie_embeddings")

  def _check_cell(self):
    """Options that the cell at hand would leave unread are refused."""
    own = self.cell not in CELLS
    if self.initial_state == "learned" and self.cell not in _WITH_LEARNED_STATE:
      raise InputError("--initial_state=learned belongs to the LSTMs; " + (
          "let your cell's initial_state call hk.get_parameter, and use" if own else "needed:")
          + " --initial_state=zeros")
    for name, default, serves in (
        ("input_gate", "free", _WITH_INPUT_GATES), ("mogrifier_rounds", 5, ("mogrifier",)),
        ("mogrifier_rank", 0, ("mogrifier",)), ("qrnn_window", 1, ("qrnn",)),
        ("projection_size", 0, ("projected_lstm",)), ("zoneout_cell", 0.0, _WITH_LEARNED_STATE),
        ("state_dropout", 0.0, _WITH_STATE_DROPOUT), ("num_biases", 1, _WITH_BIASES),
        ("forget_bias", 0.0, _WITH_FORGET_BIAS)):
      if getattr(self, name) != default and self.cell not in serves:
        raise InputError(f"--{name}={getattr(self, name)} is for --cell={' or '.join(serves)}; "
                         f"found --cell={self.cell}; drop it")
    if self.forget_bias and not self.num_biases:
      raise InputError(f"--forget_bias={self.forget_bias} is added to a bias; found "
                       "--num_biases=0; drop one of them")
    if self.zoneout and self.cell == "qrnn":
      raise InputError(f"--zoneout={self.zoneout}: --cell=qrnn carries no output from step to "
                       "step; drop it")
    if self.weight_dropout and self.cell in _WITHOUT_RECURRENT_WEIGHTS:
      raise InputError(f"--weight_dropout={self.weight_dropout}: --cell={self.cell} has no "
                       "recurrent matrix; drop it")
    if self.cell == "projected_lstm" and not self.projection_size:
      raise InputError("--cell=projected_lstm needs --projection_size, what a layer puts out")

  def _check_head(self):
    for name, default, head in (("mixture_components", 2, "mixture"),
                                ("mixture_dropout", 0.0, "mixture"),
                                ("sampled_tokens", 8192, "sampled")):
      if getattr(self, name) != default and self.head != head:
        raise InputError(f"--{name}={getattr(self, name)} is for --head={head}; found "
                         f"--head={self.head}; drop it")
    if self.head_projection and not self.embedding_size:
      raise InputError("--head_projection maps to the width of embeddings; found "
                       "--embedding_size=0; drop one of them")
    if self.head == "mixture" and not self.embedding_size:
      raise InputError("--head=mixture makes vectors as wide as embeddings; found "
                       "--embedding_size=0; needed: 1 or more")
    if self.head == "mixture" and self.head_projection:
      raise InputError("--head=mixture maps to the width of embeddings itself; drop "
                       "--head_projection")
    self._check_adaptive()

  def _check_adaptive(self):
    cutoffs = self.adaptive_cutoffs
    if (self.head == "adaptive") != bool(cutoffs):
      raise InputError("--head=adaptive goes with --adaptive_cutoffs, the first id of each tail "
                       "cluster; give both or neither")
    if not cutoffs:
      return
    found = f"--adaptive_cutoffs={','.join(map(str, cutoffs))}"
    if sorted(set(cutoffs)) != list(cutoffs):
      raise InputError(f"{found} does not rise")
    if self.vocab_size and cutoffs[-1] >= self.vocab_size:
      raise InputError(f"{found} goes past the vocabulary of {self.vocab_size}; needed: lower ids")
    if self.tie_embeddings:
      raise InputError("--head=adaptive has several tables; needed: --notie_embeddings")
    size = self.embedding_size if self.head_projection else self.top_size
    if size < 4**len(cutoffs):
      raise InputError(f"{found}: the table of cluster n has width {size} / 4^n; needed: "
                       f"{4**len(cutoffs)} or more, or fewer cutoffs")
