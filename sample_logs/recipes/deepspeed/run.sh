#!/bin/bash
# run.sh OUT VERSION [CASE...]: the cases of one DeepSpeed version (0.19.8, 0.16.9 or 0.14.5), or
# those named, in OUT/deepspeed-VERSION/<case>/. The venv of that version must be active.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1 version=$2; shift 2
only=" $* "
export DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo TORCH_EXTENSIONS_DIR=$VIRTUAL_ENV/extensions
# Compile the communication op (g++, ninja) now, so that the compiler's lines are not in the log.
python -c 'from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder; ShareMemCommBuilder().load()' > /dev/null 2>&1

# case NAME COMMAND...: stdout alone, or both streams where $BOTH is set.
case_() {
    name=deepspeed-$version/$1; shift
    [[ $only == "  " || $only == *" ${name#*/} "* ]] || return 0
    rm -rf "$out/$name" && mkdir -p "$out/$name" && cd "$out/$name"
    echo "DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 $*" > command.txt
    if [ "${BOTH:-}" ]; then errors=run.log; else errors=stderr.log; fi
    "$@" >> run.log 2>> $errors || tail -n 30 $errors
    echo "$name: $(grep -c 'SamplesPerSec\|samples/sec\|loss' run.log) step lines of $(wc -l < run.log)"
}

deepspeed="deepspeed --num_accelerators 2"
torchrun="python -m torch.distributed.run --rdzv_backend c10d --rdzv_endpoint localhost:0 --nproc_per_node"
# train NAME CONFIG LAUNCHER ARGUMENTS...
train() {
    case_ "$1" $3 "$here/train.py" --deepspeed --deepspeed_config "$here/$2" "${@:4}"
}

case $version in
    0.19.8)
        train zero2-2ranks-bf16-accumulation4 ds_0.19.8.json "$deepspeed" --steps 30 --info --print-loss 5
        train zero2-2ranks-bf16-accumulation4-recompute ds_0.19.8.json "$deepspeed" --steps 30 --info --print-loss 5 --recompute
        train zero1-1rank-fp16-monitors ds_fp16_monitors.json "$torchrun 1" --steps 24 --info
        train zero2-2ranks-killed ds_0.19.8.json "$deepspeed" --steps 30 --info --kill-in-step 18
        case_ pipeline-2ranks-accumulation4 $torchrun 2 "$here/pipeline.py" --deepspeed --deepspeed_config "$here/ds_pipeline.json" --steps 20 --info
        BOTH=yes case_ hf-trainer-2ranks-zero2 $torchrun 2 "$here/hf_trainer.py" "$here/ds_hf_trainer.json" ;;
    0.16.9)
        train zero0-1rank-fp32-breakdown ds_0.16.9.json "$torchrun 1" --steps 12 ;;
    0.14.5)
        train zero1-2ranks-bf16-monitors ds_0.14.5.json "$torchrun 2" --steps 30
        train zero0-1rank-fp32-recompute ds_breakdown.json "$torchrun 1" --steps 12 --recompute ;;
esac
