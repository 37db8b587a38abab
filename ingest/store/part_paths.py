"""Names of the files in the parts folder, and the check of a path.

A path in a catalogue or record is input: whoever can write to the store chose it. `check_part_path`
is the only way from such a text to a file.
"""

from __future__ import annotations

import re
from typing import Final

from .messages import FOREIGN_PATH

PARTS_FOLDER: Final = "parts"
RECORD_TABLE: Final = "batch"
WRITING_SUFFIX: Final = ".writing"
"""Suffix of an incomplete file."""

STAGED_FILE_PATH: Final = re.compile(
    r".*/[0-9a-f]{8}-(?:[0-9a-f]{16}\.writing|[0-9a-f]{32}\.parquet)"
)
"""Paths of files written before their batch (ingest.store.staged_parts)."""

_TABLE: Final = r"(?P<table>[a-z][a-z0-9_]{0,63})"
_BATCH: Final = r"[0-9]{8,12}(?:_[0-9]{4,9})?(?:-[0-9a-f]{8})?"
_STAGED: Final = r"[0-9a-f]{8}-(?:[0-9a-f]{16}|[0-9a-f]{32})"
PART_PATH: Final = re.compile(
    rf"{PARTS_FOLDER}/{_TABLE}/(?:{_BATCH}|{_STAGED})(?:\.parquet|{re.escape(WRITING_SUFFIX)})"
)
"""Paths that fairmfu writes: parts, records, and the same while they are being written."""


def is_part_path(path: object, table: str | None = None) -> bool:
    """Return whether fairmfu gives this path to a part, or to one of `table`."""
    name = PART_PATH.fullmatch(path) if isinstance(path, str) else None
    return name is not None and table in {None, name["table"]}


def check_part_path(path: str) -> str:
    """Return the path. Raises StoreError if fairmfu gives it to no part."""
    if not is_part_path(path):
        raise FOREIGN_PATH(path=ascii(path))
    return path


def part_path(table: str, batch: int, part_index: int = 0) -> str:
    """Return the path of a part; part_index: among the batch's parts of the table."""
    return f"{PARTS_FOLDER}/{table}/{batch:08d}{f'_{part_index:04d}' if part_index else ''}.parquet"
