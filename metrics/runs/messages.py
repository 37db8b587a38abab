"""Messages against the merging of sources, and against incomplete launches."""

from __future__ import annotations

from typing import Final

from ..core.messages import MessageKind

MAY_BE_SAME_LAUNCH: Final = MessageKind(
    "may-be-same-launch",
    "This may be the same launch as {other}: {reason}",
    when="Two sources may be of one launch, and nothing decides.",
)
GROUPS_IN_ONE_LOG: Final = MessageKind(
    "groups-in-one-log",
    "Lines of TorchFT's replica groups {groups} are in one log and do not name their group",
    "unranked",
    when="Replica groups wrote into one log.",
    fix="ingest one log per group",
)
GROUPS_MISSING: Final = MessageKind(
    "groups-missing",
    "Some TorchFT replica groups have no log here (logs here: {groups}; groups in all: "
    "{count}). GPUs, batch and tokens/s cover only these",
    "unranked",
    when="Logs of some replica groups are missing.",
    fix="ingest the other groups' logs",
)
GROUPS_UNEQUAL: Final = MessageKind(
    "groups-unequal",
    "TorchFT's replica groups may have different numbers of GPUs",
    "unranked",
    when="The numbers of GPUs of replica groups differ or are unknown.",
    fix="give gpus in a facts.toml beside each log",
)
GROUPS_LACK_STEPS: Final = MessageKind(
    "groups-lack-steps",
    "TorchFT's replica groups logged different steps ({lacking}): some groups were away, so fewer "
    "GPUs trained, or logs are cut",
    "unranked",
    when="Replica groups logged different steps.",
)
