"""A sample of onnx's node test cases, one per family of operators, as a whole; `make node-cases` runs all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.coverage_of_models.node_cases import judged, node_cases
from tests.coverage_of_models.planted_meter import OPTIONS, planted_gains
from tests.coverage_of_models.run_node_cases import main

_NAMES = """
    abs affine_grid_2d_expanded and_bcast4v2d argmax_keepdims_random attention_4d_causal
    attention_4d_causal_expanded averagepool_2d_same_upper basic_deform_conv_with_padding
    batchnorm_example_training_mode bitwise_xor_i32_2d castlike_FLOAT16_to_FLOAT_expanded center_crop_pad_crop
    clip_expanded col2im concat_2d_axis_1 conv_with_strides_padding convtranspose cumsum_2d_axis_1 div_uint8
    dropout_default_ratio dynamicquantizelinear_expanded elu_expanded_ver18 eyelike_with_dtype gather_elements_1
    gathernd_example_float32 gemm_all_attributes gridsample_bilinear group_normalization_epsilon_expanded
    gru_with_initial_bias hardmax_axis_0 if if_seq instancenorm_epsilon isinf_positive
    layer_normalization_4d_axis1_expanded loop11 lstm_with_peepholes matmulinteger maxpool_2d_dilations
    melweightmatrix mvn_expanded nllloss_NCd1_weight nonmaxsuppression_two_classes constant_pad qlinearconv
    qlinearmatmul_2D_uint8_float32 reduce_sum_keepdims_random reshape_extended_dims resize_upsample_sizes_nearest
    rms_normalization_2d_axis0_expanded scan_sum scatter_elements_with_axis shape_start_1
    simple_rnn_with_initial_bias slice softmax_large_number_expanded split_variable_parts_2d_opset18 stft
    string_concat tile top_k training_dropout transpose_all_permutations_0 unsqueeze_two_axes where_example
"""
SAMPLE = tuple(_NAMES.split())
"""Names of cases, without `test_`."""


@pytest.mark.parametrize("name", SAMPLE)
def test_the_result_gives_what_the_case_expects(name: str) -> None:
    case = node_cases()[f"test_{name}"]
    with planted_gains(in_process=True):
        found = judged(case, 60.0, **OPTIONS)
    assert found.status in ("optimised", "kept"), found.message


def test_a_run_goes_on_where_the_last_one_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.jsonl"
    names = list(node_cases())[:3]
    results.write_text(json.dumps({"name": names[1], "status": "started"}) + "\n")
    arguments = ["--count", "3", "--planted", "--time-limit", "60", "--results", str(results), "--json"]
    assert main(arguments) == 1  # the process of the run before died in the second case
    first = json.loads(capsys.readouterr().out)
    assert (first["cases"], first["crashed"], first["kept"] + first["optimised"]) == (3, 1, 2)
    lines = results.read_text()
    assert main(arguments) == 1
    assert json.loads(capsys.readouterr().out) == first
    assert results.read_text() == lines
