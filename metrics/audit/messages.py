"""Messages against lines of a log, and against its logged figures."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind

RATE_NOT_POSITIVE: Final = MessageKind(
    "rate-not-positive",
    "a rate that is not above 0 is printed ({where}): a counter that was set back, or a step "
    "that was not timed; it counts in no rate",
    when="A rate at or below 0 is logged.",
)
TIME_NOT_POSITIVE: Final = MessageKind(
    "time-not-positive",
    "a step time that is not above 0 is printed ({where}): a clock that was set back, or a "
    "step that was not timed; it counts in no rate",
    when="A step time at or below 0 is logged.",
)
FIGURE_NOT_FINITE: Final = MessageKind(
    "figure-not-finite",
    "a rate or time that is no number is printed ({where}): a division by a time of 0; it "
    "counts in no rate",
    when="A rate or time that is no number is logged.",
)
MFU_ABOVE_ONE: Final = MessageKind(
    "mfu-above-one",
    "an MFU above 100 % is printed ({where}), which is impossible: a wrong peak or formula of "
    "the framework's; ours does not use it",
    when="An MFU above 100 % is logged.",
)
CLOCK_SET_BACK: Final = MessageKind(
    "clock-set-back",
    "time stamps go back by more than a minute ({where}): a clock that was set, or lines of "
    "another process; no time is taken across it",
    when="Time stamps go back by more than a minute.",
)
STEPS_OUT_OF_ORDER: Final = MessageKind(
    "steps-out-of-order",
    "a step is printed behind a later one ({where}): lines of several runs, as of a table",
    "unranked",
    when="A step is printed after a later one.",
)
COUNTERS_JUMP: Final = MessageKind(
    "counters-jump",
    "samples or tokens counted since the start go back or stand still, or grow by others than "
    "the batches that are printed, from one line to the next ({where}): lines of several runs, "
    "one behind the other or at the same time",
    "unranked",
    when="Counted samples or tokens go back or grow by other than the batches.",
)
FLOPS_JUMP: Final = MessageKind(
    "flops-jump",
    "by the rate and the TFLOP/s or MFU beside it a token costs other FLOPs than on most lines "
    "({where}): lines of several runs, of other models or lengths, or damaged ones",
    "unranked",
    when="Rate and TFLOP/s of a line imply other FLOPs per token than on most lines.",
)
LEVEL_CHANGE: Final = MessageKind(
    "level-change",
    "memory and speed change for good, both from one line to the next ({where}): lines of "
    "several runs, one behind the other, or another batch or length; TGS is a mean of both",
    "unranked",
    when="Memory and speed change for good at one line.",
)
LINES_COPIED: Final = MessageKind(
    "lines-copied",
    "loss, gradient norm, learning rate, epoch and counts of the line before are printed "
    "again, to the last digit, as another step's ({where}): copies, as each node of a job "
    "prints them, that no step or tag tells apart",
    "unranked",
    when="Lines repeat all figures of the line before as another step.",
)
EPOCH_BACK: Final = MessageKind(
    "epoch-back",
    "the epoch goes back from one line to the next ({where}): lines of several runs, one "
    "behind the other or at the same time",
    "unranked",
    when="The epoch goes back.",
)
STEPS_REPEATED: Final = MessageKind(
    "steps-repeated",
    "a step is printed again with another loss, rate, learning rate or time than before, where "
    "one process prints it once or all share it ({where}): several runs, engines of one "
    "program, or ranks whose loss is their own and that no tag tells apart, wrote into this "
    "log at the same time",
    "unranked",
    when="A step is printed again with other figures.",
)
RUNS_INTERLEAVED: Final = MessageKind(
    "runs-interleaved",
    "steps go back again and again where the log prints no start of a run ({where}), each time "
    "after a few lines, or sooner than a step is trained: several runs wrote into this log at "
    "the same time",
    "unranked",
    when="Steps go back again and again without a start line.",
)
STEPS_GO_BACK: Final = MessageKind(
    "steps-go-back",
    "{begins} {step:,} at line {line:,}, where the log prints no start of a run: steps that "
    "were trained again, or lines of another run; they are a launch of their own, and what is "
    "known of the one before may not be true of them",
    when="A launch begins without a start line.",
)
FIGURES_DO_NOT_FOLLOW: Final = MessageKind(
    "figures-do-not-follow",
    "the log's own figures do not follow from these facts{policy} ({reproduced:,} of {lines:,} "
    "lines by {era}){hint}",
    when="The framework's formula does not reproduce the logged figures.",
)
FORMULA_OF_ANOTHER_DATE: Final = MessageKind(
    "formula-of-another-date",
    "prints by the formula of {era} ({span}), its log is of {day}",
    when="The formula that reproduces the figures is not of the log's date.",
)
