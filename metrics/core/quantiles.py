"""Quantiles of Student's t and of the gamma distribution, from SciPy.

SciPy takes as long to import as Polars. The first quantile imports SciPy, so commands that only
read kept metrics do not pay for the import.
"""

from __future__ import annotations

import numpy as np

from .arrays import FloatArray


def student_t_quantile(degrees_of_freedom: float, probability: float) -> float:
    """Return the quantile of Student's t at `probability`."""
    from scipy.special import stdtrit  # noqa: PLC0415 - see above

    return float(stdtrit(degrees_of_freedom, probability))


def student_t_quantiles(degrees_of_freedom: FloatArray, probability: FloatArray) -> FloatArray:
    """Return quantiles of Student's t, element by element."""
    from scipy.special import stdtrit  # noqa: PLC0415 - see above

    return np.asarray(stdtrit(degrees_of_freedom, probability))


def gamma_quantile(shape: float, probability: float) -> float:
    """Return the quantile of a gamma variable at `probability`.

    shape: shape parameter of the variable; the scale is 1
    """
    from scipy.special import gammaincinv  # noqa: PLC0415 - see above

    return float(gammaincinv(shape, probability))
