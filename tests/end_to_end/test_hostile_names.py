"""Names that others chose, of logs, folders and models: they stay names, wherever they are used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.ingest.facts.facts import facts_from_sidecars
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.store import Store
from tests.support.effort import THOROUGH

NAMES = [
    "'; drop table held.runs; --",
    '" union select * from held.files; --',
    "$(touch escaped)`touch escaped`",
    "a..%2f..%2fescaped",
    "*?[a-z]*",
    "-rf",
    "percent %s {0} \\n",
    "…é\u202egol",
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(*arguments: str) -> Result:
    store = ["--store", "store"]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return CliRunner().invoke(main, [*arguments[:at], *store, *arguments[at:]])


def ran_well(*arguments: str) -> None:
    """Or with a message of ours."""
    done = ran(*arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), arguments


def test_names_stay_names(store: Store, logs: Path, titan: Callable[..., str]) -> None:
    for number, name in enumerate(NAMES):
        log = logs / name / f"{name}.log"
        log.parent.mkdir()
        log.write_text(titan(20, loss=5.0 + number))
        model = json.dumps(f"../../{name}/escaped")
        log.with_name(f"{log.name}.facts.toml").write_text(f"model = {model}\n")
    ingest_run.ingest_paths([logs], store)
    runs = dict(store.table("runs").select("name", "run_id").iter_rows())
    assert runs.keys() == {*NAMES}
    models = dict(store.table("facts").filter(name="model").select("run_id", "value").iter_rows())
    assert models == {run_id: f"../../{name}/escaped" for name, run_id in runs.items()}
    before = {*Path().rglob("*")}
    ran_well("runs")
    for place, (name, run_id) in enumerate(runs.items()):
        ran_well("explain", run_id)
        ran_well("explain", "--", name)
        ran_well("set", "--set", f"gpus={name}", "--", run_id)
        if THOROUGH or place % 3 == 0:
            ran_well("chart", "course", "--out", "out/course.svg", "--", name)
    ran_well("report", "--out", "out/report.html")
    for place, name in enumerate(NAMES, 1):
        ran_well("remove", "--", name)
        assert {*store.table("runs")["name"]} == {*NAMES[place:]}
        if THOROUGH or place % 3 == 0:
            ran_well("runs", "--", name)
    nightly = ran("nightly", "--out", "out/nightly", str(logs))
    assert nightly.exit_code in (0, 1), nightly.output
    written = {*Path().rglob("*")} - before
    assert {path.parts[0] for path in written} <= {"out", "store"}
    assert sorted(store.table("runs")["run_id"]) == sorted(runs.values())
    assert not [found for found in examine_store(store) if found.is_harmful]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"auths": {"registry": {"auth": "c2VjcmV0"}}}', "no model_type"),
        (f'{{"model_type": "llama", "much": "{"x" * 5_000_000}"}}', "too large"),
        ("[1]", "is not a JSON object"),
    ],
    ids=["secrets", "large", "list"],
)
def test_a_sidecar_brings_no_other_file_into_the_store(
    text: str, why: str, logs: Path, store: Store, titan: Callable[..., str]
) -> None:
    Path("elsewhere.json").write_text(text)
    (logs / "run.log").write_text(titan(20))
    (logs / "facts.toml").write_text('model_config = "../elsewhere.json"\n')
    (outcome,) = ingest_run.ingest_paths([logs / "run.log"], store)
    assert why in outcome.message
    assert "c2VjcmV0" not in outcome.message
    assert not store.path.exists() or "c2VjcmV0" not in str(store.tables())


def test_a_sidecar_that_names_no_file_does_not_wait_for_it(logs: Path) -> None:
    os.mkfifo(logs / "pipe")
    (logs / "facts.toml").write_text('model_config = "pipe"\n')
    with pytest.raises(Exception, match="is not a file"):
        facts_from_sidecars(logs / "run.log")


def test_a_name_that_is_not_utf_8_leaves_other_files_alone(
    logs: Path, store: Store, titan: Callable[..., str]
) -> None:
    for folder in (logs, Path(os.fsdecode(os.fsencode(logs) + b"/f\xe9"))):
        folder.mkdir(exist_ok=True)
        for name in (b"\xff.log", b"no log \xff.txt"):
            text = titan(20) if name.endswith(b"log") else "nothing\n"
            Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text(text)
    (logs / "good.log").write_text(titan(20))
    outcomes = ingest_run.ingest_paths([logs], store)
    assert sorted(one.status for one in outcomes) == ["failed"] * 4 + ["read"]
    messages = [one.message for one in outcomes if one.status == "failed"]
    assert all("its name is not UTF-8" in message and message.isascii() for message in messages)
    assert any("\\xff.log" in message for message in messages)
    assert store.table("sources")["path"].to_list() == [str(logs / "good.log")]
    result = ran("ingest", str(logs))
    assert result.exit_code == 4
    assert "rename it" in result.output


def test_a_name_as_long_as_one_may_be_is_read(
    logs: Path, store: Store, titan: Callable[..., str]
) -> None:
    """Its sidecar's would be longer, so there is none."""
    (logs / ("a" * 255)).write_text(titan(20))
    (outcome,) = ingest_run.ingest_paths([logs], store)
    assert (outcome.status, outcome.message) == ("read", "")
