"""The clock of a launch, and its end-to-end rate over all of its time.

    launched_at    the first stamp of the launch
    trained_at     training began: stamped, or the end's stamp minus its printed run time
    first_step_at  the first step line
    last_step_at   the last step line
    ended_at       the last stamp, after the final checkpoint, evaluation and shutdown

The end-to-end rate stops at the last step line: later work, such as the final checkpoint, is time
of the launch but not of steps. Only a printed run time (basis `runtime`) includes later work, as
the frameworks count (the Trainer's train_runtime: with checkpoints).

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import FLOAT, INT, TEXT, TIMESTAMP

from ..core.arrays import IntArray
from ..core.extra_figures import figure_of
from ..core.print_precision import MAX_STAMP_ERROR_S, MAX_UNEXPLAINED_GAP
from ..core.quantities import GpuTokens, StepSamples, StepTokens
from ..core.run_arrays import RunArrays, median, total
from .time_evidence import fit_step_batch, window_ratios
from .token_counts import MAX_RANK_TOKEN_RATIO
from .windows import MAX_UNEVEN_INTERVAL, stamp_error, window_tokens

CLOCK_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "launched_at": TIMESTAMP,
        "trained_at": TIMESTAMP,
        "first_step_at": TIMESTAMP,
        "last_step_at": TIMESTAMP,
        "ended_at": TIMESTAMP,
        "trained_from": INT,
        "trained_to": INT,
        "loaded": pl.Boolean(),
        "step_s": FLOAT,
        "startup_s": FLOAT,
        "after_s": FLOAT,
        "wall_s": FLOAT,
        "evaluated_after_s": FLOAT,
        "runtime_s": FLOAT,
        "engine_s": FLOAT,
    }
)


def shows_start(clock: Mapping[str, Any]) -> bool:
    """Return whether the log of a launch has its start.

    clock: with `trained_from` and `loaded` of CLOCK_SCHEMA
    """
    return clock.get("trained_from") is not None or bool(clock.get("loaded"))


SourcesByLaunch = Mapping[str, Sequence[Mapping[str, Any]]]


def launch_clocks(
    runs: pl.DataFrame,
    spans: pl.DataFrame,
    facts: pl.DataFrame,
    events: pl.DataFrame,
    members: SourcesByLaunch | None = None,
) -> pl.DataFrame:
    """Return the wall clock of each run of `runs`, by run_id: columns of CLOCK_SCHEMA.

    runs, events: as in ingest.core.schema
    spans: metrics.throughput.windows.build_windows
    facts: metrics.throughput.resolved_facts.typed_facts
    members: rows of `runs` of all sources of a run (metrics.runs.same_run.MergedLaunches). The
        events of all sources count for the run; their stamps count only on the clock of the step
        stamps.

    Columns:

    trained_from, trained_to: training began after the first of these steps and reached the second
        [steps], as far as the log shows. trained_from is null if the log begins in the middle,
        trained_to if the log does not say what its lines count
    loaded: the log says that a checkpoint was loaded
    step_s: median time of a step
    startup_s: from the first stamp to the first step line, minus the typical time of this line's
        steps; null if no earlier line is stamped
    after_s: from the last step line to the last stamp, without the time in which a log that ends
        without a reason may have trained on, towards its next line
    wall_s: from the first stamp of the launch to the end of after_s
    evaluated_after_s: printed time of the evaluations after the last step line
    runtime_s: printed time of the whole training, unless the time is of only some of the steps; or
        the time between stamped start and end if the steps have no stamps
    engine_s: between the first and the last stamp of a companion's step lines

    A time without a stamp in the log is null.
    """
    by_run = RunArrays(spans).by_run()
    planned = dict(facts.select("run_id", "total_steps").iter_rows())
    logged: dict[str, list[dict[str, Any]]] = {}
    for event in events.drop("text", strict=False).sort("run_id", "line").iter_rows(named=True):
        logged.setdefault(event["run_id"], []).append(event)
    rows = []
    for run in runs.sort("run_id").iter_rows(named=True):
        sources = (members or {}).get(run["run_id"], [run])
        windows = by_run.get(run["run_id"])
        row = dict.fromkeys(CLOCK_SCHEMA) | {"run_id": run["run_id"]}
        if windows is not None:
            row |= _LaunchClock(run, sources, logged, windows, planned.get(run["run_id"])).clock()
        rows.append(row)
    return pl.DataFrame(rows, schema=CLOCK_SCHEMA)


class _LaunchClock:
    """State while the clock of one launch is computed."""

    def __init__(
        self,
        run: Mapping[str, Any],
        members: Sequence[Mapping[str, Any]],
        logged: Mapping[str, Sequence[dict[str, Any]]],
        windows: RunArrays,
        planned: int | None,
    ) -> None:
        self.run, self.windows, self.planned = run, windows, planned
        self.interval = line_interval(windows)
        self.events = [e for m in members for e in logged.get(m["run_id"], ())]
        self.own_lines: list[dict[str, Any]] = []
        self.others: list[datetime] = []
        for member in (m for m in members if m["utc"] == run["utc"]):
            start = member["started_at"]
            stamped = [e for e in logged.get(member["run_id"], ()) if e["logged_at"] is not None]
            if member["run_id"] == run["run_id"]:
                opening = {"kind": None, "line": member["first_line"] or 0, "logged_at": start}
                self.own_lines = [opening, *stamped] if start is not None else stamped
            else:
                late = "first_step_stamped_at_end" in (member["quirks"] or ())
                begun = start is not None and not late
                self.others += [e["logged_at"] for e in stamped] + ([start] if begun else [])

    def clock(self) -> dict[str, Any]:
        """Return the columns of CLOCK_SCHEMA, except run_id."""
        row: dict[str, Any] = dict.fromkeys(CLOCK_SCHEMA.keys() - {"run_id"})
        row["loaded"] = any(event["kind"] == "load" for event in self.events)
        row["trained_from"] = self._trained_from()
        row["step_s"] = _step_seconds(self.windows, self.run["evidence"])
        stamped = np.flatnonzero(~np.isnan(self.windows["logged_at"]))
        row["trained_to"] = self._trained_to(stamped=len(stamped) > 0)
        if len(stamped):
            row |= self._with_stamps(stamped)
        else:
            row |= self._without_stamps()
        end = next((e for e in self.events if e["kind"] == "end" and e["seconds"]), None)
        if end is not None and not _of_fewer_steps(self.windows, end, row["trained_from"]):
            row["runtime_s"] = end["seconds"]
        engine = [e["logged_at"] for e in self.events if e["kind"] == "engine_step"]
        stamps = sorted(at for at in engine if at is not None)
        row["engine_s"] = _seconds(stamps[0], stamps[-1]) if stamps else None
        wall_s = _seconds(row["launched_at"], row["ended_at"])
        after_s = _seconds(row["last_step_at"], row["ended_at"])
        going_s = 0.0 if after_s is None else self._trained_on(after_s, row)
        row["wall_s"] = None if wall_s is None else wall_s - going_s
        row["after_s"] = None if after_s is None else after_s - going_s
        row["evaluated_after_s"] = self._evaluated_after()
        row["startup_s"] = self._startup(row)
        return row

    def _around(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the stamped lines before the first step line and after the last.

        Only lines of the run's own source. Lines in between are left out: a source may contain
        lines of several programs.
        """
        lines = self.windows["line"]
        first, last = np.nanmin(lines), np.nanmax(lines)
        before = [e for e in self.own_lines if e["line"] < first]
        return before, [e for e in self.own_lines if e["line"] > last]

    def _with_stamps(self, stamped: IntArray) -> dict[str, Any]:
        """Return the moments of a launch with stamped steps; none if the clock went back.

        stamped: indices of the windows with a stamp
        """
        first: datetime = self.windows.value("logged_at", int(stamped[0]))
        last: datetime = self.windows.value("logged_at", int(stamped[-1]))
        before, behind = self._around()
        back = (
            np.diff(self.windows["logged_at"][stamped]) < -MAX_STAMP_CROSSING / MICROSECOND
        ).any()
        if back or any(e["logged_at"] > first + MAX_STAMP_CROSSING for e in before):
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
        """Return the moments of a launch without stamped steps.

        Read from the stamps of the lines around the steps.
        """
        before, behind = self._around()
        early, late = ([e["logged_at"] for e in side] for side in (before, behind))
        if not early or not late or min(late) < max(early):
            return {"launched_at": min(early, default=None)}
        trained_at = self._trained_at(before, [], max(early))
        ended = [e["logged_at"] for e in behind if e["kind"] == "end"]
        ended_at = ended[0] if ended else None
        seconds = _seconds(trained_at, ended_at)
        return {
            "launched_at": min(early),
            "trained_at": trained_at,
            "ended_at": max(late),
            "runtime_s": None
            if (seconds or 0.0) < min_stamp_span(trained_at, ended_at)
            else seconds,
        }

    @staticmethod
    def _trained_at(
        before: Sequence[Mapping[str, Any]], behind: Sequence[Mapping[str, Any]], first: datetime
    ) -> datetime | None:
        """Return the start of training.

        The last stamp of a line that says so, else the end's stamp minus its run time.
        """
        starts: list[datetime] = [e["logged_at"] for e in before if e["kind"] == "train_start"]
        if starts:
            return min(max(starts), first)
        timed = (e for e in behind if e["kind"] == "end" and e["seconds"])
        counted: list[datetime] = [e["logged_at"] - timedelta(seconds=e["seconds"]) for e in timed]
        return min((s for s in counted if s <= first), default=None)

    def _trained_from(self) -> int | None:
        """Return the step after which training began; None if not known.

        Sources, in this order:

        - the step named by a start line;
        - the step of a loaded checkpoint, up to one log interval before the first line. An earlier
          checkpoint belongs to another training, and only its weights were loaded;
        - 0, if the first line is at most one log interval in;
        - the step before the first line's own steps, if the line's clock began with these steps.

        Where lines are merely counted: 0, or None if a checkpoint was loaded, or if the log may
        begin in the middle. Never 0 if the counter of tokens includes an earlier launch.
        """
        first, earlier = int(self.windows.value("step")), _counts_from_earlier(self.windows)
        if self.windows.value("start_missing") and not self._clock_begins():
            return None
        if self.windows.value("steps_counted"):
            return None if earlier or any(e["kind"] == "load" for e in self.events) else 0
        steps = [(e["kind"], e["step"]) for e in self.events if e["step"] is not None]
        began: list[int] = [
            step - 1 for kind, step in steps if kind == "train_start" and 0 < step <= first
        ]
        if began:
            return max(began)
        loaded: list[int] = [
            s for kind, s in steps if kind == "load" and first - self.interval <= s < first and s
        ]
        if loaded or first > self.interval:
            return max(loaded, default=self._before_the_clock(first))
        return None if earlier else 0

    def _clock_begins(self) -> bool:
        """Return whether no line fits between the start of the clock and the first line."""
        since = self.windows["since_start_s"][:2]
        return len(since) > 1 and bool(0 < since[0] < MAX_FIRST_LINE * (since[1] - since[0]))

    def _before_the_clock(self, first: int) -> int | None:
        since, step_s, span = (
            float(self.windows[name][0])
            for name in ("since_start_s", "elapsed_time", "elapsed_span")
        )
        return first - int(span) if 0 < since <= step_s * (1 + MAX_UNEXPLAINED_GAP) else None

    def _trained_to(self, *, stamped: bool) -> int | None:
        """Return the last trained step; None if not known.

        The step of the last line, or a later step: of the end, of a checkpoint, or the last planned
        step of a completed launch. Checkpoint and plan count only if no further line was due before
        their step.

        If a completed launch should have printed more lines, and no line has a stamp, the lines may
        be miscounted: the Trainer's lines print no step. If lines are known to be merely counted,
        or the log may begin in the middle, steps named by the log do not match the lines.
        """
        if self.windows.value("steps_counted") or self.windows.value("start_missing"):
            return None
        last = int(self.windows.value("step", -1))
        steps = [(e["kind"], e["step"]) for e in self.events if e["step"] is not None]
        ended = [step for kind, step in steps if kind == "end" and step > last]
        near = [step for kind, step in steps if kind == "checkpoint"]
        if self.run["outcome"] == "completed" and self.planned:
            near.append(self.planned)
            if not ended and not stamped and self.planned >= last + self.interval:
                return None
        return max((*ended, *(s for s in near if last < s < last + self.interval)), default=last)

    def _trained_on(self, after_s: float, row: Mapping[str, Any]) -> float:
        """Return the time after the last known step that training may have used [s].

        None of the time if the log shows an end; all of it without a step's time. Else at most
        the time to the next line, once this line is overdue by more than uneven steps explain.

        after_s: from the last step line to the last stamp; row: with `trained_to` and `step_s`
        """
        shows_end = any(event["kind"] == "end" for event in self.events)
        if self.run["outcome"] not in UNENDED_OUTCOMES or shows_end:
            return 0.0
        if row["step_s"] is None:
            return after_s
        last = int(self.windows.value("step", -1))
        known = (row["trained_to"] or last) - last
        rest_s = max(0.0, after_s - known * float(row["step_s"]))
        due_s = (self.interval - known) * float(row["step_s"])
        return rest_s if rest_s <= MAX_UNEVEN_INTERVAL * due_s else due_s

    def _evaluated_after(self) -> float:
        """Return the printed time of the evaluations after the last step line [s].

        Ranks that print the same evaluation count once.
        """
        last = np.nanmax(self.windows["line"])
        evaluations: dict[tuple[int | None, float], float] = {
            (event["step"], event["seconds"]): event["seconds"]
            for event in self.events
            if event["kind"] == "evaluation"
            and event["seconds"]
            and event["run_id"] == self.run["run_id"]
            and event["line"] > last
        }
        return sum(evaluations.values())

    def _startup(self, row: Mapping[str, Any]) -> float | None:
        whole = _seconds(row["launched_at"], row["first_step_at"])
        if not whole or row["trained_from"] is None or row["step_s"] is None:
            return None
        first = np.flatnonzero(~np.isnan(self.windows["logged_at"]))[0]
        steps = int(self.windows.value("step", int(first))) - int(row["trained_from"])
        return max(0.0, whole - steps * float(row["step_s"]))


MAX_FIRST_LINE: Final = 1.5
"""Longest time to the first line, in times between two lines, without another line before it."""
UNENDED_OUTCOMES: Final = ("incomplete", "nan_loss")
"""Outcomes without a line that ends training (ingest.core.schema.OUTCOMES)."""
MICROSECOND: Final = timedelta(microseconds=1)
MAX_STAMP_CROSSING: Final = timedelta(seconds=2)
"""Largest step back between stamps of two ranks; a clock that was set back moves further."""


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def line_interval(windows: RunArrays) -> int:
    """Return the steps between two lines: as logged, else the median of the lines.

    1 where lines are merely counted.
    """
    if windows.value("steps_counted"):
        return 1
    logged, steps = windows.value("log_interval"), windows["new_step"]
    return int(logged or median(steps[~np.isnan(steps)]) or 1)


def _step_seconds(windows: RunArrays, evidence: Sequence[str]) -> float | None:
    """Return the median time of a step after the first line.

    From the first evidence with such a time. A rate gives a time only where its tokens are known.
    """
    later = ~windows.flags("first")
    for kind in evidence:
        seconds, spans = windows[f"{kind}_time"], windows[f"{kind}_span"]
        timed = later & (seconds > 0) & (spans > 0)
        if kind == "rate":
            timed &= ~np.isnan(windows["tokens_per_gpu"])
        if timed.any():
            return median(seconds[timed] / spans[timed])
    return None


def end_to_end(windows: RunArrays, evidence: str | None, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return `tgs_end_to_end` [tokens/s/GPU] and `end_to_end_basis` of one run.

    windows: of the run; evidence: time evidence of the run, None without a steady rate; run: the
    run's row of `runs` with the columns of CLOCK_SCHEMA

    The first basis that the log allows:

        stamp from start      all steps to the last stamped line, from the start of training
        clock from start      the same, with the line's own clock, started by training
        stamp and first line  the same, with the first line's own time, then stamps
        runtime               all steps, over the run time that the log prints or stamps
        stamp, clock          the steps after the first such line, from there to the last
        EVIDENCE from start   all steps, with the lines' own times if these cover every step
        EVIDENCE              the same for the steps after the first line

    Without any known time or batch, `rate_of_last_line` remains.

    Stamps and clocks of whole seconds may be off by 2 % and more over less than 50 s (`_shortest`).
    Then they count only if the last two bases give nothing. If the logged rate and the stamps show
    miscounted tokens (`has_wrong_token_count`), only the last two bases count.
    """
    by_lines = None if evidence is None else _by_lines(windows, evidence, run)
    if by_lines and has_wrong_token_count(windows, evidence):
        return _named(by_lines)
    windows = with_fitted_tokens(windows, evidence, run)
    for rate in _BASES:
        found = rate(windows, run)
        if found is not None and (by_lines is None or found.seconds >= found.enough):
            return _named(found)
    return _named(by_lines)


def rate_of_last_line(run: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return `tgs_end_to_end` [tokens/s/GPU] from the samples/s in the last line.

    The rate is over all ranks. The Trainer divides the samples of the whole training by its time,
    start-up included.

    run: with the column `end_samples_per_second` of metrics.throughput.closing_figures
    facts: with `gpus` and metrics.throughput.token_counts.sample_length; without either, no result
    """
    rate, gpus, length = (
        run.get("end_samples_per_second"),
        facts.get("gpus"),
        facts.get("sample_length"),
    )
    if not rate or not gpus or not length:
        return {}
    return {"tgs_end_to_end": rate * length / gpus, "end_to_end_basis": "printed samples/s"}


def with_fitted_tokens(
    windows: RunArrays, evidence: str | None, run: Mapping[str, Any]
) -> RunArrays:
    """Return the windows, with a step's unknown tokens fitted to their rate and time.

    Without tokens, only the logged rate would remain, and the rate leaves out time lost between
    steps. The fit uses the time printed beside the rate, else the time between stamps.
    """
    if evidence != "rate" or windows.has_any("tokens_per_gpu"):
        return windows
    batch = _rate_times_own_time(windows) or fit_step_batch(windows, run)
    if isinstance(batch, StepSamples):
        batch = batch.to_tokens(windows["sample_length"], windows.value("gpus"))
    if batch is None:
        return windows
    tokens = batch.per_gpu
    return windows.with_values(tokens_per_gpu=tokens, rate_time=windows["rate_time"] * tokens)


def _rate_times_own_time(windows: RunArrays) -> StepTokens | None:
    """Return the tokens of a step from lines with both rate and time.

    All other lines get the median.
    """
    for name in ("rate", "samples_rate"):
        counted = windows[f"{name}_count"]
        usual = median(counted[np.isfinite(counted)])
        if usual:
            return StepTokens(np.where(np.isfinite(counted), counted, usual))
    return None


def has_wrong_token_count(windows: RunArrays, evidence: str | None) -> bool:
    """Return whether most stamps contradict the logged rate, as with a wrong degree.

    A wrong degree of parallelism shows in most windows. Time lost between steps shows in few
    windows, however long. The logged rate stays right, whatever tokens are counted.
    """
    if evidence != "rate":
        return False
    ratios = window_ratios(windows, evidence, "stamp")
    unlike = (ratios <= 1 / MAX_RANK_TOKEN_RATIO) | (ratios >= MAX_RANK_TOKEN_RATIO)
    return bool(2 * unlike.sum() > len(unlike))


def _shortest(windows: RunArrays, kind: str) -> float:
    """Return the least seconds between two moments for a sufficiently exact time.

    Long enough to keep the relative error within twice MAX_UNEXPLAINED_GAP; 0 for moments with
    fractions of a second.

    kind: one of metrics.throughput.windows.WALL_CLOCK_EVIDENCE
    """
    return stamp_error(windows, kind) / (2 * MAX_UNEXPLAINED_GAP)


def min_stamp_span(start: datetime | None, end: datetime | None) -> float:
    """Return `_shortest` for two stamps."""
    there = [stamp.microsecond for stamp in (start, end) if stamp is not None]
    return MAX_STAMP_ERROR_S / (2 * MAX_UNEXPLAINED_GAP) if there and not any(there) else 0.0


@dataclass(frozen=True, slots=True)
class _Rate:
    """Tokens on one GPU over seconds; not exact below `enough` seconds."""

    tokens: GpuTokens
    seconds: float
    basis: str
    enough: float = 0.0


def _named(rate: _Rate | None) -> dict[str, Any]:
    if rate is None:
        return {"tgs_end_to_end": None, "end_to_end_basis": None}
    return {"tgs_end_to_end": rate.tokens.per_second(rate.seconds), "end_to_end_basis": rate.basis}


def tokens_trained(windows: RunArrays, start: float, end: float) -> GpuTokens | None:
    """Return the tokens of the steps after `start` up to `end`; None if not all known.

    Every step has its line's tokens. Steps after the last line have the last line's tokens.
    """
    upto = windows["step"].copy()
    upto[-1] = max(upto[-1], end)
    borders = np.concatenate(([start], upto)).clip(start, max(start, end))
    return _tokens(windows, start).over(np.diff(borders))


def _of_fewer_steps(windows: RunArrays, end: Mapping[str, Any], start: int | None) -> bool:
    """Return whether a run time covers fewer steps than the lines.

    Judged by the figures printed beside the run time. trainer_state.json of a resumed run has the
    lines of all its processes, but only the time of the last process. The mean loss likewise: the
    Trainer divides the losses summed by this process by all steps (Trainer._inner_training_loop,
    _total_loss_scalar / effective_global_step). The rate covered all steps, and since 5.x covers
    the steps of this process.
    """
    figures, last = json.loads(end["extra"] or "{}"), end["step"]
    steps, losses = windows["step"], windows["loss"]
    if start is None or last is None or not (steps[-1] <= last):
        return False
    rate = figure_of(figures, "train_steps_per_second")
    if rate * end["seconds"] * MIN_FOREIGN_RATIO < last - start:
        return True
    summed = figure_of(figures, "train_loss") * last
    logged = float(np.sum(losses * np.diff(steps, prepend=start)))
    return bool(logged > MIN_PRECISE_LOSS * steps[-1] and logged > MIN_FOREIGN_RATIO * summed)


MIN_FOREIGN_RATIO: Final = 1.05
"""Ratio from which lines cover more than a process's own steps, by its rate or its summed loss:
rates and losses are printed with few digits."""
MIN_PRECISE_LOSS: Final = 0.01
"""Least usable mean loss: the Trainer prints four decimals, so a smaller loss may be rounding."""


def _counts_from_earlier(windows: RunArrays) -> bool:
    """Return whether the token counter was already far ahead at the first line.

    Judged by the later growth of the counter. The Trainer's counter continues when a checkpoint is
    resumed, while lines without a step are counted from 1 again.
    """
    counter, steps = windows["consumed_tokens"], windows["step"]
    known = np.flatnonzero((counter > 0) & (counter < np.inf))
    if not len(known) or steps[known[-1]] <= steps[known[0]]:
        return False
    first, last = known[[0, -1]]
    per_step = (counter[last] - counter[first]) / (steps[last] - steps[first])
    return bool(counter[first] > MAX_RANK_TOKEN_RATIO * per_step * steps[first] > 0)


def _tokens(windows: RunArrays, start: float) -> StepTokens:
    """Return the tokens of a step by each line.

    The first line may need a counter, if nothing else gives its tokens. The counter without padding
    starts with the process, and includes an evaluation before the first line. The other counter
    continues in a resumed run, so only a launch from step 0 on can use its value.
    """
    per_gpu, gpus = windows["tokens_per_gpu"], windows.value("gpus")
    if windows.has_any("non_padding_count"):
        spoiled = windows.has_events(("evaluation",))[0]
        counted, steps = windows.value("consumed_non_padding"), windows.value("step") - start
        counted = None if spoiled else counted
    else:
        counted, steps = windows.value("consumed_tokens"), windows.value("step")
        counted = None if start else counted
    if not np.isnan(per_gpu[0]) or not counted or not gpus or steps <= 0:
        return StepTokens(per_gpu)
    per_gpu = per_gpu.copy()
    per_gpu[0] = counted / int(steps) / gpus
    return StepTokens(per_gpu)


def _from_start(windows: RunArrays, run: Mapping[str, Any]) -> _Rate | None:
    seconds = _seconds(run.get("trained_at"), run.get("last_step_at"))
    start = run.get("trained_from")
    if not seconds or start is None or windows.height == 1:
        return None
    stamped = ~np.isnan(windows["logged_at"])
    count = tokens_trained(windows, start, windows["step"][stamped][-1])
    if count is None:
        return None
    return _Rate(count, seconds, "stamp from start", _shortest(windows, "stamp"))


def _by_clock_from_start(windows: RunArrays, run: Mapping[str, Any]) -> _Rate | None:
    """Rate up to the last line with the clock, if only few steps follow this line."""
    timed = np.flatnonzero(~np.isnan(windows["since_start_s"]))
    start = run.get("trained_from")
    if not len(timed) or start is None or windows.height == 1:
        return None
    last, step = timed[-1], windows["step"]
    lacking = step[-1] - step[last]
    seconds, count = (
        float(windows["since_start_s"][last]),
        tokens_trained(windows, start, step[last]),
    )
    if count is None or not seconds or lacking > MAX_UNTIMED_SHARE * (step[-1] - start):
        return None
    return _Rate(count, seconds, "clock from start", _shortest(windows, "clock"))


MAX_UNTIMED_SHARE: Final = 0.05
"""Largest share of a launch's steps that its clock may miss at the end."""


def _over_runtime(windows: RunArrays, run: Mapping[str, Any]) -> _Rate | None:
    start, end, seconds = (run.get(name) for name in ("trained_from", "trained_to", "runtime_s"))
    if not seconds or start is None or end is None:
        return None
    count = tokens_trained(windows, start, end)
    return None if count is None else _Rate(count, seconds, "runtime")


def _from_first_line(windows: RunArrays, run: Mapping[str, Any]) -> _Rate | None:
    behind, start = _behind(windows, "stamp"), run.get("trained_from")
    if behind is None or start is None or np.isnan(windows["logged_at"][0]):
        return None
    times = (first_line_seconds(windows, kind, run) for kind in ("elapsed", "rate"))
    seconds = next((time for time in times if time is not None), None)
    count = tokens_trained(windows, start, windows["step"][0])
    if seconds is None or count is None:
        return None
    whole = behind.seconds + seconds
    return _Rate(behind.tokens + count, whole, "stamp and first line", behind.enough)


def first_line_seconds(windows: RunArrays, evidence: str, run: Mapping[str, Any]) -> float | None:
    """Return the seconds from the start of training to the first line, from this line.

    None if the line does not time these steps, or covers fewer steps. A mean since the last line is
    a mean since the start where no earlier line exists.

    evidence: `elapsed` or `rate`, read from the line's own time or rate
    run: with `trained_from` of CLOCK_SCHEMA
    """
    start = run.get("trained_from")
    if start is None or (evidence == "rate" and run.get("rate_excludes_data")):
        return None
    steps, span = windows["step"][0] - start, windows[f"{evidence}_span"][0]
    seconds = windows[f"{evidence}_time"][0]
    if np.isnan(span) and windows.value(f"{evidence}_covers") == "interval":
        whole = windows["wall_s" if windows.value("elapsed_excludes_data") else "elapsed_s"][0]
        tokens, rate = windows["tokens_per_gpu"][0], windows["logged_tgs"][0]
        each = whole if evidence == "elapsed" else tokens / rate if rate > 0 else float("nan")
        seconds, span = steps * each, steps
    return float(seconds) if span == steps and seconds > 0 else None


def _behind(windows: RunArrays, kind: str) -> _Rate | None:
    """Rate over the steps from the first line with such a moment to the last."""
    later = ~np.isnan(windows[f"{kind}_time"]) & ~windows.flags("first")
    seconds, tokens = total(windows[f"{kind}_time"][later]), windows["tokens_per_gpu"][later]
    count = StepTokens(tokens).over(windows[f"{kind}_span"][later])
    if not seconds or count is None:
        return None
    return _Rate(count, seconds, kind, _shortest(windows, kind))


_BASES: Final[tuple[Callable[[RunArrays, Mapping[str, Any]], _Rate | None], ...]] = (
    _from_start,
    _by_clock_from_start,
    _from_first_line,
    _over_runtime,
    lambda windows, _: _behind(windows, "stamp"),
    lambda windows, _: _behind(windows, "clock"),
)


STEP_GAP_COLUMNS: Final = {"clock": "apart", "engine": "apart", "elapsed": "elapsed_apart"}
"""Columns with the steps since the window before, for kinds without a window on every line."""


def _by_lines(windows: RunArrays, evidence: str, run: Mapping[str, Any]) -> _Rate | None:
    rest = ~np.isnan(windows[f"{evidence}_time"]) & ~windows.flags("first")
    tokens = window_tokens(windows, evidence)[rest]
    span, seconds = windows[f"{evidence}_span"][rest], total(windows[f"{evidence}_time"][rest])
    gaps = windows[STEP_GAP_COLUMNS.get(evidence, "new_step")][rest]
    if not seconds or np.isnan(tokens).any() or (span != gaps).any():
        return None
    count, behind = (
        GpuTokens(total(tokens)),
        windows["step"][rest][0] - span[0] == windows["step"][0],
    )
    if (
        evidence in {"elapsed", "rate"}
        and behind
        and (first_s := first_line_seconds(windows, evidence, run))
    ):
        first = tokens_trained(windows, run["trained_from"], windows["step"][0])
        if first is not None:
            return _Rate(count + first, seconds + first_s, f"{evidence} from start")
    return _Rate(count, seconds, evidence)
