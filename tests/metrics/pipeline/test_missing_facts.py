"""Facts that runs need: asked in one round, and none of the stand-ins ever shown."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest import Store
from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.ingest.core.toml_reader import parse_toml
from fairmfu.metrics.audit.fact_suggestions import Proposal
from fairmfu.metrics.core.run_table import metrics_rows
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.pipeline.missing_facts import find_needs
from fairmfu.metrics.pipeline.run_needs import RunNeeds, facts_by_folder, unlocks
from fairmfu.reports.text.fact_examples import fact_example, fact_kind
from fairmfu.reports.text.missing_facts import missing_facts
from fairmfu.reports.text.missing_text import facts_template, show_missing
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT
from tests.tools.corpus import CORPUS

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
VALUES = {
    "seq_len": 8192,
    "model": "llama-3.1-8b",
    "trainable": "full",
    "accelerator": "H100 80GB",
    "precision": "bf16",
    "gpus": 8,
    "packed": True,
    "global_batch_size": 64,
    "micro_batch_size": 1,
    "attended_pairs": 100.5,
}
"""Values of a real user: other than the stand-ins."""


@pytest.fixture(scope="module")
def just_read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the synthetic logs without the facts beside them, which keeps what it lacks."""
    folder = tmp_path_factory.mktemp("read")
    for log in SYNTHETIC.rglob("*.log"):
        (folder / "logs" / log.stem).mkdir(parents=True)
        shutil.copy(log, folder / "logs" / log.stem)
    assert run("ingest", folder / "logs", "--store", folder / "store").exit_code == 0
    assert run("missing", "--store", folder / "store").exit_code == 0
    return folder / "store"


@pytest.fixture
def store(just_read: Path, tmp_path: Path) -> Path:
    """A copy of the store that may be changed."""
    return Path(shutil.copytree(just_read, tmp_path / "store"))


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_what_is_asked_once_is_all_that_is_asked(store: Path, tmp_path: Path) -> None:
    """The template, filled in: no run that gains asks for another fact."""
    needs = find_needs(Store(store).tables())
    gaining = {need.run_id: need for need in needs if need.gain}
    assert gaining
    template = tmp_path / "facts.toml"
    assert run("missing", "--write", template, "--store", store).exit_code == 0
    text = template.read_text()
    for name in {name for need in needs for name in need.facts}:
        text = text.replace(f"# {name} =  #", f"{name} = {json.dumps(VALUES[name])}  #")
    template.write_text(text)
    given = run("set", "--facts", template, "--store", store)
    assert given.exit_code == 0, given.output
    for need in find_needs(Store(store).tables()):
        assert need.run_id not in gaining or not need.facts, need


def test_explain_asks_for_the_same_facts(store: Path) -> None:
    """Except lengths of documents, which only a value of `packed` asks for."""
    tables = Store(store).tables()
    rows = {row["run_id"]: row for row in metrics_rows(analyse(tables).metrics)}
    needs = [need for need in find_needs(tables) if need.gain == "mfu"]
    assert needs
    for need in needs:
        assert {*need.facts} - {"attended_pairs"} == {*missing_facts(rows[need.run_id])}


def test_a_shared_name_is_never_a_key_of_a_template(store: Path) -> None:
    """The other run of the name may have an MFU, and must keep its facts."""
    tables = Store(store).tables()
    run_ids = tables["runs"]["run_id"].to_list()
    alone = facts_template(find_needs(tables, (), run_ids[:1]), {}, "")
    assert run_ids[0] not in alone
    tables["runs"] = tables["runs"].with_columns(name=pl.lit("same"))
    (need,) = find_needs(tables, (), run_ids[:1])
    (table,) = parse_toml(facts_template([need], {}, ""))["facts"]
    assert table["runs"] == run_ids[:1]


def settings(**facts: object) -> Proposal:
    return cast(Proposal, SimpleNamespace(settings=" ".join(f"{n}={v}" for n, v in facts.items())))


def test_a_template_sets_together_only_runs_that_can_share_the_values() -> None:
    """58 unrelated runs had one line for their model."""
    names = ("a#1", "a#2", "b", "c", "d", "e")
    needs = [
        RunNeeds(run_id=name, name=name, folder="f", facts=("model", "gpus"), gain="mfu")
        for name in names
    ]
    llama, opt, phi = (settings(model=name) for name in ("llama", "opt", "phi"))
    proposals = {"b": [opt, llama], "c": [llama, phi], "d": [phi]}
    text = facts_template(needs, proposals, "")
    blocks = [table["runs"] for table in parse_toml(text)["facts"]]
    assert blocks == [["b", "c"], ["d"], ["a#1", "a#2"], ["e"]]
    assert text.count("model=llama gives the logged figures") == 1
    assert "model=opt" not in text  # it does not fit both
    alike = [replace(need, facts=("gpus",)) for need in needs]
    (table,) = parse_toml(facts_template(alike, proposals, ""))["facts"]
    assert table["runs"] == [*names]


def test_runs_whose_work_no_formula_counts_ask_for_what_gives_a_rate() -> None:
    """The advice was flops_per_token, which gives no MFU without a TGS."""
    needs = [
        RunNeeds(run_id="p", name="p", folder="f", facts=("tokens_per_step",), gain="tgs"),
        RunNeeds(run_id="q", name="q", folder="f", facts=("gpus",), gain="mfu"),
    ]
    text = show_missing(needs, "markdown").replace("\\", "")
    assert text.startswith("1 run can get an MFU and 1 run a TGS from facts")
    assert "tokens_per_step (TGS alone)" in text


@pytest.mark.parametrize("name", ["my facts.toml", "it's.toml", "a;b.toml"])
def test_the_printed_command_gives_the_template(name: str, store: Path, tmp_path: Path) -> None:
    done = run("missing", "--write", tmp_path / name, "--store", store)
    command = done.stderr.rpartition("then: ")[2].strip()
    assert f"# {command}\n".replace("# ", "#   ") in (tmp_path / name).read_text()
    assert run(*shlex.split(command)[1:]).stderr.count("no fact is given") == 1


def test_a_template_without_values_gives_nothing(store: Path, tmp_path: Path) -> None:
    template = tmp_path / "facts.toml"
    run("missing", "--write", template, "--store", store)
    tables = parse_toml(template.read_text())["facts"]
    assert all(set(table) == {"runs"} for table in tables)
    refused = run("set", "--facts", template, "--store", store)
    assert refused.exit_code == 1
    assert "no fact is given" in refused.stderr
    again = run("missing", "--write", template, "--store", store)
    assert "exists already" in again.stderr


def test_the_command_shows_no_stand_in(store: Path) -> None:
    shown = run("missing", "--store", store)
    assert shown.exit_code == 0
    assert "accelerator" in shown.stdout
    assert "peak_flops" in shown.stdout
    assert "B200" not in shown.stdout
    rows = json.loads(run("missing", "--store", store, "--format", "json").stdout)
    assert {"run_id", "name", "folder", "facts", "gain", "reason"} == set(rows[0])
    before = Store(store).tables()["facts"]
    assert not before["value"].str.contains("B200").any()


def test_facts_are_given_to_runs_by_pattern(store: Path) -> None:
    given = run("set", "*deepspeed*", "accelerator=h100", "--store", store)
    assert given.exit_code == 0, given.output
    runs = Store(store).table("runs")
    chosen = runs.filter(runs["name"].str.contains("deepspeed"))["run_id"].to_list()
    facts = Store(store).tables()["facts"]
    found = facts.filter(facts["value"] == "h100")["run_id"].to_list()
    assert sorted(found) == sorted(chosen) != []
    assert "No run is called" in run("set", "zz*", "gpus=1", "--store", store).stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus = 8", "no [[facts]] tables"),
        ("[[facts]]\ngpus = 8", "no list of runs"),
        ('[[facts]]\nruns = ["a"]\ngpu = 8', "no fact is called 'gpu'"),
        ("[[facts]", "not a facts file"),
    ],
)
def test_a_file_that_is_no_template_is_refused(
    text: str, says: str, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "my.toml").write_text(text)
    refused = run("set", "--facts", tmp_path / "my.toml", "--store", store)
    assert refused.exit_code == 1
    assert says in refused.stderr


NAMES = st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True)


@given(st.lists(NAMES, max_size=12))
def test_steps_give_each_fact_once_and_each_run_its_mfu(wanted: list[list[str]]) -> None:
    needs = [
        RunNeeds(run_id=str(i), name=str(i), folder="f", facts=tuple(names), gain="mfu")
        for i, names in enumerate(wanted)
    ]
    steps = unlocks(needs)
    facts = [name for step in steps for name in step.facts]
    assert len(facts) == len(set(facts))
    assert set(facts) == {name for names in wanted for name in names}
    assert sum(step.runs for step in steps) == len(needs)
    assert sum(len(runs) for _, _, runs in facts_by_folder(needs)) == len(needs)


def test_every_fact_has_values_and_an_example() -> None:
    listed = json.loads(run("facts", "--format", "json").stdout)
    assert [row["fact"] for row in listed] == list(FACT_NAMES)
    for name in FACT_NAMES:
        assert fact_example(name).startswith(f"{name}=")
        assert fact_kind(name)


# -- samples that are padded ---------------------------------------------------------------


def test_padded_samples_ask_for_their_mean_length_once(tmp_path: Path) -> None:
    """A run said to have padded samples is not asked for `packed` again."""
    log, place = tmp_path / "console.log", tmp_path / "store"
    log.write_text(
        "".join(
            f"{{'loss': {2 - step / 100}, 'grad_norm': 1.0, 'learning_rate': 0.0001, 'epoch': "
            f"{step / 100}}}\n {step}%|#   | {step}/100 [{step * 3 // 60:02}:{step * 3 % 60:02}"
            "<10:00,  3.00s/it]\n"
            for step in range(10, 101, 10)
        )
    )
    values = {name: value for name, value in VALUES.items() if name != "attended_pairs"}
    values |= {"packed": "false"}
    given = [f"{name}={value}" for name, value in values.items()]
    sets = [argument for text in given for argument in ("--set", text)]
    assert run("ingest", log, "--store", place, *sets).exit_code == 0
    (need,) = find_needs(Store(place).tables())
    assert need.facts[0] == "mean_sample_length"
    assert "packed" not in need.facts
    means = ("mean_sample_length=700", "sample_length_deviation=200")
    assert run("set", need.run_id, *means, "--store", place).exit_code == 0
    assert find_needs(Store(place).tables()) == []


# -- public logs ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunNeeds]]:
    """A store of each fifth public log, by `make thorough` of all, and what its runs need."""
    if not CORPUS.is_dir():
        pytest.skip(f"NO PUBLIC LOGS in {CORPUS}: set FAIRMFU_CORPUS")
    place = tmp_path_factory.mktemp("public") / "store"
    logs = sorted(path for path in CORPUS.rglob("*") if path.is_file())
    run("ingest", *logs[:: 1 if THOROUGH else 5], "--store", place)
    return place, [need for need in find_needs(Store(place).tables()) if need.gain]


@pytest.mark.parametrize("packed", [True, False])
def test_no_public_log_asks_for_more(
    packed: bool,  # noqa: FBT001 - a case
    public: tuple[Path, list[RunNeeds]],
    tmp_path: Path,
) -> None:
    """Values that may contradict a log; each run asks for what it names, and nothing else."""
    (read, needs), place = public, tmp_path / "store"
    shutil.copytree(read, place)
    assert len({name for need in needs for name in need.facts}) > 5
    known = VALUES | {"packed": packed, "peak_flops": 1e15, "lora_targets": "all-linear"}
    padded = {"mean_sample_length": 700, "sample_length_deviation": 200}
    lines = list[str]()
    for need in needs:
        values = {name: known[name] for name in need.facts if name in known}
        values |= padded if "packed" in need.facts and not packed else {}
        values |= {"flops_per_token": 1e9} if "model_config" in need.facts else {}
        facts = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        lines += ["[[facts]]", f"runs = {json.dumps([need.run_id])}", *facts]
    (tmp_path / "facts.toml").write_text("\n".join(lines))
    assert run("set", "--facts", tmp_path / "facts.toml", "--store", place).exit_code == 0
    asked = {need.run_id: need.facts for need in needs}
    for need in find_needs(Store(place).tables()):
        assert need.gain is None or set(need.facts) <= set(asked[need.run_id]), need
        assert need.gain is None or not set(need.facts) & set(known), need
