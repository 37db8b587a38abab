"""Messages against lines and figures of a log; errors of logged formulas."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind

from ..core.messages import MessageKind
from ..formula.messages import FormulaInputError, ShapeError

ONE_LOG_FIX: Final = "ingest one log per run"
"""Remedy where several runs wrote into one log."""

RATE_NOT_POSITIVE: Final = MessageKind(
    "rate-not-positive",
    "Ignored a logged rate at or below 0 ({where}): a counter was reset, or a step was not timed",
    when="A rate at or below 0 is logged.",
)
TIME_NOT_POSITIVE: Final = MessageKind(
    "time-not-positive",
    "Ignored a logged step time at or below 0 ({where}): a clock was set back, or a step was not "
    "timed",
    when="A step time at or below 0 is logged.",
)
FIGURE_NOT_FINITE: Final = MessageKind(
    "figure-not-finite",
    "Ignored a logged rate or time that is not a number ({where}): a division by 0 seconds",
    when="A rate or time that is no number is logged.",
)
MFU_ABOVE_ONE: Final = MessageKind(
    "mfu-above-one",
    "The log prints an impossible MFU above 100 % ({where}): the framework's peak or formula is "
    "wrong. Ours does not use it",
    when="An MFU above 100 % is logged.",
)
CLOCK_SET_BACK: Final = MessageKind(
    "clock-set-back",
    "Time stamps go back by more than a minute ({where}): a clock was set, or another process "
    "wrote here. No time is measured across it",
    when="Time stamps go back by more than a minute.",
)
STEPS_OUT_OF_ORDER: Final = MessageKind(
    "steps-out-of-order",
    "A step is logged after a later one ({where}): lines of several runs",
    "unranked",
    when="A step is printed after a later one.",
    fix=ONE_LOG_FIX,
)
COUNTERS_JUMP: Final = MessageKind(
    "counters-jump",
    "Counted samples or tokens go back, stop, or grow by other than the logged batches ({where}): "
    "lines of several runs",
    "unranked",
    when="Counted samples or tokens go back or grow by other than the batches.",
    fix=ONE_LOG_FIX,
)
FLOPS_JUMP: Final = MessageKind(
    "flops-jump",
    "Logged rate and TFLOP/s or MFU imply other FLOPs per token than on most lines ({where}): "
    "lines of several runs, or damaged lines",
    "unranked",
    when="Rate and TFLOP/s of a line imply other FLOPs per token than on most lines.",
    fix=ONE_LOG_FIX,
)
LEVEL_CHANGE: Final = MessageKind(
    "level-change",
    "Memory and speed both change for good ({where}): several runs in sequence, or another batch "
    "or sequence length. TGS averages both",
    "unranked",
    when="Memory and speed change for good at one line.",
    fix=ONE_LOG_FIX,
)
LINES_COPIED: Final = MessageKind(
    "lines-copied",
    "Lines repeat loss, gradient norm, learning rate, epoch and counts of the line before as "
    "another step ({where}): copies from several nodes",
    "unranked",
    when="Lines repeat all figures of the line before as another step.",
    fix="ingest the log of one node",
)
EPOCH_BACK: Final = MessageKind(
    "epoch-back",
    "The epoch goes back ({where}): lines of several runs",
    "unranked",
    when="The epoch goes back.",
    fix=ONE_LOG_FIX,
)
STEPS_REPEATED: Final = MessageKind(
    "steps-repeated",
    "A step is logged again with another loss, rate, learning rate or time ({where}): several "
    "runs, engines or untagged ranks wrote here at the same time",
    "unranked",
    when="A step is printed again with other figures.",
    fix=ONE_LOG_FIX,
)
RUNS_INTERLEAVED: Final = MessageKind(
    "runs-interleaved",
    "Steps go back again and again without a start line ({where}): several runs wrote here at the "
    "same time",
    "unranked",
    when="Steps go back again and again without a start line.",
    fix=ONE_LOG_FIX,
)
STEPS_GO_BACK: Final = MessageKind(
    "steps-go-back",
    "{begins} {step:,} at line {line:,} without a start line: retrained steps, or lines of "
    "another run. They are a launch of their own, and facts of the launch before may not hold for "
    "them",
    when="A launch begins without a start line.",
)
FIGURES_DO_NOT_FOLLOW: Final = MessageKind(
    "figures-do-not-follow",
    "Logged figures do not follow from these facts{policy}: {era} reproduces {reproduced:,} of "
    "{lines:,} lines{hint}",
    when="The framework's formula does not reproduce the logged figures.",
)
FORMULA_OF_ANOTHER_DATE: Final = MessageKind(
    "formula-of-another-date",
    "The logged figures match the formula of {era} ({span}), but the log is from {day}",
    when="The formula that reproduces the figures is not of the log's date.",
)

# -- errors --------------------------------------------------------------------------------------

ERA_WITHOUT_EXPERTS: Final = ErrorKind(
    "era-without-experts",
    "This version of the framework had no experts.",
    "A framework's formula is from before it had experts, and the model has some.",
    ShapeError,
)
TOOLS_WITHOUT_POLICY: Final = ErrorKind(
    "tools-without-policy",
    "The formulas of other tools do not cover recompute={policy}.",
    "Other tools' formulas are asked for with selective activation checkpointing.",
    FormulaInputError,
    fix="give recompute=none or recompute=full",
)
