"""Torchtitan's console log: all step lines from `wps` (2024-03) to `mfu: N/A` (2026-02).

`tps` (once `wps`) is tokens per second per device over all token slots since the last logged or
validated step, so it speaks of an interval: of nine steps at step 10, and of start-up at step 1.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ingest.log_format import GIB, PERCENT, Block, EventLine, FactLine, LogFormat, StepLine

METRICS: Final = "pytorch/torchtitan/torchtitan/components/metrics.py@b5bcd76"
TRAIN: Final = "pytorch/torchtitan/torchtitan/train.py@81af883"
UTILS: Final = "pytorch/torchtitan/torchtitan/tools/utils.py@b5bcd76"
PARALLEL: Final = "pytorch/torchtitan/torchtitan/distributed/parallel_dims.py@b5bcd76"
DOCUMENTS_SINCE: Final = (
    "Torchtitan's language models mask documents since 2026-06 (PR #3571, Flex and block_causal)"
)


def _mesh(names_and_degrees: Mapping[str, str]) -> dict[str, str]:
    """Facts of `Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]`."""
    names = re.findall(r"\w+", names_and_degrees["names"])
    degrees = [int(n) for n in re.findall(r"\d+", names_and_degrees["degrees"])]
    return _parallelism(dict(zip(names, degrees, strict=False)))


def _parallelism_pairs(pairs: Mapping[str, str]) -> dict[str, str]:
    """Facts of `parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1, etp=1`."""
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
    return {
        "gpus": str(world),
        "data_parallel": str(data),
        "tensor_parallel": str(degrees.get("tp", degrees.get("sp", 1))),
        "pipeline_parallel": str(degrees.get("pp", 1)),
        "context_parallel": str(degrees.get("cp", 1)),
    }


def _model_arguments(groups: Mapping[str, str]) -> dict[str, str]:
    """`ModelArgs(dim=4096, n_layers=32, …)` as facts; nested arguments stay text."""
    pairs = re.findall(r"(\w+)=('[^']*'|[^,()\s]+)", groups["arguments"])
    flat = {name: value.strip("'") for name, value in pairs}
    facts = {"model": groups["model"], "torchtitan_arguments": json.dumps(flat)}
    return facts | _attention(flat)


def _json_arguments(lines: Sequence[str]) -> dict[str, str]:
    """`Building llama3 8Bwith {` and the JSON lines behind it, up to the closing brace."""
    head = re.search(r"Building (\S+ \S+?) ?with \{", lines[0])
    values = _json_object(lines[1:])
    if head is None or not values:
        return {}
    flat = {k: "None" if v is None else str(v) for k, v in values.items() if _is_scalar(v)}
    facts = {"model": head[1], "torchtitan_arguments": json.dumps(flat)}
    return facts | _attention(values)


def _json_object(lines: Sequence[str]) -> dict[str, Any]:
    """The object whose opening brace stands before `lines`; empty where it is damaged."""
    body = "{" + "\n".join(re.sub(r"^\s*(?:\[\w+\]:|\d+: )", "", line) for line in lines)
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _is_scalar(value: object) -> bool:
    return not isinstance(value, (dict, list))


def _items(value: object) -> Iterator[tuple[str, object]]:
    """Every key with its value, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key), inner
            yield from _items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _items(inner)


def _attention(values: Mapping[str, Any]) -> dict[str, str]:
    """What a printed config says of attention, where all of its layers say the same.

    `block_causal` stops at document borders; `varlen` takes no other mask.
    """
    found = list(_items(values))
    backends = {str(v) for k, v in found if k in ("attn_backend", "attn_type") and v}
    if any(k == "inner_attention" and "kernel_options" in dict(_items(v)) for k, v in found):
        backends.add("flex")
    if flex := {str(v) for k, v in found if k == "use_flex_attn"}:
        backends.add("flex" if flex == {"True"} else "sdpa")
    masks = {str(v) for k, v in found if k == "attn_mask_type"}
    facts = {"attention": backends.pop()} if len(backends) == 1 else {}
    if masks <= {"causal", "block_causal"} and len(masks) == 1:
        facts["document_mask"] = "true" if "block_causal" in masks else "false"
    elif not masks and facts.get("attention") == "varlen":
        facts["document_mask"] = "true"
    return facts


NUMBERS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "log_interval": (("metrics", "log_freq"),),
    "seq_len": (("training", "seq_len"),),
    "micro_batch_size": (("training", "local_batch_size"), ("training", "batch_size")),
    "global_batch_size": (("training", "global_batch_size"),),
    "total_steps": (("training", "steps"),),
    "tensor_parallel": (
        ("parallelism", "tensor_parallel_degree"),
        ("training", "tensor_parallel_degree"),
    ),
    "pipeline_parallel": (
        ("parallelism", "pipeline_parallel_degree"),
        ("experimental", "pipeline_parallel_degree"),
    ),
    "context_parallel": (
        ("parallelism", "context_parallel_degree"),
        ("experimental", "context_parallel_degree"),
    ),
    "expert_parallel": (("parallelism", "expert_parallel_degree"),),
}
"""Fact: where it stands in the job config, newer name first."""

DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
QUANTIZED: Final = re.compile(r"float8|fp8|mx|nvfp4|quantize|torchao", re.IGNORECASE)


def job_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Facts of the job config, by the names of 2024-12 to 0.3.0."""
    facts: dict[str, str] = {}
    for fact, places in NUMBERS.items():
        numbers = (_section(config, section).get(key) for section, key in places)
        given = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n > 0]
        if given:
            facts[fact] = str(given[0])
    if quantized := _converters(config):
        facts["quantization"] = quantized
    elif dtype := DTYPES.get(str(_section(config, "training").get("mixed_precision_param"))):
        facts["precision"] = dtype
    recompute = _section(config, "activation_checkpoint").get("mode")
    if recompute in ("none", "full", "selective"):
        facts["recompute"] = str(recompute)
    elif "activation_checkpoint" in config and config["activation_checkpoint"] is None:
        facts["recompute"] = "none"
    places = (("compile", "enable"), ("training", "compile"))
    compiled = [_section(config, section).get(key) for section, key in places]
    if said := [value for value in compiled if isinstance(value, bool)]:
        facts["compile"] = str(said[0]).lower()
    return facts | _attention(config)


def _converters(config: Mapping[str, Any]) -> str:
    """What the config quantizes: then no one dtype is that of all matmuls."""
    if _section(config, "float8").get("enable_float8_linear") is True:
        return "float8.enable_float8_linear"
    listed = _section(config, "model").get("converters")
    names = listed if isinstance(listed, list) else str(listed or "").split(",")
    built = (k for k, v in _items(_section(config, "model_spec").get("model")) if v)
    return ", ".join(sorted({str(n) for n in (*names, *built) if QUANTIZED.search(str(n))}))


def _section(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _config_line(groups: Mapping[str, str]) -> dict[str, str]:
    """`Running with args: {…}` on one line: a Python dict, read as literals and never executed."""
    try:
        config = ast.literal_eval(groups["config"])
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return {}
    return job_config(config) if isinstance(config, dict) else {}


def _config_block(lines: Sequence[str]) -> dict[str, str]:
    """`Running with configs: {` and the JSON lines behind it, but the closing brace."""
    return job_config(_json_object([*lines, "}"]))


TORCHTITAN: Final = LogFormat(
    name="torchtitan",
    framework="torchtitan",
    versions="2024-03 … 0.3.0",
    signature=r"step: *\d+ +loss:(?: *$| +\S+ +(?:grad_norm:|m?memory:|wps:))",
    looks_like_step=r"(?:^|[^e] |\W)step: *\d+ +loss:",
    noise=r"\x1b?\[(?:\d+;)*\d*m",
    clock=r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})",
    launch=r"Starting job: |device mesh with|Peak FLOP[Ss] used for computing MFU"
    r"|torchtitan version: |Running with (?:args|configs): \{",
    evidence=("rate", "stamp"),
    rate_covers="interval",
    implies={"trainable": ("full", "Torchtitan trains every weight unless a fork freezes some")},
    steps=(
        StepLine(
            anchor="step:",
            regex=r"step: *(?P<step>\d+) +loss: +(?P<loss>\S+) +(?:grad_norm: +(?P<grad_norm>\S+) +)?"
            r"m?memory: +(?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\)"
            r"(?: +(?:wps|tps): +(?P<tps>[\d,]+))(?: +tflops: +(?P<tflops>[\d.,]+))?"
            r"(?: +mfu: +(?P<mfu>N/A|[\d.]+%))?",
            columns={
                "step": "step",
                "loss": "loss",
                "grad_norm": "grad_norm",
                "memory": ("peak_memory_bytes", GIB),
                "tps": "logged_tgs",
                "tflops": "logged_tflops",
                "mfu": ("logged_mfu", PERCENT),
            },
            example="[rank0]:[titan] 2026-11-20 15:34:16,731 - root - INFO - step: 10  "
            "loss:  6.27853  grad_norm:  2.7734  memory:  0.71GiB(3.00%)  tps: 415  "
            "tflops: 0.02  mfu: 0.01%",
            printed_by=f"{METRICS} MetricsProcessor.log",
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
            printed_by=f"{METRICS} MetricsProcessor.log, cut before tps",
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor="validate step:",
            regex=r"validate step: *(?P<step>\d+)",
            kind="evaluation",
            example="[rank0]:[titan] 2026-11-20 15:26:21,417 - root - INFO - validate step:  1  "
            "loss:  8.1289  memory:  0.70GiB(2.99%)  tps: 4,331",
            printed_by=f"{METRICS} MetricsProcessor.log_validation",
            composed=True,
        ),
        EventLine(
            anchor="ing the checkpoint",
            regex=r"(?:Sav|Stag)ing the checkpoint",
            kind="checkpoint",
            example="Saving the checkpoint (or staging if async is enabled).",
            printed_by="pytorch/torchtitan/torchtitan/components/checkpoint.py@81af883",
            composed=True,
        ),
        EventLine(
            anchor="Finished ",
            regex=r"Finished (?:saving|staging) the checkpoint.*?in (?P<seconds>[\d.]+) seconds",
            kind="checkpoint",
            example="Finished saving the checkpoint (or staging if async is enabled)in 0.04 seconds.",
            printed_by="pytorch/torchtitan/torchtitan/components/checkpoint.py@81af883",
            composed=True,
        ),
        EventLine(
            anchor="Dumping ",
            regex=r"Dumping (?:profiler )?traces at step (?P<step>\d+)",
            kind="profiler",
            example="Dumping profiler traces at step 10",
            printed_by="pytorch/torchtitan/torchtitan/tools/profiling.py@81af883",
            composed=True,
        ),
        EventLine(
            anchor="[GC] ",
            regex=r"\[GC\] .*?(?P<seconds>\d+\.\d+) seconds",
            kind="gc",
            example="[rank0]:[titan] 2026-11-20 15:53:46,969 - root - INFO - [GC] Initial GC "
            "collection took 0.00 seconds",
            printed_by=UTILS,
        ),
        EventLine(
            anchor="Training completed",
            regex=r"Training completed",
            kind="end",
            example="Training completed",
            printed_by=TRAIN,
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor=" capacity: ",
            regex=r"[\w>] capacity: (?P<accelerator>\S.*?)(?: ?\(\d+\))?"
            r" ?with [\d.]+GiB memory",
            example="[rank0]:[titan] 2026-11-20 15:53:47,038 - root - INFO - CPU capacity: "
            "Intel(R) Xeon(R) Processor with 23.54GiB memory",
            printed_by=f"{METRICS} DeviceMemoryMonitor",
        ),
        FactLine(
            anchor="used for computing MFU",
            regex=r"Peak FLOP[Ss] used for computing MFU: (?P<logged_peak_flops>[\d.e+]+)",
            example="[rank0]:[titan] 2026-11-20 15:53:47,308 - root - INFO - Peak FLOPS used for "
            "computing MFU: 3.120e+14",
            printed_by=TRAIN,
        ),
        FactLine(
            anchor="device mesh with [",
            regex=r"Building \d+-D device mesh with \[(?P<names>.*?)\], \[(?P<degrees>.*?)\]",
            read=_mesh,
            example="Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]",
            printed_by="pytorch/torchtitan/torchtitan/distributed/parallel_dims.py@29624e3",
            composed=True,
        ),
        FactLine(
            anchor="device mesh with parallelism",
            regex=r"device mesh with parallelism: (?P<degrees>[\w=, ]+)",
            read=_parallelism_pairs,
            example="[rank0]:[titan] 2026-11-20 15:53:46,957 - root - INFO - Building device mesh "
            "with parallelism: pp=1, dp_replicate=1, dp_shard=2, cp=1, tp=1, ep=1",
            printed_by=PARALLEL,
        ),
        FactLine(
            anchor="total parameters",
            regex=r"Model (?P<model>\S+ \S+) +size: (?P<params_total>[\d,]+) total parameters",
            example="[rank0]:[titan] 2026-11-20 15:53:47,039 - root - INFO - Model llama3 debugmodel "
            "size: 6,163,712 total parameters",
            printed_by=TRAIN,
        ),
        FactLine(
            anchor="Building ",
            regex=r"Building (?P<model>\S+ \S+) with \w*Args\((?P<arguments>.*)\)",
            read=_model_arguments,
            example="Building llama3 8B with TransformerModelArgs(_enforced='This field is used to "
            "enforce all fields have defaults.', dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, "
            "vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05)",
            printed_by=TRAIN,
            composed=True,
        ),
        FactLine(
            anchor="local batch size",
            regex=r"local batch size:? (?P<micro_batch_size>\d+), "
            r"(?:global batch size (?P<global_batch_size>\d+), )?"
            r"(?:gradient accumulation steps (?P<gradient_accumulation>\d+), )?"
            r"sequence length:? (?P<seq_len>\d+), total steps:? (?P<total_steps>\d+)",
            example="[rank0]:[titan] 2026-11-20 15:53:47,342 - root - INFO - Trainer is initialized "
            "with local batch size 2, global batch size 4, gradient accumulation steps 1, "
            "sequence length 256, total steps 60 (warmup 2)",
            printed_by=TRAIN,
        ),
        FactLine(
            anchor="activation checkpointing to the model",
            regex=r"Applied (?:full|FullAC) activation checkpointing to the model",
            constants={"recompute": "full"},
            example="Applied full activation checkpointing to the model",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
            composed=True,
        ),
        FactLine(
            anchor="activation checkpointing to the model",
            regex=r"Applied (?:selective|SelectiveAC) activation checkpointing to the model",
            constants={"recompute": "selective"},
            example="[rank0]:[titan] 2026-11-20 15:53:47,049 - root - INFO - Applied SelectiveAC "
            "activation checkpointing to the model",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
        ),
        FactLine(
            anchor="torch.compile",
            regex=r"Compil(?:ed|ing) (?:each TransformerBlock|model) with torch.compile",
            constants={"compile": "true"},
            example="Compiling each TransformerBlock with torch.compile",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
            composed=True,
        ),
        FactLine(
            anchor="Float8",
            regex=r"(?P<quantization>Float8 .*training active.*|Swapped to Float8Linear layers.*)",
            example="Float8 tensorwise scaled training active",
            printed_by="pytorch/torchtitan/torchtitan/components/quantization/float8.py@81af883",
            composed=True,
        ),
        FactLine(
            anchor="MX",
            regex=r"(?P<quantization>MX(?:FP8)? (?:MoE )?training (?:active|enabled).*)",
            example="MX training active with recipe mxfp8_cublas",
            printed_by="pytorch/torchtitan/torchtitan/components/quantization/mx.py@81af883",
            composed=True,
        ),
        FactLine(
            anchor="Converted ",
            regex=r"(?P<quantization>Converted (?:Linear layers to \w+"
            r"|GroupedExperts to use dynamic \w+.*quantization.*))",
            example="Converted Linear layers to MXFP8Linear",
            printed_by="pytorch/torchtitan/torchtitan/components/quantization/mx.py@b5bcd76",
            composed=True,
        ),
        FactLine(
            anchor="Applied ",
            regex=r"Applied (?:FSDP|HSDP|fully_shard) to the model",
            constants={"precision": "bf16"},
            inferred="Torchtitan's default under FSDP (mixed_precision_param bfloat16), not printed",
            example="[rank0]:[titan] 2026-11-20 15:53:47,087 - root - INFO - Applied FSDP to the "
            "model",
            printed_by="pytorch/torchtitan/torchtitan/models/llama3/infra/parallelize.py@81af883",
        ),
        FactLine(
            anchor="AC activation checkpointing to the model",
            regex=r"Applied \w+AC activation checkpointing to the model",
            constants={"document_mask": "true"},
            inferred=DOCUMENTS_SINCE,
            example="[rank0]:[titan] 2026-11-20 15:53:47,049 - root - INFO - Applied SelectiveAC "
            "activation checkpointing to the model",
            printed_by="pytorch/torchtitan/torchtitan/distributed/activation_checkpoint.py@b5bcd76",
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
        FactLine(
            anchor="Preparing ",
            regex=r"Preparing (?:c4|c4_test|c4_validation) dataset",
            constants={"packed": "true"},
            example="[rank0]:[titan] 2026-11-20 15:53:47,312 - root - INFO - Preparing c4_test "
            "dataset from /data/fm/assets_tt/corpus",
            printed_by="pytorch/torchtitan/torchtitan/hf_datasets/text_datasets.py@b5bcd76",
        ),
        FactLine(
            anchor="torchtitan version: ",
            regex=r"torchtitan version: (?P<framework_version>\S+)",
            example="[rank0]:[titan] 2026-11-20 15:53:46,762 - root - INFO - torchtitan version: "
            "0.3.0 (0.0.0 means __version__ is not defined correctly).",
            printed_by=TRAIN,
        ),
        FactLine(
            anchor="torchtitan version: ",
            regex=r"torchtitan version: (?:0\.(?:[3-9]|\d\d)|[1-9]\d*\.\d+)\.\d",
            constants={"document_mask": "true"},
            inferred=DOCUMENTS_SINCE,
            example="[rank0]:[titan] 2026-11-20 15:53:46,762 - root - INFO - torchtitan version: "
            "0.3.0 (0.0.0 means __version__ is not defined correctly).",
            printed_by="pytorch/torchtitan/torchtitan/models/common/config_utils.py@b5bcd76",
        ),
    ),
    blocks=(
        Block(
            start=r"Running with (?:args|configs): \{\s*$",
            end=r"^\s*(?:\[\w+\]:|\d+: )?\}\s*$| - (?:INFO|WARNING|ERROR) - ",
            read=_config_block,
            most_lines=100_000,  # some 130 for each layer
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
        Block(
            start=r"Building \S+ \S+? ?with \{$",
            end=r"^(?:\[\w+\]:)?\}",
            read=_json_arguments,
            include_start=True,
            include_end=True,
            example=(
                "[rank0]:[titan] 2026-11-20 15:33:45,854 - root - INFO - Building llama3 "
                "debugmodelwith {",
                '[rank0]:  "dim": 256,',
                '[rank0]:  "n_layers": 6',
                "[rank0]:}",
            ),
            printed_by=TRAIN,
        ),
    ),
)
