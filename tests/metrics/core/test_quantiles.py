"""Quantiles against SciPy's distributions, which have code of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gamma, t

from fairmfu.metrics.core.quantiles import (
    expanded_student_t_quantile,
    gamma_quantile,
    student_t_bound,
    student_t_quantile,
    student_t_quantiles,
)


def test_textbook_values() -> None:
    assert student_t_quantile(2, 0.975) == pytest.approx(4.303, abs=1e-3)
    assert student_t_quantile(1, 0.5) == pytest.approx(0.0, abs=1e-12)
    assert gamma_quantile(1, 1 - np.exp(-1)) == pytest.approx(1.0)  # an exponential variable


@settings(max_examples=25)
@given(st.floats(1, 100), st.floats(0.01, 0.99))
def test_quantiles_are_those_of_the_distributions(shape: float, probability: float) -> None:
    assert gamma.cdf(gamma_quantile(shape, probability), shape) == pytest.approx(probability)
    assert t.cdf(student_t_quantile(shape, probability), shape) == pytest.approx(probability)
    many = student_t_quantiles(np.array([shape, 3.0]), np.array([probability, 0.9]))
    each = [student_t_quantile(shape, probability), student_t_quantile(3.0, 0.9)]
    assert many.tolist() == pytest.approx(each)


@settings(max_examples=100)
@given(st.floats(2, 100) | st.floats(2, 1e9), st.floats(0.9, 0.999))
def test_bounds_without_scipy_are_those_of_the_distribution(
    freedom: float, probability: float
) -> None:
    exact = student_t_quantile(freedom, probability)
    assert student_t_bound(freedom, probability) == pytest.approx(exact, rel=1e-8)
    of_95 = student_t_quantile(freedom, 0.975)
    assert expanded_student_t_quantile(freedom, 0.975) == pytest.approx(of_95, rel=0.008)
