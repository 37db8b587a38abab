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
from .windows import stamp_error, window_tokens

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
        "step_s": FLOAT,
        "startup_s": FLOAT,
        "after_s": FLOAT,
        "wall_s": FLOAT,
        "runtime_s": FLOAT,
        "engine_s": FLOAT,
    }
)

SourcesByLaunch = Mapping[str, Sequence[Mapping[str, Any]]]


def launch_clocks(
    runs: pl.DataFrame,
    spans: pl.DataFrame,
    facts: pl.DataFrame,
    events: pl.DataFrame,
    members: SourcesByLaunch | None = None,
) -> pl.DataFrame:
    """The wall clock of each run of `runs`, by run_id: columns of CLOCK_SCHEMA.

    runs, events: as in ingest.core.schema; spans: metrics.throughput.windows.build_windows; facts:
    metrics.throughput.resolved_facts.typed_facts; members: the rows of `runs` of all sources of a
    run (metrics.runs.same_run.MergedLaunches), whose events count as its own; their stamps only
    where they are of the clock that the steps are stamped by.

    trained_from, trained_to: training began behind the one step and went on to the other [steps],
        as far as the log tells; the first is null where a log begins in the middle, the second
        where it does not say what its lines count
    step_s: the median time of a step
    startup_s: from the first stamp to the first step line, less the typical time of the steps that
        this line speaks of; null where no line before it is stamped
    after_s: from the last step line to the last stamp
    wall_s: from the first stamp to the last
    runtime_s: of the whole training as the log prints it, but not where that is of a part of the
        steps; or between its stamped start and end where the steps have no stamps
    engine_s: between the first and the last stamp of a companion's step lines

    A time is null where the log has no stamp for it.
    """
    by_run = RunArrays(spans).by_run()
    planned = dict(facts.select("run_id", "total_steps").iter_rows())
    told: dict[str, list[dict[str, Any]]] = {}
    for event in events.sort("run_id", "line").iter_rows(named=True):
        told.setdefault(event["run_id"], []).append(event)
    rows = []
    for run in runs.sort("run_id").iter_rows(named=True):
        own = (members or {}).get(run["run_id"], [run])
        windows = by_run.get(run["run_id"])
        row = dict.fromkeys(CLOCK_SCHEMA) | {"run_id": run["run_id"]}
        if windows is not None:
            row |= _LaunchClock(run, own, told, windows, planned.get(run["run_id"])).clock()
        rows.append(row)
    return pl.DataFrame(rows, schema=CLOCK_SCHEMA)


class _LaunchClock:
    """One launch while its clock is read."""

    def __init__(
        self,
        run: Mapping[str, Any],
        members: Sequence[Mapping[str, Any]],
        told: Mapping[str, Sequence[dict[str, Any]]],
        windows: RunArrays,
        planned: int | None,
    ) -> None:
        self.run, self.windows, self.planned = run, windows, planned
        self.interval = line_interval(windows)
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
                late = "first_step_stamped_at_end" in (member["quirks"] or ())
                begun = start is not None and not late
                self.others += [e["logged_at"] for e in stamped] + ([start] if begun else [])

    def clock(self) -> dict[str, Any]:
        """What there is of the columns of CLOCK_SCHEMA."""
        row: dict[str, Any] = dict.fromkeys(CLOCK_SCHEMA.keys() - {"run_id"})
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
        row["wall_s"] = _seconds(row["launched_at"], row["ended_at"])
        row["after_s"] = _seconds(row["last_step_at"], row["ended_at"])
        row["startup_s"] = self._startup(row)
        return row

    def _around(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The stamped lines of the run's own source before its first step line, and behind all.

        Those between are left out: a source may hold lines of several programs.
        """
        lines = self.windows["line"]
        first, last = np.nanmin(lines), np.nanmax(lines)
        before = [e for e in self.own if e["line"] < first]
        return before, [e for e in self.own if e["line"] > last]

    def _with_stamps(self, stamped: IntArray) -> dict[str, Any]:
        """The moments of a launch whose steps have stamps; none where the clock went back.

        stamped: places of the windows with a stamp
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
        """The moments of a launch whose steps have none: by the stamps of the lines around them."""
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
        """When training began: the last stamp of such a line, else the end's less its run time."""
        starts: list[datetime] = [e["logged_at"] for e in before if e["kind"] == "train_start"]
        if starts:
            return min(max(starts), first)
        timed = (e for e in behind if e["kind"] == "end" and e["seconds"])
        counted: list[datetime] = [e["logged_at"] - timedelta(seconds=e["seconds"]) for e in timed]
        return min((s for s in counted if s <= first), default=None)

    def _trained_from(self) -> int | None:
        """The step that training went on from; None where that is not known.

        What the log says of it: the step that its start names, else that of a checkpoint that was
        loaded within one log interval before the first line (a checkpoint further off was of
        another training, of which the weights alone were loaded). Else 0, where the first line is
        no further than one log interval; else the step before the first line's own steps, where
        the line's clock began with these. Where lines are merely counted, 0 unless a checkpoint was
        loaded. Not 0 where the counter of tokens holds those of an earlier launch.
        """
        first, earlier = int(self.windows.value("step")), _counts_from_earlier(self.windows)
        if self.windows.value("steps_counted"):
            return None if earlier or any(e["kind"] == "load" for e in self.events) else 0
        said = [(e["kind"], e["step"]) for e in self.events if e["step"] is not None]
        began: list[int] = [
            step - 1 for kind, step in said if kind == "train_start" and 0 < step <= first
        ]
        if began:
            return max(began)
        loaded: list[int] = [
            s for kind, s in said if kind == "load" and first - self.interval <= s < first and s
        ]
        if loaded or first > self.interval:
            return max(loaded, default=self._before_the_clock(first))
        return None if earlier else 0

    def _before_the_clock(self, first: int) -> int | None:
        since, own, span = (
            float(self.windows[name][0])
            for name in ("since_start_s", "elapsed_time", "elapsed_span")
        )
        return first - int(span) if 0 < since <= own * (1 + MAX_UNEXPLAINED_GAP) else None

    def _trained_to(self, *, stamped: bool) -> int | None:
        """The last step that was trained; None where that is not known.

        That of the last line, or a later one: as the end says, as a checkpoint says, or the last
        planned one of a launch that completed. Those of a checkpoint and of the plan count only
        where no further line would have been printed before them.

        Where a completed launch should have printed more lines, and none of its lines has a stamp,
        the lines may be counted wrongly, for the Trainer's print no step. Where it is known that
        lines are merely counted (`steps_counted`), no step that the log names is one of theirs.
        """
        if self.windows.value("steps_counted"):
            return None
        last = int(self.windows.value("step", -1))
        said = [(e["kind"], e["step"]) for e in self.events if e["step"] is not None]
        ended = [step for kind, step in said if kind == "end" and step > last]
        near = [step for kind, step in said if kind == "checkpoint"]
        if self.run["outcome"] == "completed" and self.planned:
            near.append(self.planned)
            if not ended and not stamped and self.planned >= last + self.interval:
                return None
        return max((*ended, *(s for s in near if last < s < last + self.interval)), default=last)

    def _startup(self, row: Mapping[str, Any]) -> float | None:
        whole = _seconds(row["launched_at"], row["first_step_at"])
        if not whole or row["trained_from"] is None or row["step_s"] is None:
            return None
        first = np.flatnonzero(~np.isnan(self.windows["logged_at"]))[0]
        steps = int(self.windows.value("step", int(first))) - int(row["trained_from"])
        return max(0.0, whole - steps * float(row["step_s"]))


MICROSECOND: Final = timedelta(microseconds=1)
MAX_STAMP_CROSSING: Final = timedelta(seconds=2)
"""So far stamps of two ranks may cross; a clock that was set back went further."""


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def line_interval(windows: RunArrays) -> int:
    """Steps between two lines: as the log states it, else the median of what they show."""
    if windows.value("steps_counted"):
        return 1
    said, steps = windows.value("log_interval"), windows["new_step"]
    return int(said or median(steps[~np.isnan(steps)]) or 1)


def _step_seconds(windows: RunArrays, evidence: Sequence[str]) -> float | None:
    """The median time of a step behind the first line, by the first evidence that has one.

    A rate is a time where its tokens are known.
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
    """`tgs_end_to_end` [tokens/s/GPU] and `end_to_end_basis` of one run.

    windows: its own; evidence: its time evidence, null without a steady rate; run: its row of
    `runs` with the columns of CLOCK_SCHEMA. The first basis that the log allows:

        stamp from start      all steps to the last stamped line, from the start of training to it
        clock from start      the same by the line's own clock, which training started
        stamp and first line  the same by the first line's own time, and by stamps behind it
        runtime               all steps, over the run time that the log prints or stamps
        stamp, clock          the steps behind the first such line, from that line to the last
        EVIDENCE from start   all steps by the lines' own time, where they speak of every step
        EVIDENCE              the same of the steps behind the first line

    Where no time or no batch is known, `rate_of_last_line` is left.

    Stamps and clocks of whole seconds may be off by 2 % and more over less than 50 s (`_shortest`):
    then they count only where the last two bases tell nothing. Where the logged rate and the stamps
    show that tokens are counted wrongly (`has_wrong_token_count`), only the last two count.
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
    """`tgs_end_to_end` [tokens/s/GPU] of the samples/s of all ranks that a log's last line prints.

    The Trainer divides the samples of the whole training by its time, start-up included.

    run: with the column `end_samples_per_second` of metrics.throughput.closing_figures;
    facts: with `gpus` and metrics.throughput.token_counts.sample_length, both or nothing
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
    """The windows, with tokens of a step by their rate and a time where none are known.

    Without them only the logged rate would be left to go by, and that leaves out time that is lost
    between steps. The time is that which the lines print beside the rate, else that between stamps.
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
    """Tokens of a step by lines that print its time beside its rate; of others the median."""
    for name in ("rate", "samples_rate"):
        counted = windows[f"{name}_count"]
        usual = median(counted[np.isfinite(counted)])
        if usual:
            return StepTokens(np.where(np.isfinite(counted), counted, usual))
    return None


def has_wrong_token_count(windows: RunArrays, evidence: str | None) -> bool:
    """Whether most stamps contradict the logged rate as a wrong degree of parallelism would.

    A wrong degree shows in most windows; time that is lost between steps shows in few, however much
    it is. A logged rate is right as it is, whatever tokens are counted.
    """
    if evidence != "rate":
        return False
    ratios = window_ratios(windows, evidence, "stamp")
    unlike = (ratios <= 1 / MAX_RANK_TOKEN_RATIO) | (ratios >= MAX_RANK_TOKEN_RATIO)
    return bool(2 * unlike.sum() > len(unlike))


def _shortest(windows: RunArrays, kind: str) -> float:
    """Seconds that a difference of these moments has to span to be exact enough.

    As many as keep it within twice DISAGREEMENT; 0 where the moments have fractions of a second.

    kind: one of metrics.throughput.windows.WALL_CLOCK_EVIDENCE
    """
    return stamp_error(windows, kind) / (2 * MAX_UNEXPLAINED_GAP)


def min_stamp_span(start: datetime | None, end: datetime | None) -> float:
    """`_shortest` of two stamps."""
    there = [stamp.microsecond for stamp in (start, end) if stamp is not None]
    return MAX_STAMP_ERROR_S / (2 * MAX_UNEXPLAINED_GAP) if there and not any(there) else 0.0


@dataclass(frozen=True, slots=True)
class _Rate:
    """Tokens on one GPU over seconds; of fewer than `enough` seconds it is not exact."""

    tokens: GpuTokens
    seconds: float
    basis: str
    enough: float = 0.0


def _named(rate: _Rate | None) -> dict[str, Any]:
    if rate is None:
        return {"tgs_end_to_end": None, "end_to_end_basis": None}
    return {"tgs_end_to_end": rate.tokens.per_second(rate.seconds), "end_to_end_basis": rate.basis}


def tokens_trained(windows: RunArrays, start: float, end: float) -> GpuTokens | None:
    """Tokens of the steps behind `start` up to `end`; None where a count is unknown.

    Each step has the tokens that its line says; steps behind the last line have those of that line.
    """
    upto = windows["step"].copy()
    upto[-1] = max(upto[-1], end)
    borders = np.concatenate(([start], upto)).clip(start, max(start, end))
    return _tokens(windows, start).over(np.diff(borders))


def _of_fewer_steps(windows: RunArrays, end: Mapping[str, Any], start: int | None) -> bool:
    """Whether a run time is of fewer steps than the lines, by what is printed beside it.

    trainer_state.json of a run that was resumed has the lines of all its processes, and the time of
    the last one alone. So has the mean loss: the Trainer divides what this process has summed by
    all steps (Trainer._inner_training_loop, _total_loss_scalar / effective_global_step). Its rate
    was of all steps, and since 5.x is of those that were run.
    """
    said, last = json.loads(end["extra"] or "{}"), end["step"]
    steps, losses = windows["step"], windows["loss"]
    if start is None or last is None or not (steps[-1] <= last):
        return False
    rate = figure_of(said, "train_steps_per_second")
    if rate * end["seconds"] * MIN_FOREIGN_RATIO < last - start:
        return True
    summed = figure_of(said, "train_loss") * last
    logged = float(np.sum(losses * np.diff(steps, prepend=start)))
    return bool(logged > MIN_PRECISE_LOSS * steps[-1] and logged > MIN_FOREIGN_RATIO * summed)


MIN_FOREIGN_RATIO: Final = 1.05
"""So many times the steps of a process, or what it has summed over them, is of more than its own:
rates and losses are printed to some digits."""
MIN_PRECISE_LOSS: Final = 0.01
"""A mean loss below this may be rounding: the Trainer's have four decimals."""


def _counts_from_earlier(windows: RunArrays) -> bool:
    """Whether the counter of tokens was far ahead at the first line, by what it grew afterwards.

    The Trainer's goes on where a checkpoint was resumed, while lines that print no step are counted
    from 1 again.
    """
    counter, steps = windows["consumed_tokens"], windows["step"]
    known = np.flatnonzero((counter > 0) & (counter < np.inf))
    if not len(known) or steps[known[-1]] <= steps[known[0]]:
        return False
    first, last = known[[0, -1]]
    each = (counter[last] - counter[first]) / (steps[last] - steps[first])
    return bool(counter[first] > MAX_RANK_TOKEN_RATIO * each * steps[first] > 0)


def _tokens(windows: RunArrays, start: float) -> StepTokens:
    """Tokens of a step by each line.

    Of the first line, where nothing else tells it, by a counter. That of tokens without padding
    begins with the process, and holds an evaluation before the first line too. The other one goes
    on where a run is resumed, so that it tells of a launch from step 0 on alone.
    """
    each, gpus = windows["tokens_per_gpu"], windows.value("gpus")
    if windows.has_any("non_padding_count"):
        spoiled = windows.has_events(("evaluation",))[0]
        counted, steps = windows.value("consumed_non_padding"), windows.value("step") - start
        counted = None if spoiled else counted
    else:
        counted, steps = windows.value("consumed_tokens"), windows.value("step")
        counted = None if start else counted
    if not np.isnan(each[0]) or not counted or not gpus or steps <= 0:
        return StepTokens(each)
    each = each.copy()
    each[0] = counted / int(steps) / gpus
    return StepTokens(each)


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
    """To the last line that prints the clock, if not more than a few steps lie behind it."""
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
"""The share of the steps of a launch that its clock may leave out at the end."""


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
    own = (first_line_seconds(windows, kind, run) for kind in ("elapsed", "rate"))
    seconds = next((time for time in own if time is not None), None)
    count = tokens_trained(windows, start, windows["step"][0])
    if seconds is None or count is None:
        return None
    whole = behind.seconds + seconds
    return _Rate(behind.tokens + count, whole, "stamp and first line", behind.enough)


def first_line_seconds(windows: RunArrays, evidence: str, run: Mapping[str, Any]) -> float | None:
    """Seconds from the start of training to the first line, by that line's own time or rate.

    None where the line does not time them, or speaks of fewer steps. What is a mean since the last
    line is one since the start where there is no line before.

    evidence: `elapsed` or `rate`; run: with `trained_from` of CLOCK_SCHEMA
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
    """The steps from the first line with such a moment to the last one."""
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
"""Columns of the steps since the window before, of kinds that not every line has a window of."""


def _by_lines(windows: RunArrays, evidence: str, run: Mapping[str, Any]) -> _Rate | None:
    rest = ~np.isnan(windows[f"{evidence}_time"]) & ~windows.flags("first")
    tokens = window_tokens(windows, evidence)[rest]
    span, seconds = windows[f"{evidence}_span"][rest], total(windows[f"{evidence}_time"][rest])
    each = windows[STEP_GAP_COLUMNS.get(evidence, "new_step")][rest]
    if not seconds or np.isnan(tokens).any() or (span != each).any():
        return None
    count, behind = (
        GpuTokens(total(tokens)),
        windows["step"][rest][0] - span[0] == windows["step"][0],
    )
    if (
        evidence in {"elapsed", "rate"}
        and behind
        and (own := first_line_seconds(windows, evidence, run))
    ):
        first = tokens_trained(windows, run["trained_from"], windows["step"][0])
        if first is not None:
            return _Rate(count + first, seconds + own, f"{evidence} from start")
    return _Rate(count, seconds, evidence)
