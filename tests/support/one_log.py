"""The tables of one log without a store, which takes three times as long."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_values
from fairmfu.ingest.store.store import Tables


def tables_of(log: Path, facts: Mapping[str, object] | None = None) -> Tables:
    """Tables of `read_logs` for this log alone; facts: as there."""
    return read_log_tables(
        log, flag_facts=facts_from_values(facts or {}, "flag", Path.cwd(), "facts")
    )
