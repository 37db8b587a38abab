"""Timers of Megatron and its forks, by phase of a step.

Megatron divides its timers by the log interval, so a value is the mean of a step. Three sets of
names: of 2020 and GPT-NeoX (`forward`, `batch generator`), of 2021 (`forward-compute`), and of 2022
and later (`forward-backward`, in a block with the shortest and longest time over the ranks).
`forward` contains the batch generator. `forward-backward` contains the reduction of gradients since
Megatron Core 0.5; where an earlier version reduces after it, the rest is as much too long.

Sends and receives of a pipeline include the wait for the other stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..deepspeed.phases import text_timer
from ..spec import PhaseTimer

OF_2020: Final[Mapping[str, Mapping[str, str]]] = {
    "forward": {"phase": "forward", "beside": "optimizer"},
    "batch generator": {"phase": "data", "part_of": "forward"},
    "backward": {"phase": "backward", "beside": "optimizer"},
    "backward-allreduce": {"phase": "collectives", "part_of": "backward"},
    "optimizer": {"phase": "optimizer", "beside": "forward"},
}
OF_2021: Final[Mapping[str, Mapping[str, str]]] = {
    "forward-compute": {"phase": "forward"},
    "batch-generator": {"phase": "data", "part_of": "forward-compute"},
    "backward-compute": {"phase": "backward"},
    **{
        name: {"phase": "pipeline", "caveat": "waits"}
        for name in (
            "forward-recv",
            "forward-send",
            "backward-recv",
            "backward-send",
            "forward-send-backward-recv",
            "backward-send-forward-recv",
            "forward-send-forward-recv",
            "backward-send-backward-recv",
            "forward-backward-send-forward-backward-recv",
        )
    },
    "backward-params-all-reduce": {"phase": "collectives"},
    "backward-layernorm-all-reduce": {"phase": "collectives"},
    "backward-embedding-all-reduce": {"phase": "collectives"},
    "optimizer": {"phase": "optimizer", "beside": "forward-compute"},
}
OF_2022: Final[Mapping[str, Mapping[str, str]]] = {
    "forward-backward": {"phase": "forward_backward"},
    **{
        name: {"phase": "collectives", "part_of": "forward-backward"}
        for name in ("all-grads-sync", "layernorm-grads-all-reduce", "embedding-grads-all-reduce")
    },
    "optimizer": {"phase": "optimizer"},
}


def _timers(names: Mapping[str, Mapping[str, str]], **common: Any) -> tuple[PhaseTimer, ...]:  # noqa: ANN401 - fields of timers
    """Return timers of one line. names: fields by name; common: fields of all."""
    return tuple(
        PhaseTimer(timer=name, after_step=True, **{"text": text_timer(name), **common, **fields})
        for name, fields in names.items()
    )


def _over_ranks(names: Mapping[str, Mapping[str, str]]) -> tuple[PhaseTimer, ...]:
    """Return timers printed as the shortest and longest time over ranks: the longest."""
    texts = {
        name: {**fields, "text": rf"(?:^|[^A-Za-z/-]){name} \.\.+: \([0-9.]+, ([0-9.]+)\)"}
        for name, fields in names.items()
    }
    return _timers(texts, group="Megatron since 2022", caveat="max_over_ranks")


MEGATRON_TIMERS: Final = (
    *_timers(OF_2021, group="Megatron 2021"),
    *_timers(OF_2020, group="Megatron 2020, GPT-NeoX"),
    *_over_ranks(OF_2022),
)
"""Timers after the line of an iteration."""
