"""Messages about the phases of a step."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind

PHASES_EXCEED_STEP: Final = MessageKind(
    "phases-exceed-step",
    "The timers add up to {seconds}, more than the step time of {step}, so the rest is unknown: "
    "timers overlap, or cover other steps than the step time",
    when="Phases of a step take longer than the step.",
)
STEP_OF_TIMERS: Final = MessageKind(
    "step-of-timers",
    "The step time is the sum of these timers, so time outside of them, such as data loading, is "
    "not in the log",
    when="The only time of a step is the sum of its timers.",
)
MICRO_STEP_TIMERS: Final = MessageKind(
    "timers-of-micro-steps",
    "{timers}: printed per micro-step; the table multiplies their mean by gradient_accumulation = "
    "{count}",
    when="The log times micro-steps.",
)
STEP_IS_MICRO_STEP: Final = MessageKind(
    "phases-of-micro-step",
    "The log counts micro-steps, so the table is of one micro-step",
    when="Steps of the log are micro-steps.",
)
LONGEST_DATA_TIME: Final = MessageKind(
    "longest-data-time",
    "data: the longest time over the {ranks} printing ranks",
    when="Several ranks print their data time.",
)
HOST_TIMES: Final = MessageKind(
    "phases-of-host",
    "{timers}: times of the host, which runs ahead of the GPU, so they show where the host waited",
    when="Timers measure the host, not the GPU.",
)
LONGEST_RANKS: Final = MessageKind(
    "phases-of-longest-ranks",
    "{timers}: the longest time over the ranks, of another rank for each timer, so their sum may "
    "exceed a step",
    when="Timers are printed as the longest time over the ranks.",
)
OVERLAPPED_COLLECTIVES: Final = MessageKind(
    "overlapped-collectives",
    "{timers}: only the time after the backward pass; collectives that overlap with it count as "
    "backward",
    when="Gradients may be reduced while backward computes.",
)
WAITS_FOR_RANKS: Final = MessageKind(
    "phases-with-waits",
    "{timers}: include waiting for the other pipeline stage",
    when="Sends and receives of a pipeline are timed.",
)
