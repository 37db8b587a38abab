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
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from ingest.schema import FLOAT, INT, TEXT, TIME
from metrics.evidence import gap_between
from metrics.tokens import UNLIKE
from metrics.windows import DISAGREEMENT, STAMP_ERROR, total

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
    as far as the log tells; the first is null where a log begins in the middle, the second where it
    does not say what its lines count. step_s: the median
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
        self.events = [e for m in members for e in told.get(m["run_id"], ())]
        self.own: list[dict[str, Any]] = []
        self.others: list[datetime] = []
        for member in (m for m in members if m["utc"] == run["utc"]):
            start = member["started_at"]
            stamped = [e for e in told.get(member["run_id"], ()) if e["logged_at"] is not None]
            if member["run_id"] == run["run_id"]:
                opening = {"kind": None, "line": member["first_line"] or 0, "logged_at": start}
                self.own = [opening, *stamped] if start is not None else stamped
            else:
                self.others += [e["logged_at"] for e in stamped] + ([start] if start else [])

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(CLOCK) | {"run_id": self.run["run_id"]}
        if self.frame is None:
            return row
        self.interval = interval(self.frame)
        row["trained_from"] = self._trained_from()
        row["step_s"] = _step_seconds(self.frame, self.run["evidence"])
        stamped = self.frame.filter(pl.col("logged_at").is_not_null())
        row["trained_to"] = self._trained_to(stamped=stamped.height > 0)
        if stamped.height:
            row |= self._with_stamps(stamped)
        else:
            row |= self._without_stamps()
        ends = (e["seconds"] for e in self.events if e["kind"] == "end" and e["seconds"])
        row["runtime_s"] = next(ends, row["runtime_s"])
        row["wall_s"] = _seconds(row["launched_at"], row["ended_at"])
        row["after_s"] = _seconds(row["last_step_at"], row["ended_at"])
        row["startup_s"] = self._startup(row)
        return row

    def _around(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The stamped lines of the run's own source before its first step line, and behind all.

        Those between are left out: a source may hold lines of several programs.
        """
        assert self.frame is not None  # noqa: S101 - the caller asked
        first, last = self.frame["line"].min(), self.frame["line"].max()
        before = [e for e in self.own if e["line"] < first]
        return before, [e for e in self.own if e["line"] > last]

    def _with_stamps(self, stamped: pl.DataFrame) -> dict[str, Any]:
        """Of steps with stamps; a clock that went back is none."""
        first: datetime = stamped["logged_at"][0]
        last: datetime = stamped["logged_at"][-1]
        before, behind = self._around()
        back = (stamped["logged_at"].diff().drop_nulls() < -BACK).any()
        if back or any(e["logged_at"] > first + BACK for e in before):
            return {}
        early = [s for s in (*(e["logged_at"] for e in before), *self.others) if s <= first]
        late = [s for s in (*(e["logged_at"] for e in behind), *self.others) if s >= last]
        return {
            "launched_at": min(early, default=first),
            "trained_at": self._trained_at(before, behind, first),
            "first_step_at": first,
            "last_step_at": last,
            "ended_at": max(late, default=last),
        }

    def _without_stamps(self) -> dict[str, Any]:
        """Of steps without: the stamps of the lines around them."""
        before, behind = self._around()
        early, late = ([e["logged_at"] for e in side] for side in (before, behind))
        if not early or not late or min(late) < max(early):
            return {"launched_at": min(early, default=None)}
        trained_at = self._trained_at(before, [], max(early))
        ended = [e["logged_at"] for e in behind if e["kind"] == "end"]
        runtime = pl.Series([trained_at, ended[0] if ended else None], dtype=pl.Datetime("us"))
        seconds = _seconds(*runtime)
        return {
            "launched_at": min(early),
            "trained_at": trained_at,
            "ended_at": max(late),
            "runtime_s": None if (seconds or 0.0) < shortest(runtime) else seconds,
        }

    @staticmethod
    def _trained_at(
        before: Sequence[Mapping[str, Any]], behind: Sequence[Mapping[str, Any]], first: datetime
    ) -> datetime | None:
        """The last stamped start of training; else the end's stamp less its run time."""
        starts: list[datetime] = [e["logged_at"] for e in before if e["kind"] == "train_start"]
        if starts:
            return min(max(starts), first)
        timed = (e for e in behind if e["kind"] == "end" and e["seconds"])
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

    def _trained_to(self, *, stamped: bool) -> int | None:
        """The last step: of the last line, or behind it by what an end or a checkpoint says.

        The last planned one where the launch completed, if no line more would have stood between.
        Where more would, lines without stamps may be counted wrongly: the Trainer's print no step.
        """
        assert self.frame is not None  # noqa: S101 - the caller asked
        last = int(self.frame["step"][-1])
        said = [(e["kind"], e["step"]) for e in self.events if e["step"] is not None]
        ended = [step for kind, step in said if kind == "end" and step > last]
        near = [step for kind, step in said if kind == "checkpoint"]
        if self.run["outcome"] == "completed" and self.planned:
            near.append(self.planned)
            if not ended and not stamped and self.planned >= last + self.interval:
                return None
        return max((*ended, *(s for s in near if last < s < last + self.interval)), default=last)

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


def end_to_end(frame: pl.DataFrame, evidence: str | None, run: Mapping[str, Any]) -> dict[str, Any]:
    """`tgs_end_to_end` [tokens/s/GPU] and `end_to_end_basis` of one run.

    frame: its windows; evidence: its time evidence, null without a steady rate; run: its row of
    `runs` with the columns of CLOCK. The first basis that the log allows:

        stamp from start   all steps to the last stamped line, from the start of training to it
        runtime            all steps, over the run time that the log prints or stamps
        stamp              the steps behind the first stamped line, from that line to the last
        EVIDENCE           the same by the lines' own time, where they speak of every step

    Stamps do not count where they are of whole seconds and too short for that, nor tokens where the
    logged rate and the stamps show that they are counted wrongly; then the last one does.
    """
    by_lines = None if evidence is None else _by_lines(frame, evidence)
    if by_lines and evidence and counted_wrongly(gap_between(frame, evidence, "stamp"), evidence):
        return _named(by_lines)
    enough = shortest(frame["logged_at"]) if by_lines else 0.0
    for rate in (_from_start, _over_runtime, _behind_first_line):
        found = rate(frame, run)
        if found is not None and (found.seconds >= enough or found.basis == "runtime"):
            return _named(found)
    return _named(by_lines)


def counted_wrongly(gap: float | None, evidence: str | None) -> bool:
    """Whether the stamps contradict a rate that needs no tokens by as much as a wrong degree would.

    gap: metrics.evidence.gap_between.
    """
    return evidence == "rate" and gap is not None and not 1 / UNLIKE < 1 + gap < UNLIKE


def shortest(stamps: pl.Series) -> float:
    """Seconds below which a difference of stamps is too coarse; 0 where they have fractions."""
    stamps = stamps.drop_nulls()
    whole = len(stamps) > 0 and bool((stamps.dt.microsecond() == 0).all())
    return STAMP_ERROR / (2 * DISAGREEMENT) if whole else 0.0


@dataclass(frozen=True, slots=True)
class _Rate:
    tokens: float
    seconds: float
    basis: str


def _named(rate: _Rate | None) -> dict[str, Any]:
    if rate is None:
        return {"tgs_end_to_end": None, "end_to_end_basis": None}
    return {"tgs_end_to_end": rate.tokens / rate.seconds, "end_to_end_basis": rate.basis}


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


def _from_start(frame: pl.DataFrame, run: Mapping[str, Any]) -> _Rate | None:
    seconds = _seconds(run.get("trained_at"), run.get("last_step_at"))
    start = run.get("trained_from")
    if not seconds or start is None or frame.height == 1:
        return None
    stamped = frame.filter(pl.col("logged_at").is_not_null())
    count = trained(frame, start, stamped["step"][-1])
    return None if count is None else _Rate(count, seconds, "stamp from start")


def _over_runtime(frame: pl.DataFrame, run: Mapping[str, Any]) -> _Rate | None:
    start, end, seconds = (run.get(name) for name in ("trained_from", "trained_to", "runtime_s"))
    if not seconds or start is None or end is None:
        return None
    count = trained(frame, start, end)
    return None if count is None else _Rate(count, seconds, "runtime")


def _behind_first_line(frame: pl.DataFrame, _: Mapping[str, Any]) -> _Rate | None:
    later = frame.filter(pl.col("stamp_time").is_not_null(), ~pl.col("first"))
    seconds = total(later["stamp_time"])
    if not seconds or later["tokens_per_gpu"].null_count():
        return None
    return _Rate(total(later["stamp_span"] * later["tokens_per_gpu"]), seconds, "stamp")


def _by_lines(frame: pl.DataFrame, evidence: str) -> _Rate | None:
    rest = frame.filter(~pl.col("first"), pl.col(f"{evidence}_time").is_not_null())
    tokens_per_gpu = rest["tokens_per_gpu"]
    if evidence == "rate":
        tokens_per_gpu = tokens_per_gpu.fill_null(1.0)
    span, seconds = rest[f"{evidence}_span"], total(rest[f"{evidence}_time"])
    if not seconds or tokens_per_gpu.null_count() or (span != rest["new_step"]).any():
        return None
    return _Rate(total(span * tokens_per_gpu), seconds, evidence)
