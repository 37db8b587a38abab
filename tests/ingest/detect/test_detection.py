"""Lines tell the format of a log, however they are cut, and where they do not, it is said."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core.errors import UnknownFormatError
from fairmfu.ingest.decode.line_reader import Chunk
from fairmfu.ingest.detect.detection import (
    FIRST_LOOK_BYTES,
    LOOK_GROWTH_FACTOR,
    MAX_SNIFFED_LINES,
    MIN_BEGINNING_BYTES,
    MIN_RECURRING_LINES,
    DetectedFormats,
    FormatChoice,
    detect_format,
    detect_formats,
    detect_from_beginning,
)
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from tests.support.error_kinds import of_kind

BY_NAME: Final = {f.name: f for f in BUILT_IN_FORMATS}
STEP: Final = {name: f.steps[0].example for name, f in BY_NAME.items()}
ENGINE: Final = STEP["deepspeed"]
MEGATRON: Final = STEP["megatron-deepspeed"]
TITAN: Final = STEP["torchtitan"]


def chunk_of(lines: Sequence[str], number: int = 1) -> Chunk:
    return Chunk(number, "".join(f"{line}\n" for line in lines).encode())


def names(detected: DetectedFormats) -> list[str]:
    """The primary format's name, then those of its companions."""
    primary, companions = detected
    return [primary.name, *(f.name for f in companions)]


def detected(*lines: str, wanted: Sequence[str] = ()) -> list[str]:
    return names(detect_format(Path("run.log"), [chunk_of(lines)], primary_names=wanted))


@given(
    lines=st.lists(st.sampled_from([ENGINE, MEGATRON, "x", "", "y" * 9_000]), max_size=40),
    cuts=st.sets(st.integers(1, 39)),
)
@settings(max_examples=20)
def test_a_format_is_the_same_however_the_lines_are_cut(lines: list[str], cuts: set[int]) -> None:
    lines = ["x", *lines, MEGATRON]
    ends = [*sorted(cut for cut in cuts if cut < len(lines)), len(lines)]
    begins = [0, *ends[:-1]]
    pieces = [chunk_of(lines[a:b], a + 1) for a, b in zip(begins, ends, strict=True)]
    assert names(detect_format(Path("run.log"), pieces)) == detected(*lines)


@pytest.mark.parametrize("cut", [1, 1_000, MAX_SNIFFED_LINES, MAX_SNIFFED_LINES + 1])
@pytest.mark.parametrize(("beyond", "companions"), [(0, ["deepspeed"]), (1, [])])
def test_companions_are_sought_as_far_however_the_lines_are_cut(
    cut: int, beyond: int, companions: list[str]
) -> None:
    lines = [MEGATRON, *["x"] * (MAX_SNIFFED_LINES - 1 + beyond), ENGINE, "x"]
    pieces = [chunk_of(lines[:cut]), chunk_of(lines[cut:], cut + 1)]
    assert names(detect_format(Path("run.log"), pieces))[1:] == companions


@pytest.mark.parametrize("times", [MIN_RECURRING_LINES - 1, MIN_RECURRING_LINES])
def test_lines_of_another_trainer_that_recur_are_of_another_run(times: int, tmp_path: Path) -> None:
    """A few may be part of what a model answers."""
    lines = [TITAN, *[ENGINE] * times, TITAN]
    path = tmp_path / "run.log"
    path.write_bytes(chunk_of(lines).data)
    if times < MIN_RECURRING_LINES:
        assert names(detect_format(path, [chunk_of(lines)]))[0] == "torchtitan"
        return
    with pytest.raises(UnknownFormatError) as error:
        detect_format(path, [chunk_of(lines)])
    said = str(error.value)
    assert error.value.kind == "several-formats"
    assert f"torchtitan: line 1: {TITAN[:100].strip()}" in said
    assert f"deepspeed: line 2: {ENGINE[:100].strip()}" in said
    assert error.value.recognised


@pytest.mark.parametrize(
    ("text", "says", "kind", "recognised"),
    [
        ("-" * 25 + " DeepSpeed Flops Profiler -", "flops profiler", "file-without-steps", False),
        (
            '\n{"epoch": 1.0, "train_runtime": 3.5}',
            "results of a Hugging Face run",
            "file-without-steps",
            False,
        ),
        ("Rank0 Rollout 1 Step 2: loss 3", "XTuner's RL trainer", "unsupported-trainer", True),
        ("hello", "", "unknown-format", False),
    ],
)
def test_a_file_that_is_known_and_holds_no_steps_is_named(
    text: str,
    says: str,
    kind: str,
    recognised: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.log"
    path.write_text(text + "\n")
    with pytest.raises(UnknownFormatError) as error:
        detect_format(path, [chunk_of([text])])
    assert says in str(error.value)
    assert str(error.value).startswith(str(path))
    assert (error.value.kind, error.value.recognised) == (kind, recognised)


def test_of_several_files_one_that_is_no_log_takes_no_other_with_it() -> None:
    files = [(Path(f"{n}.log"), [chunk_of([line])]) for n, line in enumerate([TITAN, "x", ENGINE])]
    first, none, last = detect_formats(files)
    assert names(first) == ["torchtitan"]  # type: ignore[arg-type]
    assert isinstance(none, UnknownFormatError)
    assert "1.log" in str(none)
    assert names(last) == ["deepspeed"]  # type: ignore[arg-type]


def pieces_until(lines: Sequence[str], size: int) -> int:
    """Lines up to the first newline that stands so many bytes behind the beginning."""
    text = chunk_of(lines).data
    return text[: text.index(b"\n", size) + 1].count(b"\n")


def test_of_a_long_log_the_beginning_is_looked_at_and_the_rest_is_watched() -> None:
    lines = [ENGINE] * (3 * MIN_BEGINNING_BYTES // len(ENGINE))
    first = pieces_until(lines, FIRST_LOOK_BYTES)
    second = pieces_until(lines, LOOK_GROWTH_FACTOR * FIRST_LOOK_BYTES)
    found = detect_from_beginning(Path("run.log"), [chunk_of(lines)])
    assert names(found.detected) == ["deepspeed"]
    assert found.watch is not None
    assert found.last == first + second
    for line in (MEGATRON, TITAN):
        assert found.watch.may_hold_mark(line)
    assert not found.watch.may_hold_mark("hello")


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([ENGINE] * 20, id="short"),
        pytest.param([MEGATRON] * 2_000, id="of a trainer, whose companions stand near"),
        pytest.param([ENGINE, TITAN] * 2_000, id="of two"),
    ],
)
def test_all_is_looked_at_where_watching_is_of_no_use(lines: list[str]) -> None:
    try:
        found = detect_from_beginning(Path("run.log"), [chunk_of(lines)])
    except UnknownFormatError as error:
        with pytest.raises(UnknownFormatError, match=re.escape(str(error))):
            detected(*lines)
    else:
        assert found.watch is None
        assert names(found.detected) == detected(*lines)


# -- where formats are named -------------------------------------------------------------------


def test_a_named_engine_is_not_read_under_its_trainer() -> None:
    """Its steps beside a trainer's are not the run's own."""
    assert detected(ENGINE, MEGATRON) == ["megatron-deepspeed", "deepspeed"]
    assert detected(ENGINE, MEGATRON, wanted=["megatron-deepspeed"]) == detected(ENGINE, MEGATRON)
    with pytest.raises(UnknownFormatError):
        detected(ENGINE, MEGATRON, wanted=["deepspeed"])


def test_one_of_several_formats_of_a_file_may_be_named() -> None:
    with pytest.raises(UnknownFormatError, check=of_kind("several-formats")):
        detected(TITAN, MEGATRON)
    only = FormatChoice().only(["torchtitan"])
    chunks = [chunk_of([TITAN, MEGATRON])]
    assert names(detect_format(Path("a"), chunks, only.formats, only.wanted)) == ["torchtitan"]


@pytest.mark.parametrize("name", ["torchtitan", "megatron-deepspeed", "deepspeed"])
def test_a_choice_of_one_format_keeps_those_that_may_be_its_companions(name: str) -> None:
    choice = FormatChoice().only([name])
    below = {f.name for f in BUILT_IN_FORMATS if f.precedence < BY_NAME[name].precedence}
    assert choice.names == below | {name}
    assert choice.wanted == {name}
    both = FormatChoice().only([name, "deepspeed"])
    assert both.names == {name, "deepspeed"} | {
        f.name for f in BUILT_IN_FORMATS if f.precedence < BY_NAME["deepspeed"].precedence
    }
    again: FormatChoice = pickle.loads(pickle.dumps(choice))  # noqa: S301 - ours
    assert again == choice
