"""The library that draws makes the same in a process of its own, and its end is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from fairmfu.reports.charts import render, render_process
from tests.support.error_kinds import of_kind
from tests.support.folders import ROOT

SPEC: dict[str, Any] = {
    "data": {"values": [{"x": 1, "y": "é"}, {"x": 2, "y": '\n"'}]},
    "mark": "bar",
    "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y"}},
}
WRONG = {"mark": "bar", "encoding": {"x": {"field": "x", "type": "no such"}}, "data": {"url": 1}}


BEGIN = """
import os
from fairmfu.reports.charts import render_process
render_process.start_drawing("svg")
print(render_process._elsewhere[0]._process.pid, flush=True)
"""


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    render_process.stop_drawing()
    yield
    render_process.stop_drawing()


def process() -> subprocess.Popen[bytes]:
    (one,) = render_process._elsewhere
    return one._process


ASKED: list[tuple[str, Any]] = [("svg", SPEC), ("png", None), ("svg", SPEC)]


def expected() -> list[bytes]:
    """Return what this process makes of ASKED, the PNG of the first picture."""
    svg = render.make_product("svg", SPEC)
    ASKED[1] = ("png", svg.decode())
    return [svg, render.make_product(*ASKED[1]), svg]


def test_what_was_begun_elsewhere_is_what_is_made_here() -> None:
    made = expected()
    assert [render_process.draw_product(*one) for one in ASKED] == made
    assert render_process._elsewhere == []
    render_process.start_drawing(".PNG")
    render_process.start_drawing("html")  # what is awaited is not asked for again
    assert [render_process.draw_product(*one) for one in ASKED] == made
    assert process().poll() is None


def test_the_scripts_that_were_begun_are_those_that_are_made() -> None:
    """The page may ask for them first, or for a picture."""
    scripts, made = render.make_product("scripts"), expected()
    assert len(scripts) > 500_000
    render_process.start_drawing("html")
    assert render_process.draw_product("scripts") == scripts
    render_process.start_drawing("html")
    assert [render_process.draw_product(*one) for one in ASKED] == made
    assert render_process.draw_product("scripts") == scripts
    assert process().poll() is None


def test_scripts_are_bundled_once_for_each_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later process reads them; a damaged file, and one of another version, is not used."""
    asked: list[None] = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda: asked.append(None) or "new();")
    monkeypatch.setenv("FAIRMFU_CACHE", str(tmp_path / "cache"))

    def made_by_a_new_process() -> bytes:
        monkeypatch.setattr(render, "_bundled", [])
        return render.make_product("scripts")

    assert [made_by_a_new_process() for _ in range(2)] == [b"new();"] * 2
    assert len(asked) == 1
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"new", b"old"))
    assert made_by_a_new_process() == b"new();"
    kept.write_bytes(kept.read_bytes()[:-3])
    assert made_by_a_new_process() == b"new();"
    monkeypatch.setattr(vl_convert, "__version__", "another")
    assert made_by_a_new_process() == b"new();"
    assert len(asked) == 4
    monkeypatch.setenv("FAIRMFU_CACHE", str(kept / "no folder"))
    assert made_by_a_new_process() == b"new();"


def test_a_spec_that_cannot_be_drawn_is_told_as_it_is_here() -> None:
    with pytest.raises(ValueError, match=r"\w") as here:
        render_process.draw_product("svg", WRONG)
    render_process.start_drawing("svg")
    with pytest.raises(ValueError, match=r"\w") as elsewhere:
        render_process.draw_product("svg", WRONG)
    assert str(elsewhere.value) == str(here.value)
    assert render_process.draw_product("svg", SPEC) == render.make_product("svg", SPEC)


def test_numbers_reach_it_as_they_are() -> None:
    """vl_convert's own reading of text takes this one for its neighbour, and draws other places."""
    domain = [0.0, 0.40494600000000003]
    x = {"field": "x", "type": "quantitative", "scale": {"domain": domain, "nice": False}}
    spec = {"data": {"values": [{"x": 0.33285}]}, "mark": "tick", "encoding": {"x": x}}
    here = render_process.draw_product("svg", spec)
    render_process.start_drawing("svg")
    assert render_process.draw_product("svg", spec) == here


IMPORTED = """
import os, sys  # which Python has imported before any program
before = set(sys.modules)
sys.path.insert(0, "reports/charts")
import render
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def test_it_waits_for_no_import_but_the_library() -> None:
    told = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-S", "-c", IMPORTED],
        cwd=ROOT,
        env={"PYTHONPATH": str(Path(vl_convert.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert set(told.split()) == {"__future__", "render", "vl_convert"}


@pytest.mark.parametrize("awaited", [True, False])
def test_a_process_that_ends_is_told_and_another_draws(*, awaited: bool) -> None:
    render_process.start_drawing("svg")
    if not awaited:
        render_process.draw_product("svg", SPEC)
    process().kill()
    process().wait()
    with pytest.raises(render_process.DrawingEndedError, check=of_kind("drawing-ended", "-9")):
        render_process.draw_product("svg", SPEC)
    assert render_process.draw_product("svg", SPEC) == render.make_product("svg", SPEC)


@pytest.mark.parametrize("ending", ["json", ".xlsx", "", "htm"])
def test_for_what_is_not_drawn_nothing_is_begun(ending: str) -> None:
    render_process.start_drawing(ending)
    assert render_process._elsewhere == []


def test_where_no_process_starts_it_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    render_process.start_drawing("svg")
    assert render_process.draw_product("svg", SPEC) == render.make_product("svg", SPEC)


def test_it_ends_with_who_began_it(tmp_path: Path) -> None:
    """However that one ends; nothing of it is heard."""
    for end, code in (("1 / 0", 1), ("os._exit(3)", 3), ("os.abort()", -6), ("", 0)):
        told = tmp_path / "told"
        with told.open("wb") as out:
            ran = subprocess.run(  # noqa: S603 - our own code
                [sys.executable, "-c", BEGIN + end],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
        assert ran.returncode == code
        assert b"render.py" not in ran.stderr
        pid = int(told.read_text())
        assert not Path(f"/proc/{pid}").exists() or "render" not in _command(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
