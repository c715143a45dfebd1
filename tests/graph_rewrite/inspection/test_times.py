"""Profiles, the roofline and the share of blocks, on kernels made by hand."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from graph_rewrite import load
from graph_rewrite.inspection.blocks import repeated_blocks
from graph_rewrite.inspection.profile import TimedKernel
from graph_rewrite.inspection.regions import block_shares
from graph_rewrite.inspection.roofline import Peaks, kernel_bytes, kernel_flops, least_us
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.ort_worker.profiling import profile
from graph_rewrite.runtime.ort_worker.runtimes.onnx_runtime import kernels
from tests.graph_rewrite.inspection.models import layers


def floats(*shape: int) -> TensorType:
    return TensorType(1, shape)


def event(name: str, ts: int, dur: int, op: str = "") -> dict[str, Any]:
    if not op:
        return {"cat": "Session", "name": name, "ts": ts, "dur": dur, "args": {}}
    about = {"op_name": op, "node_index": name, "input_type_shape": [{"float": [2, 3]}], "output_type_shape": []}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": about}


class TestProfile:
    def test_every_run_is_told_and_no_file_is_left(self, tmp_path: Path) -> None:
        onnx.save(layers(2), tmp_path / "model.onnx")
        begun: list[int] = []
        found = profile(
            str(tmp_path / "model.onnx"), Deployment(), FeedSpec(), str(tmp_path), 0.0, lambda: begun.append(1)
        )
        # A warm-up and, as no time is left, one run.
        assert len(begun) == 2
        assert {entry["op"] for entry in found} >= {"Neg", "Exp"}

    def test_a_model_of_thousands_of_nodes_is_run_less_often(self, tmp_path: Path) -> None:
        onnx.save(layers(2), tmp_path / "model.onnx")
        begun: list[int] = []
        for nodes, runs in ((1, 50), (20_000, 1), (10**6, 1)):
            begun.clear()
            profile(
                str(tmp_path / "model.onnx"),
                Deployment(),
                FeedSpec(),
                str(tmp_path),
                60.0,
                lambda: begun.append(1),
                nodes,
            )
            assert len(begun) == 1 + runs  # with the warm-up
        assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]

    def test_short_model_runs_as_often_as_it_may(self, tmp_path: Path) -> None:
        onnx.save(layers(2), tmp_path / "model.onnx")
        begun: list[int] = []
        path = str(tmp_path / "model.onnx")
        profile(path, Deployment(), FeedSpec(), str(tmp_path), 60.0, lambda: begun.append(1))
        assert len(begun) == 51


class TestKernels:
    def test_median_over_the_runs_that_count(self) -> None:
        events = [event("session_initialization", 0, 50)]
        for run, us in enumerate((900, 10, 12, 30)):  # the first run warms up
            begin = 1000 * (run + 1)
            events += [
                event("a", begin, us, "Add"),
                event("b", begin + us, 0, "Mul"),
                event("model_run", begin, us + 5),
            ]
        assert kernels(events, skipped=1) == [
            {"name": "a", "op": "Add", "us": 12, "inputs": [("float", [2, 3])], "outputs": []},
            {"name": "b", "op": "Mul", "us": 0, "inputs": [("float", [2, 3])], "outputs": []},
        ]

    def test_kernel_that_runs_others_counts_as_a_whole(self) -> None:
        events = [
            event("model_run", 10, 100), event("inner", 12, 0, "Add"), event("inner2", 20, 70, "Mul"),
            event("loop", 12, 80, "Loop"), event("after", 92, 3, "Neg"),
        ]  # fmt: skip
        assert [(entry["op"], entry["us"]) for entry in kernels(events, skipped=0)] == [("Loop", 80), ("Neg", 3)]


class TestRoofline:
    def test_product_by_hand(self) -> None:
        kernel = TimedKernel("k", "MatMul", 1e6, (floats(4, 8), floats(8, 16)), (floats(4, 16),))
        assert kernel_flops(kernel) == 2 * 4 * 8 * 16
        assert kernel_bytes(kernel) == 4 * (4 * 8 + 8 * 16 + 4 * 16)

    @pytest.mark.parametrize("inputs", [(floats(4, 8),), (floats(4, 8), floats(16))], ids=["no bias", "bias"])
    def test_packed_weight_counts_though_it_is_not_listed(self, inputs: tuple[TensorType, ...]) -> None:
        kernel = TimedKernel("k", "Gemm", 1e6, inputs, (floats(4, 16),))
        assert kernel_flops(kernel) == 2 * 4 * 8 * 16
        bias = 4 * 16 * (len(inputs) - 1)
        assert kernel_bytes(kernel) == 4 * (4 * 8 + 8 * 16 + 4 * 16) + bias

    def test_table_counts_what_is_picked_and_a_view_nothing(self) -> None:
        picked = TimedKernel("k", "Gather", 1e6, (floats(1000, 8), TensorType(7, (4,))), (floats(4, 8),))
        assert kernel_bytes(picked) == 4 * 32 + 8 * 4 + 4 * 32
        assert kernel_bytes(TimedKernel("k", "Reshape", 1e6, (floats(4, 8),), (floats(32),))) == 0

    def test_time_at_least_is_the_greater_of_both_and_not_more_than_taken(self) -> None:
        kernel = TimedKernel("k", "Relu", 1e6, (floats(1000),), (floats(1000),))
        assert least_us(kernel, Peaks(gflops=1.0, gigabytes=1.0)) == pytest.approx(8.0)
        assert least_us(kernel, Peaks(gflops=0.01, gigabytes=1.0)) == pytest.approx(100.0)
        assert least_us(TimedKernel("k", "Relu", 3.0, kernel.inputs, kernel.outputs), Peaks(0.01, 1.0)) == 3.0


class TestBlockShares:
    def test_kernels_belong_to_the_nodes_whose_names_they_bear(self) -> None:
        graph = load(layers(4))
        listed = [
            TimedKernel("first", "Neg", 5.0),
            TimedKernel("fused /layer0/matmul/MatMulAddFusion", "FusedGemm", 10.0),
            TimedKernel("a1_nchwc", "Conv", 20.0),  # named after the result of /layer1/add
            TimedKernel("FusedThing", "FusedThing", 30.0),  # nameless, after a kernel of the block
            TimedKernel("last", "Exp", 35.0),
            TimedKernel("FusedThing_1", "FusedThing", 100.0),  # nameless, outside
        ]
        [share] = block_shares(graph, repeated_blocks(graph), listed)
        assert share == pytest.approx(60 / 200)

    def test_no_time_at_all(self) -> None:
        graph = load(layers(4))
        assert block_shares(graph, repeated_blocks(graph), []) == [0.0]
