"""Ranks as text, and the node of each rank.

Files or folders with lines of several ranks show the nodes. Otherwise, nodes are blocks of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

RANKS_PER_NODE: Final = 8
"""Ranks of a node where the log does not show its nodes: GPUs of common servers."""
NODE_WORD: Final = re.compile(r"(?i)node[-_.]?(?=\d+$)")
"""Word before the number of a node, as in `node_1.txt` of torchrun."""
MIN_RUN: Final = 3
"""Fewest neighbours that are written as a range."""


def rank_order(rank: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a sort key of a rank as printed: numbers as numbers, `1:10` after `1:9`."""
    parts = rank.split(":")
    return tuple((not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts)


def ranks_text(ranks: Sequence[str]) -> str:
    """Return ranks as text, neighbours as a range: `3`, `8 to 11`, `3, 5 and 8 to 11`.

    ranks: in order
    """
    parts: list[list[str]] = []
    for rank in ranks:
        if parts and _follows(parts[-1][-1], rank):
            parts[-1].append(rank)
        else:
            parts.append([rank])
    told = [
        text
        for part in parts
        for text in ([f"{part[0]} to {part[-1]}"] if len(part) >= MIN_RUN else part)
    ]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"


def _follows(rank: str, after: str) -> bool:
    return rank.isdecimal() and after.isdecimal() and int(after) == int(rank) + 1


def nodes_of_ranks(ranks: Sequence[str], paths: Mapping[str, str]) -> dict[str, str]:
    """Return the node of each rank; empty if they are unknown, or only one.

    Files or folders show the nodes if each holds several neighbouring ranks, such as `node_1.txt`
    or `gpu-07/rank8.log`. Otherwise a node has RANKS_PER_NODE ranks.

    ranks: all ranks of the run, in order; paths: file of each rank, as far as known
    """
    parts = [PurePath(paths[rank]).parts for rank in ranks if rank in paths]
    if len(parts) == len(ranks):
        for depth in range(1, 1 + min(map(len, parts))):
            names = [PurePath(part[-depth]).name for part in parts]
            if _are_nodes(names):
                stems = (NODE_WORD.sub("", name.partition(".")[0]) for name in names)
                return dict(zip(ranks, stems, strict=True))
    if not all(rank.isdecimal() for rank in ranks) or int(ranks[-1]) < RANKS_PER_NODE:
        return {}
    return {rank: str(int(rank) // RANKS_PER_NODE) for rank in ranks}


def _are_nodes(names: Sequence[str]) -> bool:
    """Return whether these names, in order of ranks, are several blocks of neighbours."""
    blocks = [
        name for name, before in zip(names, [None, *names[:-1]], strict=True) if name != before
    ]
    several = 1 < len(blocks) == len(set(blocks))
    return several and all(names.count(name) > 1 for name in blocks)


def nodes_text(ranks: Sequence[str], nodes: Mapping[str, str]) -> str | None:
    """Return the nodes of some ranks as text, `1` or `0 and 3`; None if unknown."""
    names = sorted({nodes[rank] for rank in ranks if rank in nodes}, key=rank_order)
    return ranks_text(names) if names else None
