"""Warn of values that no run can have, with their number and effect on the rate.

Impossible values enter no average: a line without a time above zero is no window
(metrics.throughput.windows), and a rate or time of a line counts for that line alone. But a log
with such values may be wrong in more than these lines, so the reader is warned.

Steps that go back begin another launch when the log is read, and no window spans two launches; if
the log prints no start there, a warning says so. A line is no copy of another rank's if its step is
before an earlier line's step and was on no line yet: lines of several runs are mixed, and the run
is not ranked. Further reasons not to rank a run:

- memory and speed change their level together: most likely lines of two consecutive runs
- a line whose figures give a token other FLOPs than the other lines
- launches of a log that goes back whenever two writers take turns
- a step printed again with another loss, or by several engines of DeepSpeed

Warnings elsewhere: our MFU above 100 % (metrics.utilization.utilization), a clock that jumped
forward (metrics.throughput.time_evidence).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from ..core.messages import Message, MessageKind
from ..core.print_precision import MAX_UNEXPLAINED_GAP, digits_by
from ..core.quirks import has_quirk
from . import messages

MIN_CLOCK_SETBACK: Final = timedelta(minutes=1)
"""A stamp this far before an earlier one of its rank comes from a clock that was set, or another
clock.
"""

_RATE: Final = "logged_tgs", "logged_samples_per_second"
_KINDS: Final[tuple[tuple[pl.Expr, MessageKind], ...]] = (
    (
        pl.any_horizontal(pl.col(name) <= 0 for name in _RATE),
        messages.RATE_NOT_POSITIVE,
    ),
    (
        (pl.col("elapsed_s") <= 0) | (pl.col("data_s") < 0),
        messages.TIME_NOT_POSITIVE,
    ),
    (
        ~pl.all_horizontal(pl.col(*_RATE, "elapsed_s").is_finite().fill_null(value=True)),
        messages.FIGURE_NOT_FINITE,
    ),
    (
        pl.col("logged_mfu") > 1,
        messages.MFU_ABOVE_ONE,
    ),
    (
        pl.col("logged_at")
        < pl.col("logged_at").cum_max().over("run_id", "rank") - MIN_CLOCK_SETBACK,
        messages.CLOCK_SET_BACK,
    ),
)


_CLAIMS: Final = "logged_tflops", "logged_mfu"
_TOKENS: Final = "consumed_tokens", "consumed_non_padding"
_COUNTED: Final = ("consumed_samples", *_TOKENS)

EPOCH_PATTERN: Final = r'"epoch": "([^"]{1,40})"'
MIN_COPY_SHARE: Final = 0.1
"""Smallest share of lines to report: fewer agree by chance. Of two nodes' lines half are copies,
less those that a progress bar gives the same step.
"""
MAX_LOSS_DIFFERENCE: Final = 1e-3
"""Largest difference of two prints of one loss, absolute or relative; launch count uses the same
limit.
"""
MAX_HANDLER_DELAY: Final = timedelta(seconds=0.1)
"""Largest delay between stamps of one line printed by several handlers of a logger, if stamped."""
MAX_TURN_LINES: Final = 4
MIN_TURNS: Final = 3
"""So many launches of at most MAX_TURN_LINES steps are lines of runs that take turns."""
MIN_EVEN_STEP_SHARE: Final = 0.5
"""Smallest share of a run's lines at the usual step distance; excerpts leave some lines out."""
MAX_TURN_GAP_RATIO: Final = 0.5
"""Share of the time between two lines: a process that restarts needs more until its first line."""
MAX_MEETING_GAP_RATIO: Final = 2
"""Multiple of the longest time between two lines: a restart needs more."""
MIN_LEVEL_LINES: Final = 8
"""Fewest lines on either side of a change."""
MIN_MEMORY_CHANGE: Final = 0.02
MIN_PACE_CHANGE: Final = 0.05
"""Smallest change of level, relative to the smaller one. Allocators and data change the figures of
one run by less, or for some lines alone.
"""


def sanity_warnings(steps: pl.DataFrame, runs: pl.DataFrame) -> dict[str, list[Message]]:
    """Return warnings by run_id.

    steps, runs: as in ingest.core.schema, every run from one source
    """
    asked = steps.select(
        *("run_id", "line", "rank", "step", "epoch", "logged_at", "elapsed_s", "data_s", "loss"),
        *("since_start_s", *_CLAIMS, *_RATE, *_COUNTED, "samples", "peak_memory_bytes"),
        *("learning_rate", "skipped_steps"),
    ).sort("run_id", "line")
    warnings: dict[str, list[Message]] = {}
    unstepped = _stepless_lines(steps, runs)
    later, unstarted = _out_of_order_lines(asked), _unstarted_launches(asked, runs)
    several = (
        (later, messages.STEPS_OUT_OF_ORDER),
        (_broken_counters(asked), messages.COUNTERS_JUMP),
        (_level_changes(asked), messages.LEVEL_CHANGE),
        (_lines_of_other_flops(asked, runs), messages.FLOPS_JUMP),
        (_repeated_lines(unstepped), messages.LINES_COPIED),
        (_epoch_setbacks(unstepped), messages.EPOCH_BACK),
        (_conflicting_lines(asked, runs), messages.STEPS_REPEATED),
        (_launches_in_turn(asked, runs, later, unstarted), messages.RUNS_INTERLEAVED),
    )
    for bad_lines, kind in (*_impossible(asked), *several):
        if bad_lines.is_empty():
            continue
        lines = bad_lines.group_by("run_id", maintain_order=True).agg(
            pl.len().alias("count"), pl.col("line", "step").first()
        )
        for run_id, count, line, step in lines.iter_rows():
            first = f"line {line:,}, step {step:,}"
            where = first if count == 1 else f"{count:,} lines, first at {first}"
            warnings.setdefault(run_id, []).append(kind(where=where))
    for run_id, line, step, before in unstarted.iter_rows():
        back = before is not None and step <= before
        begins = "Steps go back to" if back else "Another process begins with step"
        message = messages.STEPS_GO_BACK(begins=begins, step=step, line=line)
        warnings.setdefault(run_id, []).append(message)
    return warnings


def _impossible(steps: pl.DataFrame) -> list[tuple[pl.DataFrame, MessageKind]]:
    """Return the lines and the text for every kind of _KINDS in the log."""
    occurs = steps.select(bad.any().alias(f"{i}") for i, (bad, _) in enumerate(_KINDS)).row(0)
    return [
        (steps.filter(bad), kind) for (bad, kind), any_ in zip(_KINDS, occurs, strict=True) if any_
    ]


def _lines_of_runs(lines: pl.DataFrame, run_ids: pl.Series) -> pl.DataFrame:
    """Return the lines of some runs; fast if there are none, the usual case."""
    if run_ids.is_empty():
        return lines.clear()
    return lines.filter(pl.col("run_id").is_in(run_ids.implode()))


def _out_of_order_lines(steps: pl.DataFrame) -> pl.DataFrame:
    """Return timed lines whose step comes after a later step of their launch.

    Timed: with a rate or a time. Excluded: copies of a step and lines with an earlier stamp, which
        ranks without a tag print. Also lines with nothing but an earlier time since the start:
        progress bars and dicts of one process go to different streams, and either may come late. If
        all lines have a loss, they are of one stream.
    """
    own = pl.any_horizontal(pl.col(*_RATE, "elapsed_s").is_not_null())
    timed = steps.filter(own | pl.col("since_start_s").is_not_null())
    apart = pl.col("loss").is_null().any().over("run_id")
    clock = pl.when(~own & apart).then("since_start_s")
    step, run, rank = pl.col("step"), pl.col("run_id"), "rank"
    some = timed.filter(step < step.shift(), run == run.shift())
    if some.is_empty():
        return some
    before = pl.any_horizontal(
        at <= at.cum_max().shift().over(run, rank) for at in (pl.col("logged_at"), clock)
    )
    return _lines_of_runs(timed, some["run_id"].unique()).filter(
        step < step.cum_max().over(run, rank),
        step.is_first_distinct().over(run, rank),
        ~before.fill_null(value=False),
    )


def _stepless_lines(steps: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return lines with a loss, of formats without a printed step.

    Adds `at`: the epoch, as printed.
    """
    lines = _lines_of_runs(steps, runs.filter(has_quirk("step_unsaid"))["run_id"])
    if lines.is_empty():
        return lines
    lines = lines.sort("run_id", "line")
    told = lines.filter(pl.col("loss").is_finite(), pl.col("loss") != 0)
    return told.with_columns(at=pl.col("extra").str.extract(EPOCH_PATTERN))


def _repeated_lines(lines: pl.DataFrame) -> pl.DataFrame:
    """Return lines that repeat all figures of the line before as another step's.

    Per rank; only for runs with at least MIN_COPY_SHARE of such lines.
    """
    if lines.is_empty():
        return lines
    figures = ("loss", "grad_norm", "learning_rate", "at", *_COUNTED)
    same = pl.all_horizontal(
        pl.col(name).eq_missing(pl.col(name).shift().over("run_id", "rank")) for name in figures
    )
    other = pl.col("step") != pl.col("step").shift().over("run_id", "rank")
    twice = (same & other & pl.col("learning_rate").is_not_null()).fill_null(value=False)
    lines = lines.with_columns(twice=twice)
    return lines.filter(pl.col("twice"), pl.col("twice").mean().over("run_id") >= MIN_COPY_SHARE)


def _epoch_setbacks(lines: pl.DataFrame) -> pl.DataFrame:
    """Return lines with a later step but an earlier epoch than the line before."""
    if lines.is_empty():
        return lines
    at = pl.col("at").cast(pl.Float64, strict=False)
    back, new = ((one.diff().over("run_id", "rank")) for one in (at, pl.col("step")))
    return lines.filter(back < 0, new > 0)


def _conflicting_lines(steps: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return lines that print a step of their rank again, with other figures.

    One process prints a step once, and copies of its line are alike. Ranks with the same tag, or
    none, differ in speed and memory but share the loss. For formats written by one process alone,
    other figures count too.
    """
    run, step = pl.col("run_id"), pl.col("step")
    some = steps.filter(step <= step.shift(), run == run.shift())
    if some.is_empty():
        return some
    lines = _lines_of_runs(steps, some["run_id"].unique())
    again = lines.filter(step <= step.cum_max().shift().over("run_id", "rank"))
    lines = _lines_of_runs(lines, again["run_id"].unique())
    of_one = _lines_of_runs(lines, runs.filter(has_quirk("single_writer"))["run_id"])
    odd = pl.concat([_lines_of_other_loss(lines), _lines_of_other_engine(of_one)])
    return odd.unique(("run_id", "line")).sort("run_id", "line")


def _lines_of_other_loss(lines: pl.DataFrame) -> pl.DataFrame:
    """Return lines whose loss differs from the first of their step.

    Pipeline stages print -1 for an unknown loss.
    """
    loss = pl.col("loss")
    losses = lines.filter(loss.is_finite(), loss >= 0)
    first = loss.first().over("run_id", "rank", "step")
    return losses.filter((loss - first).abs() > MAX_LOSS_DIFFERENCE * (1 + first))


def _lines_of_other_engine(lines: pl.DataFrame) -> pl.DataFrame:
    """Return lines whose rate, learning rate or time is not the first of their step.

    The rate is from DeepSpeed's timer. Several handlers of a logger may print a line with their own
    stamps or none.
    """
    rate, timed = pl.col("logged_samples_per_second"), pl.col("elapsed_s").is_null()
    rates = lines.filter(rate.is_finite())
    other = rates.filter(rate != rate.first().over("run_id", "rank", "epoch", "step", timed))
    of_step = ("run_id", "step")
    lr, at = pl.col("learning_rate"), pl.col("logged_at")
    later = (at - at.drop_nulls().first().over(of_step)).abs() > MAX_HANDLER_DELAY
    unlike = lr.ne_missing(lr.first().over(of_step)) | later.fill_null(value=False)
    printed = lines.filter(pl.col("skipped_steps") >= 0)
    return pl.concat(
        [other, printed.filter(unlike, unlike.mean().over("run_id") >= MIN_COPY_SHARE)]
    )


def _broken_counters(steps: pl.DataFrame) -> pl.DataFrame:
    """Return lines whose steps go on from the line before, but whose counters do not.

    A run's counters never go back, nor do tokens stop growing while steps are trained. Between two
    lines, the batch of a step is no smaller than the smaller printed batch and no larger than the
    larger one; 1 % is left for the rounding of counters. Excluded: runs with several lines per
    step, and tokens printed too coarsely to show a step (`'num_tokens': '1.305e+09'`).
    """
    of_rank = ("run_id", "rank")
    counted = steps.filter(pl.any_horizontal(pl.col(*_COUNTED) > 0))
    if counted.is_empty():
        return counted
    new, samples = (pl.col(name).diff().over(of_rank) for name in ("step", "consumed_samples"))
    batch, before = pl.col("samples"), pl.col("samples").shift().over(of_rank)
    known = batch.is_not_null() & before.is_not_null()
    more = samples > (1 + MAX_UNEXPLAINED_GAP) * new * pl.max_horizontal(batch, before)
    fewer = samples < (1 - MAX_UNEXPLAINED_GAP) * new * pl.min_horizontal(batch, before)
    tokens = [pl.col(name).diff().over(of_rank) for name in _TOKENS]
    still = [
        change.eq(0) & _growth_is_visible(name)
        for change, name in zip(tokens, _TOKENS, strict=True)
    ]
    back = pl.any_horizontal(samples < 0, tokens[0] < 0, *still)
    odd = counted.filter((new > 0) & (back | (known & (more | fewer))))
    if odd.is_empty():
        return odd
    mine = _lines_of_runs(counted, odd["run_id"].unique())
    copied = mine.filter(pl.struct(*of_rank, "step").is_duplicated())["run_id"].unique()
    return odd.filter(~pl.col("run_id").is_in(copied.implode()))


def _growth_is_visible(counter: str) -> pl.Expr:
    """Return whether the steps since the line before change the counter's last digit.

    From the average growth per step; the last digit is the last one above 0.
    """
    of_rank, value = ("run_id", "rank"), pl.col(counter)
    pace = (value.max() - value.min()) / (pl.col("step").max() - pl.col("step").min())
    grown = pace.over(of_rank) * pl.col("step").diff().over(of_rank)
    zeros = value.cast(pl.Int64, strict=False).cast(pl.String).str.extract("(0*)$").str.len_chars()
    return pl.max_horizontal(grown, 1) >= 10.0 ** zeros.cast(pl.Float64)


def _level_changes(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the first line after memory and pace change their level together.

    Ignores the first line, which includes the start-up; only for runs whose lines name one rank or
    none. For memory, no value may lie between the two levels, and the gap exceeds the width of
    either level. For the pace, the same must be true of the middle of the values, since some lines
    include a pause.
    """
    if steps.height <= 2 * MIN_LEVEL_LINES:
        return steps.clear()
    memory, rate = pl.col("peak_memory_bytes"), pl.coalesce("logged_tgs", 1 / pl.col("elapsed_s"))
    one_rank = pl.col("rank").n_unique().over("run_id") == 1
    timed = rate.is_finite() & (rate > 0) & memory.is_finite()
    lines = steps.filter(timed, memory > 0, one_rank).with_columns(rate=rate)
    behind = lines.filter(pl.int_range(pl.len()).over("run_id") > 0)
    place, count = pl.int_range(pl.len()).over("run_id"), pl.len().over("run_id")
    enough = pl.min_horizontal(place, count - place) >= MIN_LEVEL_LINES
    jumps = behind.with_columns(place=place, enough=enough).filter(enough & _jumps(memory))
    if jumps.is_empty():
        return jumps
    rates = {run: of["rate"] for (run,), of in behind.group_by("run_id", maintain_order=True)}
    sure = [
        _rates_are_apart(rates[run], at) for run, at in jumps.select("run_id", "place").iter_rows()
    ]
    return jumps.filter(pl.Series(sure, dtype=pl.Boolean))


def _jumps(memory: pl.Expr) -> pl.Expr:
    """Return whether a line separates the values of a run into two levels.

    The gap exceeds MIN_MEMORY_CHANGE, and the width of either level.
    """
    before = [memory.cum_min().shift(), memory.cum_max().shift()]
    after = [memory.cum_min(reverse=True), memory.cum_max(reverse=True)]
    low, high, later_low, later_high = (one.over("run_id") for one in (*before, *after))
    gap = pl.max_horizontal(later_low - high, low - later_high)
    wide = pl.max_horizontal(high - low, later_high - later_low)
    return (gap > MIN_MEMORY_CHANGE * pl.min_horizontal(low, later_low)) & (gap > wide)


def _rates_are_apart(rates: pl.Series, index: int) -> bool:
    """Return whether the middle 80 % of the rates before and after an index are apart.

    The gap exceeds MIN_PACE_CHANGE, and the width of either range. index: of the first line after
    """
    levels = np.array([np.quantile(part, [0.1, 0.9]) for part in (rates[:index], rates[index:])])
    (low, high), wide = sorted(levels.tolist()), np.ptp(levels, axis=1).max()
    gap = high[0] - low[1]
    return bool(gap > MIN_PACE_CHANGE * low[0] and gap > wide)


def _lines_of_other_flops(steps: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return lines whose claims imply other FLOPs per token than most of their run.

    For formats whose claims are the line's rate times the FLOPs of a token, counted once. Small
    figures leave the FLOPs of a token open, so finer ones of the run decide.
    """
    lines = _lines_of_runs(steps, runs.filter(has_quirk("claims_follow_rate"))["run_id"])
    rate, odd = "logged_tgs", [lines.clear()]
    for claim in _CLAIMS:
        both = lines.filter(pl.col(claim).is_finite(), pl.col(rate).is_finite(), pl.col(rate) > 1)
        if both.is_empty():
            continue
        units = digits_by(both, ("run_id",), (claim, rate))
        claimed, rated = (
            0.5 * 10.0 ** -pl.col(f"{name}_decimals").cast(pl.Float64) for name in (claim, rate)
        )
        per_token = both.join(units, on="run_id", how="left", maintain_order="left").with_columns(
            low=(pl.col(claim) - claimed) / (pl.col(rate) + rated),
            high=(pl.col(claim) + claimed) / (pl.col(rate) - rated),
        )
        fine = pl.col("high") <= (1 + MAX_UNEXPLAINED_GAP) * pl.col("low")
        usual = pl.mean_horizontal("low", "high").filter(fine).quantile(0.5, "lower").over("run_id")
        low, high = (
            pl.col("low") / (1 + MAX_UNEXPLAINED_GAP),
            pl.col("high") * (1 + MAX_UNEXPLAINED_GAP),
        )
        odd.append(per_token.filter((low > usual) | (high < usual)).select(steps.columns))
    return pl.concat(odd).unique(["run_id", "line"]).sort("run_id", "line")


def _launches_in_turn(
    steps: pl.DataFrame, runs: pl.DataFrame, later: pl.DataFrame, unstarted: pl.DataFrame
) -> pl.DataFrame:
    """Return the first lines of all launches of a source with several writers at once.

    The run that is behind begins a launch at every turn, without a start; the run that is ahead
    continues in that launch. Consecutive experiments of a few lines begin at the same step: steps
    counted by fairmfu always do, so tokens decide. Two runs of the same pace with different
    intervals meet where both print a step: a launch then begins with the last step of the launch
    before, about as soon as any other line comes.

    later, unstarted: of `_out_of_order_lines` and `_unstarted_launches`
    """
    run = pl.col("run_id")
    back = unstarted.filter(pl.col("step") <= pl.col("before"))["run_id"]
    if back.is_empty():
        return steps.clear()
    mixed = later["run_id"].unique()
    goes_back = run.is_in(back.implode()).any().over("sha256")
    runs = runs.filter(goes_back)  # few sources do
    steps = steps.join(runs, on="run_id", how="semi", maintain_order="left")
    launches = _launches_in_order(steps, runs).with_columns(
        back=run.is_in(back.implode()), brief=pl.col("few") | run.is_in(mixed.implode())
    )
    in_turn = launches.filter(_takes_turns().over("sha256"))["run_id"]
    return steps.filter(run.is_in(in_turn.implode())).unique(
        "run_id", keep="first", maintain_order=True
    )


def _launches_in_order(steps: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return a row per launch of each source, in order: start, end and density.

    Adds to runs: few, uneven: of few lines; of more, at uneven steps. first, last: steps. progress:
    the first count of tokens if steps are counted by fairmfu, else `first`. began, ended: first and
    last stamp; apart, longest: the median and the longest time between two lines.
    """
    stamp, new = pl.col("logged_at"), pl.col("step").sort().diff()
    few = pl.len() <= MAX_TURN_LINES
    each = steps.unique(["run_id", "step"], keep="first", maintain_order=True)
    told = each.group_by("run_id", maintain_order=True).agg(
        few=few,
        uneven=~few & ((new == new.median()).mean() < MIN_EVEN_STEP_SHARE),
        first=pl.col("step").first(),
        last=pl.col("step").max(),
        tokens=pl.col("consumed_tokens").first(),
        began=stamp.drop_nulls().first(),
        apart=stamp.diff().median(),
        longest=stamp.diff().max(),
    )
    ends = steps.group_by("run_id").agg(ended=stamp.max())
    counted = pl.when(has_quirk("step_unsaid")).then("tokens")
    return (
        runs.sort("sha256", "launch")
        .join(told, on="run_id", maintain_order="left")
        .join(ends, on="run_id", maintain_order="left")
        .with_columns(progress=pl.coalesce(counted, "first"))
    )


def _takes_turns() -> pl.Expr:
    """Return whether the launches of one source are turns of several runs.

    Reads the source's rows of `_launches_in_order` with two more columns. back: begins at a step
    that was printed before; brief: of few lines, or with a step after a later one.
    """
    names = ("progress", "last", "uneven", "apart", "longest", "ended")
    before = {name: pl.col(name).shift() for name in names}
    goes_on = pl.col("brief") & (pl.col("progress") > before["progress"])
    short = goes_on.filter("back")
    several = (short.sum() >= MIN_TURNS) & (short.mean() > 1 / 2)
    gap = pl.col("began") - before["ended"]
    soon = gap.is_between(timedelta(), MAX_TURN_GAP_RATIO * before["apart"], closed="left")
    meets = (pl.col("first") == before["last"]) & pl.col("uneven") & before["uneven"]
    in_time = (gap <= MAX_MEETING_GAP_RATIO * before["longest"]).fill_null(value=True)
    return several | (pl.col("back") & (soon | (meets & in_time))).any()


def _unstarted_launches(steps: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return the first steps of later launches: run_id, line, step, last step before.

    Only launches of a source whose first line is a step's. The last step is null if the launch
    before has no step.
    """
    if not (runs["launch"] > 1).any():
        return UNSTARTED_SCHEMA.to_frame()
    begins = steps.group_by("run_id", maintain_order=True).agg(
        pl.col("line", "step").first(), last=pl.col("step").max()
    )
    launches = runs.sort("sha256", "launch").join(
        begins.select("run_id", "last"), on="run_id", how="left", maintain_order="left"
    )
    before = launches.with_columns(before=pl.col("last").shift().over("sha256"))
    later = before.filter(pl.col("launch") > 1).select("run_id", "before", line="first_line")
    return begins.drop("last").join(later, on=["run_id", "line"], maintain_order="left")


UNSTARTED_SCHEMA: Final = pl.Schema(
    {"run_id": pl.String, "line": pl.Int64, "step": pl.Int64, "before": pl.Int64}
)
