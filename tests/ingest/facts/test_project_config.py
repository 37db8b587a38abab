"""fairmfu.toml: every key, its default, and what is said of what can't be."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.errors import ConfigError
from fairmfu.ingest.facts import project_config as config_module
from fairmfu.ingest.facts.config_file import CONFIG_VARIABLE, find_config
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.facts.project_config import (
    PathFacts,
    ProjectConfig,
    SeriesConfig,
    load_config,
)
from fairmfu.ingest.pipeline.ingest_run import Outcome
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.compare.cost import price
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.throughput.resolved_facts import resolve_facts
from tests.support.folders import ROOT

EXAMPLE = ROOT / "docs" / "fairmfu.toml"
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        path = tmp_path / "fairmfu.toml"
        path.write_text(text)
        return path

    return to_file


def wrong(path: Path, columns: tuple[str, ...] = ()) -> list[str]:
    """What is said of a configuration, line by line."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, columns)
    first, *rest = str(caught.value).splitlines()
    prefix = f"{path}: "
    assert first.startswith(prefix)
    if not rest:
        return [first.removeprefix(prefix)]
    assert first == f"{prefix}{len(rest)} problems:"
    return [line.strip() for line in rest]


# -- what it says ----------------------------------------------------------------------------


def test_the_example_of_the_docs_is_read(write: Write, tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    (tmp_path / "own-devices.toml").write_text("")
    config = load_config(write(text), tuple(METRICS))
    assert config.store == tmp_path / "perf-store"
    assert config.sources == (Path("/data/logs"), tmp_path / "runs/*/train.log")
    assert config.out == tmp_path / "nightly"
    assert config.accelerators == tmp_path / "own-devices.toml"
    assert (config.title, config.keep, config.wait) == ("Nightly of team X", 400, 600.0)
    assert str(price(config.price or "")) == "2.50 EUR"
    assert config.series.threshold == 0.03
    assert config.baselines == ("titan-8b-0412",)
    assert [table.patterns for table in config.facts] == [
        ("*.log",),
        ("*/h100/*.log", "*/h100-old/*/train.log"),
    ]


def test_the_example_shows_every_key() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    keys = {field.name for kind in (ProjectConfig, SeriesConfig) for field in fields(kind)} - {
        "path"
    }
    shown = set(re.findall(r"^\[*(\w+)", text, re.MULTILINE))
    assert keys <= shown


def test_an_empty_file_is_the_defaults(write: Write, tmp_path: Path) -> None:
    config = load_config(write(""))
    assert config == ProjectConfig(
        path=config.path, store=tmp_path / "fairmfu-store", out=tmp_path / "nightly"
    )
    assert (config.keep, config.price, config.series) == (None, None, SeriesConfig())


def test_paths_are_relative_to_the_files_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write('store = "s"\nsources = ["a.log", "/b", "~/c"]\n')
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.chdir(tmp_path)
    for given_as in (path, Path("fairmfu.toml")):
        config = load_config(given_as)
        assert config.store == tmp_path / "s"
        assert config.sources == (tmp_path / "a.log", Path("/b"), Path("/home/x/c"))


@pytest.mark.parametrize(
    ("said", "fraction"),
    [("0.03", 0.03), ("0", 0.0), ('"3 %"', 0.03), ('"2.5%"', 0.025), ('" .5 % "', 0.005)],
)
def test_a_threshold_is_a_fraction_or_percent(said: str, fraction: float, write: Write) -> None:
    assert load_config(write(f"[series]\nthreshold = {said}\n")).series.threshold == pytest.approx(
        fraction
    )


@pytest.mark.parametrize("said", ["2.5", '"2.5"', '"2.50 EUR"', '"$2.50"'])
def test_a_price_is_kept_as_it_was_written(said: str, write: Write) -> None:
    assert price(load_config(write(f"price = {said}\n")).price or "").amount == 2.5


# -- where it is -----------------------------------------------------------------------------


def test_it_is_found(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    assert find_config() is None
    path = write("")
    assert find_config() == Path("fairmfu.toml")
    other = path.rename(tmp_path / "other.toml")
    assert find_config() is None
    monkeypatch.setenv(CONFIG_VARIABLE, str(other))
    assert find_config() == other
    write("")
    monkeypatch.setenv(CONFIG_VARIABLE, "")
    assert find_config() is None


def test_one_that_the_environment_names_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, "/nowhere/fairmfu.toml")
    message = (
        "FAIRMFU_CONFIG=/nowhere/fairmfu.toml: no such file. Fix: create it, or unset the variable"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        find_config()


# -- what is wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('stor = "x"', ["stor: unknown key. Did you mean store?"]),
        ("threshold = 0.03", ["threshold: unknown key here. It belongs under [series]."]),
        (
            "treshold = 0.03",
            ["treshold: unknown key here. Did you mean threshold? It belongs under [series]."],
        ),
        ("store = 3", ["store: is 3: write text in quotes."]),
        ('store = ""', ["store: is empty. Write a folder, or leave it out."]),
        ('sources = "logs"', ["sources: is 'logs': write a list in [ ]."]),
        ('sources = ["a", 3]', ["sources: has 3: write texts in quotes."]),
        ('sources = [""]', ["sources: has '': write texts in quotes."]),
        ("title = true", ["title: is True: write text in quotes."]),
        ("keep = 0", ["keep: is 0: write a whole number of reports, for example 400."]),
        ("keep = true", ["keep: is True: write a whole number of reports, for example 400."]),
        ('wait = "1 h"', ["wait: is '1 h': write seconds, for example 600."]),
        ("processes = 0", ["processes: is 0: write a whole number of processes, for example 4."]),
        ("wait = -1", ["wait: is -1: write seconds, for example 600."]),
        (
            "price = [2]",
            ['price: is [2]: write the price of a GPU-hour, 2.50 or "2.50 EUR".'],
        ),
        ('store = "x"\nout = "x"', ["out: is the store's folder. Give the reports another."]),
        ("series = 3", ["series: is 3: write a table: { name = … }."]),
        (
            "[series]\nthreshhold = 1",
            ["[series] threshhold: unknown key. Did you mean threshold?"],
        ),
        (
            "[series]\nby = []",
            ["[series] by: is empty. Name columns, or leave it out for the usual ones."],
        ),
        (
            "[series]\nthreshold = 3",
            ['[series] threshold: is 3: write a fraction below 1, 0.03, or "3 %".'],
        ),
        (
            "[series]\nthreshold = 1",
            ['[series] threshold: is 1: write a fraction below 1, 0.03, or "3 %".'],
        ),
        (
            '[series]\nthreshold = "100 %"',
            ["[series] threshold: is '100 %': write a fraction below 1, 0.03, or \"3 %\"."],
        ),
        (
            '[series]\nby = ["modle"]',
            ["[series] by: no column of metrics is called 'modle'. Did you mean model?"],
        ),
        ("[facts]\ngpus = 8", ["facts: write [[facts]] above each of its tables."]),
        (
            '[[facts]]\npaths = "*"\n[[facts]]\npaths = "*"\ngpu = 8',
            [
                "[[facts]] 1, has no fact: add one, for example gpus = 8.",
                "[[facts]] 2, no fact is called 'gpu'. Did you mean gpus?",
            ],
        ),
        (
            '[[facts]]\npaths = "*"\ngpus = 0\nprecision = "bf17"',
            [
                "[[facts]] 1, gpus=0 is impossible [accelerators]: it is 1 to 10,000,000.",
                "[[facts]] 1, precision='bf17': write one of fp32, tf32, fp16, bf16, fp8, "
                "fp8+lm_head, mxfp8, nvfp4.",
            ],
        ),
        (
            "[[facts]]\ngpus = 8",
            ['[[facts]] 1, paths: is missing: write a pattern of paths, "*/h100/*.log".'],
        ),
        ("[[baselines]]", ["[[baselines]] 1, run: is missing."]),
        (
            '[[baselines]]\nrun = "a"\nthreshold = 0.1',
            ["[[baselines]] 1, threshold: unknown key. One of: run."],
        ),
        ("[[baselines]]\nrun = 3", ["[[baselines]] 1, run: is 3: write text in quotes."]),
    ],
)
def test_what_is_wrong_is_said(text: str, said: list[str], write: Write) -> None:
    assert wrong(write(text), ("model", "gpus")) == said


def test_a_price_that_is_none_is_said_with_the_rest(write: Write) -> None:
    path = write('price = "2 for 3"\nkeep = 0\n')
    with pytest.raises(ConfigError) as caught:
        load_config(path, parse_price=price)
    assert str(caught.value).splitlines() == [
        f"{path}: 2 problems:",
        "  price: '2 for 3' is not a price per GPU-hour. Fix: write 2.50 or '2.50 EUR'",
        "  keep: is 0: write a whole number of reports, for example 400.",
    ]


def test_all_that_is_wrong_is_said_at_once(write: Write) -> None:
    text = 'outt = "x"\nkeep = -3\n[series]\nthreshold = "a"\n[[facts]]\npaths = "*"\ngpus = "x"\n'
    assert [line.split(":")[0] for line in wrong(write(text))] == [
        "outt",
        "keep",
        "[series] threshold",
        "[[facts]] 1, gpus='x' is not a number [accelerators].",
    ]


def test_files_that_it_names_must_be_there(write: Write, tmp_path: Path) -> None:
    text = 'accelerators = "x.toml"\n[[facts]]\npaths = "*"\nmodel_config = "m.json"\n'
    devices, model = wrong(write(text))
    assert devices == f"accelerators: {tmp_path / 'x.toml'}: no such file."
    assert model.startswith(f"[[facts]] 1, {tmp_path / 'm.json'} does not exist.")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"sources = [", "not a TOML file: "),
        (b'title = "\xff"', "cannot be read: "),
        (b"a = 1\na = 2", "not a TOML file: "),
    ],
)
def test_a_file_that_is_no_toml_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "fairmfu.toml"
    path.write_bytes(content)
    (line,) = wrong(path)
    assert line.startswith(said)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (line,) = wrong(tmp_path / "none.toml")
    assert line.startswith("cannot be read: ")


@given(
    st.dictionaries(
        st.sampled_from([field.name for field in fields(ProjectConfig)]),
        st.one_of(
            st.integers(-5, 5), st.booleans(), st.floats(), st.text(max_size=3),
            st.lists(st.one_of(st.integers(), st.text(max_size=2)), max_size=2),
            st.lists(st.dictionaries(st.sampled_from(["paths", "run", "gpus"]), st.integers())),
            st.dictionaries(st.sampled_from(["by", "threshold"]), st.text(max_size=2)),
        ),
    )
)  # fmt: skip
def test_any_values_give_a_configuration_or_a_clear_error(values: dict[str, object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_module, "read_toml", lambda *_: values)
        try:
            config = load_config(Path("fairmfu.toml"), ("model",))
        except ConfigError as error:
            assert str(error).startswith("fairmfu.toml: ")  # noqa: PT017 - either may come
        else:
            assert "path" not in values
            assert 0 <= config.series.threshold < 1


# -- facts by path ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("*/h100/*.log", True),
        ("h100/*.log", True),
        ("h100/a.log", True),
        ("*.log", True),
        ("/data/h100/a.log", True),
        ("/data/*", True),
        ("*/H100/*.log", False),
        ("100/a.log", False),
        ("*/h100", False),
        ("h200/*.log", False),
        ("[ab].log", True),
    ],
)
def test_a_pattern_fits_the_whole_path_or_its_end(pattern: str, fits: bool) -> None:  # noqa: FBT001
    table = PathFacts(patterns=("no/such", pattern), facts=())
    assert table.matches("/data/h100/a.log") is fits


def values(config: ProjectConfig, path: str) -> dict[str, str]:
    facts = config.facts_of(path)
    assert {fact["origin"] for fact in facts} <= {"sidecar:fairmfu.toml"}
    return {fact["name"]: fact["value"] for fact in facts}


FACTS = """
[[facts]]
paths = "*.log"
precision = "bf16"
gpus = 8
[[facts]]
paths = ["h100/*", "h200/*"]
gpus = 16
compile = true
"""


def test_of_several_tables_the_later_holds(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(write(FACTS))
    assert values(config, "/a/h100/x.log") == {"precision": "bf16", "gpus": "16", "compile": "true"}
    assert values(config, "/a/x.log") == {"precision": "bf16", "gpus": "8"}
    assert values(config, "/a/x.txt") == {}
    monkeypatch.chdir("/")
    assert values(config, "h100/x.txt") == {"gpus": "16", "compile": "true"}


def test_a_pattern_that_fits_no_source_is_said(write: Write) -> None:
    path = write(FACTS)
    config = load_config(path)
    assert config.unmatched([Path("/a/h200/x.log")]) == []
    assert config.unmatched([Path("/a/x.log")]) == [
        f"{path}: [[facts]] 2, paths: no source matches h100/* or h200/*."
    ]
    assert len(config.unmatched([])) == 2


def test_an_edit_of_the_file_reaches_logs_that_did_not_change(
    write: Write, logs: Path, titan: Callable[..., str], store: Store, ingest: Callable[..., list]
) -> None:
    def nightly(text: str) -> list[Outcome]:
        config = load_config(write(text))
        return ingest(*config.sources, path_facts=config.facts_of)

    def held() -> dict[str, str]:
        facts = resolve_facts(store.table("facts")).filter(name="gpus")
        named = facts.join(store.table("runs"), on="run_id")
        return dict(named.select("name_right", "value").iter_rows())

    for folder, loss in (("h100", 5.0), ("a100", 6.0)):
        (logs / folder).mkdir()
        log = logs / folder / f"{folder}.log"
        log.write_text(titan(loss=loss))
        os.utime(log, (1e9, 1e9))
    sources = 'sources = ["logs/*/*.log"]\n'
    assert [o.status for o in nightly(sources + FACTS)] == ["read", "read"]
    assert held() == {"h100": "16", "a100": "8"}
    assert [o.status for o in nightly(sources + FACTS)] == ["unchanged", "unchanged"]
    edited = sources + FACTS.replace("gpus = 16", "gpus = 32")
    assert [o.status for o in nightly(edited)] == ["unchanged", "known"]
    assert held() == {"h100": "32", "a100": "8"}
    assert [o.status for o in nightly(sources)] == ["known", "known"]
    assert held() == {}
    ingest(
        logs, flag_facts=facts_from_flags(["gpus=4"]), path_facts=load_config(write(FACTS)).facts_of
    )
    assert held() == {"h100": "4", "a100": "4"}
