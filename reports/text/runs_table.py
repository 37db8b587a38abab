"""Table of runs: columns of metrics, and unique names.

Separate from reports.text.summary, so that the table loads without comparing and explaining.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Final

import polars as pl

from fairmfu.metrics.core.run_table import MetricsRow, short_doubt

from .tabular import Formatter, count, decimal, join_values, percent

NO_RUN_CHOSEN: Final = "No run fulfils the condition of --where."
NO_RUN_REMEDY: Final = "Fix: change the condition, or list all runs with: fairmfu runs"

Columns = dict[str, tuple[str, Formatter]]


def first_doubt(doubts: Sequence[str]) -> str:
    """Return the first doubt about a figure, for a cell beside the figure."""
    return short_doubt(doubts) or ""


def given_fact(source: str) -> str:
    """Return the fact that gives FLOPs, without its origin."""
    return source.partition(" (")[0].removeprefix("given: ")


RUN_COLUMNS: Final[Columns] = {
    "name": ("run", str),
    "log_format": ("format", str),
    "model": ("model", str),
    "gpus": ("GPUs", "{:,}".format),
    "seq_len": ("seq_len", "{:,}".format),
    "precision": ("precision", str),
    "steps": ("steps", "{:,}".format),
    "tgs": ("TGS", count),
    "seconds_per_step": ("s a step", "{:.3g}".format),
    "samples_per_second": ("samples/s", count),
    "doubts": ("doubt", first_doubt),
    "tgs_end_to_end": ("TGS end to end", count),
    "mfu": ("MFU exact attention", percent),
    "mfu_language_model": ("MFU without vision tower", percent),
    "mfu_full_attention": ("MFU full attention", percent),
    "flops_source": ("given FLOPs", given_fact),
    "logged_tflops": ("logged TFLOP/s", decimal),
    "logged_mfu": ("logged MFU", percent),
    "inferred": ("inferred facts", join_values),
    "outcome": ("outcome", str),
}


DROPPABLE_RUN_COLUMNS: Final = (
    *("inferred", "logged_mfu", "steps", "tgs_end_to_end", "log_format", "mfu_full_attention"),
    "mfu_language_model",
    *("precision", "seq_len", "logged_tflops", "model", "samples_per_second", "seconds_per_step"),
    "flops_source",
)
"""Columns that a narrow terminal omits, in this order."""


def columns_of_runs(metrics: pl.DataFrame) -> Columns:
    """Return RUN_COLUMNS without useless ones.

    Doubts, MFU without a vision tower and given FLOPs only if there are any; rates without tokens
    only if they replace an unknown TGS.
    """
    unknown = metrics.filter(pl.col("tgs").is_null())
    useless = {"doubts"} if not metrics["doubts"].list.len().sum() else set()
    useless |= {
        name for name in ("mfu_language_model", "flops_source") if not metrics[name].count()
    }
    useless |= {
        name for name in ("seconds_per_step", "samples_per_second") if not unknown[name].count()
    }
    return {name: how for name, how in RUN_COLUMNS.items() if name not in useless}


def labelled(metrics: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """Return the runs with unique names, for tables without a column for ids.

    stored: metrics of all runs, so that each name alone chooses its run in other commands
    """
    known = unique_names(stored)
    labels = [known[run_id] for run_id in metrics["run_id"]]
    return metrics.with_columns(pl.Series("name", labels, pl.String))


def unique_names(metrics: pl.DataFrame) -> dict[str, str]:
    """Return a unique name per run_id: the name of several runs gets the id appended.

    So does a name that no terminal shows as it is: each label chooses its run in other commands.
    """
    shared = set(metrics.filter(pl.col("name").is_duplicated())["name"])
    return {
        run_id: f"{name} [{run_id}]" if name in shared or not name.isprintable() else str(name)
        for run_id, name in metrics.select("run_id", "name").iter_rows()
    }


def run_doubts(rows: Iterable[MetricsRow], *, missing: bool = True) -> list[str]:
    """Return the doubts about runs, a sentence per doubt, then a hint on facts.

    rows: metrics with unique names; missing: also the facts that each run lacks. Sentences of many
        runs with different figures alone are merged, with ranges from the least to the most.
    """
    said: dict[str, list[str]] = {}
    lacking = False
    for row in rows:
        lacking |= bool(row["missing"])
        lacks = [f"missing {', '.join(row['missing'])}"] if missing and row["missing"] else []
        for words in (*lacks, *row["warnings"]):
            said.setdefault(words, []).append(row["name"])
    alike: dict[str, list[str]] = {}
    for words in said:
        alike.setdefault(STANDALONE_NUMBER.sub("0", words), []).append(words)
    told = []
    for kind in alike.values():
        if len(kind) <= MAX_LISTED_RUNS:
            told += [f"{_few(said[words])}: {words}" for words in kind]
        else:
            every = list(dict.fromkeys(run for words in kind for run in said[words]))
            told.append(f"{_few(every)}: {_merged(kind)}; for one run: fairmfu explain RUN)")
    return [*told, *([SET_FACTS_HINT if missing else MISSING_FACTS_HINT] if lacking else [])]


def _few(runs: Sequence[str]) -> str:
    shown = runs if len(runs) <= MAX_LISTED_RUNS else [*runs[:2], f"{len(runs) - 2:,} more runs"]
    return ", ".join(shown)


def _merged(kind: Sequence[str]) -> str:
    """Merge sentences that differ only in figures, open for one more clause.

    Ranges show how bad the worst is. With more ranges than a reader can follow, the sentence ends
    before the first, if it says anything there.
    """
    words = STANDALONE_NUMBER.split(kind[0])
    spans = [
        ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"
        for ends in (
            sorted(of, key=_number)
            for of in zip(*map(STANDALONE_NUMBER.findall, kind), strict=True)
        )
    ]
    parts = list(chain.from_iterable(zip_longest(words, spans, fillvalue="")))
    ranges = [at for at, part in enumerate(parts) if at % 2 and " to " in part]
    if len(ranges) > MAX_RANGES:
        before = CLAUSE_END.split("".join(parts[: ranges[0]]))[:-1]
        if before:
            fix = "".join(parts).partition(" Fix: ")
            return f"{before[0]}.{fix[1]}{fix[2]} (figures differ"
    return f"{''.join(parts)} (figures are ranges over these runs"


def _number(figure: str) -> float:
    return float(figure.replace(",", ""))


STANDALONE_NUMBER: Final = re.compile(r"(?<![\w'.-])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w'-]|\.\d)")
"""Number that is a word of a sentence, not part of a name."""

MAX_LISTED_RUNS: Final = 3
"""Most runs named for one message, before they are counted; and most similar messages."""

MAX_RANGES: Final = 4
CLAUSE_END: Final = re.compile(r"[.:;,] ")

SET_FACTS_HINT: Final = (
    "See which facts give most runs an MFU with: fairmfu missing. Give them with: fairmfu set RUN "
    "NAME=VALUE"
)
MISSING_FACTS_HINT: Final = "List missing facts with: fairmfu runs"
