#!/bin/bash
# run.sh OUT [CASE...]: the torchtitan cases, or those named, in OUT/torchtitan-<version>/<case>/.
# The venv must be active; $TITAN_022 is a folder made by
# pip install --no-deps --target $TITAN_022 torchtitan==0.2.2
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1" && shift
only=" $* "
[ -d assets ] || python "$here/make_assets.py" assets
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 GLOO_SOCKET_IFNAME=lo LOG_RANK=0 TRUTH=truth.json

# case NAME RANKS ARGUMENTS...; $THREADS, 2 over all ranks: 1 is steadier beside other work.
case_() {
    name=$1 ranks=$2; shift 2
    [[ $only == "  " || $only == *" ${name#*/} "* ]] || return 0
    rm -rf "$name" && mkdir -p "$name" && cd "$name"
    export OMP_NUM_THREADS=$((${THREADS:-2} / ranks))
    command="torchrun --nproc_per_node $ranks --rdzv_backend c10d --rdzv_endpoint localhost:0 --local-ranks-filter 0 --role rank --tee 3 $here/launch.py $*"
    echo "${CRASH_IN_STEP:+CRASH_IN_STEP=$CRASH_IN_STEP }LOG_RANK=0 OMP_NUM_THREADS=$OMP_NUM_THREADS $command" > command.txt
    $command > run.log 2>&1 || tail -n 30 run.log
    echo "$name: $(grep -c 'step: ' run.log) step lines of $(wc -l < run.log)"
    cd ../..
}

# model MODULE CONFIG: what all runs of 0.3.0 share.
model() {
    echo "--module $1 --config $2 --hf-assets-path ../../assets/tokenizer --dataloader.dataset-path ../../assets/corpus --dump-folder outputs --training.disable-cuda-graphs --training.seq-len 256 --training.local-batch-size 2"
}
llama3=$(model llama3 llama3_debugmodel)
plain="--metrics.disable-color-printing"
# The default spmd_types backend wants a torch nightly; full_dtensor logs the loss twice too large on two ranks.
two="--parallelism.spmd-backend partial_dtensor"

case_ torchtitan-0.3.0/llama3-1rank-color 1 $llama3 --training.steps 20 --metrics.log-freq 1
case_ torchtitan-0.3.0/llama3-2ranks-fsdp 2 $llama3 --training.steps 40 --metrics.log-freq 10 $two
THREADS=1 case_ torchtitan-0.3.0/llama3-1rank-recompute-full 1 $llama3 --training.steps 24 --metrics.log-freq 2 $plain activation-checkpoint:full
THREADS=1 case_ torchtitan-0.3.0/llama3-1rank-recompute-none 1 $llama3 --training.steps 24 --metrics.log-freq 2 $plain activation-checkpoint:none
case_ torchtitan-0.3.0/deepseek-v3-1rank-moe 1 $(model deepseek_v3 deepseek_v3_debugmodel) --training.steps 20 --metrics.log-freq 2 $plain
case_ torchtitan-0.3.0/llama3-2ranks-replicas-accumulation2 2 $llama3 --training.steps 20 --metrics.log-freq 2 $plain $two --training.global-batch-size 8 --parallelism.data-parallel-replicate-degree 2 --parallelism.data-parallel-shard-degree 1
case_ torchtitan-0.3.0/llama3-1rank-companions 1 $llama3 --training.steps 12 --metrics.log-freq 1 $plain --metrics.enable-tensorboard
# Beside the console: an event file, and 20 KB of JSON a step, which are kept compressed.
gzip -9n torchtitan-0.3.0/llama3-1rank-companions/outputs/structured_logs/*.jsonl 2> /dev/null || true

# One training in two launches: the first fails in step 14, behind its checkpoint of step 10; the
# second starts from there, in the first one's output folder.
checkpoints="--training.steps 20 --metrics.log-freq 1 $plain --checkpoint.enable --checkpoint.interval 10"
CRASH_IN_STEP=14 case_ torchtitan-0.3.0/llama3-1rank-crashed 1 $llama3 $checkpoints
case_ torchtitan-0.3.0/llama3-1rank-resumed 1 ${llama3/outputs/../llama3-1rank-crashed/outputs} $checkpoints

export PYTHONPATH=$TITAN_022
job="--job.config_file $here/job_0.2.2.toml"
case_ torchtitan-0.2.2/llama3-2ranks-fsdp-plain 2 $job --metrics.log_freq 10 --metrics.disable_color_printing
THREADS=1 case_ torchtitan-0.2.2/llama3-1rank-recompute-full-color 1 $job --metrics.log_freq 2 --training.steps 24 --activation_checkpoint.mode full
