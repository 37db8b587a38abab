#!/bin/bash
# run.sh OUT [CASE...]: the XTuner cases, or those named, in OUT/xtuner-<version>/<case>/. The venv
# must be active; $XTUNER_0111 is a folder made by
# pip install --no-deps --target $XTUNER_0111 xtuner==0.1.11
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/stubs HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
mkdir -p "$1" && cd "$1" && shift
only=" $* "
[ -d assets ] || python "$here/make_assets.py" assets

# case NAME RANKS CHANGES...: changes of cfg.py as for sed. The log is what $LOG says: mmengine's own
# file (file), which has the year in its time stamps, or the screen, which has not.
case_() {
    name=$1 ranks=$2; shift 2
    [[ $only == "  " || $only == *" ${name#*/} "* ]] || return 0
    rm -rf "$name" && mkdir -p "$name" && cd "$name"
    sed "1,2d; $*" "$here/cfg.py" > cfg.py
    command="python $here/launch.py cfg.py --work-dir work"
    if [ "$ranks" != 1 ]; then
        command="torchrun --nproc_per_node $ranks --rdzv_backend c10d --rdzv_endpoint localhost:0 ${command#python } --launcher pytorch"
    fi
    echo "OMP_NUM_THREADS=1 $command" > command.txt
    $command > stdout.log 2> stderr.log || tail -n 30 stderr.log
    if [ "$LOG" = file ]; then mv work/*/*.log run.log; else mv stdout.log run.log; fi
    # mmengine prints torch's build settings: the compiler keeps its name and loses its folder.
    sed -i 's|CXX_COMPILER=/[^,]*/|CXX_COMPILER=|' run.log
    echo "$name: $(grep -c 'Iter(train)' run.log) step lines of $(wc -l < run.log)"
    cd ../..
}

accumulate="s/^accumulative_counts = 1/accumulative_counts = 4/"
qwen2="s/tiny_llama/tiny_qwen2/"
recompute="s/use_activation_checkpointing=False/use_activation_checkpointing=True/"
# The figures of each line also as JSON, in work/<start>/vis_data/scalars.json.
json="s/^visualizer = None/visualizer = dict(type='Visualizer', vis_backends=[dict(type='LocalVisBackend')])/"
tensorboard="${json/Local/Tensorboard}"
gloo="\$a env_cfg = dict(dist_cfg=dict(backend='gloo'))"

LOG=file case_ xtuner-0.2.0/llama-1rank-fp32 1
LOG=screen case_ xtuner-0.2.0/qwen2-1rank-accumulation4 1 "$qwen2; $accumulate"
LOG=file case_ xtuner-0.2.0/llama-1rank-recompute-json 1 "$recompute; $json"
LOG=file case_ xtuner-0.2.0/llama-2ranks 2 "$gloo"
LOG=screen case_ xtuner-0.2.0/qwen2-1rank-tensorboard 1 "$qwen2; $tensorboard"
# 0.1.11 has neither a loop of its own nor attention over variable lengths; its Llama wants older transformers.
older="/import TrainLoop/d; s/type=TrainLoop/by_epoch=False/; /^ *use_varlen_attn=/d; s/, use_varlen_attn=False//"
export PYTHONPATH=$PYTHONPATH:$XTUNER_0111
LOG=screen case_ xtuner-0.1.11/qwen2-1rank-json 1 "$qwen2; $older; $json"
