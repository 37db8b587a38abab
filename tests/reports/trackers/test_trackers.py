"""`fairmfu export`: what is written is read back, by TensorBoard itself and by the other layouts.

The files of MLflow and W&B were also read back by their own packages: mlflow-skinny 3.17.2
(MlflowClient with MLFLOW_ALLOW_FILE_STORE=true, and `mlflow migrate-filestore` to SQLite: every
run, param, tag and metric arrives), and wandb 0.31.0: wandb 0.19.11's DataStore reads its offline
runs value by value, and `wandb sync` uploads each row, NaN and Infinity too, to a stub of a server.
Where one of them is installed, the last tests do it again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import polars as pl
import pytest
import yaml
from click.testing import CliRunner, Result
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from fairmfu.cli import main
from fairmfu.ingest.core.schema import OUTCOMES, STEP_COLUMNS
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.reports import trackers as trackers_package
from fairmfu.reports.trackers import mlflow_files, trackers
from fairmfu.reports.trackers.messages import NotExportedError
from fairmfu.reports.trackers.tracker_record import (
    LOGGED_COLUMNS,
    OUR_SERIES,
    TrackerRecord,
    _extra,
    file_name,
    tracker_records,
)
from tests.support.error_kinds import of_kind
from tests.support.folders import ROOT

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
RUN = "llama3-8b-8xh100-xtuner"
PAGE = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trackers") / "store"
    assert run("ingest", SYNTHETIC, "--store", path).exit_code == 0
    return path


@pytest.fixture(scope="module")
def analysis(samples: Path) -> Analysis:
    return analyse(Store(samples).tables())


@pytest.fixture(scope="module")
def told(samples: Path, analysis: Analysis) -> dict[str, TrackerRecord]:
    return {one.name: one for one in of(samples, analysis)}


def of(store: Path, analysis: Analysis | None = None) -> list[TrackerRecord]:
    tables = Store(store).tables()
    found = analysis or analyse(tables)
    return tracker_records(found, found.metrics, tables["steps"], tables["runs"])


def values(points: pl.DataFrame) -> list[tuple[int, float]]:
    return [(step, value) for step, _, value in points.iter_rows()]


# -- what is told ------------------------------------------------------------------------------


def test_windows_that_count_give_the_figure_of_the_run(
    told: dict[str, TrackerRecord], analysis: Analysis
) -> None:
    for row in analysis.metrics.iter_rows(named=True):
        one = told[row["name"]]
        steady = one.series.filter(pl.col("fairmfu/steady") == 1)
        assert steady.height == row["windows"]
        if row["time_basis"] == "elapsed":
            seconds = steady["fairmfu/seconds_per_step"]  # each window as many steps as any other
            ours = (steady["fairmfu/tgs"] * seconds).sum() / seconds.sum()
            assert ours == pytest.approx(row["tgs"])
        assert one.figures["run/tgs"] == row["tgs"]
        assert one.figures["run/mfu_exact_attention"] == row["mfu"]
        share = steady["fairmfu/mfu_full_attention"] / steady["fairmfu/tgs"]
        assert share.to_list() == pytest.approx(
            [row["mfu_full_attention"] / row["tgs"]] * len(share)
        )


def test_every_number_of_the_step_lines_is_there(
    told: dict[str, TrackerRecord], samples: Path
) -> None:
    steps = Store(samples).table("steps")
    for one in told.values():
        mine = steps.filter(run_id=one.run_id)
        assert set(mine["step"]) == set(one.series["step"])
        for name in LOGGED_COLUMNS:
            if mine[name].null_count() < mine.height:
                assert f"log/{name.removeprefix('logged_')}" in one.tags
        if "log/loss" not in one.tags:
            continue
        losses = mine.unique("step", keep="first", maintain_order=True).sort("step")["loss"]
        assert one.series["log/loss"].to_list() == losses.to_list()


def test_numbers_without_a_column_are_series_of_their_own(told: dict[str, TrackerRecord]) -> None:
    series = told[f"{RUN}-v1"].points("log/extra/e2e_tgs")
    assert values(series)[0] == (1, 853.3)


def test_fields_that_differ_in_signs_alone_stay_apart() -> None:
    texts = pl.Series(['{"a(%)": "1", "a/": "2", "text": "0:05"}', None, '{"A": "3"}'])
    assert _extra(texts).to_dict(as_series=False) == {
        "extra/a": [1.0, None, None],
        "extra/a-2": [2.0, None, None],
        "extra/A-3": [None, None, 3.0],
    }


def test_facts_have_their_origins(told: dict[str, TrackerRecord]) -> None:
    one = told[RUN]
    assert one.facts["gpus"] == "8"
    assert set(one.origins) == set(one.facts)
    assert one.origins["gpus"].startswith("log:")
    assert one.texts["formula"] == "fairmfu-1"


def test_times_are_those_of_the_log(told: dict[str, TrackerRecord]) -> None:
    one = told[RUN]
    assert one.started_at == 1793610000  # 2026-11-02 09:00:00
    assert one.series["at"].is_sorted()
    assert one.last == (200, 1793610264.0)
    assert "read as UTC" in one.texts["zone_of_times"]


UNDATED = "step: {step:2}  loss: {loss}  grad_norm: {norm}  memory: 1.50GiB(3.00%)  tps: {tps}  "


@pytest.fixture
def odd(store: Store, logs: Path, ingest: Callable[..., Any]) -> TrackerRecord:
    """Without any date, with losses that are no numbers and a step that says less."""
    rows = [(1, "5.0", "1.0"), (2, "nan", "inf"), (3, "4.0", "-inf"), (4, "3.5", "1.0")]
    text = "".join(
        f"[rank0]:{UNDATED.format(step=s, loss=loss, norm=norm, tps=100 * s)}mfu: 0.40%\n"
        for s, loss, norm in rows
    )
    (logs / "odd.log").write_text(text)
    ingest(logs / "odd.log")
    (one,) = of(store.path)
    return one


def test_values_that_are_no_numbers_stay(odd: TrackerRecord) -> None:
    assert math.isnan(odd.series["log/loss"][1])
    assert odd.series["log/grad_norm"].to_list() == [1.0, math.inf, -math.inf, 1.0]
    assert odd.series["log/loss"].null_count() == 0


def test_a_log_without_dates_begins_in_1970(odd: TrackerRecord) -> None:
    assert odd.started_at == 0.0
    assert odd.series["at"][0] < 86_400
    assert odd.series["at"].is_sorted()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a/b c", "a_b_c"),
        ("../../etc/passwd", "etc_passwd"),
        (".hidden", "hidden"),
        ("", "_"),
        ("größe", "gr_e"),
    ],
)
def test_a_hostile_name_is_a_plain_file(name: str, file: str) -> None:
    assert file_name(name) == file
    assert Path(file_name(name)).name == file_name(name)


# -- TensorBoard -------------------------------------------------------------------------------


def events(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def scalars(found: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    if tag in found.Tags()["scalars"]:
        return [(event.step, event.value) for event in found.Scalars(tag)]
    return [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in found.Tensors(tag)]


def single(value: float) -> float:
    """As TensorBoard's scalars have it: in single precision."""
    return pl.Series([value], dtype=pl.Float32)[0]


def test_tensorboard_reads_every_value(
    samples: Path, told: dict[str, TrackerRecord], tmp_path: Path
) -> None:
    done = run("export", "--to", "tensorboard", "--out", tmp_path / "tb", "--store", samples)
    assert done.exit_code == 0, done.output
    assert f"tensorboard --logdir {tmp_path / 'tb'}" in done.stderr
    assert {path.name for path in (tmp_path / "tb").iterdir()} == set(told)
    for one in told.values():
        found = events(tmp_path / "tb" / one.name)
        for tag in one.tags:
            expected = [(step, single(value)) for step, value in values(one.points(tag))]
            assert scalars(found, tag) == expected
        for tag, value in one.figures.items():
            assert scalars(found, tag) == [(one.last[0], single(value))]


def test_tensorboard_shows_the_card_and_the_facts(samples: Path, tmp_path: Path) -> None:
    assert run("export", RUN, "--to", "tensorboard", "--out", tmp_path, "--store", samples)
    found = events(tmp_path / RUN)
    (event,) = found.Tensors("run/card")
    text = tensor_util.make_ndarray(event.tensor_proto)[0].decode()
    assert "| gpus | 8 | log:15 |" in text
    hparams = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"NVIDIA H100 80GB HBM3" in hparams


def test_tensorboard_keeps_what_is_no_number(odd: TrackerRecord, tmp_path: Path) -> None:
    ((_, folder),) = trackers.export_runs([odd], "tensorboard", tmp_path, "")
    found = events(folder)
    assert [math.isnan(value) for _, value in scalars(found, "log/loss")] == [0, 1, 0, 0]
    assert [value for _, value in scalars(found, "log/grad_norm")][1:3] == [math.inf, -math.inf]


def test_files_are_the_same_each_time(told: dict[str, TrackerRecord], tmp_path: Path) -> None:
    written = []
    for number in ("1", "2"):
        for name in ("tensorboard", "mlflow"):
            list(trackers.export_runs(list(told.values()), name, tmp_path / number / name, "speed"))
        files = sorted(path for path in (tmp_path / number).rglob("*") if path.is_file())
        here = (tmp_path / number).as_uri()
        written.append([(f.name, f.read_bytes().replace(here.encode(), b"")) for f in files])
    assert written[0] == written[1]


def test_runs_of_one_name_have_folders_of_their_own() -> None:
    one, other = SimpleNamespace(name="a/B", run_id="1"), SimpleNamespace(name="a_b", run_id="2")
    names = trackers._folders([one, other, SimpleNamespace(name="c", run_id="3")])  # type: ignore[list-item]
    assert names == ["a_B-1", "a_b-2", "c"]


# -- MLflow ------------------------------------------------------------------------------------


def metric(path: Path) -> list[tuple[int, float]]:
    """As MLflow reads it: milliseconds, value, step."""
    rows = [line.split(" ") for line in path.read_text().splitlines()]
    assert all(int(milliseconds) >= 0 for milliseconds, _, _ in rows)
    return [(int(step), float(value)) for _, value, step in rows]


def test_mlflow_has_every_value(
    samples: Path, told: dict[str, TrackerRecord], tmp_path: Path
) -> None:
    done = run(
        *("export", "--to", "mlflow", "--out", tmp_path, "--store", samples),
        *("--experiment", "Speed of 8B"),
    )
    assert done.exit_code == 0, done.output
    (experiment,) = tmp_path.iterdir()
    about = yaml.safe_load((experiment / "meta.yaml").read_text())
    assert (about["experiment_id"], about["name"]) == (experiment.name, "Speed of 8B")
    assert int(experiment.name) > 0
    for one in told.values():
        folder = experiment / one.run_id
        for tag in one.tags:
            assert metric(folder / "metrics" / tag) == values(one.points(tag))
        for tag, value in one.figures.items():
            assert metric(folder / "metrics" / tag) == [(one.last[0], value)]
        for name, fact in one.facts.items():
            assert (folder / "params" / name).read_text() == fact
            assert (folder / "tags" / f"origin.{name}").read_text() == one.origins[name]
        meta = yaml.safe_load((folder / "meta.yaml").read_text())
        assert (meta["run_id"], meta["run_name"]) == (one.run_id, one.name)
        assert (meta["experiment_id"], meta["status"]) == (
            experiment.name,
            mlflow_files.MLFLOW_STATUS[one.outcome],
        )
        assert meta["start_time"] == int(one.started_at * 1000)


def test_mlflow_has_a_status_for_every_outcome() -> None:
    assert set(mlflow_files.MLFLOW_STATUS) == set(OUTCOMES)


def test_mlflow_keeps_what_is_no_number(odd: TrackerRecord, tmp_path: Path) -> None:
    ((_, folder),) = trackers.export_runs([odd], "mlflow", tmp_path, "speed")
    assert math.isnan(metric(folder / "metrics" / "log" / "loss")[1][1])
    assert metric(folder / "metrics" / "log" / "grad_norm")[1] == (2, math.inf)


# -- W&B ---------------------------------------------------------------------------------------


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """W&B's package as far as it is called; `said` is what it was told."""
    said = SimpleNamespace(init=[], rows=[], summary={}, ended=[], size=3)

    def init(**options: Any) -> SimpleNamespace:
        said.init.append(options)
        folder = Path(options["dir"]) / "wandb" / f"offline-run-20260101_000000-{options['id']}"
        folder.mkdir(parents=True)
        (folder / "run.wandb").write_bytes(b"W&B" * said.size)
        return SimpleNamespace(
            log=lambda row, step: said.rows.append((step, row)),
            summary=said.summary,
            finish=lambda *, exit_code: said.ended.append(exit_code),
        )

    class Settings(SimpleNamespace):
        model_fields = ("host", "console")

    fake = ModuleType("wandb")
    fake.__spec__ = ModuleSpec("wandb", None)
    vars(fake).update(init=init, Settings=Settings, teardown=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setitem(
        sys.modules, "fairmfu.reports.trackers.wandb_files", None
    )  # set, so that it is taken back
    monkeypatch.delitem(sys.modules, "fairmfu.reports.trackers.wandb_files")
    monkeypatch.setattr(trackers_package, "wandb_files", None, raising=False)
    monkeypatch.delattr(trackers_package, "wandb_files")
    return said


def test_wandb_is_told_every_value(
    wandb: SimpleNamespace, told: dict[str, TrackerRecord], samples: Path, tmp_path: Path
) -> None:
    done = run("export", RUN, "--to", "wandb", "--out", tmp_path, "--store", samples)
    assert done.exit_code == 0, done.output
    one = told[RUN]
    (options,) = wandb.init
    assert (options["mode"], options["id"], options["project"]) == (
        "offline",
        one.run_id,
        "fairmfu",
    )
    assert options["config"]["gpus"] == 8
    assert options["config"]["packed"] is True
    assert options["config"]["origin"] == one.origins
    assert vars(options["settings"]) == {"host": "fairmfu", "console": "off"}
    assert wandb.summary == one.figures
    assert [step for step, _ in wandb.rows] == one.series["step"].to_list()
    for tag in one.tags:
        expected = values(one.points(tag))
        assert [(step, row[tag]) for step, row in wandb.rows if tag in row] == expected
    assert [row["_timestamp"] for _, row in wandb.rows] == one.series["at"].to_list()
    assert wandb.ended == [0]


def test_wandb_has_a_run_once(wandb: SimpleNamespace, odd: TrackerRecord, tmp_path: Path) -> None:
    list(trackers.export_runs([odd], "wandb", tmp_path, "speed"))
    with pytest.raises(NotExportedError, check=of_kind("export-exists", odd.run_id)):
        list(trackers.export_runs([odd], "wandb", tmp_path, "speed"))
    assert len(wandb.init) == 1


def test_a_run_that_wandb_lost_is_told(
    wandb: SimpleNamespace, odd: TrackerRecord, tmp_path: Path
) -> None:
    wandb.size = 1
    with pytest.raises(NotExportedError, check=of_kind("export-incomplete", "odd")):
        list(trackers.export_runs([odd], "wandb", tmp_path, "speed"))


# -- what can go wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow"])
def test_further_runs_come_beside_and_nothing_is_written_over(
    tracker: str, samples: Path, tmp_path: Path
) -> None:
    arguments = ("--to", tracker, "--out", tmp_path, "--store", samples)
    for name in (RUN, f"{RUN}-v1"):
        done = run("export", name, *arguments)
        assert done.exit_code == 0, done.output
    kinds = "events.*" if tracker == "tensorboard" else "params"
    assert len(list(tmp_path.rglob(kinds))) == 2
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = run("export", *arguments)
    assert done.exit_code == 1
    assert "exists, so nothing was written. Fix: choose another --out, or remove it" in done.stderr
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_package_that_is_missing_is_named(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda _: None)
    for name in ("tensorboard", "wandb"):
        done = run("export", RUN, "--to", name, "--out", tmp_path / name, "--store", samples)
        assert done.exit_code == 1
        assert f"uv tool install '.[{name}]' or pip install '.[{name}]'" in done.stderr
        assert not (tmp_path / name).exists()
    done = run("export", RUN, "--to", "mlflow", "--out", tmp_path, "--store", samples)
    assert done.exit_code == 0


def test_an_extra_of_each_package_is_declared() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name, tracker in trackers.TRACKERS.items():
        assert tracker.package is None or f'\n{name} = ["{tracker.package}>=' in declared


def test_a_folder_that_cannot_be_written_to_is_named(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("export", "--to", "mlflow", "--out", tmp_path / "file" / "x", "--store", samples)
    assert done.exit_code == 1
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.output


def test_a_run_that_broke_off_is_not_there(
    told: dict[str, TrackerRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    monkeypatch.setattr(mlflow_files, "_tags", full)
    with pytest.raises(OSError, match="No space"):
        list(trackers.export_runs([told[RUN]], "mlflow", tmp_path, "speed"))
    assert not list(tmp_path.rglob("*.writing"))
    assert not list(tmp_path.rglob(told[RUN].run_id))


def test_names_of_users_stay_at_home(tmp_path: Path, titan: Any) -> None:
    folder = tmp_path / "home" / "alice7"
    folder.mkdir(parents=True)
    (folder / "run.log").write_text(titan())
    assert run("ingest", folder, "--store", tmp_path / "store").exit_code == 0
    out = folder / "mlflow"
    place = ("--out", out, "--store", tmp_path / "store")
    assert run("export", "--to", "mlflow", *place, "--redact").exit_code == 0
    texts = [f.read_text() for f in out.rglob("*") if f.is_file()]
    assert not any("alice7" in text for text in texts)
    assert any("user-1" in text for text in texts)


# -- the page ----------------------------------------------------------------------------------


def test_the_page_has_every_series_with_its_unit() -> None:
    for name in LOGGED_COLUMNS:
        assert f"| `log/{name.removeprefix('logged_')}` | {STEP_COLUMNS[name].unit} |" in PAGE
    for name, (unit, _) in OUR_SERIES.items():
        assert f"| `fairmfu/{name}` | {unit} |" in PAGE


def test_the_page_shows_how_each_is_opened() -> None:
    for name, tracker in trackers.TRACKERS.items():
        assert tracker.open_command.format(out=name) in PAGE


# -- the packages themselves, where they are installed -----------------------------------------


def test_mlflow_itself_reads_it(
    told: dict[str, TrackerRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    list(trackers.export_runs(list(told.values()), "mlflow", tmp_path, "speed"))
    client = mlflow.MlflowClient(tmp_path.as_uri())
    experiment = client.get_experiment_by_name("speed")
    found = {r.info.run_id: r for r in client.search_runs([experiment.experiment_id])}
    assert len(found) == len(told)
    for one in told.values():
        assert found[one.run_id].data.params == one.facts
        for tag in one.tags:
            history = client.get_metric_history(one.run_id, tag)
            assert sorted((m.step, m.value) for m in history) == values(one.points(tag))


def test_wandb_itself_writes_it(odd: TrackerRecord, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    ((_, folder),) = trackers.export_runs([odd], "wandb", tmp_path, "speed")
    (written,) = folder.glob("*.wandb")
    assert b"log/grad_norm" in written.read_bytes()
