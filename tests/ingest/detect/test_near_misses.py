"""How far formats get in a file none of whose steps can be read, and whose header stands there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fairmfu.ingest.decode.line_reader import NumberedLine
from fairmfu.ingest.decode.text_cleaning import Cleaner
from fairmfu.ingest.detect.near_misses import (
    MAX_NEAR_MISSES,
    FormatHits,
    LaunchEnd,
    describe_hits,
    formats_by_header,
    no_format_error,
    scan_formats,
)
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import ENGINE_PRECEDENCE, FactLine, LogFormat, StepLine
from fairmfu.ingest.launches.outcomes import TRACEBACK_WITHOUT_ERROR

TRAINER = next(f for f in BUILT_IN_FORMATS if f.name == "torchtitan")


def states(word: str) -> FactLine:
    return FactLine(
        anchor=word, regex=rf"{word} (?P<seq_len>\d+)", example=f"{word} 1", printed_by=""
    )


def form(name: str, *words: str, precedence: int = TRAINER.precedence) -> LogFormat:
    """A format with a step line and some fact lines, and no block."""
    step = StepLine(
        anchor="step",
        regex=r"step (?P<step>\d+) time (?P<time>[\d.]+)s$",
        columns={"step": "step", "time": "elapsed_s"},
        example="step 1 time 2.5s",
        printed_by="",
    )
    return replace(
        TRAINER,
        name=name,
        precedence=precedence,
        steps=(step,),
        facts=tuple(map(states, words)),
        events=(),
        blocks=(),
        signature="(?!)",
        looks_like_step=r"step \d",
        join=None,
        noise=None,
    )


def numbered(lines: Sequence[str]) -> list[NumberedLine]:
    return [NumberedLine(number, text, cut=False) for number, text in enumerate(lines, 1)]


def scanned(lines: Sequence[str], *formats: LogFormat) -> tuple[list[FormatHits], LaunchEnd]:
    return scan_formats(numbered(lines), formats, Cleaner(None))


def by_header(lines: Sequence[str], *formats: LogFormat) -> list[str]:
    return [f.name for f in formats_by_header(*scanned(lines, *formats))]


A = form("a", "alpha", "beta", "gamma")
B = replace(form("b", "alpha", "delta", "epsilon"), blocks=TRAINER.blocks[:1])
ENGINE = form("engine", "zeta", "omega", precedence=ENGINE_PRECEDENCE)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["alpha 1"], []),  # one kind of line tells nothing
        (["alpha 1", "alpha 2"], []),
        (["alpha 1", "beta 2"], ["a"]),
        (["alpha 1", "delta 2"], ["b"]),
        (["alpha 1", "beta 2", "delta 3"], []),  # as many of both: two may be meant
        (["alpha 1", "beta 2", "gamma 3", "delta 4"], ["a"]),
        (["other"], []),
    ],
)
def test_the_format_of_most_kinds_of_header_lines_is_meant(
    lines: list[str], found: list[str]
) -> None:
    assert by_header(lines, A, B) == found


def test_of_forks_that_share_their_blocks_the_first_is_meant() -> None:
    fork = replace(form("fork", "alpha", "delta"), blocks=A.blocks)
    assert by_header(["alpha 1", "beta 2", "delta 3"], A, fork) == ["a"]


def test_an_engine_goes_with_its_trainer() -> None:
    assert by_header(["alpha 1", "beta 2", "zeta 3", "omega 4"], A, ENGINE) == ["a", "engine"]


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ("RuntimeError: boom", ["engine"]),  # its launch ended before any step
        ("torch.OutOfMemoryError: CUDA out of memory.", ["engine"]),
        ("all is well", []),
    ],
)
def test_an_engine_alone_is_meant_where_its_launch_failed(last: str, found: list[str]) -> None:
    """Else somebody trains on it whose steps are unknown here; a loss tells that, too."""
    header = ["zeta 1", "omega 2"]
    assert by_header([*header, last], A, ENGINE) == found
    assert by_header([*header, "loss: 5.1", last], A, ENGINE) == []


def test_what_an_engine_prints_says_nothing_of_who_trains() -> None:
    trainer = form("c", "zeta", "omega")
    assert by_header(["zeta 1", "omega 2"], trainer, ENGINE) == []
    assert by_header(["zeta 1", "omega 2"], trainer) == ["c"]


@pytest.mark.parametrize(
    ("text", "trains"),
    [
        ("loss: 5", True),
        ("Loss = -1.5", True),
        ("loss=tensor(5.1", True),
        ("loss is nan", False),
        ("loss: nan", True),
        ("loss: inf", True),
        ("closs: 5", False),
        ("loss: high", False),
    ],
)
def test_a_loss_tells_that_something_trains(text: str, *, trains: bool) -> None:
    end = LaunchEnd()
    end.look("RuntimeError: boom")
    assert end.is_early
    end.look(text)
    assert end.is_early != trains


def test_a_launch_that_did_not_fail_did_not_end_early() -> None:
    end = LaunchEnd()
    end.look("all is well")
    assert not end.is_early


JOB = "slurmstepd: error: *** JOB {} ON n1 CANCELLED AT 2026-03-01T10:00:00 ***"
EXITED = "[launch.py:325] ['python'] exits with return code = -9"
BAR = " 54%|#####  | 1487/2781 [9:09:55<9:05:24, 25.31s/it]"


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["KeyError: 1", "OSError: 2"], "KeyError: 1"),
        (["KeyError: 1", JOB.format(7)], "KeyError: 1"),
        ([JOB.format(7), "KeyError: 1"], "*** JOB 7 ON n1 CANCELLED AT 2026-03-01T10:00:00 ***"),
        (
            ["KeyError: 1", JOB.format(7), JOB.format(7), JOB.format(8)],
            "*** JOB 8 ON n1 CANCELLED AT 2026-03-01T10:00:00 ***",
        ),
        (["KeyError: 1", JOB.format(7), "OSError: 2", JOB.format(8)], "OSError: 2"),
        (["Traceback (most recent call last):", "KeyError: 1"], "KeyError: 1"),
        (["Traceback (most recent call last):"], TRACEBACK_WITHOUT_ERROR),
        (["Killing subprocess 7", EXITED], "exits with return code = -9"),
        ([BAR, EXITED], ""),  # steps may have been trained
        (["loss=9.1", "KeyError: 1"], ""),
    ],
)
def test_the_last_of_several_jobs_in_a_file_counts(lines: list[str], error: str) -> None:
    end = LaunchEnd()
    for number, line in enumerate(lines, 1):
        end.look(line, number)
    assert end.error == error
    assert end.words


def test_a_file_of_several_errors_says_so() -> None:
    end = LaunchEnd()
    for number, line in enumerate(("KeyError: 1", "KeyError: 2", "OSError: 3", "OSError: 4"), 1):
        end.look(line, number)
    assert end.other_errors() == '  the file has another error: line 3, "OSError: 3"\n'
    end.look("ValueError: 5", 5)
    assert end.other_errors().startswith("  the file has 2 other errors; the first: line 3, ")


def test_an_unknown_format_with_steps_keeps_the_words_on_its_end() -> None:
    end = LaunchEnd()
    for line in (BAR, EXITED):
        end.look(line)
    error = no_format_error(Path("a.log"), "", "x, y", end)
    assert error.kind == "unknown-format"
    assert '\n  the log ends with: "exits with return code = -9"\n' in str(error)


# -- words of the error ------------------------------------------------------------------------


def test_a_step_that_cannot_be_read_is_shown_up_to_the_mark() -> None:
    hits, _ = scanned(["text", "step 1 time s", "step 2 time 2.5 s"], A)
    assert describe_hits(hits) == (
        "  nearest: a: 2 lines look like its steps, but none can be read;\n"
        "    line 3 matches up to the mark >>>: step 2 time 2.5>>> s\n"
    )


def test_of_a_long_line_sixty_characters_stand_before_the_mark() -> None:
    for before, dots in ((60 - len("step 1 time 2.5"), ""), (61 - len("step 1 time 2.5"), "…")):
        hits, _ = scanned(["x" * before + "step 1 time 2.5 " + "y" * 90], A)
        shown = ("x" * before + "step 1 time 2.5")[-60:]
        assert describe_hits(hits).endswith(f"mark >>>: {dots}{shown}>>> {'y' * 39}\n")


def test_steps_that_match_lack_what_tells_their_format() -> None:
    hits, _ = scanned(["step 1 time 2.5s"], A)
    assert "1 lines could be its steps (first: line 1), but lack the marks" in describe_hits(hits)
    step = replace(A.steps[0], columns={"step": "step"})
    timeless, _ = scanned(["step 1 time 2.5s"], replace(A, steps=(step,)))
    assert "have none of its fields with a time or rate" in describe_hits(timeless)


def test_a_header_without_steps_is_named() -> None:
    hits, _ = scanned(["text", "  alpha 7  ", "beta 8"], A, B)
    first, second = describe_hits(hits).splitlines()
    assert first == (
        '  nearest: a: 2 of its header lines (first: line 2, "alpha 7"), but no step line'
    )
    assert second.startswith("  nearest: b: 1 of its header lines")


def test_the_two_that_got_furthest_are_named() -> None:
    other = replace(B, steps=(replace(B.steps[0], regex=r"step (?P<step>\d+) at (?P<time>\d+)"),))
    third = replace(B, name="c", looks_like_step="(?!)")
    lines = ["alpha 1", "step 1 time 2", "delta 1"]
    hits, _ = scanned(lines, third, other, A)
    found = describe_hits(hits)
    assert found.startswith("  nearest: a: 1 lines look like its steps")
    assert found.count("nearest") == 2
    assert describe_hits(scanned(["text"], A, B)[0]) == ""


def test_some_lines_alone_are_asked_how_far_they_go() -> None:
    """The furthest stands behind them."""
    lines = ["step 1"] * MAX_NEAR_MISSES
    for before, shown in ((lines[1:], "line 20 matches"), (lines, "line 1 matches")):
        hits, _ = scanned([*before, "step 1 time 2"], A)
        assert shown in describe_hits(hits)


def test_a_file_of_python_gets_a_hint() -> None:
    assert "A Python file is not a log" in str(no_format_error(Path("a.py"), "", "x, y"))
    error = no_format_error(Path("a.log"), "  nearest: z\n", "x, y")
    assert (error.kind, error.recognised) == ("no-readable-step", True)
    assert ".\n  nearest: z\n  known: x, y\n" in str(error)
    assert no_format_error(Path("a.log"), "", "x, y").kind == "unknown-format"
