"""Configs as JSON values and back."""

import dataclasses
import typing

from hklm.config.checks import Sizes
from hklm.errors import InputError

FORMAT_VERSION = 1


def to_json(config) -> dict:
  """A config as JSON values, with the format version; `from_json` reads it back.

  >>> import hklm, json
  >>> from_json(hklm.TrainConfig, json.loads(json.dumps(to_json(hklm.TrainConfig(seed=3))))).seed
  3
  """
  return {"format": FORMAT_VERSION, **_plain(dataclasses.asdict(config))}


def _plain(value):
  """Without tuples, as JSON has none."""
  if isinstance(value, dict):
    return {name: _plain(its) for name, its in value.items()}
  return list(value) if isinstance(value, tuple) else value


def from_json(kind, values: dict):
  """The config of class `kind` that `to_json` wrote.

  Args:
    kind: `ModelConfig`, `TokenizerConfig` or `TrainConfig`.
    values: JSON values.

  Raises:
    InputError: another format version, a field that is unknown or missing (named), a value of the
      wrong type.

  >>> from hklm import TokenizerConfig
  >>> from_json(TokenizerConfig, {"format": 1, "kind": "char", "size": 3})
  Traceback (most recent call last):
  hklm.errors.InputError: TokenizerConfig: unknown fields size; missing fields bpe_sample, \
end_of_line, lowercase, min_count, split_punctuation, symbols_in_text, unknown, vocab_size
  """
  if not isinstance(values, dict):
    raise InputError(f"{kind.__name__}: found {values!r}, needed a JSON object")
  if values.get("format") != FORMAT_VERSION:
    raise InputError(f"{kind.__name__}: found format {values.get('format')!r}, this version of "
                     f"hklm reads format {FORMAT_VERSION}")
  return _from_dict(kind, {name: v for name, v in values.items() if name != "format"})


def _from_dict(kind, values: dict):
  types_ = typing.get_type_hints(kind)
  unknown, missing = sorted(set(values) - set(types_)), sorted(set(types_) - set(values))
  if unknown or missing:
    parts = [f"{what} fields {', '.join(names)}"
             for what, names in (("unknown", unknown), ("missing", missing)) if names]
    raise InputError(f"{kind.__name__}: {'; '.join(parts)}")
  read = {}
  for name, value in values.items():
    nested = dataclasses.is_dataclass(types_[name])
    if nested and not isinstance(value, dict):
      raise InputError(f"{kind.__name__}.{name}: found {value!r}, needed a JSON object")
    if types_[name] == Sizes and isinstance(value, list):
      value = tuple(value)
    read[name] = _from_dict(types_[name], value) if nested else value
  return kind(**read)
