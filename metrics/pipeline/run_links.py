"""Links between runs that may be sources of one launch, from kept metrics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import TEXT

LINK_SCHEMA: Final = pl.Schema({"one": TEXT, "other": TEXT})


def kept_links(kept_rows: pl.DataFrame) -> pl.DataFrame:
    """Return stored pairs of runs that may be of one launch, as LINK_SCHEMA."""
    parts = [
        kept_rows.select(one="run_id", other=name)
        .filter(pl.col("other").list.len() > alone)
        .explode("other")
        for name, alone in (("members", 1), ("related", 0))
    ]
    return pl.concat(parts).filter(pl.col("one") != pl.col("other"))


def linked_runs(kept: pl.DataFrame, ids: Collection[str]) -> set[str]:
    """Return these runs, and all that may be of their launches.

    kept: columns of KEPT_SCHEMA
    """
    return reached_runs(ids, kept_links(kept))


def reached_runs(ids: Collection[str], links: pl.DataFrame) -> set[str]:
    """Return these runs and all runs linked to them, in both directions."""
    both_ways = pl.concat([links, links.select(one="other", other="one")])
    return led_to(ids, both_ways)


def led_to(ids: Collection[str], links: pl.DataFrame) -> set[str]:
    """Return these runs and all reached by following links from `one` to `other`."""
    reached, news = set(ids), set(ids)
    while news and links.height:
        targets = links.filter(pl.col("one").is_in(list(news)))["other"]
        news = set(targets) - reached
        reached |= news
    return reached
