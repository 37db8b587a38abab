#!/bin/bash
# counters.sh OUT: how many operations the GPU's own counters see in its tensor cores during one
# forward and backward pass of four layers, a line for each kernel, in OUT/counters.csv.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
metric=sm__ops_path_tensor_src_bf16_dst_fp32.sum
timeout "${LIMIT:-600}" ncu --profile-from-start off --nvtx --csv --page raw --print-units base --metrics $metric \
    --log-file "$1/raw.csv" python3 "$here/counters.py" "${MODEL_CONFIG:-$here/config.json}" "${SEQ_LEN:-4096}" 4
# What is kept: the kernels that use tensor cores, in their order. ncu writes units in a second row.
python3 - "$1/raw.csv" $metric > "$1/counters.csv" << 'END'
import csv, sys

path, metric = sys.argv[1:]
rows = csv.DictReader(line for line in open(path) if line.startswith('"'))
out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(["id", "kernel", "operations"])
for row in rows:
    if row["ID"] and (operations := int(float(row[metric].replace(",", "")))):
        out.writerow([row["ID"], row["Kernel Name"].rpartition("/")[2], operations])
END
