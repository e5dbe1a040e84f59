#!/bin/sh
# A run on a GPU: results into $OUT, or benchmarks/results/gpu/. Six minutes for kernels alone and, where prepare.py was
# run before (build/gpu-field), eight for whole networks. torch and Triton are compared with where python3 has them.
cd "$(dirname "$0")/../.." || exit 1
python3 benchmarks/gpu/first_run.py "$@" || failed=1
[ ! -d build/gpu-field ] || python3 benchmarks/gpu/gpu_field.py || failed=1
exit "${failed:-0}"
