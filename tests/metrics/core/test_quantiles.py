"""Quantiles against SciPy's distributions, which have code of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import gamma, t

from fairmfu.metrics.core.quantiles import (
    gamma_quantile,
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


@settings(max_examples=300)
@given(st.floats(-0.3, 8), st.one_of(st.floats(0.001, 0.999), st.floats(1e-12, 1e-3)))
def test_quantiles_of_student_agree_with_scipy(magnitude: float, probability: float) -> None:
    """From half a degree of freedom to 10^8, far into both tails."""
    freedom = 10**magnitude
    true = float(stdtrit(freedom, probability))
    found = student_t_quantile(freedom, probability)
    assert found == pytest.approx(true, rel=1e-8, abs=1e-9)
    assert student_t_quantile(freedom, 1 - probability) == pytest.approx(-found, rel=1e-3)
    assert student_t_quantile(freedom, 0.975) == pytest.approx(
        float(stdtrit(freedom, 0.975)), rel=1e-10
    )


def test_the_ends_are_infinite() -> None:
    assert student_t_quantile(5, 1.0) == np.inf
    assert student_t_quantile(5, 0.0) == -np.inf
