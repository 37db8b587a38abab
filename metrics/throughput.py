"""Steps to tokens per second per GPU (TGS): windows, which evidence, steady and end to end.

Every rate is a ratio of sums over windows (metrics.windows), never a mean of rates. Of the kinds of
time evidence that a run has, the first counts that its format prefers.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from ingest.schema import FLOAT, INT, TEXT, TEXTS
from metrics import evidence as evidences
from metrics import tokens as counts
from metrics.digits import digits_of
from metrics.end_to_end import end_to_end
from metrics.statistics import rate
from metrics.time_lost import LOST, START_UP, WARM_UP, time_lost
from metrics.windows import SPOILERS, clean, evidence_of, resolution, total

SUMMARY: Final = pl.Schema(
    {
        "run_id": TEXT,
        "steps": INT,
        "first_step": INT,
        "last_step": INT,
        "tgs": FLOAT,
        "tgs_low": FLOAT,
        "tgs_high": FLOAT,
        "tgs_slots": FLOAT,
        "tgs_end_to_end": FLOAT,
        "tokens_per_second": FLOAT,
        "tokens_per_gpu_step": FLOAT,
        "token_basis": TEXT,
        "time_basis": TEXT,
        "end_to_end_basis": TEXT,
        "excluded_share": FLOAT,
        "excluded_causes": TEXTS,
        "data_share": FLOAT,
        "windows": INT,
        "effective_windows": FLOAT,
        "no_interval": TEXT,
        "steady_from": INT,
        "wall_s": FLOAT,
        "time_lost": pl.List(LOST),
        "evidence_gap": FLOAT,
        "evidence_windows": INT,
        "evidence_cause": TEXT,
        "token_gap": FLOAT,
        "token_counts": TEXTS,
        "logged_tgs": FLOAT,
        "logged_tflops": FLOAT,
        "logged_mfu": FLOAT,
        "logged_tgs_total": FLOAT,
        "attention_ratio": FLOAT,
        "sequence_length": FLOAT,
        "throughput_missing": TEXTS,
        "throughput_warnings": TEXTS,
    }
)


def summarise(all_windows: pl.DataFrame, runs: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """One row per run of `runs`, by run_id: its rates with their evidence; columns of SUMMARY.

    all_windows: as metrics.steady.mark; runs: as in ingest.schema, with the columns of
    metrics.end_to_end.clock where they are known. Rates are tokens per second per GPU;
    `tokens_per_second` is over all GPUs. `steady_from` is the last step before the first steady
    window; `no_interval` says why a rate has none; `wall_s` and `time_lost` are as
    metrics.time_lost.time_lost.
    """
    by_run = {
        run_id: frame for (run_id,), frame in all_windows.group_by("run_id", maintain_order=True)
    }
    known = {row["run_id"]: row for row in facts.iter_rows(named=True)}
    rows = [
        _summary(run, by_run.get(run["run_id"]), known.get(run["run_id"], {}))
        for run in runs.sort("run_id").iter_rows(named=True)
    ]
    return pl.DataFrame([{n: row.get(n) for n in SUMMARY} for row in rows], schema=SUMMARY)


def _summary(
    run: dict[str, Any], frame: pl.DataFrame | None, facts: dict[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run_id": run["run_id"],
        "steps": 0,
        "throughput_missing": [],
        "throughput_warnings": [],
    }
    if frame is None:
        row["throughput_warnings"] = ["no training step in this launch"]
        return row
    row |= {
        "steps": frame.height,
        "first_step": frame["step"].min(),
        "last_step": frame["step"].max(),
        "token_basis": _token_basis(frame, facts),
        "attention_ratio": _weighted(frame, "attention_ratio"),
        "sequence_length": _weighted(frame, "sequence_length"),
        "data_share": _data_share(frame),
    }
    evidence = evidence_of(frame, run["evidence"])
    row |= end_to_end(frame, evidence, run)
    if evidence is None:
        row |= _no_rate(frame, run, facts)
        return row
    steady = clean(frame, evidence)
    row |= _rates(frame, steady, evidence, facts)
    row |= _sureness(steady, evidence)
    row["wall_s"], row["time_lost"] = time_lost(frame, evidence, run)
    row |= _claims(steady)
    row |= evidences.summary(frame, run, evidence) | counts.summary(frame, facts)
    row["throughput_warnings"] = _warnings(frame, run, evidence, row)
    return row


def _rates(
    frame: pl.DataFrame, steady: pl.DataFrame, evidence: str, facts: dict[str, Any]
) -> dict[str, Any]:
    tokens, seconds = steady["tokens"], steady["seconds"]
    tgs = total(tokens) / total(seconds)
    every = None if frame[f"{evidence}_time"][0] is None else total(frame[f"{evidence}_time"])
    excluded = frame.filter(~pl.col("first"), ~pl.col("step").is_in(steady["step"].implode()))
    causes = excluded["spoilers"].explode().drop_nulls().unique(maintain_order=True).to_list()
    start = [START_UP, *([WARM_UP] if frame["warming"].any() else [])]
    per_step = steady["tokens_per_gpu"].mean()
    slots = total(steady[f"{evidence}_span"] * steady["slots_per_gpu"]) / total(seconds)
    return {
        "tgs": tgs,
        "tgs_slots": slots if steady["slots_per_gpu"].null_count() == 0 else None,
        "tokens_per_second": None if facts.get("gpus") is None else tgs * facts["gpus"],
        "tokens_per_gpu_step": per_step,
        "time_basis": evidence,
        "windows": steady.height,
        "excluded_share": max(0.0, 1.0 - total(seconds) / every) if every else None,
        "excluded_causes": [*start, *[c for c in causes if c in SPOILERS[evidence]]],
    }


def _sureness(steady: pl.DataFrame, evidence: str) -> dict[str, Any]:
    """The interval of the steady rate, or why there is none."""
    tokens, seconds, excess = (
        steady[name].cast(pl.Float64).to_numpy() for name in ("tokens", "seconds", "stall_s")
    )
    found = rate(tokens, seconds, excess, _coarseness(steady, evidence))
    sure = found.estimate
    first_span = steady[f"{evidence}_span"][0]
    return {
        "tgs_low": None if sure is None else sure.low,
        "tgs_high": None if sure is None else sure.high,
        "effective_windows": found.effective,
        "no_interval": found.why_not,
        "steady_from": steady["step"][0] - int(first_span),
    }


PRINTED_TIMES: Final = {
    "elapsed": ("elapsed_s",),
    "rate": ("logged_tgs", "logged_samples_per_second"),
}


def _coarseness(steady: pl.DataFrame, evidence: str) -> float:
    """Half a unit of the last digit of the printed time or rate, as a fraction of it.

    Of stamps and clocks half a unit of both ends together, over all of the time between.
    """
    if evidence not in PRINTED_TIMES:
        return resolution(steady, evidence) / total(steady["seconds"])
    named = next(n for n in PRINTED_TIMES[evidence] if steady[n].null_count() < steady.height)
    values = steady[named].drop_nulls().to_numpy()
    return float(np.median(digits_of(values).units(values) / 2 / values))


def _data_share(frame: pl.DataFrame) -> float | None:
    """Waiting for data, as a share of the steps' time with it; needs no tokens."""
    steady = clean(frame.with_columns(pl.col("tokens_per_gpu").fill_null(1.0)), "elapsed")
    whole = pl.when("elapsed_excludes_data").then("wall_s").otherwise("elapsed_s").alias("whole")
    timed = steady.select(whole, "data_s").drop_nulls()
    return total(timed["data_s"]) / (total(timed["whole"]) or 1.0) if timed.height else None


def _claims(steady: pl.DataFrame) -> dict[str, Any]:
    """The framework's own figures: medians over the steady windows.

    `logged_tgs_total` is a ratio of sums, as ours: tokens over time by the printed rates.
    """
    names = ("logged_tgs", "logged_tflops", "logged_mfu")
    finite = steady.with_columns(pl.when(pl.col(names).is_finite()).then(pl.col(names)))
    rated = finite.filter(pl.col("logged_tgs") > 0)
    seconds = total(rated["tokens"] / rated["logged_tgs"])
    ratio = total(rated["tokens"]) / seconds if seconds else None
    return {name: finite[name].median() for name in names} | {"logged_tgs_total": ratio}


def _token_basis(frame: pl.DataFrame, facts: dict[str, Any]) -> str:
    """non_padding where ranks count them, packed where samples have no padding, else slots."""
    if frame["rank_tokens"].null_count() < frame.height or (
        frame["step_tokens"].null_count() < frame.height
    ):
        return "non_padding"
    return "packed" if facts.get("packed") else "slots"


def _weighted(frame: pl.DataFrame, name: str) -> float | None:
    """Mean over the steps, weighted by tokens where they are known."""
    known = frame.filter(pl.col(name).is_not_null(), ~pl.col("first"))
    weights = known["tokens_per_gpu"].fill_null(1.0)
    return total(known[name] * weights) / total(weights) if known.height else None


def _warnings(
    frame: pl.DataFrame, run: dict[str, Any], evidence: str, row: dict[str, Any]
) -> list[str]:
    warnings = [*row["evidence_warnings"], *row["token_warnings"]]
    if evidence == "elapsed" and run["elapsed_excludes_data"] and frame["data_s"].is_null().all():
        warnings.append(
            "the logged step time leaves data loading out, and the log does not say how long that "
            "took: TGS is an upper bound: not ranked"
        )
    if evidence == "rate" and run["rate_covers"] == "step" and run["step_unit"] == "micro_step":
        warnings.append(
            "TGS is from single micro-steps as logged; tokens per step are not known: "
            "--set seq_len, micro_batch_size and packed for the mean over all of them"
        )
    return warnings


PADDED: Final = (
    "samples are padded and the log does not say how many tokens they hold: --set packed=true "
    "counts the padding"
)


def _no_rate(frame: pl.DataFrame, run: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Why there is no rate: what is missing, or that no clean window is left."""
    times = ("elapsed", "clock", "stamp")
    timed = any(frame[f"{time}_time"].null_count() < frame.height for time in times)
    needed: tuple[str, ...] = ("seq_len", "gpus", "global_batch_size")
    if run["step_unit"] == "micro_step":
        needed = ("seq_len", "micro_batch_size", "packed")
    missing = [name for name in needed if facts.get(name) is None]
    if facts.get("packed") is False:  # padded samples: a batch holds an unknown number of tokens
        missing.append("packed")
    uncounted = timed and frame["tokens_per_gpu"].is_null().all()
    if uncounted and missing:
        padded = [PADDED] if facts.get("packed") is False else []
        return {"throughput_missing": missing, "throughput_warnings": padded}
    reason = (
        "no clean window: all hold start-up, evaluation, a checkpoint or a profile"
        if frame.height > 1
        else "a single logged step, which holds start-up"
    )
    return {
        "throughput_warnings": [reason if timed or frame.height <= 1 else "no times in the log"]
    }
