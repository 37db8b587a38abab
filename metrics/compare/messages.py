"""Messages of comparisons: runs that only samples/s may rank, and prices."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError

from ..core.messages import MessageKind

BATCH_UNKNOWN: Final = MessageKind(
    "batch-unknown",
    "Samples/s do not rank this run either: its global batch is unknown",
    "unranked",
    when="The tokens and the global batch of a run are unknown, and its step time is known.",
    fix="fairmfu set RUN global_batch_size=N",
)
SAMPLES_UNLIKE: Final = MessageKind(
    "samples-unlike",
    "Samples/s rank only runs with the same global batch, GPUs, model and setup; {other} has "
    "different {differences}",
    "unranked",
    when="The tokens of runs are unknown, and the runs differ in what samples/s depend on.",
)
WORK_UNCONFIRMED: Final = MessageKind(
    "work-unconfirmed",
    "Samples/s rank only runs that do the same work, and {losses}",
    "unranked",
    when="The tokens of runs are unknown, and their losses do not agree at equal steps.",
    fix="fairmfu set RUN NAME=VALUE for the missing facts of TGS",
)


class PriceError(FairmfuError, ValueError):
    """Text that is no price of a GPU-hour."""


NOT_A_PRICE: Final = ErrorKind(
    "not-a-price",
    "{text!r} is not a price per GPU-hour.",
    "A price is not a number above 0, with or without a currency.",
    PriceError,
    fix="write 2.50 or '2.50 EUR'",
)
