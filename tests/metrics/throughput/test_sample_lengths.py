"""Mean and deviation of the samples' lengths give tokens and pairs of unpacked samples."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.effort import costly

FACTS = {
    "gpus": "4",
    "global_batch_size": "64",
    "seq_len": "4096",
    "model": "llama-3-8b",
    "precision": "bf16",
    "trainable": "full",
    "accelerator": "H100",
}


def log_text(seconds_per_step: int = 5) -> str:
    return "".join(
        f'{{"loss": 1.5, "grad_norm": 1.1, "learning_rate": 1e-05, "epoch": {step / 100}, '
        f'"global_step/max_steps": "{step}/100", "elapsed_time": "{step * seconds_per_step}s", '
        f'"train_speed(iter/s)": {1 / seconds_per_step}}}\n'
        for step in range(5, 101, 5)
    )


def metrics(**more: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "logging.jsonl"
        log.write_text(log_text())
        flags = [f"{name}={value}" for name, value in (FACTS | more).items()]
        tables = read_log_tables(log, flag_facts=facts_from_flags(flags))
        return analyse(tables).metrics.row(0, named=True)


def test_tokens_follow_from_the_mean_length() -> None:
    row = metrics(mean_sample_length="300")

    assert row["tgs"] == pytest.approx(64 * 300 / 5 / 4)
    assert row["token_basis"] == "given"  # noqa: S105 - no password
    assert "tokens-given" in row["warning_kinds"]
    assert row["mfu"] is None  # the pairs of samples of any length are not known
    assert row["missing"] == ["attended_pairs"]


def test_the_local_batch_may_stand_in_for_the_global_one() -> None:
    local = {"micro_batch_size": "4", "gradient_accumulation": "4"}
    row = metrics(mean_sample_length="300", **local)
    without = metrics(mean_sample_length="300", **local, global_batch_size="64")

    assert row["tgs"] == without["tgs"]


@costly
@given(lengths=st.lists(st.integers(1, 400), min_size=2, max_size=30))
def test_pairs_follow_from_mean_and_deviation(lengths: list[int]) -> None:
    mean = sum(lengths) / len(lengths)
    deviation = (sum((n - mean) ** 2 for n in lengths) / len(lengths)) ** 0.5
    row = metrics(mean_sample_length=repr(mean), sample_length_deviation=repr(deviation))
    pairs = sum(n * (n + 1) / 2 for n in lengths) / sum(lengths)

    assert row["attended_pairs"] == pytest.approx(pairs)
    assert row["mfu"] > 0


PACKED = cache(partial(metrics, packed="true"))


@costly
@given(mean=st.floats(1, 4096))
def test_full_packs_need_no_mean(mean: float) -> None:
    """The documents in a pack of known length may have any mean."""
    packed = PACKED()
    row = metrics(packed="true", mean_sample_length=repr(mean), sample_length_deviation="9")

    assert [row[name] for name in ("tgs", "mfu", "token_basis")] == [
        packed[name] for name in ("tgs", "mfu", "token_basis")
    ]


def test_deviation_of_samples_of_several_sequences_gives_no_pairs() -> None:
    lengths = {"mean_sample_length": "300", "sample_length_deviation": "50"}
    row = metrics(**lengths, sequences_per_sample="2")

    assert row["tgs"] == metrics(**lengths)["tgs"]
    assert row["missing"] == ["attended_pairs"]


def test_documents_of_packs_have_other_pairs() -> None:
    """The lengths are of packs then, in which attention stops at document borders."""
    lengths = {"mean_sample_length": "300", "sample_length_deviation": "50"}
    assert metrics(**lengths)["mfu"] is not None
    assert metrics(**lengths, document_mask="true")["mfu"] is None
