"""Lines with a counter of their own: brought to the steps of the training, or to none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ingest.parse import Launch, Parsed

Parse = Callable[..., Parsed]


def log(*lines: str) -> list[str]:
    """`S10` is the engine's line of step 10, `T1/20` the timer's in epoch 1 at count 20."""

    def written() -> Iterator[str]:
        for second, line in enumerate(lines):
            stamp = f"[2026-01-02 03:04:{second:02},000] [INFO] "
            if line.startswith("S"):
                yield f"{stamp}[Rank 0] step={line[1:]}, skipped=0, lr=[0.1], mom=[0.9]"
            elif line.startswith("T"):
                yield f"{stamp}{line[1:]}, RunningAvgSamplesPerSec=8.0, CurrSamplesPerSec=4.0"
            else:
                yield line

    return list(written())


def accumulates(count: int) -> str:
    return f"[INFO] [config.py:9:print]   gradient_accumulation_steps .. {count}"


def only(parsed: Parsed) -> Launch:
    (launch,) = parsed.launches
    assert parsed.step_lines == len(launch.rows)
    assert parsed.lines == parsed.step_lines + parsed.known_lines
    return launch


def steps(parse: Parse, lines: Sequence[str]) -> list[int]:
    return [row["step"] for row in only(parse("deepspeed", lines)).rows]


def test_two_moments_tell_how_many_counts_a_step_has(parse: Parse) -> None:
    assert steps(parse, log("S10", "T0/40", "T0/60", "S20", "T0/80")) == [10, 10, 15, 20, 20]


def test_a_resumed_run_counts_on_where_the_engine_does(parse: Parse) -> None:
    lines = log(accumulates(2), "S510", "T0/20", "T0/30", "S520", "T0/40")
    assert steps(parse, lines) == [510, 510, 515, 520, 520]


def test_a_counter_that_starts_anew_with_the_epoch_stays_in_one_launch(parse: Parse) -> None:
    lines = log(accumulates(1), "S10", "T0/10", "S20", "T0/20", "S30", "T1/5", "S40", "T1/15")
    assert steps(parse, lines) == [10, 10, 20, 20, 30, 30, 40, 40]


def test_a_count_in_the_middle_of_a_step_is_no_step(parse: Parse) -> None:
    launch = only(parse("deepspeed", log(accumulates(4), "T0/10", "T0/20")))
    assert [row["step"] for row in launch.rows] == [5]
    (event,) = launch.events
    assert (event["kind"], event["line"], event["step"]) == ("timers", 2, None)


def test_one_moment_alone_tells_nothing(parse: Parse) -> None:
    assert steps(parse, log("S10", "T0/40", "T0/50")) == [10]


def test_moments_that_contradict_each_other_tell_nothing(parse: Parse) -> None:
    lines = log("S75", "T0/100", "S150", "T0/150", "S225", "T0/250", "S300", "T0/300")
    assert steps(parse, lines) == [75, 150, 225, 300]


def test_without_anything_else_the_run_is_told_in_micro_steps(parse: Parse) -> None:
    launch = only(parse("deepspeed", log("T0/10", "T0/20", "T1/10")))
    assert [row["step"] for row in launch.rows] == [10, 20]
    assert launch.step_unit == "micro_step"
    assert [event["line"] for event in launch.events] == [3]


def test_the_rate_of_a_micro_step_is_not_that_of_a_step(parse: Parse) -> None:
    one, two = (only(parse("deepspeed", log(accumulates(n), "T0/20"))).rows[0] for n in (1, 2))
    assert (one["step"], one["logged_samples_per_second"]) == (20, 4.0)
    assert (two["step"], two["logged_samples_per_second"]) == (10, None)
    assert '"micro_step_samples_per_second": 4.0' in two["extra"]


def test_the_engine_and_the_pipeline_print_one_step_in_one_launch(parse: Parse) -> None:
    lines = log("S5", "steps: 5 loss: 7.0 iter time (s): 0.5 samples/sec: 8.0", "S10")
    assert steps(parse, lines) == [5, 5, 10]
