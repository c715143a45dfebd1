"""The parameters of the architectures over sequences other than BERT."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from graph_rewrite.errors import UserError
from graph_rewrite.zoo.configs.common import Inputs, ModelConfig

_CALIBRATION_SEQUENCES = 4
_CALIBRATION_TOKENS = 128
_CALIBRATION_LABELS = 32
_CALIBRATION_STATES = 64


@dataclass(frozen=True)
class DalleConfig(ModelConfig):
    """Decoder of DALL-E (Ramesh et al. 2021, arXiv:2102.12092) at the size of GPT-2 (Radford et al. 2019).

    One stream of text tokens and image tokens: ``input_ids`` int64 [batch, seq_len] -> ``logits`` float32
    [batch, seq_len, vocab]. The published model has 64 layers and 12 billion parameters.
    """

    layers: int = 12
    """Decoder layers."""
    hidden: int = 768
    """Width of the hidden states; a multiple of ``heads``."""
    heads: int = 12
    """Attention heads."""
    mlp_ratio: int = 4
    """Width of the feed-forward layer, in multiples of ``hidden``."""
    seq_len: int = 256
    """Tokens per sequence; at most ``positions``."""
    vocab: int = 24576
    """Tokens of both kinds: 16384 of text and 8192 of images."""
    positions: int = 1280
    """Entries of the position embedding: 256 of text and 32 x 32 of an image."""

    output_name: ClassVar[str] = "logits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise UserError(f"hidden must be a multiple of heads, got hidden={self.hidden} and heads={self.heads}")
        if self.seq_len > self.positions:
            raise UserError(f"seq_len={self.seq_len} exceeds positions={self.positions}: raise positions too")

    def example_inputs(self, seed: int) -> Inputs:
        """int64 [batch, seq_len]: ids of tokens."""
        rng = np.random.default_rng(seed)
        return {"input_ids": rng.integers(0, self.vocab, (self.batch, self.seq_len), dtype=np.int64)}

    def for_calibration(self) -> Self:
        """Independent of ``batch`` and ``seq_len``, as BERT's."""
        return replace(self, batch=_CALIBRATION_SEQUENCES, seq_len=min(_CALIBRATION_TOKENS, self.positions))


@dataclass(frozen=True)
class TransducerConfig(ModelConfig):
    """Transformer Transducer (Zhang et al. 2020, arXiv:2002.02562), with absolute positions.

    ``audio_features`` float32 [batch, seq_len, hidden] and ``label_ids`` int64 [batch, labels] -> ``logits`` float32
    [batch, seq_len, labels, vocab], before the softmax.
    """

    layers: int = 18
    """Layers of the audio encoder."""
    label_layers: int = 2
    """Layers of the label encoder, which is causal."""
    hidden: int = 512
    """Width of both encoders and of the joint network, and features per frame; a multiple of ``heads``, even."""
    heads: int = 8
    """Attention heads."""
    mlp_ratio: int = 4
    """Width of the feed-forward layer, in multiples of ``hidden``."""
    seq_len: int = 128
    """Frames of audio, each stacked from four of the log-mel spectrogram."""
    labels: int = 32
    """Labels, with the start symbol."""
    vocab: int = 1024
    """Word pieces, with the blank."""

    output_name: ClassVar[str] = "logits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads or self.hidden % 2:
            raise UserError(f"hidden must be even and a multiple of heads, got {self.hidden} and heads={self.heads}")

    def example_inputs(self, seed: int) -> Inputs:
        """Standard normal features, as normalised spectrograms are, and int64 ids of labels."""
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((self.batch, self.seq_len, self.hidden), dtype=np.float32)
        return {
            "audio_features": features,
            "label_ids": rng.integers(0, self.vocab, (self.batch, self.labels), dtype=np.int64),
        }

    def for_calibration(self) -> Self:
        """Independent of ``batch`` and of both lengths."""
        return replace(self, batch=_CALIBRATION_SEQUENCES, seq_len=_CALIBRATION_TOKENS, labels=_CALIBRATION_LABELS)


@dataclass(frozen=True)
class NasRnnConfig(ModelConfig):
    """Recurrent cell that architecture search found (Zoph and Le 2017, arXiv:1611.01578), unrolled as TASO's benchmark.

    ``state`` and ``x0``, ``x1``, ..., one per step, float32 [batch, hidden] -> ``final_state`` float32 [batch, hidden].
    """

    steps: int = 5
    """Steps that are unrolled."""
    hidden: int = 512
    """Width of inputs and state."""
    shared: int = 0
    """1: all steps share their weights, as a recurrent network does; 0: each has its own, as in TASO's benchmark."""

    minimum: ClassVar[dict[str, int]] = {"seed": 0, "shared": 0}
    maximum: ClassVar[dict[str, int]] = {"shared": 1}
    output_name: ClassVar[str] = "final_state"

    def example_inputs(self, seed: int) -> Inputs:
        """float32 [batch, hidden] each, standard normal; the state within (-1, 1), as the cell leaves it."""
        rng = np.random.default_rng(seed)
        names = ("state", *(f"x{step}" for step in range(self.steps)))
        inputs = {name: rng.standard_normal((self.batch, self.hidden), dtype=np.float32) for name in names}
        return {**inputs, "state": np.tanh(inputs["state"])}

    def for_calibration(self) -> Self:
        """Independent of ``batch``."""
        return replace(self, batch=_CALIBRATION_STATES)
