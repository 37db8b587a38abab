"""Shell completion: what is offered where, as the shells ask for it, and never an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.formula.accelerators import (
    accelerator_names,
    buildable_accelerators,
    find_accelerator,
    normalise_name,
)
from fairmfu.metrics.formula.model_shapes import model_names
from fairmfu.reports.page.chart_export import CHARTS
from fairmfu.reports.trackers.trackers import TRACKERS

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, titan: Any) -> Path:
    """A store that nobody changes."""
    folder = tmp_path_factory.mktemp("held")
    for number, name in enumerate(("titan-8b", "titan-70b", "other")):
        (folder / f"{name}.log").write_text(titan(steps=3 + number))
    arguments = ["ingest", str(folder), "--store", str(folder / "store")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    return folder / "store"


def offered(words: list[str], begun: str = "") -> list[str]:
    """What a shell is offered behind these words of a command line."""
    complete = BashComplete(main, {}, "fairmfu", "_FAIRMFU_COMPLETE")
    return [item.value for item in complete.get_completions(words, begun)]


@pytest.mark.parametrize("command", [
    *(["compare"], ["explain"], ["report"], ["chart", "course"], ["export"], ["remove"], ["set"]),
    *(["runs"], ["baseline", "set"], ["baseline", "remove"]),
])  # fmt: skip
def test_runs_are_offered_wherever_one_is_taken(command: list[str], held: Path) -> None:
    arguments = [*command, "--store", str(held)]
    assert offered(arguments, "titan") == ["titan-70b", "titan-8b"]
    assert len(offered(arguments)) == 3


def test_a_run_is_offered_once(held: Path) -> None:
    assert offered(["compare", "--store", str(held), "titan-8b"], "titan") == ["titan-70b"]


def test_an_id_is_offered_where_no_name_begins_so(held: Path) -> None:
    ids = sorted(Store(held).table("runs")["run_id"])
    begun = ids[0][:6]
    found = offered(["explain", "--store", str(held)], begun)
    assert sorted(found) == [run_id for run_id in ids if run_id.startswith(begun)]


def test_a_word_that_no_run_begins_with_may_be_a_path(held: Path) -> None:
    complete = BashComplete(main, {}, "fairmfu", "_FAIRMFU_COMPLETE")
    found = complete.get_completions(["runs", "--store", str(held)], "logs/")
    assert [(item.value, item.type) for item in found] == [("logs/", "file")]


def test_the_store_may_come_from_the_environment(
    held: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRMFU_STORE", str(held))
    assert offered(["explain"], "other") == ["other"]
    monkeypatch.delenv("FAIRMFU_STORE")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(held, "fairmfu-store")
    assert offered(["explain"], "other") == ["other"]


@pytest.mark.parametrize("what", ["missing", "file", "damaged", "address"])
def test_a_store_that_cannot_be_read_offers_nothing_and_says_nothing(
    what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    if what == "file":
        store.write_text("no store")
    if what == "damaged":
        store.mkdir()
        (store / "catalogue.duckdb").write_text("no catalogue")
    place = "s3://no-such-bucket/store" if what == "address" else str(store)
    assert offered(["explain", "--store", place], "a") == []
    assert capfd.readouterr() == ("", "")
    assert what != "missing" or not store.exists()


def test_what_options_take_is_offered() -> None:
    assert offered(["export", "--to"]) == list(TRACKERS)
    assert set(offered(["ingest", "--log-format"])) == {f.name for f in BUILT_IN_FORMATS}
    assert offered(["formats", "--check"], "hf-") == offered(["ingest", "--log-format"], "hf-")
    assert offered(["flops"], "llama-3") == [
        name for name in model_names() if name.startswith("llama-3")
    ]
    assert offered(["chart"], "co") == [one.name for one in CHARTS if one.name.startswith("co")]


def test_facts_and_their_values_are_offered(held: Path) -> None:
    where = ["set", "--store", str(held), "titan-8b"]
    assert offered(where, "prec") == ["precision="]
    assert "titan-70b" in offered(where)
    assert offered(where, "precision=b") == ["precision=bf16"]
    assert offered(where, "packed=") == ["packed=true", "packed=false"]
    assert "model=llama-3-8b" in offered(where, "model=llama-3")
    assert "accelerator=h100sxm" in offered(where, "accelerator=h1")
    assert offered([*where, "precision", "="], "mx") == ["mxfp8"]  # bash splits words at "="
    assert offered([*where, "trainable"], "=") == ["full", "lora", "frozen"]
    assert offered(["ingest", "--set"], "recompute=f") == ["recompute=full"]
    assert offered(where, "nonsense=") == []


def test_columns_are_offered_to_filter_and_sort() -> None:
    assert offered(["runs", "--sort"], "peak_m") == ["peak_memory_bytes"]
    for command in ("runs", "compare"):
        found = offered([command, "--where"], "gpus >= 8 and peak_m")
        assert found == ["gpus >= 8 and peak_memory_bytes"]


def test_a_name_that_nothing_begins_with_may_be_a_file() -> None:
    complete = BashComplete(main, {}, "fairmfu", "_FAIRMFU_COMPLETE")
    for words in (["flops"], ["ingest", "--log-format"]):
        assert [item.type for item in complete.get_completions(words, "./my")] == ["file"]


def test_accelerators_are_offered_by_names_without_spaces() -> None:
    names = offered(["flops", "llama-3-8b", "--accelerator"])
    assert names == [normalise_name(full_name) for full_name in accelerator_names()]
    assert not any(" " in name for name in names)
    for row in buildable_accelerators():
        assert find_accelerator(normalise_name(row.name)) == row


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_of_the_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_FAIRMFU_COMPLETE={shell}_complete" in done.stdout
    program = shutil.which(shell)
    if program is not None:
        check = [program, "--no-execute" if shell == "fish" else "-n"]
        subprocess.run(check, input=done.stdout, text=True, check=True)  # noqa: S603 - constants


def test_bash_itself_completes(held: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    program = shutil.which("fairmfu") or str(Path(sys.executable).with_name("fairmfu"))
    if bash is None or not Path(program).exists():
        pytest.skip("no bash, or no fairmfu, here")
    script = tmp_path / "completion.sh"
    script.write_text(CliRunner().invoke(main, ["completion", "bash"]).stdout)
    words = f"source {script}; COMP_WORDS=({program} explain --store {held} ti); COMP_CWORD=4"
    said = subprocess.check_output(  # noqa: S603 - constants
        [bash, "-c", f'{words}; _fairmfu_completion {program}; echo "${{COMPREPLY[*]}}"'], text=True
    )
    assert said.split() == ["titan-70b", "titan-8b"]
