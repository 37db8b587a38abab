"""The table of runs: what of their metrics it shows, and a name of its own for each.

Apart from reports.summary, so that it comes without what compares and explains.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from reports.tables import Formatter, count, decimal, joined, percent

Columns = dict[str, tuple[str, Formatter]]

RUN_COLUMNS: Final[Columns] = {
    "name": ("run", str),
    "log_format": ("format", str),
    "model": ("model", str),
    "gpus": ("GPUs", "{:,}".format),
    "seq_len": ("length", "{:,}".format),
    "precision": ("dtype", str),
    "steps": ("steps", "{:,}".format),
    "tgs": ("TGS", count),
    "tgs_end_to_end": ("TGS end to end", count),
    "mfu": ("MFU exact attention", percent),
    "mfu_full_attention": ("MFU full attention", percent),
    "logged_tflops": ("logged TFLOP/s", decimal),
    "logged_mfu": ("logged MFU", percent),
    "inferred": ("not said, inferred", joined),
    "outcome": ("outcome", str),
}


LEAST_OF_RUN: Final = (
    *("inferred", "logged_mfu", "steps", "tgs_end_to_end", "log_format", "mfu_full_attention"),
    *("precision", "seq_len", "logged_tflops", "model"),
)
"""What a narrow terminal does without, the first of it first."""


def labelled(metrics: pl.DataFrame) -> pl.DataFrame:
    """The runs, each with a name of its own, for tables that have no column for ids."""
    known = names(metrics)
    labels = [known[run_id] for run_id in metrics["run_id"]]
    return metrics.with_columns(pl.Series("name", labels, pl.String))


def names(metrics: pl.DataFrame) -> dict[str, str]:
    """A name of its own for each run_id: where several runs share one, the id stands behind it."""
    shared = set(metrics.filter(pl.col("name").is_duplicated())["name"])
    return {
        run_id: f"{name} [{run_id}]" if name in shared else str(name)
        for run_id, name in metrics.select("run_id", "name").iter_rows()
    }
