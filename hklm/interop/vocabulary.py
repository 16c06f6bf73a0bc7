"""The vocabulary of a model from elsewhere: what each of its ids stands for.

A file has one symbol a line, in the order of the ids, or is JSON: a list of symbols, or an object
with the id of each. In a file of lines, the line `\\n` stands for a line feed, which no line can
hold, and so `\\t`, `\\r` and `\\\\` for a tab, a carriage return and a backslash.
"""

import codecs
import json
import os
import stat
from collections.abc import Collection, Sequence

from hklm.data import base
from hklm.data.characters import CharTokenizer
from hklm.data.words import WordTokenizer
from hklm.errors import InputError

_LARGEST = 64 << 20  # bytes; a million long words are a quarter of it
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}


def read(path: str) -> tuple[str, ...]:
  """The symbols of a vocabulary file, in the order of their ids.

  Args:
    path: the file, UTF-8.

  Raises:
    InputError: no such file, a device, more than 64 MiB, not text, an empty line, or JSON that is
      no vocabulary.

  >>> import tempfile
  >>> with tempfile.NamedTemporaryFile() as file:
  ...   _ = file.write(b'{"the": 1, "<unk>": 0}') and file.flush()
  ...   read(file.name)
  ('<unk>', 'the')
  """
  try:
    mode = os.stat(path).st_mode
    piped = stat.S_ISFIFO(mode) and path.startswith(("/dev/stdin", "/dev/fd/"))  # as by <(...)
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or piped):
      raise InputError(f"{path}: found a pipe or device; needed: a file with one symbol a line, or "
                       "JSON")
    with open(path, "rb") as file:
      data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
      raise InputError(f"{path}: found more than {_LARGEST} bytes; needed: a file with one symbol "
                       "a line, or JSON")
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
  except OSError as error:
    raise InputError(f"{path}: {error.strerror}; needed: a file with one symbol a line, or JSON"
                     ) from error
  except UnicodeDecodeError as error:
    if data.startswith((b"\x80", b"PK\3\4")):
      raise InputError(f"{path}: found a pickle; needed: one symbol a line, or JSON; in Python, "
                       "json.dump(dictionary.idx2word, open('words.json', 'w'))") from error
    raise InputError(f"{path}: not UTF-8 (byte {error.start}); needed: one symbol a line, or JSON"
                     ) from error
  try:
    values = json.loads(text, object_pairs_hook=tuple)  # a dict would hide a key that is twice
  except (ValueError, RecursionError) as error:
    if path.endswith(".json"):
      raise InputError(f"{path}: not JSON ({error}); needed: a list of symbols, or an object with "
                       "the id of each") from error
    values = None
  # Two brackets on lines of their own are symbols, though they are an empty list too.
  if isinstance(values, (list, tuple)) and (values or path.endswith(".json")):
    return _from_json(path, values)
  return _from_lines(path, text)


def _from_json(path, values) -> tuple[str, ...]:
  if isinstance(values, tuple):
    places = {key: n for n, (key, _) in enumerate(values)}
    if len(places) < len(values):
      twice = next(key for n, (key, _) in enumerate(values) if places[key] != n)
      raise InputError(f"{path}: found {twice!r:.80} twice, needed each symbol once")
    values = dict(values)
    ids = list(values.values())
    wrong = next((i for i in ids if type(i) is not int or not 0 <= i < len(ids)), None)
    if wrong is not None or len(set(ids)) < len(ids):
      found = "an id twice" if wrong is None else f"the id {wrong!r:.80}"
      raise InputError(f"{path}: found {found}, needed each of 0 to {len(ids) - 1} once")
    values = sorted(values, key=values.get)
  wrong = next((symbol for symbol in values if type(symbol) is not str), None)
  if wrong is not None:
    raise InputError(f"{path}: found {wrong!r:.80}, needed strings alone")
  return tuple(values)


def _from_lines(path, text) -> tuple[str, ...]:
  lines = text.removesuffix("\n").split("\n")  # other line breaks may be symbols
  if all(line.endswith("\r") for line in lines[:-1]) and len(lines) > 1:
    lines = [line.removesuffix("\r") for line in lines]
  if "" in lines:
    raise InputError(f"{path}: line {lines.index('') + 1} is empty; needed: a symbol a line, "
                     r"\n for a line feed")
  return tuple(_ESCAPES.get(line, line) for line in lines)


def tokenizer(symbols: Sequence[str], vocab_size: int, kind: str = "", unknown: str = "<unk>",
              end_of_line: str = "<eos>", needed: Collection[str] = ()) -> base.Tokenizer:
  """The tokenizer that gives each symbol its own id.

  Args:
    symbols: in the order of their ids.
    vocab_size: V, of the model they belong to.
    kind: `char` or `word`; empty: `char` if every symbol is one character.
    unknown: the word that stands for those that are not there; none if the vocabulary lacks it.
    end_of_line: the word that stands for the end of a line; none if the vocabulary lacks it.
    needed: which of `unknown` and `end_of_line` a vocabulary of words must not lack.

  Returns:
    A `CharTokenizer`, or a `WordTokenizer` of a text in which the two words may be written.

  Raises:
    InputError: another number of symbols than V, one twice, one not of this kind, one not there.

  >>> its = tokenizer(["the", "<eos>", "<unk>"], 3)
  >>> its.encode("the <unk> cat\\n").tolist(), its.decode([0, 0, 1])
  ([0, 2, 2, 1], 'the the\\n')
  """
  if len(symbols) != vocab_size:
    raise InputError(f"the vocabulary has {len(symbols)} symbols, the model {vocab_size} ids; "
                     "needed: the model's own as --vocabulary")
  places = {symbol: n for n, symbol in enumerate(symbols)}
  if len(places) < len(symbols):
    twice = next(symbol for n, symbol in enumerate(symbols) if places[symbol] != n)
    raise InputError(f"the vocabulary has {twice!r} twice; needed: a symbol for each id")
  if kind not in ("", "char", "word"):
    raise InputError(f"--tokenizer={kind}: a vocabulary is of --tokenizer=char or word")
  kind = kind or ("char" if all(len(symbol) == 1 for symbol in symbols) else "word")
  if kind == "char":
    long = next((symbol for symbol in symbols if len(symbol) != 1), None)
    if long is not None:
      raise InputError(f"in the vocabulary {long!r} is no character; needed for --tokenizer=char: "
                       r"the one that it stands for, as \n for the end of a line")
    return CharTokenizer("".join(symbols))
  broken = next((symbol for symbol in symbols if symbol.split() != [symbol]), None)
  if broken is not None:
    raise InputError(f"in the vocabulary {broken!r} is not a word, which has no white space; "
                     "needed for --tokenizer=word: words alone, and <eos> for the end of a line")
  for name, symbol in (("unknown", unknown), ("end_of_line", end_of_line)):
    if name in needed and symbol and symbol not in places:
      raise InputError(f"--{name}={symbol} is not in the vocabulary; needed: its spelling there, "
                       f"or --{name}= for none")
  controls = [symbol for symbol in (unknown, end_of_line) if symbol in places]
  return WordTokenizer(
      tuple(symbol for symbol in symbols if symbol not in controls),
      unknown if unknown in places else "", end_of_line if end_of_line in places else "",
      symbols_in_text=True, control_ids=tuple(places[symbol] for symbol in controls))
