"""What a batch changes in a store: which source replaces which, and when each was first read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.core.schema import frame_schema
from fairmfu.ingest.core.spill import collect_rows
from fairmfu.ingest.store.changeset import (
    BESIDE_TABLE,
    GIVEN_STRIDE,
    GIVEN_TABLE,
    LOG_TABLES,
    REMOVED_TABLE,
    Changeset,
    FileRemark,
    KnownFile,
    StoredSource,
    base_id,
    removed_sources_frame,
)

NOW = datetime(2026, 3, 1, 12)
RUN, OTHER_RUN = "a" * 12, "b" * 12
NO_FACTS = pl.DataFrame(schema=frame_schema("facts"))


def days(count: int) -> datetime:
    return NOW - timedelta(days=count)


def frame(table: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    schema = frame_schema(table)
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in schema}, schema=schema)


def read(
    path: str,
    sha256: str,
    runs: Sequence[str] = (RUN,),
    step_lines: int = 3,
    facts: Sequence[Mapping[str, Any]] = (),
) -> dict[str, pl.DataFrame]:
    """What was read of a file: each of its runs has a step."""
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in LOG_TABLES}
    rows["sources"] = [{"path": path, "sha256": sha256, "step_lines": step_lines}]
    rows["runs"] = [{"run_id": run} for run in runs]
    rows["steps"] = [{"run_id": run, "step": 1} for run in runs]
    rows["facts"] = [{"run_id": run, **fact} for run in runs for fact in facts]
    return {table: frame(table, of) for table, of in rows.items()}


def stored(  # noqa: PLR0913 - of one source
    path: str,
    sha256: str,
    runs: Sequence[str] = (RUN,),
    step_lines: int = 3,
    *,
    read_at: datetime | None = None,
    stepped: Sequence[str] | None = None,
    read_otherwise: bool = False,
) -> StoredSource:
    with_steps = frozenset(runs if stepped is None else stepped)
    return StoredSource(
        path,
        sha256,
        tuple(runs),
        read_at or days(9),
        step_lines,
        lambda: with_steps,
        read_otherwise,
    )


def changed(
    before: Iterable[StoredSource],
    *files: dict[str, pl.DataFrame],
    facts: pl.DataFrame = NO_FACTS,
    grown: Sequence[str] = (),
) -> Changeset:
    changes = Changeset(before, facts, NOW, grown)
    for tables in files:
        changes.place(tables)  # type: ignore[arg-type]
    return changes


def written(changes: Changeset, table: str, batch: int = 7) -> pl.DataFrame:
    rows = changes.frames(batch).get(table)
    return frame("facts", []).clear() if rows is None else collect_rows(rows)


def dates(changes: Changeset) -> dict[str, datetime]:
    """By path, when each source that is written was first read."""
    return dict(written(changes, "sources").select("path", "read_at").iter_rows())


# -- when a source was first read --------------------------------------------------------------


def test_a_new_file_was_first_read_now() -> None:
    assert dates(changed([], read("a", "s1"))) == {"a": NOW}


def test_a_file_that_grew_was_first_read_when_its_beginning_was() -> None:
    changes = changed([stored("a", "s1", read_at=days(5))], read("a", "s2", step_lines=4))
    assert dates(changes) == {"a": days(5)}


def test_of_several_beginnings_the_earliest_counts() -> None:
    before = [
        stored("a", "s1", read_at=days(2)),
        stored("a", "s2", (OTHER_RUN,), read_at=days(6)),
        stored("a", "s3", ("c" * 12,), read_at=days(4)),
    ]
    changes = changed(before, read("a", "s4", (RUN, OTHER_RUN, "c" * 12), 9))
    assert dates(changes) == {"a": days(6)}


def test_a_beginning_of_unknown_date_does_not_count() -> None:
    """As an early store has them."""
    unknown = StoredSource("a", "s1", (RUN,), None, 3, lambda: frozenset([RUN]))
    assert dates(changed([unknown], read("a", "s2", step_lines=4))) == {"a": NOW}
    known = stored("a", "s0", (OTHER_RUN,), read_at=days(3))
    changes = changed([unknown, known], read("a", "s2", (RUN, OTHER_RUN), 4))
    assert dates(changes) == {"a": days(3)}


def test_each_of_several_files_has_its_own_date() -> None:
    before = [stored("a", "s1", read_at=days(5)), stored("c", "s3", ("c" * 12,), read_at=days(1))]
    files = [
        read("b", "s9", (OTHER_RUN,)),
        read("c", "s4", ("c" * 12,), 4),
        read("a", "s2", (RUN,), 4),
    ]
    assert dates(changed(before, *files)) == {"b": NOW, "c": days(1), "a": days(5)}
    assert dates(changed(before, *files[::-1])) == {"a": days(5), "c": days(1), "b": NOW}


def test_content_that_is_read_anew_keeps_its_date() -> None:
    """Where today's readers read it otherwise."""
    before = stored("a", "s1", read_at=days(5), read_otherwise=True)
    changes = changed([before], read("a", "s1", step_lines=2))
    assert dates(changes) == {"a": days(5)}
    assert changes.remarks == []


# -- which source replaces which ---------------------------------------------------------------


def removed(changes: Changeset) -> set[str]:
    found = changes.frames(7).get(REMOVED_TABLE)
    return set() if found is None else set(collect_rows(found)["sha256"])


@pytest.mark.parametrize(("step_lines", "replaces"), [(3, True), (4, True), (2, False)])
def test_a_file_replaces_what_it_holds_all_of(step_lines: int, *, replaces: bool) -> None:
    changes = changed([stored("a", "s1")], read("a", "s2", step_lines=step_lines))
    assert removed(changes) == ({"s1"} if replaces else set())
    assert changes.remarks == ([] if replaces else [FileRemark("a", "less")])


def test_a_file_of_another_run_keeps_the_earlier_one() -> None:
    changes = changed([stored("a", "s1")], read("a", "s2", (OTHER_RUN,), 9))
    assert removed(changes) == set()
    assert changes.remarks == [FileRemark("a", "kept")]
    elsewhere = changed([stored("b", "s1")], read("a", "s2", (OTHER_RUN,), 9))
    assert elsewhere.remarks == []


def test_a_launch_that_had_no_step_has_no_lasting_id() -> None:
    """The second launch was just begun; by now it has steps, and another id."""
    before = stored("a", "s1", (RUN, "c" * 12), stepped=(RUN,))
    assert removed(changed([before], read("a", "s2", (RUN, OTHER_RUN), 5))) == {"s1"}
    both = stored("a", "s1", (RUN, "c" * 12))
    assert removed(changed([both], read("a", "s2", (RUN, OTHER_RUN), 5))) == set()


def test_earlier_readers_may_have_counted_more_lines() -> None:
    before = stored("a", "s1", step_lines=9, read_otherwise=True)
    assert removed(changed([before], read("a", "s2", step_lines=3))) == {"s1"}


def test_a_source_is_read_as_today_unless_it_is_said() -> None:
    source = StoredSource("a", "s1", (RUN,), None, 3, lambda: frozenset([RUN]))
    assert source.is_prefix_of([RUN], 3)
    assert not source.is_prefix_of([RUN], 2)
    assert source.is_prefix_of([f"{RUN}-abcdef"], 3)


def test_content_that_a_file_began_with_is_replaced_whatever_it_held() -> None:
    changes = changed([stored("a", "s1")], read("a", "s2", (OTHER_RUN,), 1), grown=["s1"])
    assert removed(changes) == {"s1"}
    assert changes.remarks == []


def test_the_same_content_at_another_path_is_known() -> None:
    changes = changed([stored("a", "s1")], read("b", "s1"))
    assert changes.remarks == [FileRemark("b", "known", "a")]
    assert "sources" not in changes.frames(7)
    assert removed(changes) == set()


def test_what_came_through_a_pipe_does_not_take_a_files_place() -> None:
    """Even where the file would be read otherwise today."""
    before = stored("a", "s1", read_otherwise=True)
    assert changed([before], read("-", "s1")).remarks == [FileRemark("-", "known", "a")]
    assert dates(changed([stored("-", "s1", read_otherwise=True)], read("-", "s1"))) == {
        "-": days(9)
    }
    assert changed([stored("-", "s1")], read("-", "s2", (OTHER_RUN,))).remarks == []


# -- ids of runs -------------------------------------------------------------------------------


def ids(changes: Changeset) -> list[str]:
    return written(changes, "runs")["run_id"].to_list()


def test_a_run_of_another_file_gets_an_id_of_its_own() -> None:
    """By its path; where that has one, too, by its content. It keeps it while the file grows."""
    changes = changed([stored("a", "s1")], read("b", "s2"))
    (own,) = ids(changes)
    assert own != RUN
    assert base_id(own) == RUN
    assert written(changes, "steps")["run_id"].to_list() == [own]
    again = changed([stored("a", "s1"), stored("b", "s2", (own,))], read("b", "s3", step_lines=4))
    assert ids(again) == [own]
    third = changed([stored("a", "s1"), stored("b", "s2", (own,))], read("b", "s3", step_lines=2))
    assert base_id(ids(third)[0]) == RUN
    assert ids(third)[0] not in (RUN, own)


def test_each_of_several_runs_gets_an_id_of_its_own() -> None:
    """And keeps its own rows."""
    changes = changed([stored("a", "s1", (RUN, OTHER_RUN))], read("b", "s2", (RUN, OTHER_RUN)))
    assert [*map(base_id, ids(changes))] == [RUN, OTHER_RUN]
    assert written(changes, "steps")["run_id"].to_list() == ids(changes)
    assert {RUN, OTHER_RUN}.isdisjoint(ids(changes))


def test_a_run_keeps_its_id_while_its_file_grows() -> None:
    assert ids(changed([stored("a", "s1")], read("a", "s2", step_lines=4))) == [RUN]


def test_two_runs_of_one_id_in_one_file_are_refused() -> None:
    with pytest.raises(StoreError, match="ingest one into another --store"):
        changed([], read("a", "s1", (RUN, RUN, RUN, RUN)))


# -- facts by hand, and beside a log -----------------------------------------------------------

FLAG = {"name": "seq_len", "value": "512", "origin": "flag: --set"}
SIDECAR = {"name": "gpus", "value": "8", "origin": "sidecar: fairmfu.toml"}
LOGGED = {"name": "model", "value": "x", "origin": "log"}


def facts_of(*rows: Mapping[str, Any], run: str = RUN) -> pl.DataFrame:
    return frame("facts", [{"run_id": run, **row} for row in rows])


def test_facts_live_as_long_as_their_origin_says() -> None:
    changes = changed([], read("a", "s1", facts=[FLAG, SIDECAR, LOGGED]))
    assert written(changes, "facts")["name"].to_list() == ["model"]
    given, beside = (written(changes, table) for table in (GIVEN_TABLE, BESIDE_TABLE))
    assert given.select("run_id", "name", "sequence").rows() == [
        (RUN, "seq_len", 7 * GIVEN_STRIDE + GIVEN_STRIDE // 2)
    ]
    assert beside.select("sha256", "run_id", "name", "sequence").rows() == [
        ("s1", RUN, "gpus", 7 * GIVEN_STRIDE)
    ]


def test_what_is_given_again_writes_nothing() -> None:
    known = facts_of(FLAG, SIDECAR)
    changes = Changeset([stored("a", "s1")], known, NOW)
    changes.see(KnownFile("a", "s1", [FLAG, SIDECAR]))
    assert changes.frames(7) == {}
    changes.see(KnownFile("a", "s1", [FLAG | {"value": "1024"}, SIDECAR]))
    assert written(changes, GIVEN_TABLE)["value"].to_list() == ["1024"]
    assert BESIDE_TABLE not in changes.frames(7)


def test_a_set_beside_a_log_that_is_empty_now_says_so() -> None:
    changes = Changeset([stored("a", "s1")], facts_of(SIDECAR), NOW)
    changes.see(KnownFile("a", "s1", []))
    assert written(changes, BESIDE_TABLE).select("sha256", "name").rows() == [("s1", None)]


def test_what_stands_beside_a_copy_does_not_count() -> None:
    changes = Changeset([stored("a", "s1")], NO_FACTS, NOW)
    changes.see(KnownFile("b", "s1", [FLAG, SIDECAR]))
    assert BESIDE_TABLE not in changes.frames(7)
    assert written(changes, GIVEN_TABLE)["name"].to_list() == ["seq_len"]


def test_what_was_given_to_a_run_goes_to_what_it_became() -> None:
    """Its launch was begun without a step, and has another id now; what it has already stays."""
    before = stored("a", "s1", ("c" * 12,), stepped=())
    flags = facts_of(FLAG, FLAG | {"name": "gpus"}, run="c" * 12)
    changes = changed([before], read("a", "s2", (RUN,), 4), facts=flags)
    assert written(changes, GIVEN_TABLE).select("run_id", "name").rows() == [
        (RUN, "seq_len"),
        (RUN, "gpus"),
    ]
    both = pl.concat([flags, facts_of(FLAG | {"value": "9"})])
    changes = changed([before], read("a", "s2", (RUN,), 4), facts=both)
    assert written(changes, GIVEN_TABLE).select("run_id", "name").rows() == [(RUN, "gpus")]


def test_facts_by_hand_of_runs_that_are_not_there_are_left_out() -> None:
    changes = Changeset([stored("a", "s1")], facts_of(FLAG), NOW)
    assert changes.give_facts({RUN: [FLAG], OTHER_RUN: [FLAG]}) == 0
    assert changes.give_facts({RUN: [FLAG | {"value": "1024"}]}) == 1


# -- content that is gone, and runs that are to go ---------------------------------------------


def test_a_known_file_whose_content_is_gone_must_be_read() -> None:
    changes = Changeset([], NO_FACTS, NOW)
    changes.see(KnownFile("a", "s1", []))
    assert changes.remarks == [FileRemark("a", "gone")]


def test_a_copy_of_a_known_file_replaces_what_its_path_held_of_it() -> None:
    """Content that another file of the batch has stays."""
    before = [stored("a", "s1", step_lines=4), stored("b", "s2", (RUN + "-abcdef",), 3)]
    changes = Changeset(before, NO_FACTS, NOW)
    changes.see(KnownFile("b", "s1", []))
    assert removed(changes) == {"s2"}
    claimed = Changeset(before, NO_FACTS, NOW)
    claimed.see(KnownFile("b", "s1", []), claimed_contents=["s2"])
    assert removed(claimed) == set()
    other = Changeset([before[0], stored("b", "s2", (OTHER_RUN,), 3)], NO_FACTS, NOW)
    other.see(KnownFile("b", "s1", []))
    assert other.remarks == [FileRemark("b", "kept", "a")]


def test_all_runs_of_a_source_go() -> None:
    changes = Changeset([stored("a", "s1", (RUN, OTHER_RUN))], NO_FACTS, NOW)
    assert changes.remove([RUN, "c" * 12]) == {"a": [RUN, OTHER_RUN]}
    assert written(changes, REMOVED_TABLE).rows() == [("s1", RUN), ("s1", OTHER_RUN)]


def test_a_removed_source_names_runs_that_no_other_has() -> None:
    found = removed_sources_frame({"s1": (RUN, OTHER_RUN), "s2": (RUN,)}, {RUN})
    assert found.rows() == [("s1", OTHER_RUN), ("s2", None)]


@pytest.mark.parametrize(
    ("run", "base"),
    [
        (RUN, RUN),
        (f"{RUN}-abcdef", RUN),
        (f"{RUN}-2", f"{RUN}-2"),  # another launch of the same beginning
        (f"{RUN}-2-012345", f"{RUN}-2"),
        (f"{RUN}-abcdefa", f"{RUN}-abcdefa"),
    ],
)
def test_an_id_without_what_tells_files_apart(run: str, base: str) -> None:
    assert base_id(run) == base
