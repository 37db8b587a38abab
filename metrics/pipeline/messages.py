"""Messages about whole runs: unread lines, and rates that contradict the log."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind

UNREAD_LINES: Final = MessageKind(
    "unread-lines",
    "Cut-off or damaged lines of steps or facts were not read: {unread}",
    when="A few lines that look like steps could not be read.",
)
MANY_UNREAD_LINES: Final = MessageKind(
    "many-unread-lines",
    "{unread} of {every} lines of steps or facts are cut off or damaged and were not read",
    "unranked",
    when="More than a tenth of the lines that look like steps could not be read.",
    fix="ingest an undamaged copy of the log",
)
RATE_AGAINST_LOG: Final = MessageKind(
    "rate-against-log",
    "TGS is {times:.2f}x the logged rates, so tokens per step must be wrong",
    "unranked",
    when="Our rate and the logged ones cannot be of the same tokens.",
    fix="check micro_batch_size, seq_len, gpus and context_parallel",
)
