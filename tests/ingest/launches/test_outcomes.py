"""How a launch ended is told from what stands behind its last step."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import polars as pl
import pytest

from fairmfu.ingest.core import spill
from fairmfu.ingest.core.schema import EVENT_KINDS, OUTCOMES, THEN_FAILED
from fairmfu.ingest.formats.spec import EventLine
from fairmfu.ingest.launches.event_rows import EventRows
from fairmfu.ingest.launches.outcomes import (
    ENDING_EVENT_LINES,
    LSF_REPORT,
    SCRIPTS,
    TRACEBACK_WITHOUT_ERROR,
    launch_outcome,
)
from fairmfu.ingest.launches.row_chunks import MAPPING_ROW_WEIGHT
from fairmfu.ingest.launches.step_rows import StepRows
from fairmfu.ingest.parse.record_sink import ParsedSource


@pytest.mark.parametrize("line", ENDING_EVENT_LINES, ids=lambda line: line.anchor.strip())
def test_an_example_is_its_own_kind_first(line: EventLine) -> None:
    hits = (
        e
        for e in ENDING_EVENT_LINES
        if e.anchor in line.example and re.search(e.regex, line.example)
    )
    assert next(hits).kind == line.kind
    assert line.kind in EVENT_KINDS
    if line.printed_by not in (LSF_REPORT, SCRIPTS):  # no public source
        assert re.match(r"[\w.-]+/[\w.-]+/[\w./-]+\.(py|c|cpp)(@[\w.]+)?$", line.printed_by)


def ended(parse: Callable[..., ParsedSource], *lines: str, planned: int | None = None) -> str:
    (launch,) = parse("torchtitan", lines).launches
    name, _, _ = launch_outcome(launch.rows, launch.events, planned)
    assert name in OUTCOMES
    return name


def step(number: int, loss: str = "5.00000") -> str:
    return f"step: {number:2}  loss: {loss}  memory:  1.50GiB(3.00%)  tps: 100  mfu: 0.40%"


OOM = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
ERROR = "[rank4]:[rank4]: RuntimeError: NCCL communicator was aborted on rank 4."
KILLED = "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***"
SIGTERM = "W1120 10:00:00.0 23 api.py:900] Sending process 2309 closing signal SIGTERM"
LSF = "Subject: Job 7: <pretrain> in cluster <summit>"
DONE = "Training completed"
NOT_FINITE = (
    "[rank0]: RuntimeError: Loss or gradient norm is not finite on at least one rank at step 12. "
    "Stopping training before the optimizer update."
)


@pytest.mark.parametrize(
    ("lines", "planned", "name"),
    [
        ([step(1), DONE], None, "completed"),
        ([step(1), step(10)], 10, "completed"),
        ([step(1), step(10)], 20, "incomplete"),
        ([step(1)], None, "incomplete"),
        ([step(1), ERROR, SIGTERM], None, "crashed"),
        ([step(1), SIGTERM, ERROR], None, "crashed"),  # the launcher's answer to another rank
        ([step(1), SIGTERM], None, "killed"),
        ([step(1), "Killing subprocess 7", "['a'] exits with return code = -9"], None, "killed"),
        ([step(1), "Killing subprocess 7", "['a'] exits with return code = 1"], None, "crashed"),
        ([step(1), "['a'] exits with return code = -6"], None, "crashed"),
        ([step(1), "['a'] exits with return code = 143"], None, "killed"),
        ([step(1), "failed (exitcode: -11) local_rank: 0 (pid: 7)"], None, "crashed"),
        ([step(1), "failed (exitcode: -15) local_rank: 0 (pid: 7)"], None, "killed"),
        ([step(1), f"['{'a' * 600}'] exits with return code = -9"], None, "killed"),
        (
            [step(1), "api.py:688] Received Signals.SIGINT death signal, shutting down workers"],
            None,
            "killed",
        ),
        ([step(1), "Training done in 49.87 seconds."], None, "completed"),
        ([step(1), "^C", "  Aborted!"], None, "killed"),
        ([step(1), "^C"], None, "incomplete"),  # it may have stopped only `tail -f`
        ([step(1), "[rank0]:Aborted."], None, "killed"),
        ([step(1), "Aborted! The cache is full."], None, "incomplete"),
        ([step(1), KILLED, ERROR], None, "killed"),
        ([step(1), ERROR, OOM], None, "out_of_memory"),
        ([step(1), KILLED], 20, "killed"),
        ([ERROR, step(1), DONE], None, "completed"),
        ([step(1), step(10), ERROR], 10, "completed"),
        ([step(1), step(10, "    nan")], 10, "nan_loss"),
        ([step(1), step(10, "    nan"), ERROR], 20, "crashed"),
        ([OOM], None, "out_of_memory"),
        ([step(1), f"{LSF} Exited"], None, "crashed"),
        ([step(1), f"{LSF} Done"], None, "incomplete"),
        ([step(1), f"{LSF} Exited", "TERM_RUNLIMIT: job killed after 2 h."], None, "killed"),
        ([step(1), DONE, f"{LSF} Exited"], None, "crashed"),
        ([step(1), step(10), f"{LSF} Exited"], 10, "completed"),
        ([step(1), NOT_FINITE, ERROR], None, "nan_loss"),
    ],
)
def test_what_stands_behind_the_last_step_decides(
    lines: list[str], planned: int | None, name: str, parse: Callable[..., ParsedSource]
) -> None:
    assert ended(parse, *lines, planned=planned) == name


ABORTED = (
    "E0529 09:14:54.5 16 api.py:986] failed (exitcode: -6) local_rank: 1 (pid: 7) of binary: a"
)
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
ROOT = "Root Cause (first observed failure):"
TRITON = "  RuntimeError: Triton Error [CUDA]: device-side assert triggered"
WATCHDOG = (
    "[rank5]:[E529 09:14:54 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1) ran for 600 ms"
)
AFTER = "[rank2]: torch.distributed.DistBackendError: remote process exited"


@pytest.mark.parametrize(
    ("lines", "name", "text"),
    [
        ([ABORTED, CHILD, ROOT, "  traceback : Traceback", TRITON], "crashed", TRITON),
        ([WATCHDOG, ABORTED, CHILD, ROOT, "  traceback : Signal 6"], "crashed", WATCHDOG),
        ([ABORTED, CHILD, ROOT, "  traceback : Signal 6 (SIGABRT)"], "crashed", ABORTED),
        ([ABORTED, CHILD, ROOT, "  traceback : Signal 6", AFTER], "crashed", ABORTED),
        ([ABORTED, CHILD, ROOT, "  traceback : Signal 6", ABORTED, TRITON], "crashed", ABORTED),
        ([ERROR, ABORTED, CHILD, ROOT, TRITON], "crashed", ERROR),
        ([KILLED, ABORTED, CHILD, ROOT, TRITON], "killed", KILLED),
        ([ABORTED, CHILD, ROOT, TRITON, OOM], "out_of_memory", OOM),
    ],
)
def test_the_error_of_the_first_rank_that_failed_says_more_than_an_exit_code(
    lines: list[str], name: str, text: str, parse: Callable[..., ParsedSource]
) -> None:
    (launch,) = parse("torchtitan", [step(1), *lines]).launches
    outcome, _, cause = launch_outcome(launch.rows, launch.events, None)
    assert (outcome, cause) == (name, text.strip())


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([ERROR, DONE], "completed"),  # training went on to its end
        ([DONE, ERROR], "crashed"),
        ([DONE, ERROR, DONE], "crashed"),  # of another rank
    ],
)
def test_without_steps_an_error_before_the_end_of_training_did_not_end_it(
    lines: list[str], name: str, parse: Callable[..., ParsedSource]
) -> None:
    assert ended(parse, *lines) == name


@pytest.mark.parametrize(("saved", "name"), [(22, "completed"), (20, "incomplete")])
def test_a_last_step_without_a_line_has_a_checkpoint(
    saved: int, name: str, parse: Callable[..., ParsedSource]
) -> None:
    lines = [
        "Iter(train) [20/22]  time: 0.5  loss: 1.5",
        f"Saving checkpoint at {saved} iterations",
    ]
    (launch,) = parse("xtuner", lines).launches
    assert launch_outcome(launch.rows, launch.events, 22)[0] == name


@pytest.mark.parametrize(
    "line",
    [
        "[titan] 2026-01-02 03:04:05,000 - root - WARNING - 0 CUDA OOM errors thrown.",
        "Error running lspci: [Errno 2] No such file or directory: 'lspci', fallback",
        "error_if_nonfinite = True",
        "        raise RuntimeError(message)",
        "    CommandNotFoundError: Your shell has not been properly configured to use 'conda'.",
        "CondaError: Run 'conda init' before 'conda deactivate'",
        "UserWarning: a RuntimeError would follow",
    ],
)
def test_a_line_that_only_speaks_of_errors_ends_nothing(
    line: str, parse: Callable[..., ParsedSource]
) -> None:
    assert ended(parse, step(1), line) == "incomplete"


@pytest.mark.parametrize("unit", ["[a]", "1: ", "A", "a.", "1", " "])
def test_a_long_line_is_read_in_no_time(unit: str) -> None:
    """Were a pattern tried anew from each character of a word, this would take minutes."""
    began = time.monotonic()
    for line in ENDING_EVENT_LINES:
        re.search(line.regex, unit * (60_000 // len(unit)) + line.anchor + unit * 9 + "!")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("AttributeError: 'GPTModel' object has no attribute 'patterns'", "crashed"),
        ("[rank0]: RuntimeError: boom", "crashed"),
        ("torch.OutOfMemoryError: Allocation on device", "out_of_memory"),
        ("KeyboardInterrupt", "killed"),
    ],
)
@pytest.mark.parametrize("indent", ["  ", " " * 6, " " * 8])
def test_an_error_in_an_indented_paste_is_named(
    indent: str, line: str, name: str, parse: Callable[..., ParsedSource]
) -> None:
    """As a page's list or code block has it, steps and all."""
    lines = [step(1), "Traceback (most recent call last):", '  File "train.py", line 9', line]
    assert ended(parse, *(indent + one for one in lines)) == name


def test_the_cause_of_a_crash_is_the_ranks_error_and_not_that_it_failed(
    parse: Callable[..., ParsedSource],
) -> None:
    """Its traceback came before the last step line, through another pipe."""
    failed = "E1120 10:00:00.0 23 api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 24) of x"
    child = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    lines = [step(1), "[rank0]: RuntimeError: boom", step(2), failed, child]

    def said(*lines: str) -> tuple[str, int | None, str | None]:
        (launch,) = parse("torchtitan", lines).launches
        return launch_outcome(launch.rows, launch.events, None)

    assert said(*lines) == ("crashed", 4, failed)
    again = ["  traceback : Traceback (most recent call last):", "  RuntimeError: boom"]
    assert said(*lines, *again) == ("crashed", 7, "RuntimeError: boom")
    assert said(step(1), failed.replace(": 1)", ": -9)"), *again)[0] == "killed"


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (["5.0", "nan", "nan", None], ("nan_loss", 3, "loss is nan from step 2 on")),
        (["inf", "5.0", "nan", "nan"], ("nan_loss", 4, "loss is nan from step 3 on")),
        (["nan", "nan", "5.0", None], ("incomplete", None, None)),
        (["nan", "5.0", "5.0", "5.0"], ("incomplete", None, None)),
        ([None, None, None, None], ("incomplete", None, None)),
    ],
)
def test_the_last_loss_that_was_printed_tells_of_all_pieces(
    rows: int,
    losses: list[str | None],
    said: tuple[str, int | None, str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pieces of few rows, as long logs have them: where the trouble begins, and where all ends."""
    monkeypatch.setattr(spill, "CHUNK_ROWS", rows * MAPPING_ROW_WEIGHT)
    kept = StepRows(None, [None])
    for number, loss in enumerate(losses, 1):
        value = None if loss is None else float(loss)
        kept.append({"line": number + 1, "step": number, "loss": value, "form": None})
    assert launch_outcome(kept, EventRows(), None) == said
    assert (kept.last_line, kept.top_step) == (5, 4)
    kept.transform(lambda frame: frame.with_columns(pl.col("^step$") * 10))
    assert (kept.last_line, kept.top_step) == (5, 40)


NAN_GRADIENT = "gradient norm is nan from step"


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        # of each step: gradient norm, loss, skipped steps
        (
            [(1.0, 5.0, 0), *[("nan", None, 0)] * 3],
            f"{NAN_GRADIENT} 2 on (3 lines), and no loss is logged",
        ),
        (
            [("nan", 1.5, None), *[("nan", 0.0, None)] * 3],
            f"{NAN_GRADIENT} 1 on (4 lines), and the loss stays 0",
        ),
        (
            [("inf", 11.75, None)] * 3,
            "gradient norm is inf from step 1 on (3 lines), and the loss stays 11.75",
        ),
        ([(1.0, 5.0, None), *[("inf", 0.0, None)] * 2], None),  # too few lines
        ([*[("nan", 0.0, None)] * 4, (1.0, 5.0, None)], None),  # the scaling found its level
        ([("nan", 5.0 - n, None) for n in range(5)], None),  # the loss goes on falling
        ([(None, None, 1), *[("inf", None, 1)] * 3], None),  # skipped by the loss scaling
        ([*[("nan", 0.0, None)] * 2, ("nan", 4.0, None), *[("nan", 0.0, None)] * 2], None),
    ],
)
def test_gradients_without_a_number_end_the_learning(
    rows: int,
    steps: list[tuple[str | None, float | None, int | None]],
    said: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As bf16 runs print them; fp16 prints single ones when its loss scale is too high."""
    monkeypatch.setattr(spill, "CHUNK_ROWS", rows * MAPPING_ROW_WEIGHT)
    kept = StepRows(None, [None])
    for number, (norm, loss, skipped) in enumerate(steps, 1):
        values = {"grad_norm": None if norm is None else float(norm), "skipped_steps": skipped}
        kept.append({"line": number, "step": number, "loss": loss, "form": None} | values)
    name, _, text = launch_outcome(kept, EventRows(), None)
    assert (name, text) == (("incomplete", None) if said is None else ("nan_loss", said))


def outcome(*events: tuple[int, str, int | None], planned: int | None = None) -> str:
    """Of steps 1 to 4 on lines 1 to 4, with events (line, kind, step)."""
    rows, kept = StepRows(None, [None]), EventRows()
    for step_number in range(1, 5):
        rows.append({"line": step_number, "step": step_number, "loss": 1.0, "form": None})
    for line, kind, of_step in events:
        kept.append({"line": line, "kind": kind, "step": of_step, "text": f" {kind} "})
    return launch_outcome(rows, kept, planned)[0]


@pytest.mark.parametrize(
    ("line", "of_step", "name"),
    [
        (4, 4, "completed"),  # an event file has more values of the last step behind its end
        (3, 4, "completed"),
        (4, 5, "completed"),
        (4, 3, "incomplete"),  # an earlier end: then the run went on
        (4, None, "incomplete"),
        (5, None, "completed"),  # behind the last step
        (5, 3, "completed"),
    ],
)
def test_an_end_is_that_of_the_last_step(line: int, of_step: int | None, name: str) -> None:
    assert outcome((line, "end", of_step)) == name


@pytest.mark.parametrize(
    ("planned", "saved", "name"),
    [
        (4, None, "completed"),
        (3, None, "completed"),
        (5, None, "incomplete"),
        (5, 5, "completed"),
        (5, 4, "incomplete"),
        (0, None, "incomplete"),  # no plan
    ],
)
def test_the_planned_steps_are_trained_or_saved(planned: int, saved: int | None, name: str) -> None:
    events = [] if saved is None else [(5, "checkpoint", saved)]
    assert outcome(*events, planned=planned) == name  # type: ignore[arg-type]


def test_step_0_alone_is_not_the_planned_step_1() -> None:
    rows = StepRows(None, [None])
    rows.append({"line": 1, "step": 0, "loss": 1.0, "form": None})
    assert launch_outcome(rows, EventRows(), 1)[0] == "incomplete"


def test_a_checkpoint_before_the_last_step_tells_nothing() -> None:
    assert outcome((4, "checkpoint", 5), planned=5) == "incomplete"
    assert outcome((5, "checkpoint", None), planned=5) == "incomplete"


def test_the_planned_end_comes_before_what_fails_behind_it() -> None:
    assert outcome((5, "error", None), planned=4) == "completed"
    assert outcome((5, "error", None), planned=5) == "crashed"
    assert outcome((4, "error", None), planned=5) == "incomplete"  # then it went on


@pytest.mark.parametrize(
    ("after", "name"),
    [
        (["Training completed", "failed (exitcode: -6) local_rank: 1 (pid: 7)"], "completed"),
        (["Training completed", "[rank0]: OSError: [Errno 28] No space left"], "completed"),
        (["failed (exitcode: -6) local_rank: 1 (pid: 7)", "Training completed"], "crashed"),
        (
            ["Training done.", "[rank0]: OSError: [Errno 28] No space left"],
            "crashed",
        ),  # of a script
        (["[rank0]: OSError: [Errno 28] No space left"], "crashed"),
    ],
)
def test_what_fails_after_the_end_leaves_it_completed(
    parse: Callable[..., ParsedSource], after: list[str], name: str
) -> None:
    (launch,) = parse("torchtitan", [step(1), step(2), *after]).launches
    ends = launch.ends.values()
    outcome_name, _, text = launch_outcome(launch.rows, launch.events, None, ends)
    assert outcome_name == name
    assert (text or "").partition(THEN_FAILED)[2] == (after[1] if name == "completed" else "")


def test_a_failure_wins_over_a_later_end() -> None:
    """What is printed by the process that starts it, say."""
    assert outcome((5, "killed", None), (6, "end", None)) == "killed"
    assert outcome((5, "error", None), (6, "out_of_memory", None)) == "out_of_memory"
    assert outcome((5, "error", None), (6, "killed", None)) == "crashed"
    assert outcome((5, "killed", None), (6, "error", None)) == "killed"


def test_a_launch_without_steps_has_not_reached_its_plan() -> None:
    events = EventRows()
    events.append({"line": 5, "kind": "checkpoint", "step": 10, "text": "saved"})
    assert launch_outcome(StepRows(None, [None]), events, 10)[0] == "incomplete"
    events.append({"line": 6, "kind": "end", "step": None, "text": " done "})
    assert launch_outcome(StepRows(None, [None]), events, 10) == ("completed", 6, "done")


def test_the_quote_of_a_long_command_has_its_exit_code(parse: Callable[..., ParsedSource]) -> None:
    command = f"[launch.py:321:sigkill_handler] ['python', '{'a' * 600}']"
    (launch,) = parse("torchtitan", [step(1), f"{command} exits with return code = -6"]).launches
    name, _, text = launch_outcome(launch.rows, launch.events, None)
    assert name == "crashed"
    assert text is not None
    assert text.startswith("[launch.py:321:sigkill_handler]")
    assert text.endswith("…exits with return code = -6")


# -- words on the end --------------------------------------------------------------------------


def ending(parse: Callable[..., ParsedSource], *lines: str) -> tuple[str, str | None]:
    (launch,) = parse("torchtitan", lines).launches
    outcome, _, text = launch_outcome(launch.rows, launch.events, None)
    return outcome, text


@pytest.mark.parametrize(
    ("lines", "outcome", "text"),
    [
        (
            [step(1), DONE, DONE, "['a'] exits with return code = -6"],
            "crashed",
            "a process exited with code -6 (SIGABRT), but 2 lines report a normal end: "
            "Training completed",
        ),
        (
            [step(1), DONE, "failed (exitcode: -15) local_rank: 0 (pid: 7)"],
            "killed",
            "a process exited with code -15 (SIGTERM), but a line reports a normal end: "
            "Training completed",
        ),
        (
            [step(1), DONE, "['a'] exits with return code = 3"],
            "crashed",
            "a process exited with code 3, but a line reports a normal end: Training completed",
        ),
        (
            [step(1), "['a'] exits with return code = 3"],
            "crashed",
            "['a'] exits with return code = 3",
        ),
    ],
)
def test_a_failed_exit_after_normal_ends_is_no_failure_of_all(
    lines: list[str], outcome: str, text: str, parse: Callable[..., ParsedSource]
) -> None:
    assert ending(parse, *lines) == (outcome, text)


TRACE = "[rank1]: Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("lines", "outcome", "text"),
    [
        ([TRACE, '  File "a.py", line 7, in f'], "crashed", TRACEBACK_WITHOUT_ERROR),
        ([TRACE, ERROR], "crashed", ERROR),
        ([TRACE, "KeyboardInterrupt"], "killed", "KeyboardInterrupt"),
        ([TRACE, OOM], "out_of_memory", OOM),
        ([TRACE, DONE, TRACE], "crashed", TRACEBACK_WITHOUT_ERROR),
    ],
)
def test_a_traceback_without_its_error_is_an_error(
    lines: list[str], outcome: str, text: str, parse: Callable[..., ParsedSource]
) -> None:
    assert ending(parse, step(1), *lines) == (outcome, text)


def test_a_loss_is_not_finite_from_the_first_of_its_last_values_on(
    parse: Callable[..., ParsedSource],
) -> None:
    losses = ("5.0", "nan", "5.0", "inf", "nan")
    lines = [step(n, loss.rjust(7)) for n, loss in enumerate(losses, 1)]
    assert ending(parse, *lines) == ("nan_loss", "loss is nan from step 4 on")
