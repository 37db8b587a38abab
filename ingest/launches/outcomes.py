"""How launches end: errors, kills and exhausted memory print alike under every framework.

What a framework prints when training ends as planned is in its own format (events of kind `end`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import polars as pl

from ..formats.spec import EventLine
from .event_rows import EventRows
from .step_rows import StepRows

MESSAGE_PREFIX: Final = r"^ *+(?:\[[^\]]*\]:?\s*|\d+: *)*+"
"""Tags of ranks, nodes and the framework before a message, however many; a page indents what it
shows of a log, torchrun what it repeats of a rank.
"""

ENDING_EVENT_LINES: Final = (
    EventLine(
        anchor="out of memory",
        regex=r"(?P<error>(?:(?<![\w.])[\w.]*(?:OutOfMemoryError|RuntimeError): )?"
        r"(?:CUDA|HIP|NPU|XPU) (?:error: )?out of memory\b.*)",
        kind="out_of_memory",
        example="[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
        "GPU 0 has a total capacity of 79.15 GiB of which 1.02 GiB is free.",
        printed_by="pytorch/pytorch/c10/cuda/CUDACachingAllocator.cpp@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor="OutOfMemoryError",
        regex=MESSAGE_PREFIX + r"(?P<error>[\w.]*OutOfMemoryError\b.*)",
        kind="out_of_memory",
        example="[rank0]:[rank0]: torch.OutOfMemoryError: Allocation on device",
        printed_by="pytorch/pytorch/torch/_C/__init__.py@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor="oom",
        regex=r"(?i)\boom[-_ ]?kill(?:ed)? (?:event|process)|\boom_kill\b|\boom-kill:",
        kind="out_of_memory",
        example="slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step "
        "tasks have been OOM Killed.",
        printed_by="SchedMD/slurm/src/plugins/task/cgroup/task_cgroup_memory.c",
        composed=True,
    ),
    EventLine(
        anchor="CANCELLED",
        regex=r"\*\*\* (?:JOB|STEP) \S+ .*CANCELLED AT .*\*\*\*",
        kind="killed",
        example="slurmstepd: error: *** JOB 123 ON node1 CANCELLED AT 2026-11-20T10:00:00 DUE TO "
        "TIME LIMIT ***",
        printed_by="SchedMD/slurm/src/slurmd/slurmstepd/req.c",
        composed=True,
    ),
    EventLine(
        anchor="got signal: ",
        regex=r"SignalException: Process \d+ got signal: \d+",
        kind="killed",
        example="torch.distributed.elastic.multiprocessing.api.SignalException: Process 2301 got "
        "signal: 15",
        printed_by="pytorch/pytorch/torch/distributed/elastic/multiprocessing/api.py@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor="exitcode: -",
        regex=r"failed \(exitcode: -(?P<signal>\d+)\) local_rank: \d+",
        kind="killed",
        example="E1120 10:00:00.000000 2301 torch/distributed/elastic/multiprocessing/api.py:874] "
        "failed (exitcode: -9) local_rank: 3 (pid: 2310) of binary: /usr/bin/python3",
        printed_by="pytorch/pytorch/torch/distributed/elastic/multiprocessing/api.py@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor="closing signal",
        regex=r"Sending process \d+ closing signal SIG(?:TERM|INT|KILL)",
        kind="killed",
        example="W1120 10:00:00.000000 2301 torch/distributed/elastic/multiprocessing/api.py:900] "
        "Sending process 2309 closing signal SIGTERM",
        printed_by="pytorch/pytorch/torch/distributed/elastic/multiprocessing/api.py@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor="Killing subprocess",
        regex=r"Killing subprocess \d+",
        kind="killed",
        example="[2026-11-20 15:01:10,918] [INFO] [launch.py:318:sigkill_handler] Killing "
        "subprocess 1065",
        printed_by="deepspeedai/DeepSpeed/deepspeed/launcher/launch.py@edaa722",
        composed=True,
    ),
    EventLine(
        anchor="illed",
        regex=MESSAGE_PREFIX + r"(?:.*line \d+: +\d+ )?Killed\b(?: .*)?$",
        kind="killed",
        example="run.sh: line 12:  2301 Killed                  torchrun train.py",
        printed_by="bminor/bash/jobs.c",
        composed=True,
    ),
    EventLine(
        anchor="KeyboardInterrupt",
        regex=MESSAGE_PREFIX + r"KeyboardInterrupt\b",
        kind="killed",
        example="KeyboardInterrupt",
        printed_by="python/cpython/Lib/traceback.py@v3.11.0",
        composed=True,
    ),
    EventLine(
        anchor="Error",
        regex=MESSAGE_PREFIX
        + r"(?!CommandNotFoundError: )"  # conda's word to a shell that it has not set up
        r"(?P<error>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: .*)?)$",
        kind="error",
        example="[rank4]:[rank4]: RuntimeError: NCCL communicator was aborted on rank 4.",
        printed_by="python/cpython/Lib/traceback.py@v3.11.0",
        composed=True,
    ),
    EventLine(
        anchor="Main process received SIG",
        regex=r"Main process received SIG\w+, exiting",
        kind="killed",
        example="[2026-11-20 15:01:10,918] [INFO] [launch.py:327:sigkill_handler] Main process "
        "received SIGTERM, exiting",
        printed_by="deepspeedai/DeepSpeed/deepspeed/launcher/launch.py@edaa722",
        composed=True,
    ),
    EventLine(
        anchor="exits with return code = -",
        regex=r"exits with return code = (?P<code>-\d+)",
        kind="killed",
        example="[2026-11-20 15:01:10,918] [ERROR] [launch.py:325:sigkill_handler] "
        "['/usr/bin/python', 'train.py'] exits with return code = -9",
        printed_by="deepspeedai/DeepSpeed/deepspeed/launcher/launch.py@edaa722",
        composed=True,
    ),
    EventLine(
        anchor="failed (exitcode: ",
        regex=r"failed \(exitcode: (?P<code>[1-9]\d*)\) local_rank: \d+",
        kind="error",
        example="E1120 10:00:00.000000 2301 torch/distributed/elastic/multiprocessing/api.py:874] "
        "failed (exitcode: 1) local_rank: 3 (pid: 2310) of binary: /usr/bin/python3",
        printed_by="pytorch/pytorch/torch/distributed/elastic/multiprocessing/api.py@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor="exits with return code = ",
        regex=r"exits with return code = (?P<code>-?[1-9]\d*)",
        kind="error",
        example="[2026-11-20 15:01:10,918] [ERROR] [launch.py:325:sigkill_handler] "
        "['/usr/bin/python', 'train.py'] exits with return code = 1",
        printed_by="deepspeedai/DeepSpeed/deepspeed/launcher/launch.py@edaa722",
        composed=True,
    ),
)
"""Events of every format, looked for after its own."""

NONFINITE_LOSS_ERROR: Final = re.compile(r"(?i)\bloss\b.*\b(?:not finite|nan|inf(?:inite)?)\b")
"""Errors by which frameworks stop a training whose loss is no number."""

LAUNCHER_KILL: Final = re.compile(r"closing signal|Killing subprocess")
"""Kills by which a launcher answers the end of one rank, whatever that was."""

LAUNCHER_SUMMARY: Final = re.compile(
    r"failed \(exitcode: |exits with return code = |\bChildFailedError\b|\bCalledProcessError\b"
)
"""Errors by which a launcher tells that a rank failed, and not of what. The rank's own error may
stand before its last step lines, which come late through a pipe; torchrun repeats it, indented.
"""

FAILURE_EVENT_KINDS: Final = ("out_of_memory", "error", "killed")
ENDING_EVENT_KINDS: Final = (*FAILURE_EVENT_KINDS, "end", "checkpoint")
"""Kinds of events that say how a launch ended."""


def launch_outcome(
    rows: StepRows,
    events: EventRows,
    planned_steps: int | None,
) -> tuple[str, int | None, str | None]:
    """How a launch ended: one of schema.OUTCOMES, with the line that says so and its text.

    rows and events of one launch; planned_steps in the unit of the rows' `step`. Only what comes
    behind the last step counts: before it, a run went on. Of several errors the first is the
    cause, the others follow from it; exhausted memory is a cause wherever it stands.
    """
    top, last_line, odd = rows.top_step, rows.last_line, _not_finite(rows)
    ended = takewhile(lambda e: e["line"] <= last_line, events.of_kinds(["end"]))
    behind = [
        *(event for event in ended if _ends_at(event, top)),
        *events.of_kinds(ENDING_EVENT_KINDS, after_line=last_line),
    ]
    end = next((event for event in behind if event["kind"] == "end"), None)
    if rows and _reached(top, behind, planned_steps):
        return odd or ("completed", *_said(end))
    cause = _cause([e for e in behind if e["kind"] in FAILURE_EVENT_KINDS])
    if cause is not None:
        crashed = "nan_loss" if NONFINITE_LOSS_ERROR.search(cause["text"]) else "crashed"
        return (crashed if cause["kind"] == "error" else cause["kind"], *_said(cause))
    if end is not None:
        return odd or ("completed", *_said(end))
    return odd or ("incomplete", None, None)


def _reached(
    top: int,
    behind: Sequence[Mapping[str, Any]],
    planned_steps: int | None,
) -> bool:
    """Whether the last planned step was trained.

    Where the log interval does not divide it, it has no line, but perhaps a checkpoint.
    """
    if not planned_steps:
        return False
    saved = [event["step"] or 0 for event in behind if event["kind"] == "checkpoint"]
    return max(top, *saved, 0) >= planned_steps


def _cause(bad: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The event that ended a launch: a launcher stops the other ranks after any of them."""
    own = [e for e in bad if not LAUNCHER_KILL.search(e["text"])]
    memory = [e for e in own if e["kind"] == "out_of_memory"]
    told = [e for e in own if e["kind"] != "error" or not LAUNCHER_SUMMARY.search(e["text"])]
    return next(iter((*memory, *told, *own, *bad)), None)


def _not_finite(rows: StepRows) -> tuple[str, int, str] | None:
    """Where the last loss that was printed is no number: since which line and step."""
    last = next((each[-1] for each in _losses(rows.frames_reversed("loss"))), 0.0)
    if math.isfinite(last):
        return None
    odd = (
        frame.filter(pl.col("loss").is_not_null() & ~pl.col("loss").is_finite())
        for frame in rows.frames("line", "step", "loss")
    )
    line, step, _ = next(row for frame in odd for row in frame.iter_rows())
    return "nan_loss", line, f"loss is {last} from step {step} on"


def _losses(frames: Iterable[pl.DataFrame]) -> Iterator[pl.Series]:
    """The losses that were printed, frame by frame, of frames that have any."""
    for printed in (frame["loss"] for frame in frames):
        if (nulls := printed.null_count()) < len(printed):
            yield printed.drop_nulls() if nulls else printed


def _ends_at(event: Mapping[str, Any], step: int) -> bool:
    """Whether the end is that of this step: an event file has more values of it behind that."""
    return (event["step"] or 0) >= step > 0


def _said(event: Mapping[str, Any] | None) -> tuple[int | None, str | None]:
    return (None, None) if event is None else (event["line"], event["text"].strip())
