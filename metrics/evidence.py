"""Two kinds of time evidence side by side: how far they are apart, and why.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from metrics.windows import DISAGREEMENT, clean, total


def likely_cause(gap: float) -> str:
    """An integer factor between two counts of tokens is a degree that was not known."""
    for times, word in ((1 + gap, "many"), (1 / (1 + gap) if gap > -1 else 0, "few")):
        whole = round(times)
        if whole > 1 and abs(times / whole - 1) < DISAGREEMENT:
            return (
                f"as if tokens per step were {whole}x too {word} "
                "(tensor_parallel, pipeline_parallel, context_parallel or gradient_accumulation?)"
            )
    return "without a known cause"


def explained(run: dict[str, Any], evidence: str) -> bool:
    """Whether a gap to the stamps is how the format counts, so that the stamps need not agree."""
    return evidence == "rate" and (run["rate_excludes_data"] or run["rate_covers"] == "step")


def gap_to_stamps(frame: pl.DataFrame, evidence: str) -> float | None:
    """TGS by stamps over TGS by `evidence`, less 1, over the windows clean under both."""
    if evidence == "stamp":
        return None
    mine, stamps = clean(frame, evidence), clean(frame, "stamp")
    both = mine.join(stamps.select("step", t="tokens", s="seconds"), on="step")
    both = both.filter(pl.col(f"{evidence}_span") == pl.col("stamp_span"))
    if not both["s"].sum() or both["tokens_per_gpu"].null_count():
        return None
    rate = total(both["tokens"]) / total(both["seconds"])
    return total(both["t"]) / total(both["s"]) / rate - 1


def tolerance(frame: pl.DataFrame) -> float:
    """The allowed gap, widened by a stamp's resolution of one second where it has no fraction."""
    stamps = frame["logged_at"].drop_nulls()
    whole = bool((stamps.dt.microsecond() == 0).all())
    seconds = total(frame["stamp_time"]) or 1.0
    return DISAGREEMENT + (2.0 / seconds if whole else 0.0)
