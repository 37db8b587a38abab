"""Checks of `fairmfu doctor`: whole parts, line counts, stray files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from ..core.errors import StoreError
from . import parquet_parts, part_paths, staged_parts
from .local_backend import StoreBackend, sha256_of_file
from .store import CATALOGUE_NAME, Store

REBUILD_HINT: Final = "Rebuild it with: fairmfu rebuild"
CLEANUP_HINT: Final = "The next write deletes it"
LINE_COUNT_COLUMNS: Final = (
    "step_lines",
    "known_lines",
    "other_lines",
    "unread_lines",
    "companion_lines",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    is_harmful: data is lost or wrong; False if the next write repairs the store.
    what, remedy: sentences without their full stops.
    """

    is_harmful: bool
    what: str
    remedy: str


def examine_store(store: Store) -> list[Finding]:
    """Return the findings on a store, worst first, without changing the store.

    Raises StoreError if there is no store.
    """
    try:
        held = store.held()
    except StoreError as error:
        if not store.shelf.listed(part_paths.PARTS_FOLDER):
            raise
        what, advice = _said(error)
        return [_harm(what, advice if "fairmfu rebuild" in advice else REBUILD_HINT)]
    findings = [*_parts(store.shelf, held.live), *_astray(store, held.dead)]
    if store.behind():
        what = f"{store.path}: the last batch is stored and not listed: its writer was killed"
        findings.append(Finding(is_harmful=False, what=what, remedy="The next write lists it"))
    elif not any(finding.is_harmful for finding in findings):
        findings += _of_catalogue(store)
    return sorted(findings, key=lambda finding: not finding.is_harmful)


def _of_catalogue(store: Store) -> list[Finding]:
    """Check the catalogue of a store whose parts are all whole."""
    try:
        return [*_lines(store), *_read_before(store), *_against_parts(store)]
    except StoreError as error:
        what, remedy = _said(error)
        return [_harm(what, REBUILD_HINT if "fairmfu doctor" in remedy else remedy)]


def _parts(shelf: StoreBackend, live: list[parquet_parts.ParquetPart]) -> Iterator[Finding]:
    again = "Ingest the logs of its rows again, into a new --store if they are many"
    for part in live:
        path = shelf.at(part.path)
        try:
            with shelf.open(part.path) as file:
                is_same = sha256_of_file(file) == part.sha256
        except FileNotFoundError:
            yield _harm(f"{path}: the part is gone, with {part.rows:,} rows", again)
            continue
        except StoreError as error:
            yield _harm(*_said(error))
            continue
        if not is_same:
            what = f"{path}: the part differs from what was written ({part.rows:,} rows; checksum)"
            yield _harm(what, again)


def _astray(store: Store, dead: set[str]) -> Iterator[Finding]:
    for path in store.stray_files():
        what, todo = "left by an interrupted write; no rows are missing", CLEANUP_HINT
        if path in dead:
            what = "merged into a larger part, and kept a while for readers"
        elif staged_parts.may_still_be_listed(store.shelf, path):
            what = "written by a cluster that still reads logs, or was interrupted"
            todo = "If it is not stored within a day, the next write deletes it"
        yield Finding(is_harmful=False, what=f"{store.shelf.at(path)}: {what}", remedy=todo)
    for file in sorted(store.home.glob(f"{CATALOGUE_NAME}.*")):
        what = f"{file}: a catalogue that is being written, or left by a killed writer"
        yield Finding(is_harmful=False, what=what, remedy=CLEANUP_HINT)


def _lines(store: Store) -> Iterator[Finding]:
    """Check that the kinds of lines of each source add up to its number of lines."""
    sources = store.table("sources")
    wrong = sources.filter(pl.col("lines") != pl.sum_horizontal(LINE_COUNT_COLUMNS))
    for path, lines in wrong.select("path", "lines").iter_rows():
        what = f"{path}: the counts of its kinds of lines do not add up to {lines:,}"
        yield _harm(what, "Remove its runs with fairmfu remove, and ingest it again")


def _read_before(store: Store) -> Iterator[Finding]:
    """Check that today's readers would read all sources in the same way."""
    if before := [source.path for source in store.outdated_sources().values()]:
        more = len(before) - 1
        of = before[0] + (f" and {more:,} more {'log' if more == 1 else 'logs'}" if more else "")
        what = f"{of}: read by an earlier fairmfu that parsed differently: figures may be wrong"
        yield Finding(is_harmful=False, what=what, remedy="Read again with: fairmfu ingest --again")


def _against_parts(store: Store) -> Iterator[Finding]:
    """Check that the catalogue agrees with the parts."""
    for table, (stored, replayed) in store.compare_with_parts().items():
        if not stored.equals(replayed):
            what = f"{store.path}: the catalogue's {table} differ from those of the parts"
            yield _harm(f"{what} ({stored.height:,} and {replayed.height:,} rows)", REBUILD_HINT)


def _said(error: StoreError) -> tuple[str, str]:
    """Return the words of an error, and its remedy, without their full stops."""
    what, _, remedy = str(error).partition(". Fix: ")
    remedy = (remedy or REBUILD_HINT).removesuffix(".")
    return what, remedy[:1].upper() + remedy[1:]


def _harm(what: str, todo: str) -> Finding:
    return Finding(is_harmful=True, what=what, remedy=todo)
