"""The local cache of Hugging Face gives the config.json of a model that a log names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.formats.hugging_face.model_cache import MAX_CONFIG_BYTES, facts_from_model_cache

CONFIG = {"model_type": "llama", "hidden_size": 64}


def fact(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value, "origin": "log:1", "line": 1}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return tmp_path / "hub"


def put(hub: Path, repository: str, commit: str, content: str, *, is_main: bool = True) -> None:
    folder = hub / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(content)
    if is_main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)


def test_a_named_model_takes_its_config_from_the_cache(hub: Path) -> None:
    put(hub, "ACME/tiny-1b", "abc1", json.dumps(CONFIG))
    put(hub, "ACME/tiny-1b", "abc2", json.dumps(CONFIG | {"hidden_size": 128}), is_main=False)
    (found,) = facts_from_model_cache([fact("model", "a"), fact("model", "ACME/tiny-1b")])

    assert (found["name"], json.loads(found["value"])) == ("model_config", CONFIG)
    assert found["origin"] == "companion:models--ACME--tiny-1b/config.json"


@pytest.mark.parametrize(
    "facts",
    [
        [],
        [fact("model", "tiny-1b")],
        [fact("model", "/models/ACME/tiny-1b")],
        [fact("model", "../ACME/tiny-1b")],
        [fact("model", "ACME/other")],
        [fact("model", "ACME/tiny-1b"), fact("model_config", "{}")],
        [fact("model", "ACME/tiny-1b"), fact("torchtitan_arguments", "{}")],
    ],
)
def test_a_folder_or_a_described_model_takes_none(facts: list[dict[str, Any]], hub: Path) -> None:
    put(hub, "ACME/tiny-1b", "abc1", json.dumps(CONFIG))
    assert facts_from_model_cache(facts) == []


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"a": 1}', "[" * 9000])
def test_a_damaged_cache_gives_nothing(content: str, hub: Path) -> None:
    put(hub, "ACME/broken", "abc1", content)
    assert facts_from_model_cache([fact("model", "ACME/broken")]) == []


def test_a_config_of_more_than_4_mb_gives_nothing(hub: Path) -> None:
    """Of one byte less it does."""
    for name, size in (("whole", MAX_CONFIG_BYTES), ("large", MAX_CONFIG_BYTES + 1)):
        put(hub, f"ACME/{name}", "abc1", json.dumps(CONFIG).ljust(size))
    counts = [len(facts_from_model_cache([fact("model", f"ACME/{n}")])) for n in ("whole", "large")]
    assert counts == [1, 0]


def test_of_two_revisions_without_main_neither_counts(hub: Path) -> None:
    for commit in ("abc1", "abc2"):
        put(hub, "ACME/two", commit, json.dumps(CONFIG), is_main=False)
    assert facts_from_model_cache([fact("model", "ACME/two")]) == []


def test_a_log_that_names_a_model_has_its_config(hub: Path, tmp_path: Path) -> None:
    put(hub, "ACME/tiny-2b", "abc1", json.dumps(CONFIG))
    log = tmp_path / "run.log"
    log.write_text(
        "cmd = deepspeed main.py --model_name_or_path ACME/tiny-2b --max_seq_len 512\n"
        "Model Parameters: 1.316 B, Latency: 0.54s, TFLOPs: 2.31, Samples/sec: 14.81, "
        "Time/seq 0.07s, Batch Size: 8, Sequence Length: 512\n"
    )
    facts = read_log_tables(log)["facts"]
    assert "model_config" in facts["name"].to_list()
