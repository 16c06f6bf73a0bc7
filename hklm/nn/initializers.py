"""Initialisers by name, so that a config can say them.

`init="inverse_sqrt,embedding=normal:1,bias=zeros"`: the first term serves every group that is not
named after it. Groups: `embedding`, `cell` (input and recurrent matrices), `bias` (of cells),
`output`, `output_bias`.
"""

import haiku as hk

from hklm.errors import InputError

GROUPS = ("embedding", "cell", "bias", "output", "output_bias")


def parse(spec: str, hidden_size: int) -> dict[str, hk.initializers.Initializer]:
  """The initialiser of each group.

  Terms: `zeros`; `uniform:a` in [-a, a); `unit` in [0, 1), the article's; `normal:sd`;
  `inverse_sqrt`, uniform within 1/sqrt(H), PyTorch's for `nn.LSTM`; `normal_fan`, normal with
  standard deviation 1/sqrt(n) for n numbers added up: D + H for a cell of input width D, whose
  matrices are drawn side by side as one `[4H, D + H]`; torch-rnn's.

  Args:
    spec: terms, comma-separated.
    hidden_size: H.

  Returns:
    Group name to a Haiku initialiser `(shape, dtype) -> array`.

  Raises:
    InputError: an unknown term or group.

  >>> sorted(parse("uniform:0.1,bias=zeros", 4)) == sorted(GROUPS)
  True
  >>> parse("glorot", 4)
  Traceback (most recent call last):
  hklm.errors.InputError: --init: found 'glorot'; needed: zeros, uniform:A, unit, normal:SD, \
inverse_sqrt or normal_fan
  """
  default, *named = [term.strip() for term in spec.split(",")]
  terms = dict.fromkeys(GROUPS, default)
  for entry in named:
    group, _, term = entry.partition("=")
    if group not in terms or not term:
      raise InputError(f"--init: found {entry!r}; needed: GROUP=TERM with GROUP one of "
                       f"{', '.join(GROUPS)}")
    terms[group] = term
  return {group: _initializer(term, hidden_size) for group, term in terms.items()}


def _initializer(term: str, hidden_size: int) -> hk.initializers.Initializer:
  name, _, argument = term.partition(":")
  if name == "zeros" and not argument:
    return hk.initializers.Constant(0.0)
  if name == "unit" and not argument:
    return hk.initializers.RandomUniform(0.0, 1.0)
  if name == "inverse_sqrt" and not argument:
    return _uniform(hidden_size**-0.5)
  if name == "normal_fan" and not argument:
    return _normal_fan
  if name in ("uniform", "normal"):
    try:
      scale = float(argument)
    except ValueError:
      scale = -1.0
    if 0 <= scale < float("inf"):
      return _uniform(scale) if name == "uniform" else hk.initializers.RandomNormal(scale)
  raise InputError(f"--init: found {term!r}; needed: zeros, uniform:A, unit, normal:SD, "
                   "inverse_sqrt or normal_fan")


def _uniform(limit: float) -> hk.initializers.Initializer:
  return hk.initializers.RandomUniform(-limit, limit)


def _normal_fan(shape, dtype):
  return hk.initializers.RandomNormal(shape[-1] ** -0.5)(shape, dtype)
