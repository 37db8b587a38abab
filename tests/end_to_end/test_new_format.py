"""A format that is new is data alone: no module knows NovaTrain, and no rate of it is wrong.

Its lines are like `[nova-ranks] it 120/5000 | loss 2.31 | 0.812 s/it | 131072 tok`, of 4 GPUs.
As a format of one's own, in TOML: tests/ingest/store/test_run_quirks.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final, NamedTuple

import pytest

from fairmfu.metrics.core.messages import MessageKind
from fairmfu.metrics.throughput.messages import (
    COARSE_TIMES,
    PROCESS_SUM_UNKNOWN,
    RANK_SUM_DOUBTFUL,
)
from tests.support.folders import ROOT
from tests.support.kinds import of_kind

TOKENS: Final = 131072
STEP_S: Final = 0.812
ONCE: Final = TOKENS / 4 / STEP_S  # 40,354.7 tokens/s on each of 4 GPUs
SHARED: Final = ONCE / 2  # each token counted by both ranks of a group
SAMPLES: Final = 16 * 4096 / 4 / STEP_S  # of a batch of 16 sequences of 4,096


class Told(NamedTuple):
    """A log of NovaTrain and what is to be said: TGS, the doubt, the facts it lacks.

    doubt: the kind of the one warning about TGS or its tokens; off: what it says of the error
    within: bounds that the interval around TGS is at least as wide as, nearly
    """

    tag: str
    field: str
    facts: dict[str, Any]
    tgs: float | None
    doubt: MessageKind | None = None
    missing: tuple[str, ...] = ()
    within: tuple[float, float] | None = None
    lines: int = 30
    off: str = ""


TP2: Final = {"tensor_parallel": 2}
STEP, TOTAL = f"{STEP_S} s/it | {TOKENS} tok", f"{STEP_S} s/it | {{total}} tok in all"
CASES: Final = {
    "fine rates": Told("nova-rates", "40355 tok/s/gpu", {}, 40355),
    # 7.5 and 8.5 may be printed as 8; 1.5 and 2.5 samples of 4,096 tokens on 4 GPUs as 2
    "coarse rates": Told("nova-rates", "8 tok/s/gpu", {}, 8, within=(7.54, 8.5)),
    "few coarse rates": Told(
        "nova-rates", "8 tok/s/gpu", {}, 8, COARSE_TIMES, lines=6, off="up to 6.2% off"
    ),
    "coarse samples": Told("nova-rates", "2 samples/s", {}, 2048, within=(1640, 2560)),
    "few coarse samples": Told(
        "nova-rates", "2 samples/s", {}, 2048, COARSE_TIMES, lines=6, off="up to 25.0% off"
    ),
    "a process each": Told("nova-processes", STEP, {"tensor_parallel": 1}, ONCE),
    "a process each, in all": Told("nova-processes", TOTAL, {"tensor_parallel": 1}, ONCE),
    "same tokens": Told(
        "nova-processes", STEP, TP2, None, PROCESS_SUM_UNKNOWN, ("global_batch_size",)
    ),
    "same tokens, in all": Told(
        "nova-processes", TOTAL, TP2, None, PROCESS_SUM_UNKNOWN, ("global_batch_size",)
    ),
    "a batch": Told(
        "nova-processes", STEP, {**TP2, "global_batch_size": 16}, SAMPLES, PROCESS_SUM_UNKNOWN
    ),
    "a rank each": Told("nova-ranks", STEP, {"data_parallel": 4}, ONCE),
    "two ranks": Told("nova-ranks", STEP, {**TP2, "context_parallel": 1}, SHARED),
    "two ranks, in all": Told("nova-ranks", TOTAL, {**TP2, "context_parallel": 1}, SHARED),
    "some ranks": Told("nova-ranks", STEP, {}, ONCE, RANK_SUM_DOUBTFUL),
    "some ranks, in all": Told("nova-ranks", TOTAL, TP2, SHARED, RANK_SUM_DOUBTFUL),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Metrics of each case, by a process whose registry has NovaTrain's formats too."""
    folder = tmp_path_factory.mktemp("nova")
    for name, case in CASES.items():
        lines = (
            f"[{case.tag}] it {n}/5000 | loss {3 - n / 100:.2f} | "
            f"{case.field.format(total=n * TOKENS)}\n"
            for n in range(1, case.lines + 1)
        )
        (folder / f"{name}.log").write_text("".join(lines))
        given = {"gpus": 4, "seq_len": 4096, "packed": "true", **case.facts}
        (folder / f"{name}.json").write_text(json.dumps(given))
    told = subprocess.run(  # noqa: S603 - ours
        [sys.executable, "-m", "tests.support.novatrain", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return dict(json.loads(told.stdout))


@pytest.mark.parametrize("name", CASES)
def test_a_built_in_format_that_no_module_names_has_right_rates(
    name: str, rows: dict[str, dict[str, Any]]
) -> None:
    case, row = CASES[name], rows[name]
    assert row["log_format"] == case.tag
    assert row["tgs"] == (None if case.tgs is None else pytest.approx(case.tgs, rel=1e-6))
    doubts = [text for text in row["warnings"] if "TGS" in text or "a sum over" in text]
    assert len(doubts) == (case.doubt is not None), doubts
    assert case.doubt is None or of_kind(row, case.doubt) == doubts
    assert all(case.off in text for text in doubts)
    if case.within is not None:
        assert row["tgs_low"] < case.within[0] < case.within[1] < row["tgs_high"]
    assert tuple(row["missing"][: len(case.missing)]) == case.missing
