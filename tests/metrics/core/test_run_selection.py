"""Runs are chosen by name, id, label, path, folder and pattern; an exact name or id wins."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core.run_messages import RunNameError
from fairmfu.metrics.core.run_selection import choose, with_sources
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.text.runs_table import unique_names
from tests.support.error_kinds import of_kind


def table(*rows: tuple[str, str, str], folder: Path = Path("/logs")) -> pl.DataFrame:
    """Return runs of an id, a name and the path of a log within a folder."""
    return pl.DataFrame(
        {
            "run_id": [run for run, _, _ in rows],
            "name": [name for _, name, _ in rows],
            "members": [[run] for run, _, _ in rows],
            "sources": [[str(folder / path)] for _, _, path in rows],
        },
        schema={name: METRICS[name] for name in ("run_id", "name", "members", "sources")},
    )


RUNS = table(
    ("aa11", "base", "head/one.log"),
    ("aa22", "x", "base/1.log"),
    ("bb33", "y", "base/deep/2.log"),
    ("cc44", "same", "base-2/3.log"),
    ("dd55", "same", "other.log"),
)


def ids(*names: str, of: pl.DataFrame = RUNS) -> list[str]:
    return choose(of, *names)["run_id"].to_list()


def test_a_folder_means_every_run_with_a_log_in_it() -> None:
    assert ids("/logs/base") == ids("/logs/base/") == ids("/logs/x/../base") == ["aa22", "bb33"]
    assert ids("/logs/base/deep") == ids("/logs/base/deep/2.log") == ["bb33"]
    assert len(ids("/logs")) == RUNS.height


def test_folders_are_relative_to_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "a[b]"
    (here / "base").mkdir(parents=True)
    monkeypatch.chdir(here)
    runs = table(("aa11", "x", "base/1.log"), ("bb22", "y", "head/2.log"), folder=here)
    assert ids("base/", of=runs) == ids("base/*.log", of=runs) == ["aa11"]
    assert ids(".", of=runs) == ids("*/*.log", of=runs) == ["aa11", "bb22"]
    (here / "empty").mkdir()
    with pytest.raises(RunNameError, check=of_kind("unknown-run", "no stored run has a log there")):
        ids("empty", of=runs)


def test_an_exact_name_or_id_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getcwd", lambda: "/logs")
    assert ids("base") == ["aa11"]
    assert ids("base/") == ["aa22", "bb33"]
    assert ids("aa") == ["aa11", "aa22"]


def test_addresses_in_an_object_store_are_paths_too() -> None:
    runs = table(("aa11", "x", "1.log")).with_columns(sources=pl.lit(["s3://b/base/1.log"]))
    for name in ("s3://b/base", "s3://b/base/", "s3://b/base/1.log", "s3://b/*/1.log"):
        assert ids(name, of=runs) == ["aa11"]
    with pytest.raises(RunNameError):
        ids("s3://b/bas", of=runs)


def test_a_pattern_fits_names_before_paths() -> None:
    assert ids("s*") == ["cc44", "dd55"]
    assert ids("/logs/base*/*.log") == ["aa22", "bb33", "cc44"]


def test_stored_runs_have_the_paths_of_their_files() -> None:
    runs = pl.DataFrame({"run_id": ["a", "b"], "name": ["x", "y"], "sha256": ["2", "1"]})
    sources = pl.DataFrame({"sha256": ["1", "2"], "path": ["/l/one.log", "/l/two.log"]})
    assert ids("/l/two.log", of=with_sources(runs, sources)) == ["a"]
    assert ids("/l", of=with_sources(runs, sources)) == ["a", "b"]


names = st.one_of(st.sampled_from(["base", "a", "same", "x [aa]", "[x]", "*"]), st.text(min_size=1))


@given(st.lists(names, min_size=1, max_size=6))
def test_every_name_in_a_table_chooses_its_run(given_names: list[str]) -> None:
    """The label of a table can be copied into another command, whatever names there are."""
    runs = table(*((f"{n:04x}ff", name, f"{n}.log") for n, name in enumerate(given_names)))
    for run_id, label in unique_names(runs).items():
        assert run_id in ids(label, of=runs)
        if given_names.count(label) == 0:
            assert label.endswith(f"[{run_id}]")
        assert ids(run_id, of=runs) == [run_id]
