"""Charts by name as files, the report as Markdown and JSON, and charts in a notebook."""

from __future__ import annotations

import json
import re
import shutil
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.ingest.store.store import Store, Tables
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.reports.page import chart_export, markdown_report
from fairmfu.reports.page import report_data as told_content
from fairmfu.reports.page.report_data import ReportContent, build_content, report_json
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT

SAMPLES = ROOT / "sample_logs"
SCHEMA = ROOT / "docs" / "report.schema.json"
DOCS = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
XTUNER = "llama3-8b-8xh100-xtuner"
SOME = (XTUNER, "llama3-8b-8xh100-torchtitan", "llama3-8b-8xh100-deepspeed")
SVG = "{http://www.w3.org/2000/svg}"

FP8 = "h100/torchtitan-0.2.2/fp8-recompute-selective-compile"
SOME_LOGS = ("synthetic", FP8, "h200", "genuine/deepspeed-0.16.9")
CHARTED = ("",) if THOROUGH else SOME_LOGS
"""Folders of sample logs that have something for each chart."""
ABSENT = {
    "ranks": "no sample log tells of several ranks",
}
"""Charts that the samples have nothing for."""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "store"
    result = run("ingest", *(SAMPLES / name for name in CHARTED), "--store", path)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def told(store: Path) -> ReportContent:
    tables = Store(store).tables()
    analysis = analyse(tables)
    return build_content(
        analysis, analysis.metrics, tables, "Samples", None, version("fairmfu"), store=str(store)
    )


@pytest.fixture(scope="module")
def written(told: ReportContent) -> str:
    """The report as Markdown; its pictures are in `r_files`."""
    return markdown_report.markdown_report(told, "r_files").text


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands read the store once for each choice of runs: most of what a chart costs."""
    monkeypatch.setattr(told_content, "report", told_once)


def told_once(tables: Tables, *names: str, **_: object) -> ReportContent:
    asked = (*tables["runs"]["run_id"], *names)
    if asked not in TOLD:
        TOLD[asked] = REPORT(tables, *names, title="")
    return TOLD[asked]


TOLD: dict[tuple[str, ...], ReportContent] = {}
REPORT = told_content.report


# --- the charts by name -----------------------------------------------------------------------


def chart(name: str, store: Path, out: Path, *more: object) -> Result:
    of = {chart.name: chart.of for chart in chart_export.CHARTS}.get(name)
    runs = [XTUNER] if of == "one run" else []
    return run("chart", name, *runs, "--store", store, "--out", out, *more)


def test_the_list_names_each_chart_with_what_it_takes_and_means() -> None:
    lines = run("chart", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [chart.name for chart in chart_export.CHARTS]
    for line, known in zip(lines, chart_export.CHARTS, strict=True):
        assert f" {known.of} " in line
        assert line.endswith(known.meaning)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("chart", "--list", "comparison"), "--list accepts neither NAME nor --out."),
        (("chart", "--list", "--out", "comparison.svg"), "--list accepts neither NAME nor --out."),
        (
            ("export", "--to", "tensorboard", "--experiment", "speed", "--out", "events"),
            "--experiment does not apply to TensorBoard. Fix: omit --experiment",
        ),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(words: Sequence[str], says: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert says in result.stderr


CHECKS: dict[str, Callable[[bytes], object]] = {
    "svg": lambda data: ET.fromstring(data)[0],  # noqa: S314 - our own
    "png": lambda data: data.startswith(b"\x89PNG\r\n\x1a\n"),
    "pdf": lambda data: data.startswith(b"%PDF-") and data.rstrip().endswith(b"%%EOF"),
    "json": lambda data: {"$schema", "title", "config", "datasets"} <= set(json.loads(data)),
}


@pytest.mark.usefixtures("read_once")
@pytest.mark.parametrize("name", [one.name for one in chart_export.CHARTS])
def test_each_chart_of_the_list_is_written_in_each_format(
    name: str, store: Path, tmp_path: Path
) -> None:
    """As JSON, and by turns as SVG, PNG or PDF, which are made of it; `make thorough`: as each."""
    if name in ABSENT:
        result = chart(name, store, tmp_path / f"{name}.svg")
        assert result.exit_code == 1
        assert "nothing to draw. It needs " in result.stderr
        assert not list(tmp_path.iterdir())
        return
    place = [one.name for one in chart_export.CHARTS].index(name)
    kinds = {*chart_export.CHART_FORMATS}
    if not THOROUGH:
        kinds = {"json", ("svg", "png", "pdf")[place % 3]}
    for kind in kinds:
        out = tmp_path / f"{name}.{kind}"
        result = chart(name, store, out)
        assert result.exit_code == 0, result.output
        assert str(out) in result.stderr
        assert CHECKS[kind](out.read_bytes()) is not False
    assert {path.suffix[1:] for path in tmp_path.iterdir()} == kinds


def test_no_tooltip_is_called_what_no_object_of_vega_may_have(told: ReportContent) -> None:
    """Its interpreter, which notebooks use, refuses them: such a chart stays empty there."""
    specs = {figure.kind: figure.spec for figure in told.figures.values()}
    assert len(specs) > len(chart_export.CHARTS) - len(ABSENT)
    for kind, spec in specs.items():
        titles = re.findall(r'"title": "(\w+)"', json.dumps(spec, default=dict))
        assert not {"then", "constructor", "prototype", "valueOf"} & set(titles), kind


@pytest.mark.usefixtures("read_once")
def test_a_png_has_two_pixels_per_pixel_of_the_svg(store: Path, tmp_path: Path) -> None:
    for kind in ("svg", "png"):
        chart("comparison", store, tmp_path / f"x.{kind}")
    width = float(ET.fromstring((tmp_path / "x.svg").read_bytes()).get("width", ""))  # noqa: S314
    held = (tmp_path / "x.png").read_bytes()
    assert struct.unpack(">I", held[16:20])[0] == pytest.approx(2 * width, abs=1)


@pytest.mark.usefixtures("read_once")
@pytest.mark.parametrize("kind", ["svg", "png", "json"])
def test_a_chart_is_the_same_bytes_each_time(kind: str, store: Path, tmp_path: Path) -> None:
    held = []
    for name in ("waterfall", "course", "waterfall"):
        chart(name, store, tmp_path / f"x.{kind}")
        held.append((tmp_path / f"x.{kind}").read_bytes())
    assert held[0] == held[2]
    assert held[0] != held[1]


def test_ids_of_clip_paths_are_counted_within_a_picture() -> None:
    text = '<clipPath id="clip7"/><g clip-path="url(#clip7)"><g clip-path="url(#clip9)">clip7</g>'
    known = '<clipPath id="clip1"/><g clip-path="url(#clip1)"><g clip-path="url(#clip2)">clip7</g>'
    assert chart_export._steady(text) == known


def values(out: Path) -> dict[str, Any]:
    return {param["name"]: param["value"] for param in json.loads(out.read_text())["params"]}


@pytest.mark.usefixtures("read_once")
def test_the_convention_is_set_drawn_and_said(store: Path, tmp_path: Path) -> None:
    own, full = tmp_path / "own.json", tmp_path / "full.json"
    chart("comparison", store, own)
    chart("comparison", store, full, "--attention", "full", "--peak", "bf16")
    assert (values(own)["attention"], values(own)["peak"]) == ("exact", "own")
    assert (values(full)["attention"], values(full)["peak"]) == ("full", "bf16")
    said = {
        path: " ".join(json.loads(path.read_text())["title"]["subtitle"]) for path in (own, full)
    }
    assert "exact attention" in said[own]
    assert "full attention" in said[full]
    assert "BF16 peak" in said[full]
    texts = []
    for attention in ("exact", "full"):
        out = tmp_path / f"{attention}.svg"
        chart("comparison", store, out, "--attention", attention)
        texts.append(out.read_text(encoding="utf-8"))
    assert texts[0] != texts[1]


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("read_once")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("comparisn",), "Unknown chart: 'comparisn'. Nearest: comparison"),
        (("course",), "course shows one run, and there are "),
        (("course", "llama3-8b-8xh100-xtunr"), f"Nearest: {XTUNER}"),
        (("scaling", XTUNER), "scaling: nothing to draw. It needs runs with a TGS on two or more"),
        (("waterfall", "llama3-8b-8xh100-deepspeed"), "waterfall: nothing to draw."),
        (("mfu_by_run", "deepspeed-0.16.9/zero0-1rank-fp32-breakdown"), "Missing: accelerator"),
        (
            ("comparison", "--out", "x.gif"),
            "x.gif: the suffix must be one of .svg, .png, .pdf, .json. Fix: rename --out",
        ),
        (("comparison", "--out", "x"), "x: the suffix must be one of .svg"),
    ],
)
def test_what_cannot_be_drawn_says_why(
    arguments: tuple[str, ...],
    says: str,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("chart", *arguments, "--store", store)
    assert result.exit_code == 1
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_chart_without_a_name_is_wrong_usage(store: Path) -> None:
    result = run("chart", "--store", store)
    assert result.exit_code == 2
    assert f"fairmfu chart --store {store} --list" in result.stderr


def test_an_unknown_suffix_is_told_before_the_store_is_read(tmp_path: Path) -> None:
    result = run("chart", "comparison", "--out", "x.gif", "--store", tmp_path / "nothing")
    assert "x.gif: the suffix must be one of .svg" in result.stderr


# --- the report as Markdown -------------------------------------------------------------------


def as_markdown(store: Path, out: Path, *more: object) -> str:
    result = run("report", *more, "--format", "md", "--out", out, "--store", store)
    assert result.exit_code == 0, result.output
    return out.read_text(encoding="utf-8")


@pytest.mark.usefixtures("read_once")
def test_markdown_links_the_pictures_that_lie_beside_it(store: Path, tmp_path: Path) -> None:
    text = as_markdown(store, tmp_path / "my report.md")
    folder = tmp_path / "my report_files"
    linked = re.findall(r"!\[[^\n]+\]\(([^)\s]+)\)\n\n\*[^\n]+\*", text)
    assert len(linked) == text.count("](") > 3
    assert {tmp_path / link.replace("%20", " ") for link in linked} == set(folder.iterdir())
    for path in folder.iterdir():
        assert ET.fromstring(path.read_bytes()).tag == f"{SVG}svg"  # noqa: S314 - our own
    kinds = {link.rpartition("/")[2].partition("-")[0] for link in linked}
    assert kinds >= {"comparison", "waterfall", "course"}


@pytest.mark.usefixtures("read_once")
def test_markdown_is_the_same_bytes_each_time(store: Path, tmp_path: Path) -> None:
    held = []
    for _ in range(2):
        as_markdown(store, tmp_path / "r.md", *SOME)
        held.append({p.name: p.read_bytes() for p in tmp_path.rglob("*.*") if p.is_file()})
        shutil.rmtree(tmp_path / "r_files")
    assert held[0] == held[1]


@pytest.mark.usefixtures("read_once")
def test_a_new_report_takes_away_only_the_pictures_of_the_old(store: Path, tmp_path: Path) -> None:
    out, folder = tmp_path / "r.md", tmp_path / "r_files"
    as_markdown(store, out, *SOME)
    before = {path.name for path in folder.iterdir()}
    for mine in ("mine.svg", "comparison-mine-abcdef.svg", "notes.txt"):
        (folder / mine).write_text("mine", encoding="utf-8")
    as_markdown(store, out, XTUNER)
    after = {path.name for path in folder.iterdir()}
    assert after >= {"mine.svg", "comparison-mine-abcdef.svg", "notes.txt"}
    gone = before - after
    assert gone
    assert not any(name in out.read_text(encoding="utf-8") for name in gone)
    left = after - {"mine.svg", "comparison-mine-abcdef.svg", "notes.txt"}
    assert left == set(markdown_report.picture_names(out.read_text(encoding="utf-8"), "r_files"))


def test_markdown_says_the_verdict_and_the_numbers_of_the_json(
    told: ReportContent, written: str
) -> None:
    assert "are **equally fast**, within 0.1 %" in written
    assert "| 33.3 % | 37.5 % |" in written
    ours = next(run for run in told.data["runs"].values() if run["name"] == XTUNER)
    assert f"| {ours['claim']['ratio_exact_own']:.3f}x |" in written
    for run_id in told.data["apart"]:
        assert f"| {told.data['runs'][run_id]['label'].replace('_', chr(92) + '_')} |" in written


def test_each_table_has_as_many_cells_as_its_heading(written: str) -> None:
    rows = [line for line in written.splitlines() if line.startswith("|")]
    tables: list[list[int]] = []
    for place, line in enumerate(rows):
        if place + 1 < len(rows) and set(rows[place + 1]) <= set("|- "):
            tables.append([])
        tables[-1].append(line.count("|"))
    assert len(tables) >= 4
    assert all(len(set(widths)) == 1 for widths in tables)


HOSTILE = "a|b](x.svg)<script>alert(1)</script>![p](http://evil.example/p.png)@all"


def test_text_of_a_log_stays_text_in_markdown(tmp_path: Path) -> None:
    log = tmp_path / "hostile.log"
    text = next((SAMPLES / "synthetic" / "torchtitan").glob("*.log")).read_text(encoding="utf-8")
    log.write_text(text.replace("NVIDIA H100 80GB HBM3", HOSTILE), encoding="utf-8")
    store = tmp_path / "store"
    assert run("ingest", log, "--store", store).exit_code == 0
    assert run("set", "hostile", f"model={HOSTILE}", "--store", store).exit_code == 0
    out = as_markdown(store, tmp_path / "r.md", "--title", HOSTILE)
    for active in ("<script", r"(?<!\\)\]\((x\.svg|http)", "http://", "@all", r"a\|b"):
        assert not re.search(active, out)
    folder = tmp_path / "r_files"
    assert {p.name for p in folder.iterdir()} == set(markdown_report.picture_names(out, "r_files"))


# --- the report of some runs, and as JSON -----------------------------------------------------


def as_data(store: Path, out: Path, *more: object) -> Any:
    result = run("report", *more, "--format", "json", "--out", out, "--store", store)
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text(encoding="utf-8"))


def test_json_is_the_content_and_follows_its_schema(
    store: Path, told: ReportContent, tmp_path: Path
) -> None:
    data = as_data(store, tmp_path / "r.json", "--title", "Samples")
    assert data == json.loads(json.dumps(report_json(told), allow_nan=False))
    if SCHEMA.is_file():
        jsonschema = pytest.importorskip("jsonschema")
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(schema).validate(data)


def test_a_report_of_some_runs_knows_no_others(store: Path, tmp_path: Path) -> None:
    titan = "llama3-8b-8xh100-torchtitan"
    data = as_data(store, tmp_path / "r.json", XTUNER, titan)
    assert {run["name"] for run in data["runs"].values()} == {XTUNER, titan}
    assert data["counts"] == {"runs": 2, "logs": 2, "ranked": 2, "failed": 0, "slowed": 0}
    assert {Path(source["path"]).stem for source in data["sources"]} == {XTUNER, titan}
    assert len(data["groups"]) == 1
    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    assert "llama3-8b-8xh100-megatron-deepspeed" not in text
    one = next(iter(data["runs"]))
    assert list(as_data(store, tmp_path / "s.json", one[:6])["runs"]) == [one]


@pytest.mark.usefixtures("read_once")
@pytest.mark.parametrize(("output", "name"), [("html", "report.html"), ("md", "report.md")])
def test_the_format_names_the_file(
    output: str, name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("report", XTUNER, "--format", output, "--store", store)
    assert result.exit_code == 0, result.output
    assert re.search(rf"^{name}: \d+\.\d\d MB", result.stderr)
    assert (tmp_path / name).is_file()
    assert not list(tmp_path.rglob("*.writing"))


# --- the notebook -----------------------------------------------------------------------------


def test_the_notebook_of_the_docs_runs_and_shows_its_chart(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(store, tmp_path / "fairmfu-store")
    monkeypatch.chdir(tmp_path)
    (cell,) = re.findall(r"```python\n(.*?)```", DOCS, flags=re.DOTALL)
    *_, last = cell.strip().splitlines()
    names: dict[str, Any] = {}
    exec(cell, names)  # noqa: S102 - what the docs show
    with alt.renderers.enable("mimetype"):
        shown = names[last]._repr_mimebundle_()
    bundle = shown[0] if isinstance(shown, tuple) else shown
    spec = next(value for kind, value in bundle.items() if "vegalite" in kind)
    assert {p["name"]: p["value"] for p in spec["params"]}["attention"] == "full"
    assert names["altair_chart"].to_dict(validate=False)["background"] == "white"


def test_the_docs_name_each_command_format_and_suffix() -> None:
    for word in (
        "--format md",
        "--format json",
        "chart --list",
        *(f".{k}" for k in chart_export.CHART_FORMATS),
    ):
        assert word in DOCS
