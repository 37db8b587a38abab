#!/bin/bash
# run.sh OUT: the XTuner 0.2.0 cases, in OUT/xtuner-0.2.0/<case>/. The venv must be active.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/stubs HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 OMP_NUM_THREADS=1
mkdir -p "$1" && cd "$1"
[ -d assets ] || python "$here/make_assets.py" assets

# case NAME MODEL ACCUMULATION
case_() {
    rm -rf "xtuner-0.2.0/$1" && mkdir -p "xtuner-0.2.0/$1" && cd "xtuner-0.2.0/$1"
    sed "1,2d; s/tiny_llama/$2/; s/^accumulative_counts = 1/accumulative_counts = $3/" "$here/cfg.py" > cfg.py
    command="python $here/launch.py cfg.py --work-dir work"
    echo "OMP_NUM_THREADS=1 $command" > command.txt
    $command > stdout.log 2> stderr.log || tail -n 30 stderr.log
    echo "$1: $(grep -c 'Iter(train)' stdout.log) step lines of $(wc -l < stdout.log)"
    cd ../..
}

case_ llama-1rank-fp32 tiny_llama 1
case_ qwen2-1rank-accumulation4 tiny_qwen2 4
# Two forms of the same lines: mmengine's own file has the year in its time stamps, the screen does not.
(cd xtuner-0.2.0/llama-1rank-fp32 && mv work/*/*.log run.log)
(cd xtuner-0.2.0/qwen2-1rank-accumulation4 && mv stdout.log run.log)
# mmengine prints torch's build settings: the compiler keeps its name and loses its folder.
sed -i 's|CXX_COMPILER=/[^,]*/|CXX_COMPILER=|' xtuner-0.2.0/*/run.log
