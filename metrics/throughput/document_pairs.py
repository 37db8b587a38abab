"""Attended pairs of a pack's documents, from a logged sum of squared lengths.

XTuner v1 prints `efficient_attn_ratio`: sum n_i^2 / sum P^2 over the parts n_i of each pack of P
tokens. The parts include padding, cut into pieces of 256 (xtuner/v1/datasets/collator.py,
pad_chunk_size). Attention on padding is no work of the model, so the padding's squares are
subtracted. The log does not print how a step's padding is spread over several packs. So the pairs
have two bounds, which are close where documents are longer than a piece.
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
    """Return the lower and upper bound of the documents' attended pairs per token.

    Causal attention has n (n + 1) / 2 pairs in a document of n tokens. None if the log prints no
    sum of squares or no tokens, or if the length of a pack is not known.
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
    """Return the lower and upper bound of the sum of squares of a step's padding.

    With one pack, both bounds are the same: k pieces of 256 and the rest. With several packs, the
    upper bound is the sum of whole pieces, and the lower bound is the sum of equal shares. A share
    x counts x^2 up to half a piece. Above, a share counts the tangent 256 x - 128^2, reached by k
    pieces and a half for every k.

    padding, packs: tokens and packs of a step, a mean over `groups` of ranks
    """
    half = PADDING_PIECE / 2
    rest = padding % PADDING_PIECE
    of_one = (padding - rest) * PADDING_PIECE + rest**2
    share = padding / np.maximum(packs, 1.0)
    equal = np.where(share <= half, share**2, PADDING_PIECE * share - half**2) * packs
    alone = (packs <= 1) & (groups <= 1)
    return np.where(alone, of_one, equal), np.where(alone, of_one, PADDING_PIECE * padding)
