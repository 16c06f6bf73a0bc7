"""Tensors from elsewhere: their shapes, types and numbers are looked at before anything is made.

Dimension letters: H hidden, D what a layer reads, R what it puts out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hklm.errors import InputError
from hklm.interop.layouts import FLOATS, ROWS, spelled, transposed

_CELLS = {4: "lstm", 3: "gru", 1: "vanilla"}  # by the rows for each unit


def array(name: str, tensor: Any) -> np.ndarray:
  """A tensor as NumPy's array, without a copy.

  Raises:
    InputError: it is none, or empty; a name that is no string.

  >>> array("decoder.bias", [1.0, 2.0]).shape
  (2,)
  """
  if not isinstance(name, str):
    raise InputError(f"found a tensor called {name!r:.80}; needed: names, such as rnn.weight_ih_l0")
  try:
    tensor = np.asarray(tensor)
  except (RuntimeError, TypeError, ValueError) as error:
    raise InputError(f"tensor {name} is no array ({error}); needed: NumPy's, or a tensor on the "
                     "CPU, detached") from error
  if not tensor.size:
    raise InputError(f"tensor {name} {spelled(tensor)} is empty; needed: numbers")
  return tensor


class Stack(NamedTuple):
  """Recurrent layers.

  Attributes:
    cell: their kind, as in `ModelConfig`.
    sizes: H of each.
    outputs: the width of what each puts out.
  """

  cell: str
  sizes: tuple[int, ...]
  outputs: tuple[int, ...]


def stack(tensors: Mapping[str, np.ndarray], layers: Sequence[Mapping[str, str]]) -> Stack:
  """What recurrent layers are, told from the shapes of their tensors.

  Args:
    tensors: by name.
    layers: from the input up: names of tensors by part, such as `weight_ih`.

  Raises:
    InputError: a shape that does not fit the others (named), layers of several kinds.

  >>> its = {"weight_ih": "w", "weight_hh": "u"}
  >>> stack({"w": np.ones([8, 3]), "u": np.ones([8, 2])}, [its])
  Stack(cell='lstm', sizes=(2,), outputs=(2,))
  """
  cells, sizes, outputs = [], [], []
  for its in layers:
    w_hh = tensors[its["weight_hh"]]
    if w_hh.ndim != 2:
      raise InputError(f"tensor {its['weight_hh']}: found {spelled(w_hh)}, needed a matrix")
    R = H = w_hh.shape[1]
    if "weight_hr" in its:
      w_hr = tensors[its["weight_hr"]]
      if w_hr.ndim != 2 or w_hr.shape[0] != R:
        raise InputError(f"tensor {its['weight_hr']}: found {spelled(w_hr)}, needed [{R}, H]: "
                         f"{its['weight_hh']} is {spelled(w_hh)}")
      H = w_hr.shape[1]
    gates, more = divmod(len(w_hh), H)
    if more or gates not in _CELLS or ("weight_hr" in its and gates != 4):
      needed = ("[4H, H] of an LSTM, [3H, H] of a GRU or [H, H] of an RNN" if R == H else
                f"[{4 * H}, {R}]")
      turned = transposed(w_hh) if R in (3 * len(w_hh), 4 * len(w_hh)) else ""
      raise InputError(f"tensor {its['weight_hh']}: found {spelled(w_hh)}, needed {needed}{turned}")
    _check(its["weight_ih"], tensors, len(w_hh), outputs[-1] if outputs else None)
    for part in ("bias_ih", "bias_hh"):
      if part in its:
        _check(its[part], tensors, len(w_hh))
    cells.append("projected_lstm" if "weight_hr" in its else _CELLS[gates])
    sizes.append(H)
    outputs.append(R)
  if len(set(cells)) > 1 or (cells[0] == "projected_lstm" and len(set(outputs)) > 1):
    found = ", ".join(f"{cell} of {size} (puts out {output})"
                      for cell, size, output in zip(cells, sizes, outputs, strict=True))
    raise InputError(f"layers of several kinds: {found}; needed: one kind of cell, of one width of "
                     "projection")
  return Stack(cells[0], tuple(sizes), tuple(outputs))


def _check(name, tensors, *needed):
  """Refuses another shape; a size of None may be any."""
  found = tensors[name].shape
  if len(found) == len(needed) and all(n in (None, size)
                                       for size, n in zip(found, needed, strict=True)):
    return
  lies = len(found) == 2 and found[1] == needed[0] and needed[-1] in (None, found[0])
  turned = transposed(tensors[name]) if lies else ""
  spelled_ = ", ".join("D" if size is None else str(size) for size in needed)
  raise InputError(f"tensor {name}: found {list(found)}, needed [{spelled_}]{turned}")


def numbers(tensors: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
  """The tensors in a type that a model can have, and a note on each that is not as it was.

  Args:
    tensors: by name; not copied but for float16 and foreign orders of bytes.

  Raises:
    InputError: numbers of another type, of several types, or not finite (named).

  >>> its, notes = numbers({"decoder.bias": np.ones(2, np.float16)})
  >>> its["decoder.bias"].dtype.name, notes
  ('float32', {'decoder.bias': 'float16 made float32'})
  """
  made, notes, first = {}, {}, {}
  for name, tensor in tensors.items():
    if tensor.dtype.name not in FLOATS:
      raise InputError(f"tensor {name} {spelled(tensor)} has type {tensor.dtype}; needed: "
                       f"{', '.join(FLOATS)}")
    check_finite(name, tensor)
    if tensor.dtype.name == "float16":
      tensor, notes[name] = tensor.astype(np.float32), "float16 made float32"
    # Whatever the order of bytes in the file.
    made[name] = tensor.astype(tensor.dtype.newbyteorder("="), copy=False)
    first.setdefault(tensor.dtype.name, name)
  if len(first) > 1:
    found = " and ".join(f"{dtype} ({name})" for dtype, name in first.items())
    raise InputError(f"numbers of several types: {found}; needed: one for all")
  return made, notes


def check_finite(name: str, tensor: np.ndarray):
  """Refuses numbers that are not finite, naming the first.

  >>> check_finite("decoder.bias", np.array([1.0, np.nan]))
  Traceback (most recent call last):
  hklm.errors.InputError: tensor decoder.bias: found nan at [1], needed finite numbers
  """
  for at in range(0, len(tensor), ROWS):
    wrong = ~np.isfinite(tensor[at:at + ROWS])
    if wrong.any():
      row, *place = (int(n) for n in np.argwhere(wrong)[0])
      raise InputError(f"tensor {name}: found {tensor[(at + row, *place)]} at "
                       f"{[at + row, *place]}, needed finite numbers")
