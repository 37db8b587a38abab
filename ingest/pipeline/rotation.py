"""Search for the content of lost logs in other files, as after log rotation.

On a night `run.log` is empty, or starts again with launcher lines only, and the earlier content is
in another file, compressed or grown.
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
    """Return, by lost path, an existing file with all runs and at least as many steps.

    copies_by_sha256: paths of files with equal content, by sha256 of the source.
    lost_paths: paths of files without their former content.

    Omits a path if any source of the path has no such file. Raises StoreError.
    """
    sources = {s: rest for s, *rest in _columns(store, "sources", "sha256", "path", "step_lines")}
    runs: dict[str, set[str]] = {sha256: set() for sha256 in sources}
    holding: dict[str, set[str]] = {}
    for sha256, run in _columns(store, "runs", "sha256", "run_id"):
        runs[sha256].add(base_id(run))
        holding.setdefault(base_id(run), set()).add(sha256)
    moved: dict[str, str] = {}
    incomplete = set[str]()
    for sha256, (path, steps) in sources.items():
        if path not in lost_paths:
            continue
        others = set.intersection(*(holding[run] for run in runs[sha256])) if runs[sha256] else ()
        candidates = (sources[other] for other in others)
        more = (other for other, count in candidates if other not in lost_paths and count >= steps)
        moved_to = copies_by_sha256.get(sha256) or next(
            (candidate for candidate in more if not is_missing_file(candidate)), None
        )
        if moved_to is None:
            incomplete.add(path)
        else:
            moved[path] = moved_to
    return {path: moved_to for path, moved_to in moved.items() if path not in incomplete}


def _columns(store: Store, table: str, *names: str) -> Iterator[tuple[Any, ...]]:
    return store.table(table).select(names).iter_rows()
