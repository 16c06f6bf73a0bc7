"""hklm: modular recurrent language models as pure functions, with Haiku and JAX.

You write the model as objects; `hklm.language_model(config)` hands back functions, and nothing
else holds state.
"""

import importlib

from hklm.config import ModelConfig, TokenizerConfig, TrainConfig
from hklm.errors import InputError
from hklm.inference.evaluate import evaluate
from hklm.inference.generate import generate
from hklm.inference.lines import score_lines
from hklm.inference.score import score
from hklm.model import LanguageModel, language_model

__all__ = ["InputError", "LanguageModel", "ModelConfig", "TokenizerConfig", "TrainConfig",
           "evaluate", "generate", "language_model", "load_run", "purity", "score", "score_lines",
           "train"]

# These two need orbax, which takes longer to import than the rest: looked up when first used.
_LATER = {"load_run": "hklm.run", "train": "hklm.trainer"}


def __getattr__(name):
  if name in _LATER:
    return getattr(importlib.import_module(_LATER[name]), name)
  if name == "purity":  # a tool for tests: no model needs it
    return importlib.import_module("hklm.purity")
  raise AttributeError(f"module 'hklm' has no attribute {name!r}")
