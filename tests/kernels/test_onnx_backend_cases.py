"""A representative selection of ``onnx.backend.test``'s operator cases; ``onnx_backend_cases.py`` runs them all.

The suite takes every other case of the selection, a campaign each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzing import CAMPAIGN
from kernels.onnx_backend_cases import cases, run_case

ON_KERNELS = (
    "add_bcast", "add_uint8", "and4d", "and_bcast3v1d", "bitshift_right_uint32", "bitwise_not_3d",
    "cast_FLOAT16_to_DOUBLE", "cast_DOUBLE_to_FLOAT16", "celu_expanded", "ceil", "clip_default_int8_inbounds",
    "clip_splitbounds", "concat_3d_axis_negative_2", "depthtospace_crd_mode_example", "div_int32_trunc",
    "dropout_default", "elu", "equal_bcast", "erf", "exp", "expand_dim_changed", "flatten_axis2",
    "gather_2d_indices", "gather_elements_1", "gather_elements_negative_indices", "gather_negative_indices",
    "gathernd_example_int32", "gathernd_example_int32_batch_dim1", "gelu_default_1", "gelu_tanh_2",
    "greater_equal_bcast", "hardsigmoid", "hardswish", "identity", "isinf", "isinf_negative", "isnan", "leakyrelu",
    "log", "max_int64", "max_two_inputs", "mean_example", "min_float64", "mish", "mod_broadcast", "mod_int64_fmod",
    "mod_mixed_sign_float64", "mod_mixed_sign_int16", "mul_bcast", "neg", "pow_bcast_array",
    "pow_types_float32_int64", "prelu_broadcast", "reciprocal", "relu", "reshape_negative_dim",
    "resize_upsample_scales_linear", "resize_downsample_scales_cubic",
    "resize_upsample_sizes_nearest_ceil_half_pixel", "round", "selu", "shrink_soft", "sigmoid", "sign", "slice",
    "slice_neg_steps", "softplus", "softsign", "spacetodepth_example", "sqrt", "squeeze", "sub_uint8",
    "sum_example", "tan", "tanh", "thresholdedrelu", "tile", "transpose_all_permutations_3", "unsqueeze_two_axes",
    "where_example", "where_long_example", "xor_bcast4v3d", "constant_pad", "edge_pad", "reflect_pad", "wrap_pad",
)  # fmt: skip
"""Cases by name, without ``test_``."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all cases."""
    return tmp_path_factory.mktemp("cases")


def test_the_selected_cases_pass_on_kernels_alone(cache: Path) -> None:
    """What ONNX's own tests expect, without the host backend's help; all cases share one store."""
    known, chosen = cases(pools=False), ON_KERNELS if CAMPAIGN else ON_KERNELS[::2]
    outcomes = {name: run_case(known[f"test_{name}"], cache) for name in chosen if f"test_{name}" in known}
    assert len(outcomes) > len(chosen) * 0.9, "the installed onnx lacks many of the cases"
    assert {name: outcome for name, outcome in outcomes.items() if outcome.kind != "kernels"} == {}
