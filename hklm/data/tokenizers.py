"""Making, saving and loading tokenizers."""

import dataclasses
import json
import os
import typing
from collections.abc import Iterable

from hklm import files
from hklm.config import TokenizerConfig
from hklm.data import base
from hklm.data.bpe import BpeTokenizer
from hklm.data.characters import ByteTokenizer, CharTokenizer
from hklm.data.words import WordTokenizer
from hklm.errors import InputError

_KINDS = {kind.kind: kind for kind in (CharTokenizer, ByteTokenizer, WordTokenizer, BpeTokenizer)}


def build(config: TokenizerConfig, chunks: Iterable[str]) -> base.Tokenizer:
  """The tokenizer that `config` asks for, made from a text.

  Args:
    config: which kind, and its options.
    chunks: the text, cut as `Corpus.chunks` cuts it; read once, and not at all for bytes.

  Raises:
    InputError: a text without characters or words, or a limit that cannot be kept.

  >>> build(TokenizerConfig("char"), ["to be or not ", "to be"]).vocab_size
  7
  """
  if config.kind == "byte":
    return ByteTokenizer()
  if config.kind == "char":
    return CharTokenizer.build(chunks)
  return _KINDS[config.kind].build(config, chunks)


def from_json(values: dict) -> base.Tokenizer:
  """The tokenizer whose `to_json` gave `values`.

  Raises:
    InputError: another format version or kind; a field unknown, missing or of another type, by
      name.

  >>> from_json(CharTokenizer("ab").to_json()) == CharTokenizer("ab")
  True
  >>> from_json({"format": 1, "kind": "char", "letters": "ab"})
  Traceback (most recent call last):
  hklm.errors.InputError: tokenizer: unknown fields letters; missing fields alphabet
  """
  if not isinstance(values, dict) or values.get("format") != base.FORMAT_VERSION:
    found = values.get("format") if isinstance(values, dict) else values
    raise InputError(f"tokenizer: found format {found!r:.80}, this version of hklm reads format "
                     f"{base.FORMAT_VERSION}")
  kind = _KINDS.get(values.get("kind"))
  if kind is None:
    raise InputError(f"tokenizer: found kind {values.get('kind')!r}, needed one of "
                     f"{', '.join(_KINDS)}")
  types = {field.name: field.type for field in dataclasses.fields(kind)}
  fields = {name: _tuples(v) for name, v in values.items() if name not in ("format", "kind")}
  unknown, missing = sorted(fields.keys() - types), sorted(types.keys() - fields - set(kind.added))
  if unknown or missing:
    raise InputError("tokenizer: " + "; ".join(
        f"{what} fields {', '.join(names)}"
        for what, names in (("unknown", unknown), ("missing", missing)) if names))
  for name, value in fields.items():
    if not _fits(value, types[name]):
      raise InputError(f"tokenizer: found {value!r:.80} as {name}, needed {types[name]}")
  return kind(**fields)


def save(tokenizer: base.Tokenizer, path: str) -> None:
  """Writes a tokenizer as JSON; the file is there whole or not at all.

  Args:
    tokenizer: any of this package.
    path: a file, replaced if it exists.
  """
  with files.whole(path) as file:
    file.write(json.dumps(tokenizer.to_json(), indent=1).encode("ascii"))


def load(path: str) -> base.Tokenizer:
  """The tokenizer that `save` wrote.

  Raises:
    InputError: no such file, or not a tokenizer of this format; the message has the full path.
  """
  path = os.path.abspath(path)
  try:
    with open(path, encoding="ascii") as file:
      return from_json(json.load(file))
  except OSError as error:
    raise InputError(f"{path}: {error.strerror}; needed: a tokenizer hklm has saved") from None
  except InputError as error:
    raise InputError(f"{path}: {error}") from None
  except (ValueError, RecursionError) as error:
    raise InputError(f"{path}: not JSON ({error}); needed: a tokenizer hklm has saved") from None


def _tuples(value):
  return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _fits(value, hint) -> bool:
  """Whether a value is of a type: plain, or tuples of it."""
  if typing.get_origin(hint) is not tuple:
    return type(value) is hint
  kinds = typing.get_args(hint)
  if not isinstance(value, tuple):
    return False
  if kinds[-1] is Ellipsis:
    return all(_fits(v, kinds[0]) for v in value)
  return len(value) == len(kinds) and all(map(_fits, value, kinds))
