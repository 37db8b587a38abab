"""Hostile inputs: a short run of the targets that `make fuzz` runs long, and what it found."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Final

import pytest
from fuzz_targets import TARGETS, Target, mutated

INPUTS: Final = int(os.environ.get("FAIRMFU_FUZZ") or 100)
"""Of each target; those of `COSTLY` get fewer."""
COSTLY: Final = {"store": 5, "report": 5, "facts": 2, "events": 2}


def tried(target: Target, data: bytes, folder: Path) -> str:
    """What is wrong with an input, empty where nothing is."""
    finding = target.watched(data, folder).finding
    return f"{finding.kind}: {finding.text}\n{data[:2000]!r}" if finding else ""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_mutated_inputs_find_nothing(target: Target, tmp_path: Path) -> None:
    draw = Random(target.name)  # noqa: S311 - no secret
    seeds, words = target.seeds(), list(target.words())
    count = INPUTS // COSTLY.get(target.name, 1)
    for _ in range(count):
        data = mutated(draw.choice(seeds), draw, words)[: target.longest]
        assert tried(target, data, tmp_path) == ""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_find_nothing(target: Target, tmp_path: Path) -> None:
    """Nor is a check vain: they are what the program reads."""
    for seed in target.seeds()[:: COSTLY.get(target.name, 1)]:
        assert tried(target, seed, tmp_path) == ""
