#!/bin/bash
# run.sh OUT VERSION: the case of one DeepSpeed version (0.19.8 or 0.16.9), in
# OUT/deepspeed-VERSION/<case>/. The venv of that version must be active.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1 version=$2
export DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo TORCH_EXTENSIONS_DIR=$VIRTUAL_ENV/extensions
# Compile the communication op (g++, ninja) now, so that the compiler's lines are not in the log.
python -c 'from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load()' > /dev/null 2>&1

case $version in
    0.19.8)
        name=zero2-2ranks-bf16-accumulation4
        launcher="deepspeed --num_accelerators 2"
        arguments="--steps 30 --info --print-loss 5" ;;
    0.16.9)
        name=zero0-1rank-fp32-breakdown
        launcher="python -m torch.distributed.run --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint localhost:0"
        arguments="--steps 12" ;;
esac
rm -rf "$out/deepspeed-$version/$name" && mkdir -p "$out/deepspeed-$version/$name" && cd "$out/deepspeed-$version/$name"
command="$launcher $here/train.py --deepspeed --deepspeed_config $here/ds_$version.json $arguments"
echo "DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 $command" > command.txt
$command > run.log 2> stderr.log || tail -n 30 stderr.log
echo "$name: $(grep -c SamplesPerSec run.log) throughput lines of $(wc -l < run.log)"
