#!/bin/bash
# run.sh OUT [CASE...]: one Llama of 1.1 B parameters (config.json, the shape of TinyLlama) on one
# GPU with three frameworks, in OUT/<framework>-<version>/<case>/, or the cases named. $TITAN,
# $DEEPSPEED and $XTUNER are folders made by `pip install --target`, beside a python with torch.
set -u
here=$(cd "$(dirname "$0")" && pwd)
recipes=$(dirname "$here")
mkdir -p "$1" && cd "$1" && shift
only=" $* "
export MODEL_CONFIG=${MODEL_CONFIG:-$here/config.json} SEQ_LEN=${SEQ_LEN:-4096} STEPS=${STEPS:-200}
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-8} LOG_RANK=0 TRUTH=truth.json
site_packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
launcher="python3 -m torch.distributed.run --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint localhost:0"

# case_ NAME PACKAGES COMMAND...: both streams in run.log, for all three print to both. Of XTuner's,
# run.log becomes mmengine's own file, which has the year in its stamps and no progress bars.
case_() {
    name=$1 packages=$2; shift 2
    [[ $only == "  " || $only == *" ${name#*/} "* || $only == *" $name "* ]] || return 0
    rm -rf "$name" && mkdir -p "$name" && cd "$name"
    [ -z "${CONFIG_OF:-}" ] || sed "$CONFIG_OF" "$recipes/xtuner/cfg.py" > cfg.py
    echo "PYTHONPATH=$packages MODEL_CONFIG=$MODEL_CONFIG SEQ_LEN=$SEQ_LEN OMP_NUM_THREADS=$OMP_NUM_THREADS $*" > command.txt
    began=$SECONDS
    PYTHONPATH=$packages timeout "${LIMIT:-120}" "$@" > run.log 2>&1 || tail -n 25 run.log
    sed -i "s|$site_packages|site-packages|g" run.log
    echo "$name: $((SECONDS - began)) s, $(wc -l < run.log) lines; $(grep 'step: \|SamplesPerSec\|Iter(train)' run.log | tail -n 1 | cut -c1-250)"
    cd ../..
}

# Torchtitan: synthetic texts, packed; autocast to bf16 with weights of fp32.
[ -d titan-assets ] || PYTHONPATH=$TITAN python3 "$recipes/torchtitan/make_assets.py" titan-assets
titan() {
    case_ "torchtitan-0.2.2/$1" "$TITAN" $launcher --local-ranks-filter 0 --role rank --tee 3 "$recipes/torchtitan/launch.py" \
        --experimental.custom_import shape --model.name llama3 --model.flavor custom --model.hf_assets_path ../../titan-assets/tokenizer \
        --training.dataset c4_test --training.dataset_path ../../titan-assets/corpus --training.seq_len "$SEQ_LEN" --training.local_batch_size 2 \
        --training.steps "$STEPS" --lr_scheduler.warmup_steps 20 --optimizer.lr 3e-4 --metrics.log_freq 10 --metrics.disable_color_printing "${@:2}"
}

# DeepSpeed: ZeRO 1 with weights of bf16, a training script of one's own.
deepspeed() {
    case_ "deepspeed-0.19.8/$1" "$DEEPSPEED" $launcher "$recipes/deepspeed/train.py" --deepspeed --deepspeed_config "$here/ds_bf16.json" \
        --steps "$STEPS" --info --print-loss 10 "${@:2}"
}

# XTuner: Hugging Face's Llama, SDPA, packed; autocast to bf16 with weights of fp32.
[ -d assets ] || PYTHONPATH=$XTUNER python3 "$recipes/xtuner/make_assets.py" assets "${WORDS:-1800}"
[ -d assets/llama ] || PYTHONPATH=$XTUNER python3 "$here/make_llama.py" "$MODEL_CONFIG" assets/llama
xtuner() {
    changes="1,2d; s/tiny_llama/llama/; s/^max_length = 256/max_length = $SEQ_LEN/; s/ OptimWrapper\$/ AmpOptimWrapper/
        s/type=OptimWrapper,/type=AmpOptimWrapper, dtype=\"bfloat16\",/; s/lr=1e-3/lr=3e-4/; s/=80/=$STEPS/; ${*:2}"
    CONFIG_OF=$changes case_ "xtuner-0.2.0/$1" "$XTUNER" python3 "$recipes/xtuner/launch.py" cfg.py --work-dir work
    # mmengine prints torch's build settings: the compiler keeps its name and loses its folder.
    for log in "xtuner-0.2.0/$1"/*/*/*.log; do
        [ ! -e "$log" ] || sed 's|CXX_COMPILER=/[^,]*/|CXX_COMPILER=|' "$log" > "xtuner-0.2.0/$1/run.log"
    done
}

# Three starts of each, by turns: how much one differs from another.
for start in "" -start2 -start3; do
    deepspeed "bf16$start"
    titan "bf16$start" --activation_checkpoint.mode none
    xtuner "bf16$start"
done
titan bf16-recompute-selective
titan bf16-recompute --activation_checkpoint.mode full
deepspeed bf16-recompute --recompute
xtuner bf16-recompute "s/use_activation_checkpointing=False/use_activation_checkpointing=True/"
titan bf16-recompute-selective-compile --compile.enable
titan fp8-recompute-selective-compile --compile.enable --model.converters quantize.linear.float8
titan fp8-but-lm_head-recompute-selective-compile --compile.enable --model.converters quantize.linear.float8 \
    --quantize.linear.float8.filter_fqns output
