"""A head against its base: direction first, and a gate that is sure of what it says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fairmfu.cli import main
from fairmfu.metrics.compare.repeated_runs import SpeedRatio
from fairmfu.reports.comparison.comparison_markdown import GREEN, RED, WHITE, YELLOW
from fairmfu.reports.comparison.run_set import RunSet
from fairmfu.reports.comparison.speed_change import (
    FASTER,
    GATE_HEAD_FAILED,
    GATE_PASSED,
    GATE_SLOWER,
    GATE_UNDECIDED,
    SLOWER,
    SpeedChange,
    gate,
)
from sample_logs.make_synthetic import SIDECARS, WRITERS, ImaginaryRun
from tests.reports.text.test_verdict import steps

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def change(gap: SpeedRatio | None, outcome: str = "completed") -> SpeedChange:
    rows = [
        {"run_id": name, "label": name, "outcome": ended, "group": None, "rank": None}
        for name, ended in (("base", "completed"), ("head", outcome))
    ]
    base, head = (RunSet((row,)) for row in rows)  # type: ignore[arg-type]
    return SpeedChange(base, head, gap)


ENDS = st.floats(0.5, 1.5).flatmap(
    lambda ratio: st.tuples(st.floats(0, 0.2), st.floats(0, 0.2)).map(
        lambda off: SpeedRatio(ratio, ratio - off[0], ratio + off[1])
    )
)
SHARES = st.floats(0, 0.5)


@given(ENDS, SHARES)
def test_a_gate_decides_only_if_the_whole_interval_does(gap: SpeedRatio, allowed: float) -> None:
    code = gate(change(gap), allowed).code
    inside = [gap.low + (gap.high - gap.low) * part / 8 for part in range(9)]
    slower = {ratio < 1 - allowed for ratio in (gap.low, *inside[1:-1], gap.high)}
    assert code == {(True,): 3, (False,): 0}.get(tuple(slower), 6)


@given(ENDS, SHARES, SHARES)
def test_who_allows_more_never_fails_more(gap: SpeedRatio, share: float, other: float) -> None:
    order = [GATE_SLOWER, GATE_UNDECIDED, GATE_PASSED]
    less, more = (gate(change(gap), allowed).code for allowed in sorted((share, other)))
    assert order.index(less) <= order.index(more)


@given(ENDS)
def test_the_other_way_round_is_the_other_direction(gap: SpeedRatio) -> None:
    mirrored = SpeedRatio(1 / gap.ratio, 1 / gap.high, 1 / gap.low)
    directions = {change(gap).direction, change(mirrored).direction}
    assert directions in ({SLOWER, FASTER}, {"same"}, {"same", SLOWER}, {"same", FASTER})
    words = {SLOWER: " slower than ", FASTER: " faster than "}
    said = change(gap).sentence()
    assert words.get(change(gap).direction, "head") in said


def test_what_no_interval_decides_is_not_decided() -> None:
    no_interval = SpeedRatio(0.5, no_interval_reason="too few windows")
    assert gate(change(no_interval), 0.02).code == GATE_UNDECIDED
    for gap in (SpeedRatio(1.1, 1.05, 1.15), no_interval, None):
        failed = gate(change(gap, "out_of_memory"), 0.02)
        assert (failed.code, failed.sentence) == (GATE_HEAD_FAILED, "head failed: out of memory.")


# -- by the command ----------------------------------------------------------------------------


class Desk:
    """Logs of imaginary runs, read into a store together before the next command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waiting: list[Path] = []

    def put(
        self, name: str, seconds: float, *, seed: int, count: int = 600, lines: int | None = None
    ) -> None:
        run = ImaginaryRun(step_s=steps(seconds, seed, count), log_interval=2)
        log = self.folder / f"{name}.log"
        text = list(WRITERS["torchtitan"](run))[:lines]
        ends = [] if lines is None else ["Traceback (most recent call last):", OOM]
        log.write_text("\n".join([*text, *ends]) + "\n", encoding="utf-8")
        log.with_name(f"{log.name}.facts.toml").write_text(SIDECARS["torchtitan"])
        self.waiting.append(log)

    def run(self, command: str, *arguments: object) -> Result:
        if self.waiting:
            self.invoke("ingest", *self.waiting)
            self.waiting = []
        return self.invoke(command, *arguments)

    def invoke(self, command: str, *arguments: object) -> Result:
        words = [command, *map(str, arguments), "--store", str(self.folder / "store")]
        return CliRunner().invoke(main, words, catch_exceptions=False)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_change_is_told_with_direction_and_sign(desk: Desk) -> None:
    desk.put("base", 1.28, seed=1)
    desk.put("head", 1.28 / 0.96, seed=2)
    desk.put("same", 1.28, seed=3)
    desk.put("oom", 1.2, seed=4, lines=200)
    desk.put("short", 1.28, seed=5, count=6)
    for head, base, share, code, sign in (
        ("head", "base", "2%", 3, RED),
        ("head", "base", "0.06", 0, YELLOW),
        ("head", "base", "4 %", 6, YELLOW),
        ("base", "head", "2%", 0, GREEN),
        ("same", "base", "2%", 0, WHITE),
        ("oom", "base", "2%", 5, RED),
        ("short", "base", "2%", 6, YELLOW),
    ):
        found = desk.run("compare", base, head, "--fail-below", share, "--format", "markdown")
        assert found.exit_code == code, found.output
        assert found.stdout.startswith(f"### {sign} {head} ")
        assert f"Exit code {code}." in found.stdout.splitlines()[2]
        assert f"Exit code {code}." in found.stderr
    said = desk.run("compare", "base", "head", "--format", "markdown").stdout
    size, low, high = re.match(
        rf"### {RED} head is ([\d.]+) % slower than base \(([\d.]+) to ([\d.]+)\)\n", said
    ).groups()  # type: ignore[union-attr]
    assert float(low) < 4 < float(high)
    assert float(size) == pytest.approx(4, abs=0.3)
    both = ("compare", desk.folder / "base.log", desk.folder / "head.log", "--format", "markdown")
    assert desk.run(*both).stdout == said  # type: ignore[arg-type]


def test_a_gate_needs_a_share_and_two_runs(desk: Desk) -> None:
    desk.put("base", 1.28, seed=1)
    for names, share in ((("base",), "2%"), ((), "2%"), (("base", "base"), "2%"), ((), "two")):
        found = desk.run("compare", *names, "--fail-below", share)
        assert found.exit_code == 2
        assert "--fail-below" in found.stderr


# -- repeats -----------------------------------------------------------------------------------


def put_repeats(desk: Desk, folder: str, seconds: Sequence[float], *, seed: int) -> None:
    (desk.folder / folder).mkdir()
    for number, pace in enumerate(seconds):
        desk.put(f"{folder}/{number}", pace, seed=seed + number, count=120)


def test_folders_of_repeats_are_compared_with_the_noise_between_runs(desk: Desk) -> None:
    pace = [1.28, 1.284, 1.276, 1.281]
    put_repeats(desk, "base", pace, seed=1)
    put_repeats(desk, "head", [seconds / 0.95 for seconds in pace], seed=11)
    put_repeats(desk, "same", [1.26, 1.3, 1.28], seed=21)
    put_repeats(desk, "few", pace[:2], seed=31)
    places = {name: f"{desk.folder / name}/" for name in ("base", "head", "same", "few")}
    for base, head, share, code, words in (
        ("base", "head", "2%", 3, "with 4 runs is at least "),
        ("base", "head", "8%", 0, "with 4 runs is at most "),
        ("head", "base", "2%", 0, "with 4 runs is at least "),
        ("base", "same", "1%", 6, "No clear difference: only "),
        ("base", "few", "2%", 6, "has 2 of the 3 repeats that it needs. Fix: "),
    ):
        found = desk.run("compare", places[base], places[head], "--fail-below", share)
        assert found.exit_code == code, found.output
        assert words in found.stderr
        assert f"Exit code {code}." in found.stderr
    one = desk.run("compare", places["base"], desk.folder / "head/0.log", "--fail-below", "2%")
    assert (one.exit_code, "has 1 of the 3 repeats" in one.stderr) == (6, True)
    pattern = desk.run("compare", desk.folder / "base/*.log", places["head"], "--fail-below", "2%")
    assert pattern.exit_code == 3
    said = desk.run("compare", places["base"], places["head"])
    assert f"{places['head']} with 4 runs is 5." in said.stdout.splitlines()[0]


def test_settings_that_no_log_states_are_named() -> None:
    row = {"gpus": 8, "recompute": None, "framework_version": None, "outcome": "completed"}
    runs = RunSet((row, row, row), "base/")  # type: ignore[arg-type]
    assert runs.unstated == ["recompute", "version"]
    assert SpeedChange(runs, runs, None).notes == (
        "Taken as equal, because no log states it: recompute, version."
    )


def test_the_interval_of_repeats_is_between_runs(desk: Desk) -> None:
    """The same windows decide between two runs, and not between repeats that differ by 3 %."""
    put_repeats(desk, "base", [1.28, 1.32, 1.24], seed=1)
    put_repeats(desk, "head", [1.32, 1.36, 1.28], seed=1)
    sides = [desk.folder / "base/0.log", desk.folder / "head/0.log"]
    assert desk.run("compare", *sides, "--fail-below", "2%").exit_code == 3
    found = desk.run("compare", desk.folder / "base", desk.folder / "head", "--fail-below", "2%")
    assert found.exit_code == 6
    assert "Fix: add repeats, or allow more." in found.stderr


def test_a_failed_repeat_of_the_head_fails_the_gate(desk: Desk) -> None:
    pace = [1.28, 1.281, 1.279]
    put_repeats(desk, "base", pace, seed=1)
    put_repeats(desk, "head", pace, seed=11)
    desk.put("head/oom", 1.28, seed=15, count=120, lines=14)
    both = ("compare", desk.folder / "base", desk.folder / "head", "--fail-below", "2%")
    found = desk.run(*both)  # type: ignore[arg-type]
    assert found.exit_code == 5
    assert "with 4 runs failed: out of memory (1 of 4 runs)." in found.stderr
    turned = desk.run("compare", *both[2:0:-1], *both[3:])
    assert turned.exit_code == 0
    assert "Failed runs of" in turned.stderr
    shown = desk.run(*both, "--format", "markdown").stdout  # type: ignore[arg-type]
    assert shown.startswith(f"### {RED} ")
    assert "Exit code 5." in shown.splitlines()[2]


def test_unlike_runs_are_no_repeats(desk: Desk) -> None:
    pace = [1.28, 1.281, 1.279]
    put_repeats(desk, "base", pace, seed=1)
    put_repeats(desk, "head", pace, seed=11)
    for number in (1, 2):
        desk.run("set", desk.folder / f"head/{number}.log", f"commit=abcdef{number}")
    found = desk.run("compare", desk.folder / "base", desk.folder / "head", "--fail-below", "2%")
    assert found.exit_code == 6
    assert "are no repeats: they differ in " in found.stderr
    assert "commit: abcdef1 vs abcdef2" in found.stderr
    overlap = desk.run("compare", desk.folder, desk.folder / "head", "--fail-below", "2%")
    assert overlap.exit_code == 2


# -- Markdown ----------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Counts the tags of a page, and keeps its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.count, self.text = Counter[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.count[tag] += 1

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("names", [("a_b*c", "d|e [x] ~f~"), ()])
def test_github_and_python_markdown_show_the_same(desk: Desk, names: tuple[str, ...]) -> None:
    markdown = pytest.importorskip("markdown")
    desk.put("a_b*c", 1.28, seed=1)
    desk.put("d|e [x] ~f~", 1.40, seed=2)
    text = desk.run("compare", *names, "--format", "markdown").stdout
    github = Tags(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))
    python = Tags(markdown.markdown(text, extensions=["tables"]))
    for tag in ("h3", "table", "tr", "td", "ul", "li", "strong"):
        assert github.count[tag] == python.count[tag] > 0, tag
    assert github.count["em"] == github.count["s"] == python.count["em"] == 0
    assert github.text.split() == python.text.split()
