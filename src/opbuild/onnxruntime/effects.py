"""Effects: for each option of ONNX Runtime whether it acts, warns or refuses, and why; nothing is dropped in silence.

A table of docs/reference/onnxruntime.md has the same rows, and tests hold these against the installed ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.onnxruntime.logs import Log, warn_once
from opbuild.platform.records import NamedTuple

ACTS, WARNS, REFUSES = "acts", "warns", "refuses"


class Effect(NamedTuple):
    """The effect of an option.

    Attributes:
        does: ``ACTS``; ``WARNS``, once, that it is ignored; ``REFUSES``, with an error.
        why: What it does, or why it is ignored or refused.
        fits: Values of an option that warns or refuses which ask for what is so anyway; the first is the default.
    """

    does: str
    why: str
    fits: tuple[Any, ...] = ()


_PLANNED = "memory is planned when a network is built, and kept between calls"
_ONE_BY_ONE = "operators run one after the other, each on all threads"
_WHOLE = "networks are always optimized wholly"
_POOL = "all networks of a process share one pool of threads, which wait 10 ms for work before they sleep"
_DEVICE = "there is the processor only"
_NO_CONTEXT = "nothing becomes an EPContext node: kernels lie in opbuild's store"
_INT8 = "opbuild chooses how 8-bit models are computed, with the results of their operators"
_PACKED = "weights are packed when a network is built, and mapped from the store"
_SAVED = "no optimized model is written"
_EXPERTS = "experts are computed on the processor, in memory"
_ORT_FORMAT = "the format .ort is not read"
_ATTRIBUTE = "set the attribute of SessionOptions"

SESSION: Mapping[str, Effect] = {
    "add_external_initializers": Effect(ACTS, "gives values of weights that the model leaves out"),
    "add_external_initializers_from_files_in_memory": Effect(ACTS, "gives the contents of the model's data files"),
    "add_free_dimension_override_by_denotation": Effect(ACTS, "fixes open dimensions"),
    "add_free_dimension_override_by_name": Effect(ACTS, "fixes open dimensions"),
    "add_initializer": Effect(ACTS, "replaces a weight, by the value that it has when the session is made"),
    "add_provider": Effect(ACTS, "takes `CPUExecutionProvider`; other providers are an error"),
    "add_provider_for_devices": Effect(ACTS, "takes the processor"),
    "add_session_config_entry": Effect(ACTS, "keeps an entry; see below"),
    "clear_ep_context_data_read_func": Effect(ACTS, "takes back `set_ep_context_data_read_func`"),
    "enable_cpu_mem_arena": Effect(WARNS, _PLANNED, (True,)),
    "enable_mem_pattern": Effect(WARNS, _PLANNED, (True,)),
    "enable_mem_reuse": Effect(WARNS, _PLANNED, (True,)),
    "enable_profiling": Effect(ACTS, "writes a file of trace events: the session, each call, each kernel"),
    "execution_mode": Effect(WARNS, _ONE_BY_ONE, ("ORT_SEQUENTIAL",)),
    "execution_order": Effect(WARNS, "the order is chosen when a network is built", ("DEFAULT",)),
    "get_session_config_entry": Effect(ACTS, "returns an entry"),
    "graph_optimization_level": Effect(WARNS, _WHOLE, ("ORT_ENABLE_ALL",)),
    "has_providers": Effect(ACTS, "says whether providers, devices or a policy were given"),
    "inter_op_num_threads": Effect(WARNS, _ONE_BY_ONE, (0, 1)),
    "intra_op_num_threads": Effect(
        ACTS, "threads that run the network; 0 is automatic: `OPBUILD_NUM_THREADS`, else the cores"
    ),
    "log_severity_level": Effect(ACTS, "hides messages below it: those of making the session; -1 is the process's"),
    "log_verbosity_level": Effect(WARNS, "verbose messages have no levels", (0,)),
    "logid": Effect(ACTS, "stands before messages, and is told to the callback"),
    "optimized_model_filepath": Effect(REFUSES, "what is optimized is machine code, which no ONNX model holds", ("",)),
    "profile_file_prefix": Effect(ACTS, "begins the name of the profile"),
    "register_custom_ops_library": Effect(REFUSES, "such libraries are written for ONNX Runtime's own kernels"),
    "set_ep_context_data_read_func": Effect(WARNS, _NO_CONTEXT),
    "set_load_cancellation_flag": Effect(ACTS, "a session that is made with it set is `ModelLoadCanceled`"),
    "set_provider_selection_policy": Effect(ACTS, "chooses the processor, the only device"),
    "set_provider_selection_policy_delegate": Effect(
        ACTS, "is asked which devices to take; it must take the processor"
    ),
    "use_deterministic_compute": Effect(ACTS, "waits for the network's own kernels, so that no two calls have others"),
    "use_per_session_threads": Effect(ACTS, "False takes the number of threads of `set_global_thread_pool_sizes`"),
}
"""Attributes and methods of ``SessionOptions``."""

RUN: Mapping[str, Effect] = {
    "add_active_adapter": Effect(REFUSES, "adapters are not read; feed their tensors to `run`"),
    "add_run_config_entry": Effect(ACTS, "keeps an entry; see below"),
    "get_run_config_entry": Effect(ACTS, "returns an entry"),
    "log_severity_level": Effect(ACTS, "hides messages below it: those of this call; -1 is the session's"),
    "log_verbosity_level": Effect(WARNS, "verbose messages have no levels", (0,)),
    "logid": Effect(ACTS, "stands before messages, and is told to the callback"),
    "only_execute_path_to_fetches": Effect(WARNS, "a network runs whole", (False,)),
    "terminate": Effect(ACTS, "ends the calls that have these options at their next kernel, as `Fail`"),
}
"""Attributes and methods of ``RunOptions``."""

ENTRIES: Mapping[str, Effect] = {
    "session.load_model_format": Effect(ACTS, "`ORT` is `NotImplemented`"),
    "session.model_external_initializers_file_folder_path": Effect(ACTS, "the folder of the model's data files"),
    "session.disable_cpu_ep_fallback": Effect(REFUSES, "the processor's is the only provider", ("0",)),
    "session.allow_released_opsets_only": Effect(WARNS, "later operator sets are refused", ("1",)),
    "session.strict_shape_type_inference": Effect(WARNS, "opbuild infers shapes by its own rules", ("0",)),
    "session.set_denormal_as_zero": Effect(WARNS, "kernels compute with denormal numbers", ("0",)),
    "session.intra_op_thread_affinities": Effect(WARNS, _POOL, ("",)),
    **dict.fromkeys(
        ("session.intra_op.allow_spinning", "session.inter_op.allow_spinning"), Effect(WARNS, _POOL, ("1",))
    ),
    **dict.fromkeys(
        (
            "session.intra_op.spin_duration_us", "session.intra_op.spin_backoff_max",
            "session.inter_op.spin_duration_us", "session.inter_op.spin_backoff_max",
        ), Effect(WARNS, _POOL),
    ),
    "session.force_spinning_stop": Effect(WARNS, _POOL, ("0",)),
    "session.dynamic_block_base": Effect(WARNS, "a kernel's tasks are fixed when it is built", ("0", "")),
    "session.use_env_allocators": Effect(WARNS, _PLANNED, ("0",)),
    "session.use_device_allocator_for_initializers": Effect(WARNS, _PLANNED, ("0",)),
    "session.disable_prepacking": Effect(WARNS, _PACKED, ("0",)),
    "session.prepack.enable_parallel": Effect(WARNS, _PACKED, ("0",)),
    "session.save_external_prepacked_constant_initializers": Effect(WARNS, _PACKED, ("0",)),
    "session.use_external_initializer_file_buffers_directly": Effect(WARNS, _PACKED, ("0",)),
    "session.external_data_loader.*": Effect(WARNS, _PACKED),
    "session.save_model_format": Effect(WARNS, _SAVED, ("ONNX",)),
    "session.optimized_model_external_initializers_file_name": Effect(WARNS, _SAVED, ("",)),
    "session.optimized_model_external_initializers_min_size_in_bytes": Effect(WARNS, _SAVED),
    "session.debug_layout_transformation": Effect(WARNS, _SAVED, ("0",)),
    "session.use_ort_model_bytes_directly": Effect(WARNS, _ORT_FORMAT, ("0",)),
    "session.use_ort_model_bytes_for_initializers": Effect(WARNS, _ORT_FORMAT, ("0",)),
    "session.enable_saved_runtime_optimizations": Effect(WARNS, _ORT_FORMAT, ("0",)),
    "optimization.minimal_build_optimizations": Effect(WARNS, _ORT_FORMAT, ("",)),
    "optimization.disable_specified_optimizers": Effect(WARNS, _WHOLE, ("",)),
    "optimization.constant_folding_max_output_size_in_bytes": Effect(WARNS, _WHOLE),
    "optimization.enable_cast_chain_elimination": Effect(WARNS, _WHOLE, ("0",)),
    "optimization.enable_gelu_approximation": Effect(WARNS, "Gelu is computed as the model says", ("0",)),
    "optimization.memory_optimizer_config": Effect(WARNS, "it is for training", ("",)),
    "optimization.enable_memory_probe_recompute_config": Effect(WARNS, "it is for training", ("0:0",)),
    "session.graph_optimizations_loop_level": Effect(WARNS, _WHOLE),
    "session.disable_aot_function_inlining": Effect(WARNS, "functions are always expanded", ("0",)),
    "session.function_expansion_byte_limit": Effect(WARNS, "opbuild has limits of its own"),
    "session.function_expansion_node_limit": Effect(WARNS, "opbuild has limits of its own"),
    "session.max_shape_override": Effect(WARNS, "each size is bound when it comes"),
    "session.disable_model_compile": Effect(WARNS, "networks are always compiled", ("0",)),
    "session.compile_only": Effect(WARNS, _NO_CONTEXT, ("0",)),
    "session.fail_on_suboptimal_compiled_model": Effect(WARNS, _NO_CONTEXT, ("0",)),
    "session.collect_node_memory_stats_to_file": Effect(WARNS, "`opbuild report` shows the memory over the calls"),
    "session.record_ep_graph_assignment_info": Effect(WARNS, "all nodes are the processor's", ("0",)),
    "session.kernel_dispatch_policy": Effect(WARNS, "kernels are chosen when a network is built"),
    "session.gqa_value_layout": Effect(WARNS, "kernels are chosen when a network is built"),
    **dict.fromkeys(
        (
            "session.disable_quant_qdq", "session.disable_double_qdq_remover", "session.enable_quant_qdq_cleanup",
            "session.disable_qdq_constant_folding", "session.qdqisint8allowed", "session.x64quantprecision",
            "session.enable_dq_matmulnbits_fusion",
        ), Effect(WARNS, _INT8, ("0",)),
    ),
    "session.enable_quant_qdq": Effect(WARNS, _INT8, ("1",)),
    "session.qdq_matmulnbits_accuracy_level": Effect(WARNS, _INT8),
    "session.qdq_matmulnbits_block_size": Effect(WARNS, _INT8),
    "mlas.*": Effect(WARNS, "kernels are opbuild's own"),
    "session.node_partition_config_file": Effect(WARNS, _DEVICE, ("",)),
    "session.resource_cuda_partitioning_settings": Effect(WARNS, _DEVICE, ("",)),
    "session.layer_assignment_settings": Effect(WARNS, _DEVICE, ("",)),
    "session.name_based_layer_assignment": Effect(WARNS, _DEVICE),
    "session.strict_workspace_verification": Effect(WARNS, _DEVICE, ("0",)),
    "session.enable_moe_expert_counting": Effect(WARNS, _EXPERTS, ("0",)),
    "session.enable_moe_expert_statistics": Effect(WARNS, _EXPERTS, ("0",)),
    "session.moe_expert_*": Effect(WARNS, _EXPERTS),
    "session.moe.offload.*": Effect(WARNS, _EXPERTS),
    "ep.context_enable": Effect(WARNS, _NO_CONTEXT, ("0",)),
    "ep.context_*": Effect(WARNS, _NO_CONTEXT),
    "ep.share_ep_contexts": Effect(WARNS, _NO_CONTEXT, ("0",)),
    "ep.stop_share_ep_contexts": Effect(WARNS, _NO_CONTEXT, ("0",)),
    "ep.enable_weightless*": Effect(WARNS, _NO_CONTEXT, ("0",)),
    "ep.dynamic.*": Effect(WARNS, "the operating system schedules"),
    "ep.*": Effect(WARNS, "providers have no options here"),
    **dict.fromkeys(
        (
            "session.enable_cpu_mem_arena", "session.enable_mem_pattern", "session.enable_profiling",
            "session.execution_mode", "session.graph_optimization_level", "session.inter_op_num_threads",
            "session.intra_op_num_threads", "session.log_id", "session.log_severity_level",
            "session.log_verbosity_level", "session.optimized_model_filepath", "session.use_deterministic_compute",
            "session.use_per_session_threads",
        ), Effect(WARNS, _ATTRIBUTE),
    ),
}  # fmt: skip
"""Entries of a session's configuration; ``*`` stands for any end. An entry that is not here warns, too."""

RUN_ENTRIES: Mapping[str, Effect] = {
    "disable_synchronize_execution_providers": Effect(ACTS, "is always so: a call ends when all is done"),
    "ep.dynamic.*": Effect(WARNS, "the operating system schedules"),
    "gpu_graph_id": Effect(WARNS, _DEVICE, ("-1",)),
    "memory.enable_memory_arena_shrinkage": Effect(WARNS, _PLANNED, ("",)),
    "qnn.*": Effect(WARNS, _DEVICE),
}
"""Entries of a call's configuration."""

UNKNOWN = Effect(WARNS, "opbuild does not know it")


def effect_of(key: str, entries: Mapping[str, Effect]) -> Effect:
    """Return the effect of an entry of a configuration."""
    found = entries.get(key)
    if found is not None:
        return found
    starts = (each for each in entries if each.endswith("*") and key.startswith(each[:-1]))
    return entries.get(max(starts, key=len, default=""), UNKNOWN)


def is_ignored(effect: Effect, value: Any) -> bool:
    """Return whether a value is one to warn of."""
    return effect.does == WARNS and getattr(value, "name", value) not in effect.fits


def warn_of_ignored(kind: str, set_: Mapping[str, Any], effects: Mapping[str, Effect], log: Log) -> None:
    """Warn once of each option that is ignored.

    Args:
        kind: What messages call such an option.
        set_: Values of options by name.
        effects: Their effects.
        log: Whose messages these are.
    """
    for name, value in set_.items():
        effect = effect_of(name, effects)
        if is_ignored(effect, value):
            shown = getattr(value, "name", repr(value))
            warn_once(f"the {kind} {name} = {shown} is ignored: {effect.why}", log)
