"""The operator and rule vocabularies: the meaning of the integers in an observation.

A trained policy has an embedding per entry, so entries are only ever appended to `OPERATORS`, never moved; checkpoints
record both vocabularies by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from graph_rewrite.rules import rule_names
from graph_rewrite.runtime import OPTIMIZERS

PADDING = 0
"""Index of padding, in both vocabularies."""
UNKNOWN = 1
"""Index of operators and rules that the vocabulary does not have."""
NO_OP = 2
"""Index of the No-Op in the rule vocabulary."""

_STANDARD = """
Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization
Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike CausalConvWithState
Ceil Celu CenterCropPad Clip Col2Im Compress Concat ConcatFromSequence Constant ConstantOfShape Conv ConvInteger
ConvTranspose Cos Cosh CumProd CumSum DFT DeformConv DepthToSpace DequantizeLinear Det Div Dropout
DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu
Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization HammingWindow
HannWindow HardSigmoid HardSwish Hardmax Identity If ImageDecoder InstanceNormalization IsInf IsNaN LRN LSTM
LayerNormalization LeakyRelu Less LessOrEqual LinearAttention Log LogSoftmax Loop LpNormalization LpPool MatMul
MatMulInteger Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization MelWeightMatrix Min Mish Mod Mul
Multinomial Neg NegativeLogLikelihoodLoss NonMaxSuppression NonZero Not OneHot Optional OptionalGetElement
OptionalHasElement Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RNN RandomNormal
RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare RegexFullMatch Relu Reshape Resize ReverseSequence
RoiAlign RotaryEmbedding Round STFT Scan Scatter ScatterElements ScatterND Selu SequenceAt SequenceConstruct
SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap Shape Shrink Sigmoid Sign Sin Sinh Size Slice
Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split SplitToSequence Sqrt Squeeze StringConcat
StringNormalizer StringSplit Sub Sum SwiGLU Swish Tan Tanh TensorScatter TfIdfVectorizer ThresholdedRelu Tile TopK
Transpose Trilu Unique Unsqueeze Upsample Where Xor
"""

_MICROSOFT = """
Attention BiasGelu BiasSoftmax EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul Gelu GridSample
GroupNorm GroupQueryAttention MatMulNBits MultiHeadAttention NhwcConv NhwcMaxPool QAttention QLinearAdd
QLinearAveragePool QLinearConcat QLinearGlobalAveragePool QLinearMul QuickGelu SkipGroupNorm SkipLayerNormalization
SkipSimplifiedLayerNormalization
"""

_NCHWC = "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample"

OPERATORS: tuple[tuple[str, str], ...] = (
    *(("", name) for name in _STANDARD.split()),
    *(("com.microsoft", name) for name in _MICROSOFT.split()),
    *(("com.microsoft.nchwc", name) for name in _NCHWC.split()),
)
"""(domain, operator) of all operators that have an entry of their own."""

_OPERATOR_INDEX = {key: index for index, key in enumerate(OPERATORS, start=UNKNOWN + 1)}

CANDIDATE = UNKNOWN + 1 + len(OPERATORS)
"""Index of the pseudo operator at the head of a candidate's replacement."""


@cache
def operator_vocabulary() -> tuple[str, ...]:
    """Names of all operator entries, in the order of their indices: padding, unknown, `domain::operator`, candidate."""
    names = (f"{domain or 'ai.onnx'}::{name}" for domain, name in OPERATORS)
    return ("<padding>", "<unknown>", *names, "<candidate>")


def operator_index(domain: str, operator: str) -> int:
    """Index of an operator; `UNKNOWN` where the vocabulary does not have it."""
    return _OPERATOR_INDEX.get((domain, operator), UNKNOWN)


@cache
def rule_vocabulary() -> tuple[str, ...]:
    """Names of all rule entries, in the order of their indices: padding, unknown, No-Op, deployment choices, rules
    of all sets, those written by hand first."""
    choices = (f"{verb} {name}" for name in OPTIMIZERS for verb in ("refuse", "keep"))
    return ("<padding>", "<unknown>", "<no-op>", *choices, *rule_names())


@cache
def _rule_index() -> dict[str, int]:
    return {name: index for index, name in enumerate(rule_vocabulary())}


def rule_indices(rules: Iterable[str]) -> list[int]:
    """Index of each rule or deployment choice; `UNKNOWN` for rules that are not registered."""
    index = _rule_index()
    return [index.get(rule, UNKNOWN) for rule in rules]
