"""Commands that fairmfu prints run as printed, from the folder in which they were printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.reports.nightly import nightly as module
from fairmfu.reports.text.commands import shell_word, with_store
from tests.support.effort import thorough_only
from tests.support.folders import ROOT
from tests.support.nights import Change, Plan, write_night

LOG = ROOT / "sample_logs/synthetic/torchtitan/llama3-8b-8xh100-torchtitan.log"
LACKING = "sample_logs/h200/deepspeed-0.19.8/bf16/run.log"
"""A log beside which no facts lie, once it is copied."""

PRINTED = re.compile(
    r"fairmfu (?:runs|explain|compare|set|rescore|baseline)\b[^;`\"<\n]*?(?=[.;`\"<\n]|$)"
)
STORES = ("perf", "with a space", "it's", "/srv/perf/store")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)


def as_printed(command: str, run_name: str) -> Result:
    """Run a printed command; RUN and NAME=VALUE stand for any."""
    words = shlex.split(command)[1:]
    filled = {"RUN": run_name, "NAME=VALUE": "gpus=1", "model=…": "model=llama3-8b"}
    filled["accelerator=…"] = "accelerator=h100"
    first = re.compile(r"=(\w+)/\S+")
    return run(
        *(
            filled.get(word, re.sub(r"=(?:[A-Z]|VALUE|…)$", "=8", first.sub(r"=\1", word)))
            for word in words
        )
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRMFU_STORE", raising=False)
    logs = tmp_path / "logs"
    logs.mkdir()
    for name, source in (("titan", LOG), ("lacking", ROOT / LACKING)):
        (logs / f"{name}.log").write_bytes(source.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    "option",
    [
        [],
        pytest.param(["--store", "given"], marks=thorough_only),
        ["--store", "a place"],
    ],
)
def test_what_commands_print_runs(option: list[str], folder: Path) -> None:
    """With the store of fairmfu.toml, and with another one."""
    (folder / "fairmfu.toml").write_text('store = "perf"\n')
    assert run("ingest", "logs", *option).exit_code == 0
    assert not (folder / "fairmfu-store").exists()
    assert (folder / (option[1] if option else "perf")).is_dir()
    run("report", "--out", "page.json", *option)
    data = json.loads((folder / "page.json").read_text())
    (given_facts,) = {row["complete_command"] for row in data["runs"].values()} - {None}
    commands = [given_facts]
    for command in (["runs"], ["compare"], ["explain", "lacking"], ["explain", "nothing"]):
        found = run(*command, *option)
        printed = PRINTED.findall(found.output)
        assert printed or "explain" in command, command
        commands += printed
    for each in dict.fromkeys(commands):
        assert as_printed(each, "lacking").exit_code == 0, each


NAMED = (
    *(["runs"], ["runs", "--format", "markdown"], ["missing"], ["explain", "lacking"]),
    *(["compare"], ["compare", "--full"], ["compare", "--format", "markdown"]),
    *(["compare", "lacking", "again"], ["compare", "--by", "nccl"], ["baseline", "list"]),
    *(["compare", "--matrix", "gpus", "precision"], ["doctor"], ["query", "SELECT nothing"]),
)


def test_each_printed_command_names_the_store(folder: Path) -> None:
    """The notes below a table named none, and ran on another store."""
    (folder / "logs/titan.log").unlink()
    again = ROOT / LACKING.replace("h200", "h100")
    (folder / "logs/again.log").write_bytes(again.read_bytes())
    known = ("accelerator=b200", "model=qwen3-0.6b", "seq_len=4096", "packed=true", "gpus=1")
    given_facts = (*known, "precision=bf16", "trainable=full", "micro_batch_size=2")
    sets = [word for fact in given_facts for word in ("--set", fact)]
    assert run("ingest", "logs", "--store", "given", *sets).exit_code == 0
    told = [run(*command, "--store", "given").output for command in NAMED]
    for output, command in zip(told, NAMED, strict=True):
        assert with_store(output, "given") == output, command
    assert "Fix: fairmfu set --store given RUN" in told[NAMED.index(["compare"])]


def test_a_night_prints_commands_that_run_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with cron: another folder, and the path of the configuration."""
    monkeypatch.setattr(module.night_outputs, "svgs", lambda _: {})
    plan = Plan(seed=5, changes={0: (Change(night=12, factor=0.9),)})
    (folder / "fairmfu.toml").write_text('store = "perf"\nsources = ["nights"]\nout = "out"\n')
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for night in range(1, 15):
        write_night(folder / "nights", night, plan, only=(0,))
        if night in (11, 14):
            code = run("nightly", "--config", folder / "fairmfu.toml").exit_code
    assert code == 3
    printed = PRINTED.findall((folder / "out/summary.md").read_text())
    assert any(each.startswith("fairmfu compare") for each in printed)
    for each in dict.fromkeys(printed):
        assert as_printed(each, "").exit_code == 0, each


def test_the_store_of_the_configuration_is_the_last_resort(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "fairmfu.toml").write_text('store = "perf"\nsources = "not a list"\n')
    for store, variable, option in (
        ("perf", None, ()),
        ("of variable", "of variable", ()),
        ("given", "of variable", ("--store", "given")),
    ):
        if variable is not None:
            monkeypatch.setenv("FAIRMFU_STORE", variable)
        assert run("ingest", "logs/titan.log", *option).exit_code == 0
        assert (folder / store).is_dir()
    monkeypatch.delenv("FAIRMFU_STORE")
    (folder / "fairmfu.toml").write_text("store = 7\n")
    found = run("runs")
    assert (found.exit_code, "store: is 7: write text in quotes." in found.output) == (1, True)


def test_accelerators_of_the_configuration_are_known_to_every_command(folder: Path) -> None:
    """Else a comparison would lack the peak that the night had."""
    (folder / "own.toml").write_text(
        '[[accelerator]]\nname = "NVIDIA H100 80GB HBM3"\nunit = "GPU"\nsource = "ours"\n'
        "peaks = { bf16 = 4.0e14 }\n"
    )
    (folder / "fairmfu.toml").write_text('accelerators = "own.toml"\n')
    assert run("ingest", "logs/titan.log").exit_code == 0
    found = run("runs", "--format", "json")
    assert found.exit_code == 0, found.output
    (row,) = json.loads(found.stdout)
    assert row["peak_flops"] == pytest.approx(4.0e14)


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_a_word_of_a_command_is_one_line_and_reads_as_it_was(names: list[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    words = [shell_word(name) for name in names]
    assert all(word.isprintable() for word in words)
    script = f"printf '%s\\0' {' '.join(words)}" if words else ":"
    done = subprocess.run([bash, "-c", script], capture_output=True, check=True)  # noqa: S603
    assert done.stdout.decode() == "".join(f"{name}\0" for name in names)


@given(
    st.sampled_from(STORES),
    st.sampled_from(
        [
            "Fix: fairmfu rescore.",
            "Give missing facts with: fairmfu set RUN NAME=VALUE",
            "See: fairmfu runs",
            "give most runs an MFU with: fairmfu missing. Then:",
            "Set one with: fairmfu baseline set RUN",
            "for one run: fairmfu explain RUN",
        ]
    ),
)
def test_a_command_names_the_store_once(store: str, text: str) -> None:
    named = with_store(text, store)
    assert named == with_store(named, store)
    assert shlex.quote(store) in named
    assert named.replace(f" --store {shlex.quote(store)}", "") == text
    assert with_store(text, None) == text


@pytest.mark.parametrize(
    "text",
    [
        "fairmfu --version",
        "The night: fairmfu nightly",
        "remove it (fairmfu baseline -h)",
        "fairmfu compare a b --store other",
        "fairmfu failed",
        "fairmfu set: seq_len is not a number",
        "fairmfu formats --eras",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert with_store(text, "perf") == text
