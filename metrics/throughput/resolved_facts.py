"""Resolve facts to one value per run and name, and report disagreements.

    flag > sidecar > log > companion file > inferred

Of two facts with the same kind of origin, the later wins. Losing facts are kept and shown.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import FACT_NAMES, TOKEN_SHARING_DEGREES

from ..core.messages import Message, MessageKind
from ..formula import accelerators
from . import messages

ORIGIN_PRECEDENCE: Final = ("flag", "sidecar", "log", "companion", "inferred")
USER_ORIGIN_PATTERN: Final = "^(?:flag|sidecar)"
"""Origins of facts given by a user, whatever the log states."""

SETUP_FACTS: Final = (
    "gpus",
    "global_batch_size",
    "micro_batch_size",
    "gradient_accumulation",
    "replicas",
    "replica_groups",
    *TOKEN_SHARING_DEGREES,
    "expert_parallel",
    "zero_stage",
)
"""Whole numbers that describe a run's batch and its distribution over GPUs."""

DEFAULT_OBJECTIVE: Final = "language_modeling"
"""Objective of a log that states none."""

NONSTANDARD_OBJECTIVES: Final = {
    "preference": messages.PREFERENCE_STEPS,
    "reinforcement": messages.REINFORCEMENT_STEPS,
}
"""Objectives with steps other than a forward and a backward pass over their samples."""


def nonstandard_work(objective: str | None) -> MessageKind | None:
    """Return what steps of an objective are; None if standard or unstated."""
    return NONSTANDARD_OBJECTIVES.get(objective or DEFAULT_OBJECTIVE)


_COMPARABLE: Final = [
    name
    for name, known in FACT_NAMES.items()
    if known.kind in ("int", "float", "bool") or known.choices or name == "accelerator"
]
_DTYPES: Final = {"int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean}


def resolve_facts(facts: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run and name, sorted by both.

    Columns: run_id, name, value, origin, line, text.
    """
    kind = pl.col("origin").str.extract(r"^(\w+)")
    rank = kind.replace_strict(
        {k: i for i, k in enumerate(ORIGIN_PRECEDENCE)}, return_dtype=pl.Int64
    )
    return (
        facts.with_columns(rank=rank)
        .sort("run_id", "name", "rank", pl.col("sequence").neg())
        .unique(["run_id", "name"], keep="first", maintain_order=True)
        .select("run_id", "name", "value", "origin", "line", "text")
        .pipe(_with_uncast)
    )


def _with_uncast(resolved: pl.DataFrame) -> pl.DataFrame:
    """Replace the precision of runs without casts by the dtype of their weights.

    A precision given by a user stays.
    """
    uncast = resolved.filter(name="mixed_precision", value="none")
    if uncast.is_empty():
        return resolved
    by_hand = pl.col("origin").str.contains(USER_ORIGIN_PATTERN)
    named = resolved.filter((pl.col("name") == "precision") & ~by_hand)
    weights = resolved.filter(name="weights_precision").select("run_id", weights="value")
    changed = (
        uncast.join(named, on="run_id", how="semi")
        .join(weights, on="run_id", how="left")
        .with_columns(name=pl.lit("precision"), value=pl.col("weights").fill_null("fp32"))
    )
    return resolved.update(changed.drop("weights"), on=["run_id", "name"])


def logged_values(facts: pl.DataFrame) -> dict[str, set[tuple[str, str]]]:
    """Return the (name, value) of each fact stated by the log, by run_id.

    Facts given by a user do not replace the log's.
    """
    said = facts.filter(pl.col("origin").str.starts_with("log"))
    found: dict[str, set[tuple[str, str]]] = {}
    for run_id, name, value in said.select("run_id", "name", "value").iter_rows():
        found.setdefault(run_id, set()).add((name, value))
    return found


def typed_facts(resolved: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run, one column per name of FACT_NAMES, null if not stated.

    Numbers and booleans have their dtype; a text that is no number becomes null.
    """
    runs = resolved.select(pl.col("run_id").unique().sort())
    named = resolved.filter(pl.col("name").is_in(list(FACT_NAMES)))
    wide = named.pivot("name", index="run_id", values="value") if named.height else runs
    said = frozenset(wide.columns)
    typed = (_cast(name) if name in said else _unsaid(name) for name in FACT_NAMES)
    return wide.select("run_id", *typed).sort("run_id")


def _unsaid(name: str) -> pl.Expr:
    return pl.lit(None, _DTYPES.get(FACT_NAMES[name].kind, pl.String)).alias(name)


def _cast(name: str) -> pl.Expr:
    kind = FACT_NAMES[name].kind
    column = pl.col(name)
    if kind == "bool":
        return column.str.to_lowercase().replace_strict(
            {"true": True, "false": False}, default=None, return_dtype=pl.Boolean
        )
    if kind in _DTYPES:
        number = column.cast(pl.Float64, strict=False)
        return number.cast(_DTYPES[kind], strict=False).alias(name)
    return column


def conflicting_facts(facts: pl.DataFrame) -> dict[str, list[Message]]:
    """Warn, by run_id, where log, companion files or users give different values."""
    found: dict[str, list[Message]] = {}
    for run_id, difference in _unlike(facts).iter_rows():
        found.setdefault(run_id, []).append(messages.FACTS_DIFFER(difference=difference))
    for run_id, models in _unlike_models(facts).iter_rows():
        found.setdefault(run_id, []).append(messages.SEVERAL_MODELS(models=models))
    return found


CONFLICT_SCHEMA: Final = pl.Schema({"run_id": pl.String(), "values": pl.String()})


def _unlike_models(facts: pl.DataFrame) -> pl.DataFrame:
    """Find logs with several models, such as a teacher: CONFLICT_SCHEMA."""
    models = facts.filter(pl.col("name") == "model_config", pl.col("origin").str.starts_with("log"))
    if models["run_id"].is_unique().all():
        return CONFLICT_SCHEMA.to_frame()
    config = [pl.col("value").str.json_path_match(f"$.{key}") for key in MODEL_IDENTITY_KEYS]
    said = pl.format("{} of {} layers, {} wide, {} words", *(one.fill_null("?") for one in config))
    return (
        models.sort("run_id", "sequence")
        .select("run_id", said=said)
        .unique(keep="last", maintain_order=True)
        .group_by("run_id", maintain_order=True)
        .agg("said")
        .filter(pl.col("said").list.len() > 1)
        .select("run_id", values=pl.col("said").list.join("; "))
    )


MODEL_IDENTITY_KEYS: Final = ("model_type", "num_hidden_layers", "hidden_size", "vocab_size")
"""Keys of a Hugging Face config that distinguish models here."""


def _unlike(facts: pl.DataFrame) -> pl.DataFrame:
    """Find facts with different values, compared as given: CONFLICT_SCHEMA."""
    said = facts.filter(
        ~pl.col("origin").str.starts_with("inferred"), pl.col("name").is_in(_COMPARABLE)
    )
    said = said.filter(pl.struct("run_id", "name").is_duplicated())
    if said.is_empty():
        return CONFLICT_SCHEMA.to_frame()
    devices = said.filter(pl.col("name") == "accelerator")["value"].unique()
    same = {name: _device(name) for name in devices}
    return (
        said.with_columns(
            folded=pl.when(pl.col("name") == "accelerator")
            .then(pl.col("value").replace(same))
            .otherwise(pl.col("value").str.to_lowercase())
        )
        .sort("run_id", "name", "sequence")
        .unique(["run_id", "name", "folded"], keep="last", maintain_order=True)
        .group_by("run_id", "name", maintain_order=True)
        .agg(pl.format("{} ({})", "value", "origin").alias("said"), n=pl.len())
        .filter(pl.col("n") > 1)
        .select("run_id", values=pl.format("{}: {}", "name", pl.col("said").list.join(" against ")))
    )


def _device(name: str) -> str:
    """Return the canonical name of an accelerator, from any of its names."""
    try:
        return accelerators.find_accelerator(name).name
    except accelerators.UnknownAcceleratorError:
        return accelerators.normalise_name(name)
