"""Outcomes of launches: errors, kills and exhausted memory in any framework.

Each framework's own format covers the end of training as planned (events of kind `end`).
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from typing import Any, Final

import polars as pl

from ..core.schema import THEN_FAILED
from ..formats.spec import EventLine
from .event_rows import EventRows
from .step_rows import StepRows

MESSAGE_PREFIX: Final = r"^ *+(?:\[[^\]]*\]:?\s*|\d+: *)*+"
"""Any number of rank, node and framework tags before a message.

Pages indent quoted logs, and torchrun indents the lines of a rank that it repeats.
"""

SCRIPTS: Final = "scripts of users, in their own words"
LSF_REPORT: Final = "IBM Spectrum LSF, the report at the end of a job's output"
LSF_EXITED: Final = r"^Subject: Job \d+: <.*> in cluster <\S+> Exited\s*$"
"""Line of a job with an exit code other than 0; without a failure it ends in Done."""

ROOT_CAUSE: Final = "Root Cause (first observed failure):"
"""Line of torchrun's report before the rank that failed first.

If the rank recorded its error, the indented traceback follows.
"""

_KILLED_CODE: Final = r"-(?:2|9|15)|1(?:30|37|43)"
"""Exit codes of a process that SIGINT, SIGKILL or SIGTERM ended. Other signals are crashes."""

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
        anchor="collective operation timeout",
        regex=r"(?P<error>Watchdog caught collective operation timeout: Work\w+\(.*)",
        kind="error",
        example="[rank3]:[E921 09:13:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=13713, OpType=_ALLGATHER_BASE, "
        "NumelIn=1, NumelOut=8, Timeout(ms)=600000) ran for 600003 milliseconds before timing out.",
        printed_by="pytorch/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp@v2.9.0",
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
        anchor="TERM_",
        regex=r"^TERM_[A-Z_]+: job killed\b",
        kind="killed",
        example="TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
        printed_by=LSF_REPORT,
        composed=True,
    ),
    EventLine(
        anchor="Subject: Job ",
        regex=LSF_EXITED,
        kind="error",
        example="Subject: Job 123: <pretrain> in cluster <summit> Exited",
        printed_by=LSF_REPORT,
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
        anchor="(exitcode: ",
        regex=rf"failed \(exitcode: (?P<code>{_KILLED_CODE})\) local_rank: \d+",
        kind="killed",
        example="E1120 10:00:00.000000 2301 torch/distributed/elastic/multiprocessing/api.py:874] "
        "failed (exitcode: -9) local_rank: 3 (pid: 2310) of binary: /usr/bin/python3",
        printed_by="pytorch/pytorch/torch/distributed/elastic/multiprocessing/api.py@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor=" death signal, ",
        regex=r"Received (?:Signals\.SIG\w+|\d+) death signal, shutting down workers",
        kind="killed",
        example="W1016 06:21:18.872000 2301 torch/distributed/elastic/agent/server/api.py:688] "
        "Received Signals.SIGINT death signal, shutting down workers",
        printed_by="pytorch/pytorch/torch/distributed/elastic/agent/server/api.py@v2.9.0",
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
        anchor="Aborted",
        regex=MESSAGE_PREFIX + r"Aborted[.!]\s*$",  # of a command line tool after Ctrl-C
        kind="killed",
        example="Aborted!",
        printed_by="pallets/click/src/click/core.py@8.1.8",
        composed=True,
    ),
    EventLine(
        anchor="Error",
        regex=MESSAGE_PREFIX
        + r"(?!(?:CommandNotFound|Conda)Error: )"  # conda's messages to a shell without its setup
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
        anchor="with return code = ",
        regex=rf"exits with return code = (?P<code>{_KILLED_CODE})(?!\d)",
        kind="killed",
        example="[2026-11-20 15:01:10,918] [ERROR] [launch.py:325:sigkill_handler] "
        "['/usr/bin/python', 'train.py'] exits with return code = -9",
        printed_by="deepspeedai/DeepSpeed/deepspeed/launcher/launch.py@edaa722",
        composed=True,
    ),
    EventLine(
        anchor="failed (exitcode: ",
        regex=r"failed \(exitcode: (?P<code>-?[1-9]\d*)\) local_rank: \d+",
        kind="error",
        example="E1120 10:00:00.000000 2301 torch/distributed/elastic/multiprocessing/api.py:874] "
        "failed (exitcode: 1) local_rank: 3 (pid: 2310) of binary: /usr/bin/python3",
        printed_by="pytorch/pytorch/torch/distributed/elastic/multiprocessing/api.py@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor="Traceback (most",
        regex=MESSAGE_PREFIX + r"(?P<error>Traceback \(most recent call last\)):\s*$",
        kind="error",
        example="Traceback (most recent call last):",
        printed_by="python/cpython/Lib/traceback.py@v3.11.0",
        composed=True,
    ),
    EventLine(
        anchor=ROOT_CAUSE,
        regex=MESSAGE_PREFIX + re.escape(ROOT_CAUSE) + r"\s*$",
        kind="error",
        example="Root Cause (first observed failure):",
        printed_by="pytorch/pytorch/torch/distributed/elastic/multiprocessing/errors/__init__.py"
        "@v2.9.0",
        composed=True,
    ),
    EventLine(
        anchor="Training ",
        regex=MESSAGE_PREFIX + r"Training (?:is )?(?:done|completed?|finished)"
        r"(?: in [\d.,]{1,20} ?(?:s|sec|seconds|min|minutes|h|hours))?[.!]{0,3}\s*$",
        kind="end",
        overtakes=True,  # a script may train again, and its prints may wait in a buffer
        example="Training done in 49.87 seconds.",
        printed_by=SCRIPTS,
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
"""Events of every format, tried after the format's own."""

NONFINITE_LOSS_ERROR: Final = re.compile(r"(?i)\bloss\b.*\b(?:not finite|nan|inf(?:inite)?)\b")
"""Errors that stop a training whose loss is not a number."""

LAUNCHER_KILL: Final = re.compile(r"closing signal|Killing subprocess")
"""Kills by which a launcher responds to the end of one rank, for any cause."""

LAUNCHER_SUMMARY: Final = re.compile(
    r"failed \(exitcode: |exits with return code = |\bChildFailedError\b|\bCalledProcessError\b"
    rf"|{LSF_EXITED}|{re.escape(ROOT_CAUSE)}"
)
"""Errors by which a launcher reports a failed rank without the cause.

The rank's own error may appear before its last step lines, which arrive late through a pipe;
torchrun repeats the error, indented.
"""

TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\):\s*$")
TRACEBACK_WITHOUT_ERROR: Final = "a traceback whose error message is cut off or of an unknown kind"
"""Words of the log where only the begin of a traceback is known; any other event says more."""

EXIT_CODE: Final = re.compile(r"exit(?:code:|s with return code =) (-?\d{1,9})")
"""Exit code in a launcher's line on a failed process."""

MESSAGE_TAGS: Final = re.compile(r"^.*\]:? ")
"""Tags before a message: node, rank, time, source file."""

SIGNAL_CODE: Final = re.compile(r"exit(?:code:|s with return code =) -\d")
"""Exit code of a process that a signal ended: the cause, unless the rank prints an error."""

FAILURE_EVENT_KINDS: Final = ("out_of_memory", "error", "killed")
ENDING_EVENT_KINDS: Final = (*FAILURE_EVENT_KINDS, "end", "checkpoint")
"""Kinds of events that show how a launch ended."""


def launch_outcome(
    rows: StepRows,
    events: EventRows,
    planned_steps: int | None,
    ends: Collection[int] = (),
) -> tuple[str, int | None, str | None]:
    """Return the outcome (one of schema.OUTCOMES) with its line number and line text.

    rows, events: of one launch
    planned_steps: in the unit of the rows' `step`
    ends: lines after which the printing rank trains no step

    Only events after the last step count: after earlier ones, the run went on. Without steps, the
    first end counts instead. The first of several errors is the cause, and the others follow from
    it. Exhausted memory is always the cause. What fails after the end of training leaves the run
    completed, and the text has both lines.
    """
    top, odd = rows.top_step, _not_finite(rows)
    last_line = rows.last_line or _line_before_end(events)
    ended = takewhile(lambda e: e["line"] <= last_line, events.of_kinds(["end"]))
    behind = [
        *(event for event in ended if _ends_at(event, top)),
        *events.of_kinds(ENDING_EVENT_KINDS, after_line=last_line),
    ]
    end = next((event for event in behind if event["kind"] == "end"), None)
    if rows and _reached(top, behind, planned_steps):
        return odd or ("completed", *_line_and_text(end))
    bad = [e for e in behind if e["kind"] in FAILURE_EVENT_KINDS]
    cause = _cause(bad)
    done = _end_before(bad, behind, ends) if rows else None
    if cause is not None and done is not None:
        line, text = _line_and_text(done)
        return odd or ("completed", line, f"{text}{THEN_FAILED}{_line_and_text(cause)[1]}")
    if cause is not None:
        return _failure(cause, [e for e in behind if e["kind"] == "end"])
    if end is not None:
        return odd or ("completed", *_line_and_text(end))
    return odd or ("incomplete", None, None)


def _failure(
    cause: Mapping[str, Any], ends: Sequence[Mapping[str, Any]]
) -> tuple[str, int | None, str | None]:
    """Return the outcome of a launch that failed.

    ends: lines of a normal end
    """
    if TRACEBACK.search(cause["text"]):
        return "crashed", cause["line"], TRACEBACK_WITHOUT_ERROR
    if ends and (code := EXIT_CODE.search(cause["text"])):
        return _failed_exit(cause, code[1], ends)
    crashed = "nan_loss" if NONFINITE_LOSS_ERROR.search(cause["text"]) else "crashed"
    return (crashed if cause["kind"] == "error" else cause["kind"], *_line_and_text(cause))


def _failed_exit(
    cause: Mapping[str, Any], code: str, ends: Sequence[Mapping[str, Any]]
) -> tuple[str, int, str]:
    """Return the outcome of a launch of which some processes fail at their exit.

    code: exit code of the first that failed; ends: lines of a normal end, at least one
    """
    with suppress(ValueError):
        code = f"{code} ({signal.Signals(-int(code)).name})"
    lines = f"{len(ends):,} lines report" if len(ends) > 1 else "a line reports"
    words = MESSAGE_TAGS.sub("", ends[0]["text"]).strip().rstrip(".")
    text = f"a process exited with code {code}, but {lines} a normal end: {words}"
    outcome = "crashed" if cause["kind"] == "error" else str(cause["kind"])
    return outcome, int(cause["line"]), text


def _end_before(
    bad: Sequence[Mapping[str, Any]], behind: Sequence[Mapping[str, Any]], ends: Collection[int]
) -> Mapping[str, Any] | None:
    """Return the end of training before the first failure; None without any.

    bad: failures among the events of `behind`; ends: as in `launch_outcome`
    """
    first = min((event["line"] for event in bad), default=0)
    return next(
        (event for event in behind if event["line"] in ends and event["line"] < first), None
    )


def _line_before_end(events: EventRows) -> int:
    """Return the line before the first end of training; 0 without an end."""
    return next((int(event["line"]) - 1 for event in events.of_kinds(["end"])), 0)


def _reached(
    top: int,
    behind: Sequence[Mapping[str, Any]],
    planned_steps: int | None,
) -> bool:
    """Return whether the last planned step was trained.

    The last step has no line if the log interval does not divide it, but perhaps a checkpoint.
    """
    if not planned_steps:
        return False
    saved = [event["step"] or 0 for event in behind if event["kind"] == "checkpoint"]
    return max(top, *saved, 0) >= planned_steps


def _cause(bad: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the event that ended a launch: a launcher stops the other ranks after it.

    The error of the rank that failed first says more than the exit code of a rank, and all say more
    than the begin of a traceback.
    """
    bad = [e for e in bad if not TRACEBACK.search(e["text"])] or bad
    not_killed = [e for e in bad if not LAUNCHER_KILL.search(e["text"])]
    memory = [e for e in not_killed if e["kind"] == "out_of_memory"]
    specific = [
        e
        for e in not_killed
        if e["kind"] != "error"
        or not LAUNCHER_SUMMARY.search(e["text"])
        or SIGNAL_CODE.search(e["text"])
    ]
    cause = next(iter((*memory, *specific, *not_killed, *bad)), None)
    if cause is not None and LAUNCHER_SUMMARY.search(cause["text"]):
        return next(_root_errors(bad), cause)
    return cause


def _root_errors(bad: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the recorded errors of ranks that failed first on their nodes."""
    for before, event in pairwise(bad):
        is_recorded = event["kind"] == "error" and event["text"].startswith(" ")
        if ROOT_CAUSE in before["text"] and is_recorded:
            yield event


def _not_finite(rows: StepRows) -> tuple[str, int, str] | None:
    """Return outcome, first line and text if the training no longer learns at its end."""
    last_loss = _last(rows, "loss")
    if last_loss is None:
        return _other_loss_not_finite(rows) or _gradients_not_finite(rows, last_loss)
    if math.isfinite(last_loss):
        return _gradients_not_finite(rows, last_loss)
    first: tuple[int, int] | None = None
    for frame in rows.frames("line", "step", "loss"):
        first = _first_of_streak(frame, "loss", first)
    assert first is not None  # noqa: S101 - the last loss is not finite
    return "nan_loss", first[0], f"loss is {last_loss} from step {first[1]} on"


def _first_of_streak(
    frame: pl.DataFrame, name: str, first: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Return line and step of the first of the last values that are not finite.

    frame: with line, step and the values; first: of the rows before the frame
    """
    printed = frame.drop_nulls(name)
    finite = printed[name].is_finite().arg_true()
    odd = printed if not len(finite) else printed[int(finite[-1]) + 1 :]
    if len(finite):
        first = None
    return first if first or not odd.height else (odd["line"][0], odd["step"][0])


def _other_loss_not_finite(rows: StepRows) -> tuple[str, int, str] | None:
    """Return the outcome of last losses, under other names, that are not finite.

    Reinforcement learning prints a loss of the actor and of the critic, and none of the training.
    """
    if not rows.has_columns("extra"):
        return None
    frames = (_other_losses(frame) for frame in rows.frames_reversed(*_EXTRA))
    last = next((frame for frame in frames if frame.height), None)
    if last is None or math.isfinite(last["value"][-1]):
        return None
    first = None
    for frame in rows.frames(*_EXTRA):
        first = _first_of_streak(_other_losses(frame), "value", first)
    assert first is not None  # noqa: S101 - the last value is not finite
    name, value = last["name"][-1], last["value"][-1]
    return "nan_loss", first[0], f"{name} is {value} from step {first[1]} on"


_EXTRA: Final = ("line", "step", "extra")
_NOT_FINITE_LOSS: Final = r'"(?P<name>[a-z_]{0,40}loss)": "(?P<value>-?(?:inf|nan))"'


def _other_losses(frame: pl.DataFrame) -> pl.DataFrame:
    """Return line, step, name and value of the rows with a loss in `extra`.

    Of the first loss that is not finite; 0 if all are.
    """
    with_loss = frame.filter(pl.col("extra").str.contains('loss": "', literal=True))
    odd = pl.col("extra").str.extract_groups(_NOT_FINITE_LOSS)
    return (
        with_loss.select("line", "step", odd.alias("odd"))
        .unnest("odd")
        .with_columns(pl.col("value").cast(pl.Float64, strict=False).fill_null(0.0))
    )


def _gradients_not_finite(rows: StepRows, last_loss: float | None) -> tuple[str, int, str] | None:
    """Return the outcome of last gradients that are not finite while the loss is dead.

    A loss is dead if absent, zero, not finite or the same as the last one.
    """
    last_norm = _last(rows, "grad_norm")
    if last_norm is None or math.isfinite(last_norm):
        return None
    streak: list[tuple[int, int, float | None]] = []  # last steps without a finite gradient
    for frame in rows.by_step("step", "line", *_GRADIENT_COLUMNS):
        for step, line, norm, loss, skipped in _printed_by_step(frame):
            if math.isfinite(norm) or (skipped or 0) > 0:
                streak.clear()
            else:
                streak.append((step, line, loss))
    dead = takewhile(lambda row: _is_dead(row[2], last_loss), reversed(streak))
    if len(losses := [loss for *_, loss in dead]) < MIN_DEAD_LINES:
        return None
    step, line, _ = streak[0]
    last = next((loss for loss in losses if loss is not None), None)
    words = "no loss is logged" if last is None else f"the loss stays {last:g}"
    text = f"gradient norm is {last_norm} from step {step} on ({len(streak):,} lines), and {words}"
    return "nan_loss", line, text


_GRADIENT_COLUMNS: Final = ("grad_norm", "loss", "skipped_steps")
MIN_DEAD_LINES: Final = 3
"""Fewest last lines without a finite gradient: loss scaling skips single steps."""


def _printed_by_step(frame: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield step, line and _GRADIENT_COLUMNS of the steps with a gradient norm."""
    printed = frame.group_by("step", maintain_order=True).agg(
        pl.col("line").first(), pl.col(_GRADIENT_COLUMNS).drop_nulls().last()
    )
    return printed.filter(pl.col("grad_norm").is_not_null()).iter_rows()


def _is_dead(loss: float | None, last_loss: float | None) -> bool:
    return loss is None or loss in (0.0, last_loss) or not math.isfinite(loss)


def _last(rows: StepRows, name: str) -> float | None:
    """Return the last printed value of a column."""
    if not rows.has_columns(name):
        return None
    return next((values[-1] for values in _printed(rows.frames_reversed(name), name)), None)


def _printed(frames: Iterable[pl.DataFrame], name: str) -> Iterator[pl.Series]:
    """Yield the printed values of a column, frame by frame, for frames with any."""
    for values in (frame[name] for frame in frames):
        if (nulls := values.null_count()) < len(values):
            yield values.drop_nulls() if nulls else values


def _ends_at(event: Mapping[str, Any], step: int) -> bool:
    """Return whether the end event is at this step or later.

    Event files write more values of the last step after the end.
    """
    return (event["step"] or 0) >= step > 0


def _line_and_text(event: Mapping[str, Any] | None) -> tuple[int | None, str | None]:
    return (None, None) if event is None else (event["line"], event["text"].strip())
