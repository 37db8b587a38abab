"""Megatron-DeepSpeed: iteration lines and header of its forks.

Forks of Microsoft, bigscience and ALCF. `elapsed time per iteration` is the mean over the log
interval and includes everything since the last line: data, logging, and the evaluation and
checkpoint of the iteration before. Older bigscience runs print milliseconds, later ones seconds;
the key shows the unit. `global batch size` is the size at the print; in a ramp-up the differences
of `consumed samples` give the earlier sizes. A loss not above 0, and so NaN too, is not printed.

Claims stay as printed. bigscience's `samples per second` is a thousandth of the rate from
2021-12-06 to 2022-01-27, its `TFLOPs` a thousand times too high until 2022-01-05. ALCF prints two
figures since 2024-06: `[DS]-TFLOPs` (later `[DS]TFLOPs`) by Microsoft's formula, stored in the
column, and `[LM]-TFLOPs` by its own, in `extra`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..deepspeed.phases import engine_timers, micro_step_timers
from ..hugging_face.swift_lines import MEGATRON_SWIFT_BLOCK
from ..launch_commands import joined_command, options_of, world_size
from ..software_lines import SOFTWARE_LINES
from ..spec import (
    GIB,
    MS,
    PERCENT,
    ColumnTarget,
    EventLine,
    FactBlock,
    FactLine,
    LogFormat,
    StepLine,
)
from .phases import MEGATRON_TIMERS

TRAINING_SOURCE: Final = "deepspeedai/Megatron-DeepSpeed/megatron/training.py@4efb479"
ARGUMENTS_SOURCE: Final = "deepspeedai/Megatron-DeepSpeed/megatron/arguments.py@4efb479"
CHECKPOINTING_SOURCE: Final = "deepspeedai/Megatron-DeepSpeed/megatron/checkpointing.py@4efb479"
TIMERS_SOURCE: Final = "deepspeedai/Megatron-DeepSpeed/megatron/timers.py@4efb479"
FIELD_END: Final = r"(?=\|)"
"""Follows a field. A field without an end may be half a number, if a terminal or `cut` dropped the
rest of the line: `elapsed time per iteration (ms): 12` of 1234.5.
"""
FIELD_VALUE: Final = r"[^|]{0,200}"
"""Value of a field, in bounded length: a regex searches all of it for the end."""
FIELD_PAIR: Final = rf"(?<![^|:=])(?P<key>[^|:=]+): *(?P<value>{FIELD_VALUE}){FIELD_END}"
MEGATRON_NUMBER: Final = r"[-+]?(?:\d+\.?\d*(?:[Ee][-+]\d+)?|nan|inf)"

MEGATRON_COLUMNS: Final[dict[str, ColumnTarget]] = {
    "step": "step",
    "consumed samples": "consumed_samples",
    "consumed tokens": "consumed_tokens",
    "elapsed time per iteration (ms)": ("elapsed_s", MS),
    "elapsed time per iteration(ms)": ("elapsed_s", MS),
    "elapsed time per iteration (s)": "elapsed_s",
    "learning rate": "learning_rate",
    "global batch size": "samples",
    "lm loss": "loss",
    "lm-loss": "loss",  # under DeepSpeed's pipeline until 2021-08
    "lm_loss": "loss",
    "loss scale": "loss_scale",
    "grad norm": "grad_norm",
    "actual seqlen": "sequence_length",
    "actual seq length": "sequence_length",
    "curriculum seqlen": "sequence_length",
    "number of skipped iterations": "skipped_steps",
    "samples per second": "logged_samples_per_second",
    "tokens per gpu per second (tgs)": "logged_tgs",
    "tokens per gpu per second(tgs)": "logged_tgs",
    "tokens-per-second-per-gpu": "logged_tgs",
    "TFLOPs": "logged_tflops",
}

ALCF_COLUMNS: Final[dict[str, ColumnTarget]] = {
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
    "[DS]TFLOPs": "logged_tflops",
}

# Argument -> fact with the same value.
ARGUMENT_FACTS: Final[dict[str, str]] = {
    "world_size": "gpus",
    "data_parallel_size": "data_parallel",
    "tensor_model_parallel_size": "tensor_parallel",
    "model_parallel_size": "tensor_parallel",
    "pipe_parallel_size": "pipeline_parallel",  # until 2021
    "pipeline_model_parallel_size": "pipeline_parallel",
    "context_parallel_size": "context_parallel",  # Megatron-LM's
    "ds_sequence_parallel_size": "context_parallel",
    "expert_model_parallel_size": "expert_parallel",  # Megatron-LM's
    "moe_expert_parallel_size": "expert_parallel",
    "seq_length": "seq_len",
    "batch_size": "micro_batch_size",  # until 2021
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "log_interval": "log_interval",
    "train_iters": "total_steps",
}

# Of some 330 arguments, those for `metrics.formula.model_shapes.from_megatron` and `explain`.
MODEL_ARGUMENTS: Final = re.compile(
    r"num_|hidden_size$|ffn_hidden|kv_channels|seq_length|vocab|swiglu|glu_activation|topk|expert"
    r"|untie|normalization|bias|position|rotary|alibi|recompute|checkpoint_act|use_flash|embed"
    r"|max_position|layernorm|rmsnorm|bf16|fp16|rampup|curriculum|mlp_type"
    r"|reset_attention_mask|random_ltd|group_query|multi_latent|window_size"
    r"|hybrid|linear_attention|attention_variant|output_gate|heterogeneous|moe_latent|^spec$"
)
EXTRA_MODEL_ARGUMENTS: Final = ("kd", "retro_add_retriever")
"""Arguments for another model next to the trained one: a teacher, a retriever."""
BERT_TOKENIZER_PREFIX: Final = "BertWordPiece"
"""Prefix of tokenizer names that pretrain_bert.py and pretrain_t5.py accept."""


DEEPSPEED_ARGUMENTS: Final = ("deepspeed", "deepspeed_config", "zero_stage", "deepscale")
"""Arguments of every fork that can train on DeepSpeed; NVIDIA's Megatron-LM has none of them."""


def _arguments(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of the header's `key .... value` lines."""
    arguments = _dotted(lines)
    on_deepspeed = any(name in arguments for name in DEEPSPEED_ARGUMENTS)
    return facts_of_arguments(arguments) | {
        "engine": "deepspeed" if on_deepspeed else "megatron-lm"
    }


def _dotted(lines: Sequence[str]) -> dict[str, str]:
    """Return the values of `key .... value` lines by name; skip damaged lines."""
    matches = (re.match(r".*?(\w+) \.{2,} (.*)$", line) for line in lines)
    return {match[1]: match[2].strip() for match in matches if match}


def facts_of_arguments(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the facts of a launch in Megatron's arguments. arguments: by name."""
    facts = stated_facts(arguments, ARGUMENT_FACTS)
    facts |= {"precision": _precision(arguments), "recompute": _recompute(arguments)}
    if zero := re.match(r"\d", arguments.get("zero_stage", "")):
        facts["zero_stage"] = zero[0]
    if arguments.get("reset_attention_mask") == "True":
        facts["document_mask"] = "true"
    if (drops := arguments.get("random_ltd")) in ("True", "False"):
        facts["token_dropping"] = drops.lower()
    if (fp8 := _fp8(arguments)) is not None:
        facts["quantization"] = fp8
    kept = {
        k: v
        for k, v in arguments.items()
        if MODEL_ARGUMENTS.search(k) or v.startswith(BERT_TOKENIZER_PREFIX)
    }
    kept |= {key: "True" for key in EXTRA_MODEL_ARGUMENTS if arguments.get(key) == "True"}
    return facts | {"megatron_arguments": json.dumps(kept)} if "num_layers" in kept else facts


def stated_facts(arguments: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Return facts of whole-number arguments. names: argument to fact.

    `pipe_parallel_size` 0 is one stage, without the pipeline engine.
    """
    facts = {
        fact: arguments[key]
        for key, fact in names.items()
        if re.fullmatch(r"\d+", arguments.get(key, ""))
    }
    return facts | ({"pipeline_parallel": "1"} if facts.get("pipeline_parallel") == "0" else {})


def _precision(arguments: Mapping[str, str]) -> str:
    return _half_precision(_switched_on(arguments)).get("precision", "fp32")


def _switched_on(arguments: Mapping[str, str]) -> set[str]:
    return {name for name, value in arguments.items() if value == "True"}


def _half_precision(switches: Collection[str]) -> dict[str, str]:
    """Return the 16-bit precision among the options that are on, if any."""
    return next(({"precision": name} for name in ("bf16", "fp16") if name in switches), {})


def _fp8(arguments: Mapping[str, str]) -> str | None:
    """Return the argument for FP8 in Transformer Engine; `fp8` since Megatron-LM 0.5."""
    if arguments.get("fp8", "None") not in ("None", "False"):
        return f"fp8 {arguments['fp8']}"
    return next((k for k in ("fp8_e4m3", "fp8_hybrid") if arguments.get(k) == "True"), None)


def _recompute(arguments: Mapping[str, str]) -> str:
    """Return the recomputation.

    deepspeed_activation_checkpointing alone recomputes nothing; the method `block` recomputes some
    layers of a rank.
    """
    if arguments.get("checkpoint_activations") == "True":
        return "full"
    granularity = arguments.get("recompute_granularity", "None")
    if granularity == "full" and arguments.get("recompute_method") == "block":
        return "selective"
    return {"None": "none", "selective": "selective_attention"}.get(granularity, granularity)


MEGATRON_STAMP: Final = (
    r"(?:\[|\] datetime: )(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3,6})?)\b"
)
DATETIME_SUFFIX: Final = r"\] datetime: [-\d]+ [:\d]+"

EVENT_LINES: Final = (
    EventLine(
        anchor="[after training is done]",
        regex=rf"\[after training is done{DATETIME_SUFFIX}",
        kind="end",
        example="[after training is done] datetime: 2026-11-20 10:42:30 ",
        printed_by=f"{TRAINING_SOURCE} print_datetime",
        composed=True,
    ),
    EventLine(
        anchor="[before the start of training step]",
        regex=rf"\[before the start of training step{DATETIME_SUFFIX}",
        kind="train_start",
        example="[before the start of training step] datetime: 2026-11-20 10:31:14 ",
        printed_by=f"{TRAINING_SOURCE} print_datetime",
        composed=True,
    ),
    EventLine(
        anchor="] datetime: ",
        regex=rf"\[(?P<stage>(?:after|before) [^][]*){DATETIME_SUFFIX}",
        kind="setup",
        example="[after model, optimizer, and learning rate scheduler are built] datetime: "
        "2026-11-20 10:31:12 ",
        printed_by=f"{TRAINING_SOURCE} print_datetime",
        composed=True,
    ),
    EventLine(
        anchor="exiting program at",
        regex=rf"exiting program at iteration +(?P<step>\d+)(?:{DATETIME_SUFFIX})?",
        kind="end",
        example="[exiting program at iteration 5] datetime: 2026-11-20 10:32:30 ",
        printed_by=TRAINING_SOURCE,
        composed=True,
    ),
    EventLine(
        anchor="exiting program after ",
        regex=rf"exiting program after (?P<minutes>[\d.]+) minutes(?:{DATETIME_SUFFIX})?",
        kind="end",
        example="[exiting program after 1190.02 minutes] datetime: 2026-11-20 10:32:30 ",
        printed_by=TRAINING_SOURCE,
        composed=True,
    ),
    EventLine(
        anchor="exiting program after receiving",
        regex=rf"exiting program after receiving (?P<signal>\w+)\.(?:{DATETIME_SUFFIX})?",
        kind="killed",
        example="[exiting program after receiving SIGTERM.] datetime: 2026-11-20 10:32:30 ",
        printed_by=TRAINING_SOURCE,
        composed=True,
    ),
    EventLine(
        anchor=" at iteration ",
        regex=r"valid(?:ation)? (?:loss|results) at iteration +(?P<step>\d+)"
        rf"(?:[^|]*\| (?i:lm[ _-]loss)(?: value)?[:=] *(?P<loss>{MEGATRON_NUMBER})"
        rf"(?:[ |]*(?i:lm[ _-](?:loss[ _])?ppl)(?: value)?[:=] *(?P<perplexity>{MEGATRON_NUMBER}))?)?",
        kind="evaluation",
        example=" validation loss at iteration 100 | lm loss value: 7.688264E+00 | lm loss PPL: "
        "2.182582E+03 | ",
        printed_by=f"{TRAINING_SOURCE} evaluate_and_print_results",
        composed=True,
    ),
    EventLine(
        anchor="at the end of training for ",
        regex=r"validation (?:loss|results) at the end of training for (?P<set>\w+) data"
        rf"(?: \| (?i:lm[ _-]loss)(?: value)?[:=] *(?P<loss>{MEGATRON_NUMBER}))?",
        kind="evaluation",
        example=" validation loss at the end of training for test data | lm loss value: "
        "7.688264E+00 | lm loss PPL: 2.182582E+03 | ",
        printed_by=f"{TRAINING_SOURCE} evaluate_and_print_results",
        composed=True,
    ),
    EventLine(
        anchor="saving checkpoint at",
        regex=r"saving checkpoint at iteration +(?P<step>\d+)",
        kind="checkpoint",
        example="saving checkpoint at iteration     600 to checkpoints",
        printed_by=f"{CHECKPOINTING_SOURCE} save_checkpoint",
        composed=True,
    ),
    EventLine(
        anchor="successfully saved checkpoint",
        regex=r"successfully saved checkpoint at iteration +(?P<step>\d+)",
        kind="checkpoint",
        example="  successfully saved checkpoint at iteration     600 to checkpoints",
        printed_by=f"{CHECKPOINTING_SOURCE} save_checkpoint",
        composed=True,
    ),
    EventLine(
        anchor="Checkpoint Save GB: ",
        regex=r"Checkpoint Save GB: (?P<gigabytes>[\d.]+), GB/Sec: [\d.]+, "
        r"Latency\(second\): (?P<seconds>[\d.]+)",
        kind="checkpoint",
        example="Checkpoint Save GB: 4.969, GB/Sec: 2.1, Latency(second): 2.366",
        printed_by="deepspeedai/Megatron-DeepSpeed/megatron/utils.py@4efb479 "
        "checkpoint_throughput_calculator",
        composed=True,
    ),
    EventLine(
        anchor="checkpoint from ",
        regex=r"(?:loading|successfully loaded) checkpoint from .*?at iteration +(?P<step>\d+)",
        kind="load",
        example="  successfully loaded checkpoint from checkpoints at iteration 600",
        printed_by=f"{CHECKPOINTING_SOURCE} load_checkpoint",
        composed=True,
    ),
    EventLine(
        anchor="save-checkpoint",
        regex=r"\bsave-checkpoint(?:: | \.+: \([\d.]+, )(?P<seconds>[\d.]+)",
        kind="checkpoint",
        factors={"seconds": MS},
        example="    save-checkpoint ................................: (2365.42, 2366.17)",
        printed_by=f"{TIMERS_SOURCE} Timers.log",
        composed=True,
    ),
    EventLine(
        anchor="load-checkpoint",
        regex=r"\bload-checkpoint(?:: | \.+: \([\d.]+, )(?P<seconds>[\d.]+)",
        kind="load",
        factors={"seconds": MS},
        example="time (ms) | load-checkpoint: 4.12",
        printed_by=f"{TIMERS_SOURCE} Timers.log",
        composed=True,
    ),
    EventLine(
        anchor="time (ms) | ",
        regex=r"time \(ms\) \| [\w/-]+(?: [\w/-]+)*: ",
        kind="timers",
        example="time (ms) | forward-compute: 28373.70 | backward-compute: 56101.22 | optimizer: "
        "412.05 | batch-generator: 21.50",
        printed_by=f"{TIMERS_SOURCE} Timers.log",
        composed=True,
    ),
    EventLine(
        anchor=": (",
        regex=r"(?<![\w/-])(?P<timer>[\w/-]+) \.{2,}: \((?P<least_ms>[\d.]+), (?P<most_ms>[\d.]+)\)",
        kind="timers",
        example="    forward-backward ...............................: (1234.50, 1240.10)",
        printed_by=f"{TIMERS_SOURCE} Timers.log",
        composed=True,
    ),
    EventLine(
        anchor=" memory (MB) | allocated: ",
        regex=r"\bafter (?P<step>\d+) iterations\)? memory \(MB\) \| allocated: (?P<allocated>[\d.]+)"
        r" \| max allocated: (?P<max_allocated>[\d.]+) \| reserved: (?P<reserved>[\d.]+)"
        r" \| max reserved: (?P<max_reserved>[\d.]+)",
        kind="memory",
        example="[Rank 1] (after 20 iterations) memory (MB) | allocated: 807.95 | max allocated: "
        "1326.10 | reserved: 1842.0 | max reserved: 1842.0",
        printed_by="deepspeedai/Megatron-DeepSpeed/megatron/utils.py@4efb479 report_memory",
        composed=True,
    ),
)
"""Lines next to steps in Megatron-DeepSpeed and GPT-NeoX; `extra` has the printed unit."""

FACT_LINES: Final = (
    FactLine(
        anchor="padded vocab",
        regex=r"padded vocab \(size: (?P<vocab_size>\d+)\)"
        r"(?: with \d+ dummy tokens \(new size: (?P<padded_vocab_size>\d+)\))?",
        example=" > padded vocab (size: 50257) with 175 dummy tokens (new size: 50432)",
        printed_by="deepspeedai/Megatron-DeepSpeed/megatron/tokenizer/tokenizer.py@4efb479",
        composed=True,
    ),
    FactLine(
        anchor="number of parameters on ",
        regex=r"number of parameters on (?:\(tensor, pipeline\) )?model parallel rank"
        r"(?: (?P<rank_params>\(?\d+(?:, \d+)?\)?: \d+)\s*$)?",
        example=" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 861859840",
        printed_by="deepspeedai/Megatron-DeepSpeed/megatron/training.py@4efb479 get_model",
        composed=True,
    ),
    FactLine(
        anchor="training ...",
        regex=r"\btraining \.\.\.\s*$",
        example="training ...",
        printed_by=f"{TRAINING_SOURCE} pretrain",
        composed=True,
    ),
    FactLine(
        anchor="done with setup",
        regex=r"\bdone with setups? \.\.\.\s*$",
        example="done with setup ...",
        printed_by=f"{TRAINING_SOURCE} pretrain",
        composed=True,
    ),
    FactLine(
        anchor="(ms)",
        regex=r"(?:\btime \(ms\)|\(min, max\) time across ranks \(ms\):)\s*$",
        example="(min, max) time across ranks (ms):",
        printed_by=f"{TIMERS_SOURCE} Timers.log",
        composed=True,
    ),
    # From the engine's dump: until 2021 the header has no global batch, so the batch needs it.
    FactLine(
        anchor="gradient_accumulation_steps ",
        regex=r"\[config\.py:\d+:print\]   gradient_accumulation_steps \.* ?"
        r"(?P<gradient_accumulation>\d+)\s*$",
        example="[2026-05-27 19:49:22,948] [INFO] [config.py:904:print]   gradient_accumulation_steps "
        ". 128",
        printed_by="deepspeedai/DeepSpeed/deepspeed/runtime/config.py@edaa722 DeepSpeedConfig.print",
        composed=True,
    ),
    *SOFTWARE_LINES,
)

# -- arguments in a command, a script or a list --------------------------------------------

_LAUNCH: Final = r"\b(?:torchrun|python[\d.]* (?:-u )?-m torch\.distributed\.(?:run|launch))\s"
_TRAINING: Final = re.compile(r"(?<![\w-])--(?:train-iters|train-samples|global-batch-size|lr)\b")
"""Options that only a training has; data are prepared, and checkpoints converted, with others."""
_OPTION_FACTS: Final = {
    name.replace("_", "-"): fact
    for name, fact in ARGUMENT_FACTS.items()
    if name not in ("world_size", "data_parallel_size", "batch_size", "model_parallel_size")
}
_OF_SHELL: Final = r"\s*+(?:[\w/$-]*+[.=(:)][\w./$=(:)-]*+)?\s*+\\?\s*+$"
"""Rest of a line between options: blank, a script, or the ends of a list."""


def _options_block(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of options on adjacent lines, if they are of one training."""
    command = joined_command(lines)
    if not _TRAINING.search(command) or len(re.findall(_LAUNCH, command)) > 1:
        return {}
    options = {name.rstrip(":"): value for name, value in options_of(command).items()}
    names = {option.replace("-", "_"): fact for option, fact in _OPTION_FACTS.items()}
    return world_size(command) | stated_facts(options, names) | _half_precision(options)


OPTIONS_BLOCK: Final = FactBlock(
    start=r"^(?!.*(?:[Kk]illed|[Ee]rror))"
    rf"(?:(?=.*\\\s{{0,9}}$).*?{_LAUNCH}|.*?(?<![\w-])--(?:{'|'.join(_OPTION_FACTS)})[ =:]+\d)",
    end=rf"[Ee]rror|^(?!.*(?<![\w-])--[a-z])(?!{_OF_SHELL})",
    include_start=True,
    read=_options_block,
    of_any_file=True,
    max_lines=200,
    example=(
        "torchrun --nproc_per_node 2 pretrain_gpt.py --seq-length 256 \\",
        "  --train-iters 500 \\",
        "  --bf16",
        "```",
    ),
    printed_by="pytorch/pytorch/torch/distributed/run.py@v2.9.0",
)


def _excerpt(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of a part of the arguments, without defaults for the rest."""
    arguments = _dotted(lines)
    if len(arguments) < MIN_EXCERPT_LINES:
        return {}
    return stated_facts(arguments, ARGUMENT_FACTS) | _half_precision(_switched_on(arguments))


MIN_EXCERPT_LINES: Final = 2
"""Fewest arguments together that are taken for a part of the header."""

EXCERPT_BLOCK: Final = FactBlock(
    start=rf"^ {{0,8}}(?:{'|'.join(ARGUMENT_FACTS)}) \.{{3,}} \d+\s*$",
    end=r"^(?! {0,8}\w+ \.{2,} )",
    include_start=True,
    read=_excerpt,
    example=(
        "  seq_length ...................................... 2048",
        "  world_size ...................................... 8",
        " done",
    ),
    printed_by=ARGUMENTS_SOURCE,
)
"""Lines of the header that people post without its first line."""

WORLD_SIZE_LINE: Final = FactLine(
    anchor="using world size: ",
    regex=r"(?<!\(\) )using world size: (?P<gpus>\d+)(?:, data-parallel-size: (?P<data_parallel>\d+))?"
    r"(?:, sequence-parallel size: (?P<context_parallel>\d+))?"
    r"(?:, tensor-model-parallel size: (?P<tensor_parallel>\d+))?"
    r"(?:, pipeline-model-parallel size: (?P<pipeline_parallel>\d+))?",
    example="using world size: 16, data-parallel-size: 4, sequence-parallel size: 1, "
    "tensor-model-parallel size: 4, pipeline-model-parallel size: 1 ",
    printed_by=ARGUMENTS_SOURCE,
    composed=True,
)

ARGUMENTS_BLOCK: Final = FactBlock(
    start=r"- arguments -",
    end=r"- end of arguments -",
    include_end=True,
    read=_arguments,
    example=(
        "------------------------ arguments ------------------------",
        "  num_layers ...................................... 12",
        "  seq_length ...................................... 2048",
        "  tensor_model_parallel_size ...................... 2",
        "-------------------- end of arguments ---------------------",
    ),
    printed_by=ARGUMENTS_SOURCE,
)

EFFECTIVE_FLOPS_LINE: Final = EventLine(
    anchor="Effective Tera Flops per GPU: ",
    regex=r"Effective Tera Flops per GPU: (?P<tflops>[\d.]+) and total parameters "
    r"(?P<billion_parameters>[\d.]+) B",
    kind="timers",
    example="Effective Tera Flops per GPU: 41.05 and total parameters 51.998 B",
    printed_by="bigscience-workshop/Megatron-DeepSpeed/megatron/training.py@f52dbd04",
    composed=True,
)
"""A claim after the line of its step; in June 2021 only, over the whole log interval."""


_OF_MEGATRON_LM: Final = (
    r"\| (?:(?:throughput|compute) per GPU \(TFLOP/s/GPU\)|tokens per GPU \(tokens/s/GPU\)"
    r"|tokens/s/GPU inst/harmonic mean|tokens/sec/(?:gpu|GPU)|memory\(GiB\)|remaining time): "
)
"""Fields of NVIDIA's lines and of their derivatives, which no fork with DeepSpeed prints."""
_OF_MINDSPEED: Final = (
    r"\| elapsed time per iteration \(ms\): [\d.]+ \| learning rate: [^|]*\| global batch size: +\d+"
    r" \| loss: [^|]*\|(?!.*\| loss scale: )"
)
"""No other fields, a loss without a name directly after the batch, and no scale: see MINDSPEED_MM.
"""
_OF_MINDSPEED_LLM: Final = r"\| max_memory_allocated\(GB\): [\d.]+ \| max_memory_reserved\(GB\): "
"""Fields of MindSpeed-LLM's own monitor: see MINDSPEED_LLM."""
_OF_SAT: Final = r"\| *speed [\d.]+ samples/\(min\*GPU\)"
"""Lines of SwissArmyTransformer (CogVLM, ChatGLM), made from Megatron's. It may train adapters,
with images as well as text, and does not fill samples to a fixed length.
"""
_STAMPED: Final = (
    r"(?:(?<=\d:\d\d)|(?<=\.\d{6}))\] iteration +\d+ */ *\d+ \| "
    rf"(?!.*(?:{_OF_MINDSPEED}|{_OF_MINDSPEED_LLM}))(?!.*\| (?:consumed tokens|actual seq|samples per second|TFLOPs))"
)
"""Only a stamp before the line, as in NVIDIA's since 2024; a collector stamps others' lines too."""
PADDED_TELLS: Final = {"tokens per sample": ("packed", "false")}
"""MindSpeed prints this field if samples keep their own length."""
_DEEPSPEED_TELLS: Final = dict.fromkeys(
    ("consumed tokens", "actual seqlen", "samples per second", "TFLOPs"), ("engine", "deepspeed")
)
"""Fields of Microsoft's and bigscience's forks that NVIDIA's Megatron-LM never had."""

MEGATRON_DEEPSPEED: Final = LogFormat(
    name="megatron-deepspeed",
    engine_below="deepspeed",
    phase_timers=(*engine_timers(), *MEGATRON_TIMERS, *micro_step_timers()),
    framework="deepspeed",
    framework_unsaid="megatron",
    versions="Microsoft 2021-2025, bigscience 2021-2023, ALCF and other forks 2024-2025",
    signature=rf"(?:^\s*|(?!{_STAMPED})[^|]\s)iteration[ =]+\d+ */ *\d+ \| (?:consumed|elapsed)[ _]"
    rf"(?!.*(?:{_OF_MEGATRON_LM}|{_OF_MINDSPEED}|{_OF_MINDSPEED_LLM}|{_OF_SAT}))",
    looks_like_step=r"(?:^\s*|[^|]\s)iteration[ =]+\d+ */ *\d+ \|",
    clock=MEGATRON_STAMP,
    launch=r"(?<!\(\) )using world size: |- arguments -",  # the first is two lines before the second
    evidence=("elapsed", "rate"),
    elapsed_covers="interval",
    rate_covers="interval",
    implies={
        "trainable": ("full", "Megatron trains every weight"),
        "packed": ("true", "Megatron's GPT data set fills every sample to seq_length"),
    },
    steps=(
        StepLine(
            anchor="iteration ",
            regex=r"iteration +(?P<step>\d+) */ *(?P<total>\d+) \| (?P<pairs>.*)",
            pair=FIELD_PAIR,
            columns=MEGATRON_COLUMNS,
            facts={"total": "total_steps"},
            tells=PADDED_TELLS | _DEEPSPEED_TELLS,
            example=" iteration       10/ 9155273 | consumed samples:          480 | consumed "
            "tokens:       983040 | elapsed time per iteration (ms): 2349.1 | learning rate: "
            "2.831E-07 | global batch size:    48 | lm loss: 1.093108E+01 | loss scale: 2048.0 | "
            "actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:  "
            " 0 | samples per second: 20.434 | tokens per gpu per second (tgs): 871.839 | "
            "TFLOPs: 10.37 |",
            printed_by=f"{TRAINING_SOURCE} training_log",
            composed=True,
        ),
        StepLine(
            anchor="iteration=",
            regex=r"iteration= *(?P<step>\d+) */ *(?P<total>\d+) \| (?P<pairs>.*)",
            pair=rf"(?<![^|=])(?P<key>[^|=]+)= *(?P<value>{FIELD_VALUE}){FIELD_END}",
            columns=ALCF_COLUMNS,
            facts={"total": "total_steps"},
            tells={key.replace(" ", "_"): fact for key, fact in _DEEPSPEED_TELLS.items()},
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
    events=(*EVENT_LINES, EFFECTIVE_FLOPS_LINE),
    facts=(*FACT_LINES, WORLD_SIZE_LINE),
    blocks=(ARGUMENTS_BLOCK, EXCERPT_BLOCK, OPTIONS_BLOCK),
)

MAX_MTP_MODULES: Final = 16
"""Modules of multi-token prediction with a printed loss, far more than anyone trains."""

_MEAN: Final = rf"(?:/{MEGATRON_NUMBER}| \(avg {MEGATRON_NUMBER}\)) *(?:\||$)"
_OWN: Final = (
    r"(?:(?<=time per iteration \(ms\): )|(?<=/s/GPU\): )|(?<=inst/harmonic mean: ))"
    rf"{MEGATRON_NUMBER}(?={_MEAN})"
)
"""The first figure of `6000.0/6010.2`: the line's own. Primus also prints the mean of its last
lines after the time, TFLOP/s and tokens/s of a line, except for lines of the warm-up.
"""
_LAST: Final = r" *(?:number of nan iterations|hip mem usage[\w/]*)(?=:)"
"""Fields after which MindSpeed and Primus end a line without a `|`."""


def _whole_tokens(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill consumed_tokens with whole numbers.

    Swiss AI's fork prints `consumed tokens: 1.258B`, too coarse to count a step by.
    """
    tokens = printed.get("consumed tokens")
    if tokens is not None and not tokens.endswith("B"):
        row["consumed_tokens"] = int(tokens)


MEGATRON_LM: Final = replace(
    MEGATRON_DEEPSPEED,
    name="megatron-lm",
    framework="megatron-lm",
    framework_unsaid=None,
    versions="NVIDIA Megatron-LM 2024 and later, Megatron-SWIFT, AMD's Primus, Swiss AI's fork",
    signature=rf"{_STAMPED}|iteration +\d+ */ *\d+ \|.*{_OF_MEGATRON_LM}",
    looks_like_step=r"iteration +\d+ */ *\d+ \|",
    clock=r"(?:\[|\] datetime: )(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)\b",
    evidence=("elapsed", "rate", "stamp"),
    complete=_whole_tokens,
    implies={},
    blocks=(*MEGATRON_DEEPSPEED.blocks, MEGATRON_SWIFT_BLOCK),
    steps=(
        replace(
            MEGATRON_DEEPSPEED.steps[0],
            pair=rf"(?<![^|:=])(?P<key>{_LAST}|[^|:=]+(?=:{FIELD_VALUE}\|)): *(?P<value>{_OWN}|[^|]*)",
            columns={
                **{key: to for key, to in MEGATRON_COLUMNS.items() if key != "consumed tokens"},
                "throughput per GPU (TFLOP/s/GPU)": "logged_tflops",
                "compute per GPU (TFLOP/s/GPU)": "logged_tflops",
                "tokens per GPU (tokens/s/GPU)": "logged_tgs",
                "tokens/s/GPU inst/harmonic mean": "logged_tgs",
                "tokens/s/GPU": "logged_tgs",
                "tokens/sec/gpu": "logged_tgs",
                "tokens/sec/GPU": "logged_tgs",
                "memory(GiB)": ("peak_memory_bytes", GIB),
            },
            tells=PADDED_TELLS
            | {f"mtp_{n} loss": ("mtp_modules", str(n)) for n in range(1, MAX_MTP_MODULES + 1)},
            example=" [2026-11-20 02:59:36] iteration       43/     100 | consumed samples:         "
            "5504 | elapsed time per iteration (ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): "
            "239.8 | learning rate: 8.600000E-06 | global batch size:   128 | lm loss: 1.825991E+00 "
            "| load_balancing_loss: 1.019746E+00 | loss scale: 1.0 | grad norm: 1.426 | num zeros: "
            "0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            printed_by="NVIDIA/Megatron-LM/megatron/training/training.py training_log; "
            "AMD-AGI/Primus/primus/modules/trainer/megatron/trainer.py training_log",
        ),
    ),
)
"""Without the implied facts of Megatron-DeepSpeed: it also trains adapters, and may pad samples."""

TRAIN_ENGINE_SOURCE: Final = (
    "Ascend/MindSpeed-MM/mindspeed_mm/fsdp/train/train_engine.py@069ea64 TrainEngine"
)
MINDSPEED_MM: Final = replace(
    MEGATRON_LM,
    name="mindspeed-mm",
    engine_below=None,
    framework="mindspeed-mm",
    versions="Ascend's MindSpeed-MM 2025 and later, its own engine (FSDP2)",
    signature=rf"iteration +\d+ */ *\d+ \| consumed samples: +\d+ {_OF_MINDSPEED}",
    elapsed_covers="step",
    events=(
        *MEGATRON_LM.events,
        EventLine(
            anchor="** validation after iteration ",
            regex=r"\*\* validation after iteration (?P<step>\d+) \*\*"
            rf"(?: \| validation steps: \d+ \| validation loss: (?P<loss>{MEGATRON_NUMBER}))?",
            kind="evaluation",
            example=" [2026-11-20 03:12:31] ** validation after iteration 20 ** | validation steps: "
            "4 | validation loss: 9.912345E+00 |",
            printed_by=f"{TRAIN_ENGINE_SOURCE}._run_validation",
            composed=True,
        ),
    ),
    steps=(
        replace(
            MEGATRON_LM.steps[0],
            columns={**MEGATRON_LM.steps[0].columns, "loss": "loss"},
            example=" [2026-11-20 03:12:09] iteration       20/   10000 | consumed samples:         "
            " 160 | elapsed time per iteration (ms): 2218.4 | learning rate: 1.900000E-07 | global "
            "batch size:     8 | loss: 1.004471E+01 | grad norm: 48.812 |",
            printed_by=f"{TRAIN_ENGINE_SOURCE}.training_log",
        ),
    ),
)
"""Lines look like Megatron's, but the time covers the last step alone, without evaluation and
checkpoints between steps. Samples keep their own length, and adapters are trained too. The batch is
the configured one, even for the last step of an epoch.
"""

_LLM: Final = "Ascend/MindSpeed-LLM/mindspeed_llm/fsdp2"
_LLM_TRAIN: Final = f"{_LLM}/train/trainer.py@2f0d9f7 Trainer.train"
MINDSPEED_LLM: Final = replace(
    MEGATRON_LM,
    name="mindspeed-llm",
    quirks=("tokens_of_ranks",),
    engine_below=None,
    framework="mindspeed-llm",
    versions="Ascend's MindSpeed-LLM 2026 and later, its FSDP2 backend",
    signature=rf"iteration +\d+ */ *\d+ \| consumed samples: .*{_OF_MINDSPEED_LLM}",
    launch=r"\*{5} Running training \(FSDP2\) \*{5}",
    complete=None,
    events=(
        EventLine(
            anchor="Training completed in ",
            regex=r"Training completed in (?P<seconds>[\d.]+)s",
            kind="end",
            example="INFO [2026-11-20 05:40:12] >> Training completed in 812.44s",
            printed_by=_LLM_TRAIN,
            composed=True,
        ),
        EventLine(
            anchor="Distributed checkpoint saved at ",
            regex=r"Distributed checkpoint saved at \S*?(?:global_step_(?P<step>\d+))? successfully!",
            kind="checkpoint",
            example="INFO [2026-11-20 05:38:02] >> Distributed checkpoint saved at "
            "out/checkpoints/global_step_200 successfully!",
            printed_by=_LLM_TRAIN,
            composed=True,
        ),
        EventLine(
            anchor="Load distributed checkpoint from ",
            regex=r"Load distributed checkpoint from \S*?(?:global_step_(?P<step>\d+))? successfully!",
            kind="load",
            example="INFO [2026-11-20 05:26:31] >> Load distributed checkpoint from "
            "out/checkpoints/global_step_100 successfully!",
            printed_by=_LLM_TRAIN,
            composed=True,
        ),
    ),
    facts=tuple(
        FactLine(
            anchor=f"  {words} = ",
            regex=rf"  {words} = (?P<{fact}>\d+)\s*$",
            example=f"INFO [2026-11-20 05:26:30] >>   {words} = 64",
            printed_by=_LLM_TRAIN,
            composed=True,
        )
        for words, fact in (
            ("Num examples", "total_samples"),
            ("Total Batch Size", "global_batch_size"),
            ("Gradient Accumulation steps", "gradient_accumulation"),
            ("Total optimization steps", "total_steps"),
        )
    ),
    blocks=(),
    steps=(
        replace(
            MEGATRON_LM.steps[0],
            pair=FIELD_PAIR,
            columns={
                **MEGATRON_COLUMNS,
                "consumed tokens": "consumed_non_padding",
                "mfu": ("logged_mfu", PERCENT),
                "max_memory_reserved(GB)": ("peak_memory_bytes", GIB),
            },
            tells={},
            example="INFO [2026-11-20 05:27:11] >>  iteration       10/    2000 | consumed samples: "
            "       640 | consumed tokens:     531204 | elapsed time per iteration (ms): 4012.15 | "
            "tokens/s: 13239.88 | mfu: 21.20 | learning rate: 1.000000E-05 | global batch size:    "
            "64 | lm loss: 2.345678E+00 | grad norm: 1.250 | max_memory_allocated(GB): 41.20 | "
            "max_memory_reserved(GB): 44.10 |",
            printed_by=f"{_LLM}/utils/train_monitor.py@a9d209d TrainMonitor",
            composed=True,
        ),
    ),
)
"""Lines look like Megatron-DeepSpeed's. The time is the mean since the last line, with checkpoints.
Tokens are counted without padding (the sum of the attention masks), since the process started, and
summed over all ranks. Ranks that share a sequence (context_parallel, tensor_parallel) all count it
(core.schema.QUIRKS, tokens_of_ranks: TrainMonitor._compute_throughput_metrics and
Trainer._get_batch_samples_ulysses). The batch is the configured one, even for the last step of an
epoch. `tokens/s` covers all ranks.
"""
