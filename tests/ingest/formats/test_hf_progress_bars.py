"""Which progress bar is a dict's: one that is drawn again, that of the line before, or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.decode.line_reader import NumberedLine
from fairmfu.ingest.formats.hugging_face import progress_bars
from fairmfu.ingest.formats.hugging_face.trainer import HF_CONSOLE
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.parse.line_parser import parse_lines
from fairmfu.ingest.pipeline.api import read_logs
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.effort import THOROUGH
from tests.support.fuzz_targets import read_lines
from tests.support.one_log import tables_of

Rows = list[tuple[int, float] | None]


def shown(epoch: str, loss: str = "2.5", tokens: int = 0) -> str:
    """A dict."""
    return f"{{'loss': {loss}, 'epoch': {epoch}, 'num_input_tokens_seen': {tokens}}}"


def bar(step: int, seconds: float, total: int = 100, each: float = 10.0) -> str:
    """A progress bar; each: seconds of a step."""
    minutes, rest = divmod(int(seconds), 60)
    clock = (
        f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
        if minutes > 59
        else f"{minutes:02}:{rest:02}"
    )
    rate = f"{each:5.2f}s/it" if each >= 1 else f"{1 / each:5.2f}it/s"
    return f"{100 * step // total:3}%|##   | {step}/{total} [{clock}<01:10, {rate}]"


def copied(bar: str, epoch: str, loss: str = "2.5000") -> str:
    """What LLaMA-Factory logs of a dict, behind the bar."""
    said = f"{{'loss': {loss}, 'learning_rate': 1.0000e-05, 'epoch': {epoch}, 'throughput': 9.50}}"
    return f"{bar}[INFO|2026-11-20 15:06:10] llamafactory.train.callbacks:143 >> {said}"


def rows_of(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of all dicts, and of bars if there is one dict."""
    numbered = (NumberedLine(n, text, cut=False) for n, text in enumerate(lines, 1))
    parsed = parse_lines(numbered, HF_CONSOLE)
    assert (parsed.lines, parsed.unread_lines) == (len(lines), 0)
    return [row for launch in parsed.launches for row in launch.rows]


def read(lines: Sequence[str]) -> Rows:
    """Step and time of each dict; none of one that has no bar: its step is counted."""
    found = [(x["step"], x.get("since_start_s")) for x in rows_of(lines) if x.get("loss")]
    return [None if since is None else (step, since) for step, since in found]


PLANNED = "  Total optimization steps = 100"


@pytest.mark.parametrize(
    ("pieces", "counts", "steps"),
    [
        ([bar(1, 10), bar(2, 20), "a message"], (1, 0, 0), [1, 2]),
        ([bar(1, 10), bar(2, 20), "{'loss': x.5, 'epoch': 0.1}"], (0, 1, 0), []),
        ([bar(2, 20), bar(2, 20)], (1, 0, 0), [2]),
        (["a message", "another"], (0, 0, 1), []),
    ],
)
def test_a_line_of_several_bars_counts_once(
    pieces: Sequence[str], counts: tuple[int, int, int], steps: list[int]
) -> None:
    """As unread if one of them is, else as a step line if one of them is a step."""
    texts = [PLANNED, "\r".join(["", *pieces])]
    numbered = [NumberedLine(n, text, cut=False) for n, text in enumerate(texts, 1)]
    parsed = parse_lines(numbered, HF_CONSOLE)
    assert (parsed.step_lines, parsed.unread_lines, parsed.other_lines) == counts
    assert parsed.lines == len(texts)
    assert [row["step"] for launch in parsed.launches for row in launch.rows] == steps


def test_only_the_last_bar_of_an_unended_line_may_be_cut_off() -> None:
    """The bars before it are whole; a line with an unread record counts as unread."""
    texts = [PLANNED, "\r".join(["", bar(1, 10), bar(2, 20), bar(3, 30)])]
    numbered = [NumberedLine(n, text, cut=False, ended=n == 1) for n, text in enumerate(texts, 1)]
    parsed = parse_lines(numbered, HF_CONSOLE)
    assert [row["step"] for launch in parsed.launches for row in launch.rows] == [1, 2, 3]
    unended = numbered[1]._replace(text=f"\r{bar(1, 10)}")
    parsed = parse_lines([numbered[0], unended], HF_CONSOLE)
    assert (parsed.step_lines, parsed.unread_lines) == (0, 1)


MIXED = (
    *(PLANNED, "", "text", bar(1, 10), bar(2, 20), bar(9, 95), bar(7, 7, 50)),
    *(shown("0.1"), shown("0.2", "x.5"), "{'loss': 2.5, 'grad_norm': "),
    *("{'train_runtime': 9.5, 'epoch': 1.0}", "[rank1]:"),
)


@settings(max_examples=300 if THOROUGH else 15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(MIXED),
            st.sampled_from(["\r", "\n", "\r\n", ""]),
        )
    )
)
def test_every_line_counts_once_however_bars_and_dicts_are_mixed(
    pieces: list[tuple[str, str]],
) -> None:
    log = "".join(text + end for text, end in pieces).encode() or b"\n"
    read_lines(bytes([2 * BUILT_IN_FORMATS.index(HF_CONSOLE)]) + log, Path())


TENS = range(10, 80, 10)


def times(steps: Sequence[int]) -> Rows:
    return [(step, 10.0 * step) for step in steps]


@pytest.mark.parametrize("between", [(), ("", "   "), ("\r",)])
def test_the_epochs_tell_that_bars_stand_before_their_dicts(between: Sequence[str]) -> None:
    """Or 20 steps are a tenth of an epoch, and 30 are two."""
    lines = [
        line
        for step in TENS
        for line in (bar(step, 10 * step), *between, shown(f"{step / 100}"), "")
    ]
    assert read(lines) == times(TENS)
    assert read(lines[1:]) == [None, *times(TENS[1:])]  # an excerpt that begins with a dict


@pytest.mark.parametrize("of_an_epoch", [100, 64, 33.4])
def test_the_epochs_tell_that_bars_stand_behind_their_dicts(of_an_epoch: float) -> None:
    """In an excerpt that begins with the bar of a dict before it, also where epochs are uneven."""
    dicts = [shown(f"{round(step / of_an_epoch, 2)}") for step in TENS[1:]]
    bars = [bar(step, 10 * step) for step in TENS]
    lines = [line for pair in zip(bars, dicts, strict=False) for line in pair]
    assert read([*lines, bars[-1]]) == times(TENS[1:])


def test_epochs_tell_as_far_as_their_digits_show() -> None:
    """Since 5.0 they are four, and 10 steps are 0.002 of an epoch."""
    epochs = [f"'{step / 5000:.4g}'" for step in TENS]
    lines = [line for n, e in zip(TENS, epochs, strict=True) for line in (bar(n, 10 * n), shown(e))]
    assert read(lines) == times(TENS)
    rounded = [shown(f"{n / 5000:.2f}") for n in TENS]
    lines = [line for n, text in zip(TENS, rounded, strict=True) for line in (bar(n, 10 * n), text)]
    assert read(lines) == [None] * len(TENS)


def test_what_epochs_do_not_tell_has_no_bar() -> None:
    lines = [line for step in TENS for line in (bar(step, 10 * step), "{'loss': 2.5, 'lr': 1e-05}")]
    assert read(lines) == [None] * len(TENS)
    late = range(500, 550, 10)  # of 1000: one more or less is within the rounding
    lines = [text for n in late for text in (bar(n, n, 1000, 1), shown(f"{n / 5000:.2f}"))]
    assert read(lines) == [None] * len(late)


def test_a_bar_that_is_the_same_before_and_behind_a_dict_was_drawn_again() -> None:
    """So later ones are too, and a bar before a dict may be old."""
    lines = [bar(10, 100), "", shown("0.1"), "", bar(10, 100)]
    lines += [bar(19, 190), shown("0.2"), bar(20, 200)]
    assert read(lines) == times([10, 20])


def test_an_old_bar_before_a_dict_says_nothing_where_returns_are_kept() -> None:
    lines = [bar(9, 100, each=0.05), shown("0.1"), f"\r{bar(10, 100)}"]
    assert read(lines) == times([10])


def test_bars_of_every_step_may_be_of_either_side() -> None:
    """One step more or less is within the rounding of these epochs."""
    lines, redrawn = [], []
    for step in range(100, 130):
        drawn = bar(step, 10 * step, 1000, 10)
        dicts = [shown(f"{step / 1000:.2f}")] if step % 5 == 0 else []
        lines += [drawn, *dicts]
        redrawn += [*dicts, drawn]
    assert read(lines) == read([bar(99, 990, 1000, 10), *redrawn]) == [None] * 6
    assert read(redrawn) == times(range(100, 130, 5))  # the first has one behind it alone


def test_bars_of_fast_steps_may_be_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their rate, by their clock, or by a rate further on."""

    def lines(seconds: float, last: float = 1.0, each: float = 1.0) -> list[str]:
        bars = [bar(n, n * seconds, each=last if n == TENS[-1] else each) for n in TENS]
        dicts = [shown(f"{n / 100}") for n in TENS]
        return [line for pair in zip(bars, dicts, strict=True) for line in pair]

    slow = [(n, float(n)) for n in TENS]
    assert read(lines(1)) == slow
    assert read(lines(1, 0.05, 0.05)) == read(lines(0.05)) == read(lines(1, 0.05)) == [None] * 7
    monkeypatch.setattr(progress_bars, "MAX_SCANNED_DICTS", 6)
    assert read(lines(1, 0.05)) == [*slow[:-1], None]


def test_bars_before_dicts_are_theirs_where_other_lines_stand_behind() -> None:
    lines = [t for n in TENS for t in (bar(n, 10 * n), shown(f"{n / 100}"), "Saving a checkpoint")]
    assert read(lines) == times(TENS)


def test_a_bar_that_came_before_others_is_not_the_dicts() -> None:
    lines = [line for n in TENS for line in (bar(n, 10 * n), shown(f"{n / 100}"))]
    assert read([*lines, bar(79, 790), f"\r{bar(80, 800)}\r   \r{shown('0.8')}"])[-1] is None
    assert read([*lines, bar(72, 720), shown("0.9")])[-1] is None  # by the epochs
    again = [bar(1, 10), shown("0.0"), "x", bar(1, 10), shown("0.0")]
    assert read([*lines, "x", *again])[-2:] == [(1, 10.0), None]
    assert read([*lines, "x", bar(13, 26, 13), shown("0.8")])[-1] is None  # an evaluation's


def test_llamafactory_copies_a_dict_behind_its_bar() -> None:
    losses = [f"{3 - step / 100:.4f}" for step in TENS]
    lines = []
    for step, loss in zip(TENS, losses, strict=True):
        epoch = step / 33.4
        lines += [copied(bar(step, 10 * step), f"{epoch:.2f}", loss)]
        lines += [shown(f"{round(epoch, 2)}", f"{float(loss)}")]
    assert read(lines) == times(TENS)
    resumed = bar(30, 20, each=10)
    assert read([copied(resumed, "0.90", "2.7000"), shown("0.9", "2.7")]) == [None]
    late = [line for pair in zip(lines[1::2], lines[::2], strict=True) for line in pair]
    assert read(late) == [None] * len(TENS)  # each copy is of the dict before


def test_dicts_that_stand_together_come_late_from_a_buffer() -> None:
    dicts = [shown(f"{step / 100}") for step in (10, 20, 30)]
    assert read([bar(35, 350), *dicts, bar(36, 360)]) == [None] * 3
    assert read([bar(100, 1000), *dicts]) == [None] * 3


def test_late_dicts_whose_steps_are_proven_have_their_bars() -> None:
    """Under nohup, standard output waits in a buffer; the bars of standard error do not."""
    bars = [bar(step, 10 * step, 22) for step in range(1, 23)]
    dicts = [shown(f"{step / 11:.4f}") for step in range(5, 23, 5)]
    rows = [(step, 10 * step) for step in range(5, 23, 5)]
    assert read([*bars, *dicts]) == rows
    assert read([*bars[:14], *dicts[:2], *bars[14:], *dicts[2:]]) == rows
    assert read([*bars[:9], bar(3, 1, 3), *bars[9:], *dicts]) == rows  # of an evaluation
    assert [row["step"] for row in rows_of([*bars[-2:], *dicts])] == [5, 10, 15, 20]


def test_late_dicts_without_proof_have_no_bar() -> None:
    bars = [bar(step, 10 * step, 22) for step in range(1, 23)]
    dicts = [shown(f"{step / 11:.4f}") for step in range(5, 23, 5)]
    assert read([*bars[:20], *dicts]) == [None] * 4  # the bar has not reached its end
    assert read([*bars, *dicts[:3]]) == [None] * 3  # every 6 or every 7 steps
    assert read([*bars, *dicts[1:]]) == [None] * 3  # the epochs do not begin with the first step
    assert read([*bars[:14], *dicts, *bars[14:]]) == [None] * 4  # more may have been lost
    assert read([*bars, *bars, *dicts]) == [None] * 4  # two launches
    both = [bar(step, 11 * step, 23) for step in range(1, 24)]
    assert read([*bars, *both, *dicts]) == [None] * 4  # two trainings
    assert read([*bars, bar(3, 1, 3), *dicts]) == [None] * 4  # either may be the training's


BAR_TOLD = re.compile(r"\(progress bar: step (\d+) of \d+(?: after (\d+) s)?\)$")


def late_run(draw: Random) -> tuple[list[str], list[tuple[int, int]]]:
    """A log whose dicts come from a buffer, and the truth of each dict: step and seconds.

    With some launches, evaluations, bars that are not drawn, and dicts or a beginning lost.
    """
    total, every = draw.randrange(12, 300), draw.choice((1, 2, 3, 5, 10, 25))
    per_epoch, each = draw.uniform(3, 500), draw.uniform(0.3, 20)
    batches, evaluates = draw.randrange(2, 600), draw.choice((7, 20, 60, 1000, 1000))
    evaluation = [bar(n, 0.2 * n, batches) for n in sorted({1, batches // 2 or 1, batches})]
    begin = draw.choice((0, 0, 0, 0, draw.randrange(total // 2)))
    ends = [*sorted(draw.sample(range(begin + 6, total, 6), draw.choice((0, 0, 0, 1)))), total]
    lines = [(text, None) for text in evaluation] if draw.random() < 0.1 else []
    for first, last in zip([begin, *ends], ends, strict=False):
        since, held = 0.0, list[tuple[str, tuple[int, int] | None]]()
        for step in range(first + 1, last + 1):
            since += each * draw.uniform(0.7, 1.4)
            if draw.random() < 0.97 or step == total:
                lines.append((bar(step, since, total, each), None))
            if step % every == 0 or (step == 1 and draw.random() < 0.2):  # logging_first_step
                epoch = step / per_epoch
                text = f"'{epoch:.4g}'" if total % 2 else f"{round(epoch, 4)}"
                held.append((shown(text, f"{9 - 8 * step / total:.3f}"), (step, int(since))))
            lines += [(text, None) for text in evaluation] if step % evaluates == 0 else []
            if len(held) > draw.randrange(2, 40):
                lines, held = [*lines, *held], []
        lines += held if draw.random() > 0.2 else []
    rest = lines[draw.randrange(len(lines)) :] if draw.random() < 0.1 else lines
    lines = rest if sum(truth is not None for _, truth in rest) > 2 else lines
    return [text for text, _ in lines], [truth for _, truth in lines if truth is not None]


def test_no_late_dict_has_another_step_or_time() -> None:
    proven = 0
    for seed in range(5000 if THOROUGH else 200):
        lines, truth = late_run(Random(f"late {seed}"))  # noqa: S311 - no secret
        found = [BAR_TOLD.search(text) for text in dicts_of(joined(lines))]
        for told, (step, seconds) in zip(found, truth, strict=True):
            if told is not None:
                assert int(told[1]) == step, seed
                assert told[2] is None or int(told[2]) == seconds, seed
        proven += bool(found) and all(found)
    assert proven > 30


def test_a_bar_beyond_its_end_or_of_an_evaluation_is_none() -> None:
    lines = [bar(10, 100), shown("0.1"), bar(10, 100)]
    assert read([*lines, bar(13, 5, 13), shown("0.2"), bar(20, 200)]) == times([10, 20])
    assert read([*lines, bar(20, 200), shown("0.2"), bar(1, 2, 13)]) == times([10, 20])
    assert read([bar(120, 1200), shown("0.1"), bar(10, 100)]) == times([10])


def test_a_cut_off_dict_does_not_take_the_bar_of_the_one_before() -> None:
    lines = [shown("0.1"), bar(10, 100), shown("0.2"), bar(20, 200), shown("0.3")]
    assert read(lines) == [*times([10, 20]), None]


def test_a_file_is_looked_at_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for n in TENS for line in (bar(n, 10 * n), shown(f"{n / 100}"))]
    monkeypatch.setattr(progress_bars, "MAX_SCANNED_DICTS", 2)
    assert read(lines) == times(TENS)
    monkeypatch.setattr(progress_bars, "MAX_SCANNED_DICTS", 1)
    assert read(lines) == [None] * len(TENS)
    monkeypatch.setattr(progress_bars, "MAX_SCANNED_DICTS", 200)
    monkeypatch.setattr(progress_bars, "MAX_SCANNED_CHARS", 80)
    assert read(lines) == [None] * len(TENS)


def test_both_kinds_in_one_file_are_none() -> None:
    lines = [line for n in TENS for line in (bar(n, 10 * n), shown(f"{n / 100}"))]
    again = [bar(79, 790), shown("0.8"), f"\r{bar(80, 800)}", shown("0.9"), bar(90, 900)]
    assert read([*lines, *again]) == [*[None] * len(TENS), (80, 800.0), None]


def test_a_message_behind_the_bar_that_is_drawn_again_leaves_the_one_before() -> None:
    """DeepSpeed's lines come on standard output, behind the bar; here and there none does."""
    message = "[2026-11-20 15:06:10,118] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms)"
    for clean in (10, 40, 70):
        lines = [
            line
            for n in TENS
            for line in (
                *(bar(n, 10 * n), "   ", shown(f"{n / 100}"), ""),
                bar(n, 10 * n) + message * (n != clean),
            )
        ]
        assert read(lines) == times(TENS)


def test_a_run_that_begins_anew_has_bars_on_the_same_side() -> None:
    lines = [line for n in TENS for line in (bar(n, 10 * n), shown(f"{n / 100}"))]
    others = [line.replace("/100 [", "/80 [") for line in lines]
    assert read([*lines, *lines]) == read([*lines, *others]) == 2 * times(TENS)


def test_tokens_are_over_the_time_of_their_own_dicts(tmp_path: Path) -> None:
    """1,000 tokens a second; with the bars behind them, 10 steps more each, it was half of it."""
    shown_at = (10, 20, 30, 50, 90)
    lines = [
        line for n in shown_at for line in (bar(n, 10 * n), shown(f"{n / 100}", tokens=10_000 * n))
    ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines) + "\n")
    (row,) = analyse(tables_of(log, facts={"gpus": 1})).metrics.to_dicts()
    assert row["tgs"] == pytest.approx(1000)


def placed(lines: Sequence[str]) -> list[int]:
    """The step of each dict, whether it has a bar or not."""
    numbered = (NumberedLine(n, text, cut=False) for n, text in enumerate(lines, 1))
    (launch,) = parse_lines(numbered, HF_CONSOLE).launches
    return [row["step"] for row in launch.rows]


def test_a_dict_without_a_bar_is_counted_from_those_that_have_one() -> None:
    """Back from the first of them, not from step 1; by the interval where that leads there."""
    lines = [line for n in TENS for line in (bar(n, 10 * n), shown(f"{n / 100}"))]
    assert placed(lines[1:]) == [*TENS]
    excerpt = [line for n in range(310, 990, 10) for line in (bar(n, n, 1000), shown(f"{n / 100}"))]
    assert placed(excerpt[1:]) == [*range(310, 990, 10)]
    gone = [line for line in lines if not line.startswith((f"{bar(40, 400)}", f"{bar(70, 700)}"))]
    assert placed(gone) == [*TENS]
    stated = ["TrainingArguments(logging_steps=10, logging_first_step=True)", *lines[1:]]
    assert placed(stated) == [*TENS]


def captured_at(steps: Sequence[int], without: Sequence[int]) -> list[str]:
    """Dicts with their bars drawn again, but for some."""
    bars = {n: "" if n in without else f"\r{bar(n, 10 * n, 200)}" for n in steps}
    return [line for n in steps for line in (shown(f"{n / 100}"), bars[n])]


def test_where_no_interval_leads_from_one_to_the_next_a_dict_is_one_step() -> None:
    uneven = [*TENS, 93, 96, 107]
    assert placed(captured_at(uneven, [93, 107])) == [*TENS, 71, 96, 106]
    assert placed(captured_at([1, *TENS], [1])) == [1, *TENS]  # step 1 is printed whatever it is
    assert placed(captured_at([3, 7, *TENS], [3, 7])) == [8, 9, *TENS]


def test_a_clock_does_not_begin_with_an_excerpt_of_a_resumed_run(tmp_path: Path) -> None:
    """1,000 tokens a second; all steps over the time since step 300, it was 1,441."""
    shown_at = range(310, 990, 10)
    lines = [
        line
        for n in shown_at
        for line in (
            bar(n, 10 * (n - 300), 1000),
            shown(f"{n / 100}", tokens=10_000 * n),
        )
    ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines[1:]) + "\n")
    (row,) = analyse(tables_of(log, facts={"gpus": 1})).metrics.to_dicts()
    assert (row["tgs"], row["tgs_end_to_end"]) == pytest.approx((1000, 1000))
    assert (row["end_to_end_basis"], row["steps"]) == ("clock", 68)


# -- runs of any kind, printed in any way ---------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The bars that tqdm draws before each dict, the dict's step, its text and its copy."""

    logged: Sequence[tuple[Sequence[int], int, str, str]]
    bars: dict[int, str]
    seconds: dict[int, float]


def _epoch_of(step: int, micro: float, per_epoch: int) -> float:
    """Where batches go on over the end of an epoch, or the last ones are a step of their own.

    micro: steps of an epoch by its batches.
    """
    if not per_epoch:
        return step / micro
    epoch, rest = divmod(step - 1, per_epoch)
    return epoch + min(1.0, (rest + 1) / micro)


def drawn_run(draw: Random, fastest: float) -> Run:
    """Of whole epochs or not, from the beginning or resumed, with any step time and interval."""
    accumulated = draw.choice((1, 2, 4, 8))
    micro = draw.randint(accumulated, draw.choice((20, 100, 1000, 20_000)))
    up, down = -(-micro // accumulated), micro // accumulated
    per_epoch = draw.choice((0, up, down))
    total = draw.choice((draw.randint(1, 4) * down, draw.randint(5, 3000), down * 5 // 3))
    total = min(max(total, 3), 3000)
    interval = draw.randint(1, max(1, min(100, total // 3)))
    steps = list(range(interval, total + 1, interval))[:60]
    if draw.random() < 0.2:
        steps = sorted(draw.sample(range(1, total + 1), min(total, draw.randint(2, 20))))
    each = draw.choice([x for x in (0.01, 0.05, 0.15, 0.3, 1.5, 6.0, 30.0) if x >= fastest])
    since = draw.uniform(0, 60)
    begin = draw.choice((0, 0, 0, draw.randrange(steps[0])))
    strings = draw.random() < 0.4
    seconds, bars, before, rate, logged = {begin: since}, dict[int, str](), begin, 0.0, []
    fresh: list[int] = []
    for step in range(begin + 1, steps[-1] + 1):
        since += each * draw.uniform(0.7, 1.4) + (draw.uniform(0, 20) if step == begin + 1 else 0)
        since += draw.uniform(0, 30) if step - 1 in steps and draw.random() < 0.3 else 0  # a save
        seconds[step] = since
        if since - seconds[before] >= 0.1:
            one = (since - seconds[before]) / (step - before)
            rate, before = 0.3 * one + 0.7 * rate if rate else one, step
            fresh.append(step)
        bars[step] = bar(step, since, total, rate or each)
        if step in steps:
            epoch = _epoch_of(step, micro / accumulated, per_epoch)
            loss = 9 - 8 * step / total
            said = (f"'{epoch:.4g}'", f"'{loss:.4g}'") if strings else (f"{round(epoch, 2)}", loss)
            text = shown(said[0], str(said[1]))
            logged.append((fresh, step, text, copied("", f"{epoch:.2f}", f"{loss:.4f}")))
            fresh = []
    return Run(logged, bars, seconds)


def captured(run: Run) -> list[str]:
    """As it is printed."""
    text = ""
    for fresh, step, said, _ in run.logged:
        text += "".join(f"\r{run.bars[one]}" for one in fresh) + f"\r        \r{said}\n"
        text += f"\r{run.bars[step]}"
    return text.split("\n")


def returned(run: Run) -> list[str]:
    """A viewer has made lines of carriage returns."""
    return "\n".join(captured(run)).replace("\r", "\n").split("\n")


def tidied(run: Run) -> list[str]:
    """The same without blank lines."""
    return [line for line in returned(run) if line.strip()]


def before(run: Run) -> list[str]:
    """The last bar before each dict."""
    shown = ((*(run.bars[one] for one in fresh[-1:]), said) for fresh, _, said, _ in run.logged)
    return [line for lines in shown for line in lines]


def apart(run: Run) -> list[str]:
    """The same with blank lines."""
    return [text for line in before(run) for text in (line, "", "   ")]


def every(run: Run) -> list[str]:
    """All bars, but none is drawn again."""
    shown = ((*(run.bars[one] for one in fresh), said) for fresh, _, said, _ in run.logged)
    return [line for lines in shown for line in lines]


def behind(run: Run) -> list[str]:
    """The bar that is drawn again, alone."""
    return [line for _, step, said, _ in run.logged for line in (said, run.bars[step])]


def llamafactory(run: Run) -> list[str]:
    """A terminal's screen: bars are left where a copy stands behind them."""
    return [
        line
        for fresh, _, said, copy in run.logged
        for line in (f"{run.bars[fresh[-1]] if fresh else ''}{copy}", said)
    ]


def buffered(run: Run) -> list[str]:
    """Dicts come several at a time."""
    lines, late = list[str](), list[str]()
    for place, (fresh, _, said, _) in enumerate(run.logged):
        lines += [run.bars[one] for one in fresh[-2:]]
        late.append(said)
        if place % 5 in (1, 4):
            lines, late = lines + late, []
    return lines + late


REDRAWN = (captured, returned, tidied, behind)
ONCE = (before, apart, every, llamafactory)
"""Bars are not drawn again: these are runs whose every step is drawn."""
SURE = (captured, behind)
"""Where each dict has its bar."""


@pytest.mark.parametrize("style", [*REDRAWN, *ONCE, buffered], ids=lambda style: style.__name__)
def test_a_dict_has_its_own_bar_or_none(style: Callable[[Run], list[str]]) -> None:
    found = 0
    for seed in range(2000 if THOROUGH else 12):
        draw = Random(f"{style.__name__} {seed}")  # noqa: S311 - no secret
        fastest = 0.3 if style in ONCE else 0.0
        run = drawn_run(draw, fastest)
        first = draw.choice((0, draw.randrange(len(run.logged))))
        run = Run(run.logged[first:], run.bars, run.seconds)
        truth = [(step, float(int(run.seconds[step]))) for _, step, _, _ in run.logged]
        rows = read(style(run))
        wrong = [(a, b) for a, b in zip(rows, truth, strict=True) if a not in (None, b)]
        assert not wrong, (seed, wrong)
        found += sum(row is not None for row in rows)
        assert None not in rows or style not in SURE
    assert found > 0


def joined(lines: Sequence[str]) -> list[str]:
    """Lines with what is added to dicts."""
    assert HF_CONSOLE.join is not None
    return [text for _, _, text in HF_CONSOLE.join(enumerate(lines, 1))]


@pytest.mark.parametrize("style", [*REDRAWN, *ONCE], ids=lambda style: style.__name__)
def test_a_dict_has_its_own_writers_bar(style: Callable[[Run], list[str]]) -> None:
    """Lines of several nodes or ranks stand between each other; those with tags had no bars."""
    for seed in range(300 if THOROUGH else 8):
        draw = Random(f"{style.__name__} {seed}")  # noqa: S311 - no secret
        own = {tag: style(drawn_run(draw, 0.0)) for tag in ("0: ", "1: ", "[default2]:")}
        turns = [tag for tag, lines in own.items() for _ in lines]
        draw.shuffle(turns)
        left = {tag: iter(lines) for tag, lines in own.items()}
        mixed = joined([tag + next(left[tag]) for tag in turns])
        for tag, lines in own.items():
            mine = [text[len(tag) :] for of, text in zip(turns, mixed, strict=True) if of == tag]
            assert dicts_of(mine) == dicts_of(joined(lines)), (seed, tag)


def test_late_dicts_of_tagged_writers_have_no_bars() -> None:
    """Only a file of one writer is held in memory to prove their steps."""
    lines = buffered(drawn_run(Random("tagged"), 0.3))  # noqa: S311 - no secret
    assert not any("progress bar: " in text for text in joined([f"0: {x}" for x in lines]))


def dicts_of(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if "{'loss': " in line]


@pytest.mark.parametrize("style", REDRAWN, ids=lambda style: style.__name__)
def test_the_bars_around_a_single_dict_are_steps(style: Callable[[Run], list[str]]) -> None:
    """Each drawn step is a row with its own time."""
    for seed in range(500 if THOROUGH else 20):
        draw = Random(f"{style.__name__} {seed}")  # noqa: S311 - no secret
        run = drawn_run(draw, 0.3)
        fresh, step, said, copy = draw.choice(run.logged)
        rest = [n for n in run.seconds if step < n < step + 20 and n in run.bars]
        lines = style(Run([(fresh, step, said, copy)], run.bars, run.seconds))
        rows = rows_of([*lines, *(run.bars[n] for n in rest)])
        drawn = {*rest, step} | ({*fresh} if style is not behind else set())
        assert {x["step"] for x in rows} == drawn, seed
        assert all(x["since_start_s"] == int(run.seconds[x["step"]]) for x in rows), seed
        assert [x["step"] for x in rows if x.get("loss")] == [step]


def test_a_single_dict_without_its_own_bar_leaves_bars_unread() -> None:
    """They may be of another training, or of none."""
    lines = [bar(1, 10, 55), shown("0.1"), "x", bar(3, 30, 77), bar(4, 40, 77)]
    assert [x["step"] for x in rows_of(lines)] == [1]


def test_bars_of_an_evaluation_are_no_steps_of_a_single_dict() -> None:
    lines = [bar(9, 90), bar(10, 100), shown("0.1"), bar(10, 100), bar(1, 2, 13), bar(2, 4, 13)]
    rows = rows_of([*lines, bar(11, 130)])
    assert [(x["step"], x["since_start_s"]) for x in rows] == [(9, 90), (10, 100), (11, 130)]


def nodes(names: Sequence[str], *, late: int) -> list[str]:
    """What a job's nodes print into one log, each behind its name, the later ones late [s]."""
    lines = []
    for step in range(4, 41, 4):
        seconds = [bar(step, 10 * step - late * place, 40) for place in range(len(names))]
        said = shown(f"{step / 40:.3f}", f"{3 - step / 20:.2f}")
        drawn = [n + one for n, one in zip(names, seconds, strict=True)]
        lines += [*drawn, *(name + said for name in names), *drawn]
    return lines


@pytest.mark.parametrize("name", ["10.0.0.{}: ", "gpu{}: ", "worker-{}: ", "{}: ", "[rank{}]:"])
def test_times_are_those_of_one_node(name: str, tmp_path: Path) -> None:
    """Their clocks begin apart, and their bars stand between each other's."""
    log = tmp_path / "run.log"
    lines = nodes([name.format(n) for n in (7, 3, 5)], late=9)
    log.write_text("\n".join([*lines, ""]))
    given = {"gradient_accumulation": 1, "global_batch_size": 48}
    tables = tables_of(log, facts={"gpus": 24, "seq_len": 512, "packed": True, **given})
    (row,) = analyse(tables).metrics.iter_rows(named=True)
    assert (row["steps"], row["time_basis"]) == (10, "clock")
    assert row["tgs"] == pytest.approx(48 * 512 / 24 / 10)


@pytest.mark.parametrize("name", ["10.0.0.{}: ", "{}: "])
def test_bars_alone_of_several_nodes_are_the_steps_of_the_first(name: str, tmp_path: Path) -> None:
    """Their clocks stand between each other; behind a tag none was a step."""
    names = [name.format(n) for n in (3, 4)]
    lines = [one + "  Total optimization steps = 40" for one in names]
    for step in range(1, 41):
        drawn = [f"{one}{bar(step, 12 * step - 5 * n, 40)}" for n, one in enumerate(names)]
        lines += drawn if step % 2 else drawn[::-1]
    (tmp_path / "run.err").write_text("\n".join([*lines, ""]))
    steps = read_logs(tmp_path / "run.err")["steps"]
    assert steps["step"].to_list() == list(range(1, 41))
    assert steps["since_start_s"].to_list() == [12.0 * step for step in range(1, 41)]


@pytest.mark.parametrize("steps", [(100,), (40, 60, 80, 100)])
def test_a_lone_bar_that_is_drawn_again_behind_the_end_is_no_launch(
    steps: tuple[int, ...], tmp_path: Path
) -> None:
    """Where no dict of a loss is printed; it was a run of its own, whose steps go back."""
    log = tmp_path / "run.log"
    ended = "{'train_runtime': 1000.2, 'train_samples_per_second': 1.6, 'train_loss': 0.5}"
    begun = ["***** Running training *****", "  Total optimization steps = 100"]
    each = [bar(step, 10 * step) for step in steps]
    log.write_text("\n".join([*begun, *each, ended, bar(100, 1000), ""]))
    facts = {"gpus": 1, "seq_len": 512, "packed": True, "global_batch_size": 16}
    (row,) = analyse(tables_of(log, facts=facts)).metrics.iter_rows(named=True)
    assert row["tgs"] == (None if len(steps) == 1 else pytest.approx(16 * 512 / 10))
    assert row["outcome"] == "completed"
