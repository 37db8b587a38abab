"""Power of GPUs, sampled beside a log by nvidia-smi or DCGM.

    nvidia-smi --query-gpu=timestamp,index,power.draw --format=csv -l 1 > power.csv
    dcgmi dmon -e 155 -d 1000 | ts '%Y-%m-%d %H:%M:%S' > dcgm.txt

nvidia-smi stamps each line with the machine's local time; dcgmi dmon prints no time, so `ts` or
another program has to. The samples become one fact: the power of all sampled GPUs together, at the
start of each round. Rounds without all GPUs are left out, and long series become means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

from .spec import CompanionFile

MAX_ROUNDS: Final = 2_000
"""Rounds kept of a series; more are averaged."""
MIN_ROUNDS: Final = 3
MAX_POWER_BYTES: Final = 32 * 1024 * 1024
"""Limit for files of samples: a day of eight GPUs, every second."""
MAX_WATTS: Final = 1e5
"""Of one GPU, far above any."""

GPU_COLUMNS: Final = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
"""Columns of nvidia-smi that tell the GPUs apart."""
POWER_COLUMN: Final = re.compile(r"power\.draw(?:\.(?:average|instant))?(?: \[W\])?")
STAMP: Final = re.compile(
    r"\[?(?P<day>\d{4}[-/]\d\d[-/]\d\d)[ T](?P<time>\d\d:\d\d:\d\d(?:\.\d{1,6})?)\]?"
)
DCGM_ROW: Final = re.compile(r"GPU (?P<gpu>\d+)\s+(?P<values>\S.*)")
DCGM_POWER: Final = ("POWER", "PWR", "PWRINS")
"""Short names of DCGM's fields 155 and 157."""


class Sample(NamedTuple):
    """Power of one GPU [W]; second: of its stamp, None without a stamp."""

    gpu: str
    second: float | None
    watts: float


def _seconds(text: str) -> float | None:
    """Return a local stamp as seconds, without a zone."""
    match = STAMP.match(text)
    if match is None:
        return None
    with suppress(ValueError):
        stamp = datetime.fromisoformat(f"{match['day'].replace('/', '-')}T{match['time']}")
        return (stamp - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001 - no zone is printed
    return None


def _watts(text: str) -> float | None:
    with suppress(ValueError):
        watts = float(text.strip().removesuffix("W"))
        return watts if 0 <= watts < MAX_WATTS else None
    return None


def _smi_samples(lines: Sequence[str]) -> Iterator[Sample]:
    """Yield the samples of nvidia-smi's CSV with a header; none of another CSV."""
    names = [name.strip() for name in lines[0].split(",")] if lines else []
    power = next((i for i, name in enumerate(names) if POWER_COLUMN.fullmatch(name)), None)
    if power is None or "timestamp" not in names:
        return
    stamp = names.index("timestamp")
    gpu = next((names.index(name) for name in GPU_COLUMNS if name in names), None)
    for line in lines[1:]:
        fields = line.split(",")
        if len(fields) != len(names):
            continue
        second, watts = _seconds(fields[stamp].strip()), _watts(fields[power])
        if second is not None and watts is not None:
            yield Sample("" if gpu is None else fields[gpu].strip(), second, watts)


def _dcgm_samples(lines: Sequence[str]) -> Iterator[Sample]:
    """Yield the samples of `dcgmi dmon`, with or without a stamp before each line."""
    place: int | None = None
    for line in lines:
        stamp = STAMP.match(line)
        bare = line[stamp.end() :].strip() if stamp else line.strip()
        if bare.startswith("#"):
            names = bare.lstrip("# ").split()[1:]
            place = next((i for i, name in enumerate(names) if name in DCGM_POWER), None)
            continue
        row = DCGM_ROW.fullmatch(bare)
        if row is None or place is None:
            continue
        values = row["values"].split()
        if place < len(values) and (watts := _watts(values[place])) is not None:
            yield Sample(row["gpu"], _seconds(line) if stamp else None, watts)


def _rounds(samples: Sequence[Sample]) -> list[tuple[float | None, float]]:
    """Return the start of each round of all GPUs, and their power together [W]."""
    gpus = {sample.gpu for sample in samples}
    rounds = list[tuple[float | None, float]]()
    current = dict[str, Sample]()
    for sample in samples:
        if sample.gpu in current:
            current = {}
        current[sample.gpu] = sample
        if len(current) == len(gpus):
            first = next(iter(current.values()))
            rounds.append((first.second, sum(one.watts for one in current.values())))
            current = {}
    return rounds


def _means(rounds: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MAX_ROUNDS rounds: the start and the mean power of several."""
    each = -(-len(rounds) // MAX_ROUNDS)
    parts = [rounds[i : i + each] for i in range(0, len(rounds), each)]
    return [(part[0][0], sum(watts for _, watts in part) / len(part)) for part in parts]


def power_facts(lines: Sequence[str]) -> Mapping[str, str]:
    """Return the samples of a file as the fact `power_samples`; none of another file."""
    by_tool = {"nvidia-smi": [*_smi_samples(lines)], "dcgmi": [*_dcgm_samples(lines)]}
    tool, samples = max(by_tool.items(), key=lambda item: len(item[1]))
    rounds = _rounds(samples)
    if len(rounds) < MIN_ROUNDS:
        return {}
    known = {"tool": tool, "gpus": len({sample.gpu for sample in samples})}
    stamped = [(second, watts) for second, watts in rounds if second is not None]
    rising = all(now[0] < later[0] for now, later in pairwise(stamped))
    if len(stamped) < len(rounds) or not rising:
        return {"power_samples": json.dumps(known | {"start": None})}
    kept, start = _means(stamped), stamped[0][0]
    return {
        "power_samples": json.dumps(
            known
            | {
                "start": start,
                "end": round(stamped[-1][0] - start, 3),
                "seconds": [round(second - start, 3) for second, _ in kept],
                "watts": [round(watts, 1) for _, watts in kept],
            }
        )
    }


POWER_FILES: Final = (
    CompanionFile(
        names=("*.csv", "*dcgm.txt", "*dcgmi.txt"),
        kind="lines",
        read=power_facts,
        max_bytes=MAX_POWER_BYTES,
    ),
)
