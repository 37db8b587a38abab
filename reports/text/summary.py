"""Terminal texts: comparisons, models, accelerators and formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from fairmfu.metrics.audit.formula_era import Era
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.formula import accelerators

from .claims_text import differences_text
from .runs_table import Columns, first_doubt, given_fact
from .tabular import (
    GIB,
    count,
    decimal,
    percent,
    printable,
    ratio,
    render_frame,
    wrapped,
)
from .unranked_rates import ratios_to_fastest
from .verdict import (
    PLAIN_STYLE,
    Style,
    Verdict,
    group_verdict,
    no_ranking_reason,
    pair_verdict,
    ranked_groups,
)
from .verdict import join_comparison as verdict_rows

if TYPE_CHECKING:
    from fairmfu.metrics.pipeline.analysis import Analysis
    from fairmfu.metrics.pipeline.compared_runs import ComparedRuns

SPEED_COLUMNS: Final[Columns] = {
    "rank": ("#", str),
    "name": ("run", str),
    "tgs": ("TGS", count),
    "ranked_rate": ("samples/s", count),
    "interval": ("95 % interval", str),
    "doubts": ("doubt", first_doubt),
    "relative_tgs": ("relative\nto best", percent),
    "mfu": ("MFU exact\nattention", percent),
    "mfu_full_attention": ("MFU full\nattention", percent),
    "flops_source": ("given\nFLOPs", given_fact),
    "logged_tflops": ("logged\nTFLOP/s", decimal),
    "logged_mfu": ("logged\nMFU", percent),
    "overstated": ("logged\n/ ours", ratio),
    "logged_rank": ("logged\nrank", str),
}


DROPPABLE_SPEED_COLUMNS: Final = (
    "logged_rank",
    "mfu_full_attention",
    "logged_mfu",
    "logged_tflops",
)
"""Columns that a narrow terminal omits, in this order."""


def _cost_columns(of: pl.DataFrame) -> Columns:
    price, tokens = of["price_per_gpu_hour"][0], of["equal_tokens"].drop_nulls().to_list()
    return {
        "name": ("run", str),
        "setup": ("setup", str),
        "gpu_hours_per_billion_tokens": ("GPU-h per\n1 billion tokens", decimal),
        "gpu_hours_per_billion_tokens_end_to_end": ("GPU-h\nend to end", decimal),
        "cost_per_billion_tokens": (f"cost at\n{price} / GPU-h", "{:,.2f}".format),
        "kwh_per_billion_tokens": ("kWh per\n1 billion tokens", decimal),
        "tgs_at_equal_flops": ("TGS at equal\nFLOPs/token", count),
        "seconds_per_step": ("s a\nstep", "{:.3g}".format),
        "tokens_per_update": ("tokens per\nupdate", count),
        "peak_memory_bytes": ("peak\nGiB", lambda memory: f"{memory / GIB:.1f}"),
        "loss_at_equal_tokens": (
            f"loss at\n{f'{tokens[0]:,.0f} tokens' if tokens else 'equal steps'}",
            "{:#.4g}".format,
        ),
    }


DROPPABLE_COST_COLUMNS: Final = ("peak_memory_bytes", "tokens_per_update", "seconds_per_step")
"""Columns that a narrow terminal omits, in this order."""


def _filled(columns: Columns, of: pl.DataFrame) -> Columns:
    """Return the columns without empty or redundant ones."""
    empty = {name for name in columns if of[name].null_count() == of.height}
    if "doubts" in columns and not of["doubts"].list.len().sum():
        empty.add("doubts")
    if of["logged_tflops"].null_count() < of.height:
        empty.add("logged_mfu")
    if of["tgs"].null_count() < of.height:
        empty.add("ranked_rate")
    if of.height == 1:
        empty |= {"rank", "relative_tgs", "logged_rank"}
    if (of["repeats"] == 1).all():
        empty.add("setup")
    return {name: how for name, how in columns.items() if name not in empty}


def comparison_rows(
    analysis: Analysis | ComparedRuns, metrics: pl.DataFrame, comparison: pl.DataFrame
) -> list[ComparisonRow]:
    """Return rows of verdict.join_comparison for the comparison of chosen metrics."""
    bridges = analysis.bridges_of(metrics["run_id"].to_list())
    return verdict_rows(metrics, comparison, bridges, analysis.metrics)


def verdict_sentences(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return the verdict of each group, or of two runs of different groups.

    Fit for a terminal.
    """
    if (two := unranked_pair(rows)) is not None:
        return [printable(" ".join([two.says, *two.notes]))]
    told = [printable(_headed(group, group_verdict(group).says)) for group in ranked_groups(rows)]
    return told or [
        *map(printable, ratios_to_fastest(rows)),
        " ".join(no_ranking_reason(rows)),
    ]


def _headed(group: Sequence[ComparisonRow], says: str) -> str:
    made_up = " (synthetic)" if any(row["synthetic"] for row in group) else ""
    return f"{group[0]['group']}{made_up}: {says}"


def unranked_pair(rows: Sequence[ComparisonRow], style: Style = PLAIN_STYLE) -> Verdict | None:
    """Return the verdict on two runs that cannot be ranked; None for other rows."""
    if len(rows) != 2 or rows[1]["rank"] == 2:  # noqa: PLR2004 - a pair, and of one group
        return None
    one, other = sorted(rows, key=lambda row: int(row["place"]))
    return pair_verdict(one, other, style)


def add_verdicts(comparison: pl.DataFrame, rows: Sequence[ComparisonRow]) -> pl.DataFrame:
    """Add to the comparison each run's group verdict and notes, for programs."""
    told = {str(group[0]["group"]): group_verdict(group) for group in ranked_groups(rows)}
    two = unranked_pair(rows)
    said = [two or told.get(str(group)) for group in comparison["group"]]
    return comparison.with_columns(
        pl.Series("verdict", [one.says if one else None for one in said], pl.String),
        pl.Series("notes", [list(one.notes) if one else [] for one in said], pl.List(pl.String)),
    )


def show_comparison(
    comparison: pl.DataFrame, rows: Sequence[ComparisonRow], output: str = "table"
) -> str:
    """Return two tables and notes per group, then runs without a rank, with reasons."""
    two = unranked_pair(rows)  # its sentence already names the differences
    groups = {str(group[0]["group"]): group for group in ranked_groups(rows)}
    blocks = []
    for label, tables in comparison_frames(comparison, rows, output).items():
        if label is None:
            blocks.append("\n".join(["\nNot ranked", *tables]))
            continue
        group = groups[label]
        made_up = " [synthetic]" if any(row["synthetic"] for row in group) else ""
        blocks.append(f"\n{printable(label)}{made_up}\n" + "\n\n".join(tables))
        notes = () if two else group_verdict(group).notes
        blocks += [wrapped(f"- {printable(note)}") for note in notes]
        if differs := group[0]["differs"]:
            blocks.append(wrapped(f"- {printable(differences_text(differs))}"))
    return "\n".join(blocks).strip("\n")


def comparison_frames(
    comparison: pl.DataFrame, rows: Sequence[ComparisonRow], output: str
) -> dict[str | None, list[str]]:
    """Return the tables by group; None: the table of runs without a rank."""
    labels = {row["run_id"]: row["label"] for row in rows}
    names = pl.Series([labels[run_id] for run_id in comparison["run_id"]], dtype=pl.String)
    tables: dict[str | None, list[str]] = {}
    for (group,), of in comparison.with_columns(name=names).group_by("group", maintain_order=True):
        if group is None:
            tables[None] = [_apart(of, output)]
            continue
        shown = _with_ratios(of)
        tables[str(group)] = [
            render_frame(
                shown, output, _filled(SPEED_COLUMNS, shown), droppable=DROPPABLE_SPEED_COLUMNS
            ),
            render_frame(
                shown,
                output,
                _filled(_cost_columns(shown), shown),
                droppable=DROPPABLE_COST_COLUMNS,
            ),
        ]
    return tables


def _with_ratios(of: pl.DataFrame) -> pl.DataFrame:
    """Add `interval` as text, and `overstated`: logged TFLOP/s over ours, if logged."""
    low, high = (
        pl.col(c).map_elements(count, return_dtype=pl.String) for c in ("ranked_low", "ranked_high")
    )
    return of.with_columns(
        interval=pl.format("{} to {}", low, high),
        overstated=pl.col("logged_tflops") / pl.col("tflops"),
    )


def _apart(of: pl.DataFrame, output: str) -> str:
    shown = of.with_columns(why=pl.col("not_ranked").list.join("; "))
    columns: Columns = {"name": ("run", str), "tgs": ("TGS", count), "why": ("reason", str)}
    return render_frame(shown, output, columns)


DROPPABLE_ERA_COLUMNS: Final = ("source", "versions", "formats")
"""Columns that a narrow terminal omits, in this order."""


def era_table(eras: Sequence[Era]) -> pl.DataFrame:
    """Return the formulas of a framework's versions, with date and commit."""
    return pl.DataFrame(
        [
            {
                "own formula": era.name,
                "formats": ", ".join(era.log_formats),
                "since": era.since,
                "until": era.until,
                "versions": ", ".join(era.versions),
                "FLOPs per token": era.formula,
                "source": f"{era.repo} {era.path}@{era.commit}",
            }
            for era in eras
        ]
    )


# -- the support tables ------------------------------------------------------------------------


def format_table(rows: Sequence[Mapping[str, str]]) -> pl.DataFrame:
    """Return formats and the versions that print them."""
    return pl.DataFrame(list(rows))


MODEL_COLUMNS: Final[Columns] = {
    "model": ("model", str),
    "layers": ("layers", "{:,}".format),
    "hidden_size": ("hidden size", "{:,}".format),
    "params_total": ("parameters", "{:,}".format),
    "params_active": ("active", "{:,}".format),
    "params_tower": ("vision tower", "{:,}".format),
}

DROPPABLE_MODEL_COLUMNS: Final = ("hidden_size",)
"""Columns that a narrow terminal omits."""


def model_table() -> pl.DataFrame:
    """Return built-in models with their parameters, those of a vision tower included."""
    from fairmfu.metrics.formula.model_shapes import known_models  # noqa: PLC0415 - imports much
    from fairmfu.metrics.formula.vision import find_tower  # noqa: PLC0415 - imports much

    towers = {shape.name: find_tower(shape.name) for shape in known_models()}
    seeing = {name: None if tower is None else tower.params_total for name, tower in towers.items()}
    return pl.DataFrame(
        [
            {
                "model": shape.name,
                "layers": shape.layer_count,
                "hidden_size": shape.hidden_size,
                "params_total": shape.params_total + (seeing[shape.name] or 0),
                "params_active": shape.params_active + (seeing[shape.name] or 0),
                "params_tower": seeing[shape.name],
            }
            for shape in known_models()
        ],
        schema_overrides={"params_tower": pl.Int64},
    )


PEAKS: Final = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")

ACCELERATOR_COLUMNS: Final[Columns] = {
    "accelerator": ("accelerator", str),
    "unit": ("unit", str),
    **{dtype: (f"{dtype}\nTFLOP/s", "{:,.1f}".format) for dtype in PEAKS},
    "also": ("also", str),
    "confidence": ("confidence", str),
    "source": ("source", str),
}

DROPPABLE_PEAK_COLUMNS: Final = ("source", "confidence", "also", "unit")
"""Columns that a narrow terminal omits, in this order."""


def accelerator_table(overlay: Sequence[accelerators.Accelerator] = ()) -> pl.DataFrame:
    """Return dense peaks [TFLOP/s] by precision, with source; user-defined ones first."""
    return pl.DataFrame(
        [
            {"accelerator": a.name, "unit": a.unit}
            | {d: a.peaks[d] / 1e12 if d in a.peaks else None for d in PEAKS}
            | {"also": ", ".join(a.names), "confidence": a.confidence, "source": a.source}
            for a in (*overlay, *accelerators.all_accelerators())
        ]
    )
