"""Partitions give what all runs at once give; what is in one, and who is asked for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.metrics.pipeline import partitions
from fairmfu.metrics.pipeline.analysis import analyse, tables_of_runs
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA, finish_metrics
from fairmfu.metrics.pipeline.partitions import rescore_by_partition
from tests.metrics.runs.test_same_run import START, Rows, course, measured, source, tables, without

Argument = TypeVar("Argument")
Result = TypeVar("Result")
HOUR = timedelta(hours=1)


class Asked:
    """Who computes, and remembers the runs of each piece of work of the first round."""

    def __init__(self) -> None:
        self.parts: list[list[str]] = []

    def __call__(
        self, work: Callable[[Argument], Result], over: Sequence[Argument], /
    ) -> Iterable[Result]:
        if not self.parts:
            self.parts = [one["run_id"].to_list() for one in over if isinstance(one, pl.DataFrame)]
        return map(work, over)


def store(*sources: dict[str, Rows]) -> dict[str, pl.DataFrame]:
    return tables(*sorted(sources, key=lambda made: str(made["runs"][0]["name"])))


def scored(
    all_tables: dict[str, pl.DataFrame],
    kept: pl.DataFrame | None = None,
    changed: Sequence[str] = (),
) -> tuple[pl.DataFrame, list[list[str]], list[str]]:
    """What is kept afterwards, the runs of each partition, and those that are gone."""
    before = KEPT_SCHEMA.to_frame() if kept is None else kept
    asked = Asked()
    found = rescore_by_partition(
        all_tables["runs"],
        before,
        changed,
        lambda ids: dict(tables_of_runs(all_tables, ids)),
        mapper=asked,
    )
    return found.replace_in(before), asked.parts, found.removed


def of_lines(name: str, lines: int) -> dict[str, Rows]:
    """A launch of its own: other losses, by its name's letter."""
    rows = [row | {"loss": row["loss"] + ord(name[0])} for row in measured(ord(name[0]), 3)]
    return source(name, rows, first_line=11, last_line=10 + lines)


def test_partitions_have_neighbours_as_far_as_runs_and_lines_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", 3)
    monkeypatch.setattr(partitions, "MAX_PARTITION_LINES", 100)
    lines = {"a": 50, "b": 50, "c": 1, "d": 101, "e": 1, "f": 1, "g": 1, "h": 98}
    everything = store(*(of_lines(name, count) for name, count in lines.items()))
    kept, parts, gone = scored(everything)
    assert parts == [["a", "b"], ["c"], ["d"], ["e", "f", "g"], ["h"]]
    assert (gone, kept["run_id"].to_list()) == ([], list("abcdefgh"))
    assert_frame_equal(finish_metrics(kept), analyse(everything).metrics, check_exact=True)


def test_one_partition_is_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = store(*(of_lines(name, 1) for name in "ab"))
    found = rescore_by_partition(
        everything["runs"], KEPT_SCHEMA.to_frame(), (), lambda ids: tables_of_runs(everything, ids)
    )
    assert found.analysis is not None
    monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", 1)
    kept, parts, _ = scored(everything, found.rows, ["b"])
    assert parts == []  # b alone is one partition
    assert kept.sort("run_id").equals(found.rows.sort("run_id"))


def tied() -> list[dict[str, Rows]]:
    """A launch told twice, a chain of three, and a run of its own; neighbours are apart."""
    console = source("m1", measured(1, digits=4), facts=3)
    scalars = source("z1", without(measured(1), "logged_at"), log_format="xtuner-scalars")
    chain = [
        course("k1", 1, 50, START + 24 * HOUR),
        course("b2", 41, 60, START + 26 * HOUR),
        course("y3", 56, 90, START + 28 * HOUR),
    ]
    return [console, scalars, *chain, of_lines("q", 1)]


def test_what_is_tied_over_partitions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", 1)
    monkeypatch.setattr(partitions, "MAX_LATER_LAUNCHES", 1)
    everything = store(*tied())
    kept, parts, _ = scored(everything)
    assert parts == [["b2"], ["k1"], ["m1"], ["q"], ["y3"], ["z1"]]
    whole = analyse(everything).metrics
    assert_frame_equal(finish_metrics(kept), whole, check_exact=True)
    rows = {row["run_id"]: row for row in whole.to_dicts()}
    assert rows["m1"]["members"] == ["m1", "z1"]
    assert (rows["b2"]["continues"], rows["y3"]["continues"]) == ("k1", "b2")
    # What was tied when it was kept comes into one partition, and may go.
    left = store(*(made for made in tied() if made["runs"][0]["run_id"] not in ("z1", "b2")))
    again, parts, gone = scored(left, kept, ["q"])
    assert gone == ["b2", "z1"]
    assert sorted(one for part in parts for one in part) == ["k1", "m1", "q", "y3"]
    assert_frame_equal(finish_metrics(again), analyse(left).metrics, check_exact=True)


def test_a_run_of_the_first_partition_may_continue_one_that_was_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing but its course tells; the other new one has nothing to do with it."""
    monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", 1)
    before = course("k1", 1, 50, START + 24 * HOUR)
    kept, *_ = scored(store(before))
    everything = store(before, course("a1", 41, 60, START + 26 * HOUR), of_lines("q", 1))
    found, parts, _ = scored(everything, kept)
    assert parts == [["a1"], ["q"]]
    rows = finish_metrics(found)
    assert rows.select("run_id", "continues").rows() == [("a1", "k1"), ("k1", None), ("q", None)]
