"""Which runs have to be computed anew, by what is kept of them."""

from __future__ import annotations

import polars as pl

from fairmfu.metrics.pipeline.incremental import (
    LINK_SCHEMA,
    kept_links,
    requested_runs,
    same_file_links,
)

NAMES = pl.List(pl.String)


def kept(**readable: bool) -> pl.DataFrame:
    """Kept rows by run; False: as another layout kept them."""
    ends = [[] if readable[run] else None for run in readable]
    return pl.DataFrame({"run_id": list(readable), "ends": ends}, schema_overrides={"ends": NAMES})


def there(*runs: str) -> pl.DataFrame:
    return pl.DataFrame({"run_id": list(runs)}, schema={"run_id": pl.String})


def test_what_is_changed_new_gone_or_not_readable_is_computed_anew() -> None:
    assert requested_runs(there("a", "b"), kept(a=True, b=True), []) == set()
    assert requested_runs(there("a", "b"), kept(a=True, b=True), ["a"]) == {"a"}
    assert requested_runs(there("a", "new"), kept(a=True), []) == {"new"}
    assert requested_runs(there("a"), kept(a=True, gone=True), []) == {"gone"}
    assert requested_runs(there("a", "b"), kept(a=True, b=False), []) == {"b"}
    assert requested_runs(there("a"), kept(a=True), ["unknown"]) == set()
    assert requested_runs(there(), kept(gone=True), ["gone"]) == {"gone"}


def links(*rows: tuple[str, list[str] | None, list[str] | None]) -> list[tuple[str, str]]:
    schema = {"run_id": pl.String, "members": NAMES, "related": NAMES}
    return sorted(kept_links(pl.DataFrame(rows, schema=schema, orient="row")).rows())


def test_members_and_related_runs_are_linked_and_none_with_itself() -> None:
    assert links(("a", ["a"], []), ("b", ["b"], None), ("c", None, None)) == []
    assert links(("a", ["a", "b"], ["c"])) == [("a", "b"), ("a", "c")]
    assert links(("a", ["a"], ["a", "c"])) == [("a", "c")]


def test_launches_of_one_file_are_linked_one_behind_the_other() -> None:
    runs = pl.DataFrame(
        {
            "run_id": ["c", "a", "b", "d"],
            "sha256": ["x", "x", "x", "y"],
            "launch": [3, 1, 2, 1],
        }
    )
    found = same_file_links(runs)
    assert found.rows() == [("a", "b"), ("b", "c")]
    assert found.schema == LINK_SCHEMA
