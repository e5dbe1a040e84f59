"""Options of ATC that decide nothing in opbuild: values that are taken and change nothing, and the way round others."""

from __future__ import annotations

from opbuild.cli.options import REFUSED, required, wrong
from opbuild.platform.records import NamedTuple

_RANGES = 'give the sizes as ranges: --input_shape "data:1,3,1~640,1~640"'
_NO_BANK = "TUNE_BANK_PATH names the tuning database of 'opbuild tune', which every build reads"
_NO_TYPES = "element types are the model's; --precision_mode and Cast nodes in the model change them"
_QUANTIZED = "quantize or prune the model before it is exported"
_ONE_MACHINE = "an offline model is for one machine; --soc_version names it"


class Foreign(NamedTuple):
    """An option of ATC that opbuild reads and does not need.

    Attributes:
        accepted: Values that ask for what opbuild does anyway, or for nothing that a CPU has.
        instead: What to do where another value is wanted.
    """

    accepted: tuple[str, ...]
    instead: str


_SWITCH = ("0", "1")
_BOOLEAN = ("true", "false")

FOREIGN: dict[str, Foreign] = {
    # The model that comes in
    "weight": Foreign((), "an ONNX model holds its weights: leave the option out"),
    "input_format": Foreign(("NCHW", "ND"), "ONNX's order of dimensions is kept; a Transpose in the model changes it"),
    "input_shape_range": Foreign((), _RANGES),
    "input_hint_shape": Foreign((), "no hint is needed: leave the option out"),
    "singleop": Foreign((), "write a model of one operator, or use @opbuild.operator"),
    "insert_op_conf": Foreign((), "AIPP is a unit of NPUs: put the preprocessing into the model, or before it"),
    "op_name_map": Foreign((), "operators keep ONNX's names; @opbuild.operator defines further ones"),
    "out_nodes": Foreign((), "cut the model before: onnx.utils.extract_model"),
    **dict.fromkeys(("input_fp16_nodes", "modify_mixlist", "keep_dtype", "customize_dtypes"), Foreign((), _NO_TYPES)),
    "enable_scope_fusion_passes": Foreign((), "it is for TensorFlow's models"),
    "is_input_adjust_hw_layout": Foreign(("false",), "inputs have ONNX's layout"),
    "is_output_adjust_hw_layout": Foreign(("false",), "outputs have ONNX's layout"),
    # The file that comes out
    "output_type": Foreign((), "outputs have the model's element types; a Cast in the model changes them"),
    "host_env_os": Foreign(("linux",), _ONE_MACHINE),
    "host_env_cpu": Foreign((), _ONE_MACHINE),
    "external_weight": Foreign(("0",), "weights are in the .om file, and mapped"),
    "save_original_model": Foreign(("false",), "an .om file holds no copy of the model"),
    "display_model_info": Foreign(("0",), "--mode=6 --om=FILE.om shows it"),
    "dump_mode": Foreign(("0",), "--mode=1 writes the model as JSON"),
    "export_compile_stat": Foreign(("0", "1"), "the record of the build is always in the .om file"),
    # The machine
    "core_type": Foreign(("AiCore",), "a CPU's cores are of one type"),
    "aicore_num": Foreign((), "--num_threads says how many cores run the model"),
    "virtual_type": Foreign(("0",), "it is for virtual NPUs"),
    "buffer_optimize": Foreign(("l1_optimize", "l2_optimize", "off_optimize"), "it is for buffers of NPUs"),
    "enable_single_stream": Foreign(_BOOLEAN, "a model runs in its caller's thread"),
    **dict.fromkeys(("ac_parallel_enable", "tiling_schedule_optimize"), Foreign(_SWITCH, "it is for NPUs")),
    "status_check": Foreign(("0",), 'overflow is not looked for; --op_debug_config with "oom" checks bounds'),
    "atomic_clean_policy": Foreign(_SWITCH, "memory is cleaned where it must be"),
    # How operators are compiled
    "precision_mode_v2": Foreign(("origin",), _NO_TYPES),
    "op_precision_mode": Foreign(
        (), "--op_select_implmode and --optypelist_for_implmode say which operators are precise"
    ),
    "allow_hf32": Foreign(("false",), "CPUs have no HF32"),
    "deterministic": Foreign(_SWITCH, "results are the same in each run anyway"),
    "fusion_switch_file": Foreign((), "what is fused is not decided by the user"),
    "enable_small_channel": Foreign(_SWITCH, "first layers have kernels of their own"),
    "disable_reuse_memory": Foreign(("0",), "memory is reused"),
    "oo_level": Foreign(("O1", "O3"), "the graph is always optimized"),
    "oo_constant_folding": Foreign(("true",), "constants are always folded"),
    "oo_dead_code_elimination": Foreign(("true",), "what is not needed is always left out"),
    "optimization_switch": Foreign((), "the graph is always optimized"),
    "shape_generalized_build_mode": Foreign((), "operators serve any shape; --input_shape says which the file serves"),
    **dict.fromkeys(("auto_tune_mode", "mdl_bank_path", "op_bank_path"), Foreign((), _NO_BANK)),
    # Weights
    "enable_compress_weight": Foreign(("false",), _QUANTIZED),
    **dict.fromkeys(("compress_weight_conf", "compression_optimize_conf"), Foreign((), _QUANTIZED)),
    **dict.fromkeys(("sparsity", "quant_dumpable"), Foreign(("0",), _QUANTIZED)),
    "is_weight_clip": Foreign(_SWITCH, "weights are never converted"),
    # Several devices
    **dict.fromkeys(("distributed_cluster_build", "enable_graph_parallel"), Foreign(("0",), _ONE_MACHINE)),
    **dict.fromkeys(
        ("cluster_config", "graph_parallel_option_path", "shard_model_dir", "model_relation_config"),
        Foreign((), _ONE_MACHINE),
    ),
}
"""By the option's name."""


def check_foreign(option: str, value: str) -> None:
    """Take an option that decides nothing, or say which to use instead."""
    accepted, instead = FOREIGN[option]
    if value in accepted:
        return
    allowed = f"only {' and '.join(accepted)} can be given" if accepted else "no value of it can be given"
    required(option, value, allowed)
    raise wrong(REFUSED, f"--{option} is {value!r}, which opbuild does not serve", f"{allowed}; {instead}")
