"""What one batch of files changes in a store, decided file by file against what is stored.

How long a fact lives follows from its origin. What is given by hand (flag) belongs to the run: it
stays while the log grows, until another value is given or it is taken back. What stands beside the
log (sidecar, companion) belongs to the file and is replaced as a set each time that it is ingested.
All else belongs to the log's rows.
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

from ..core.errors import StoreError
from ..core.schema import frame_schema
from ..core.spill import (
    LogTables,
    StreamedRows,
    TableRows,
    chain_rows,
    collect_rows,
    iterate_frames,
)

Tables = dict[str, pl.DataFrame]
LOG_TABLES: Final = ("sources", "runs", "facts", "steps", "events", "unread")
"""Parts of what was read of a log."""
BESIDE_TABLE: Final = "beside"
GIVEN_TABLE: Final = "given"
REMOVED_TABLE: Final = "removed"

BESIDE_SCHEMA: Final = pl.Schema({"sha256": pl.String(), **frame_schema("facts")})
"""Facts from beside a source; a row without a name stands for a set that is empty."""
REMOVED_SCHEMA: Final = pl.Schema({"sha256": pl.String, "run_id": pl.String})

GIVEN_STRIDE: Final = 1_000_000
"""Other facts come behind all of the log's own, which count from 0 within their run."""

OUTSIDE_ORIGINS: Final = ("flag", "sidecar", "companion")
"""Kinds of origin of facts that do not come with the rows of the log."""

ID_SUFFIX: Final = re.compile(r"-[0-9a-f]{6}$")
"""Tells apart runs of files that begin alike; `-2` is another launch of the same beginning."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file whose content is stored: its facts are brought up to date, it is not read again."""

    path: str
    sha256: str
    facts: Sequence[Mapping[str, Any]]


class FileMark(NamedTuple):
    """How a file stood when its content was known, so that it need not be opened next time.

    mtime_ns: as the file system says; beside: a signature of what stands beside it.
    """

    path: str
    size: int
    mtime_ns: int
    inode: int
    beside: str
    sha256: str


@dataclass(frozen=True, slots=True)
class FileRemark:
    """What its reader could not know of a file before the store looked at it.

    kind: known (the content is stored, as `known_as`), kept (the path holds another run now; the
    earlier one stays), less (it holds less of the same run; what was read stays), or gone (the
    content was known and no longer is: the file must be read).
    """

    path: str
    kind: str
    known_as: str = ""


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A source as the catalogue has it; run ids in the order of their launches.

    read_at: when it was first read; runs_with_steps: those of its runs that have a step;
    read_otherwise: today's readers read its content otherwise (ingest.core.schema.READING_CHANGES).
    """

    path: str
    sha256: str
    runs: tuple[str, ...]
    read_at: datetime | None
    step_lines: int
    runs_with_steps: Callable[[], frozenset[str]]
    read_otherwise: bool = False

    def is_prefix_of(self, runs: Iterable[str], step_lines: int) -> bool:
        """Whether a file of these runs and so many step lines holds all of this one's.

        A launch that had no step yet has no lasting id, so it is not asked for; one that was cut
        short has the id that it had. Earlier readers may have counted otherwise.
        """
        if step_lines < self.step_lines and not self.read_otherwise:
            return False
        held = {base_id(run) for run in runs}
        lost = {run for run in self.runs if base_id(run) not in held}
        return not lost or lost.isdisjoint(self.runs_with_steps())

    def holds_any(self, runs: Iterable[str]) -> bool:
        """Return whether it has one of these runs, by the ids that their logs give them."""
        return not {base_id(run) for run in self.runs}.isdisjoint(map(base_id, runs))

    def with_run_ids(self, ids: Mapping[str, str]) -> StoredSource:
        """The source with its runs as the store calls them; ids: by those that the log gives."""
        stepped = self.runs_with_steps
        return replace(
            self,
            runs=tuple(ids.values()),
            runs_with_steps=lambda: frozenset(ids[run] for run in stepped()),
        )


class Changeset:
    """What a batch changes: `place` and `see` each file, then take `frames`."""

    def __init__(
        self,
        stored: Iterable[StoredSource],
        facts: pl.DataFrame,
        now: datetime,
        earlier_contents: Collection[str] = (),
    ) -> None:
        """facts: those given by hand, and those from beside the logs; now: UTC.

        earlier_contents: contents that files of this batch began with.
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
        """A file that was read: it replaces what grew into it; its runs get their own ids.

        It also replaces the same content as an earlier reader read it.
        """
        sources = collect_rows(tables["sources"])
        path, sha256, step_lines = (sources[name][0] for name in ("path", "sha256", "step_lines"))
        runs = collect_rows(tables["runs"])["run_id"].to_list()
        outer, log = _apart(collect_rows(tables["facts"]))
        before = self.stored.get(sha256)
        again = before and before.read_otherwise and (path != "-" or before.path == "-")
        if before and not again:  # another process was faster, or it came through a pipe again
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
        own = {run: self._own_id(run, read, stale) for run in runs}
        source = read.with_run_ids(own)
        self.stored[sha256] = source
        self.at.setdefault(path, []).append(source)
        self.new[sha256] = _renamed({**tables, "facts": log}, own)
        self._carry(stale, source)
        self._update(source, outer, beside=True)
        if kept and not stale and path != "-":
            shares_run = any(one.holds_any(runs) for one in kept)
            self.remarks.append(FileRemark(path, "less" if shares_run else "kept"))

    def see(self, known_file: KnownFile, claimed_contents: Iterable[str] = ()) -> None:
        """A file of known content: what stands beside it counts where the content was read from.

        claimed_contents: content that another file of this batch still has, so it is not dropped.
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
        """Facts by hand, to runs by id; how many of them are new."""
        rows = [{**f, "run_id": run} for run, facts in facts_of_runs.items() for f in facts]
        self.given_facts += [row for row in rows if row["run_id"] in self.owner]
        return len(self._given())

    def remove(self, runs: Iterable[str]) -> dict[str, list[str]]:
        """Forget the sources of these runs: path to its runs, which go all."""
        sources = {self.owner[run].sha256: self.owner[run] for run in runs if run in self.owner}
        for source in sources.values():
            self._drop(source)
        return {source.path: list(source.runs) for source in sources.values()}

    def frames(self, batch: int) -> dict[str, TableRows]:
        """The rows that a batch of this number writes, by table; none where nothing changes."""
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
        """The sources of a path: those that grew into a file of these runs, and the others."""
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
        """The id of the same run before its file grew, or one that no other file has."""
        before = [old for s in stale for old in s.runs if base_id(old) == run]
        path = f"{run}-{_short(source.path)}"
        content = f"{run}-{_short(source.path + source.sha256)}"
        for own in (*before, run, path, content):
            if own not in self.owner:
                self.owner[own] = source
                return own
        other = self.owner[run].path
        raise StoreError(
            f"{source.path} and {other}: a run of both has the id {run}. Give one another --store."
        )

    def _carry(self, stale: Sequence[StoredSource], source: StoredSource) -> None:
        """What was given by hand to a run whose id is gone goes to the one that it became."""
        now = {base_id(run): run for run in source.runs}
        for old in stale:
            by_launch = dict(zip(old.runs, source.runs, strict=False))
            for run in old.runs:
                after = now.get(base_id(run)) or by_launch.get(run, run)
                named = {row["name"] for row in self._flags_of(after)}
                rows = self._flags_of(run)
                self.given_facts += [r | {"run_id": after} for r in rows if r["name"] not in named]

    def _flags_of(self, run: str) -> list[dict[str, Any]]:
        """What was given to a run by hand, before this batch."""
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
        """All facts from beside each source where they are not what is stored."""
        stood: dict[str, list[tuple[Any, ...]]] = {}
        concerned = [run for s in self.beside if s not in self.new for run in self.stored[s].runs]
        old = self.facts.filter(~_is_flag(), pl.col("run_id").is_in(concerned))
        for row in old.iter_rows(named=True):
            stood.setdefault(row["run_id"], []).extend(_content([row]))
        rows: list[dict[str, Any]] = []
        for sha256, facts in self.beside.items():
            runs = () if sha256 in self.new else self.stored[sha256].runs
            if _content(facts) == [fact for run in runs for fact in stood.get(run, ())]:
                continue
            numbered = enumerate(facts, start=batch * GIVEN_STRIDE)
            rows += [{**fact, "sha256": sha256, "sequence": place} for place, fact in numbered]
            rows += [] if facts else [{"sha256": sha256}]
        return rows

    def _given(self) -> list[dict[str, Any]]:
        """The last of each run and name, where its value is not what is given already."""
        last = {(row["run_id"], row["name"]): row for row in self.given_facts}
        flags = self.facts.filter(_is_flag())["run_id", "name", "value"]
        before = {(run, name): value for run, name, value in flags.iter_rows()}
        return [row for key, row in last.items() if row["value"] != before.get(key)]


def removed_sources_frame(
    runs_of: Mapping[str, Iterable[str]], remaining_runs: Collection[str]
) -> pl.DataFrame:
    """Sources that are no more, each with its runs that no other source has now, else with none.

    A run that stays keeps what was given to it by hand: also in a replay from merged parts, where
    none of its rows is there but the last.
    """
    rows = [
        (sha256, run)
        for sha256, runs in runs_of.items()
        for run in tuple(run for run in runs if run not in remaining_runs) or (None,)
    ]
    return pl.DataFrame(rows, schema=REMOVED_SCHEMA, orient="row")


def base_id(run_id: str) -> str:
    """The id that a run has before it is told apart from those of other files."""
    return ID_SUFFIX.sub("", run_id)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:6]


def _runs_of(table: TableRows) -> Callable[[], frozenset[str]]:
    """Tells the runs that have a row; seldom asked."""
    return lambda: frozenset(
        chain.from_iterable(f["run_id"].unique() for f in iterate_frames(table))
    )


def _renamed(tables: LogTables, ids: Mapping[str, str]) -> dict[str, TableRows]:
    if all(own == run for run, own in ids.items()):
        return dict(tables)

    def named(table: TableRows) -> TableRows:
        """Its columns stay what they are: a frame of none to see that takes as long as the rows."""
        if isinstance(table, pl.DataFrame):
            return _with_ids(table, ids)
        each = table.frames
        return StreamedRows(table.schema, table.height, lambda: (_with_ids(f, ids) for f in each()))

    return {n: named(table) if "run_id" in table.columns else table for n, table in tables.items()}


def _with_ids(frame: pl.DataFrame, ids: Mapping[str, str]) -> pl.DataFrame:
    """The rows with these ids of their runs; mostly all are of one, and no thread is waited for."""
    if len(ids) == 1:
        own = pl.Series("run_id", [*ids.values()], pl.String).new_from_index(0, frame.height)
        return frame.clone().replace_column(frame.columns.index("run_id"), own)
    return frame.with_columns(pl.col("run_id").replace(ids))


def _kind_of_origin() -> pl.Expr:
    return pl.col("origin").str.extract(r"^([a-z]+)")


def _is_flag() -> pl.Expr:
    return _kind_of_origin() == "flag"


def _is_by_hand(fact: Mapping[str, Any]) -> bool:
    return str(fact["origin"]).partition(":")[0] == "flag"


def _apart(facts: pl.DataFrame) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """Facts that all runs of the file have from outside it, and those of the log."""
    if not any(origin.startswith(OUTSIDE_ORIGINS) for origin in facts["origin"]):
        return [], facts
    outside = _kind_of_origin().is_in(OUTSIDE_ORIGINS)
    first = facts.filter(outside, pl.col("run_id") == pl.col("run_id").first())
    return first.drop("run_id").rows(named=True), facts.filter(~outside)


def _content(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["run_id"], row["name"], row["value"], row["origin"]) for row in rows]


def _facts(rows: Sequence[Mapping[str, Any]], first: int) -> pl.DataFrame:
    """Rows of `facts`, numbered from `first`."""
    schema = frame_schema("facts")
    columns = {name: [row.get(name) for row in rows] for name in schema}
    columns["sequence"] = list(range(first, first + len(rows)))
    return pl.DataFrame(columns, schema=schema)
