"""The parameters of every architecture, and of BERT."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from graph_rewrite.errors import UserError

Inputs = dict[str, NDArray[np.float32] | NDArray[np.int64]]
"""Arrays by input name, in the order of the graph's inputs."""

_CALIBRATION_SEQUENCES = 4
_CALIBRATION_TOKENS = 128


@dataclass(frozen=True)
class ModelConfig(ABC):
    """The integers that decide a model. Fields without a bound in ``minimum`` must be at least 1.

    Raises:
        ValueError: a field is out of range, or fields contradict each other.
    """

    batch: int = 1
    """Examples per inference."""
    seed: int = 0
    """Seed of the random weights."""

    minimum: ClassVar[dict[str, int]] = {"seed": 0}
    maximum: ClassVar[dict[str, int]] = {}
    output_name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            low = self.minimum.get(field.name, 1)
            high = self.maximum.get(field.name)
            if value < low or (high is not None and value > high):
                wanted = f"at least {low}" if high is None else f"between {low} and {high}"
                raise UserError(f"{field.name} must be {wanted}, got {value}")

    @abstractmethod
    def example_inputs(self, seed: int) -> Inputs:
        """Seeded random inputs that the exported model accepts."""

    @abstractmethod
    def for_calibration(self) -> Self:
        """The same network, fed with as much data as the calibration of its weights needs."""


@dataclass(frozen=True)
class BertConfig(ModelConfig):
    """BERT encoder without pooler (Devlin et al. 2019, arXiv:1810.04805); defaults are BERT-base."""

    layers: int = 12
    """Encoder layers."""
    hidden: int = 768
    """Width of the hidden states; a multiple of ``heads``."""
    heads: int = 12
    """Attention heads."""
    mlp_ratio: int = 4
    """Width of the feed-forward layer, in multiples of ``hidden``."""
    seq_len: int = 128
    """Tokens per sequence; at most ``positions``."""
    vocab: int = 30522
    """Entries of the word embedding."""
    positions: int = 512
    """Entries of the position embedding."""
    token_types: int = 2
    """Entries of the token type embedding."""
    attention_mask: int = 0
    """1: the graph has an input ``attention_mask``; 0: all tokens are attended to and no mask is added."""
    token_type_ids: int = 0
    """1: the graph has an input ``token_type_ids``; 0: all tokens are of type 0."""

    minimum: ClassVar[dict[str, int]] = {"seed": 0, "attention_mask": 0, "token_type_ids": 0}
    maximum: ClassVar[dict[str, int]] = {"attention_mask": 1, "token_type_ids": 1}
    output_name: ClassVar[str] = "last_hidden_state"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise UserError(f"hidden must be a multiple of heads, got hidden={self.hidden} and heads={self.heads}")
        if self.seq_len > self.positions:
            raise UserError(f"seq_len={self.seq_len} exceeds positions={self.positions}: raise positions too")

    def example_inputs(self, seed: int) -> Inputs:
        """int64 [batch, seq_len] each: word ids; a mask of ones, then at most half zeros; types in ascending order."""
        rng = np.random.default_rng(seed)
        shape = (self.batch, self.seq_len)
        position = np.arange(self.seq_len)
        inputs: Inputs = {"input_ids": rng.integers(0, self.vocab, shape, dtype=np.int64)}
        if self.attention_mask:
            tokens = rng.integers(self.seq_len - self.seq_len // 2, self.seq_len + 1, (self.batch, 1))
            inputs["attention_mask"] = (position < tokens).astype(np.int64)
        if self.token_type_ids:
            inputs["token_type_ids"] = np.sort(rng.integers(0, self.token_types, shape, dtype=np.int64))
        return inputs

    def for_calibration(self) -> Self:
        """Independent of ``batch`` and ``seq_len``: the same network at another input shape has the same weights.

        So scales are exact at 128 tokens only: attention averages over tokens, and over half as many its output is up
        to 1.4 times as large. LayerNorm takes that up.
        """
        return replace(self, batch=_CALIBRATION_SEQUENCES, seq_len=min(_CALIBRATION_TOKENS, self.positions))
