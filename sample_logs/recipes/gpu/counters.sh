#!/bin/bash
# counters.sh OUT: what the GPU's own counters say that one forward and backward pass of four layers
# computes in its tensor cores, a line for each kernel, in OUT/counters.csv.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
timeout "${LIMIT:-120}" ncu --profile-from-start off --nvtx --csv --page raw --print-units base \
    --metrics sm__ops_path_tensor_src_bf16_dst_fp32.sum,sm__ops_path_tensor_src_tf32_dst_fp32.sum,sm__ops_path_tensor_src_fp16.sum \
    --log-file "$1/counters.csv" python3 "$here/counters.py" "${MODEL_CONFIG:-$here/config.json}" "${SEQ_LEN:-4096}" 4
