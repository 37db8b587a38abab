"""Samples or tokens of a step over all ranks, from a log's closing figures.

    train_samples_per_second / train_steps_per_second   samples of a step (the Trainer's last line)
    RunningAvgSamplesPerSec x seconds of a step         samples of a step (DeepSpeed's timer)
    total_flos / (6 x parameters x steps)               tokens of a step, padding included

A file beside the log, such as all_results.json, has the same figures, and more digits. It counts if
the log's last line agrees or is absent.

No rate uses these figures. They check a batch or a length given by the user or the log
(metrics.throughput.token_counts). The Trainer counts FLOPs without embeddings, of all experts, and
of frozen weights too (transformers/modeling_utils.py floating_point_ops@v5.23.0).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal

import polars as pl

from fairmfu.ingest.core.schema import FLOAT, INT, TEXT

from ..core.extra_figures import MAX_PRINTED, extra_figure
from ..core.quirks import has_quirk

FlosParams = Callable[[str], int | None]
"""Maps a run_id to the parameters in the Trainer's FLOPs; None for an unknown model."""

CLOSING_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "closing": pl.List(pl.Struct({"identity": TEXT, "per_step": FLOAT, "error": FLOAT})),
        "end_samples_per_second": FLOAT,
        "ends_apart": INT,
        "results_apart": TEXT,
        "running_samples_per_second": FLOAT,
    }
)

UNKNOWN_EPOCH_ERROR: Final = 0.1
"""Relative error of samples over steps, compared with the batch, where the steps of an epoch are
not known: the last batch of an epoch is partial or dropped."""
TIMER_ERROR: Final = 0.4
"""Relative error of samples from DeepSpeed's timer: early steps are slower, and data loading is
left out. A wrong batch is off by a factor of two."""
FLOS_ERROR: Final = 0.03
"""Relative error of the parameters in the Trainer's FLOPs: adapters, and scales of 4-bit
weights."""
MIN_FLOS_TOKENS: Final = 1.0
"""Least tokens of a step from total_flos. ZeRO-3 leaves no parameters to count, so fewer tokens
show nothing."""


MIN_TRAINED_SHARE: Final = 0.97
"""Least share of the planned steps that a log reaches if FLOPs of a file are of all of them: a
training that stopped early has fewer."""


@dataclass(frozen=True, slots=True)
class ResultsFile:
    """Closing figures in a file beside the log of one run.

    figures: as printed, by the Trainer's names; total_steps: planned
    """

    name: str
    figures: Mapping[str, str]
    total_steps: int | None


def results_file(facts: Mapping[str, Mapping[str, Any]]) -> ResultsFile | None:
    """Return the results beside a run's log. facts: rows of resolved facts, by name."""
    fact = facts.get("closing_figures")
    if fact is None or not str(fact["origin"]).startswith("companion:"):
        return None
    with suppress(ValueError):
        figures = json.loads(fact["value"], parse_float=str, parse_int=str)
        total = facts.get("total_steps", {}).get("value")
        name = str(fact["origin"]).removeprefix("companion:")
        return ResultsFile(name, figures, int(total) if total else None)
    return None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Figures at the end of one run.

    said: fields of the last line, as printed
    seconds, step, epoch: of the whole training
    average: the timer's samples/s since the start
    step_s: median time between stamped steps
    params: parameters as in FlosParams
    ends_apart: number of last lines, if they are of different trainings: then nothing is said
    """

    said: Mapping[str, str]
    seconds: float | None
    step: int | None
    epoch: float | None
    average: float | None
    step_s: float | None
    params: Callable[[], int | None]
    ends_apart: int | None = None


@dataclass(frozen=True, slots=True)
class ClosingIdentity:
    """Product or quotient of closing figures that equals a step's samples or tokens.

    per_step: (samples or tokens over all ranks, relative error); None if not printed
    over_processes: true if the figure sums over processes, even processes with the same samples
    """

    key: str
    label: str
    unit: Literal["samples", "tokens"]
    per_step: Callable[[RunEnd], tuple[float, float] | None]
    over_processes: bool = True


def _end_samples(end: RunEnd) -> tuple[float, float] | None:
    samples, steps = (
        _printed(end.said, f"train_{what}_per_second") for what in ("samples", "steps")
    )
    if samples is None or steps is None:
        return None
    partial = UNKNOWN_EPOCH_ERROR if not end.epoch or not end.step else end.epoch / end.step
    return samples[0] / steps[0], samples[1] + steps[1] + min(partial, UNKNOWN_EPOCH_ERROR)


def _timer_samples(end: RunEnd) -> tuple[float, float] | None:
    if end.average is None or end.step_s is None:
        return None
    return end.average * end.step_s, TIMER_ERROR


def _total_flos(end: RunEnd) -> tuple[float, float] | None:
    flos = _printed(end.said, "total_flos")
    params = end.params() if flos is not None and end.step else None
    if flos is None or not end.step or not params:
        return None
    tokens = flos[0] / (6 * params * end.step)
    return (tokens, flos[1] + FLOS_ERROR) if tokens >= MIN_FLOS_TOKENS else None


CLOSING_IDENTITIES: Final[Mapping[str, ClosingIdentity]] = {
    one.key: one
    for one in (
        ClosingIdentity(
            "end_samples", "the last line's samples/s over steps/s", "samples", _end_samples
        ),
        ClosingIdentity(
            "timer_samples",
            "RunningAvgSamplesPerSec x time",
            "samples",
            _timer_samples,
            over_processes=False,
        ),
        ClosingIdentity("total_flos", "total_flos over 6 x parameters", "tokens", _total_flos),
    )
}


def _printed(fields: Mapping[str, str], name: str) -> tuple[float, float] | None:
    """Return a printed number above 0, and its rounding error as a fraction.

    The rounding error is half a unit of the last digit.
    """
    with suppress(InvalidOperation, KeyError, ValueError, TypeError, OverflowError):
        number = Decimal(str(fields[name]))
        value, unit = float(number), 10.0 ** int(number.as_tuple().exponent)
        if 0 < value <= MAX_PRINTED:
            return value, unit / 2 / value
    return None


@dataclass(frozen=True, slots=True)
class RunKnowledge:
    """Facts about closing figures, by run_id.

    batch_stated: runs whose log states the batch. DeepSpeed's timer divides this batch by the time,
        so its figure is no independent evidence there.
    results: files beside the logs
    """

    batch_stated: Collection[str] = ()
    results: Mapping[str, ResultsFile] = field(default_factory=dict)


NO_KNOWLEDGE: Final = RunKnowledge()


def closing_figures(
    runs: pl.DataFrame,
    steps: pl.DataFrame,
    events: pl.DataFrame,
    params: FlosParams,
    knowledge: RunKnowledge = NO_KNOWLEDGE,
) -> pl.DataFrame:
    """Compute the closing figures of each run: columns of CLOSING_SCHEMA.

    end_samples_per_second: of the whole training over all ranks, from the last line
    running_samples_per_second: the timer's last mean since the start
    ends_apart: number of last lines of different trainings; then none of them counts
    results_apart: the figure of a file beside the log that the log's last line contradicts

    runs, steps, events: as in ingest.core.schema
    params: called only for runs that print FLOPs
    """
    last_steps = dict(steps.group_by("run_id").agg(pl.col("step").max()).iter_rows())
    ends = dict(_run_ends(runs, steps, events, params))
    for run_id in knowledge.results:
        ends.setdefault(run_id, _end_without_line(params, run_id))
    rows = []
    for run_id, end in ends.items():
        apart = None
        whole = end
        if (file := knowledge.results.get(run_id)) is not None:
            apart = _contradiction(end, file)
            whole = end if apart else _with_results(end, file, last_steps.get(run_id))
        average = None if run_id in knowledge.batch_stated else end.average
        rows.append(
            {
                "run_id": run_id,
                "closing": [*_of_run(replace(whole, average=average))],
                "end_samples_per_second": (_printed(whole.said, SAMPLES_KEY) or [None])[0],
                "ends_apart": end.ends_apart,
                "results_apart": apart,
                "running_samples_per_second": end.average,
            }
        )
    return pl.DataFrame(rows, schema=CLOSING_SCHEMA)


SAMPLES_KEY: Final = "train_samples_per_second"
STEPS_KEY: Final = "train_steps_per_second"
RESULTS_KEYS: Final = (SAMPLES_KEY, STEPS_KEY, "total_flos")


def _end_without_line(params: FlosParams, run_id: str) -> RunEnd:
    """Return the end of a log without closing figures."""
    return RunEnd({}, None, None, None, None, None, lambda: params(run_id))


def _contradiction(end: RunEnd, file: ResultsFile) -> str | None:
    """Return the first figure of a file that the log's last line contradicts."""
    seconds = {} if end.seconds is None else {"train_runtime": f"{end.seconds:.6g}"}
    logged = {key: end.said[key] for key in RESULTS_KEYS if key in end.said} | seconds
    for key, text in logged.items():
        ours, theirs = _printed(logged, key), _printed(file.figures, key)
        if ours is None or theirs is None:
            continue
        if abs(ours[0] / theirs[0] - 1) > ours[1] + theirs[1] + MAX_FLOAT_ERROR:
            return f"{key} is {text} in the log and {file.figures[key]} in {file.name}"
    time, rate = (_printed(file.figures, key) for key in ("train_runtime", STEPS_KEY))
    if file.total_steps is None or time is None or rate is None:
        return None
    steps = time[0] * rate[0]
    if abs(steps / file.total_steps - 1) <= rate[1] + MAX_STEPS_GAP:
        return None
    return f"{file.total_steps:,} planned steps in the log and {steps:,.0f} in {file.name}"


MAX_STEPS_GAP: Final = 0.01
"""Relative gap of planned steps to seconds times steps/s, beyond the rounding of steps/s."""


MAX_FLOAT_ERROR: Final = 1e-6
"""Relative difference of two copies of a number, such as seconds with six digits."""


def _with_results(end: RunEnd, file: ResultsFile, last_step: int | None) -> RunEnd:
    """Return an end with the figures of a file that the log does not print."""
    added = {key: file.figures[key] for key in RESULTS_KEYS if key in file.figures}
    reached = (last_step or 0) >= MIN_TRAINED_SHARE * (file.total_steps or math.inf)
    if end.step is None and not reached:
        added.pop("total_flos", None)
    epoch = end.epoch
    with suppress(KeyError, ValueError):
        epoch = epoch or float(file.figures["epoch"])
    return replace(end, said=added | dict(end.said), step=end.step or file.total_steps, epoch=epoch)


def _of_run(end: RunEnd) -> Iterator[dict[str, Any]]:
    for identity in CLOSING_IDENTITIES.values():
        if (figure := identity.per_step(end)) is not None and figure[0] <= MAX_PRINTED:
            yield {"identity": identity.key, "per_step": figure[0], "error": figure[1]}


def _run_ends(
    runs: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, params: FlosParams
) -> Iterator[tuple[str, RunEnd]]:
    ended = events.filter(pl.col("kind") == "end", pl.col("extra").is_not_null()).sort("line")
    end_events = ended.rows_by_key("run_id", named=True)
    timed = _timer(runs, steps)
    for run_id in dict.fromkeys((*end_events, *timed)):
        every = end_events.get(run_id, [])
        apart = _are_apart([event["seconds"] for event in every])
        event = every[-1] if every and not apart else {}
        average, step_s = timed.get(run_id, (None, None))
        epoch = EPOCH_PATTERN.search(event.get("text") or "")
        yield (
            run_id,
            RunEnd(
                said=json.loads(event.get("extra") or "{}"),
                seconds=event.get("seconds"),
                step=event.get("step"),
                epoch=float(epoch[1]) if epoch else None,
                average=average,
                step_s=step_s,
                params=lambda run_id=run_id: params(run_id),  # type: ignore[misc]
                ends_apart=len(every) if apart else None,
            ),
        )


MAX_ENDS_GAP: Final = 0.05
"""Relative gap of the seconds that processes of one training print at its end."""


def _are_apart(seconds: Sequence[float | None]) -> bool:
    """Return whether last lines are of different trainings, by their seconds."""
    known = [one for one in seconds if one]
    return bool(known) and min(known) < (1 - MAX_ENDS_GAP) * max(known)


EPOCH_PATTERN: Final = re.compile(r"""["']epoch["']: '?(\d{1,9}(?:\.\d{1,9})?)\b""")


def _timer(runs: pl.DataFrame, steps: pl.DataFrame) -> dict[str, tuple[float | None, float | None]]:
    """Return the timer's last mean [samples/s] and the median step time [s], per run."""
    timed_runs = runs.filter(has_quirk("timer_of_steps"))["run_id"]
    if timed_runs.is_empty():
        return {}
    printed = steps.select("run_id", "line", "step", "logged_at", "extra")
    lines = printed.filter(pl.col("run_id").is_in(timed_runs.implode())).sort("run_id", "line")
    averages = (
        lines.filter(pl.col("extra").str.contains('"average": ', literal=True))
        .group_by("run_id", maintain_order=True)
        .last()
        .select("run_id", average=extra_figure("average"))
        .filter(pl.col("average") > 0)
    )
    stamped = lines.filter(pl.col("logged_at").is_not_null()).unique(
        ["run_id", "step"], keep="first", maintain_order=True
    )
    passed = pl.col("logged_at").diff().dt.total_microseconds() / 1e6 / pl.col("step").diff()
    fine = (passed.drop_nulls() > 0).all()  # lines with the same stamp show no time
    times = stamped.group_by("run_id").agg(step_s=pl.when(fine).then(passed.median()))
    joined = averages.join(times, on="run_id", how="left")
    return {str(run_id): (rate, step_s) for run_id, rate, step_s in joined.iter_rows()}
