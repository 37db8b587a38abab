"""Console of DeepSpeed's engine, 0.1 to 0.19: steps, timers, pipeline, wall clock.

The engine knows only samples: tokens need `seq_len` from another source. `CurrSamplesPerSec` counts
all GPUs and excludes data loading; the lines' stamps include it, so they are preferred. Under
Megatron without pipeline the timer times one micro-batch only and is never used. The timer counts
from the start of the process: optimizer steps since 0.8, micro-steps before
(ingest.launches.step_alignment). Until 0.6 its rate is a mean since then, not of a step: stored in
`extra`.

Since 0.18 a run prints only the wall clock breakdown at the default log level. Its iterations are
steps if there are no others: fwd + bwd + step, without data loading. The stamps of these lines,
from 0.3.12 to 0.17, include data loading. The pipeline engine prints the same for all steps since
the last line, and always next to lines of its own.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..launch_commands import TRACED_LAUNCHER, options_of
from ..megatron import console as megatron
from ..software_lines import SOFTWARE_LINES
from ..spec import (
    ENGINE_PRECEDENCE,
    GIB,
    LAUNCH_STEPS,
    MICRO_STEPS,
    MODEL_PARALLEL_KEY,
    MS,
    PROCESS_KEY,
    STEP_PARTS_PRECEDENCE,
    EventLine,
    FactBlock,
    FactLine,
    LogFormat,
    Misprint,
    StepLine,
    known_line,
)
from .config_file import BATCH_SHARING_KEYS, offload_facts
from .engines import settle_engines
from .phases import engine_timers, micro_step_timers
from .shared_batches import infer_sizes

DEEPSPEED_SOURCE: Final = "deepspeedai/DeepSpeed/deepspeed"
TIMER_SOURCE: Final = f"{DEEPSPEED_SOURCE}/utils/timer.py@edaa722"
ENGINE_SOURCE: Final = f"{DEEPSPEED_SOURCE}/runtime/engine.py@edaa722"
PIPELINE_SOURCE: Final = f"{DEEPSPEED_SOURCE}/runtime/pipe/engine.py@edaa722"
CONFIG_SOURCE: Final = f"{DEEPSPEED_SOURCE}/runtime/config.py@edaa722"
LAUNCHER_SOURCE: Final = f"{DEEPSPEED_SOURCE}/launcher/launch.py@edaa722"
RUNNER_SOURCE: Final = f"{DEEPSPEED_SOURCE}/launcher/runner.py@edaa722"
PROFILER_SOURCE: Final = f"{DEEPSPEED_SOURCE}/profiling/flops_profiler/profiler.py@edaa722"

NODE_PREFIX: Final = r"^(?:\S+: ?)?"
"""A node's or rank's tag before a bare line."""

CONFIG_DUMP_PREFIX: Final = rf"(?:\[(?:deepspeed_)?config\.py:\d+:print\] +|{NODE_PREFIX}  )"
DEEPSPEED_NUMBER: Final = r"[-+]?(?:[\d.]+(?:e[+-]?\d+)?|inf|nan)"
TIMER_PAIR: Final = re.compile(r"(?:^|[|(,] *)(\w[\w -]*): *(-?(?:[\d.]+|inf|nan))")
TIMER_FIELDS: Final = r"(?:(?!time \(ms\)).)*"
"""Timers of one line: if newlines were lost, the next line begins with the same words."""

GLOBAL_TIMERS: Final = rf"time \(ms\) \| (?P<pairs>(?:fwd|forward): {TIMER_FIELDS}\| (?:bwd|backward): {TIMER_FIELDS}\| step: .*)"


def _complete(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill learning_rate with the first of `[0.001, 0.001]`, one per parameter group."""
    rates = printed.get("lr", "").split(",")[0].strip("[] ")
    if rates:
        row["learning_rate"] = float(rates)


def _iteration(row: dict[str, Any], printed: Mapping[str, str]) -> None:
    """Fill elapsed_s with the sum of the parts, if all were measured.

    0.00 is printed if a monitor or the flops profiler read the timer before (until 0.18), and
    negative times by accelerators whose events fail.
    """
    names = (("fwd", "forward"), ("bwd", "backward"), ("step",))
    parts = [next((printed[n] for n in name if n in printed), "nan") for name in names]
    times = [float(part) for part in parts]
    if all(math.isfinite(time) and time > 0 for time in times):
        row["elapsed_s"] = sum(times) * MS


def _timers(groups: Mapping[str, str]) -> dict[str, str]:
    """Return the timers, in ms as printed."""
    return dict(TIMER_PAIR.findall(groups["pairs"]))


def _slots(groups: Mapping[str, str]) -> dict[str, str]:
    """Return GPUs of `{'worker-0': [0, 1], 'worker-1': [0, 1]}`: one process per slot."""
    lists = re.findall(r"\[([\d, ]*)\]", groups["slots"])
    return _some("gpus", sum(len(re.findall(r"\d+", text)) for text in lists))


def _world_info(groups: Mapping[str, str]) -> dict[str, str]:
    """Return the GPUs of the same dict in base64, the launcher's argument."""
    try:
        world = json.loads(base64.urlsafe_b64decode(groups["world"]))
        return _some("gpus", sum(len(slots) for slots in world.values()))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}


SEQUENCE_OPTIONS: Final = ("seq_len", "seq_length", "sequence_length")
"""Options by which scripts, in their own words, are given the tokens of a sequence."""


def _script_options(groups: Mapping[str, str]) -> dict[str, str]:
    """Return facts of the training script's own options."""
    options = options_of(groups["command"])
    lengths = {options[name] for name in SEQUENCE_OPTIONS if name in options}
    only = lengths.pop() if len(lengths) == 1 else ""
    return {"seq_len": only} if re.fullmatch(r"[1-9]\d{0,8}", only) else {}


def _topology(groups: Mapping[str, str]) -> dict[str, str]:
    """Return degrees of `ProcessCoord(pipe=1, data=0, model=0): 1, …`.

    Coordinates count from 0.
    """
    ranks = re.findall(r"ProcessCoord\(([^)]*)\)", groups["topology"])
    axes = {"pipe": "pipeline_parallel", "data": "data_parallel", "model": "tensor_parallel"}
    facts = _some("gpus", len(ranks))
    for axis, fact in axes.items():
        indices = [int(index) for rank in ranks for index in re.findall(rf"{axis}=(\d+)", rank)]
        facts |= _some(fact, max(indices) + 1 if indices else 0)
    return facts


def _some(fact: str, count: int) -> dict[str, str]:
    return {fact: str(count)} if count > 0 else {}


def _user_config(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of the user's JSON that the dump's resolved keys lack."""
    facts, text = {}, "\n".join(lines)
    for name, fact in BATCH_SHARING_KEYS.items():
        if match := re.search(rf'"{name}": *([1-9]\d*)', text):
            facts[fact] = match[1]
    return facts


MEGATRON_ARGUMENT: Final = re.compile(r"^\W*(?:tensor_)?model_parallel_size \.", re.MULTILINE)
BATCH_RAMP_ARGUMENT: Final = re.compile(r"^\W*rampup_batch_size \.{2,} \[", re.MULTILINE)
BATCH_RAMP_NOTE: Final = (
    "Megatron's batch ramps up (rampup_batch_size), and no line prints its current size"
)


def _of_megatron(lines: Sequence[str]) -> Mapping[str, str]:
    """Return facts of Megatron's arguments, for a log without its iterations.

    Megatron prints those on its last rank. Empty for GPT-NeoX's header, which marks values as given
    or default, and for a script's own arguments under the same heading, whose meaning is unknown.
    """
    of_neox = any(line.rstrip().endswith(("default", "updated")) for line in lines)
    text = "\n".join(lines)
    if of_neox or MEGATRON_ARGUMENT.search(text) is None:
        return {}
    ramp = {"batch_changes": BATCH_RAMP_NOTE} if BATCH_RAMP_ARGUMENT.search(text) else {}
    return {**megatron.ARGUMENTS_BLOCK.read(lines), **ramp}


CURRICULUM_NOTE: Final = (
    "The config has a curriculum with growing sequence lengths, and no line prints the current one"
)
"""For logs that print no length per step; Megatron-DeepSpeed prints one."""

DYNAMIC_BATCH_NOTE: Final = (
    "The config has dynamic batching: each batch has as many samples as fit max_tokens, and no line "
    "prints how many"
)

PROFILE_FACTS: Final = {
    "world size": "gpus",
    "data parallel size": "data_parallel",
    "batch size per gpu": "micro_batch_size",
}


def _profile(lines: Sequence[str]) -> dict[str, str]:
    """Return the summary of the flops profiler, up to its trees of modules.

    FLOPS and latencies are claims about one profiled micro-step; MACs count a forward pass.
    """
    fields: dict[str, str] = {}
    for line in lines:
        if "Aggregated Profile" in line:
            break
        if step := re.search(r"Profile Summary at step (\d+)|Profile step: +(\d+)", line):
            fields["step"] = step[1] or step[2]
        elif match := re.match(rf"{NODE_PREFIX}([A-Za-z][^:]*?)(?:: *| {{2,}})(\S.*?)\s*$", line):
            fact = PROFILE_FACTS.get(match[1].lower(), "")
            fields[fact if match[2].isdigit() and fact else match[1]] = match[2]
    return fields


def _enabled(old: str, new: str, precision: str) -> FactLine:
    """Return a precision in the config dump.

    `bfloat16_enabled` until 0.17, then `bfloat16_config`.
    """
    return FactLine(
        anchor="enabled",
        regex=rf"{CONFIG_DUMP_PREFIX}(?:{old} \.+ True|{new} \.+ enabled=True)",
        constants={"precision": precision},
        example=f"[2026-11-20 15:01:22,507] [INFO] [config.py:678:print]   {new} "
        f"{'.' * (29 - len(new))} enabled=True immediate_grad_update=False",
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print",
    )


def _key(name: str, fact: str) -> FactLine:
    """Return a key of the config dump; keys of 29 characters or more have no dots.

    If ranks share a sequence, the world and values divided by it may be whole numbers as floats.
    """
    dots = "." * (29 - len(name))
    between = rf" +{re.escape(dots)} *" if dots else " +"
    return FactLine(
        anchor=f" {name} ",
        regex=rf"{CONFIG_DUMP_PREFIX}{name}{between}(?P<{fact}>\d+)(?:\.0)?\s*$",
        example=f"[2026-11-20 15:01:22,508] [INFO] [config.py:678:print]   {name} {dots} 2",
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print",
    )


PIPELINE_FIELDS: Final = (
    r" loss: (?P<loss>\S+) (?P<pairs>(?:[^\s:][^:]{0,99}: \S+ ){0,99}?)"
    r"iter time \(s\): (?P<elapsed>[\d.]+) samples/sec: (?P<rate>[\d.]+)"
)
PIPELINE_LINE: Final = StepLine(
    anchor="iter time (s)",
    regex=r"steps: (?P<step>\d+)" + PIPELINE_FIELDS,
    pair=r"(?<!\S)(?P<key>[^\s:][^:]{0,99}): (?P<value>\S+) ",  # 'lm loss', 'moe loss'
    columns={
        "step": "step",
        "loss": "loss",
        "elapsed": "elapsed_s",
        "rate": "logged_samples_per_second",
    },
    tells={"elapsed": ("pipelined", "true")},
    example="steps: 5 loss: 7.0552 iter time (s): 0.138 samples/sec: 58.137",
    printed_by=f"{PIPELINE_SOURCE} PipelineEngine.train_batch",
)

STEP_LINES: Final = (
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
        regex=rf"epoch=(?P<epoch>\d+)/micro_step=(?P<micro_step>\d+)/global_step=(?P<step>\d+), "
        rf"RunningAvgSamplesPerSec=(?P<average>{DEEPSPEED_NUMBER}), CurrSamplesPerSec=(?P<rate>{DEEPSPEED_NUMBER})"
        r"(?:, MemAllocated=[\d.]+GB, MaxMemAllocated=(?P<peak>[\d.]+)GB)?",
        columns={
            "epoch": "epoch",
            "step": "step",
            "rate": "logged_samples_per_second",
            "peak": ("peak_memory_bytes", GIB),
        },
        counts=LAUNCH_STEPS,
        example="[2026-11-20 15:01:25,149] [INFO] [timer.py:264:stop] "
        "epoch=0/micro_step=20/global_step=5, RunningAvgSamplesPerSec=33.87948305357704, "
        "CurrSamplesPerSec=33.844407596232635, MemAllocated=0.45GB, MaxMemAllocated=0.45GB",
        printed_by=f"{TIMER_SOURCE} ThroughputTimer.stop",
    ),
    StepLine(
        anchor=", RunningAvgSamplesPerSec=",
        regex=rf"(?<![=\d])(?P<epoch>\d+)/(?P<step>\d+), RunningAvgSamplesPerSec=(?P<average>{DEEPSPEED_NUMBER})"
        rf", CurrSamplesPerSec=(?P<rate>{DEEPSPEED_NUMBER})"
        r"(?:, MemAllocated=[\d.]+GB, MaxMemAllocated=(?P<peak>[\d.]+)GB)?",
        columns={
            "epoch": "epoch",
            "step": "step",
            "rate": "logged_samples_per_second",
            "peak": ("peak_memory_bytes", GIB),
        },
        counts=MICRO_STEPS,
        example="[2026-11-20 10:05:01,320] [INFO] [timer.py:198:stop] 0/20, "
        "RunningAvgSamplesPerSec=198.25, CurrSamplesPerSec=201.75, MemAllocated=0.75GB, "
        "MaxMemAllocated=12.50GB",
        printed_by="deepspeedai/DeepSpeed/deepspeed/utils/timer.py@026f445 ThroughputTimer.stop",
        composed=True,
    ),
    StepLine(
        anchor=", SamplesPerSec=",
        regex=rf"(?<![=\d])(?P<epoch>\d+)/(?P<step>\d+), SamplesPerSec=(?P<average>{DEEPSPEED_NUMBER})"
        r"(?:, MemAllocated=[\d.]+GB, MaxMemAllocated=(?P<peak>[\d.]+)GB)?",
        columns={"epoch": "epoch", "step": "step", "peak": ("peak_memory_bytes", GIB)},
        counts=MICRO_STEPS,
        example="[2026-11-20 10:05:01,320] [INFO] [timer.py:193:stop] 0/50, "
        "SamplesPerSec=71.25, MemAllocated=0.50GB, MaxMemAllocated=7.25GB",
        printed_by=f"{DEEPSPEED_SOURCE}/utils/timer.py@v0.6.0 ThroughputTimer.stop",
        composed=True,
    ),
    PIPELINE_LINE,
    replace(
        PIPELINE_LINE,
        regex=r"\bstep: +(?P<step>\d+) / +(?P<total>\d+)" + PIPELINE_FIELDS,
        facts={"total": "total_steps"},
        example="[2026-11-20 10:05:01.320] [INFO] [qlora-pipe] step:     5 /    40 loss: 2.1119 "
        "iter time (s): 34.081 samples/sec: 0.117 eta: 20m ",
        printed_by="tdrussell/qlora-pipe/engine.py CustomPipelineEngine.train_batch",
        composed=True,
    ),
)

RANK_TAG: Final = r"(?:(?:rank=|\[Rank )(?P<rank>\d{1,9})\]? )?"
"""Before 0.3.12 every rank prints its timers, without a launcher's tag."""

EVENT_LINES: Final = (
    EventLine(
        anchor="step=0, skipped=0",
        regex=r"\bstep=0, skipped=0",
        kind="engine_start",
        example="[2026-11-20 15:01:22,506] [INFO] [logging.py:123:log_dist] [Rank 0] step=0, "
        "skipped=0, lr=[0], mom=[(0.9, 0.95)]",
        printed_by=f"{ENGINE_SOURCE} DeepSpeedEngine.__init__",
    ),
    EventLine(
        anchor="cdb=None",
        regex=r"\[comm\.py:\d+:init_distributed\] cdb=(?P<begun>None)",
        kind="setup",
        read=lambda _: {PROCESS_KEY: "1"},
        begins=True,
        example="[2026-11-20 15:01:15,850] [INFO] [comm.py:831:init_distributed] cdb=None",
        printed_by=f"{DEEPSPEED_SOURCE}/comm/comm.py@edaa722 init_distributed",
    ),
    EventLine(
        anchor="self.mp_world_size=",
        regex=rf"self\.mp_world_size=(?P<{MODEL_PARALLEL_KEY}>\d{{1,9}})\s*$",
        kind="setup",
        example="\t self.mp_world_size=1",
        printed_by=f"{ENGINE_SOURCE} DeepSpeedEngine._configure_distributed_model",
    ),
    EventLine(
        anchor="time (ms) | ",
        regex=rf"(?!{GLOBAL_TIMERS.replace('?P<pairs>', '?:')})time \(ms\) \| "
        r"(?P<pairs>\w+(?: \w+)*: .*)",
        kind="timers",
        read=_timers,
        example="[Rank 0] time (ms) | fwd_microstep: 35.24 | bwd_microstep: 27.22 | "
        "bwd_inner_microstep: 24.54 | bwd_allreduce_microstep: 2.63 | step_microstep: 10.19",
        printed_by=f"{TIMER_SOURCE} SynchronizedWallClockTimer.log",
    ),
    EventLine(
        anchor="vm ",
        regex=r"(?:global_step=(?P<step>\d+)|(?<![=\d])\d+/\d+), vm (?:%|percent): "
        r"(?P<host_memory_percent>[\d.]+), swap (?:%|percent): (?P<swap_percent>[\d.]+)",
        kind="memory",
        example="[2026-11-20 15:01:25,149] [INFO] [timer.py:280:stop] "
        "epoch=0/micro_step=20/global_step=5, vm %: 12.3, swap %: 0.0",
        printed_by=f"{TIMER_SOURCE} ThroughputTimer.stop",
        composed=True,
    ),
    EventLine(
        anchor="MA ",
        regex=r"\bMA (?P<allocated_gib>[\d.]+) GB\s+Max_MA (?P<peak_allocated_gib>[\d.]+) GB\s+"
        r"CA (?P<reserved_gib>[\d.]+) GB\s+Max_CA (?P<peak_reserved_gib>[\d.]+) GB",
        kind="memory",
        example="[2026-11-20 15:41:23,117] [INFO] [utils.py:782:see_memory_usage] MA 0.43 GB      "
        "   Max_MA 0.43 GB         CA 0.43 GB         Max_CA 0 GB ",
        printed_by=f"{DEEPSPEED_SOURCE}/runtime/utils.py@edaa722 see_memory_usage",
    ),
    EventLine(
        anchor="CPU Virtual Memory",
        regex=r"CPU Virtual Memory: +used = (?P<host_used_gib>[\d.]+) GB, percent = "
        r"(?P<host_memory_percent>[\d.]+)%",
        kind="memory",
        example="[2026-11-20 15:41:23,117] [INFO] [utils.py:789:see_memory_usage] CPU Virtual "
        "Memory:  used = 1.59 GB, percent = 6.7%",
        printed_by=f"{DEEPSPEED_SOURCE}/runtime/utils.py@edaa722 see_memory_usage",
    ),
    EventLine(
        anchor="Skipping step",
        regex=r"(?:OVERFLOW! Rank \d+|Overflow detected\.) Skipping step\. Attempted loss scale: "
        r"(?P<loss_scale>[\d.e+]+), (?:reducing to (?P<reduced_to>[\d.e+]*\d)|but hysteresis)",
        kind="overflow",
        example="[2026-11-20 15:02:54,616] [INFO] [loss_scaler.py:266:update_scale] [deepspeed] "
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 16777216, reducing to 8388608",
        printed_by=f"{DEEPSPEED_SOURCE}/runtime/fp16/loss_scaler.py@edaa722",
    ),
    EventLine(
        anchor="heckpoint",
        regex=r"Saving model checkpoint: |zero checkpoint saved|Checkpoint \S+ is (?:about to be "
        r"saved|ready now)",
        kind="checkpoint",
        example="[2026-11-20 15:02:25,144] [INFO] [engine.py:3112:save_checkpoint] Saving model "
        "checkpoint: out/global_step100/mp_rank_00_model_states.pt",
        printed_by=f"{ENGINE_SOURCE} DeepSpeedEngine.save_checkpoint",
        composed=True,
    ),
    EventLine(
        anchor="[Torch",
        regex=r"\[Torch(?:CheckpointEngine)?\] Sav(?:ing|ed) ",
        kind="checkpoint",
        example="[2026-11-20 15:02:25,150] [INFO] [torch_checkpoint_engine.py:21:save] [Torch] "
        "Saving out/global_step100/mp_rank_00_model_states.pt...",
        printed_by=f"{DEEPSPEED_SOURCE}/runtime/checkpoint_engine/torch_checkpoint_engine.py@edaa722",
        composed=True,
    ),
    EventLine(
        anchor="oad",
        regex=r"\[Torch(?:CheckpointEngine)?\] Load(?:ing|ed) checkpoint from|rank: ?\d+ loading "
        r"checkpoint:|successfully (?:read|loaded) \d+ ZeRO state_dicts",
        kind="load",
        example="[2026-11-20 15:02:05,150] [INFO] [torch_checkpoint_engine.py:27:load] [Torch] "
        "Loading checkpoint from out/global_step100/mp_rank_00_model_states.pt...",
        printed_by=f"{DEEPSPEED_SOURCE}/runtime/checkpoint_engine/torch_checkpoint_engine.py@edaa722",
        composed=True,
    ),
    EventLine(
        anchor="Flops profiler started",
        regex=r"Flops profiler started",
        kind="profiler",
        example="[2026-11-20 15:02:25,820] [INFO] [profiler.py:82:start_profile] Flops profiler "
        "started",
        printed_by=f"{PROFILER_SOURCE} FlopsProfiler.start_profile",
    ),
    EventLine(
        anchor="exits successfully",
        regex=r"Process \d+ exits successfully",
        kind="end",
        overtakes=True,  # one process ended; others may still flush their buffers
        example="[2026-11-20 15:01:43,058] [INFO] [launch.py:285:main] Process 16728 exits "
        "successfully.",
        printed_by=f"{LAUNCHER_SOURCE} main",
    ),
)

_OFFLOAD_DEVICE: Final = r"(?:\w+\(device=(?:<[\w.]+: )?'?)?"
"""Before the device, or before None."""


FACT_LINES: Final = (
    FactLine(
        anchor="--world_info=",
        regex=r"\[runner\.py:\d+:main\] cmd = .*--world_info=[\w=-]+ (?P<command>.*)",
        read=_script_options,
        inferred="an option of the training script itself, by its usual meaning",
        example="[2026-11-20 15:01:09,500] [INFO] [runner.py:618:main] cmd = python3.11 -u -m "
        "deepspeed.launcher.launch --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMV19 "
        "--master_addr=127.0.0.1 --master_port=29500 ds_train.py --seq_len 1024",
        printed_by=f"{RUNNER_SOURCE} main",
        composed=True,
    ),
    FactLine(
        anchor="--world_info=",
        regex=r"\[runner\.py:\d+:main\] cmd = .*--world_info=(?P<world>[\w=-]+)",
        read=_world_info,
        example="[2026-11-20 15:01:09,500] [INFO] [runner.py:618:main] cmd = python3.11 -u -m "
        "deepspeed.launcher.launch --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMV19 "
        "--master_addr=127.0.0.1 --master_port=29500 ds_train.py",
        printed_by=f"{RUNNER_SOURCE} main",
    ),
    FactLine(
        anchor="WORLD INFO DICT: ",
        regex=r"WORLD INFO DICT: \{(?P<slots>.*)\}",
        read=_slots,
        example="[2026-11-20 15:01:10,918] [INFO] [launch.py:152:main] WORLD INFO DICT: "
        "{'localhost': [0, 1]}",
        printed_by=f"{LAUNCHER_SOURCE} main",
    ),
    FactLine(
        anchor="dist_world_size=",
        regex=r"dist_world_size=(?P<gpus>\d+)",
        example="[2026-11-20 15:01:10,918] [INFO] [launch.py:170:main] dist_world_size=2",
        printed_by=f"{LAUNCHER_SOURCE} main",
    ),
    FactLine(
        anchor="Discovered MPI settings of world_rank=0,",
        regex=r"Discovered MPI settings of world_rank=0, local_rank=\d+, world_size=(?P<gpus>\d+),",
        example="[2026-11-20 15:01:15,840] [INFO] [comm.py:737:mpi_discovery] Discovered MPI "
        "settings of world_rank=0, local_rank=0, world_size=2, master_addr=10.0.0.1, "
        "master_port=29500",
        printed_by=f"{DEEPSPEED_SOURCE}/comm/comm.py@edaa722 mpi_discovery",
        composed=True,
    ),
    FactLine(
        anchor="Creating deepspeed groups with model parallel size ",
        regex=r"Creating deepspeed groups with model parallel size (?P<tensor_parallel>\d+)"
        r"(?:, pipeline parallel size (?P<pipeline_parallel>\d+))?"
        r", expert parallel size (?P<expert_parallel>\d+), world size (?P<gpus>\d+), "
        r"dp world size (?P<data_parallel>\d+)",
        example="[2026-11-20 15:01:15,900] [INFO] [logging.py:123:log_dist] [Rank 0] Creating "
        "deepspeed groups with model parallel size 2, pipeline parallel size 1, expert parallel "
        "size 2, world size 8, dp world size 4",
        printed_by=f"{DEEPSPEED_SOURCE}/utils/groups.py@edaa722 _create_expert_data_and_model_parallel",
        composed=True,
    ),
    FactLine(
        anchor=", git-hash=",
        regex=r"DeepSpeed info: version=(?P<framework_version>[^,\s]+), "
        r"git-hash=(?P<commit>[0-9a-f]{7,40})\b",
        example="[2026-11-20 15:01:15,918] [INFO] [logging.py:123:log_dist] [Rank 0] DeepSpeed "
        "info: version=0.19.8+3a1b2c4d, git-hash=3a1b2c4d, git-branch=main",
        printed_by=ENGINE_SOURCE,
        composed=True,
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
    FactLine(
        anchor="offload_optimizer=",
        regex=rf"{CONFIG_DUMP_PREFIX}zero_config \.+ .*\boffload_param={_OFFLOAD_DEVICE}(?P<parameters>\w+)\b"
        rf".*\boffload_optimizer={_OFFLOAD_DEVICE}(?P<optimizer>\w+)\b",
        read=lambda printed: offload_facts(printed["parameters"], printed["optimizer"]),
        example="[2026-11-20 15:01:22,507] [INFO] [config.py:1001:print]   zero_config "
        ".................. stage=3 contiguous_gradients=True offload_param="
        "DeepSpeedZeroOffloadParamConfig(device='cpu', nvme_path=None, buffer_count=5) "
        "offload_optimizer=None sub_group_size=1,000,000,000",
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print",
        begins="zero_config .................. stage=",
        composed=True,
    ),
    _key("steps_per_print", "log_interval"),
    FactLine(
        anchor="autotp_size=",
        regex=rf"{CONFIG_DUMP_PREFIX}tensor_parallel_config \.+ .*\bautotp_size=(?P<tensor_parallel>[2-9]|[1-9]\d+)\b",
        example="[2026-11-20 15:01:22,507] [INFO] [config.py:678:print]   tensor_parallel_config "
        "....... dtype=torch.float16 autotp_size=4 tp_overlap_comm=False tensor_parallel=TPConfig("
        "tp_size=1, tp_grain_size=1, mpu=None, tp_group=None) injection_policy_tuple=None",
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print",
        composed=True,
    ),
    # Grouping of ranks that an engine is given, by Megatron or code made from it.
    FactLine(
        anchor=" model parallel with size ",
        regex=r"> initializ(?:ed|ing) (?:tensor )?model parallel with size (?P<tensor_parallel>\d+)\s*$",
        example="> initialized tensor model parallel with size 4",
        printed_by="NVIDIA/Megatron-LM/megatron/training/initialize.py _initialize_distributed; "
        "facebookresearch/fairscale/fairscale/nn/model_parallel/initialize.py",
        composed=True,
    ),
    FactLine(
        anchor=" with size ",
        regex=r"> initializ(?:ed pipeline model parallel|ing pipeline(?: model parallel)?) with size "
        r"(?P<pipeline_parallel>\d+)\s*$",
        example="> initialized pipeline model parallel with size 1",
        printed_by="NVIDIA/Megatron-LM/megatron/training/initialize.py _initialize_distributed; "
        "facebookresearch/fairscale/fairscale/nn/model_parallel/initialize.py",
        composed=True,
    ),
    FactLine(
        anchor="> initializing context parallel with size ",
        regex=r"> initializing context parallel with size (?P<context_parallel>\d+)\s*$",
        example="> initializing context parallel with size 2",
        printed_by="saforem2/ezpz/src/ezpz/tp/__init__.py initialize_tensor_parallel",
        composed=True,
    ),
    FactLine(
        anchor="sequence_parallel_size=",
        regex=r"self\.sequence_parallel_size=(?P<context_parallel>\d+)",
        example="\t self.sequence_parallel_size=1",
        printed_by=ENGINE_SOURCE,
    ),
    FactLine(
        anchor="self.dp_world_size=",
        regex=r"self\.dp_world_size=(?P<data_parallel>\d+)",
        example="\t self.dp_world_size=2",
        printed_by=ENGINE_SOURCE,
    ),
    FactLine(
        anchor="'random_ltd': {",
        regex=rf"{CONFIG_DUMP_PREFIX}(?:data_efficiency_config|dynamic_train_config) \.+ "
        r".*'random_ltd': \{[^{}]*'enabled': True",
        constants={"token_dropping": "true"},
        example="[2026-11-20 15:01:22,507] [INFO] [config.py:678:print]   "
        "data_efficiency_config ....... {'enabled': True, 'data_routing': {'enabled': True, "
        "'random_ltd': {'enabled': True, 'total_layer_num': 12}}}",
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print",
        composed=True,
    ),
    FactLine(
        anchor="  curriculum_enabled",
        regex=rf"{CONFIG_DUMP_PREFIX}curriculum_enabled(?:_legacy)? \.+ True",
        constants={"batch_changes": CURRICULUM_NOTE},
        example="[2026-11-20 15:01:22,507] [INFO] [config.py:678:print]   curriculum_enabled_legacy "
        ".... True",
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print",
        composed=True,
    ),
    FactLine(
        anchor="'curriculum_learning': {'enabled': True",
        regex=rf"{CONFIG_DUMP_PREFIX}data_efficiency_config \.+ \{{'enabled': True.*'data_sampling': "
        r"\{'enabled': True.*'curriculum_learning': \{'enabled': True.*'seqlen",
        constants={"batch_changes": CURRICULUM_NOTE},
        example="[2026-11-20 15:01:22,507] [INFO] [config.py:678:print]   "
        "data_efficiency_config ....... {'enabled': True, 'seed': 1234, 'data_sampling': "
        "{'enabled': True, 'num_epochs': 1000, 'num_workers': 0, 'curriculum_learning': "
        "{'enabled': True, 'curriculum_metrics': {'seqlen': {'difficulty_type': 'value'}}}}}",
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print",
        composed=True,
    ),
    FactLine(
        anchor="'dynamic_batching': {",
        regex=rf"{CONFIG_DUMP_PREFIX}data_efficiency_config \.+ \{{'enabled': True.*"
        r"'dynamic_batching': \{[^{}]*'enabled': True",
        constants={"batch_changes": DYNAMIC_BATCH_NOTE},
        example="[2026-11-20 15:01:22,507] [INFO] [config.py:678:print]   "
        "data_efficiency_config ....... {'enabled': True, 'seed': 1234, 'data_sampling': "
        "{'enabled': True, 'num_epochs': 1000, 'num_workers': 0, 'dynamic_batching': "
        "{'max_tokens': 4096, 'enabled': True, 'lr_scaling_method': 'linear'}}}",
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print",
        composed=True,
    ),
    _enabled("bfloat16_enabled", "bfloat16_config", "bf16"),
    _enabled("fp16_enabled", "float16_config", "fp16"),
    FactLine(
        anchor=" ZeRO stage ",
        regex=r"Creating \S+ ZeRO stage (?P<zero_stage>\d) optimizer",
        example="[2026-11-20 15:01:22,458] [INFO] [logging.py:123:log_dist] [Rank 0] Creating "
        "torch.bfloat16 ZeRO stage 2 optimizer",
        printed_by=f"{ENGINE_SOURCE} DeepSpeedEngine._configure_zero_optimizer",
    ),
    FactLine(
        anchor="DeepSpeed Basic Optimizer = ",
        regex=r"DeepSpeed Basic Optimizer = (?P<optimizer>\w+)",
        example="[2026-11-20 15:01:19,126] [INFO] [logging.py:123:log_dist] [Rank 0] DeepSpeed "
        "Basic Optimizer = AdamW",
        printed_by=f"{ENGINE_SOURCE} DeepSpeedEngine._configure_optimizer",
    ),
    FactLine(
        anchor="CONFIG: micro_batches=",
        regex=r"CONFIG: micro_batches=(?P<gradient_accumulation>\d+) "
        r"micro_batch_size=(?P<micro_batch_size>\d+)",
        example="[2026-11-20 15:06:45,323] [INFO] [engine.py:98:__init__] CONFIG: micro_batches=4 "
        "micro_batch_size=2",
        printed_by=f"{PIPELINE_SOURCE} PipelineEngine.__init__",
    ),
    FactLine(
        anchor="Using topology: ",
        regex=r"Using topology: +\{(?P<topology>.*)\}",
        read=_topology,
        example="Using topology: {ProcessCoord(pipe=0, data=0): 0, ProcessCoord(pipe=1, data=0): 1}",
        printed_by=f"{DEEPSPEED_SOURCE}/runtime/pipe/module.py@edaa722 PipelineModule.__init__",
    ),
    # -- lines that state nothing -----------------------------------------------------------
    known_line(
        "config.py:",
        r"\[(?:deepspeed_)?config\.py:\d+:(?:print|__init__|_\w+)\]",
        "[2026-11-20 15:01:22,506] [INFO] [config.py:674:print] DeepSpeedEngine configuration:",
        f"{CONFIG_SOURCE} DeepSpeedConfig.print",
    ),
    known_line(
        " configuration:",
        r"DeepSpeed(?:Light|Engine)? configuration:",
        "DeepSpeedLight configuration:",
        f"{DEEPSPEED_SOURCE}/pt/deepspeed_light.py@v0.1.0 DeepSpeedLight.__init__",
        composed=True,
    ),
    known_line(
        " ..",
        rf"{NODE_PREFIX}  (?=.{{30}} )[a-z]\w+ \.{{2,}} ",
        "  allgather_size ............... 500000000",
        f"{DEEPSPEED_SOURCE}/pt/deepspeed_config.py@v0.1.0 DeepSpeedConfig.print",
        composed=True,
    ),
    known_line(
        ".py:",
        r"\] \[(?:comm|real_accelerator|launch|runner|utils|stage_1_and_2|stage3|stage1|stage2"
        r"|parameter_offload|partition_parameters|config_utils|lr_schedules|module|engine"
        r"|torch_checkpoint_engine|fused_optimizer|unfused_optimizer|constants|multinode_runner"
        r"|deepspeed_launch|deepspeed_run|deepspeed_light|deepspeed_utils|elastic_agent|cpu_adam|abstract_accelerator|profiler|pin_memory_tracker)\.py:\d+:\w+\]",
        "[2026-11-20 15:01:22,459] [INFO] [stage_1_and_2.py:236:__init__] Reduce bucket size "
        "500000000",
        f"{DEEPSPEED_SOURCE}/runtime/zero/stage_1_and_2.py@edaa722",
    ),
    known_line(
        "[Rank ",
        r"\[Rank -?\d+\] (?:DeepSpeed (?:Flops Profiler Enabled|Final Optimizer|using|LR Scheduler)"
        r"|Using (?:DeepSpeed|client|FusedAdam|\w+ as)|Removing param_group|Creating (?:fp16|BF16|"
        r"\w+) |\[\w*CheckpointEngine\] Initialized|Config |ZeRO |initializing|\w+ optimizer)",
        "[2026-11-20 15:01:22,506] [INFO] [logging.py:123:log_dist] [Rank 0] DeepSpeed Final "
        "Optimizer = DeepSpeedZeroOptimizer",
        f"{ENGINE_SOURCE} DeepSpeedEngine._configure_optimizer",
    ),
    known_line(
        "overflow ",
        r"^Grad overflow on iteration \d+|No Grad overflow for \d+ iterations",
        "Grad overflow on iteration 0",
        f"{DEEPSPEED_SOURCE}/runtime/fp16/fused_optimizer.py@edaa722 FP16_Optimizer._update_scale",
        composed=True,
    ),
    known_line(
        "_world_size=",
        r"self\.seq_dp_world_size=\d+",
        "\t self.seq_dp_world_size=2",
        ENGINE_SOURCE,
    ),
    # These counts include repeats on tensor-parallel ranks, and padding: no params_total.
    known_line(
        "_PARAMS=",
        r"RANK=\d+ STAGE=\d+ LAYERS=.* TOTAL_PARAMS=\d+",
        "[2026-11-20 15:06:45,756] [INFO] [engine.py:158:__init__] RANK=1 STAGE=1 LAYERS=3 "
        "[4, 7) STAGE_PARAMS=328064 (0.328M) TOTAL_PARAMS=1049728 (1.050M) "
        "UNIQUE_PARAMS=1049728 (1.050M)",
        f"{PIPELINE_SOURCE} PipelineEngine.__init__",
    ),
    known_line(
        "SEED_LAYERS=",
        r"SEED_LAYERS=\w+ BASE_SEED=\d+ SEED_FN=",
        "SEED_LAYERS=False BASE_SEED=1234 SEED_FN=None",
        f"{DEEPSPEED_SOURCE}/runtime/pipe/module.py@edaa722 PipelineModule.__init__",
    ),
    known_line(
        "stage=",
        rf"{NODE_PREFIX}stage=\d+ layers=\d+",
        "stage=0 layers=4",
        f"{DEEPSPEED_SOURCE}/runtime/pipe/module.py@edaa722 PipelineModule._partition_layers",
    ),
    known_line(
        "built successfully",
        r"DeepSpeed \S+ built successfully",
        "DeepSpeed deepspeed.ops.comm.deepspeed_shm_comm_op built successfully",
        f"{DEEPSPEED_SOURCE}/ops/comm/__init__.py@edaa722",
    ),
    known_line(
        "Time to load ",
        r"Time to load \w+ op: [\d.]+ seconds",
        "Time to load deepspeed_shm_comm op: 0.007818222045898438 seconds",
        "deepspeedai/DeepSpeed/op_builder/builder.py@edaa722 OpBuilder.jit_load",
    ),
    known_line(
        "xten",
        r"Using \S+ as PyTorch extensions root|Creating extension directory|(?:Load|Build)ing "
        r"extension module \w+|No modifications detected for re-loaded extension module",
        "Loading extension module fused_adam...",
        "pytorch/pytorch/torch/utils/cpp_extension.py@v2.9.0",
        composed=True,
    ),
    known_line(
        "ninja",
        r"ninja: no work to do|Emitting ninja build file|Allowing ninja to set a default number",
        "ninja: no work to do.",
        "pytorch/pytorch/torch/utils/cpp_extension.py@v2.9.0",
    ),
    known_line(
        "*" * 40,
        rf"{NODE_PREFIX}\*{{40,}}\s*$",
        "***********************************************",
        ENGINE_SOURCE,
    ),
    known_line(
        "time (ms)",
        r"time \(ms\)\s*$",
        "[2026-11-20 15:01:25,144] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms)",
        f"{TIMER_SOURCE} SynchronizedWallClockTimer.log",
        composed=True,
    ),
    known_line(
        "Comm. Op",
        r"Comm\. Op +Message Size +Count",
        "Comm. Op            Message Size        Count               Total Latency(ms)   "
        "Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)    ",
        f"{DEEPSPEED_SOURCE}/utils/comms_logging.py@edaa722 CommsLogger.log_all",
        composed=True,
    ),
    known_line(
        "B  ",
        rf"{NODE_PREFIX}\s{{15,}}[\d.]+ [KMGT]?B +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+",
        "                    4.0 KB              212                 19.50               0.09      "
        "          0.37                0.35                ",
        f"{DEEPSPEED_SOURCE}/utils/comms_logging.py@edaa722 CommsLogger.log_all",
        composed=True,
    ),
    known_line(
        "comm op: ",
        r"comm op: \w+ \| time \(ms\): [\d.]+ \| msg size: ",
        "[2026-11-20 15:01:23,100] [INFO] [logging.py:123:log_dist] [Rank 0] comm op: all_reduce | "
        "time (ms): 7.25 | msg size: 4.0 KB | algbw (Gbps): 0.05 | busbw (Gbps): 0.05",
        f"{DEEPSPEED_SOURCE}/utils/comms_logging.py@edaa722 CommsLogger.append",
        composed=True,
    ),
    *SOFTWARE_LINES,
    TRACED_LAUNCHER,
)

FACT_BLOCKS: Final = (
    FactBlock(
        start=r"(?:json = |\[(?:deepspeed_)?config\.py:\d+:print\] +\w+ [. ]*)\{\s*$",
        end=r"(?:json = |\[(?:deepspeed_)?config\.py:\d+:print\] ).*\{\s*$",
        braces=True,
        others=r"\[(?:INFO|WARNING)\] \[\w+\.py:\d+:",
        max_lines=500,
        read=_user_config,
        example=(
            "[2026-11-20 15:01:22,512] [INFO] [config.py:664:print_user_config]   json = {",
            '    "train_micro_batch_size_per_gpu": 2, ',
            '    "gradient_accumulation_steps": 4, ',
            '    "sequence_parallel_size": 2, ',
            '    "zero_optimization": {',
            '        "stage": 2',
            "    }",
            "}",
        ),
        printed_by=f"{CONFIG_SOURCE} DeepSpeedConfig.print_user_config",
    ),
    FactBlock(
        start=r"-{20} DeepSpeed Flops Profiler -",
        end=rf"{NODE_PREFIX}-{{70,}}\s*$",
        include_end=True,
        kind="profiler",
        max_lines=20_000,
        read=_profile,
        example=(
            "-------------------------- DeepSpeed Flops Profiler --------------------------",
            "Profile Summary at step 6:",
            "Notations:",
            "data parallel size (dp_size), model parallel size(mp_size),",
            "",
            "world size:                                                             2       ",
            "data parallel size:                                                     2       ",
            "model parallel size:                                                    1       ",
            "batch size per GPU:                                                     4       ",
            "params per GPU:                                                         1.05 M  ",
            "fwd MACs per GPU:                                                       536.87 MMACs",
            "fwd latency:                                                            12.84 ms",
            "iter latency:                                                           85.57 ms",
            "samples/second:                                                         93.49   ",
            "",
            "----------------------------- Aggregated Profile per GPU "
            "-----------------------------",
            "depth 0:",
            "    params      - {'LM': '1.05 M'}",
            "------------------------------------------------------------------------------",
        ),
        printed_by=f"{PROFILER_SOURCE} FlopsProfiler.print_model_profile",
    ),
    replace(  # a script's own heading may have no end
        megatron.ARGUMENTS_BLOCK,
        read=_of_megatron,
        end=rf"{megatron.ARGUMENTS_BLOCK.end}|DeepSpeedEngine configuration:",
    ),
)

PROFILE_FILE: Final = (
    r"-{20,} DeepSpeed Flops Profiler -",
    "the output_file of DeepSpeed's flops profiler, without step lines. Read the log of that run. "
    "Without output_file, that log has the profile too, and both are read.",
)
"""First bytes of a profile in its own file, and advice for the user."""

LOG_STAMP: Final = r"\[(?:[A-Z]+ )?(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[,.]\d{3})?)\]"
LAUNCH_START: Final = (
    r"\[launch\.py:\d+:main\] dist_world_size|\[runner\.py:\d+:main\] cmd = "
    r"|DeepSpeed info: version=|\bstep=0, skipped=0|> initializ(?:ed|ing) (?:tensor )?model parallel "
    rf"with size |{megatron.ARGUMENTS_BLOCK.start}"
)

DEEPSPEED: Final = LogFormat(
    name="deepspeed",
    quirks=("single_writer", "timer_of_steps"),
    phase_timers=(*engine_timers(after_step=True), *micro_step_timers(after_step=True)),
    timer_stopped_once_with=("megatron_arguments",),
    finish=settle_engines,
    infer_sizes=infer_sizes,
    framework="deepspeed",
    versions="engine 0.1 … 0.19, pipeline engine",
    signature=r"step=[1-9]\d*, skipped=\d+, lr=|/global_step=\d+, RunningAvgSamplesPerSec="
    r"|(?<![=\d])\d+/\d+, (?:RunningAvg)?SamplesPerSec="
    r"|\bstep(?:s: \d+|: +\d+ / +\d+) loss: \S+ .*iter time \(s\)",
    looks_like_step=r"step=\d+, skipped=|\d/(?:\d+|micro_step=\d+/global_step=\d+), "
    r"(?:RunningAvg)?SamplesPerSec=|\bstep(?:s: \d+|: +\d+ / +\d+) loss: \S+ .*iter time",
    step_pieces=r"\bskipped=\d+, lr=\[|(?:SamplesPerSec|micro_step|global_step)=\d|MaxMemAllocated=",
    clock=LOG_STAMP,
    launch=LAUNCH_START,
    evidence=("elapsed", "stamp", "rate"),
    precedence=ENGINE_PRECEDENCE,
    header=r"\] \[(?:INFO|WARNING|ERROR)\] \[(?!real_accelerator)\w+\.py:\d+:\w+\] "
    r"|, DeepSpeed config has \d+\. Using DeepSpeed's value|-{20} DeepSpeed Flops Profiler -",
    elapsed_covers="interval",
    rate_covers="step",
    rate_excludes_data=True,
    complete=_complete,
    misprints=(
        Misprint(
            versions=r"0\.6\.[23](?!\d)",
            factors={"elapsed_s": MS, "logged_samples_per_second": 1 / MS},
            why="DeepSpeed 0.6.2 and 0.6.3 print the pipeline's iteration time in ms and call it s",
        ),
    ),
    steps=STEP_LINES,
    events=EVENT_LINES,
    facts=FACT_LINES,
    blocks=FACT_BLOCKS,
)

DEEPSPEED_TIMERS: Final = LogFormat(
    name="deepspeed-timers",
    phase_timers=(*engine_timers(), *micro_step_timers()),
    timer_stopped_once_with=("megatron_arguments",),
    finish=settle_engines,
    infer_sizes=infer_sizes,
    framework="deepspeed",
    versions="wall_clock_breakdown of 0.1 … 0.19",
    signature=GLOBAL_TIMERS,
    looks_like_step=r"time \(ms\) \| (?:fwd|forward): \S+ \| b(?:wd|ackward)",
    clock=LOG_STAMP,
    launch=LAUNCH_START,
    evidence=("stamp", "elapsed"),
    precedence=STEP_PARTS_PRECEDENCE,
    as_companion="timers",
    elapsed_covers="step",
    elapsed_excludes_data=True,
    complete=_iteration,
    steps=(
        StepLine(
            anchor="time (ms) | ",
            regex=RANK_TAG + GLOBAL_TIMERS,
            pair=r"(?:^|\| *)(?P<key>\w+(?: \w+)*): *(?P<value>-?(?:[\d.]+|inf|nan))",
            columns={"rank": "rank"},
            numbered=True,
            every_step=True,
            example="[Rank 0] time (ms) | fwd: 35.23 | bwd: 27.22 | bwd_inner: 24.53 | "
            "bwd_allreduce: 2.63 | step: 10.19",
            printed_by=f"{TIMER_SOURCE} SynchronizedWallClockTimer.log",
        ),
    ),
    events=EVENT_LINES,
    facts=FACT_LINES,
    blocks=FACT_BLOCKS,
)
