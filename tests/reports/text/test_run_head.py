"""First lines about a run: the logged figure beside ours, with the reasons for the gap."""

from __future__ import annotations

import pytest

from fairmfu.metrics.audit.audit_results import Bridge, Factor
from fairmfu.reports.text.run_head import logged_lines

HALF, MORE, SMALL = (
    Factor(cause, cause, factor)
    for cause, factor in (("masked-out attention", 0.5), ("a median", 1.25), ("norms", 0.99))
)


def bridge(*factors: Factor, left: float = 1.0, explained: bool = True) -> Bridge:
    return Bridge("logged_tgs", 1000.0, 800.0, factors, 1 / left, 0.9, 1.1, explained)


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        (bridge(), "."),
        (bridge(HALF), ". Reason: masked-out attention (x 0.5000)."),
        (
            bridge(MORE, HALF),
            ". Reasons: masked-out attention (x 0.5000) and a median (x 1.2500).",
        ),
        (
            bridge(SMALL, MORE, HALF),
            ". Reasons: masked-out attention (x 0.5000), a median (x 1.2500) and 1 smaller one.",
        ),
        (bridge(left=0.7, explained=False), "; the gap is not explained."),
        (
            bridge(HALF, left=0.7, explained=False),
            ". Reason: masked-out attention (x 0.5000). The rest is not explained (x 0.7000).",
        ),
        # the last digits of the log are not reproduced, and nothing visible is left
        (
            bridge(HALF, left=1.00009, explained=False),
            ". Reason: masked-out attention (x 0.5000).",
        ),
    ],
)
def test_a_gap_has_its_largest_reasons_and_a_visible_rest(given: Bridge, reasons: str) -> None:
    assert logged_lines([given]) == [f"Logged TGS: 1,000 (median), ours 800{reasons}"]
