"""Megatron-DeepSpeed: iteration lines of its forks (Microsoft, bigscience, ALCF) and the header.

`elapsed time per iteration` is the mean over the log interval and holds everything since the last
line: data, logging, and the evaluation and checkpoint of the iteration before. Older bigscience
runs print milliseconds, later ones seconds; the key says which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from ingest.log_format import MS, Block, EventLine, FactLine, LogFormat, StepLine, Target

TRAINING: Final = "deepspeedai/Megatron-DeepSpeed/megatron/training.py@4efb479"
ARGUMENTS: Final = "deepspeedai/Megatron-DeepSpeed/megatron/arguments.py@4efb479"

COLUMNS: Final[dict[str, Target]] = {
    "step": "step",
    "consumed samples": "consumed_samples",
    "consumed tokens": "consumed_tokens",
    "elapsed time per iteration (ms)": ("elapsed_s", MS),
    "elapsed time per iteration (s)": "elapsed_s",
    "learning rate": "learning_rate",
    "global batch size": "samples",
    "lm loss": "loss",
    "loss scale": "loss_scale",
    "grad norm": "grad_norm",
    "actual seqlen": "sequence_length",
    "curriculum seqlen": "sequence_length",
    "number of skipped iterations": "skipped_steps",
    "samples per second": "logged_samples_per_second",
    "tokens per gpu per second (tgs)": "logged_tgs",
    "tokens per gpu per second(tgs)": "logged_tgs",
    "TFLOPs": "logged_tflops",
}

ALCF_COLUMNS: Final[dict[str, Target]] = {
    "step": "step",
    "consumed_samples": "consumed_samples",
    "consumed_tokens": "consumed_tokens",
    "elapsed_time_per_iteration_ms": ("elapsed_s", MS),
    "learning_rate": "learning_rate",
    "global_batch_size": "samples",
    "lm loss": "loss",
    "loss_scale": "loss_scale",
    "grad_norm": "grad_norm",
    "actual_seqlen": "sequence_length",
    "number_of_skipped_iterations": "skipped_steps",
    "samples_per_second": "logged_samples_per_second",
    "tokens_per_gpu_per_second_tgs": "logged_tgs",
    "TFLOPs": "logged_tflops",
    "[DS]-TFLOPs": "logged_tflops",
}

# Argument -> fact, where the value stands as it is.
SAME: Final[dict[str, str]] = {
    "world_size": "gpus",
    "data_parallel_size": "data_parallel",
    "tensor_model_parallel_size": "tensor_parallel",
    "model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "ds_sequence_parallel_size": "context_parallel",
    "moe_expert_parallel_size": "expert_parallel",
    "seq_length": "seq_len",
    "batch_size": "micro_batch_size",  # until 2021
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "log_interval": "log_interval",
    "train_iters": "total_steps",
}

# What `metrics.model_shapes.from_megatron` and `explain` need of some 330 arguments.
KEPT: Final = re.compile(
    r"num_|hidden_size$|ffn_hidden|kv_channels|seq_length|vocab|swiglu|glu_activation|topk|expert"
    r"|untie|normalization|bias|position|rotary|alibi|recompute|checkpoint_act|use_flash|embed"
    r"|max_position|layernorm|rmsnorm|bf16|fp16|rampup|curriculum|mlp_type"
    r"|reset_attention_mask|random_ltd"
)


def _arguments(lines: Sequence[str]) -> dict[str, str]:
    """The `key .... value` lines of the header; a damaged line is passed over."""
    found = (re.match(r".*?(\w+) \.{2,} (.*)$", line) for line in lines)
    arguments = {match[1]: match[2].strip() for match in found if match}
    facts = {
        fact: arguments[key]
        for key, fact in SAME.items()
        if re.fullmatch(r"\d+", arguments.get(key, ""))
    }
    facts |= {"precision": _precision(arguments), "recompute": _recompute(arguments)}
    if zero := re.match(r"\d", arguments.get("zero_stage", "")):
        facts["zero_stage"] = zero[0]
    if arguments.get("reset_attention_mask") == "True":
        facts["document_mask"] = "true"
    if (drops := arguments.get("random_ltd")) in ("True", "False"):
        facts["token_dropping"] = drops.lower()
    kept = {key: value for key, value in arguments.items() if KEPT.search(key)}
    return facts | {"megatron_arguments": json.dumps(kept)} if "num_layers" in kept else facts


def _precision(arguments: Mapping[str, str]) -> str:
    if arguments.get("bf16") == "True":
        return "bf16"
    return "fp16" if arguments.get("fp16") == "True" else "fp32"


def _recompute(arguments: Mapping[str, str]) -> str:
    """deepspeed_activation_checkpointing alone recomputes nothing."""
    if arguments.get("checkpoint_activations") == "True":
        return "full"
    granularity = arguments.get("recompute_granularity", "None")
    return {"None": "none", "selective": "selective_attention"}.get(granularity, granularity)


MEGATRON_DEEPSPEED: Final = LogFormat(
    name="megatron-deepspeed",
    framework="deepspeed",
    versions="Microsoft 2021-2025, bigscience 2021-2023, ALCF 2024-2025",
    signature=r"(?:^\s*|[^|]\s)iteration[ =]+\d+/ *\d+ \| (?:consumed|elapsed)[ _]",
    looks_like_step=r"(?:^\s*|[^|]\s)iteration[ =]+\d+/ *\d+ \|",
    clock=r"\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3,6})?)\]",
    launch=r"- arguments -",
    evidence=("elapsed", "rate"),
    elapsed_covers="interval",
    rate_covers="interval",
    implies={
        "trainable": ("full", "Megatron-DeepSpeed trains every weight"),
        "packed": ("true", "Megatron's GPT data set fills every sample to seq_length"),
    },
    steps=(
        StepLine(
            anchor="iteration ",
            regex=r"iteration +(?P<step>\d+)/ *(?P<total>\d+) \| (?P<pairs>.*)",
            pair=r"(?P<key>[^|:=]+): *(?P<value>[^|]*?) *(?:\||$)",
            columns=COLUMNS,
            example=" iteration       10/ 9155273 | consumed samples:          480 | consumed "
            "tokens:       983040 | elapsed time per iteration (ms): 2349.1 | learning rate: "
            "2.831E-07 | global batch size:    48 | lm loss: 1.093108E+01 | loss scale: 2048.0 | "
            "actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:  "
            " 0 | samples per second: 20.434 | tokens per gpu per second (tgs): 871.839 | "
            "TFLOPs: 10.37 |",
            printed_by=f"{TRAINING} training_log",
            composed=True,
        ),
        StepLine(
            anchor="iteration=",
            regex=r"iteration= *(?P<step>\d+)/ *(?P<total>\d+) \| (?P<pairs>.*)",
            pair=r"(?P<key>[^|=]+)= *(?P<value>[^|]*?) *(?:\||$)",
            columns=ALCF_COLUMNS,
            example="[2026-11-10 09:43:36,161992][I][megatron/training_log:402:training_log]  "
            "iteration=      10/  136100 | consumed_samples=        7680 | consumed_tokens= "
            "31457280 | elapsed_time_per_iteration_ms=3415.3 | learning_rate=2.0127e-05 | "
            "global_batch_size=  768 | lm loss=12.316531 | loss_scale=1.0 | grad_norm=1.020 | "
            "actual_seqlen= 4096 | number_of_skipped_iterations=  0 | number_of_nan_iterations=  0 "
            "| samples_per_second=224.871 | tokens_per_gpu_per_second_tgs=4797.255 | TFLOPs=53.66 |",
            printed_by="argonne-lcf/Megatron-DeepSpeed/megatron/training_log.py",
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor="validation loss at",
            regex=r"validation loss at iteration (?P<step>\d+)",
            kind="evaluation",
            example=" validation loss at iteration 100 | lm loss value: 7.688264E+00 | lm loss PPL: "
            "2.182582E+03 | ",
            printed_by=f"{TRAINING} evaluate_and_print_results",
            composed=True,
        ),
        EventLine(
            anchor="saving checkpoint at",
            regex=r"saving checkpoint at iteration +(?P<step>\d+)",
            kind="checkpoint",
            example="saving checkpoint at iteration     600 to checkpoints",
            printed_by="deepspeedai/Megatron-DeepSpeed/megatron/checkpointing.py@4efb479",
            composed=True,
        ),
        EventLine(
            anchor="exiting program at",
            regex=r"exiting program at iteration +(?P<step>\d+)",
            kind="end",
            example="[exiting program at iteration 5] datetime: 2026-11-20 10:32:30 ",
            printed_by=TRAINING,
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor="padded vocab",
            regex=r"padded vocab \(size: (?P<vocab_size>\d+)\)",
            example=" > padded vocab (size: 50257) with 175 dummy tokens (new size: 50432)",
            printed_by="deepspeedai/Megatron-DeepSpeed/megatron/tokenizer/tokenizer.py@4efb479",
            composed=True,
        ),
        FactLine(
            anchor="using world size: ",
            regex=r"using world size: (?P<gpus>\d+)(?:, data-parallel-size: (?P<data_parallel>\d+))?"
            r"(?:, sequence-parallel size: (?P<context_parallel>\d+))?"
            r"(?:, tensor-model-parallel size: (?P<tensor_parallel>\d+))?"
            r"(?:, pipeline-model-parallel size: (?P<pipeline_parallel>\d+))?",
            example="using world size: 16, data-parallel-size: 4, sequence-parallel size: 1, "
            "tensor-model-parallel size: 4, pipeline-model-parallel size: 1 ",
            printed_by=ARGUMENTS,
            composed=True,
        ),
    ),
    blocks=(
        Block(
            start=r"- arguments -",
            end=r"- end of arguments -",
            include_end=True,
            read=_arguments,
            example=(
                "------------------------ arguments ------------------------",
                "  num_layers ...................................... 12",
                "  seq_length ...................................... 2048",
                "-------------------- end of arguments ---------------------",
            ),
            printed_by=ARGUMENTS,
        ),
    ),
)
