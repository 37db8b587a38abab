"""The DeepSpeed engine: step lines, throughput timer (0.8 and later), pipeline lines, config dump.

The engine knows samples only: tokens need `seq_len` from elsewhere. `CurrSamplesPerSec` counts all
GPUs and leaves data loading out; the stamps of the lines hold it, so they are preferred. Under
Megatron without pipeline the timer times one micro-batch only and is never used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ingest.log_format import ENGINE, EventLine, FactLine, LogFormat, StepLine

TIMER: Final = "deepspeedai/DeepSpeed/deepspeed/utils/timer.py@edaa722"
ENGINE_SOURCE: Final = "deepspeedai/DeepSpeed/deepspeed/runtime/engine.py@edaa722"
CONFIG: Final = "deepspeedai/DeepSpeed/deepspeed/runtime/config.py@edaa722"
LAUNCHER: Final = "deepspeedai/DeepSpeed/deepspeed/launcher/launch.py@edaa722"
DUMP: Final = r"\[config\.py:\d+:print\]   "


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """The first learning rate stands for the others; `[0.001, 0.001]` has one a parameter group."""
    rates = printed.get("lr", "").split(",")[0].strip("[] ")
    if rates:
        row["learning_rate"] = float(rates)


def _enabled(old: str, new: str, precision: str) -> FactLine:
    """A precision of the config dump: `bfloat16_enabled` until 0.17, then `bfloat16_config`."""
    return FactLine(
        anchor="[config.py:",
        regex=rf"{DUMP}(?:{old} \.+ True|{new} \.+ enabled=True)",
        constants={"precision": precision},
        example=f"[2026-11-20 15:01:22,507] [INFO] [config.py:678:print]   {new} "
        f"{'.' * (29 - len(new))} enabled=True immediate_grad_update=False",
        printed_by=f"{CONFIG} DeepSpeedConfig.print",
    )


def _key(name: str, fact: str, value: str = r"\d+") -> FactLine:
    """A key of the config dump; keys of 29 characters and more have no dots."""
    dots = "." * (29 - len(name))
    return FactLine(
        anchor=f"  {name} ",
        regex=rf"{DUMP}{name} (?:\.+)? ?(?P<{fact}>{value})$",
        example=f"[2026-11-20 15:01:22,508] [INFO] [config.py:678:print]   {name} {dots} 2",
        printed_by=f"{CONFIG} DeepSpeedConfig.print",
    )


DEEPSPEED: Final = LogFormat(
    name="deepspeed",
    framework="deepspeed",
    versions="engine 0.8 … 0.19, pipeline engine",
    signature=r"step=[1-9]\d*, skipped=\d+, lr=|/global_step=\d+, RunningAvgSamplesPerSec="
    r"|\d/\d+, (?:RunningAvg)?SamplesPerSec=|\bsteps: \d+ loss: \S+ .*iter time \(s\)",
    looks_like_step=r"step=\d+, skipped=|\d/(?:\d+|micro_step=\d+/global_step=\d+), "
    r"(?:RunningAvg)?SamplesPerSec=|\bsteps: \d+ loss: \S+ .*iter time",
    clock=r"\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]",
    launch=r"\[launch\.py:\d+:main\] dist_world_size|\[runner\.py:\d+:main\] cmd = "
    r"|DeepSpeed info: version=|\bstep=0, skipped=0",
    evidence=("elapsed", "stamp", "rate"),
    precedence=ENGINE,
    header=r"\] \[(?:INFO|WARNING|ERROR)\] \[\w+\.py:\d+:\w+\] |\[Rank \d+\] time \(ms\) \| "
    r"|, DeepSpeed config has \d+\. Using DeepSpeed's value",
    elapsed_covers="interval",
    rate_covers="step",
    rate_excludes_data=True,
    complete=_complete,
    steps=(
        StepLine(
            anchor=", skipped=",
            regex=r"step=(?P<step>\d+), skipped=(?P<skipped>\d+), lr=(?P<lr>\[.*?\]), mom=",
            columns={"step": "step", "skipped": "skipped_steps"},
            example="[2026-11-20 15:01:25,144] [INFO] [logging.py:123:log_dist] [Rank 0] step=5, "
            "skipped=0, lr=[0.0005372435736804816], mom=[(0.9, 0.95)]",
            printed_by=f"{ENGINE_SOURCE} DeepSpeedEngine._report_progress",
        ),
        StepLine(
            anchor="/global_step=",
            regex=r"epoch=(?P<epoch>\d+)/micro_step=(?P<micro_step>\d+)/global_step=(?P<step>\d+), "
            r"RunningAvgSamplesPerSec=(?P<average>[\d.e+-]+|inf|nan), "
            r"CurrSamplesPerSec=(?P<rate>[\d.e+-]+|inf|nan)",
            columns={"epoch": "epoch", "step": "step", "rate": "logged_samples_per_second"},
            example="[2026-11-20 15:01:25,149] [INFO] [timer.py:264:stop] "
            "epoch=0/micro_step=20/global_step=5, RunningAvgSamplesPerSec=33.87948305357704, "
            "CurrSamplesPerSec=33.844407596232635, MemAllocated=0.45GB, MaxMemAllocated=0.45GB",
            printed_by=f"{TIMER} ThroughputTimer.stop",
        ),
        StepLine(
            anchor="iter time (s)",
            regex=r"steps: (?P<step>\d+) loss: (?P<loss>\S+) (?:\w+: \S+ )*"
            r"iter time \(s\): (?P<elapsed>[\d.]+) samples/sec: (?P<rate>[\d.]+)",
            columns={
                "step": "step",
                "loss": "loss",
                "elapsed": "elapsed_s",
                "rate": "logged_samples_per_second",
            },
            example="steps: 10 loss: 10.3150 iter time (s): 5.118 samples/sec: 50.021",
            printed_by="deepspeedai/DeepSpeed/deepspeed/runtime/pipe/engine.py@edaa722",
            composed=True,
        ),
    ),
    events=(
        EventLine(
            anchor="step=0, skipped=0",
            regex=r"\bstep=0, skipped=0",
            kind="engine_start",
            example="[2026-11-20 15:01:22,506] [INFO] [logging.py:123:log_dist] [Rank 0] step=0, "
            "skipped=0, lr=[0], mom=[(0.9, 0.95)]",
            printed_by=f"{ENGINE_SOURCE} DeepSpeedEngine.__init__",
        ),
        EventLine(
            anchor="time (ms) | ",
            regex=r"time \(ms\) \| \w+: ",
            kind="timers",
            example="[Rank 0] time (ms) | fwd: 52.77 | bwd: 97.06 | bwd_inner: 96.99 | "
            "bwd_allreduce: 0.05 | step: 3.31",
            printed_by=f"{TIMER} SynchronizedWallClockTimer.log",
            composed=True,
        ),
        EventLine(
            anchor="OVERFLOW!",
            regex=r"OVERFLOW! Rank \d+ Skipping step",
            kind="overflow",
            example="[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, "
            "reducing to 32768",
            printed_by="deepspeedai/DeepSpeed/deepspeed/runtime/zero/stage_1_and_2.py@edaa722",
            composed=True,
        ),
        EventLine(
            anchor="Saving model checkpoint",
            regex=r"Saving model checkpoint: ",
            kind="checkpoint",
            example="[2026-11-20 15:02:25,144] [INFO] [engine.py:3112:save_checkpoint] Saving model "
            "checkpoint: out/global_step100/mp_rank_00_model_states.pt",
            printed_by=ENGINE_SOURCE,
            composed=True,
        ),
    ),
    facts=(
        FactLine(
            anchor="dist_world_size=",
            regex=r"dist_world_size=(?P<gpus>\d+)",
            example="[2026-11-20 15:01:10,918] [INFO] [launch.py:170:main] dist_world_size=2",
            printed_by=LAUNCHER,
        ),
        FactLine(
            anchor="DeepSpeed info: version=",
            regex=r"DeepSpeed info: version=(?P<framework_version>[^,\s]+)",
            example="[2026-11-20 15:01:15,918] [INFO] [logging.py:123:log_dist] [Rank 0] DeepSpeed "
            "info: version=0.19.8, git-hash=unknown, git-branch=unknown",
            printed_by=ENGINE_SOURCE,
        ),
        _key("train_batch_size", "global_batch_size"),
        _key("train_micro_batch_size_per_gpu", "micro_batch_size"),
        _key("gradient_accumulation_steps", "gradient_accumulation"),
        _key("world_size", "data_parallel"),
        _key("zero_optimization_stage", "zero_stage"),
        _key("steps_per_print", "log_interval"),
        FactLine(
            anchor="sequence_parallel_size=",
            regex=r"self\.sequence_parallel_size=(?P<context_parallel>\d+)",
            example="\t self.sequence_parallel_size=1",
            printed_by=ENGINE_SOURCE,
        ),
        FactLine(
            anchor="'random_ltd': {",
            regex=rf"{DUMP}(?:data_efficiency_config|dynamic_train_config) \.+ "
            r".*'random_ltd': \{[^{}]*'enabled': True",
            constants={"token_dropping": "true"},
            example="[2026-11-20 15:01:22,507] [INFO] [config.py:678:print]   "
            "data_efficiency_config ....... {'enabled': True, 'data_routing': {'enabled': True, "
            "'random_ltd': {'enabled': True, 'total_layer_num': 12}}}",
            printed_by=f"{CONFIG} DeepSpeedConfig.print",
            composed=True,
        ),
        _enabled("bfloat16_enabled", "bfloat16_config", "bf16"),
        _enabled("fp16_enabled", "float16_config", "fp16"),
    ),
)
