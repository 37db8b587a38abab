"""Quantiles of Student's t and of the gamma distribution, by SciPy.

SciPy takes as long to import as Polars; it is imported with the first quantile that is asked for,
so that what reads kept metrics does without.
"""

from __future__ import annotations

import numpy as np

from .arrays import Array


def of_t(freedom: float, share: float) -> float:
    """Student's t of so many degrees of freedom stays below this with probability `share`."""
    from scipy.special import stdtrit  # noqa: PLC0415 - see above

    return float(stdtrit(freedom, share))


def of_each_t(freedom: Array, share: Array) -> Array:
    """Quantiles of Student's t, element by element."""
    from scipy.special import stdtrit  # noqa: PLC0415 - see above

    return np.asarray(stdtrit(freedom, share))


def of_gamma(shape: float, share: float) -> float:
    """A gamma variable of this shape and of scale 1 stays below this with probability `share`."""
    from scipy.special import gammaincinv  # noqa: PLC0415 - see above

    return float(gammaincinv(shape, share))
