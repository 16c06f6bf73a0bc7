"""What each tensor of a PyTorch model is, told from its name and shape.

Recurrent layers have names of PyTorch's under any prefix: `rnn.weight_ih_l0`, `module.rnn.` before
it, `rnns.0.module.weight_hh_l0_raw` of awd-lstm-lm, `cells.0.weight_ih` of an `nn.LSTMCell`.
Whatever else there is must be an embedding, an output matrix and its bias.

Dimension letters: V vocabulary, D what the first layer reads, R what the last puts out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hklm.errors import InputError

FLOATS = ("float16", "bfloat16", "float32", "float64")
ROWS = 1024  # of a matrix that are looked at together: a copy of all would take its memory again
MATRICES = 50  # besides recurrent layers: each is compared with each, as copies may be many
LISTED = 12  # names in a message
_RECURRENT = re.compile(
    r"(?P<prefix>.*?)(?P<part>weight_ih|weight_hh|bias_ih|bias_hh|weight_hr)"
    r"(?P<layer>_l(?P<number>[0-9]{1,6}))?(?P<reverse>_reverse)?(?P<raw>_raw)?")
_EMBEDDING = re.compile("emb|encoder|wte|lookup|input")
_OUTPUT = re.compile("out|decoder|fc|lin|proj|head|softmax|logit|generator")
_BIAS = re.compile(r"bias|(^|[._/])b($|[._/0-9])")


class Recurrent(NamedTuple):
  """The recurrent layers.

  Attributes:
    layers: from the input up: names of tensors by part, such as `weight_ih`; all have the same.
    copies: the tensors that follow from others, and are not used: what each is a copy of.
  """

  layers: tuple[Mapping[str, str], ...]
  copies: Mapping[str, str]


class Tables(NamedTuple):
  """What is before and behind the recurrent layers, by the names of tensors.

  Attributes:
    embedding: `[V, D]`; None: the first layer reads one-hot vectors.
    output: `[V, R]`; None: the embedding is the output matrix too.
    bias: `[V]` of the output, or None.
    copies: the tensors that are bit for bit another one.
    decided_by: how embedding and output were told apart where shapes do not.
  """

  embedding: str | None
  output: str | None
  bias: str | None
  copies: Mapping[str, str]
  decided_by: str


def recurrent(tensors: Mapping[str, np.ndarray]) -> Recurrent:
  """Finds the recurrent layers; their shapes are not looked at, but for copies.

  Args:
    tensors: by name.

  Raises:
    InputError: none, one that lacks a tensor (named), a bidirectional one, layers whose order is
      not told by numbers, a copy of another shape.

  >>> shapes = {"rnn.weight_hh_l0": 0, "rnn.weight_ih_l0": 0, "decoder.weight": 0}
  >>> recurrent(shapes).layers
  ({'weight_hh': 'rnn.weight_hh_l0', 'weight_ih': 'rnn.weight_ih_l0'},)
  >>> recurrent({"rnns.1.weight_hh": 0, "rnns.0.weight_ih": 0})
  Traceback (most recent call last):
  hklm.errors.InputError: tensor rnns.0.weight_hh is missing: each layer needs one
  """
  found, copies = {}, {}
  for name, match in _matches(tensors):
    if match["reverse"]:
      raise InputError(f"tensor {name} is of a bidirectional layer, which reads what it is to "
                       "predict; needed: layers of one direction")
    place = _place(match)
    its = found.setdefault(place, {})
    other = its.setdefault((match["part"], bool(match["raw"])), name)
    if other != name:
      raise InputError(f"tensors {other} and {name} are for the same place; needed: one of them")
  if not found:
    raise InputError(f"no recurrent layer: no name ends as weight_ih_l0 or weight_ih; found "
                     f"{listed(tensors)}")
  layers = []
  for place in _in_order(list(found)):
    its = found[place]
    for part in [part for part, raw in its if raw and (part, False) in its]:
      raw, dropped = its[part, True], its.pop((part, False))
      if np.shape(tensors[raw]) != np.shape(tensors[dropped]):
        raise InputError(f"tensor {dropped}: found {spelled(tensors[dropped])}, needed "
                         f"{spelled(tensors[raw])}, as {raw}, which it is a copy of")
      copies[dropped] = raw
    layers.append({part: name for (part, _), name in its.items()})
  _check_complete(layers)
  return Recurrent(tuple(layers), copies)


def tables(tensors: Mapping[str, np.ndarray], input_size: int, output_size: int) -> Tables:
  """Finds what is before and behind the recurrent layers.

  Args:
    tensors: all others, by name.
    input_size: D.
    output_size: R.

  Raises:
    InputError: one that is missing, too many or of another shape, by name.

  >>> tables({"encoder.weight": np.ones([5, 3]), "decoder.bias": np.ones(5)}, 3, 3)[:3]
  ('encoder.weight', None, 'decoder.bias')
  """
  D, R = input_size, output_size
  found = {name: tensor for name, tensor in tensors.items()
           if tensor.ndim == 2 and tensor.dtype.name in FLOATS}
  if len(found) > MATRICES:
    raise _surplus(found, D, R)
  matrices, copies = [], {}
  for name, tensor in found.items():
    same = next((other for other in matrices if same_bits(tensor, tensors[other])), None)
    if same:
      copies[name] = same
    else:
      matrices.append(name)
  embedding, output, decided_by = _embedding_and_output(tensors, matrices, copies, D, R)
  size = len(tensors[embedding or output])
  biases = [name for name, tensor in tensors.items() if tensor.dtype.name in FLOATS
            and tensor.shape == (size,) and _BIAS.search(name.lower())]
  bias = biases[0] if len(biases) == 1 else None
  left = [name for name in tensors if name not in {embedding, output, bias, *copies}]
  if left:
    raise InputError(f"no place for {listed({name: tensors[name] for name in left})}; needed, "
                     f"besides recurrent layers: an embedding [{size}, {D}], an output matrix "
                     f"[{size}, {R}], a bias [{size}]; leave out what the model does not use")
  return Tables(embedding, output, bias, copies, decided_by)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
  """Whether two arrays are the same bit for bit.

  >>> same_bits(np.zeros(2), -np.zeros(2)), same_bits(np.ones(2), np.ones(2))
  (False, True)
  """
  if one.shape != other.shape or one.dtype != other.dtype:
    return False
  one, other = (its.view(f"u{its.dtype.itemsize}") for its in (one, other))
  return all(np.array_equal(one[at:at + ROWS], other[at:at + ROWS])
             for at in range(0, len(one), ROWS))


def spelled(tensor: np.ndarray) -> str:
  """A shape, for messages.

  >>> spelled(np.ones([5, 3]))
  '[5, 3]'
  """
  return str(list(np.shape(tensor)))


def listed(tensors: Mapping[str, np.ndarray]) -> str:
  """Names and shapes, for messages.

  >>> listed({"a": np.ones([5, 3]), "b": np.ones(2)})
  'a [5, 3], b [2]'
  """
  more = f" and {len(tensors) - LISTED} more" if len(tensors) > LISTED else ""
  return ", ".join(f"{name} {spelled(tensor)}"
                   for name, tensor in list(tensors.items())[:LISTED]) + more or "nothing"


def transposed(tensor: np.ndarray) -> str:
  """What to add to a message about a matrix that lies the other way round.

  >>> transposed(np.ones([3, 5]))
  '; it is transposed: PyTorch has a row for each output; give [5, 3], its transpose'
  """
  return (f"; it is transposed: PyTorch has a row for each output; give {spelled(tensor.T)}, its "
          "transpose")


def _matches(tensors):
  for name in tensors:
    match = _RECURRENT.fullmatch(name)
    if match:
      yield name, match


def _place(match) -> tuple[str, int]:
  """Which layer: a prefix, without what wrappers put into it, and a number."""
  parts = [part for part in match["prefix"].split(".") if part != "module"]
  return ".".join(parts), int(match["number"] or 0)


def _in_order(places: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
  prefixes = {prefix for prefix, _ in places}
  kinds = {re.sub("[0-9]+", "0", prefix): prefix for prefix in prefixes}
  if len(kinds) > 1:
    raise InputError(f"recurrent layers under {' and '.join(sorted(kinds.values()))}: no numbers "
                     "tell their order; needed: one stack, as rnn.weight_ih_l0, rnn.weight_ih_l1")
  for prefix in prefixes:
    numbers = {number for its, number in places if its == prefix}
    for number in set(range(max(numbers))) - numbers:
      raise InputError(f"tensor {prefix}weight_ih_l{number} is missing: there is a layer above it")
  return sorted(places, key=lambda place: (_natural(place[0]), place[1]))


def _natural(prefix: str):
  """By the numbers in it; as strings, since a file may have any number of digits."""
  numbers = [digits.lstrip("0") for digits in re.findall("[0-9]+", prefix)]
  return [(len(digits), digits) for digits in numbers]


def _check_complete(layers):
  needed = {"weight_ih", "weight_hh"}.union(*layers)
  for its in layers:
    for part in sorted(needed - set(its)):
      match = _RECURRENT.fullmatch(next(iter(its.values())))
      name = f"{match['prefix']}{part}{match['layer'] or ''}"
      raise InputError(f"tensor {name} is missing: each layer needs one")


def _embedding_and_output(tensors, matrices, copies, D, R):
  """Names of both (None for none), and how they were told apart."""
  for name in matrices:
    if tensors[name].shape[1] not in (D, R):
      turned = transposed(tensors[name]) if len(tensors[name]) in (D, R) else ""
      raise InputError(f"tensor {name}: found {spelled(tensors[name])}, needed [V, {D}] as "
                       f"embedding or [V, {R}] as output matrix{turned}")
  if len(matrices) == 2:
    return _two(tensors, matrices, D, R)
  if len(matrices) != 1:
    raise _surplus({name: tensors[name] for name in matrices}, D, R)
  name, = matrices
  V, size = tensors[name].shape
  says = "embedding" if name in copies.values() else _says(name)
  if size != R:
    raise InputError(f"the output matrix [{V}, {R}] is missing; found {name} "
                     f"{spelled(tensors[name])}")
  if V == D == R and not says:
    raise InputError(f"tensor {name} {spelled(tensors[name])} may be a tied embedding, or the "
                     "output matrix over one-hot input; needed: the name encoder.weight or "
                     "decoder.weight")
  if V == D and not (D == R and says == "embedding"):
    return None, name, ""
  if D != R:
    raise InputError(f"the embedding [{V}, {D}] is missing; found {name} {spelled(tensors[name])}")
  return name, None, ""


def _surplus(matrices, D, R):
  return InputError(f"found {listed(matrices)} besides recurrent layers; needed: an embedding "
                    f"[V, {D}] and an output matrix [V, {R}]")


def _two(tensors, matrices, D, R):
  first, second = matrices
  decided_by = ""
  if D == R:
    says = _says(first), _says(second)
    if says[0] == says[1]:
      decided_by = "by its place in the file"
    else:
      decided_by = "by its name"
      if says[0] == "output" or says[1] == "embedding":
        first, second = second, first
  elif tensors[first].shape[1] == R:
    first, second = second, first
  found = tensors[first].shape, tensors[second].shape
  V = found[0][0]
  if found[0][1] != D or found[1] != (V, R):
    raise InputError(f"tensors {first} {list(found[0])} and {second} {list(found[1])}: needed an "
                     f"embedding [V, {D}] and an output matrix [V, {R}] of one V")
  return first, second, decided_by


def _says(name: str) -> str:
  """What a name says of a matrix: embedding, output or nothing. What stands last is heard first."""
  for part in reversed(name.lower().split(".")):
    embedding, output = _EMBEDDING.search(part), _OUTPUT.search(part)
    if bool(embedding) != bool(output):
      return "embedding" if embedding else "output"
  return ""
