"""The line on what changed: with the speed of the run, and software before settings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.compare.history import SOFTWARE_COLUMNS, history
from fairmfu.reports.nightly.headline import headline
from fairmfu.reports.nightly.night_report import build_digest
from fairmfu.reports.nightly.setup_changes import setup_clause
from tests.support.series import metrics, runs
from tests.support.told_nights import a_night, a_series

HELD = a_series("xtuner", nights=60, steps=((40, 0.9),), baseline=0.9)
VERSIONS = {
    "framework_version": ("0.2.2", "0.3.0", "version 0.2.2 -> 0.3.0"),
    "torch": ("2.9.0", "2.10.0", "PyTorch 2.9.0 -> 2.10.0"),
    "cuda": (
        "Cuda compilation tools, release 13.0, V13.0.88",
        "Cuda compilation tools, release 13.2, V13.2.20",
        "CUDA 13.0.88 -> 13.2.20",
    ),
    "nccl": ("2.27.5+cuda12.9", "2.29.7+cuda13.1", "NCCL 2.27.5+cuda12.9 -> 2.29.7+cuda13.1"),
    "driver": ("535.104.12", "550.54.15", "driver 535.104.12 -> 550.54.15"),
    "commit": ("a" * 40, "b" * 40, f"commit {'a' * 9} -> {'b' * 9}"),
}


@pytest.mark.parametrize(
    ("ratio", "spread", "told"),
    [
        (1.004, 0.005, "x 1 -> 2; same speed"),
        (0.971, 0.005, "x 1 -> 2; perhaps 2.9 % slower, more runs will tell"),
        (1.05, 0.005, "x 1 -> 2; perhaps 5.0 % faster, more runs will tell"),
        (0.99, None, "x 1 -> 2; perhaps 1.0 % slower, more runs will tell"),
        (None, None, "x 1 -> 2"),
    ],
)
def test_the_speed_stands_beside_what_changed(ratio: Any, spread: Any, told: str) -> None:
    assert setup_clause(["x 1 -> 2"], {"last_ratio": ratio, "spread": spread}) == told


def test_a_night_on_which_software_changed_says_so_in_one_line() -> None:
    quiet = a_series(nights=60, upgrades=((0, "PyTorch 2.9.0 -> 2.10.0"),), noise=0.0)
    quiet["series"][0]["spread"] = 0.005
    told = headline(build_digest(a_night(quiet)))
    line = "Set-up changed tonight: torchtitan, llama3-8b (PyTorch 2.9.0 -> 2.10.0; same speed)."
    said = told.says.replace(", 8,192 tokens, 8 x H100 SXM, bf16", "")
    assert said == f"{line} 1 run tonight."
    assert "Set-up changed" not in " ".join(told.notes)
    below = headline(build_digest(a_night(quiet, HELD)))
    assert not below.says.startswith("Set-up")
    assert "(PyTorch 2.9.0 -> 2.10.0; same speed)." in " ".join(below.notes)


@given(st.sets(st.sampled_from(sorted(VERSIONS)), min_size=1))
def test_every_version_that_changed_is_named(changed: set[str]) -> None:
    first = {name: old for name, (old, _, _) in VERSIONS.items()}
    later = first | {name: VERSIONS[name][1] for name in changed} | {"compile": "true"}
    facts = [first | {"compile": "false"}] * 12 + [later] * 3
    rows = [row | about for row, about in zip(runs([6000.0] * 15), facts, strict=True)]
    marks = history(metrics(rows)).points["marks"].to_list()
    assert marks[12] == [
        *(VERSIONS[name][2] for name in SOFTWARE_COLUMNS if name in changed),
        "compile no -> yes",
    ]
    assert not any(marks[:12] + marks[13:])
