"""Frozen configurations: what a model is, how text becomes ids, how it is trained.

They hold plain values and tuples only, compare and hash by value, and survive JSON both ways.
"""

from hklm.config.jsons import from_json, to_json
from hklm.config.model import ModelConfig
from hklm.config.tokenizer import TokenizerConfig
from hklm.config.training import TrainConfig

__all__ = ["ModelConfig", "TokenizerConfig", "TrainConfig", "from_json", "to_json"]
