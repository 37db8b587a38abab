"""Messages against a run as a whole: unread lines, old readings, failed analyses."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind
from ..core.run_table import FAULT

ANALYSIS_FAILED: Final = MessageKind(
    "analysis-failed",
    f"{FAULT}{{error}}",
    "unranked",
    when="The analysis of a run failed: a fault of fairmfu.",
)

UNREAD_LINES: Final = MessageKind(
    "unread-lines",
    "lines of steps or facts that are cut off or damaged, and were not read: {unread}",
    when="A few lines that look like steps could not be read.",
)
MANY_UNREAD_LINES: Final = MessageKind(
    "many-unread-lines",
    "lines of steps or facts that are cut off or damaged, and were not read: {unread} of {every}",
    "unranked",
    when="More than a tenth of the lines that look like steps could not be read.",
)
OUTDATED_READING: Final = MessageKind(
    "outdated-reading",
    "{reading}",
    "unranked",
    when="An earlier fairmfu read the log, and today's reads it otherwise.",
)
RATE_AGAINST_LOG: Final = MessageKind(
    "rate-against-log",
    "TGS is {times:.2f}x what the log's own rates say, more than other steps explain: tokens "
    "per step are counted otherwise (micro_batch_size, seq_len, gpus, context_parallel?)",
    "unranked",
    when="Our rate and the logged ones cannot be of the same tokens.",
)
