"""Tokens in the loss, which a log prints as the tokens of a step."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

import pytest

from fairmfu.metrics import analyse
from fairmfu.metrics.throughput.messages import LABEL_TOKENS
from tests.support.one_log import tables_of

SPANS = Path(__file__).parents[2] / "golden/torchtitan_outputs/training.global_rank_0.jsonl"


@pytest.mark.parametrize("masked", [0, 17], ids=["pretraining", "prompts that the loss ignores"])
def test_tokens_in_the_loss_are_no_trained_tokens_where_they_vary(
    masked: int, tmp_path: Path
) -> None:
    """Full batches of pretraining are alike; masks are not."""
    numbers = count()
    text = re.sub(
        r'(_valid_tokens", "value": )(\d+)',
        lambda match: f"{match[1]}{int(match[2]) - masked * (next(numbers) // 2)}",
        SPANS.read_text(),
    )
    log = tmp_path / "training.global_rank_0.20261120-155346-8I13AL.jsonl"
    log.write_text(text)
    row = analyse(tables_of(log, facts={"gpus": 1})).metrics.row(0, named=True)

    assert row["tgs"] is not None
    assert (LABEL_TOKENS.identifier in row["warning_kinds"]) is bool(masked)
