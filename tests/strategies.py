"""Hypothesis strategies for small random ONNX models, and for the same models renamed or reordered.

The models are made of the operators that rules match, with shared values and several outputs.

    @given(model=models())
    def test_something(model: onnx.ModelProto) -> None: ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.random_models.anywhere import ANY_BLOCKS
from tests.random_models.image import IMAGE_BLOCKS
from tests.random_models.net import BATCH, Chooser, Drawn, Net, Seeded, Shape
from tests.random_models.sequence import SEQUENCE_BLOCKS

OPSET = 23


@st.composite
def models(draw: Any, max_blocks: int = 5) -> onnx.ModelProto:
    """Draw a valid model in opset 23 that is small and shrinks well.

    It has one or two inputs of rank 3 or 4. All values have one floating-point type. Every result that nothing reads is
    an output.
    """
    return random_model(Drawn(draw), draw(st.integers(0, 2**16)), draw(st.integers(1, max_blocks)))


def varied_models(max_blocks: int = 8) -> st.SearchStrategy[onnx.ModelProto]:
    """Draw models of the same kind, larger and more varied, but without shrinking."""

    def make(seed: int) -> onnx.ModelProto:
        chooser = Seeded(seed)
        return random_model(chooser, seed, chooser.choose(range(2, max_blocks + 1)))

    # As bytes: Hypothesis prefers small integers, of which there are few.
    return st.binary(min_size=8, max_size=8).map(lambda data: make(int.from_bytes(data)))


def random_model(chooser: Chooser, seed: int, count: int) -> onnx.ModelProto:
    """Return a model of `count` blocks, with weights by `seed`."""
    net = Net(chooser, np.random.default_rng(seed), chooser.choose((np.float32, np.float64)))
    image = net.flip()
    shape: Shape = (BATCH, net.choose((2, 4)), 3, 4) if image else (BATCH, net.choose((2, 3)), 4)
    inputs = [f"x{i}" for i in range(net.choose((1, 2)))]
    net.shapes.update(dict.fromkeys(inputs, shape))
    net.live.extend(inputs)
    blocks = (*ANY_BLOCKS, *(IMAGE_BLOCKS if image else SEQUENCE_BLOCKS))
    for _ in range(count):
        chosen = net.pick(len(shape))
        assert chosen is not None
        net.live.extend(net.choose(blocks)(net, chosen))
    read = {name for node in net.nodes for name in node.input}
    produced = [name for node in net.nodes for name in node.output]
    ends = [name for name in produced if name not in read]
    more = [name for name in net.live if name in read and name not in inputs]
    if more and net.flip():
        ends.append(net.choose(more))
    return finish(net, inputs, ends)


def finish(net: Net, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    element = int(helper.np_dtype_to_tensor_dtype(np.dtype(net.dtype)))
    graph = helper.make_graph(
        net.nodes,
        "random",
        [helper.make_tensor_value_info(name, element, net.shapes[name]) for name in inputs],
        [helper.make_tensor_value_info(name, element, net.shapes[name]) for name in dict.fromkeys(outputs)],
        net.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)


def feeds_for(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return normal numbers for every input."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        feeds[info.name] = rng.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feeds


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model with other names for nodes, initializers and values that are neither input nor output."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = {info.name for info in (*copy.graph.input, *copy.graph.output)}

    def name(old: str) -> str:
        return old if old in kept or not old else f"other_{old}"

    for node in copy.graph.node:
        node.name = f"other_{node.name}"
        node.input[:] = [name(old) for old in node.input]
        node.output[:] = [name(old) for old in node.output]
    for tensor in copy.graph.initializer:
        tensor.name = name(tensor.name)
    return copy


@st.composite
def reordered(draw: Any, model: onnx.ModelProto) -> onnx.ModelProto:
    """Draw the same model with its nodes in another topological order and its initializers shuffled."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    known = {info.name for info in copy.graph.input} | {t.name for t in copy.graph.initializer} | {""}
    waiting, ordered = list(copy.graph.node), []
    while waiting:
        ready = [node for node in waiting if all(name in known for name in node.input)]
        chosen = ready[rng.integers(len(ready))]
        waiting.remove(chosen)
        ordered.append(chosen)
        known.update(chosen.output)
    tensors = [copy.graph.initializer[i] for i in rng.permutation(len(copy.graph.initializer))]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
    del copy.graph.node[:], copy.graph.initializer[:]
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(tensors)
    return copy
