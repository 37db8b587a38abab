"""Quantiles of Student's t and of the gamma distribution, by SciPy.

SciPy takes as long to import as Polars; it is imported with the first quantile that is asked for,
so that what reads kept metrics does without.
"""

from __future__ import annotations

import numpy as np

from .arrays import FloatArray


def student_t_quantile(degrees_of_freedom: float, probability: float) -> float:
    """Student's t of so many degrees of freedom stays below this with probability `probability`."""
    from scipy.special import stdtrit  # noqa: PLC0415 - see above

    return float(stdtrit(degrees_of_freedom, probability))


def student_t_quantiles(degrees_of_freedom: FloatArray, probability: FloatArray) -> FloatArray:
    """Quantiles of Student's t, element by element."""
    from scipy.special import stdtrit  # noqa: PLC0415 - see above

    return np.asarray(stdtrit(degrees_of_freedom, probability))


def gamma_quantile(shape: float, probability: float) -> float:
    """Value that a gamma variable stays below with probability `probability`.

    shape: of the variable; its scale is 1.
    """
    from scipy.special import gammaincinv  # noqa: PLC0415 - see above

    return float(gammaincinv(shape, probability))
