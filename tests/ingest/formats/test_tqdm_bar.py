"""A progress bar alone: the speed it shows, and files of other programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.errors import UnknownFormatError
from fairmfu.ingest.decode.line_reader import NumberedLine, Source
from fairmfu.ingest.detect.detection import detect_format
from fairmfu.ingest.formats.tqdm_bar import TQDM
from fairmfu.ingest.parse.line_parser import parse_lines
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.one_log import tables_of

FACTS = {"gpus": 8, "seq_len": 4096, "packed": True, "global_batch_size": 16}


def bar(step: int, seconds: int, total: int = 500, name: str = "", more: str = "") -> str:
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    percent = 100 * step // total
    return f"{name}{percent:3}%|#    | {step}/{total} [{clock}<2:00:00, 30.00s/it{more}]"


def written(folder: Path, lines: Sequence[str]) -> Path:
    log = folder / "run.log"
    log.write_text("\n".join(["Namespace(lr=1e-05)", *lines, "done"]) + "\n")
    return log


@pytest.mark.parametrize("name", ["", "Train: ", "Training: ", "Steps: "])
@pytest.mark.parametrize("more", ["", ", loss=1.23, lr=1e-5"])
def test_a_bar_alone_shows_the_speed_and_is_not_ranked(
    name: str, more: str, tmp_path: Path
) -> None:
    log = written(tmp_path, [bar(n, 30 * n, name=name, more=more) for n in range(1, 31)])
    (row,) = analyse(tables_of(log, facts=FACTS)).metrics.to_dicts()
    assert row["tgs"] == pytest.approx(16 * 4096 / 8 / 30)
    assert row["seconds_per_step"] == pytest.approx(30)
    assert "steps-of-bar" in row["warning_kinds"]
    assert any(text.startswith("Not ranked: the log is a progress bar") for text in row["warnings"])


def test_without_facts_the_time_of_a_step_has_its_doubt(tmp_path: Path) -> None:
    log = written(tmp_path, [bar(n, 30 * n) for n in range(1, 31)])
    (row,) = analyse(tables_of(log)).metrics.to_dicts()
    assert (row["tgs"], row["seconds_per_step"]) == (None, pytest.approx(30))
    assert "steps-of-bar" in row["warning_kinds"]


@given(
    steps=st.lists(st.integers(1, 400), min_size=3, unique=True),
    each=st.integers(1, 100),
    returns=st.booleans(),
)
def test_each_step_of_the_bar_is_one_row(steps: list[int], each: int, *, returns: bool) -> None:
    """In lines or after carriage returns, redrawn or not, with bars of an evaluation between."""
    drawn = [bar(n, each * n) for n in sorted(steps) for _ in range(1 + n % 2)]
    others = [bar(1, 1, 13), bar(2, 2, 13), "Map:  50%|#  | 5/10 [00:01<00:01, 5.0 examples/s]"]
    lines = ["\r".join(drawn), *others] if returns else [*drawn[:2], *others, *drawn[2:]]
    numbered = [NumberedLine(n, text, cut=False) for n, text in enumerate(lines, 1)]
    parsed = parse_lines(numbered, TQDM)
    rows = [(row["step"], row["since_start_s"]) for x in parsed.launches for row in x.rows]
    assert rows == [(n, each * n) for n in sorted(steps)]
    assert parsed.lines == len(lines)


@pytest.mark.parametrize(
    "lines",
    [
        [bar(n, n, name="Downloading shards: ") for n in range(1, 20)],
        [bar(n, n, name="Epoch 1: ") for n in range(1, 20)],
        [bar(1, 30), bar(2, 60)],
        [bar(2, n, 2) for n in range(9)],
        ["10/500 tests passed [00:30]"] * 9,
    ],
)
def test_bars_of_other_loops_are_no_training(lines: list[str], tmp_path: Path) -> None:
    log = written(tmp_path, lines)
    with pytest.raises(UnknownFormatError):
        detect_format(log, Source(log).chunks())


def test_a_line_of_a_known_trainer_takes_the_file(tmp_path: Path) -> None:
    bars = [bar(n, 30 * n) for n in range(1, 31)]
    log = written(
        tmp_path, [*bars, "{'loss': 1.5, 'grad_norm': 1.1, 'learning_rate': 1e-05}", *bars]
    )
    assert detect_format(log, Source(log).chunks())[0].name == "hf-trainer"
