"""What a launch trained over all of its time: the clock of a launch, and its end-to-end rate.

    launched_at    the first stamp of the launch
    trained_at     training began: stamped, or the end's stamp less the run time it prints
    first_step_at  the first step line
    last_step_at   the last step line
    ended_at       the last stamp: the final checkpoint, evaluation and shutdown lie before it

The end-to-end rate stops at the last step line: what comes behind it, such as the final checkpoint,
is the launch's time, but no longer that of steps. Only a printed run time (basis `runtime`) holds
it, as the frameworks count it (the Trainer's train_runtime: with checkpoints).

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from ingest.schema import FLOAT, INT, TEXT, TIME
from metrics.windows import total

CLOCK: Final = pl.Schema(
    {
        "run_id": TEXT,
        "launched_at": TIME,
        "trained_at": TIME,
        "first_step_at": TIME,
        "last_step_at": TIME,
        "ended_at": TIME,
        "trained_from": INT,
        "trained_to": INT,
        "step_s": FLOAT,
        "startup_s": FLOAT,
        "after_s": FLOAT,
        "wall_s": FLOAT,
        "runtime_s": FLOAT,
    }
)

Members = Mapping[str, Sequence[Mapping[str, Any]]]


def clock(
    runs: pl.DataFrame,
    spans: pl.DataFrame,
    facts: pl.DataFrame,
    events: pl.DataFrame,
    members: Members | None = None,
) -> pl.DataFrame:
    """The wall clock of each run of `runs`, by run_id: columns of CLOCK.

    runs, events: as in ingest.schema; spans: metrics.windows.windows; facts: metrics.inputs.typed;
    members: the rows of `runs` of all sources of a run (metrics.launches.United), whose events
    count as its own; their stamps only where they are of the clock that the steps are stamped by.

    trained_from, trained_to: training began behind the one step and went on to the other [steps],
    as far as the log tells; the first is null where a log begins in the middle. step_s: the median
    time of a step. startup_s: from the first stamp to the first step line, less the typical time of
    the steps that this line speaks of; null where no line before it is stamped. after_s: from the
    last step line to the last stamp. wall_s: from the first stamp to the last. runtime_s: of the
    whole training as the log prints it, or between its stamped start and end where the steps have
    no stamps. A time is null where the log has no stamp for it.
    """
    frames = {str(run_id): frame for (run_id,), frame in spans.group_by("run_id")}
    planned = dict(facts.select("run_id", "total_steps").iter_rows())
    told: dict[str, list[dict[str, Any]]] = {}
    for event in events.sort("run_id", "line").iter_rows(named=True):
        told.setdefault(event["run_id"], []).append(event)
    rows = []
    for run in runs.sort("run_id").iter_rows(named=True):
        own = (members or {}).get(run["run_id"], [run])
        frame = frames.get(run["run_id"])
        rows.append(_Launch(run, own, told, frame, planned.get(run["run_id"])).row())
    return pl.DataFrame(rows, schema=CLOCK)


class _Launch:
    """One launch while its clock is read."""

    def __init__(
        self,
        run: Mapping[str, Any],
        members: Sequence[Mapping[str, Any]],
        told: Mapping[str, Sequence[dict[str, Any]]],
        frame: pl.DataFrame | None,
        planned: int | None,
    ) -> None:
        self.run, self.frame, self.planned = run, frame, planned
        same = [m for m in members if m["utc"] == run["utc"]]
        self.starts = [m["started_at"] for m in same if m["started_at"] is not None]
        self.events = [e for m in members for e in told.get(m["run_id"], ())]
        self.stamped = [
            e for m in same for e in told.get(m["run_id"], ()) if e["logged_at"] is not None
        ]

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(CLOCK) | {"run_id": self.run["run_id"]}
        if self.frame is None:
            return row
        self.interval = interval(self.frame)
        row["trained_from"] = self._trained_from()
        row["trained_to"] = self._trained_to()
        row["step_s"] = _step_seconds(self.frame, self.run["evidence"])
        stamped = self.frame.filter(pl.col("logged_at").is_not_null())
        if stamped.height:
            row |= self._with_stamps(stamped)
        else:
            row |= self._without_stamps()
        row["runtime_s"] = next((e["seconds"] for e in self._ends() if e["seconds"]), None)
        if row["runtime_s"] is None and not stamped.height:
            row["runtime_s"] = _seconds(row["trained_at"], self._ended())
        row["wall_s"] = _seconds(row["launched_at"], row["ended_at"])
        row["after_s"] = _seconds(row["last_step_at"], row["ended_at"])
        row["startup_s"] = self._startup(row)
        return row

    def _ends(self) -> list[dict[str, Any]]:
        return [e for e in self.events if e["kind"] == "end"]

    def _with_stamps(self, stamped: pl.DataFrame) -> dict[str, Any]:
        """Of steps with stamps; a clock that went back is none."""
        first, last = stamped["logged_at"][0], stamped["logged_at"][-1]
        if (stamped["logged_at"].diff().drop_nulls() < -BACK).any():
            return {}
        early = [s for s in (*self.starts, *(e["logged_at"] for e in self.stamped)) if s <= first]
        late = [e["logged_at"] for e in self.stamped if e["logged_at"] >= last]
        return {
            "launched_at": min(early, default=first),
            "trained_at": self._trained_at(first),
            "first_step_at": first,
            "last_step_at": last,
            "ended_at": max(late, default=last),
        }

    def _without_stamps(self) -> dict[str, Any]:
        """Of steps without: the stamps of the lines around them."""
        assert self.frame is not None  # noqa: S101 - the caller asked
        first, last = self.frame["line"].min(), self.frame["line"].max()
        own = [e for e in self.stamped if e["run_id"] == self.run["run_id"]]
        before = [e["logged_at"] for e in own if e["line"] < first]
        behind = [e["logged_at"] for e in own if e["line"] > last]
        if not before or not behind or min(behind) < max(before):
            return {"launched_at": min(before, default=None)}
        earlier = [s for s in self.starts if s <= min(before)]
        started = [e for e in own if e["kind"] == "train_start" and e["line"] < first]
        return {
            "launched_at": min((*earlier, *before)),
            "trained_at": started[-1]["logged_at"] if started else None,
            "ended_at": max(behind),
        }

    def _ended(self) -> datetime | None:
        """When training itself was over, by a line that says so behind the last step."""
        assert self.frame is not None  # noqa: S101 - the caller asked
        last = self.frame["line"].max()
        stamps = (
            e["logged_at"]
            for e in self.stamped
            if e["kind"] == "end" and e["run_id"] == self.run["run_id"] and e["line"] > last
        )
        return next(stamps, None)

    def _trained_at(self, first: datetime) -> datetime | None:
        """The last stamped start of training before the first step line."""
        starts: list[datetime] = [
            e["logged_at"]
            for e in self.stamped
            if e["kind"] == "train_start" and e["logged_at"] <= first
        ]
        if starts:
            return max(starts)
        timed = (e for e in self.stamped if e["kind"] == "end" and e["seconds"])
        counted: list[datetime] = [e["logged_at"] - timedelta(seconds=e["seconds"]) for e in timed]
        return min((s for s in counted if s <= first), default=None)

    def _trained_from(self) -> int | None:
        """The step that training went on from: as its start or the loaded checkpoint says, else 0.

        0 where the first line is no further than one log interval. A checkpoint of another
        training, which is only loaded, does not lie within one log interval of the first line.
        """
        assert self.frame is not None  # noqa: S101 - the caller asked
        first = int(self.frame["step"][0])
        said = [(e["kind"], e["step"]) for e in self.events if e["step"] is not None]
        began: list[int] = [
            step - 1 for kind, step in said if kind == "train_start" and 0 < step <= first
        ]
        if began:
            return max(began)
        loaded: list[int] = [
            s for kind, s in said if kind == "load" and first - self.interval <= s < first and s
        ]
        return max(loaded, default=0 if first <= self.interval else None)

    def _trained_to(self) -> int:
        """The last step: of the last line, or behind it by what an end or a checkpoint says.

        The last planned one where the launch completed. No further than the next line would be.
        """
        assert self.frame is not None  # noqa: S101 - the caller asked
        last = int(self.frame["step"][-1])
        said = [e["step"] for e in self.events if e["kind"] in ("end", "checkpoint") and e["step"]]
        said += [self.planned] if self.planned and self.run["outcome"] == "completed" else []
        return max((s for s in said if last < s < last + self.interval), default=last)

    def _startup(self, row: Mapping[str, Any]) -> float | None:
        assert self.frame is not None  # noqa: S101 - the caller asked
        whole = _seconds(row["launched_at"], row["first_step_at"])
        if not whole or row["trained_from"] is None or row["step_s"] is None:
            return None
        steps = int(self.frame["step"][0]) - int(row["trained_from"])
        return max(0.0, whole - steps * float(row["step_s"]))


BACK: Final = timedelta(seconds=2)
"""Stamps of two ranks may cross; a clock that is set back goes further."""


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def interval(frame: pl.DataFrame) -> int:
    """Steps between two lines: as the log states, else as they stand."""
    said = frame["log_interval"][0]
    return int(said or frame["new_step"].median() or 1)  # type: ignore[arg-type]


def _step_seconds(frame: pl.DataFrame, evidence: Sequence[str]) -> float | None:
    """The median time of a step behind the first line, by the first evidence that has one.

    A rate is a time where its tokens are known.
    """
    later = frame.filter(~pl.col("first"))
    for kind in evidence:
        timed = later.filter(pl.col(f"{kind}_time") > 0, pl.col(f"{kind}_span") > 0)
        if kind == "rate":
            timed = timed.filter(pl.col("tokens_per_gpu").is_not_null())
        if timed.height:
            return float((timed[f"{kind}_time"] / timed[f"{kind}_span"]).median())  # type: ignore[arg-type]
    return None


def end_to_end(frame: pl.DataFrame, evidence: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """`tgs_end_to_end` [tokens/s/GPU] and `end_to_end_basis` of one run.

    frame: its windows; evidence: its time evidence; run: its row of `runs` with the columns of
    CLOCK. The first basis that the log allows:

        stamp from start   all steps to the last stamped line, from the start of training to it
        runtime            all steps, over the run time that the log prints or stamps
        stamp              the steps behind the first stamped line, from that line to the last
        EVIDENCE           the same by the lines' own time, where they speak of every step
    """
    for rate in (_from_start, _over_runtime):
        if (found := rate(frame, run)) is not None:
            return _named(*found)
    return _named(*_behind_first_line(frame, evidence))


def _named(rate: float | None, basis: str | None) -> dict[str, Any]:
    return {"tgs_end_to_end": rate, "end_to_end_basis": basis}


def trained(frame: pl.DataFrame, start: float, end: float) -> float | None:
    """Tokens on one GPU of the steps behind `start` up to `end`; null where a count is unknown.

    Each step counts what its line says; those behind the last line count as that.
    """
    upto = frame["step"].to_numpy().astype(np.float64)
    upto[-1] = max(upto[-1], end)
    borders = np.concatenate(([start], upto)).clip(start, max(start, end))
    each = pl.DataFrame({"steps": np.diff(borders), "tokens": _tokens(frame, start)})
    mine = each.filter(pl.col("steps") > 0)
    return None if mine["tokens"].null_count() else total(mine["steps"] * mine["tokens"])


def _tokens(frame: pl.DataFrame, start: float) -> pl.Series:
    """Tokens of a step on one GPU; of the first line by its count since the start, if no other."""
    each = frame["tokens_per_gpu"].cast(pl.Float64)
    consumed, gpus = frame["consumed_tokens"][0], frame["gpus"][0]
    if each[0] is not None or start or not consumed or not gpus:
        return each
    first = pl.Series([consumed / int(frame["step"][0]) / gpus])
    return pl.concat([first.cast(pl.Float64), each.slice(1)])


def _from_start(frame: pl.DataFrame, run: Mapping[str, Any]) -> tuple[float, str] | None:
    seconds = _seconds(run.get("trained_at"), run.get("last_step_at"))
    start = run.get("trained_from")
    stamped = frame.filter(pl.col("logged_at").is_not_null())
    if not seconds or start is None or frame.height == 1:
        return None
    count = trained(frame, start, stamped["step"][-1])
    return None if count is None else (count / seconds, "stamp from start")


def _over_runtime(frame: pl.DataFrame, run: Mapping[str, Any]) -> tuple[float, str] | None:
    start, seconds = run.get("trained_from"), run.get("runtime_s")
    if not seconds or start is None:
        return None
    count = trained(frame, start, run["trained_to"])
    return None if count is None else (count / seconds, "runtime")


def _behind_first_line(frame: pl.DataFrame, evidence: str) -> tuple[float | None, str | None]:
    later = frame.filter(pl.col("stamp_time").is_not_null(), ~pl.col("first"))
    if total(later["stamp_time"]) and later["tokens_per_gpu"].null_count() == 0:
        count = total(later["stamp_span"] * later["tokens_per_gpu"])
        return count / total(later["stamp_time"]), "stamp"
    rest = frame.filter(~pl.col("first"), pl.col(f"{evidence}_time").is_not_null())
    tokens_per_gpu = rest["tokens_per_gpu"]
    if evidence == "rate":
        tokens_per_gpu = tokens_per_gpu.fill_null(1.0)
    span = rest[f"{evidence}_span"]
    if not rest.height or tokens_per_gpu.null_count() or (span != rest["new_step"]).any():
        return None, None
    return total(span * tokens_per_gpu) / total(rest[f"{evidence}_time"]), evidence
