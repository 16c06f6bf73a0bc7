"""The one state dict, and the vocabulary, in whatever object was saved with `torch.save`.

The object may be a state dict, a whole module, or lists and dicts with such among other things. A
module's tensors get the names that its `state_dict()` would give them.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from hklm.errors import InputError
from hklm.interop.standins import StandIn, Tensor

SYMBOLS = ("tokens", "itos", "idx2word")  # what a vocabulary is called
_LONGEST_NAME = 1000
_MOST_MODULES = 100_000  # with what is in them; a small file can repeat one without end

# A path is the path before it and a key, so that a deep one takes no more memory than a short one.
_Path = tuple | None


def state_dict(value: Any) -> dict[str, Tensor]:
  """The tensors of the model in a saved object, by name.

  They are the one module, or dict of tensors, that has recurrent weights (or the one that has
  tensors at all). Tensors of others beside it, as when an embedding is saved by itself, are added
  with their path before their name, so that none is lost. Left out are optimizers, and single
  numbers outside the model, as losses are.

  Raises:
    InputError: none; several; a tensor of a kind that is not read (sparse, quantized).
  """
  groups, seen = [], set()
  most = iter(range(_MOST_MODULES))
  for path, found in _walk(value, lambda value: not _is_module(value) and not _is_optimizer(value)):
    if not _is_optimizer(found):
      tensors = _of_module(found, most) if _is_module(found) else _of_dict(found)
      if tensors and (same := frozenset(tensors.items())) not in seen:
        seen.add(same)
        groups.append((path, tensors))
  recurrent = [group for group in groups if any("weight_hh" in name for name in group[1])]
  if not groups:
    raise InputError("found no state dict and no module with tensors in it; needed: what "
                     "torch.save(model.state_dict(), FILE) writes")
  chosen = recurrent or groups
  if len(chosen) > 1:
    raise InputError(f"found {len(chosen)} state dicts, {_listed(path for path, _ in chosen)}; "
                     "needed: one model; in PyTorch, save its state_dict() alone")
  tensors = dict(chosen[0][1])
  for path, others in groups:
    for name, tensor in others.items():
      if others is chosen[0][1] or set(tensor.size) <= {1}:
        continue
      name = f"{_shown(path)}.{name}" if path else name
      if name in tensors:
        raise InputError(f"found tensor {name!r} twice; needed: one model; in PyTorch, save its "
                         "state_dict() alone")
      tensors[name] = tensor
  return tensors


def symbols(value: Any) -> tuple[str, ...] | None:
  """The vocabulary in a saved object: its `tokens`, `itos` or `idx2word`, wherever that is.

  Returns:
    The symbols in the order of their ids, from a sequence of strings or a dict of them by id; None
    where there is none.

  Raises:
    InputError: several that differ.
  """
  found, seen = {}, set()
  for path, place in _walk(value, lambda value: True):
    for name in SYMBOLS:
      listed = place.get(name) if isinstance(place, dict) else None
      if id(listed) not in seen:
        seen.add(id(listed))
        if strings := _strings(listed):
          found.setdefault(strings, (path, name))
  if len(found) > 1:
    raise InputError(f"found {len(found)} vocabularies that differ, {_listed(found.values())}; "
                     "needed: one; give it with --vocabulary")
  return next(iter(found), None)


def _strings(value: Any) -> tuple[str, ...]:
  if isinstance(value, dict):
    if set(value) != set(range(len(value))):
      return ()
    value = [value[place] for place in range(len(value))]
  if isinstance(value, list | tuple) and all(isinstance(symbol, str) for symbol in value):
    return tuple(value)
  return ()


def _walk(value: Any, enters: Callable[[Any], bool]) -> Iterator[tuple[_Path, Any]]:
  """Everything in a value, each once: its path and itself, without calling itself."""
  seen = set()
  pending = [(None, value)]
  while pending:
    path, value = pending.pop()
    if not isinstance(value, dict | list | tuple | StandIn) or id(value) in seen:
      continue
    seen.add(id(value))
    yield path, value
    if not enters(value):
      continue
    if isinstance(value, StandIn):  # what holds its attributes is no part of a name
      inside = [(path, part) for part in (value.args, value.state, value.items, value.values)]
    elif isinstance(value, dict):
      inside = [((path, key), part) for key, part in value.items()]
    else:
      inside = [((path, place), part) for place, part in enumerate(value)]
    pending.extend(reversed(inside))


def _is_module(value: Any) -> bool:
  state = value.state if isinstance(value, StandIn) else None
  return isinstance(state, dict) and all(
      isinstance(state.get(name), dict) for name in ("_parameters", "_buffers", "_modules"))


def _is_optimizer(value: Any) -> bool:
  return isinstance(value, dict) and "param_groups" in value and "state" in value


def _of_dict(value: Any) -> dict[str, Tensor]:
  if not isinstance(value, dict) or not any(isinstance(part, Tensor) for part in value.values()):
    return {}
  return dict(_tensors("", value))


def _of_module(module: StandIn, most: Iterator[int]) -> dict[str, Tensor]:
  """A module's tensors.

  Args:
    most: counts all modules of the file.
  """
  found = {}
  pending = [("", module)]
  while pending:
    prefix, module = pending.pop()
    _count(most, 1)
    if not _is_module(module) or len(prefix) > _LONGEST_NAME:
      continue
    state = module.state
    if state.get("nonlinearity") == "relu" or state.get("mode") == "RNN_RELU":
      raise InputError(f"module {prefix.removesuffix('.')!r}: found a recurrent layer of relu; "
                       "needed: tanh, which hklm's cell has")
    if state.get("max_norm") is not None:
      raise InputError(f"module {prefix.removesuffix('.')!r}: found an embedding with max_norm, "
                       "which changes vectors as they are read; needed: one without")
    buffers, passing = state["_buffers"], state.get("_non_persistent_buffers_set", [])
    if not isinstance(passing, list):
      raise InputError("found a module whose buffers are none; needed: a whole file")
    _count(most, sum(map(len, (state["_parameters"], buffers, passing, state["_modules"]))))
    passing = {name for name in passing if isinstance(name, str)}
    found.update(_tensors(prefix, state["_parameters"]))
    found.update(_tensors(prefix, {name: part for name, part in buffers.items()
                                   if name not in passing}))
    inner = state["_modules"].items()
    pending.extend(reversed([(f"{prefix}{name}.", part) for name, part in inner
                             if isinstance(name, str) and len(name) <= _LONGEST_NAME]))
  return found


def _count(most: Iterator[int], parts: int) -> None:
  if len(tuple(itertools.islice(most, parts))) < parts:
    raise InputError(f"found more than {_MOST_MODULES} modules in each other; needed: a model")


def _tensors(prefix: str, parts: dict) -> Iterator[tuple[str, Tensor]]:
  for name, part in parts.items():
    if isinstance(part, StandIn) and part.made_by.startswith("torch._utils."):
      raise InputError(f"tensor {prefix + str(name)!r}: found what {part.made_by!r} would make; "
                       "needed: a dense tensor of numbers")
    if isinstance(part, Tensor) and isinstance(name, str):
      if len(name) > _LONGEST_NAME:  # it would be copied as often as there are modules
        raise InputError(f"found a tensor called {name[:100]!a}; needed: printable names")
      yield prefix + name, part


def _shown(path: _Path) -> str:
  keys = []
  while path and len(keys) < 20:
    path, key = path
    keys.append(str(key)[:100] if isinstance(key, str | int) else "?")
  return ".".join(reversed(keys))


def _listed(paths) -> str:
  shown = [repr(_shown(path)) for path in paths]
  return ", ".join(shown[:5]) + (", ..." if len(shown) > 5 else "")
