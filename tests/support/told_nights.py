"""Nights of made-up series, of which all that is to be told is known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from fairmfu.metrics.compare.history import (
    CHANGE_SCHEMA,
    POINT_SCHEMA,
    SERIES_SCHEMA,
    UNPLACED_SCHEMA,
)
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.nightly.night_report import SOURCE_SCHEMA, Night

NOW = datetime(2026, 3, 14, 5, 41, tzinfo=UTC)
FORMULA = "fairmfu-1"

RATES = {"torchtitan": 5_830.0, "xtuner": 5_410.0, "deepspeed": 4_920.0}
MODELS = ("llama3-8b", "qwen3-32b", "llama3-70b", "mixtral-8x7b")


def a_series(  # noqa: PLR0913
    framework="torchtitan",
    model="llama3-8b",
    gpus=8,
    *,
    nights=100,
    steps=(),
    upgrades=(),
    formulas=(FORMULA,),
    name="",
    baseline=None,
    suspect=False,
    seed=0,
    noise=0.004,
    counts=True,
    new=None,
    setups=(),
):
    """Rows of one series by table, nightly until `NOW`.

    steps: (nights ago, ratio); upgrades: (nights ago, mark); baseline: ratio of the level to it;
    new: whether its changes are told tonight for the first time, by default where 3 nights old.
    """
    random = np.random.default_rng([seed, nights, len(framework), len(model), gpus])
    series = f"{framework}, {model}, 8,192 tokens, {gpus} x NVIDIA H100 SXM, bf16"
    last = NOW.replace(tzinfo=None) - timedelta(hours=3)
    ats = [last - timedelta(days=nights - 1 - n) for n in range(nights)]
    starts = [nights - 1 - ago for ago, _ in steps]
    segment = np.searchsorted(starts, np.arange(nights), side="right")
    level = RATES.get(framework, 5_000.0) * 8 / gpus * 0.98 ** MODELS.index(model)
    levels = level * np.cumprod([1.0, *(ratio for _, ratio in steps)])
    tgs = levels[segment] * (1 + noise * random.standard_normal(nights))
    outlier = random.random(nights) < 0.01
    outlier[-1] = suspect
    tgs[outlier] *= 0.94
    marks = [[] for _ in range(nights)]
    for ago, mark in upgrades:
        marks[nights - 1 - ago].append(mark)
    short = name or f"{framework}-{model}-{gpus}"
    by = [formulas[n * len(formulas) // nights] for n in range(nights)]
    points = [
        {
            "series": series,
            "run_id": f"{short}-{n:04}",
            "name": f"{short}-{ats[n]:%m%d}",
            "at": ats[n],
            "dated": True,
            "tgs": tgs[n],
            "tgs_low": tgs[n] * 0.998,
            "tgs_high": tgs[n] * 1.002,
            "mfu": tgs[n] * 6.6e-5 * gpus / 8 * (1 + 0.02 * formulas.index(by[n])),
            "mfu_full_attention": tgs[n] * 7e-5 * gpus / 8,
            "formula": by[n],
            "peaks": "a1b2c3d4",
            "outcome": "completed",
            "synthetic": False,
            "marks": marks[n],
            "segment": int(segment[n]),
            "level": levels[segment[n]],
            "outlier": bool(outlier[n]),
        }
        for n in range(nights)
    ]
    changes = [
        {
            "series": series,
            "against": "history",
            "kind": "regression" if ratio < 1 else "improvement",
            "at": points[start]["at"],
            "run_id": points[start]["run_id"],
            "last_before": points[start - 1]["run_id"],
            "found_at": points[min(start + 2, nights - 1)]["at"],
            "found_by": points[min(start + 2, nights - 1)]["run_id"],
            "before": levels[i],
            "after": levels[i + 1],
            "ratio": ratio,
            "ratio_low": ratio - 0.005,
            "ratio_high": ratio + 0.005,
            "points_after": nights - start,
            "causes": marks[start],
            "counts": counts,
            "new": (nights - start <= 3) if new is None else new,
        }
        for i, (start, (_, ratio)) in enumerate(zip(starts, steps, strict=True))
    ]
    pinned = {}
    if baseline is not None:
        pinned = {
            "baseline_run": points[0]["run_id"],
            "baseline_tgs": levels[-1] / baseline,
            "against_baseline": baseline,
            "against_low": baseline - 0.004,
            "against_high": baseline + 0.004,
        }
        if baseline < 0.99:
            changes.append(
                {
                    **dict.fromkeys(CHANGE_SCHEMA),
                    "series": series,
                    "against": "baseline",
                    "kind": "regression",
                    "at": points[starts[-1]]["at"],
                    "run_id": points[starts[-1]]["run_id"],
                    "last_before": points[0]["run_id"],
                    "before": levels[-1] / baseline,
                    "after": levels[-1],
                    "ratio": baseline,
                    "ratio_low": baseline - 0.004,
                    "ratio_high": baseline + 0.004,
                    "points_after": nights - starts[-1],
                    "causes": [],
                    "counts": True,
                    "new": False,
                }
            )
    state = "new" if nights < 5 else "suspect" if suspect else "steady"
    if steps and not suspect:
        state = "regressed" if steps[-1][1] < 1 else "improved"
    row = {
        "series": series,
        "framework": framework,
        "model": model,
        "gpus": gpus,
        "points": nights,
        "nights": nights,
        "first_at": ats[0],
        "last_at": ats[-1],
        "level": levels[-1],
        "level_low": levels[-1] * 0.999,
        "level_high": levels[-1] * 1.001,
        "spread": noise,
        "mfu": points[-1]["mfu"],
        "last_run": points[-1]["run_id"],
        "last_tgs": tgs[-1],
        "last_ratio": tgs[-1] / levels[-1],
        "suspect": suspect,
        "formulas": list(dict.fromkeys(by)),
        "peaks": ["a1b2c3d4"],
        "setups": list(setups),
        "state": state,
        **pinned,
    }
    return {"series": [row], "points": points, "changes": changes}


def many(nights=365, but=()):
    """20 series that no change befell, but those given."""
    names = [(f, m, g) for g in (8, 64) for m in MODELS for f in RATES][:20]
    given = {key: a_series(*key, nights=nights, seed=i) for i, key in enumerate(names)}
    for rows in but:
        row = rows["series"][0]
        given[row["framework"], row["model"], row["gpus"]] = rows
    return list(given.values())


def a_night(*series, runs=(), sources=(), unplaced=(), number=365, **more):
    """A night of these series, each of which ran."""
    tables = {t: [row for one in series for row in one[t]] for t in ("series", "points", "changes")}
    lasts = {row["last_run"] for row in tables["series"]}
    tonight = [
        {**row, "framework": row["series"].split(", ")[0], "synthetic": row["synthetic"]}
        for row in tables["points"]
        if row["run_id"] in lasts
    ]
    given = {
        "title": "Nightly, GPU cluster",
        "at": NOW,
        "number": number,
        "series": frame(SERIES_SCHEMA, tables["series"]),
        "points": frame(POINT_SCHEMA, tables["points"]),
        "changes": frame(pl.Schema({**CHANGE_SCHEMA, "new": pl.Boolean}), tables["changes"]),
        "unplaced": frame(UNPLACED_SCHEMA, unplaced),
        "tonight": frame(METRICS, [*tonight, *runs]),
        "sources": frame(SOURCE_SCHEMA, [{"new": True} | row for row in sources]),
        "formula": FORMULA,
        "version": "1.2.3",
    }
    return Night(**given | more)


def frame(schema: pl.Schema, rows: Sequence[dict]) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


DROP = a_series(
    nights=365, steps=((2, 0.949),), upgrades=((2, "version 0.2.1 -> 0.2.2"),), baseline=0.949
)
RISE = a_series("xtuner", nights=365, steps=((40, 1.05),), upgrades=((40, "PyTorch 2.8 -> 2.9"),))
FELL = a_series("deepspeed", "qwen3-32b", nights=365, steps=((200, 1.04), (90, 0.93)))
BACK = a_series("deepspeed", nights=365, steps=((200, 0.9), (90, 1 / 0.9)))
DOUBT = a_series("xtuner", "llama3-70b", nights=365, suspect=True)


def regression(**more):
    return a_night(*many(but=(DROP, RISE, FELL, BACK, DOUBT)), **more)


def crashed(name="titan-oom", outcome="out_of_memory", text="CUDA out of memory"):
    return {
        "run_id": name,
        "name": name,
        "framework": "torchtitan",
        "synthetic": False,
        "outcome": outcome,
        "outcome_text": text,
    }
