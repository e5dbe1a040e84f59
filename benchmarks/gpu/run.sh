#!/bin/sh
# A first run on a GPU: results into $OUT, or benchmarks/results/gpu/. At most six minutes; torch and Triton are
# compared with where python3 has them.
cd "$(dirname "$0")/../.." && exec python3 benchmarks/gpu/first_run.py "$@"
