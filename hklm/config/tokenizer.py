"""How text becomes ids."""

import dataclasses

from hklm.config import checks
from hklm.errors import InputError

TOKENIZERS = ("char", "byte", "word", "bpe")


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
  """How text becomes ids.

  Attributes:
    kind: `char`, `byte`, `word` or `bpe`.
    vocab_size: the most ids a `word` or `bpe` vocabulary may have, control symbols included;
      0: no limit for words, 4096 for BPE.
    min_count: words seen less often are unknown.
    lowercase: words only.
    split_punctuation: punctuation marks are words of their own; words only.
    unknown: the spelling of the unknown word; empty: an unseen word is an error.
    end_of_line: the spelling of the end-of-line word; empty: line ends are only white space.
    symbols_in_text: read those two spellings in the text as the symbols themselves.
    bpe_sample: how many characters, from the start of the text, BPE is trained on at most; fewer
      once they hold 1.5 MB of different words.

  >>> TokenizerConfig("word", min_count=2).unknown
  '<unk>'
  """

  kind: str = "char"
  vocab_size: int = 0
  min_count: int = 1
  lowercase: bool = False
  split_punctuation: bool = False
  unknown: str = "<unk>"
  end_of_line: str = "<eos>"
  symbols_in_text: bool = False
  bpe_sample: int = 20_000_000

  def __post_init__(self):
    checks.check_types(self)
    if self.kind not in TOKENIZERS:
      raise InputError(f"--tokenizer={self.kind} is unknown; needed: {', '.join(TOKENIZERS)}")
    checks.at_least(self, 0, "vocab_size")
    checks.at_least(self, 1, "min_count", "bpe_sample")
    if self.kind in ("char", "byte") and self.vocab_size:
      raise InputError(f"--vocab_size={self.vocab_size} limits word and bpe vocabularies; "
                       f"--tokenizer={self.kind} takes its size from the text: drop --vocab_size")
    if self.kind == "bpe" and self.vocab_size and not 256 <= self.vocab_size <= 2**20:
      raise InputError(f"--vocab_size={self.vocab_size} is out of range for --tokenizer=bpe; "
                       "needed: 256, its bytes, to 2**20")
