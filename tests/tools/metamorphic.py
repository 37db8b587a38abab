"""`make metamorphic`: no transformation of a log changes a figure in silence.

    python -m tests.tools.metamorphic [--logs TEXT] [--only TEXT] [--largest MB] [--verbose]

Each log of sample_logs, of $FAIRMFU_CORPUS and of $FAIRMFU_GENERATED goes through the
transformations of tests/support/transformations.py. The verdict is by rule, on each run that the
files give: its TGS and MFU are those of a run of the log within their interval or 2 %, or they are
withheld, or a warning that the log does not have stands beside them. Exit code 1 where a figure is
another, no warning is new and the run is ranked.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import polars as pl

from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import SIDECAR_NAME, facts_from_values
from fairmfu.ingest.pipeline.api import read_logs
from fairmfu.ingest.store.store import Tables
from fairmfu.metrics.core.run_table import NOT_RANKED, MetricsRow, metrics_rows
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.messages import COUNTED_STALLS, FEW_WINDOWS
from tests.support.folders import ROOT
from tests.support.kinds import of_kind
from tests.support.transformations import TRANSFORMATIONS, Files, Log
from tests.tools.corpus import CORPUS, GENERATED

FOLDERS: Final = (ROOT / "sample_logs", CORPUS, GENERATED)
FIGURES: Final = ("tgs", "mfu", "mfu_full_attention")
TOLERANCE: Final = 0.02
"""A figure that differs by less is the same one."""
MAX_LINES: Final = 4_000
"""Of a longer log the first ones are the log."""
KEPT_FACTS: Final = ("gpus", "seq_len", "global_batch_size", "micro_batch_size", "packed")
"""What somebody who cuts a log's header away still knows."""
ASSUMED: Final = {"seq_len": 1024, "gpus": 8}
"""What is given to a log that has no rate without it."""
NEAR_FACTS: Final = ("gpus", "seq_len", "global_batch_size", "accelerator", "precision")
"""What somebody may give by hand beside a log that prints it."""


@dataclass(frozen=True)
class Violation:
    """A figure that is another one than the log's, without a new warning."""

    log: str
    transformation: str
    figure: str
    value: float
    expected: float
    ranked: bool

    def __str__(self) -> str:
        change = self.value / self.expected - 1
        rank = "ranked" if self.ranked else "unranked"
        return (
            f"{rank:8} {change:+8.1%} {self.figure:20} {self.value:12,.6g} for "
            f"{self.expected:12,.6g}  {self.transformation:40} {self.log}"
        )


def text_logs(folders: Sequence[Path], largest: float) -> Iterator[Path]:
    """Logs that are text, of at most so many MB, in order."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size <= largest * 1e6 and _is_text(path):
                yield path


def _is_text(path: Path) -> bool:
    with path.open("rb") as stream:
        return b"\0" not in stream.read(4096) and path.suffix not in (".toml", ".py", ".gz", ".zst")


def figures_of(files: Files, facts: Mapping[str, object]) -> list[MetricsRow]:
    """The rows of the runs of some files; none where they are refused with a message."""
    try:
        return metrics_rows(analyse(tables_of(files, facts)).metrics)
    except FairmfuError:
        return []


def tables_of(files: Files, facts: Mapping[str, object]) -> Tables:
    """The tables of some files, which lie in a folder of their own."""
    with TemporaryDirectory(prefix="fairmfu-metamorphic-") as folder:
        paths: list[Path] = []
        for name, text in files.items():
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8", errors="surrogateescape")
            paths += [] if name == SIDECAR_NAME else [path]
        if len(paths) > 1:
            return read_logs(*paths, facts=facts)
        # the same as of a store with this log alone, in half of the time
        given = facts_from_values(facts, "flag", Path(folder), "facts")
        return read_log_tables(paths[0], flag_facts=given)


def violations(
    log: str, name: str, rows: Sequence[MetricsRow], known: Sequence[MetricsRow]
) -> Iterator[Violation]:
    """Figures of `rows` that none of `known` has, and beside which no new warning stands.

    known: rows of the log as it is, and of the other one where two are in the files.
    """
    said = {_kind(text) for row in known for text in doubts(row)}
    widest = max(map(_half_width, known), default=0.0)
    for row in rows:
        if any(_kind(text) not in said for text in doubts(row)):
            continue
        ranked = not any(warning.startswith(NOT_RANKED) for warning in row["warnings"])
        for figure in FIGURES:
            value = row[figure]  # type: ignore[literal-required]
            expected = [one[figure] for one in known if one[figure]]  # type: ignore[literal-required]
            if not value or not expected:
                continue
            nearest = min(expected, key=lambda one: abs(value / one - 1))
            if abs(value / nearest - 1) > TOLERANCE + _half_width(row) + widest:
                yield Violation(log, name, figure, value, nearest, ranked)


def _half_width(row: MetricsRow) -> float:
    """How far a rate may be off, as a share of it: by its interval, or by the words beside it."""
    low, high, tgs = row["tgs_low"], row["tgs_high"], row["tgs"]
    if low and high and tgs:
        return (high - low) / 2 / tgs
    few, stalls = (" ".join(of_kind(row, kind)) for kind in (FEW_WINDOWS, COUNTED_STALLS))
    off = [int(told) / 100 for told in re.findall(r"may be off by (\d+)%", few)]
    low = [float(told) / 100 for told in re.findall(r"lowers TGS by ([\d.]+)%: 1 of", stalls)]
    if off or low:
        return max(*off, *(share / max(1 - share, 1e-4) for share in low), 0.0)
    return float("inf") if re.search(r"\b(a single|2) windows? \(", few) else 0.0


def doubts(row: MetricsRow) -> list[str]:
    """What stands beside the figures of a run and speaks against them."""
    return [*row["warnings"], *([row["no_interval"]] if row["no_interval"] else [])]


def _kind(warning: str) -> str:
    """A warning without its numbers, which a shorter log has others of."""
    return re.sub(r"[-+]?\d[\d.,]*", "#", warning)


@dataclass(frozen=True)
class Case:
    """A log, the rows of its runs, and what the files beside it say that its text does not."""

    log: Log
    rows: list[MetricsRow]
    facts: Mapping[str, object]


def read_case(path: Path) -> Case | None:
    """Read a log with the files beside it; None where no run of it has a rate."""
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()[:MAX_LINES]
    text = "".join(f"{line}\n" for line in lines)
    alone = {row["name"]: row for row in figures_of({"run.log": text}, {})}
    try:
        tables = read_logs(path)
    except FairmfuError:
        return None
    beside = told_facts(metrics_rows(analyse(tables).metrics))
    silent = {name: of for name, of in beside.items() if name not in told_facts([*alone.values()])}
    lacking = {name for row in alone.values() for name in row["missing"]}
    silent |= {name: value for name, value in ASSUMED.items() if name in lacking - set(silent)}
    rows = figures_of({"run.log": text}, silent)
    steps = frozenset(line - 1 for line in tables["steps"]["line"].drop_nulls().unique())
    if not any(row["tgs"] for row in rows):
        return None
    return Case(Log(lines, steps, printed_facts(text)), rows, silent)


def rows_with(case: Case, facts: Mapping[str, object]) -> list[MetricsRow]:
    """Return the rows of its runs where these facts are given: of all runs of one file."""
    return figures_of({"run.log": "".join(f"{line}\n" for line in case.log.lines)}, facts)


def printed_facts(text: str) -> dict[str, object]:
    """Facts that the lines of a log tell, and tell once."""
    try:
        facts = tables_of({"run.log": text}, {})["facts"]
    except FairmfuError:
        return {}
    printed = facts.filter(pl.col("origin").str.starts_with("log")).unique(["name", "value"])
    return {
        name: json.loads(value) if value.isdigit() else value
        for name, value in printed.select("name", "value").iter_rows()
        if name in NEAR_FACTS and printed["name"].to_list().count(name) == 1
    }


def told_facts(rows: Sequence[MetricsRow]) -> dict[str, object]:
    """Facts that all runs of a log have alike."""
    found = {}
    for name in KEPT_FACTS:
        values = {row[name] for row in rows}  # type: ignore[literal-required]
        value = next(iter(values)) if len(values) == 1 else None
        if value is not None:
            found[name] = value
    return found


def transformed(
    case: Case, what: str, name: str, other: Case | None = None
) -> list[MetricsRow] | None:
    """The rows of the files that a transformation makes of a log; None where it makes none."""
    log = replace(case.log, other=other.log.lines if other else None)
    files = TRANSFORMATIONS[what](log, Random(name + what))  # noqa: S311 - no secret
    if files is None:
        return None
    return figures_of(files, told_facts(case.rows) if what == "grep" else case.facts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", default="", help="paths that hold this text")
    parser.add_argument("--only", default="", help="transformations that hold this text")
    parser.add_argument("--largest", type=float, default=2.0, help="MB")
    parser.add_argument("--verbose", action="store_true", help="name each log")
    given = parser.parse_args(arguments)
    found: list[Violation] = []
    tried: Counter[str] = Counter()
    last: dict[str, Case] = {}
    for path in text_logs(FOLDERS, given.largest):
        if given.logs not in str(path) or (case := read_case(path)) is None:
            continue
        name = str(path.relative_to(next(f for f in FOLDERS if path.is_relative_to(f)).parent))
        if given.verbose:
            print(name, file=sys.stderr, flush=True)
        other = last.get(case.rows[0]["log_format"])
        known = [*case.rows, *(rows_with(other, case.facts) if other else [])]
        for what in TRANSFORMATIONS:
            if given.only in what and (damaged := transformed(case, what, name, other)) is not None:
                tried[what] += 1
                for violation in violations(name, what, damaged, known):
                    print(violation, flush=True)
                    found.append(violation)
        last[case.rows[0]["log_format"]] = case
    silent = Counter((one.transformation, one.ranked) for one in found)
    print(f"\n{'transformation':42}{'tried':>7}{'ranked':>8}{'unranked':>10}")
    for what, count in tried.items():
        print(f"{what:42}{count:7,}{silent[what, True]:8,}{silent[what, False]:10,}")
    ranked = sum(one.ranked for one in found)
    print(
        f"{sum(tried.values()):,} tried: {ranked:,} ranked and {len(found) - ranked:,} unranked "
        "figures are others without a new warning"
    )
    return 1 if ranked else 0


if __name__ == "__main__":
    sys.exit(main())
