"""Ownership of the files in a folder of nightly reports.

    OUT/.fairmfu-nightly.json    the list of files and archived nights that fairmfu wrote there

A night replaces and deletes only what the list names. A folder with another file in the place of a
report is refused before anything in it changes. The list is written before the files, so a killed
night leaves no file without its entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from fairmfu.ingest.store.lock import LOCK_NAME

from ..page.output_files import replace_file
from . import messages
from .night_html import STATUS_FILE

MARKER: Final = ".fairmfu-nightly.json"
ABOUT: Final = "Written by fairmfu nightly. It replaces and deletes only these files."
ARCHIVE: Final = "archive"
CHARTS: Final = "charts"
LOG_FILE: Final = "nightly.log"
INDEX: Final = "index.html"
SUMMARY: Final = "summary.json"
COPIED_FILES: Final = ("summary.md", SUMMARY, "junit.xml", "runs.html")
"""Files at the top that equal those of the last archived night."""
TOP_FILES: Final = (INDEX, *COPIED_FILES, STATUS_FILE, LOG_FILE, f"{LOG_FILE}.1")
DATED: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(-[0-9]{1,9})?")
MAX_MARKER_BYTES: Final = 16_000_000
MAX_SUMMARY_BYTES: Final = 64_000_000
_CHART: Final = re.compile(rf"{CHARTS}/[^/\0]+\.svg")
_NIGHT: Final = re.compile(rf"{ARCHIVE}/{DATED.pattern}")
_SUMMARY_KEYS: Final = {"schema", "title", "at", "night", "exit_code", "series", "formula"}
_LOG_LINE: Final = re.compile(rb"[0-9T:+.-]+ (started, fairmfu |failed: )")


def is_listable(name: str) -> bool:
    """Return whether a night writes a file or folder of this name."""
    return name in TOP_FILES or bool(_CHART.fullmatch(name) or _NIGHT.fullmatch(name))


def check_folder(out: Path) -> None:
    """Raise FairmfuError if a night would replace or delete files of others."""
    for name in (CHARTS, ARCHIVE, MARKER, LOCK_NAME, *TOP_FILES):
        if (out / name).is_symlink():
            raise messages.OUT_NOT_OURS(out=out, name=name)
    lock = out / LOCK_NAME
    if lock.exists() and not _is_lock(lock):
        raise messages.OUT_NOT_OURS(out=out, name=LOCK_NAME)
    owned = owned_names(out)
    for name in _at_stake(out):
        if name not in owned:
            raise messages.OUT_NOT_OURS(out=out, name=name)


def claim(out: Path) -> None:
    """Check a folder, and list what is ours; the caller has the lock."""
    check_folder(out)
    owned = owned_names(out) | {LOG_FILE, f"{LOG_FILE}.1", STATUS_FILE}
    write_list(out, owned)


def write_list(out: Path, names: Iterable[str]) -> None:
    """Write the list of the files that are ours."""
    text = json.dumps({"about": ABOUT, "files": sorted(names)}, indent=1, ensure_ascii=False)
    replace_file(out / MARKER, f"{text}\n".encode())


def owned_names(out: Path) -> set[str]:
    """Return the names in the list, else those of an earlier version."""
    marker = out / MARKER
    if not marker.exists():
        return set(_names_of_earlier_version(out))
    listed = _json_of(marker, MAX_MARKER_BYTES)
    names = listed.get("files") if isinstance(listed, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise messages.OUT_NOT_OURS(out=out, name=MARKER)
    return {name for name in names if is_listable(name)}


def _at_stake(out: Path) -> Iterator[str]:
    """Yield the names of present files that a night may replace or delete."""
    yield from (name for name in TOP_FILES if (out / name).exists())
    yield from (f"{CHARTS}/{path.name}" for path in sorted((out / CHARTS).glob("*.svg")))


def _names_of_earlier_version(out: Path) -> Iterator[str]:
    """Yield what an earlier version, without a list, provably wrote.

    A file at the top counts if the archive has a night with a summary of ours and the same bytes.
    index.html names the script of the page's state. The log begins with a line of a night.
    """
    nights = {path for path in (out / ARCHIVE).glob("*") if _is_night(path)}
    yield from (f"{ARCHIVE}/{path.name}" for path in nights)
    same = [path for path in nights if _is_same(path / SUMMARY, out / SUMMARY)]
    charts = [f"{CHARTS}/{path.name}" for path in (out / CHARTS).glob("*.svg")]
    for name in (*COPIED_FILES, *charts):
        if any(_is_same(night / name, out / name) for night in same):
            yield name
    index = out / INDEX
    if same and index.is_file() and f'src="{STATUS_FILE}"' in index.read_text("utf-8", "replace"):
        yield INDEX
    with suppress(OSError), (out / LOG_FILE).open("rb") as log:
        if _LOG_LINE.match(log.read(200)):
            yield from (LOG_FILE, f"{LOG_FILE}.1", STATUS_FILE)


def _is_night(folder: Path) -> bool:
    """Return whether a folder is an archived night of an earlier version."""
    if not DATED.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
        return False
    summary = _json_of(folder / SUMMARY, MAX_SUMMARY_BYTES)
    return isinstance(summary, dict) and summary.keys() >= _SUMMARY_KEYS


def _is_lock(path: Path) -> bool:
    """Return whether a file is empty, or names a holder of the lock."""
    holder = _json_of(path, 10_000) if path.is_file() and path.stat().st_size else {}
    return isinstance(holder, dict) and holder.keys() <= {"process", "command", "host", "since"}


def _is_same(path: Path, other: Path) -> bool:
    """Return whether two files are there and equal."""
    with suppress(OSError):
        if path.stat().st_size == other.stat().st_size:
            return path.read_bytes() == other.read_bytes()
    return False


def _json_of(path: Path, max_bytes: int) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of a file, None if it is none or too large."""
    with suppress(OSError, ValueError, RecursionError):
        if path.is_file() and path.stat().st_size <= max_bytes:
            return json.loads(path.read_bytes())
    return None


def archived_nights(out: Path, owned: Collection[str]) -> list[Path]:
    """Return the folders of archived nights that are ours."""
    return [
        out / name
        for name in owned
        if _NIGHT.fullmatch(name) and (out / name).is_dir() and not (out / name).is_symlink()
    ]
