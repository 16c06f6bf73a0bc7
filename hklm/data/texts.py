"""A corpus made ready for training: split, given a tokenizer, encoded."""

from collections.abc import Sequence
from typing import NamedTuple

from hklm.config import TrainConfig
from hklm.data import base, corpora, encoding, tokenizers
from hklm.errors import InputError


class Text(NamedTuple):
  """The text of a run.

  Attributes:
    tokenizer: text to ids and back.
    train: the encoded part to train on.
    valid: the part for validation; None for none.
  """

  tokenizer: base.Tokenizer
  train: encoding.Tokens
  valid: encoding.Tokens | None

  @property
  def fingerprint(self) -> str:
    """Of the ids of both parts: the same text, cut in the same places."""
    return "-".join(part.fingerprint[:32] for part in (self.train, self.valid) if part)

  @property
  def description(self) -> str:
    """A line on sizes."""
    tokenizer, train, valid = self
    return (f"text: {train.documents} documents; {train.characters:,} characters to train on, "
            f"{valid.characters if valid else 0:,} for validation; tokenizer {tokenizer.kind}, "
            f"vocabulary {tokenizer.vocab_size:,}, {len(train.ids):,} training tokens, "
            f"{train.unknown_tokens:,} of them unknown")


class Published(NamedTuple):
  """What a recipe's text has.

  Attributes:
    tokens: to train on, and for validation; empty: not said.
    vocabulary: its size; 0: not said.
  """

  tokens: tuple[int, ...] = ()
  vocabulary: int = 0


def compared(text: Text, published: Published) -> str:
  """A line on whether a text is the recipe's.

  Args:
    text: made ready.
    published: what is known of the recipe's.

  >>> import hklm
  >>> text = prepare(hklm.TrainConfig(valid_fraction=0.5), corpora.corpus_of("to be or not"))
  >>> compared(text, Published((6, 6), 7))
  "text: the recipe's, 6 and 6 tokens of a vocabulary of 7"
  >>> compared(text, Published((929589, 73760), 10000))
  "text: not the recipe's, 929,589 and 73,760 tokens of a vocabulary of 10,000, but 6 and 6 tokens \
of a vocabulary of 7; published figures are of another text"
  """
  found = Published(tuple(len(part.ids) for part in (text.train, text.valid) if part),
                    text.tokenizer.vocab_size)
  needed = Published(published.tokens or found.tokens, published.vocabulary or found.vocabulary)
  if found == needed:
    return f"text: the recipe's, {_described(needed)}"
  return (f"text: not the recipe's, {_described(needed)}, but {_described(found)}; published "
          "figures are of another text")


def _described(its: Published) -> str:
  tokens = " and ".join(f"{count:,}" for count in its.tokens)
  return f"{tokens} tokens of a vocabulary of {its.vocabulary:,}"


def was_validation(part: encoding.Tokens, fingerprint: str) -> bool:
  """Whether an encoded text was the validation part of the `Text` with this fingerprint."""
  return fingerprint.partition("-")[2] == part.fingerprint[:32]


def prepare(config: TrainConfig, corpus: corpora.Corpus | Sequence[str] = (),
            valid_corpus: corpora.Corpus | Sequence[str] = (),
            tokenizer: base.Tokenizer | None = None) -> Text:
  """Opens, splits and encodes.

  The character alphabet is that of all the text given, so that a rare character of the held-out
  part does not end the run; word and BPE vocabularies are those of the training part alone.

  Args:
    config: the run.
    corpus: paths, or an opened corpus; nothing: the built-in one.
    valid_corpus: as `corpus`; nothing: the share that `config.valid_fraction` says.
    tokenizer: a tokenizer there is, in place of one made from the text.

  Raises:
    InputError: text that cannot be read or encoded; a validation part of fewer than two tokens.
  """
  kind = config.tokenizer.kind
  raw, whole = kind == "byte", _opened(corpus)
  valid_fraction = 0.0 if valid_corpus else config.valid_fraction
  train_part, valid_part, _ = whole.split(
      valid_fraction, config.test_fraction, raw, at_lines=kind in ("word", "bpe"))
  sources = [train_part]
  if valid_corpus:
    valid_part = _opened(valid_corpus)
  if kind == "char":
    sources = [whole, valid_part] if valid_corpus else [whole]
  if tokenizer is None:
    tokenizer = tokenizers.build(config.tokenizer, (c for s in sources for c in s.chunks(raw)))
  train = encoding.encode_corpus(tokenizer, train_part)
  valid = None
  if valid_corpus or valid_fraction:
    valid = encoding.encode_corpus(tokenizer, valid_part)
    if len(valid.ids) < 2:
      raise InputError(f"the validation part has {len(valid.ids)} tokens; needed: 2 or more; raise "
                       "--valid_fraction, or set it to 0 for no validation")
  elif config.schedule == "plateau":
    raise InputError("--schedule=plateau needs validations; raise --valid_fraction, give "
                     "--valid_corpus, or take another --schedule")
  return Text(tokenizer, train, valid)


def _opened(corpus: corpora.Corpus | Sequence[str]) -> corpora.Corpus:
  if isinstance(corpus, corpora.Corpus):
    return corpus
  return corpora.open_corpus(corpus) if corpus else corpora.builtin_corpus()
