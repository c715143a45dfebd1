"""The table of the semantics of ONNX's own operators.

Activations, normalisations and attention are compositions of simpler operators, after ONNX's operator documentation.
Functions without such a definition are the domain's.
"""

from __future__ import annotations

import numpy as np

from graph_rewrite.soundness.semantics.activations import ACTIVATIONS
from graph_rewrite.soundness.semantics.algebra import ALGEBRA
from graph_rewrite.soundness.semantics.attention import attention
from graph_rewrite.soundness.semantics.call import Semantics
from graph_rewrite.soundness.semantics.comparisons import COMPARISONS
from graph_rewrite.soundness.semantics.data_movement import DATA_MOVEMENT
from graph_rewrite.soundness.semantics.larger_images import LARGER_IMAGES
from graph_rewrite.soundness.semantics.normalization import NORMALIZATIONS
from graph_rewrite.soundness.semantics.quantization import QUANTIZATION
from graph_rewrite.soundness.semantics.softmax import hardmax, log_softmax, softmax

STANDARD: dict[str, Semantics] = {
    **ALGEBRA,
    **LARGER_IMAGES,
    **DATA_MOVEMENT,
    **ACTIVATIONS,
    **NORMALIZATIONS,
    **COMPARISONS,
    **QUANTIZATION,
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "Hardmax": hardmax,
    "Attention": attention,
    "Mod": lambda c: c.domain.function(f"Mod {c.attrs.get('fmod', 0)}", np.broadcast_arrays(c.array(0), c.array(1))),
}
"""By the operator's name."""
