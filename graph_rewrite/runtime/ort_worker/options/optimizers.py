"""The graph optimisers of ONNX Runtime that a deployment may refuse.

How the names were found (ONNX Runtime 1.31): a session with `log_severity_level` 1 logs a line
`GraphTransformer NAME modified: 0|1` for every transformer it registered. A name given to
`optimization.disable_specified_optimizers` that is known makes that line vanish; an unknown one changes nothing and is
silently ignored. Each was then checked on a small graph of its pattern (encoder layers with LayerNormalization and Gelu
as operators and decomposed, convolutions with BatchNormalization, Mul, Add, Pad and activations): the operators of
the file written to `optimized_model_filepath` change when the name is refused. Rewrite rules, which run inside
`Level1_RuleBasedTransformer`, are refused by their own names but not logged, so they were checked by that file alone.
Not seen to fire there, known by their log line only: AttentionFusion, BiasGeluFusion (it fires once MatMulAddFusion is
refused), BiasSkipLayerNormFusion, BiasSoftmaxFusion, ConvAddActivationFusion, EmbedLayerNormFusion, FastGeluFusion,
GatherToSliceFusion, GroupQueryAttentionFusion, LayerNormFusionL1, MatMulActivationFusion, NhwcTransformer,
TransposeOptimizer_CPUExecutionProvider.
"""

from __future__ import annotations

import re

REWRITE_RULES: tuple[str, ...] = (
    "ConvAddFusion",
    "ConvBNFusion",
    "ConvMulFusion",
    "DivMulFusion",
    "FuseReluClip",
    "GemmSumFusion",
    "GemmTransposeFusion",
    "MatMul_BatchNormalization_Fusion",
    "NotWhereFusion",
    "Pad_Fusion",
)
"""Rules of `Level1_RuleBasedTransformer`."""

TRANSFORMERS: tuple[str, ...] = (
    "AttentionFusion",
    "BiasGeluFusion",
    "BiasSkipLayerNormFusion",
    "BiasSoftmaxFusion",
    "CommonSubexpressionElimination",
    "ConstantFolding",
    "ConvActivationFusion",
    "ConvAddActivationFusion",
    "EmbedLayerNormFusion",
    "FastGeluFusion",
    "GatherSliceToSplitFusion",
    "GatherToSliceFusion",
    "GeluFusionL1",
    "GeluFusionL2",
    "GemmActivationFusion",
    "GroupQueryAttentionFusion",
    "LayerNormFusionL1",
    "LayerNormFusionL2",
    "MatMulActivationFusion",
    "MatMulAddFusion",
    "MatMulScaleFusion",
    "MatmulTransposeFusion",
    "NchwcTransformer",
    "NhwcTransformer",
    "QuickGeluFusion",
    "ReshapeFusion",
    "SimplifiedLayerNormFusion",
    "SkipLayerNormFusion",
    "SliceConcatToSpaceToDepthFusion",
    "TransposeOptimizer",
    "TransposeOptimizer_CPUExecutionProvider",
)

OPTIMIZERS: tuple[str, ...] = tuple(sorted(TRANSFORMERS + REWRITE_RULES))
"""Every optimiser that is worth refusing for some floating-point model."""

_RULE_BASED = "Level1_RuleBasedTransformer"
_LOG_LINE = re.compile(r"GraphTransformer (\S+) modified: ([01])")


def registered_in_log(log: str) -> frozenset[str]:
    """Return the names of all transformers that a session's log (severity 1 or below) says were run."""
    return frozenset(name for name, _ in _LOG_LINE.findall(log))


def active_in_log(log: str) -> frozenset[str]:
    """Return those of `OPTIMIZERS` that changed the graph, by a session's log; refusing any other changes nothing.

    The log does not name single rewrite rules: all of them count as active when their transformer changed something.
    """
    changed = {name for name, flag in _LOG_LINE.findall(log) if flag == "1"}
    if _RULE_BASED in changed:
        changed.update(REWRITE_RULES)
    return frozenset(changed.intersection(OPTIMIZERS))
