"""Writes ``src/opbuild/mindspore/public_names.json``: the public names of the real MindSpore, each with its kind.

    PYTHON_WITH_MINDSPORE tools/mindspore_names.py src/opbuild/mindspore/public_names.json

Public is what a module lists in ``__all__``, and of ``Tensor`` every attribute without a leading underscore. The first
rule of ``RULES`` that a name matches decides its kind; a name that matches none is one that inference can use.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import sys
from pathlib import Path

MODULES = (
    "mindspore", "mindspore.nn", "mindspore.ops", "mindspore.mint", "mindspore.mint.nn",
    "mindspore.mint.nn.functional", "mindspore.mint.linalg", "mindspore.mint.special", "mindspore.mint.distributed",
    "mindspore.mint.optim", "mindspore.numpy", "mindspore.common.initializer", "mindspore.Tensor",
)  # fmt: skip

RULES: dict[str, str] = {
    "internal": r"""
        _.* \W.* [012] names? Int Symbol Node NodeType ScopedValue SymbolTree TensorType QuantDtype ValueType
        number rearrange_inputs type_none string list_ tuple_ get_py_obj_dtype lazy_inline no_inline
        load_obf_params_into_net obfuscate_ckpt .*MixedPrecisionCast mixed_precision_cast (re)?register_.*
        clear_op_.* .*_info_register prim_\w+_register CustomPassType Registry .*RegOp(Info)? .*VmImpl.*
        vm_impl.* get_vm_impl_fn \w+_registry
        (tuple(?!_to_array)|list|dict|string|bool|environ|env|array_ops|scalar(?!_to_tensor|_cast))_\w+
        make_(?!csr|coo)\w+ is_(sequence|dynamic|not|tensor_bool_cond)?\w*_unknown is_ is_not in_dict
        not_in_dict ms_\w+ iter_converter arg_\w+ array_(reduce|to_scalar) auto_generate linalg_ops other_ops
        gen_\w+ cpp_\w+ pyboost\w+ signature switch(_layer)? GeSwitch geswitch [mM]erge typeof hastype embed
        distribute J P Partial partial HyperMap MultitypeFuncGraph Map MapCacheIdx MapUniform UpdateState
        IsConstant isconstant RefToEmbed ref_to_embed SliceGetItem PyExecute PyFunc DropoutDoMask
        DropoutGenMask inplace_sigmoid shape_mul reduced_shape broadcast_gradient_args zip_operation add_flags
        env_get hyper_add pows floordiv floormod tensor_(?!scatter|dot|split)\w+ augassign_\w+ .*_ext_?(op)?
        \w+Ext(View)? (Select|Transpose)View Morph Push Pull CopyWithSlice DataType DtypeToEnum SparseSlice
        constexpr kernel custom_info_register TensorToTuple Reusing prim_\w+ CpuRegOp Custom CustomOpBuilder
        dyn_shape DynamicShape (set|get)item_index_info const_arg convert_bytes_to_tensor delta_seed
        index_of_parent_ parent_tensor_ param_info hooks init_flag has_init init init_data init_finished
        is_init virtual_flag set_\w+(info|flag|arg|dtype|address) set_dtype symbolic_shape wait_pipeline
        flush_from_cache data_sync assign_value\w* offload_file_path value_ string_\w+ deepcopy move_to\w*
        to_dlpack from_dlpack set_ argm(ax|in)_with_value itemset inplace_update getitem_index_info ops
        stop_gradient_ reshape_ shape_ bool_not bool_or Scalar(?!Cast|ToTensor|Summary)\w+ identity_ GetNext
        MoveTo IdentityN_ Expand_ EnvironGet ConvertNetUtils ConvertModelUtils tail _Tail""",
    "training": r"""
        A(SGD|daFactor|daMax|daSum\w+|dadelta|dagrad|dam\w*)
        F(TRL|usedAdamW|usedAda\w+|usedCast\w+|usedSparse\w+|usedWeight\w+) L(ARS|ARSUpdate|amb|azyAdam)
        Momentum Optimizer OptTFTWrapper ProximalAdagrad RMSProp Rprop SGD thor .*Thor Apply(?!Rotary)\w+
        SparseApply\w+ .*LR .*_lr .*LossScale\w* .*LossScaleManager Train\w+ WithGradCell WithLossCell
        WithEvalCell ForwardValueAndGrad Grad\w+ Jvp Vjp .*GradReducer grad value_and_grad vjp jvp vmap jacfwd
        jacrev jet derivative linearize get_grad _Grad InsertGradientOf HookBackward DumpGradient recompute\w*
        _RecomputeBlock _no_grad saved_tensors_hooks swap_tensors Accuracy BleuScore ConfusionMatrix(Metric)?
        CosineSimilarityMetric Dice F1 Fbeta HausdorffDistance Loss MAE MSE MeanSurfaceDistance Metric
        OcclusionSensitivity Perplexity Precision ROC Recall RootMeanSquareDistance Top\w+Accuracy auc
        get_metric\w* Callback CheckpointConfig EarlyStopping History LambdaCallback LearningRateScheduler
        LossMonitor Model ModelCheckpoint OnRequestExit ReduceLROnPlateau RunContext Summary\w+ .*Summary
        TimeMonitor BackupAndRestore FlopsUtilizationCollector connect_network_with_dataset
        build_train_network register_hook remove_hook requires_grad_ stop_gradient__ retain_grad
        ParameterUpdate GraphCell L1Regularizer clip_by_norm_ MemoryReplay memory_replay .*ckpt_thread_status
        .*flops\w* LBeta_ NPU\w+FloatStatus FloatStatus SampledSoftmaxLoss batch_norm_\w+
        ComputeAccidentalHits \w+CandidateSampler \w+candidate_sampler""",
    "data": r"DatasetHelper data_sink GetNextSingleOp",
    "parallel": r"""
        All(Gather|Reduce|toAll)\w* .*AllSwap _AllSwap Barrier BatchISendIRecv Broadcast Collective\w+
        NeighborExchange\w* P2POp Receive Reduce ReduceOp ReduceScatter\w* Send TCPStore Reshard reshard
        all_(gather|reduce|to_all)\w* barrier batch_isend_irecv broadcast broadcast_object_list
        destroy_process_group gather_(object|into_tensor)
        get_(backend|global_rank|group_rank|process_group_ranks|rank|world_size) init_process_group irecv
        isend is_available is_initialized new_group recv\w* reduce reduce_scatter\w* send\w*
        scatter_(object_list|tensor) matmul_reduce_scatter set_comm_ops_inplace .*auto_parallel\w*
        .*algo_parameters .*(_|^)strategy\w* build_searched_strategy Layout ParallelMode shard
        MicroBatchInterleaved PipelineCell VirtualDatasetCellTriple .*_by_rank .*checkpoints .*pipeline\w*
        .*_distributed_checkpoint .*sliced_parameter rank_list\w* restore_group_info_list .*ps_context
        parameter_broadcast set_op_strategy_config SyncBatchNorm_ unified_safetensors export_split_mindir""",
    "device": r"""
        DeviceCtx Event MemPool PluggableAllocator Stream\w* .*_stream .*stream_limit UntypedStorage
        .*memory\w* .*mempool empty_cache use_mem_pool synchronize dispatch_threads_num launch_blocking
        set_cpu_affinity set_deterministic set_dump set_(kernel)\w+ set_recursion_limit .*mindio\w* Profiler
        get_log_config communication_stream reset_\w+ .*device_limit ms_memory_recycle pin_memory is_pinned
        offload storage untyped_storage data_ptr is_shared is_meta storage_offset_ register_custom_backend
        enable_dynamic nsa_\w+ .*flash_attention\w* moe_\w+ .*_attention(_update|_score)? npu_\w+
        PagedAttention\w* ReshapeAndCache GroupTopk lightning_indexer TensorDump tensordump float8\w+ hifloat8
        qint4x2 JitConfig speed_fusion_attention multi_scale_deformable_attn_function get_rng_state_ set_ps\w+
        get_level""",
    "sparse": r"""
        (csr|coo)_\w+ csr2coo coo2csr CSR2COO COO2CSR CSRGather .*(COO|CSR|Row|Sparse)Tensor\w* to_c[os][or]
        make_c[os][or]_tensor dense_to_sparse_\w+ row_tensor_\w+ Sparse(?!Softmax)\w+ sparse_\w+ Coalesce
        coalesce SparseToDense SparseSegment\w* MapParameter""",
}
"""Patterns of whole names, by kind."""


def kind(module: str, name: str) -> str:
    """Return the kind of a public name."""
    if module.endswith("mint.optim"):
        return "training"
    if module.endswith("mint.distributed"):
        return "parallel"
    return next((kind for kind in RULES if _PATTERNS[kind].fullmatch(name)), "inference")


_PATTERNS = {kind: re.compile("|".join(f"(?:{each})" for each in rule.split())) for kind, rule in RULES.items()}


def listed(module: str) -> list[str]:
    """Return the public names of a module or of Tensor."""
    if module == "mindspore.Tensor":
        return [name for name in dir(importlib.import_module("mindspore").Tensor) if not name.startswith("_")]
    owner = importlib.import_module(module)
    own = {name for name in owner.__all__ if not inspect.ismodule(getattr(owner, name, None))}
    # mint's list repeats those of the modules below it.
    own = {name for name in own if hasattr(owner, name)}
    return sorted(own)


def main() -> None:
    """Write the file that the first argument names."""
    import mindspore

    names: dict[str, dict[str, str]] = {}
    for module in MODULES:
        kinds: dict[str, list[str]] = {}
        for name in listed(module):
            kinds.setdefault(kind(module, name), []).append(name)
        names[module] = {kind: " ".join(each) for kind, each in sorted(kinds.items())}
    modules = sorted(m.name for m in pkgutil.iter_modules(mindspore.__path__) if not m.name.startswith("_"))
    content = {"version": mindspore.__version__, "modules": " ".join(modules), "names": names}
    Path(sys.argv[1]).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
