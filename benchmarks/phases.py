"""What the time of a log goes into, by the clock of the thread that parses it.

    python -m benchmarks.phases LOG ...

of logs that `python -m benchmarks.ingest_work write FORMAT LOG …` has written, or of any other.

Each is read into memory (`read_source`), five times by a process of its own, imports not counted. A
phase has what it takes itself, without the phases that it calls. Prints their medians.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Final, ParamSpec, TypeVar

from benchmarks.harness import PYTHON, child, ready_to_read

P = ParamSpec("P")
T = TypeVar("T")

REST: Final = "the rest"
REPEATS: Final = 5


def phases() -> Iterator[tuple[str, object, str]]:
    """Each phase, and the function where it begins: of what, and its name."""
    from fairmfu.ingest.extract import log_tables  # noqa: PLC0415 - of a reader
    from fairmfu.ingest.facts import facts  # noqa: PLC0415
    from fairmfu.ingest.parse.launch_closing import LaunchCloser  # noqa: PLC0415
    from fairmfu.ingest.vector import block_parser, block_plan  # noqa: PLC0415
    from fairmfu.ingest.vector.block_parser import BlockParser  # noqa: PLC0415
    from fairmfu.ingest.vector.block_plan import BlockPlanner  # noqa: PLC0415
    from fairmfu.ingest.vector.fixed_layouts import LayoutCache  # noqa: PLC0415
    from fairmfu.ingest.vector.line_cache import LineCache  # noqa: PLC0415
    from fairmfu.ingest.vector.shape_cache import ShapeCache  # noqa: PLC0415

    yield "the file opened, its formats told", log_tables, "_first_look"
    yield "their regexes and literals made ready", block_parser, "line_matcher"
    yield "shapes learned", ShapeCache, "see"
    yield "lines compared with shapes", LayoutCache, "fit"
    yield "digits to numbers, texts put together", block_plan, "decode_rows"
    yield "other lines looked up and named", LineCache, "of"
    yield "blocks besides: frames, order, single lines", BlockPlanner, "plan"
    yield "restarts, events, kinds, rows put aside", BlockParser, "parse"
    yield "counters brought to steps", LaunchCloser, "close"
    yield "facts that follow from all rows", facts, "infer_facts"


class Clock:
    """Seconds of phases, each without those that it calls."""

    def __init__(self) -> None:
        self.seconds = Counter[str]()
        self._inner = [0.0]

    def counting(self, phase: str, call: Callable[P, T]) -> Callable[P, T]:
        """The same function, which counts for a phase."""

        @wraps(call)
        def counted(*args: P.args, **named: P.kwargs) -> T:
            began = time.perf_counter()
            self._inner.append(0.0)
            try:
                return call(*args, **named)
            finally:
                took = time.perf_counter() - began
                self.seconds[phase] += took - self._inner.pop()
                self._inner[-1] += took

        return counted


def read(log: Path) -> Mapping[str, float]:
    """Seconds of the phases of one log, in this process."""
    ready_to_read()
    from fairmfu.ingest.extract.log_tables import read_log_tables  # noqa: PLC0415

    clock = Clock()
    for phase, owner, name in [*phases()]:
        setattr(owner, name, clock.counting(phase, getattr(owner, name)))
    clock.counting(REST, read_log_tables)(log)
    return clock.seconds


def main() -> None:
    """Print the table, or the seconds of one reading."""
    if sys.argv[1] == "read":
        print(json.dumps(read(Path(sys.argv[2]))))
        return
    logs = [Path(name) for name in sys.argv[1:]]
    command = (PYTHON, "-m", "benchmarks.phases", "read")
    found = {log: [json.loads(child([*command, log]).said) for _ in range(REPEATS)] for log in logs}
    print(f"| phase, ms | {' | '.join(log.stem for log in logs)} |")
    print(f"| --- |{' ---: |' * len(logs)}")
    for phase in (*(name for name, _, _ in phases()), REST):
        cells = (median(one.get(phase, 0.0) for one in found[log]) for log in logs)
        print(f"| {phase} | {' | '.join(f'{1e3 * seconds:.0f}' for seconds in cells)} |")
    sums = (median(sum(one.values()) for one in found[log]) for log in logs)
    print(f"| in all | {' | '.join(f'{1e3 * seconds:.0f}' for seconds in sums)} |")


if __name__ == "__main__":
    main()
