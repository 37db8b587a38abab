"""Messages against the merging of sources, and against incomplete launches."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind

MAY_BE_SAME_LAUNCH: Final = MessageKind(
    "may-be-same-launch",
    "may tell of the same launch as {other}: {reason}",
    when="Two sources may be of one launch, and nothing decides.",
)
GROUPS_IN_ONE_LOG: Final = MessageKind(
    "groups-in-one-log",
    "lines of TorchFT's replica groups {groups} stand in one log, and do not say which of them "
    "they are of; ingest a log of each",
    "unranked",
    when="Replica groups wrote into one log.",
)
GROUPS_MISSING: Final = MessageKind(
    "groups-missing",
    "of TorchFT's replica groups ({count}), each with a log of its own, only these are told "
    "of: {groups}; GPUs, batch and tokens/s are of them alone",
    "unranked",
    when="Logs of some replica groups are not there.",
)
GROUPS_UNEQUAL: Final = MessageKind(
    "groups-unequal",
    "TorchFT's replica groups are not known to have the same number of GPUs each",
    "unranked",
    when="The numbers of GPUs of replica groups differ or are unknown.",
)
GROUPS_LACK_STEPS: Final = MessageKind(
    "groups-lack-steps",
    "TorchFT's replica groups do not all tell of the same steps ({lacking}): some were away, "
    "so the pace is of fewer GPUs, or logs are cut",
    "unranked",
    when="Replica groups logged different steps.",
)
