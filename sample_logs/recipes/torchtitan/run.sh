#!/bin/bash
# run.sh OUT: the torchtitan cases, in OUT/torchtitan-<version>/<case>/. The venv must be active;
# $TITAN_022 is a folder made by pip install --no-deps --target $TITAN_022 torchtitan==0.2.2
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
[ -d assets ] || python "$here/make_assets.py" assets
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 GLOO_SOCKET_IFNAME=lo LOG_RANK=0 TRUTH=truth.json

# case NAME RANKS ARGUMENTS...
case_() {
    name=$1 ranks=$2; shift 2
    rm -rf "$name" && mkdir -p "$name" && cd "$name"
    export OMP_NUM_THREADS=$((2 / ranks))
    command="torchrun --nproc_per_node $ranks --rdzv_backend c10d --rdzv_endpoint localhost:0 --local-ranks-filter 0 --role rank --tee 3 $here/launch.py $*"
    echo "LOG_RANK=0 OMP_NUM_THREADS=$OMP_NUM_THREADS $command" > command.txt
    $command > run.log 2>&1 || tail -n 30 run.log
    echo "$name: $(grep -c 'step: ' run.log) step lines of $(wc -l < run.log)"
    cd ../..
}

common="--module llama3 --config llama3_debugmodel --hf-assets-path ../../assets/tokenizer --dataloader.dataset-path ../../assets/corpus --dump-folder outputs --training.disable-cuda-graphs --training.seq-len 256 --training.local-batch-size 2"
case_ torchtitan-0.3.0/llama3-1rank-color 1 $common --training.steps 20 --metrics.log-freq 1
# The default spmd_types backend wants a torch nightly; full_dtensor logs the loss twice too large on two ranks.
case_ torchtitan-0.3.0/llama3-2ranks-fsdp 2 $common --training.steps 40 --metrics.log-freq 10 --parallelism.spmd-backend partial_dtensor

export PYTHONPATH=$TITAN_022
case_ torchtitan-0.2.2/llama3-2ranks-fsdp-plain 2 --job.config_file "$here/job_0.2.2.toml" --metrics.log_freq 10 --metrics.disable_color_printing
