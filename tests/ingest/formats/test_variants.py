"""Every variant of every format: a few lines of it, and what they say, checked by hand.

    tests/variants/FORMAT/VARIANT.txt     first line `# genuine: …` or `# composed: …`: where from
    tests/variants/FORMAT/VARIANT.json    what is read of the lines behind it

`pytest --update-golden` rewrites the second; read its diff against the first before it is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.metrics.throughput.resolved_facts import resolve_facts
from tests.support.folders import TESTS

VARIANTS = TESTS / "variants"
LOGS = sorted(VARIANTS.glob("*/*.txt"))
ORIGINS = ("# genuine: ", "# composed: ")


def bare(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what is null or names its run."""
    extra = {"extra": json.loads(row["extra"])} if row.get("extra") else {}
    return {k: v for k, v in row.items() if v is not None and k not in ("run_id", "text")} | extra


def reading(log: Path, folder: Path) -> dict[str, Any]:
    head, _, body = log.read_bytes().decode().partition("\n")  # carriage returns and all
    assert head.startswith(ORIGINS), f"{log}: say where its lines are from"
    copy = folder / "run.log"
    copy.write_bytes(body.encode())
    tables = read_log_tables(copy)
    source = tables["sources"].row(0, named=True)
    runs = []
    for run in tables["runs"].iter_rows(named=True):
        mine = {name: tables[name].filter(run_id=run["run_id"]) for name in ("steps", "events")}
        facts = resolve_facts(tables["facts"].filter(run_id=run["run_id"]))
        runs.append(
            {
                "outcome": run["outcome"],
                "step_unit": run["step_unit"],
                "facts": dict(facts.select("name", "value").iter_rows()),
                "steps": [bare(row) for row in mine["steps"].iter_rows(named=True)],
                "events": [bare(row) for row in mine["events"].iter_rows(named=True)],
            }
        )
    counts = ("lines", "step_lines", "known_lines", "companion_lines", "other_lines")
    found = {
        "log_format": source["log_format"],
        "companions": source["companions"],
        "counts": {name: source[name] for name in counts},
        "unread": [row["reason"] for row in tables["unread"].iter_rows(named=True)],
        "runs": runs,
    }
    return json.loads(json.dumps(found, default=str))


@pytest.mark.parametrize("log", LOGS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_variant_says_what_its_golden_says(
    log: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    golden, found = log.with_suffix(".json"), reading(log, tmp_path)
    if request.config.getoption("update_golden"):
        golden.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert golden.is_file(), f"no golden: run pytest --update-golden and read {golden}"
    assert found == json.loads(golden.read_text(encoding="utf-8"))
    assert found["log_format"] == log.parent.name
    assert found["unread"] == []


def test_every_golden_has_its_lines_and_every_folder_its_format() -> None:
    assert {p.with_suffix(".txt") for p in VARIANTS.glob("*/*.json")} == set(LOGS)
    assert {p.parent.name for p in LOGS} <= {f.name for f in BUILT_IN_FORMATS}
