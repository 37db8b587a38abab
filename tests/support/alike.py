"""Stores that are to hold the same, and logs of every kind to fill them with."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from fairmfu.ingest.core.schema import READING_COSTS
from fairmfu.ingest.store import doctor
from fairmfu.ingest.store.changeset import LOG_TABLES
from fairmfu.ingest.store.store import Store
from tests.support.folders import ROOT

SAMPLES = sorted((ROOT / "sample_logs").rglob("*.log"))


def expect_alike(one: Store, other: Store) -> None:
    """All tables are equal, but for when they were read; both stores are well."""
    for name in LOG_TABLES:
        left, right = (
            s.table(name).drop("read_at", *READING_COSTS, strict=False) for s in (one, other)
        )
        assert left.equals(right), name
    for store in (one, other):
        assert [finding for finding in doctor.examine_store(store) if finding.is_harmful] == []


def put_logs(folder: Path) -> Path:
    """Logs, a copy, a compressed one, and files that fail each in its way."""
    shutil.copytree(ROOT / "sample_logs", folder)
    shutil.copy(SAMPLES[0], folder / "zz_copy.log")
    (folder / "zz.log.gz").write_bytes(gzip.compress(SAMPLES[1].read_bytes() + b"one more\n"))
    (folder / "aa_empty.log").write_bytes(b"")
    (folder / "bb_binary.log").write_bytes(bytes(range(9)) * 500)
    (folder / "cc_none.log").write_text("no line of any format\n" * 30)
    return folder
