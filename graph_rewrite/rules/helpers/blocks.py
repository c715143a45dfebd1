"""Blocks of channels, as the rules of standard operators count them.

ONNX Runtime's blocked layout NCHWc has blocks of 16 channels with AVX-512 and of 8 with AVX2
(`graph_rewrite.runtime.block_size`). The rules of fast convolutions, groups, padded channels and Strassen's algorithm
count in sixteens on every CPU. Sixteen channels fill whole blocks of either size. So these rules find the same
candidates everywhere, and a model that they rewrite runs well on either. The rules of the explicit blocked layout
(`rules/layout/blocked_*`) write the block of the CPU into the model, and ask for that one.
"""

from __future__ import annotations

BLOCK = 16
"""Channels in a block. Depthwise convolutions over a number of channels that fills none leave the layout."""
