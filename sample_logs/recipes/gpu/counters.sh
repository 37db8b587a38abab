#!/bin/bash
# counters.sh OUT [CASE...]: how many operations the GPU's own counters see in its tensor cores
# during a forward and a backward pass of a few layers, a line for each kernel, in OUT/CASE.csv,
# and the tokens that each expert was given in OUT/CASE-experts.csv. One process for each case.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1" && shift
metric=sm__ops_path_tensor_src_bf16_dst_fp32.sum
# What is counted: names of kernels that multiply matrices; others run as they do without ncu.
names='regex:nvjet|gemm|cutlass|cudnn|flash|fmha|device_kernel|Kernel|grouped|sm80|sm90|ampere|mma'
for case in ${*:-known llama llama-recompute llama-lora qwen3_moe deepseek_v3}; do
    model=${case%%-*} layers=2
    case $case in
        known) model=llama how=known ;;
        llama) how=plain layers=4 ;;
        *-*) how=${case#*-} ;;
        *) how=plain ;;
    esac
    config=$here/$model.json
    [ -e "$config" ] || config=$here/config.json
    began=$SECONDS
    timeout "${LIMIT:-600}" ncu --profile-from-start off --csv --page raw --print-units base --metrics $metric \
        --kernel-name "$names" --log-file "$case.raw" python3 "$here/counters.py" "$config" "${SEQ_LEN:-4096}" $layers $how \
        > "$case-experts.csv" 2> "$case.err" || tail -n 5 "$case.err"
    [ -s "$case-experts.csv" ] || rm "$case-experts.csv"
    # What is kept: the kernels that use tensor cores, in their order. ncu writes units in a second row.
    python3 - "$case.raw" $metric > "$case.csv" << 'END'
import csv, sys

path, metric = sys.argv[1:]
rows = csv.DictReader(line for line in open(path) if line.startswith('"'))
out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(["id", "kernel", "operations"])
for row in rows:
    if row["ID"] and (operations := int(float(row[metric].replace(",", "")))):
        out.writerow([row["ID"], row["Kernel Name"].rpartition("/")[2].partition("<")[0], operations])
END
    echo "$case: $((SECONDS - began)) s, $(($(wc -l < "$case.csv") - 1)) kernels"
done
