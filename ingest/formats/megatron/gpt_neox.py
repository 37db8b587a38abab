"""GPT-NeoX (EleutherAI, on DeeperSpeed or DeepSpeed): iteration line, arguments.

`elapsed time per iteration` is the mean over the log interval, as in Megatron-DeepSpeed, and
`samples/sec` is train_batch_size over it. `approx flops per GPU` has the unit that keeps the number
below 1000. Its formula changed twice: with the input embedding and five times the attention until
2023-09-27, without logits until 2023-12-06, then Megatron-DeepSpeed's with recomputation. `MFU` and
`HFU` are printed if the user gave a peak, since 2024-12.

The engine below prints step lines too: they belong to a companion format.

Event files are Megatron's under other names, without arguments: `runtime/...` at log lines alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..deepspeed.phases import engine_timers, micro_step_timers
from ..spec import MS, PERCENT, ColumnTarget, EventLine, FactBlock, FactLine, LogFormat, StepLine
from .console import EVENT_LINES, FACT_LINES, FIELD_PAIR, MEGATRON_STAMP, stated_facts
from .phases import MEGATRON_TIMERS
from .tensorboard import ITERATION_TIME, LM_LOSS, make_event_format, make_step_line

LOGGING_SOURCE: Final = "EleutherAI/gpt-neox/megatron/logging.py@018b8a9 training_log"
NEOX_ARGUMENTS_SOURCE: Final = "EleutherAI/gpt-neox/megatron/neox_arguments/arguments.py@9c645dd"

NEOX_COLUMNS: Final[dict[str, ColumnTarget]] = {
    "step": "step",
    "rate": "logged_samples_per_second",
    "elapsed time per iteration (ms)": ("elapsed_s", MS),
    "learning rate": "learning_rate",
    "lm_loss": "loss",
    "loss scale": "loss_scale",
    "number of skipped iterations": "skipped_steps",
    "MFU": ("logged_mfu", PERCENT),
}

TERAFLOPS_FACTORS: Final = {
    "": 1e-12,
    "KFLOPS": 1e-9,
    "MFLOPS": 1e-6,
    "GFLOPS": 1e-3,
    "TFLOPS": 1.0,
    "PFLOPS": 1e3,
    "EFLOPS": 1e6,
    "ZFLOPS": 1e9,
}

# Argument -> fact with the same value.
NEOX_ARGUMENT_FACTS: Final[dict[str, str]] = {
    "global_num_gpus": "gpus",
    "model_parallel_size": "tensor_parallel",
    "pipe_parallel_size": "pipeline_parallel",
    "context_parallel_size": "context_parallel",
    "seq_length": "seq_len",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "train_batch_size": "global_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation",
    "log_interval": "log_interval",
    "train_iters": "total_steps",
    "zero_stage": "zero_stage",
}

PRECISION_NAMES: Final = {"bfloat16": "bf16", "fp16": "fp16", "fp32": "fp32"}
TRANSFORMER_ENGINE_KEYS: Final = (
    "te_columnparallel",
    "te_rowparallel",
    "te_layernorm_mlp",
    "te_mha",
)
"""Modules that multiply in FP8; other arguments with this prefix only configure them."""
GATED_ACTIVATIONS: Final = ("geglu", "swiglu", "reglu", "bilinear", "glu")
"""Activations whose FFN width depends on the version; since 2024-09 they replace mlp_type too."""


def _arguments(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of the header's `key .... value....updated` lines.

    Damaged lines are skipped.
    """
    pattern = re.compile(r".*?\b(\w+) (?:\.+ )? *(.*?)\.*(?:updated|default)\s*$")
    matches = (pattern.match(line) for line in lines)
    arguments = {match[1]: match[2].strip() for match in matches if match}
    facts = stated_facts(arguments, NEOX_ARGUMENT_FACTS)
    if _on(arguments, "curriculum_learning"):
        facts.pop("seq_len", None)  # lengths vary by step, and no line prints them
    if arguments.get("precision") in PRECISION_NAMES:
        facts["precision"] = PRECISION_NAMES[arguments["precision"]]
    if modules := [key for key in TRANSFORMER_ENGINE_KEYS if _on(arguments, key)]:
        facts["quantization"] = f"Transformer Engine: {', '.join(modules)}"
    if arguments.get("checkpoint_activations") in ("True", "False"):
        facts["recompute"] = "full" if _on(arguments, "checkpoint_activations") else "none"
    if arguments.get("pack_impl", "packed") != "packed":
        facts["packed"] = "false"
    if _on(arguments, "reset_attention_mask"):
        facts["document_mask"] = "true"
    if re.fullmatch(r"\d+(?:\.\d+)?", arguments.get("peak_theoretical_tflops", "")):
        facts["logged_peak_flops"] = repr(float(arguments["peak_theoretical_tflops"]) * 1e12)
    shape = _megatron(arguments)
    return facts | ({"megatron_arguments": json.dumps(shape)} if shape else {})


def _on(arguments: Mapping[str, str], key: str) -> bool:
    """Return whether an argument is set; a dict of settings is, unless disabled."""
    value = arguments.get(key, "None")
    return value not in ("None", "False", "", "{}") and "'enabled': False" not in value


def _megatron(arguments: Mapping[str, str]) -> dict[str, str] | None:
    """Return the model in Megatron-DeepSpeed's arguments.

    None if they cannot express it. Llama's FFN (`mlp_type`, until 2024-09) is 8/3 of the hidden
    size wide, in multiples of 256; the plain FFN is four times as wide as the hidden size.
    """
    numbers = ("hidden_size", "num_layers", "num_attention_heads")
    if not all(arguments.get(key, "").isdigit() for key in numbers) or not _decoder_only(arguments):
        return None
    hidden, llama = int(arguments["hidden_size"]), arguments.get("mlp_type") == "llama"
    given = arguments.get("intermediate_size", "None")
    width = 256 * -(-int(2 * hidden * 4 / 3) // 256) if llama else 4 * hidden
    if given.isdigit() and llama:
        width = int(given)
    bias = arguments.get("use_bias_in_attn_linear", "True") == "True"
    ffn_bias = not llama and arguments.get("use_bias_in_mlp", "True") == "True"
    if (given.isdigit() and int(given) != width) or bias != ffn_bias:  # Megatron has one flag
        return None
    names = (*numbers, "max_position_embeddings")
    kept = {key: arguments[key] for key in names if key in arguments}
    if arguments.get("sliding_window_width", "None") != "None":
        kept["window_size"] = arguments["sliding_window_width"]
    if arguments.get("num_kv_heads", "None").isdigit():
        kept["num_key_value_heads"] = arguments["num_kv_heads"]
    position = arguments.get("pos_emb", "learned").replace("learned", "absolute")
    return kept | {
        "ffn_hidden_size": str(width),
        "swiglu": str(llama),
        "add_bias_linear": str(bias),
        "normalization": arguments.get("norm", "layernorm"),
        "position_embedding_type": position,
        "untie_embeddings_and_output_weights": arguments.get("no_weight_tying", "False"),
    }


def _decoder_only(arguments: Mapping[str, str]) -> bool:
    """Return whether the model is dense and causal, and trained on the next token."""
    attention = set(re.findall(r"'(\w+)'", arguments.get("attention_config", "")))
    experts = arguments.get("moe_num_experts", arguments.get("num_experts", "1"))
    return (
        attention <= {"global", "flash"}
        and experts in ("1", "None")
        and arguments.get("activation", "gelu") not in GATED_ACTIVATIONS
        and arguments.get("mlp_type", "regular") in ("regular", "llama")
        and arguments.get("norm", "layernorm") in ("layernorm", "rmsnorm")
        and arguments.get("train_impl", "normal") in ("normal", "sft")
        and not _on(arguments, "soft_prompt_tuning")
    )


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill logged_tflops from `190.4TFLOPS` or `1.2PFLOPS`: the unit is in the value."""
    value, unit = re.split(r"(?=[A-Z]|$)", printed.get("approx flops per GPU", ""), maxsplit=1)
    if value and unit in TERAFLOPS_FACTORS:
        row["logged_tflops"] = float(value) * TERAFLOPS_FACTORS[unit]


GPT_NEOX: Final = LogFormat(
    name="gpt-neox",
    phase_timers=(*engine_timers(), *MEGATRON_TIMERS, *micro_step_timers()),
    framework="deepspeed",
    versions="2021-2025",
    signature=r"samples/sec: [\d.]+ \| iteration +\d+ */ *\d+ \|",
    looks_like_step=r"samples/sec: \S+ \| iteration +\d+ */ *\d+",
    clock=MEGATRON_STAMP,
    launch=r"NeoXArgs\.from_ymls\(\)|- arguments -",
    evidence=("elapsed", "rate"),
    elapsed_covers="interval",
    rate_covers="interval",
    complete=_complete,
    implies={
        "trainable": ("full", "GPT-NeoX trains every weight"),
        "packed": ("true", "GPT-NeoX's data set fills every sample to seq_length"),
    },
    steps=(
        StepLine(
            anchor="samples/sec: ",
            regex=r"samples/sec: (?P<rate>[\d.]+|nan|inf) \| iteration +(?P<step>\d+) */ *(?P<total>\d+) "
            r"\| (?P<pairs>.*)",
            pair=FIELD_PAIR,
            columns=NEOX_COLUMNS,
            facts={"total": "total_steps"},
            example=" samples/sec: 5.214 | iteration       20/    9000 | elapsed time per iteration "
            "(ms): 12274.6 | learning rate: 2.151E-06 | approx flops per GPU: 188.2TFLOPS | lm_loss: "
            "6.139597E-01 | loss scale: 4096.0 | number of skipped iterations:   0 | number of nan "
            "iterations:   0 | MFU: 41.23% | HFU: 54.97% |",
            printed_by=LOGGING_SOURCE,
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor="is about to be saved!",
            regex=r"Checkpoint global_step(?P<step>\d+) is about to be saved!",
            kind="checkpoint",
            example="[2026-11-20 10:20:36,748] [INFO] [logging.py:96:log_dist] [Rank 0] [Torch] "
            "Checkpoint global_step10 is about to be saved!",
            printed_by="deepspeedai/DeepSpeed/deepspeed/runtime/checkpoint_engine/"
            "torch_checkpoint_engine.py@edaa722",
            composed=True,
        ),
        EventLine(
            anchor="Loading checkpoint and starting from",
            regex=r"Loading checkpoint and starting from iteration +(?P<step>\d+)",
            kind="load",
            example="Loading checkpoint and starting from iteration 4000",
            printed_by="EleutherAI/gpt-neox/megatron/training.py@018b8a9 setup_model_and_optimizer",
            composed=True,
        ),
        *EVENT_LINES,
    ),
    facts=(
        *FACT_LINES,
        FactLine(
            anchor="NeoXArgs.calculate_derived()",
            regex=r"NeoXArgs\.calculate_derived\(\) Total number of GPUs determined to be: "
            r"(?P<gpus>\d+)",
            example="INFO:root:NeoXArgs.calculate_derived() Total number of GPUs determined to be: 16",
            printed_by=f"{NEOX_ARGUMENTS_SOURCE} calculate_derived",
            composed=True,
        ),
        FactLine(
            anchor="NeoXArgs.configure_distributed_args()",
            regex=r"NeoXArgs\.configure_distributed_args\(\) using world size: \d+ and "
            r"model-parallel size: (?P<tensor_parallel>\d+)",  # the launcher's own world is 1
            example="NeoXArgs.configure_distributed_args() using world size: 16 and model-parallel "
            "size: 2 ",
            printed_by=f"{NEOX_ARGUMENTS_SOURCE} configure_distributed_args",
            composed=True,
        ),
        FactLine(
            # Padded, with norms once per tensor-parallel rank: not the model's own count.
            anchor="> total params: ",
            regex=r"> total params: [\d,]+",
            example=" > total params: 162,322,944",
            printed_by="EleutherAI/gpt-neox/megatron/utils.py@018b8a9 get_total_params",
            composed=True,
        ),
    ),
    blocks=(
        FactBlock(
            start=r"- arguments -",
            end=r"- end of arguments -",
            include_end=True,
            read=_arguments,
            example=(
                "-------------------- arguments --------------------",
                "  num_layers ...................... 6...........................updated",
                "  seq_length ...................... 2048........................updated",
                "  deepspeed_activation_checkpointing  True......................default",
                "---------------- end of arguments ----------------",
            ),
            printed_by=NEOX_ARGUMENTS_SOURCE,
        ),
    ),
)

# -- TensorBoard ---------------------------------------------------------------------------

NEOX_TAGS: Final[Mapping[str, str]] = {
    "train/lm_loss": LM_LOSS,
    "train/learning_rate": "learning-rate",
    "train/loss_scale": "loss-scale",
    "runtime/iteration_time": ITERATION_TIME,
    "runtime/samples_per_sec": "samples/sec",
    "runtime/flops_per_sec_per_gpu": "flops per GPU",
}
NEOX_EVENT_COLUMNS: Final[dict[str, ColumnTarget]] = {
    "step": "step",
    "mean loss": "loss",
    "learning-rate": "learning_rate",
    "loss-scale": "loss_scale",
    ITERATION_TIME: "elapsed_s",
    "samples/sec": "logged_samples_per_second",
    "flops per GPU": ("logged_tflops", 1e-12),
}

GPT_NEOX_TENSORBOARD: Final = make_event_format(
    GPT_NEOX,
    "event files of 2021-2025",
    r"runtime/(?:iteration_time|samples_per_sec|flops_per_sec_per_gpu)",
    make_step_line(
        GPT_NEOX,
        NEOX_EVENT_COLUMNS,
        '{"step": 20, "learning-rate": 2.151e-06, "samples/sec": 5.214, "iteration-time": 12.2746, '
        '"flops per GPU": 188200000000000.0}',
        LOGGING_SOURCE,
    ),
    NEOX_TAGS,
)
