"""What one Torchtitan run leaves behind says one thing: console, TensorBoard and spans.

golden/torchtitan_outputs holds lines of one run of 0.3.0, rank 0 of two: FSDP on CPUs, log_freq 10.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from fairmfu.ingest.core.errors import UnknownFormatError
from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.decode.line_reader import Source
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.pipeline.ingest_run import Outcome, ingest_paths
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.folders import TESTS

OUTPUTS = TESTS / "golden" / "torchtitan_outputs"
CONSOLE, EVENTS, SPANS = (
    OUTPUTS / name for name in ("run.log", "events.txt", "training.global_rank_0.jsonl")
)


def steps_of(path: Path) -> pl.DataFrame:
    return read_log_tables(path)["steps"]


# -- three outputs of one run --------------------------------------------------------------


def test_all_three_log_the_same_steps() -> None:
    steps = [steps_of(path)["step"].to_list() for path in (CONSOLE, EVENTS, SPANS)]
    assert steps == [[1, 10, 20, 30, 40, 50, 60]] * 3


@pytest.mark.parametrize(
    ("column", "half_a_digit"), [("loss", 0.5e-5), ("grad_norm", 0.5e-4), ("logged_tgs", 0.5)]
)
def test_scalars_are_what_the_console_rounds(column: str, half_a_digit: float) -> None:
    printed, exact = (steps_of(path)[column].to_list() for path in (CONSOLE, EVENTS))
    assert printed == pytest.approx(exact, rel=1e-6, abs=half_a_digit)
    assert printed != exact


def metrics_of(folder: Path, *outputs: Path) -> dict[str, Any]:
    """The metrics of the one run that these files tell of."""
    folder.mkdir()
    for path in outputs:
        shutil.copy(path, folder / path.name)
    (folder / "facts.toml").write_text("gpus = 2\nseq_len = 256\nglobal_batch_size = 4\n")
    store = Store(folder / "store")
    assert {o.status for o in ingest_paths([folder], store)} == {"read"}
    (row,) = analyse({name: store.table(name) for name in TABLES}).metrics.iter_rows(named=True)
    return row


def test_all_three_give_the_same_tgs_alone_and_together(tmp_path: Path) -> None:
    given = [(CONSOLE,), (EVENTS,), (SPANS,), (CONSOLE, EVENTS, SPANS)]
    rows = [metrics_of(tmp_path / str(place), *paths) for place, paths in enumerate(given)]
    # 512 tokens a GPU and step: 50 steps between the stamps 15:53:55.413 and 15:54:29.478.
    assert [row["tgs"] for row in rows] == [pytest.approx(512 * 50 / 34.065, rel=2e-3)] * 4
    assert [row["time_basis"] for row in rows] == ["rate", "rate", "stamp", "rate"]
    # From 15:53:48.377 on 59 steps, before these the first by its own rate of 383; the spans print
    # none.
    tgs = pytest.approx(512 * 59 / 41.101, rel=2e-3)
    whole = pytest.approx(512 * 60 / (41.101 + 512 / 383), rel=2e-3)
    assert [row["tgs_end_to_end"] for row in rows] == [whole, whole, tgs, whole]
    assert [row["tokens_per_gpu_step"] for row in rows] == [512.0] * 4
    assert [len(row["sources"]) for row in rows] == [1, 1, 1, 3]


def test_spans_stamp_the_step_before_the_console_prints_it() -> None:
    printed, spanned = (steps_of(path)["logged_at"] for path in (CONSOLE, SPANS))
    late = (printed - spanned).dt.total_microseconds().to_list()
    assert all(-1_000 < microseconds < 10_000 for microseconds in late)  # printed to 1 ms


# -- a real event file ---------------------------------------------------------------------


def test_a_folder_is_walked_for_all_three(tmp_path: Path) -> None:
    folder = tmp_path / "structured_logs"
    folder.mkdir()
    shutil.copy(SPANS, folder / "training.global_rank_0.20261120-155346-8I13AL.jsonl")
    (folder / "other.jsonl").write_text("{}\n")
    write_events(tmp_path / "tb" / "rank_3", [("throughput(tps)", 1, 415.0)])
    outcomes: list[Outcome] = ingest_paths([tmp_path], Store(tmp_path / "store"))
    read = sorted(outcome.log_format for outcome in outcomes if outcome.status == "read")
    assert read == ["torchtitan-spans", "torchtitan-tensorboard"]


def write_events(folder: Path, values: list[tuple[str, int, object]]) -> Path:
    """An event file as TensorBoard's own writer makes it."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(folder))
    for number, (tag, step, value) in enumerate(values):
        if isinstance(value, float):
            said = Summary.Value(tag=tag, simple_value=value)
        else:
            about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
            said = Summary.Value(tag=tag, tensor=make_tensor_proto(value), metadata=about)
        event = Event(step=step, wall_time=1795188127.5 + number, summary=Summary(value=[said]))
        writer.add_event(event)
    writer.close()
    (path,) = folder.glob("*tfevents*")
    return path


VALUES: list[tuple[str, int, object]] = [
    ("config", 0, ["llama3"]),
    ("loss_metrics/global_avg_loss", 1, 8.101142),
    ("throughput(tps)", 1, 743.96185),
    ("weights", 1, [[1.0, 2.0, 3.0]] * 30),
    ("loss_metrics/global_avg_loss", 10, float("nan")),
    ("throughput(tps)", 10, 3343.0803),
]


def test_an_event_file_is_read_like_its_lines(tmp_path: Path) -> None:
    path = write_events(tmp_path / "tb" / "20261120-1514" / "rank_1", VALUES)
    lines = [line.text for line in Source(path).lines()]
    assert lines[1] == (
        '{"tag": "loss_metrics/global_avg_loss", "step": 1, "wall_time": 1795188128.5, '
        '"value": 8.101142}'
    )
    assert '"kind": "text", "text": "llama3"' in lines[0]
    assert '"kind": "array", "shape": [30, 3]' in lines[3]
    tables = read_log_tables(path)
    source, steps = tables["sources"].row(0, named=True), tables["steps"]
    assert (source["lines"], source["step_lines"], source["known_lines"]) == (6, 4, 2)
    assert source["bytes"] == path.stat().st_size
    assert steps["step"].to_list() == [1, 10]
    assert steps["rank"].to_list() == ["1", "1"]
    assert steps["logged_tgs"].to_list() == [743.96185, 3343.0803]
    assert str(steps["loss"].to_list()) == "[8.101142, nan]"
    assert str(steps["logged_at"][0]) == "2026-11-20 15:22:08.500000"


def test_of_an_event_file_that_breaks_off_the_whole_records_are_read(tmp_path: Path) -> None:
    path = write_events(tmp_path, VALUES)
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    assert steps_of(path)["logged_tgs"].to_list() == [743.96185]  # and step 10 without a rate


def test_an_event_file_without_values_says_so(tmp_path: Path) -> None:
    path = write_events(tmp_path, [])
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    assert path.stat().st_size >= length  # the record of its version is there
    with pytest.raises(UnknownFormatError, match="without values"):
        read_log_tables(path)


def test_values_of_no_framework_are_no_log(tmp_path: Path) -> None:
    path = write_events(tmp_path, [("eval/accuracy", 1, 0.5)])
    (outcome,) = ingest_paths([path.parent], Store(tmp_path / "store"))
    assert outcome.status == "passed"


def test_a_forks_evaluation_is_no_training(tmp_path: Path) -> None:
    """Beside each training step an evaluation, three times as fast, under the same step."""
    said: list[tuple[str, int, object]] = [
        (name, step, value)
        for step in (10, 20, 30)
        for name, value in (
            ("throughput(tps)", 8192.0),
            ("eval/throughput(tps)", 24576.0),
            ("eval/loss_metrics/global_avg_loss", 7.5),
            ("titan/throughput(tps)", 8192.0),
            ("titan/val/throughput(tps)", 24576.0),
        )
    ]
    steps = read_log_tables(write_events(tmp_path, said))["steps"]
    assert steps["logged_tgs"].unique().to_list() == [8192.0]
    assert steps["loss"].null_count() == steps.height


# -- what records do not hold --------------------------------------------------------------


def test_a_span_record_that_breaks_off_is_unread(tmp_path: Path) -> None:
    lines = SPANS.read_text(encoding="utf-8").splitlines()
    first, second, *_ = (line for line in lines if '"collect_dist_metrics_end"' in line)
    begun, _, _ = second.partition(' "caller"')
    log = tmp_path / "spans.jsonl"
    log.write_text(f"{first}\n{begun}", encoding="utf-8")
    tables = read_log_tables(log)
    assert tables["steps"]["step"].to_list() == [1]
    assert tables["unread"]["line"].to_list() == [2]
