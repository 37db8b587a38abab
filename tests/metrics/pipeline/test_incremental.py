"""Which runs have to be computed anew, by what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import polars as pl
from polars.testing import assert_frame_equal

from fairmfu.metrics.pipeline.analysis import analyse, tables_of_runs
from fairmfu.metrics.pipeline.incremental import requested_runs, rescore, same_file_links
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA, finish_metrics
from fairmfu.metrics.pipeline.run_links import LINK_SCHEMA, kept_links
from tests.metrics.runs.test_same_run import START, Rows, course, measured, source, tables, without

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


# -- nights of a small store: what is read, and that it is as all at once ------------------------

HOUR = timedelta(hours=1)


class Nights:
    """A store whose runs come and go, and what is kept of it."""

    def __init__(self) -> None:
        self.sources: dict[str, dict[str, Rows]] = {}
        self.kept = KEPT_SCHEMA.to_frame()

    def night(
        self, *come: dict[str, Rows], gone: Sequence[str] = (), changed: Sequence[str] = ()
    ) -> list[str]:
        """Score after these runs came, went or changed; the runs that were read, sorted."""
        self.sources |= {made["runs"][0]["run_id"]: made for made in come}
        for run_id in gone:
            del self.sources[run_id]
        whole, read = tables(*self.sources.values()), list[str]()

        def load(run_ids: Sequence[str]) -> dict[str, pl.DataFrame]:
            read.extend(run_ids)
            return dict(tables_of_runs(whole, run_ids))

        found = rescore(whole["runs"], self.kept, changed, load)
        self.kept = found.replace_in(self.kept)
        together = analyse(whole).metrics
        assert_frame_equal(finish_metrics(self.kept), together, check_exact=True)
        return sorted(read)

    def rows(self, *columns: str) -> dict[str, tuple[object, ...]]:
        return {
            row[0]: row[1:] for row in finish_metrics(self.kept).select("run_id", *columns).rows()
        }


def test_a_launch_that_is_told_again_later_is_one_run_and_two_again_when_one_goes() -> None:
    store = Nights()
    console = source("console", measured(1, digits=4), facts=3, started_at=START)
    scalars = source("scalars", without(measured(1), "logged_at"), log_format="s", started_at=START)
    elsewhere = [row | {"loss": row["loss"] + 5} for row in measured(2)]
    store.night(console, source("other", elsewhere, started_at=START + 240 * HOUR))
    assert store.night(scalars) == ["console", "scalars"]
    assert store.rows("members") == {
        "console": (["console", "scalars"],),
        "other": (["other"],),
    }
    assert store.night(changed=["scalars"]) == ["console", "scalars"]
    assert store.night(gone=["console"]) == ["scalars"]
    assert store.rows("members")["scalars"] == (["scalars"],)
    assert store.night() == []


def chain(name: str, first: int, last: int, hours: float) -> dict[str, Rows]:
    return course(name, first, last, START + hours * HOUR)


def test_a_resume_reads_what_it_continues_and_no_more() -> None:
    store = Nights()
    store.night(chain("first", 1, 50, 0), chain("before", 1, 20, -500))
    assert store.night(chain("second", 41, 90, 1)) == ["first", "second"]
    assert store.rows("continues", "repeated_steps") == {
        "before": (None, 0),
        "first": (None, 10),
        "second": ("first", 0),
    }
    # The goodput of a third is of the whole chain; the second has steps that it trains again.
    assert store.night(chain("third", 81, 120, 2)) == ["first", "second", "third"]
    assert store.rows("continues", "repeated_steps")["second"] == ("first", 10)


def test_a_run_that_comes_between_takes_the_place_of_the_one_before() -> None:
    store = Nights()
    store.night(chain("first", 1, 50, 0), chain("last", 41, 90, 4))
    assert "last" in store.night(chain("between", 31, 60, 2))
    assert store.rows("continues")["last"] == ("between",)
    assert "last" in store.night(gone=["between"])
    assert store.rows("continues")["last"] == ("first",)
    assert store.night(gone=["first"]) == ["last"]
    assert store.rows("continues")["last"] == (None,)
    assert "last" in store.night(chain("first", 1, 50, 0))
    assert store.rows("continues", "repeated_steps")["first"] == (None, 10)


def test_steps_that_were_trained_again_stay_known_where_their_launch_alone_changes() -> None:
    store = Nights()
    store.night(chain("first", 1, 50, 0), chain("far", 31, 34, 1), chain("near", 41, 90, 2))
    assert store.rows("repeated_steps")["first"] == (20,)
    store.night(changed=["first"])
    assert store.rows("repeated_steps")["first"] == (20,)
    store.night(gone=["far"])
    assert store.rows("repeated_steps")["first"] == (10,)


def test_launches_of_one_file_are_read_together() -> None:
    """A line between the lines of one of them tells of the other, too."""
    store = Nights()
    one, two = (
        course(name, first, last, START, sha256="file", launch=number)
        for number, (name, first, last) in enumerate([("a", 1, 50), ("b", 51, 90)], 1)
    )
    two["sources"] = []
    one["sources"][0]["sha256"] = "file"
    store.night(one, two)
    assert store.night(changed=["b"]) == ["a", "b"]
    assert store.rows("continues")["b"] == ("a",)
