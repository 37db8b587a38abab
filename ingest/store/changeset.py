"""Changes that one batch of files makes to a store, decided file by file.

The origin of a fact decides its lifetime. Facts given by hand (flag) belong to the run: they stay
while the log grows, until replaced or taken back. Facts from files next to the log (sidecar,
companion) belong to the file: each ingest replaces them as a set. All others belong to the rows of
the log.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple

import polars as pl

from ..core.schema import frame_schema
from ..core.spill import (
    LogTables,
    StreamedRows,
    TableRows,
    chain_rows,
    collect_rows,
    iterate_frames,
)
from .messages import RUN_ID_TAKEN

Tables = dict[str, pl.DataFrame]
LOG_TABLES: Final = ("sources", "runs", "facts", "steps", "events", "unread")
"""Tables read from a log."""
BESIDE_TABLE: Final = "beside"
GIVEN_TABLE: Final = "given"
REMOVED_TABLE: Final = "removed"

BESIDE_SCHEMA: Final = pl.Schema({"sha256": pl.String(), **frame_schema("facts")})
"""Facts from outside a log, by source; a row without a name means an empty set."""
REMOVED_SCHEMA: Final = pl.Schema({"sha256": pl.String, "run_id": pl.String})

GIVEN_STRIDE: Final = 1_000_000
"""Range of sequence numbers per batch for facts from outside the log. Facts of the log count from 0
in their run, so facts from outside sort after them.
"""

OUTSIDE_ORIGINS: Final = ("flag", "sidecar", "companion")
"""Kinds of origin of facts that are not among the rows of the log."""

ID_SUFFIX: Final = re.compile(r"-[0-9a-f]{6}$")
"""Suffix that distinguishes runs of files with equal beginnings; `-2` is another launch of one
file.
"""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """File with stored content: only its facts are updated."""

    path: str
    sha256: str
    facts: Sequence[Mapping[str, Any]]


class FileMark(NamedTuple):
    """State of a file at its last read; an unchanged file need not be opened again.

    mtime_ns: from the file system. beside: signature of the files next to the log.
    """

    path: str
    size: int
    mtime_ns: int
    inode: int
    beside: str
    sha256: str


@dataclass(frozen=True, slots=True)
class FileRemark:
    """Result for a file that only the store could determine.

    kind: known (content is stored, as `known_as`), kept (the path now has another run; the earlier
    run stays), less (the file has fewer lines of the same run; stored rows stay), or gone (known
    content is no longer stored: read the file).
    """

    path: str
    kind: str
    known_as: str = ""


@dataclass(frozen=True, slots=True)
class StoredSource:
    """Source as in the catalogue; run ids in launch order.

    read_at: time of the first read. runs_with_steps: returns those of `runs` that have a step.
    read_otherwise: True if today's readers read this content differently
    (ingest.core.schema.READING_CHANGES).
    """

    path: str
    sha256: str
    runs: tuple[str, ...]
    read_at: datetime | None
    step_lines: int
    runs_with_steps: Callable[[], frozenset[str]]
    read_otherwise: bool = False

    def is_prefix_of(self, runs: Iterable[str], step_lines: int) -> bool:
        """Return whether a file with these runs and step lines covers this source.

        A launch without a step has no lasting id, so it may be missing. A launch cut short keeps
        its id. Step lines are not compared if an earlier reader may have counted them differently.
        """
        if step_lines < self.step_lines and not self.read_otherwise:
            return False
        file_runs = {base_id(run) for run in runs}
        lost = {run for run in self.runs if base_id(run) not in file_runs}
        return not lost or lost.isdisjoint(self.runs_with_steps())

    def holds_any(self, runs: Iterable[str]) -> bool:
        """Return whether the source has any of these runs, compared by base id."""
        return not {base_id(run) for run in self.runs}.isdisjoint(map(base_id, runs))

    def with_run_ids(self, ids: Mapping[str, str]) -> StoredSource:
        """Return the source with store ids for its runs; ids: base id to store id."""
        stepped = self.runs_with_steps
        return replace(
            self,
            runs=tuple(ids.values()),
            runs_with_steps=lambda: frozenset(ids[run] for run in stepped()),
        )


class Changeset:
    """Planned changes of one batch: call `place` or `see` per file, then `frames`."""

    def __init__(
        self,
        stored: Iterable[StoredSource],
        facts: pl.DataFrame,
        now: datetime,
        earlier_contents: Collection[str] = (),
    ) -> None:
        """Start a plan without changes.

        stored, facts: sources in the scope, and their facts from outside the logs. now: UTC.
        earlier_contents: hashes of contents that files of this batch began with.
        """
        self.grown = earlier_contents
        self.stored = {source.sha256: source for source in stored}
        self.owner = {run: source for source in self.stored.values() for run in source.runs}
        self.at: dict[str, list[StoredSource]] = {}
        for source in self.stored.values():
            self.at.setdefault(source.path, []).append(source)
        self.facts = facts
        self.now = now
        self.new: dict[str, dict[str, TableRows]] = {}
        self.removed: dict[str, tuple[str, ...]] = {}
        self.beside: dict[str, list[dict[str, Any]]] = {}
        self.given_facts: list[dict[str, Any]] = []
        self.remarks: list[FileRemark] = []

    def place(self, tables: LogTables) -> None:
        """Add a newly read file, with store ids for its runs, and drop replaced sources.

        A file replaces an earlier, shorter version of itself, and the same content if an earlier
        reader read that content differently.
        """
        sources = collect_rows(tables["sources"])
        path, sha256, step_lines = (sources[name][0] for name in ("path", "sha256", "step_lines"))
        runs = collect_rows(tables["runs"])["run_id"].to_list()
        outer, log = _apart(collect_rows(tables["facts"]))
        before = self.stored.get(sha256)
        again = before and before.read_otherwise and (path != "-" or before.path == "-")
        if before and not again:  # from a faster process, or again through a pipe
            self.remarks.append(FileRemark(path, "known", before.path))
            self.see(KnownFile(path, sha256, outer))
            return
        stale, kept = self._at(path, runs, step_lines)
        if before:
            stale = [before, *(source for source in stale if source is not before)]
        for source in stale:
            self._drop(source)
        first = min((s.read_at for s in stale if s.read_at is not None), default=self.now)
        read = StoredSource(
            path=path,
            sha256=sha256,
            runs=(),
            read_at=first,
            step_lines=step_lines,
            runs_with_steps=_runs_of(tables["steps"]),
        )
        store_ids = {run: self._own_id(run, read, stale) for run in runs}
        source = read.with_run_ids(store_ids)
        self.stored[sha256] = source
        self.at.setdefault(path, []).append(source)
        self.new[sha256] = _renamed({**tables, "facts": log}, store_ids)
        self._carry(stale, source)
        self._update(source, outer, beside=True)
        if kept and not stale and path != "-":
            shares_run = any(other.holds_any(runs) for other in kept)
            self.remarks.append(FileRemark(path, "less" if shares_run else "kept"))

    def see(self, known_file: KnownFile, claimed_contents: Iterable[str] = ()) -> None:
        """Add a file of known content.

        Facts from sidecars and companions count only if the content was read from this path; facts
        given by hand always count.
        claimed_contents: hashes that another file of this batch still has; their sources stay.
        """
        source = self.stored.get(known_file.sha256)
        if source is None:
            self.remarks.append(FileRemark(known_file.path, "gone"))
            return
        stale, kept = self._at(known_file.path, source.runs, source.step_lines)
        same = source.path == known_file.path
        stale = [
            s for s in stale if s.sha256 not in (known_file.sha256, *self.new, *claimed_contents)
        ]
        for other in stale:
            self._drop(other)
        self._carry(stale, source)
        self._update(source, known_file.facts, beside=same)
        if kept and not same and known_file.path != "-":
            self.remarks.append(FileRemark(known_file.path, "kept", source.path))

    def give_facts(self, facts_of_runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
        """Give facts by hand to runs, by run id. Return the number of new facts."""
        rows = [{**f, "run_id": run} for run, facts in facts_of_runs.items() for f in facts]
        self.given_facts += [row for row in rows if row["run_id"] in self.owner]
        return len(self._given())

    def remove(self, runs: Iterable[str]) -> dict[str, list[str]]:
        """Forget the sources of these runs. Return all run ids of each source, by path."""
        sources = {self.owner[run].sha256: self.owner[run] for run in runs if run in self.owner}
        for source in sources.values():
            self._drop(source)
        return {source.path: list(source.runs) for source in sources.values()}

    def frames(self, batch: int) -> dict[str, TableRows]:
        """Return the rows that the batch writes, by table; empty if nothing changes."""
        found: dict[str, TableRows] = {
            table: chain_rows(tables[table] for tables in self.new.values())
            for table in (LOG_TABLES if self.new else ())
        }
        if self.new:
            read_at = [self.stored[sha256].read_at for sha256 in self.new]
            dated = pl.Series("read_at", read_at, pl.Datetime("us"))
            found["sources"] = collect_rows(found["sources"]).with_columns(dated)
        if beside := self._beside(batch):
            found[BESIDE_TABLE] = pl.DataFrame(beside, schema=BESIDE_SCHEMA)
        if given := self._given():
            found[GIVEN_TABLE] = _facts(given, batch * GIVEN_STRIDE + GIVEN_STRIDE // 2)
        if self.removed:
            found[REMOVED_TABLE] = removed_sources_frame(self.removed, self.owner)
        return {table: frame for table, frame in found.items() if frame.height}

    def _at(
        self, path: str, runs: Sequence[str], step_lines: int
    ) -> tuple[list[StoredSource], list[StoredSource]]:
        """Return the sources of a path that the new file replaces, and the others."""
        here = self.at.get(path, [])
        stale = [s for s in here if s.sha256 in self.grown or s.is_prefix_of(runs, step_lines)]
        return stale, [source for source in here if source not in stale]

    def _drop(self, source: StoredSource) -> None:
        del self.stored[source.sha256]
        self.at[source.path].remove(source)
        self.beside.pop(source.sha256, None)
        for run in source.runs:
            del self.owner[run]
        if self.new.pop(source.sha256, None) is None:
            self.removed[source.sha256] = source.runs

    def _own_id(self, run: str, source: StoredSource, stale: Sequence[StoredSource]) -> str:
        """Return the run's id before its file grew, else the first id that is free."""
        before = [old for s in stale for old in s.runs if base_id(old) == run]
        path = f"{run}-{_short(source.path)}"
        content = f"{run}-{_short(source.path + source.sha256)}"
        for run_id in (*before, run, path, content):
            if run_id not in self.owner:
                self.owner[run_id] = source
                return run_id
        other = self.owner[run].path
        raise RUN_ID_TAKEN(path=source.path, other=other, run=run)

    def _carry(self, stale: Sequence[StoredSource], source: StoredSource) -> None:
        """Pass facts given by hand from replaced runs on to their successors."""
        now = {base_id(run): run for run in source.runs}
        for old in stale:
            by_launch = dict(zip(old.runs, source.runs, strict=False))
            for run in old.runs:
                after = now.get(base_id(run)) or by_launch.get(run, run)
                named = {row["name"] for row in self._flags_of(after)}
                rows = self._flags_of(run)
                self.given_facts += [r | {"run_id": after} for r in rows if r["name"] not in named]

    def _flags_of(self, run: str) -> list[dict[str, Any]]:
        """Return the stored facts given to a run by hand."""
        return self.facts.filter(pl.col("run_id") == run, _is_flag()).rows(named=True)

    def _update(
        self, source: StoredSource, facts: Sequence[Mapping[str, Any]], *, beside: bool
    ) -> None:
        flags = [fact for fact in facts if _is_by_hand(fact)]
        self.given_facts += [{**fact, "run_id": run} for run in source.runs for fact in flags]
        if beside:
            others = [fact for fact in facts if not _is_by_hand(fact)]
            rows = [{**fact, "run_id": run} for run in source.runs for fact in others]
            self.beside[source.sha256] = rows

    def _beside(self, batch: int) -> list[dict[str, Any]]:
        """Return all facts from outside, for sources whose stored ones differ."""
        stored_facts: dict[str, list[tuple[Any, ...]]] = {}
        concerned = [run for s in self.beside if s not in self.new for run in self.stored[s].runs]
        old = self.facts.filter(~_is_flag(), pl.col("run_id").is_in(concerned))
        for row in old.iter_rows(named=True):
            stored_facts.setdefault(row["run_id"], []).extend(_content([row]))
        rows: list[dict[str, Any]] = []
        for sha256, facts in self.beside.items():
            runs = () if sha256 in self.new else self.stored[sha256].runs
            if _content(facts) == [fact for run in runs for fact in stored_facts.get(run, ())]:
                continue
            numbered = enumerate(facts, start=batch * GIVEN_STRIDE)
            rows += [{**fact, "sha256": sha256, "sequence": number} for number, fact in numbered]
            rows += [] if facts else [{"sha256": sha256}]
        return rows

    def _given(self) -> list[dict[str, Any]]:
        """Return the last fact given per run and name, if its value is new."""
        last = {(row["run_id"], row["name"]): row for row in self.given_facts}
        flags = self.facts.filter(_is_flag())["run_id", "name", "value"]
        before = {(run, name): value for run, name, value in flags.iter_rows()}
        return [row for key, row in last.items() if row["value"] != before.get(key)]


def removed_sources_frame(
    runs_of: Mapping[str, Iterable[str]], remaining_runs: Collection[str]
) -> pl.DataFrame:
    """Return rows for removed sources and their runs without a remaining source.

    A source whose runs all remain has one row without a run. Remaining runs keep facts given by
    hand, also in a replay from merged parts, which have only the run's latest rows.
    """
    rows = [
        (sha256, run)
        for sha256, runs in runs_of.items()
        for run in tuple(run for run in runs if run not in remaining_runs) or (None,)
    ]
    return pl.DataFrame(rows, schema=REMOVED_SCHEMA, orient="row")


def base_id(run_id: str) -> str:
    """Return a run id without the suffix that distinguishes equal beginnings."""
    return ID_SUFFIX.sub("", run_id)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:6]


def _runs_of(table: TableRows) -> Callable[[], frozenset[str]]:
    """Return a function that collects the runs with a row; rarely called."""
    return lambda: frozenset(
        chain.from_iterable(f["run_id"].unique() for f in iterate_frames(table))
    )


def _renamed(tables: LogTables, ids: Mapping[str, str]) -> dict[str, TableRows]:
    if all(new == run for run, new in ids.items()):
        return dict(tables)

    def named(table: TableRows) -> TableRows:
        """Replace run ids; the schema stays, as inferring one costs as much as the rows."""
        if isinstance(table, pl.DataFrame):
            return _with_ids(table, ids)
        frames = table.frames
        return StreamedRows(
            table.schema, table.height, lambda: (_with_ids(f, ids) for f in frames())
        )

    return {n: named(table) if "run_id" in table.columns else table for n, table in tables.items()}


def _with_ids(frame: pl.DataFrame, ids: Mapping[str, str]) -> pl.DataFrame:
    """Return the rows with new run ids. A single run needs no join of Polars threads."""
    if len(ids) == 1:
        run_ids = pl.Series("run_id", [*ids.values()], pl.String).new_from_index(0, frame.height)
        return frame.clone().replace_column(frame.columns.index("run_id"), run_ids)
    return frame.with_columns(pl.col("run_id").replace(ids))


def _kind_of_origin() -> pl.Expr:
    return pl.col("origin").str.extract(r"^([a-z]+)")


def _is_flag() -> pl.Expr:
    return _kind_of_origin() == "flag"


def _is_by_hand(fact: Mapping[str, Any]) -> bool:
    return str(fact["origin"]).partition(":")[0] == "flag"


def _apart(facts: pl.DataFrame) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """Split facts into the file's facts from outside and the facts of the log."""
    if not any(origin.startswith(OUTSIDE_ORIGINS) for origin in facts["origin"]):
        return [], facts
    outside = _kind_of_origin().is_in(OUTSIDE_ORIGINS)
    first = facts.filter(outside, pl.col("run_id") == pl.col("run_id").first())
    return first.drop("run_id").rows(named=True), facts.filter(~outside)


def _content(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["run_id"], row["name"], row["value"], row["origin"]) for row in rows]


def _facts(rows: Sequence[Mapping[str, Any]], first: int) -> pl.DataFrame:
    """Return rows of `facts`, with sequence numbers from `first`."""
    schema = frame_schema("facts")
    columns = {name: [row.get(name) for row in rows] for name in schema}
    columns["sequence"] = list(range(first, first + len(rows)))
    return pl.DataFrame(columns, schema=schema)
