"""Where the content of logs stands that hold none now, as where logs are rotated.

A night finds `run.log` emptied, or begun again with lines of its launcher alone, and what it held
under another name, compressed or grown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..extract.discovery import is_missing_file
from ..store.changeset import base_id
from ..store.store import Store


def find_moved_content(
    store: Store, copies_by_sha256: Mapping[str, str], lost_paths: Collection[str]
) -> dict[str, str]:
    """Of paths a file that is there and holds all runs of what the path held, and as many steps.

    copies_by_sha256: files of the same content as a source's, by its sha256. Paths of which
    something stands nowhere else are left out. Raises StoreError.
    """
    sources = {s: rest for s, *rest in _columns(store, "sources", "sha256", "path", "step_lines")}
    runs: dict[str, set[str]] = {sha256: set() for sha256 in sources}
    holding: dict[str, set[str]] = {}
    for sha256, run in _columns(store, "runs", "sha256", "run_id"):
        runs[sha256].add(base_id(run))
        holding.setdefault(base_id(run), set()).add(sha256)
    found: dict[str, str] = {}
    of_none = set[str]()
    for sha256, (path, steps) in sources.items():
        if path not in lost_paths:
            continue
        others = set.intersection(*(holding[run] for run in runs[sha256])) if runs[sha256] else ()
        held = (sources[other] for other in others)
        more = (other for other, count in held if other not in lost_paths and count >= steps)
        where = copies_by_sha256.get(sha256) or next(
            (one for one in more if not is_missing_file(one)), None
        )
        if where is None:
            of_none.add(path)
        else:
            found[path] = where
    return {path: where for path, where in found.items() if path not in of_none}


def _columns(store: Store, table: str, *names: str) -> Iterator[tuple[Any, ...]]:
    return store.table(table).select(names).iter_rows()
