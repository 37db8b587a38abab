"""Torchtitan's console log, since `current loss` (2024-01), and logs of its forks.

`tps` (once `wps`, in flame `tgs`) is tokens per second per device over all token slots since the
last logged or validated step, so it covers an interval: nine steps at step 10, and start-up at step
1. Lines of early 2024 have no rate: `iter` is seconds of one step, from the batch to the end of the
optimizer, and `data` seconds to get the batch. `end_to_end(s)` of key=value lines is the interval
over log_freq whatever its length, so it stays in `extra`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from ..launch_commands import EZPZ_GPUS, joined_command
from ..launch_view import Finished, LaunchView
from ..software_lines import SOFTWARE_LINES
from ..spec import (
    GIB,
    PERCENT,
    EventLine,
    FactBlock,
    FactLine,
    LogFormat,
    StepLine,
    known_line,
    parse_json_lines,
    profiled_steps_fields,
    rate_restart_fields,
)
from .command_line import COMMAND_START, MODULE_START, command_facts
from .job_config import attention_facts, job_config_facts

METRICS_SOURCE: Final = "pytorch/torchtitan/torchtitan/components/metrics.py@b5bcd76"
TRAIN_SOURCE: Final = "pytorch/torchtitan/torchtitan/train.py@81af883"
UTILS_SOURCE: Final = "pytorch/torchtitan/torchtitan/tools/utils.py@b5bcd76"
PARALLEL_DIMS_SOURCE: Final = "pytorch/torchtitan/torchtitan/distributed/parallel_dims.py@b5bcd76"
TITAN_TRAINER_SOURCE: Final = "pytorch/torchtitan/torchtitan/trainer.py@b5bcd76"
PROFILING_SOURCE: Final = "pytorch/torchtitan/torchtitan/tools/profiling.py@81af883"
CHECKPOINT_SOURCE: Final = "pytorch/torchtitan/torchtitan/components/checkpoint.py@81af883"
DCP_SOURCE: Final = "pytorch/torchtitan/torchtitan/components/checkpointer/dcp.py@b5bcd76"
TORCHFT_SOURCE: Final = "pytorch/torchft/torchft/manager.py@35ca865 Manager"
FLAME_SOURCE: Final = "fla-org/flame/train.py@f08046c"
REPLACED_LOADER_SOURCE: Final = "QIU023/torchtitan_attention_residual/phase5/train_mm.py"
REPLACED_LOADER: Final = (
    "[rank4]:[titan] 2026-11-20 11:07:22,535 - root - INFO - mm: replaced dataloader with "
    "LlavaPretrainDataset (N=558,128, dp_rank=0/4, local_bs=160, seq_len=258)"
)
DOCUMENT_MASK_NOTE: Final = (
    "Torchtitan's language models mask documents since 2026-06 (PR #3571, Flex and block_causal)"
)


def _mesh(names_and_degrees: Mapping[str, str]) -> dict[str, str]:
    """Return facts of `Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]`."""
    names = re.findall(r"\w+", names_and_degrees["names"])
    degrees = [int(n) for n in re.findall(r"\d+", names_and_degrees["degrees"])]
    return _parallelism(dict(zip(names, degrees, strict=False)))


def _parallelism_pairs(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return facts of `parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1`."""
    degrees = {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)", pairs["degrees"])}
    experts = degrees.pop("ep", 1)
    degrees.pop("etp", 1)  # ep and etp overlap the other ranks: never multiplied
    return _parallelism(degrees) | {"expert_parallel": str(experts)}


def _parallelism(degrees: Mapping[str, int]) -> dict[str, str]:
    world, data = 1, 1
    for name, degree in degrees.items():
        world *= degree
        if name.startswith("dp"):
            data *= degree
    # `dp` alone may be either
    sharded = any(name.startswith(("dp_shard", "dp_replicate")) for name in degrees)
    return {
        "gpus": str(world),
        "data_parallel": str(data),
        **({"replicas": str(degrees.get("dp_replicate", 1))} if sharded else {}),
        "tensor_parallel": str(degrees.get("tp", degrees.get("sp", 1))),
        "pipeline_parallel": str(degrees.get("pp", 1)),
        "context_parallel": str(degrees.get("cp", 1)),
    }


def _model_arguments(groups: Mapping[str, str]) -> dict[str, str]:
    """Return facts of `ModelArgs(dim=4096, n_layers=32, …)`.

    Nested arguments stay text.
    """
    pairs = re.findall(r"(\w+)=('[^']*'|[^,()\s]+)", groups["arguments"])
    flat = {name: value.strip("'") for name, value in pairs}
    facts = {"model": groups["model"], "torchtitan_arguments": json.dumps(flat)}
    return facts | attention_facts(flat)


def _json_arguments(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of `Building llama3 8Bwith {` and JSON lines to the closing brace."""
    head = re.search(r"Building (\S+ \S+?) ?with \{", lines[0])
    values = parse_json_lines(lines[1:])
    if head is None or not values:
        return {}
    nested = "layer" in values or "layers" in values
    arguments = _without_repeats(values) if nested else _flat(values)
    return {"model": head[1], "torchtitan_arguments": json.dumps(arguments)} | attention_facts(
        values
    )


def _without_repeats(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested model config without its initialisers and its equal layers.

    Of equal layers in a row, the first remains, with their `count`.
    """
    short: dict[str, Any] = _without_initialisers(config)
    if not isinstance(short.get("layers"), list):
        return short
    runs = [(layer, len([*same])) for layer, same in groupby(short["layers"])]
    listed = [{**x, "count": n} if isinstance(x, dict) and n > 1 else x for x, n in runs]
    return short | {"layers": listed}


def _without_initialisers(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        items = value.items()
        return {k: _without_initialisers(v) for k, v in items if k != "param_init"}
    return [*map(_without_initialisers, value)] if isinstance(value, list) else value


def _flat(arguments: Mapping[str, object]) -> dict[str, str]:
    """Return JSON arguments in the form of `_model_arguments`, the experts' included."""
    flat = {k: "None" if v is None else str(v) for k, v in arguments.items() if _is_scalar(v)}
    experts = arguments.get("moe_args")
    return flat | {"moe_args": "MoEArgs"} | _flat(experts) if isinstance(experts, dict) else flat


RECORD_HEAD: Final = r" - (?:INFO|WARNING|ERROR) - |\]\[(?:[IWE]\]\[|(?:INFO|WARNING|ERROR) *\] )"
"""Part of a log record's head, also of ezpz's and Primus'."""


def _is_scalar(value: object) -> bool:
    return not isinstance(value, (dict, list))


NO_MIXED_PRECISION_NOTE: Final = (
    "without FSDP Torchtitan casts to mixed_precision_param since 2025-06 only, and prints that"
)
"""Before, such a run uses the dtype of its weights, fp32 unless training.dtype is set, whatever
mixed_precision_param is (pytorch/torchtitan#630, #1303). A mesh of one device has no FSDP, nor has
a mesh of only replicas, pipeline or tensor-parallel ranks.
"""


def _adapters(printed: Mapping[str, str]) -> dict[str, str]:
    """Return facts of LoRA on every Linear, with lm_head, or on named ones.

    The rest is frozen.
    """
    facts = {"trainable": "lora", "lora_rank": printed["lora_rank"]}
    on = printed["on"].strip()
    named = re.findall(r"'([^']+)'", on) if on.startswith(", target_modules=[") else []
    if not named and on != "(all Linear layers)" and not re.fullmatch(r"(?:, dropout=\S+)?", on):
        return facts  # the line does not name the layers
    return {**facts, "lora_targets": ",".join(named) or "every-linear"}


def _config_line(groups: Mapping[str, str]) -> dict[str, str]:
    """Return facts of `Running with args: {…}` on one line.

    The line is a Python dict, read as literals and never executed.
    """
    try:
        config = ast.literal_eval(groups["config"])
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return {}
    return job_config_facts(config) if isinstance(config, dict) else {}


def _config_block(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of `Running with configs: {` and JSON lines to the closing brace."""
    return job_config_facts(parse_json_lines(lines))


def _command_line(groups: Mapping[str, str]) -> dict[str, str]:
    return command_facts(groups["command"])


def _command_block(lines: Sequence[str]) -> dict[str, str]:
    return command_facts(joined_command(lines))


def _token_batch(printed: Mapping[str, str]) -> dict[str, str]:
    """Return batches in sequences of the context length, if the tokens divide evenly.

    A rank's tokens cover one accumulation step, over all pipeline microbatches.
    """
    facts = {k: v for k, v in printed.items() if k not in ("rank_tokens", "step_tokens")}
    length = int(printed["seq_len"])
    tokens = {"micro_batch_size": "rank_tokens", "global_batch_size": "step_tokens"}
    for fact, key in tokens.items():
        sequences, rest = divmod(int(printed[key]), length) if length else (0, 0)
        if sequences and not rest:
            facts[fact] = str(sequences)
    return facts


def _flame(label: str, fact: str, value: str) -> FactLine:
    """Return a line of flame's header: `  Number of tokens per sequence = 2,048`."""
    return FactLine(
        anchor=f"{label} = ",
        regex=rf"{re.escape(label)} = (?P<{fact}>[\d,]+)",
        example=f"[rank0]:[titan] 2025-03-02 11:22:33,456 - root - INFO -   {label} = {value}",
        printed_by=FLAME_SOURCE,
        composed=True,
    )


FLAME_HEADER: Final = (
    _flame("Number of tokens per sequence", "seq_len", "2,048"),
    _flame("Gradient Accumulation steps", "gradient_accumulation", "2"),
    _flame("Instantaneous batch size (per device)", "micro_batch_size", "32"),
    _flame(
        "Global batch size (w. parallel, distributed & accumulation)",
        "global_batch_size",
        "512 (1,048,576 tokens)",
    ),
    _flame("Total optimization steps", "total_steps", "20,480 (21,474,836,480 tokens)"),
    _flame("Number of parameters", "params_total", "374,123,520"),
)


_known: Final = partial(known_line, composed=True)


def _plain(printed_by: str, *texts: str) -> Iterator[FactLine]:
    """Yield known lines that always have the same text."""
    for text in texts:
        yield _known(text, re.escape(text), text, printed_by)


KNOWN_LINES: Final = (
    _known(
        "Building ",
        r"- INFO - Building [\w./-]+ [\w.-]+\s*$",
        "[titan] 2026-05-01 11:22:33,456 - root - INFO - Building qwen3 14B",
        TITAN_TRAINER_SOURCE,
    ),
    _known(
        "okenizer built: ",
        r"(?:TikT|SentencePieceT)okenizer built: ",
        "TikTokenizer built: #words 128256, BOS ID 128000, EOS ID 128001",
        "pytorch/torchtitan/torchtitan/datasets/tokenizer/tiktoken.py@f7084fc",
    ),
    _known(
        "Applied ",
        r"Applied .+ to the model\b",
        "Applied Float8 tensorwise Tensor Parallelism to the model",
        "pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
    ),
    _known(
        "exceed total ",
        r"Warmup .*exceed total ",
        "Warmup steps (200) exceed total training steps (60). Adjusting warmup steps to 60.",
        "pytorch/torchtitan/torchtitan/components/lr_scheduler.py@81af883",
    ),
    _known(
        "Preparing ",
        r"Preparing \S+ dataset\b",
        "Preparing alpaca dataset from HuggingFace",
        "pytorch/torchtitan/torchtitan/datasets/hf_datasets.py@f7084fc",
    ),
    _known(
        " logging ",
        r"(?:TensorBoard|WandB|Metrics) logging (?:enabled|active)",
        "TensorBoard logging enabled. Logs will be saved at ./outputs/tb/20260501-1122",
        METRICS_SOURCE,
    ),
    _known(
        "Checkpointing active",
        r"Checkpointing active\. Checkpoints will be",
        "Checkpointing active. Checkpoints will be loaded from and saved to ./outputs/checkpoint",
        CHECKPOINT_SOURCE,
    ),
    _known(
        "Dataset ",
        r"Dataset \S+ (?:is being re-looped|has run out of data)",
        "Dataset c4_test is being re-looped",
        "pytorch/torchtitan/torchtitan/hf_datasets/text_datasets.py@b5bcd76",
    ),
    _known(
        " gnorm: ",
        r"- INFO - lr: \S+ gnorm: +\S+ \[",
        "[titan] 2025-05-02 11:22:33,456 - root - INFO - lr: 3.0000e-04 gnorm:  0.52 "
        "[ 0:21:20< 6:45:40]",
        "fla-org/flame/flame/train.py@623b845",
    ),
    *_plain(FLAME_SOURCE, "***** Running training *****", "  Warmup steps = "),
    *_plain(
        TORCHFT_SOURCE, "] should_commit=True enough_replicas=", "] peers need recovery from us ["
    ),
    *_plain(
        CHECKPOINT_SOURCE, "Staging ft checkpoint took ", " doesn't save checkpoint."
    ),  # of its data
    *_plain(
        TITAN_TRAINER_SOURCE,
        "Deterministic algorithm enabled",
        "Process group destroyed",
    ),
    *_plain(
        UTILS_SOURCE,
        "Error running lspci: ",
        "Force GC to perform collection",
    ),
    *_plain(
        "pytorch/torchtitan/torchtitan/distributed/utils.py@73a0e69",
        "] = 1 will be overridden to 3 based on job config",
        "Synchronizing and adjusting timeout for all ProcessGroups to ",
        "Mixed precision training with TP or PP is only supported when ",
        "Gradient scaling not enabled",
        "Model fully initialized via reset_parameters",
    ),
    *_plain(PARALLEL_DIMS_SOURCE, "Successfully created meshes with active dimensions: "),
    *_plain(
        "pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
        "Async TP is enabled",
        "Compiling the loss function with torch.compile",
    ),
    *_plain(
        "pytorch/torchtitan/torchtitan/distributed/pipeline_parallel.py@81af883",
        "Using pipeline schedule ",
        " is building stage_idx ",
        "Pipeline Parallel loss is not visible. ",
    ),
    *_plain(
        "pytorch/torchtitan/torchtitan/models/utils.py@b5bcd76",
        "Total parameter count: dense ",
        "model.safetensors.index.json not found at hf_assets_path: ",
    ),
    *_plain(
        "pytorch/torchtitan/torchtitan/components/tokenizer.py@81af883",
        "Loading tokenizer from tokenizer.json",
        "Building tiktoken tokenizer locally from ",
        "Building sentencepiece tokenizer locally from ",
    ),
    *_plain(
        PROFILING_SOURCE,
        "Profiling active. Traces will be saved at ",
        "Memory profiler active. Snapshot will be saved at ",
    ),
    *_plain(
        DCP_SOURCE,
        "initial_load_model_only=True has no effect without an initial_load_path",
        "No checkpoint was provided, this is a fresh start",
        "Checkpointer is deleting ",
        "Checkpointer deleted ",
        "Destroying the purge thread",
    ),
    *_plain(
        "pytorch/pytorch/torch/distributed/checkpoint/_async_process_executor.py@v2.9.0",
        "Waiting for checkpoint save request",
        "Submitted checkpoint save request for ",
        "Received async checkpoint request with id=",
        "Initializing dist.ProcessGroup in checkpoint background process",
        "Checkpoint background process is running",
    ),
    *_plain(
        "pytorch/torchtitan/torchtitan/components/validate.py@81af883",
        "Setting validation steps to -1 might cause hangs",
    ),
)
"""Lines that state nothing: with them, the lines without a pattern are few and worth reading."""


SWAPPED: Final = "Swapped to "
FURTHER_FIELD: Final = r" +[\w/]+: +[\d.,]+(?:[eE][-+]?\d+)?"
WHOLE_NUMBER: Final = r"(?![\d.,_]|[eE][-+\d])"
"""Regex of the place behind the last number of a line, which is no part of a number."""
"""Start of a line after the one with the recipe, which names no recipe itself."""


def _settle_quantization(launch: LaunchView) -> Finished:
    """Keep the line with the recipe, where a later one follows without."""
    lines = [fact for fact in launch.facts if fact["name"] == "quantization"]
    swaps = [fact for fact in lines if str(fact["value"]).startswith(SWAPPED)]
    for fact in swaps if len(swaps) < len(lines) else ():
        launch.facts.remove(fact)
    return Finished()


OF_PLANNED: Final = r"/(?P<total>\d{1,12})(?: += +[\d.]+%)?"
"""Planned steps, in forks also the share done, after a step: `step: 640/644 = 99.3789%`."""
MAYBE_OF_PLANNED: Final = rf"(?:{OF_PLANNED.replace('?P<total>', '?:')})?"

METRICS_COLUMNS: Final[Mapping[str, str | tuple[str, float]]] = {
    "step": "step",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "memory": ("peak_memory_bytes", GIB),
    "tps": "logged_tgs",
    "tflops": "logged_tflops",
    "mfu": ("logged_mfu", PERCENT),
}
"""Figures of a whole line of MetricsProcessor.log."""

TORCHTITAN: Final = LogFormat(
    name="torchtitan",
    quirks=("rates_rounded", "accumulation_stated", "claims_follow_rate"),
    framework="torchtitan",
    alone=True,
    versions="2024-01 … 2026-08, flame, mmm",
    signature=rf"\bstep: *[\d,]+{MAYBE_OF_PLANNED} +(?:token: +[\d.,]+ +)?loss:"
    r"(?: *$| +\S+ +(?:grad_norm:|m?memory:|wps:|iter: |lr: \S+ gnorm:))"
    r"|\bstep: *\d+, +current loss: |- INFO - current loss: |\bstep=\d+ global_avg_loss=",
    # not a table of such values, which people write
    step_pieces=r"\bstep:\W{0,9}[\d,]+\W{1,9}loss:|^[^|]*\b(?:tps|tflops):\W{0,9}\d[^|]*$",
    looks_like_step=r"(?<!validate )(?<!evaluation:  )\bstep: *[\d,]+"
    rf"{MAYBE_OF_PLANNED} +(?:token: +[\d.,]+ +)?(?:current )?loss:"
    r"|- INFO - current loss: |\bstep=\d+ global_avg_loss=",
    finish=_settle_quantization,
    noise=r"\x1b\[(?:\d+;)*\d*m|\[(?:\d+;)*\d*m",  # faster than with \x1b?
    clock=r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?)",
    # any line of the header, as excerpts omit some
    launch=r"Starting job: |device mesh with|Peak FLOP[Ss] used for computing MFU"
    r"|torchtitan version: |Running with (?:args|configs): \{"
    r"|[\w>] capacity: .{1,99}with [\d.]+GiB memory|Model \S+ \S+ +size: [\d,]+ total parameters"
    r"|\] GPUs \[\d+ hosts?\] x \[",
    # a mesh of one device is built on first use, maybe after step 1
    late=r"device mesh with parallelism: (?:\w+=1(?:, |\s*$))+$",
    evidence=("rate", "elapsed", "stamp"),
    rate_covers="interval",
    elapsed_covers="step",
    elapsed_excludes_data=True,
    implies={"trainable": ("full", "Torchtitan trains every weight unless a fork freezes some")},
    steps=(
        StepLine(
            anchor="step:",
            regex=r"step: *(?P<step>\d+) +loss: +(?P<loss>\S+) +(?:grad_norm: +(?P<grad_norm>\S+) +)?"
            r"m?memory: +(?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\) +tps: +(?P<tps>[\d,]+)"
            r" +tflops:(?: +(?P<tflops>[\d.,]+))? *$",
            columns={
                "step": "step",
                "loss": "loss",
                "grad_norm": "grad_norm",
                "memory": ("peak_memory_bytes", GIB),
                "tps": "logged_tgs",
                "tflops": "logged_tflops",
            },
            may_continue=True,
            example="step: 10  loss:  8.1234  grad_norm:  1.2345  memory: 41.20GiB(52.01%)  "
            "tps: 883  tflops: 183.59",
            printed_by=f"{METRICS_SOURCE} MetricsProcessor.log, cut before mfu",
            composed=True,
        ),
        StepLine(
            anchor="N/A",  # since 2026-02-28 (#2451), if weights are quantised
            regex=r"step: *(?P<step>\d+) +loss: +(?P<loss>\S+) +(?:grad_norm: +(?P<grad_norm>\S+) +)?"
            r"m?memory: +(?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\)"
            r" +tps: +(?P<tps>[\d,]+) +tflops: +(?P<tflops>[\d.,]+)"
            rf" +(?P<quantized>mfu: +N/A)(?P<pairs>(?:{FURTHER_FIELD})*){WHOLE_NUMBER}",
            pair=r"(?<![\w/])(?P<key>[\w/]+): +(?P<value>\S+)",
            columns={
                "step": "step",
                "loss": "loss",
                "grad_norm": "grad_norm",
                "memory": ("peak_memory_bytes", GIB),
                "tps": "logged_tgs",
                "tflops": "logged_tflops",
            },
            facts={"quantized": "quantized"},
            example="[rank0]:[titan] 2026-05-13 02:21:38,997 - root - INFO - step:  1  "
            "loss: 12.20941  grad_norm:  0.1158  memory: 23.97GiB(76.44%)  tps: 2,134  "
            "tflops: 16.17  mfu: N/A",
            printed_by=f"{METRICS_SOURCE} MetricsProcessor.log",
            composed=True,
        ),
        StepLine(
            anchor="step:",
            regex=r"step: *(?P<step>\d+) +loss: +(?P<loss>\S+) +(?:grad_norm: +(?P<grad_norm>\S+) +)?"
            r"m?memory: +(?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\)"
            r"(?: +(?:wps|tps): +(?P<tps>[\d,]+))(?: +tflops: +(?P<tflops>[\d.,]+))?"
            rf"(?: +mfu: +(?P<mfu>[\d.]+%))?(?P<pairs>(?:{FURTHER_FIELD})*){WHOLE_NUMBER}",
            pair=r"(?<![\w/])(?P<key>[\w/]+): +(?P<value>\S+)",
            columns=METRICS_COLUMNS,
            example="[rank0]:[titan] 2026-11-20 15:34:16,731 - root - INFO - step: 10  "
            "loss:  6.27853  grad_norm:  2.7734  memory:  0.71GiB(3.00%)  tps: 415  "
            "tflops: 0.02  mfu: 0.01%",
            printed_by=f"{METRICS_SOURCE} MetricsProcessor.log",
        ),
        StepLine(
            anchor="step:",
            regex=rf"step: *(?P<step>\d+){OF_PLANNED} +loss: +(?P<loss>\S+) +"
            r"(?:grad_norm: +(?P<grad_norm>\S+) +)?"
            r"m?memory: +(?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\)"
            r" +(?:wps|tps): +(?P<tps>[\d,]+)(?: +tflops: +(?P<tflops>[\d.,]+))?"
            rf"(?: +mfu: +(?P<mfu>[\d.]+%))?(?P<pairs>(?:{FURTHER_FIELD})*){WHOLE_NUMBER}",
            pair=r"(?<![\w/])(?P<key>[\w/]+): +(?P<value>\S+)",
            columns=METRICS_COLUMNS,
            facts={"total": "total_steps"},
            example="[rank0]:2025-04-01 00:25:47,084 - root - INFO - step: 640/644 = 99.3789%  "
            "loss:  6.2116  grad_norm:  0.4511  memory: 87.04GiB(93.48%)  tps: 52,142  "
            "tflops: 30.56  mfu: 3.09%",
            printed_by=f"{METRICS_SOURCE} MetricsProcessor.log, in forks",
            composed=True,
        ),
        StepLine(
            anchor="peak_memory:",
            regex=r"step: *(?P<step>\d+) +loss: +(?P<loss>\S+) +wps: +(?P<tps>[\d,]+) +"
            r"peak_memory: +(?P<share>[\d.]+)%",
            columns={"step": "step", "loss": "loss", "tps": "logged_tgs"},
            example="step: 10  loss:  8.1234  wps:   2,345  peak_memory: 59.48%",
            printed_by="pytorch/torchtitan/train.py@7cd2725",
            composed=True,
        ),
        StepLine(
            anchor="iter: ",
            regex=r"step: *(?P<step>\d+) +loss: +(?P<loss>\S+) +iter: +(?P<iter>\S+) +"
            r"data: +(?P<data>\S+) +lr: +(?P<lr>\S+)",
            columns={
                "step": "step",
                "loss": "loss",
                "iter": "elapsed_s",
                "data": "data_s",
                "lr": "learning_rate",
            },
            example="2024-02-27 11:22:33,456 - root - INFO - step: 10  loss:  8.1234"
            "  iter:  1.2345  data: 0.0123  lr: 0.00024",
            printed_by="pytorch/torchtitan/train.py@629652b",
            composed=True,
        ),
        StepLine(
            anchor=" current loss: ",
            regex=r"step: *(?P<step>\d+), +current loss: (?P<loss>[^\s,]+), +"
            r"lr: \[?(?P<lr>[^\s,\]]+)",
            columns={"step": "step", "loss": "loss", "lr": "learning_rate"},
            example="2024-02-02 11:22:33,456 - root - INFO - step: 10, current loss: 8.123456, "
            "lr: [0.00024]",
            printed_by="pytorch/torchtitan/train.py@bd5176c",
            composed=True,
        ),
        StepLine(
            anchor="- current loss: ",
            regex=r"- INFO - current loss: (?P<loss>\S+)\s*$",
            columns={"loss": "loss"},
            numbered=True,
            every_step=True,
            example="2024-01-12 11:22:33,456 - root - INFO - current loss: 8.123456001281738",
            printed_by="pytorch/torchtitan/train.py@d909bc2",
            composed=True,
        ),
        StepLine(
            anchor=" gnorm: ",
            regex=r"step: +(?P<step>[\d,]+) +token: +(?P<token>[\d,.]+) +loss: +(?P<loss>\S+) +"
            r"lr: (?P<lr>\S+) gnorm: +(?P<gnorm>\S+) memory: +(?P<memory>[\d.]+)GiB "
            r"tgs: +(?P<tgs>[\d,]+) mfu: +(?P<mfu>[\d.]+%) \[ *(?P<elapsed>.+?)< *(?P<eta>.+?)\]",
            columns={
                "step": "step",
                "token": "consumed_tokens",
                "loss": "loss",
                "lr": "learning_rate",
                "gnorm": "grad_norm",
                "memory": ("peak_memory_bytes", GIB),
                "tgs": "logged_tgs",
                "mfu": ("logged_mfu", PERCENT),
            },
            example="[rank0]:[titan] 2025-03-02 11:22:33,456 - root - INFO - step:    1,024 token:"
            "   536,870,912.0  loss:  3.1234  lr: 3.0000e-04 gnorm:  0.52 memory: 41.20GiB "
            "tgs:  52,345 mfu: 31.25% [ 0:21:20< 6:45:40]",
            printed_by=FLAME_SOURCE,
            composed=True,
        ),
        StepLine(
            anchor=" global_avg_loss=",
            regex=r"\bstep=(?P<step>\d+) global_avg_loss=(?P<loss>\S+)"
            r"(?P<pairs>(?: [\w()%/]+=\S+)*)",
            pair=r"(?<![\w()%/])(?P<key>[\w()%/]+)=(?P<value>\S+)",
            columns={
                "step": "step",
                "loss": "loss",
                "throughput(tps)": "logged_tgs",
                "mfu(%)": ("logged_mfu", PERCENT),
                "data_loading(s)": "data_s",
                "max_reserved(GiB)": ("peak_memory_bytes", GIB),
            },
            example="[2025-02-04 11:22:33][I][mmm/train:493:__main__] step=10 "
            "global_avg_loss=6.812345 global_max_loss=8.012345 throughput(tps)=261.123456 "
            "mfu(%)=4.612345 end_to_end(s)=28.212345 data_loading(s)=0.007123 "
            "data_loading(%)=0.025123",
            printed_by="saforem2/mmm/src/mmm/train.py@04f08a8",
            composed=True,
        ),
        StepLine(
            anchor="step:",
            regex=r"step: *(?P<step>\d+) +loss: +(?P<loss>\S+) +(?:grad_norm: +(?P<grad_norm>\S+) +)?"
            r"m?memory: +(?P<memory>[\d.]+)GiB\([\d.]+%\) *$",
            columns={
                "step": "step",
                "loss": "loss",
                "grad_norm": "grad_norm",
                "memory": ("peak_memory_bytes", GIB),
            },
            may_continue=True,
            example="step: 10  loss:  8.1234  grad_norm:  1.2345  memory: 41.20GiB(52.01%)",
            printed_by=f"{METRICS_SOURCE} MetricsProcessor.log, cut before tps",
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor="Structured logging -> JSONL: ",
            regex=r"Structured logging -> JSONL: (?P<file>\S.*)",
            kind="output",
            example="[rank0]:[titan] 2026-11-20 15:17:35,478 - torchtitan.observability."
            "structured_logger.jsonl_handler - INFO - Structured logging -> JSONL: outputs/"
            "structured_logs/training.global_rank_0.20261120-151735-IPIRSC.jsonl",
            printed_by="pytorch/torchtitan/torchtitan/observability/structured_logger/"
            "jsonl_handler.py@b5bcd76",
        ),
        EventLine(
            anchor="validate step:",
            regex=r"validate step: *(?P<step>\d+)(?: +loss: +(?P<loss>\S+) +"
            r"m?memory: +(?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\) +tps: +(?P<tps>[\d,]+))?",
            kind="evaluation",
            read=rate_restart_fields,
            example="[rank0]:[titan] 2026-11-20 15:26:21,417 - root - INFO - validate step:  1  "
            "loss:  8.1289  memory:  0.70GiB(2.99%)  tps: 4,331",
            printed_by=f"{METRICS_SOURCE} MetricsProcessor.log_validation",
            composed=True,
        ),
        EventLine(
            anchor="evaluation: ",
            regex=r"evaluation: +step: *(?P<step>\d+) +loss: +(?P<loss>\S+) +"
            r"m?memory: +(?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\) +tps: +(?P<tps>[\d,]+)",
            kind="evaluation",
            example="[rank0]:2025-03-01 11:22:33,456 - root - INFO - evaluation:  step: 20  "
            "loss:  8.1289  memory: 30.70GiB(38.99%)  tps: 24,331  mfu: 142.50%",
            printed_by="TrustLLMeu/torchtitan/torchtitan/components/eval.py@104b423 evaluate",
            composed=True,
        ),
        EventLine(
            anchor="Validation completed. ",
            regex=r"Validation completed\. Average loss: (?P<loss>\S+) over (?P<batches>\d+) batches",
            kind="evaluation",
            example="Validation completed. Average loss: 4.1234 over 10 batches",
            printed_by="pytorch/torchtitan/torchtitan/components/validate.py@acd5ba8",
            composed=True,
        ),
        EventLine(
            anchor="ing a",
            regex=r"Saving a (?:checkpoint at|(?:full|model(?: weights)? only) checkpoint\b.*) "
            r"step (?P<step>\d+)",
            kind="checkpoint",
            example="Saving a model weights only checkpoint in torch.bfloat16 at last step, step 30.",
            printed_by=CHECKPOINT_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="ing the checkpoint",
            regex=r"(?:Sav|Stag)ing the checkpoint",
            kind="checkpoint",
            example="Saving the checkpoint (or staging if async is enabled).",
            printed_by=CHECKPOINT_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Finished ",
            regex=r"Finished (?:saving|staging) the checkpoint(?: at step (?P<step>\d+) |.*?)"
            r"in (?P<seconds>[\d.]+) seconds",
            kind="checkpoint",
            example="Finished saving the checkpoint at step 30 in 12.345678901 seconds",
            printed_by="pytorch/torchtitan/torchtrain/checkpoint.py@0d63f0e",
            composed=True,
        ),
        EventLine(
            anchor="Last step checkpoint completed",
            regex=r"Last step checkpoint completed in (?P<seconds>[\d.]+)s",
            kind="checkpoint",
            example="Last step checkpoint completed in 4.12s",
            printed_by=DCP_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Loading ",
            regex=r"Loading (?:the checkpoint at step (?P<step>\d+)|(?:the|a) checkpoint\b"
            r"|(?:from )?HF safetensors from )",
            kind="load",
            example="Loading the checkpoint at step 30.",
            printed_by="pytorch/torchtitan/torchtitan/checkpoint.py@9515a14",
            composed=True,
        ),
        EventLine(
            anchor="Finished loading",
            regex=r"Finished loading the checkpoint in (?P<seconds>[\d.]+) seconds",
            kind="load",
            example="Finished loading the checkpoint in 0.31 seconds.",
            printed_by=CHECKPOINT_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor=" traces at step ",
            regex=r"Dumping (?:profiler )?traces at step (?P<step>\d+)",
            kind="profiler",
            read=profiled_steps_fields,
            example="Dumping profiler traces at step 10",
            printed_by=PROFILING_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Dumping memory snapshot",
            regex=r"Dumping memory snapshot at step (?P<step>\d+)",
            kind="profiler",
            example="Dumping memory snapshot at step 10",
            printed_by=PROFILING_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Finished dumping",
            regex=r"Finished dumping (?:profiler traces|traces|memory snapshot) "
            r"in (?P<seconds>[\d.]+) seconds",
            kind="profiler",
            example="Finished dumping profiler traces in 0.21 seconds",
            printed_by=PROFILING_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="[GC] ",
            regex=r"\[GC\] .*?\b(?P<seconds>\d+\.\d+) seconds",
            kind="gc",
            example="[rank0]:[titan] 2026-11-20 15:53:46,969 - root - INFO - [GC] Initial GC "
            "collection took 0.00 seconds",
            printed_by=UTILS_SOURCE,
        ),
        EventLine(
            anchor=" GC collection",
            regex=r"(?:Initial|Per?forming periodical) GC collection",
            kind="gc",
            example="[titan] 2025-02-20 11:22:33,456 - root - INFO - Peforming periodical GC "
            "collection",
            printed_by="pytorch/torchtitan/torchtitan/utils.py",
            composed=True,
        ),
        EventLine(
            anchor=" memory usage for model: ",
            regex=r"memory usage for model: (?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\)",
            kind="memory",
            example="[rank0]:[titan] 2026-11-20 15:14:48,165 - root - INFO - CPU memory usage for "
            "model: 1.72GiB(7.31%)",
            printed_by=TITAN_TRAINER_SOURCE,
        ),
        EventLine(
            anchor="Peak flops undefined for: ",
            regex=r"Peak flops undefined for: (?P<device>.+?), fallback to (?P<fallback>\w+)",
            kind="warning",
            example="[rank0]:[titan] 2026-11-20 15:14:48,165 - root - WARNING - Peak flops undefined "
            "for: Intel(R) Xeon(R) Processor, fallback to A100",
            printed_by=f"{UTILS_SOURCE} get_peak_flops",
        ),
        EventLine(
            anchor="Number of microbatches (",
            regex=r"Number of microbatches \((?P<microbatches>\d+)\) is less than the total number "
            r"of stages \((?P<stages>\d+)\)",
            kind="warning",
            example="Number of microbatches (4) is less than the total number of stages (8) which "
            "may result in a bubble in the pipeline.",
            printed_by="pytorch/torchtitan/torchtitan/distributed/pipeline.py@f7084fc",
            composed=True,
        ),
        EventLine(
            anchor="memory allocation retries",
            regex=r"(?<!\d)(?P<retries>\d+) \w+ memory allocation retries",
            kind="warning",
            example="[titan] 2026-02-24 11:22:33,456 - root - WARNING - 3 CUDA memory allocation "
            "retries.",
            printed_by=f"{METRICS_SOURCE} DeviceMemoryMonitor",
            composed=True,
        ),
        EventLine(
            anchor=" OOM errors thrown",
            regex=r"(?<!\d)(?P<ooms>\d+) \w+ OOM errors thrown",
            kind="warning",
            example="[titan] 2026-02-24 11:22:33,456 - root - WARNING - 1 CUDA OOM errors thrown.",
            printed_by=f"{METRICS_SOURCE} DeviceMemoryMonitor",
            composed=True,
        ),
        EventLine(
            anchor="should_commit=False ",
            regex=r"should_commit=False enough_replicas=(?P<enough>\w+), errored=(?P<error>.*)",
            kind="warning",
            example="[titan] 2025-07-16 11:22:33,456 - torchft.manager - INFO - [torchtitan_ft_0:"
            "0b57c1de-8a4e-4c5b-9d5e-2f6f5f1f7a10/0 - step 21] should_commit=False "
            "enough_replicas=True, errored=aborted",
            printed_by=f"{TORCHFT_SOURCE}.should_commit",
            composed=True,
        ),
        EventLine(
            anchor="Loss or gradient norm is not finite",
            regex=r"(?P<error>Loss or gradient norm is not finite on at least one rank"
            r"(?: at step (?P<step>\d+))?.*)",
            kind="error",
            example="[rank0]: RuntimeError: Loss or gradient norm is not finite on at least one rank "
            "at step 120. Stopping training before the optimizer update.",
            printed_by=f"{TITAN_TRAINER_SOURCE} train_step",
            composed=True,
        ),
        EventLine(
            anchor="Training starts at step ",
            regex=r"Training starts at step (?P<step>\d+)\.?\s*$",
            kind="train_start",
            example="[rank0]:[titan] 2026-11-20 15:14:48,193 - root - INFO - Training starts at "
            "step 1",
            printed_by=TITAN_TRAINER_SOURCE,
        ),
        EventLine(
            anchor="Training starts at step ",
            regex=r"Training starts at step (?P<step>\d+), with ",
            kind="train_start",
            with_facts=True,  # it printed the batch sizes until 2025-03-27
            example="[rank0]:[titan] 2025-03-20 10:11:02,120 - root - INFO - Training starts at "
            "step 1, with local batch size 2, global batch size 4, sequence length 2048, total "
            "steps 40 (warmup 10)",
            printed_by=TITAN_TRAINER_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Training starts at step {",
            regex=r"Training starts at step \{self\.step \+ 1\}",  # of 2025-03-27 to 29
            kind="train_start",
            example="Training starts at step {self.step + 1}.",
            printed_by="pytorch/torchtitan/torchtitan/train.py",
            composed=True,
        ),
        EventLine(
            anchor="Ran out of data",
            regex=r"Ran out of data; last step was canceled",
            kind="end",
            example="Ran out of data; last step was canceled.",
            printed_by=TITAN_TRAINER_SOURCE,
            composed=True,
        ),
        EventLine(
            anchor="Sleeping ",
            regex=r"Sleeping \d+ seconds? for other ranks to complete",
            kind="end",
            example="[rank0]:[titan] 2026-11-20 15:17:26,306 - root - INFO - Sleeping 2 seconds for "
            "other ranks to complete",
            printed_by=TITAN_TRAINER_SOURCE,
        ),
        EventLine(
            anchor="Training completed",
            regex=r"Training completed",
            kind="end",
            example="[rank0]:[titan] 2026-11-20 15:17:28,306 - root - INFO - Training completed",
            printed_by=TRAIN_SOURCE,
        ),
    ),
    facts=(
        FactLine(
            anchor=" capacity: ",
            regex=r"[\w>] capacity: (?P<accelerator>\S.*?)(?: ?\(\d+\))?"
            r" ?with [\d.]+GiB memory",
            example="[rank0]:[titan] 2026-11-20 15:53:47,038 - root - INFO - CPU capacity: "
            "Intel(R) Xeon(R) Processor with 23.54GiB memory",
            printed_by=f"{METRICS_SOURCE} DeviceMemoryMonitor",
        ),
        FactLine(
            anchor="used for computing MFU",
            regex=r"Peak FLOP[Ss] used for computing MFU: (?P<logged_peak_flops>[\d.]+e\+\d\d)(?!\d)",
            example="[rank0]:[titan] 2026-11-20 15:53:47,308 - root - INFO - Peak FLOPS used for "
            "computing MFU: 3.120e+14",
            printed_by=TRAIN_SOURCE,
        ),
        FactLine(
            anchor="-D device mesh with ",  # a tuple of names until 2024-03
            regex=r"Building \d+-D device mesh with [\[(](?P<names>[^\[\]()]*)[\])], "
            r"\[(?P<degrees>[\d, ]*)\]",
            read=_mesh,
            begins="-D device mesh with ",
            example="Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]",
            printed_by="pytorch/torchtitan/torchtitan/distributed/parallel_dims.py@29624e3",
            composed=True,
        ),
        FactLine(
            anchor="device mesh with parallelism",
            # an absent one was cut off: every version prints these, and others after them
            regex=r"device mesh with parallelism: (?=[\w=, ]*\bdp_shard=\d+,)(?=[\w=, ]*\bcp=\d+,)"
            r"(?=[\w=, ]*\btp=\d+,)(?P<degrees>[\w=, ]+)",
            read=_parallelism_pairs,
            begins="device mesh with parallelism",
            example="[rank0]:[titan] 2026-11-20 15:53:46,957 - root - INFO - Building device mesh "
            "with parallelism: pp=1, dp_replicate=1, dp_shard=2, cp=1, tp=1, ep=1",
            printed_by=PARALLEL_DIMS_SOURCE,
        ),
        EZPZ_GPUS,
        FactLine(
            anchor="reconfiguring for quorum_id=",
            regex=r"\[torchtitan_ft_(?P<replica_group>\d{1,9}):\S{1,99} - step \d{1,19}\] "
            r"reconfiguring for quorum_id=",
            example="[titan] 2025-07-16 11:22:33,456 - torchft.manager - INFO - [torchtitan_ft_1:"
            "0b57c1de-8a4e-4c5b-9d5e-2f6f5f1f7a10/0 - step 0] reconfiguring for quorum_id=1 "
            "store_prefixed_addr='node1:33745/torchft/1/0'",
            printed_by=f"{TORCHFT_SOURCE} _async_quorum",
            composed=True,
        ),
        FactLine(
            anchor="total parameters",
            regex=r"Model (?P<model>\S+ \S+) +size: (?P<params_total>[\d,]+) total parameters",
            example="[rank0]:[titan] 2026-11-20 15:53:47,039 - root - INFO - Model llama3 debugmodel "
            "size: 6,163,712 total parameters",
            printed_by=TRAIN_SOURCE,
        ),
        FactLine(
            anchor="Building ",
            regex=r"Building (?P<model>\S+ \S+) with \w*Args\((?P<arguments>.*)\)",
            read=_model_arguments,
            example="Building llama3 8B with TransformerModelArgs(_enforced='This field is used to "
            "enforce all fields have defaults.', dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, "
            "vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05)",
            printed_by=TRAIN_SOURCE,
            composed=True,
        ),
        FactLine(
            anchor="local batch size",
            regex=r"local batch size:? (?P<micro_batch_size>\d+), "
            r"(?:global batch size (?P<global_batch_size>\d+), )?"
            r"(?:gradient[ _]accumulation[ _]steps:? (?P<gradient_accumulation>\d+), )?"
            # a terminal wraps after the comma
            r"sequence length:? (?P<seq_len>\d+),(?: total steps:? (?P<total_steps>\d++)(?!$))?",
            begins="Trainer is initialized with ",
            example="[rank0]:[titan] 2026-11-20 15:53:47,342 - root - INFO - Trainer is initialized "
            "with local batch size 2, global batch size 4, gradient accumulation steps 1, "
            "sequence length 256, total steps 60 (warmup 2)",
            printed_by=TRAIN_SOURCE,
        ),
        FactLine(
            anchor="total steps ",
            regex=r"^\s*total steps (?P<total_steps>\d+) \(warmup \d+\)\s*$",
            example="total steps 10000 (warmup 200)",
            printed_by=TRAIN_SOURCE,
            composed=True,  # the rest of the line above, broken after its comma
        ),
        FactLine(
            anchor=" tokens per DP rank, ",
            regex=r"initialized with (?P<rank_tokens>\d+) tokens per DP rank, "
            r"(?P<step_tokens>\d+) tokens per train step, "
            r"gradient accumulation steps (?P<gradient_accumulation>\d+), "
            r"maximum context length (?P<seq_len>\d+), total steps (?P<total_steps>\d++)(?!$)",
            begins="Trainer is initialized with ",
            read=_token_batch,
            example="Trainer is initialized with 16384 tokens per DP rank, 131072 tokens per train "
            "step, gradient accumulation steps 1, maximum context length 8192, total steps 1000 "
            "(warmup 200)",
            printed_by=TITAN_TRAINER_SOURCE,
            composed=True,
        ),
        *FLAME_HEADER,
        FactLine(
            anchor="activation checkpointing to the model",
            regex=r"Applied (?:full|FullAC) activation checkpointing to the model",
            constants={"recompute": "full"},
            example="Applied full activation checkpointing to the model",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
            composed=True,
        ),
        FactLine(
            anchor=" activation checkpointing ",  # the latter is the graph trainer's
            regex=r"Applied (?:selective|SelectiveAC) activation checkpointing "
            r"(?:to the model|\(SAC\) graph pass)",
            constants={"recompute": "selective"},
            example="[rank0]:[titan] 2026-11-20 15:53:47,049 - root - INFO - Applied SelectiveAC "
            "activation checkpointing to the model",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
        ),
        FactLine(
            anchor="torch.compile",
            regex=r"Compil(?:ed|ing) (?:each TransformerBlock|model(?: \S+)?) with torch\.compile",
            constants={"compile": "true"},
            example="Compiling each TransformerBlock with torch.compile",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
            composed=True,
        ),
        FactLine(
            anchor="loat8",
            regex=r"(?P<quantization>Float8 .*training active.*"
            rf"|{SWAPPED}(?:.* )?[Ff]loat8 ?[Ll]inear layers.*)",
            example="Float8 tensorwise scaled training active",
            printed_by="pytorch/torchtitan/torchtitan/components/quantization/float8.py@81af883",
            composed=True,
        ),
        FactLine(
            anchor="MX",
            regex=r"(?P<quantization>MX(?:FP8)? (?:MoE )?training (?:active|enabled).*"
            rf"|{SWAPPED}MXLinear layers.*)",
            example="MX training active with recipe mxfp8_cublas",
            printed_by="pytorch/torchtitan/torchtitan/components/quantization/mx.py@81af883",
            composed=True,
        ),
        FactLine(
            anchor="Converted ",
            regex=r"(?P<quantization>Converted (?:Linear layers to \w+"
            r"|MoE layers matching FQNS .*|\w+(?: \w+){0,8} to use dynamic \w.*quantization.*"
            r"|MoE to float8.*))",
            example="Converted Linear layers to MXFP8Linear",
            printed_by="pytorch/torchtitan/torchtitan/components/quantization/mx.py@b5bcd76",
            composed=True,
        ),
        FactLine(
            anchor="Applied ",
            regex=r"Applied (?:FSDP|HSDP|fully_shard|Data Parallel \(simple_fsdp\)"
            r"(?: \(dp mode=\w+\))?) to the model",
            constants={"precision": "bf16"},
            inferred="Torchtitan's default under FSDP (mixed_precision_param bfloat16), not printed",
            example="[rank0]:[titan] 2026-11-20 15:53:47,087 - root - INFO - Applied FSDP to the "
            "model",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
        ),
        FactLine(
            anchor="Applied ",
            regex=r"Applied (?P<mixed_precision>FSDP|HSDP|fully_shard|Data Parallel(?= \())"
            r"(?: \([^)]{1,40}\)){0,2} to the model",  # the last is SimpleFSDP's
            example="[rank0]:[titan] 2026-11-20 15:53:47,087 - root - INFO - Applied FSDP to the "
            "model",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
        ),
        FactLine(
            anchor="Applied DDP to the model",
            regex="Applied DDP to the model",
            constants={"mixed_precision": "none"},
            inferred=NO_MIXED_PRECISION_NOTE,
            example="Applied DDP to the model",
            printed_by="pytorch/torchtitan/torchtitan/parallelisms/parallelize_llama.py@004b314",
            composed=True,
        ),
        FactLine(
            anchor="-D device mesh with ",
            regex=r"Building \d+-D device mesh with [\[(]"
            r"(?:'(?:dp_replicate|tp|sp|pp)'(?:, ?)?){0,4}[\])], \[[\d, ]*\]",
            begins="-D device mesh with ",
            constants={"mixed_precision": "none"},
            inferred=NO_MIXED_PRECISION_NOTE,
            example="Building 1-D device mesh with ['dp_replicate'], [8]",
            printed_by="pytorch/torchtitan/torchtitan/distributed/parallel_dims.py@29624e3",
            composed=True,
        ),
        FactLine(
            anchor="AC activation checkpointing to the model",
            regex=r"Applied \w+AC activation checkpointing to the model",
            constants={"document_mask": "true"},
            inferred=DOCUMENT_MASK_NOTE,
            example="[rank0]:[titan] 2026-11-20 15:53:47,049 - root - INFO - Applied SelectiveAC "
            "activation checkpointing to the model",
            printed_by="pytorch/torchtitan/torchtitan/distributed/activation_checkpoint.py@b5bcd76",
        ),
        FactLine(
            anchor=" tokens per DP rank, ",
            regex=r"initialized with \d+ tokens per DP rank, ",
            constants={"document_mask": "true"},
            inferred=DOCUMENT_MASK_NOTE,
            example="Trainer is initialized with 16384 tokens per DP rank, 131072 tokens per train "
            "step, gradient accumulation steps 1, maximum context length 8192, total steps 1000 "
            "(warmup 200)",
            printed_by="pytorch/torchtitan/torchtitan/models/common/config_utils.py@b5bcd76",
            composed=True,
        ),
        FactLine(
            anchor="Mixed precision training is handled by",
            regex=r"Mixed precision training is handled by (?:AMP|fully_shard|FSDP)",
            constants={"precision": "bf16"},
            inferred="Torchtitan's default of mixed_precision_param is bfloat16; it is not printed",
            example="[rank0]:[titan] 2026-11-20 15:35:21,880 - root - INFO - Mixed precision "
            "training is handled by AMP",
            printed_by="pytorch/torchtitan/torchtitan/distributed/utils.py@73a0e69",
            composed=True,
        ),
        FactLine(
            anchor="Mixed precision training is handled by",
            regex=r"Mixed precision training is handled by (?P<mixed_precision>AMP|fully_shard|FSDP)",
            example="[rank0]:[titan] 2026-11-20 15:35:21,880 - root - INFO - Mixed precision "
            "training is handled by AMP",
            printed_by="pytorch/torchtitan/torchtitan/distributed/utils.py@73a0e69",
            composed=True,
        ),
        FactLine(
            anchor="Mixed precision training is disabled",
            regex=r"Mixed precision training is disabled",
            constants={"precision": "fp32"},
            example="Mixed precision training is disabled",
            printed_by="pytorch/torchtitan/torchtitan/distributed/utils.py@73a0e69",
            composed=True,
        ),
        FactLine(
            anchor="Running with ",
            regex=r"Running with (?:args|configs): (?P<config>\{.*\})\s*$",
            read=_config_line,
            example="Running with args: {'metrics': {'log_freq': 10}, 'training': {'batch_size': 8, "
            "'seq_len': 8192, 'mixed_precision_param': 'bfloat16', 'compile': False}, "
            "'activation_checkpoint': {'mode': 'selective', 'selective_ac_option': 'op'}}",
            printed_by="pytorch/torchtitan/torchtitan/train.py@f7084fc",
            composed=True,
        ),
        *(
            FactLine(
                anchor=anchor,
                regex=rf"(?P<command>{start}.*[^\\\s])\s*$",
                read=_command_line,
                of_any_file=True,
                example=example,
                printed_by="pytorch/torchtitan/run_train.sh@b5bcd76",
                composed=True,
            )
            for anchor, start, example in (
                (
                    "torchrun",
                    COMMAND_START,
                    "+ torchrun --nproc_per_node=8 --role rank --tee 3 -m torchtitan.train "
                    "--job.config_file ./llama3_8b.toml --training.seq_len 8192",
                ),
                (
                    "run_train.sh",
                    COMMAND_START,
                    'CONFIG_FILE="./llama3_8b.toml" NGPU=4 ./run_train.sh --training.seq_len=4096',
                ),
                (
                    "-m torchtitan",
                    MODULE_START,
                    "mpiexec --np=24 --ppn=12 python3 -m torchtitan.train --training.seq_len 8192",
                ),
            )
        ),
        FactLine(
            anchor="replaced dataloader with ",
            regex=r"\breplaced dataloader with \w+ \(.*\bseq_len=(?P<seq_len>\d{1,9})\)",
            example=REPLACED_LOADER,
            printed_by=REPLACED_LOADER_SOURCE,
            composed=True,
        ),
        FactLine(
            anchor="replaced dataloader with ",
            regex=r"\breplaced dataloader with ",
            constants={"packed": "false"},
            inferred="The data loader was replaced by one that need not fill a sample",
            example=REPLACED_LOADER,
            printed_by=REPLACED_LOADER_SOURCE,
            composed=True,
        ),
        FactLine(
            anchor="Preparing ",
            regex=r"Preparing (?:c4|c4_test) dataset",
            constants={"packed": "true"},
            inferred="Torchtitan's text data set fills every sample to seq_len",
            example="[rank0]:[titan] 2026-11-20 15:53:47,312 - root - INFO - Preparing c4_test "
            "dataset from /data/fm/assets_tt/corpus",
            printed_by="pytorch/torchtitan/torchtitan/hf_datasets/text_datasets.py@b5bcd76",
        ),
        FactLine(
            anchor="torchtitan version: ",
            regex=r"torchtitan version: (?P<framework_version>\S+)",
            example="[rank0]:[titan] 2026-11-20 15:53:46,762 - root - INFO - torchtitan version: "
            "0.3.0 (0.0.0 means __version__ is not defined correctly).",
            printed_by=TRAIN_SOURCE,
        ),
        FactLine(
            anchor="torchtitan version: ",
            regex=r"torchtitan version: (?:0\.(?:[3-9]|\d\d)|[1-9]\d*\.\d+)\.\d",
            constants={"document_mask": "true"},
            inferred=DOCUMENT_MASK_NOTE,
            example="[rank0]:[titan] 2026-11-20 15:53:46,762 - root - INFO - torchtitan version: "
            "0.3.0 (0.0.0 means __version__ is not defined correctly).",
            printed_by="pytorch/torchtitan/torchtitan/models/common/config_utils.py@b5bcd76",
        ),
        FactLine(
            anchor="LoRA training active",
            regex=r"LoRA training active with rank=(?P<lora_rank>\d+), alpha=[\d.e+-]+(?P<on>.*)",
            read=_adapters,
            example="LoRA training active with rank=8, alpha=16.0, target_modules=['wq', 'wv']",
            printed_by="pytorch/torchtitan/torchtitan/components/lora.py LoRAConverter.__init__",
            composed=True,
        ),
        FactLine(
            anchor="Optimizer ",
            regex=r"Optimizer (?P<optimizer>\w+) \(model_part=\d+\): ",
            example="[rank0]:[titan] 2026-11-20 15:14:48,166 - root - INFO - Optimizer AdamW "
            "(model_part=0): 83 params [.*] {'fused': True, 'foreach': False, 'lr': 0.0003, "
            "'betas': (0.9, 0.95), 'eps': 1e-08, 'weight_decay': 0.1}",
            printed_by="pytorch/torchtitan/torchtitan/components/optimizer.py@b5bcd76",
        ),
        *KNOWN_LINES,
        *SOFTWARE_LINES,
    ),
    blocks=(
        FactBlock(
            start=r"Running with (?:args|configs): \{\s*$",
            end=RECORD_HEAD,
            braces=True,
            read=_config_block,
            max_lines=100_000,  # some 130 per layer
            example=(
                "[rank0]:[titan] 2026-11-20 15:14:04,329 - root - INFO - Running with configs: {",
                '[rank0]:  "metrics": {',
                '[rank0]:    "log_freq": 10',
                "[rank0]:  },",
                '[rank0]:  "training": {',
                '[rank0]:    "local_batch_size": 4,',
                '[rank0]:    "seq_len": 256,',
                '[rank0]:    "mixed_precision_param": "bfloat16"',
                "[rank0]:  },",
                '[rank0]:  "compile": {',
                '[rank0]:    "enable": false',
                "[rank0]:  }",
                "[rank0]:}",
            ),
            printed_by="pytorch/torchtitan/torchtitan/trainer.py@b5bcd76",
        ),
        FactBlock(
            start=rf"(?:{COMMAND_START}|{MODULE_START}).*\\\s*$",
            end=r"^(?!.*\bstep[:=]).*[^\\\s]\s*$|^\s*$",
            include_start=True,
            include_end=True,
            read=_command_block,
            of_any_file=True,
            max_lines=40,
            example=(
                "NGPU=2 LOG_RANK=0 ./run_train.sh \\",
                "--training.seq_len 2048 \\",
                "--training.local_batch_size 4",
            ),
            printed_by="pytorch/torchtitan/run_train.sh@b5bcd76",
        ),
        FactBlock(
            start=r"Building \S+ \S+? ?with \{\s*$",
            end=RECORD_HEAD,
            braces=True,
            read=_json_arguments,
            include_start=True,
            max_lines=100_000,  # some 60 per layer
            example=(
                "[rank0]:[titan] 2026-11-20 15:33:45,854 - root - INFO - Building llama3 "
                "debugmodelwith {",
                '[rank0]:  "dim": 256,',
                '[rank0]:  "n_layers": 6',
                "[rank0]:}",
            ),
            printed_by=TRAIN_SOURCE,
        ),
    ),
)
