"""Attended pairs of documents in a pack, where a log prints the sum of the squares of its parts.

XTuner v1 prints `efficient_attn_ratio`: sum n_i^2 / sum P^2 over the parts n_i of each pack of P
tokens. Padding is among the parts, cut into pieces of 256 (xtuner/v1/datasets/collator.py,
pad_chunk_size). What attention computes of padding is no work of the model, so its squares are
taken off. How the padding of a step is spread over several packs is not printed: then the pairs
lie between two bounds, which are close where documents are longer than a piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..core.arrays import FloatArray
from ..core.run_arrays import RunArrays, total

PADDING_PIECE: Final = 256
"""Tokens in a piece of padding."""


def document_pairs(windows: RunArrays, facts: Mapping[str, Any]) -> list[float] | None:
    """Return the least and the most attended pairs per token of the documents.

    Pairs are those of causal attention, n (n + 1) / 2 of a document of n tokens. None where the
    log prints no sum of squares or no tokens, or nothing says how long a pack is.
    """
    length = facts.get("seq_len")
    ratio, tokens = windows["attention_ratio"], windows["tokens_per_gpu"]
    known = ~np.isnan(ratio) & ~np.isnan(tokens) & ~windows.flags("first")
    if not length or not total(tokens[known]):
        return None
    sharing = facts.get("context_parallel") or 1
    ratio, tokens = ratio[known], tokens[known] * sharing
    slots = windows["slots_per_gpu"][known] * sharing
    slots = np.where(np.isnan(slots), np.ceil(tokens / length) * length, slots)
    packs, groups = slots / length, np.nan_to_num(windows["printing"][known], nan=1.0) / sharing
    least, most = padding_squares(np.maximum(slots - tokens, 0.0), packs, groups)
    squares = ratio * slots * length
    return [(total(squares - taken) / total(tokens) + 1) / 2 for taken in (most, least)]


def padding_squares(
    padding: FloatArray, packs: FloatArray, groups: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the most sum of squares that the padding of a step can have.

    padding, packs: tokens and packs of a step, a mean over `groups` of ranks. Both sums are the
    same where there is one pack: k pieces of 256 and the rest. Spread over several packs, the sum
    is at most that of whole pieces, and at least that of equal shares: x^2 of a share of x up to
    half a piece, above it the tangent 256 x - 128^2, which all k pieces and a half touch.
    """
    half = PADDING_PIECE / 2
    rest = padding % PADDING_PIECE
    of_one = (padding - rest) * PADDING_PIECE + rest**2
    share = padding / np.maximum(packs, 1.0)
    equal = np.where(share <= half, share**2, PADDING_PIECE * share - half**2) * packs
    alone = (packs <= 1) & (groups <= 1)
    return np.where(alone, of_one, equal), np.where(alone, of_one, PADDING_PIECE * padding)
