"""Sums over the images of a run, from logged image tokens and attention ratios.

XTuner v1 prints, per step and rank (xtuner/v1/model/base.py, pre_micro_batch_forward):

    img_tokens                 N = sum of n_i over the images of the step's packs, over sp
    img_efficient_attn_ratio   r = sum of n_i^2 / D,  D = sum over packs b of N_b^2

n_i are the tokens of image i, N_b those of pack b, and sp the ranks that share a pack. The FLOPs of
a vision tower need N and Q = sum of n_i^2 (metrics.formula.vision.counts_of_logged_images).

One pack: D = N^2, so Q = r N^2 (with N of the whole pack, sp times the printed figure).

G packs: the log prints sum N_b = N, but not the N_b. By Cauchy and Schwarz N^2 / G <= D <= N^2. A
pack of P tokens has at most k P image tokens, with k image tokens for one token of the language
model: D <= k P N. So r N^2 / G <= Q <= min(r N^2, r k P N).

Rounding: r has 8 decimals, so it is within 5e-9. It is the quotient of two whole numbers rounded to
float32, itself rounded to float32: three relative errors of 2^-24. N is a float32 too, and exact
below 2^24 image tokens. Q is between r (1 - 2^-22) - 5e-9 and r (1 + 2^-22) + 5e-9 times D. Of one
pack on one rank Q is a whole number, so that some 2,000 image tokens give it exactly.

The figures contradict each other if Q > D, or Q < N: the tokens of an image are whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..core.arrays import FloatArray
from ..core.run_arrays import RunArrays, total
from ..core.run_table import ImageCounts

RATIO_ROUNDING: Final = 5e-9
"""Largest error of a ratio that is printed with 8 decimals."""
FLOAT32_ROUNDING: Final = 2.0**-22
"""Largest relative error of a quotient of two float32 numbers, each rounded from whole numbers."""
MAX_EXACT_FLOAT32: Final = 2.0**24
"""Number below which float32 has every whole number."""


def image_counts(windows: RunArrays, facts: Mapping[str, Any]) -> ImageCounts | None:
    """Return the sums over a run's images; None if the log counts no image tokens."""
    images, tokens = windows["image_tokens"], windows["tokens_per_gpu"]
    known = ~np.isnan(images) & ~np.isnan(tokens) & ~windows.flags("first")
    trained, sharing = total(tokens[known]), facts.get("context_parallel") or 1
    if not trained:
        return None
    images = images[known]
    alone = windows["printing"][known] == 1
    counts = ImageCounts(
        tokens=total(images) / trained,
        squares_low=None,
        squares_high=None,
        squares_packed=None,
        multiple=_multiple(images[alone] * sharing),
        contradictions=0,
    )
    length = facts.get("seq_len")
    # of the whole pack: r N^2 and N^2, each divided by the ranks that share the pack
    squares, most = (windows[name][known] * sharing for name in ("image_squares", "image_total"))
    squares, most = (np.where(images > 0, values, 0.0) for values in (squares, most))
    if not length or np.isnan(squares).any():
        return counts
    error = RATIO_ROUNDING * most + FLOAT32_ROUNDING * squares
    wrong = (squares - error > most) | (squares + error < images)
    if wrong.any():
        counts["contradictions"] = int(np.count_nonzero(wrong))
        return counts
    slots = np.nan_to_num(windows["slots_per_gpu"][known], nan=0.0)
    packs = np.maximum(np.ceil(np.maximum(slots, tokens[known]) * sharing / length - 1e-9), 1.0)
    spread = np.where(images > 0, windows["image_spread"][known], 0.0)
    spread = spread * (1 + FLOAT32_ROUNDING) + RATIO_ROUNDING * images
    low, high = np.maximum((squares - error) / packs, images), squares + error
    whole = alone & (packs == 1)
    low = np.where(whole, np.ceil(low * sharing) / sharing, low)
    high = np.where(whole, np.floor(high * sharing) / sharing, high)
    counts["squares_low"], counts["squares_high"] = total(low) / trained, total(high) / trained
    counts["squares_packed"] = total(spread) * length / trained
    return counts


def _multiple(images: FloatArray) -> int:
    """Return the greatest common divisor of counts of image tokens; 0 if unknown."""
    whole = np.rint(images)
    if not len(whole) or (np.abs(whole - images) > 0).any() or whole.max() >= MAX_EXACT_FLOAT32:
        return 0
    return int(np.gcd.reduce(whole.astype(np.int64)))
