"""DeepSpeed's monitors: samples to steps, times to a step's time, and what is no log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairmfu.ingest.core.errors import UnknownFormatError
from fairmfu.ingest.extract.discovery import FileWalk
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.formats.deepspeed.monitor import _gaps
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline.analysis import analyse

Parse = Callable[..., ParsedSource]


def of_csv(parse: Parse, samples: list[int], tag: str = "lr") -> list[tuple[int, int | None]]:
    """Step and batch of each row of a CSV file with these samples; a 0 in a loss is the start."""
    texts = [f"step,{tag}", *(f"{n},{1 / (1 + n)}" for n in samples)]
    rows = [row for x in parse("deepspeed-csv", texts).launches for row in x.rows]
    return [(row["step"], row.get("samples")) for row in rows]


@pytest.mark.parametrize(
    ("samples", "gaps"),
    [
        ([8, 16, 24], [(8, 1), (8, 1)]),
        ([8, 16, 32, 40], [(8, 1), (8, 2), (8, 1)]),  # the row at 24 is missing
        ([8, 24, 32, 40], [(8, 2), (8, 1), (8, 1)]),
        ([8, 16, 24, 40, 56], [(8, 1), (8, 1), (16, 1), (16, 1)]),  # the batch grows
        ([8, 16, 28, 40], [(8, 1), (12, 1), (12, 1)]),
        ([8], []),
    ],
)
def test_a_wider_gap_is_a_missing_row_or_a_larger_batch(
    samples: list[int], gaps: list[tuple[int, int]]
) -> None:
    assert _gaps(samples) == gaps


def test_rows_are_put_to_their_steps(parse: Parse) -> None:
    assert of_csv(parse, [8, 16, 32]) == [(1, 8), (2, 8), (4, 8)]
    assert of_csv(parse, [408, 416]) == [(51, 8), (52, 8)]
    assert of_csv(parse, [0, 8, 16], "train_loss") == [(1, 8), (2, 8), (3, 8)]
    assert of_csv(parse, [0], "train_loss") == [(1, None)]
    assert of_csv(parse, [40]) == [(1, None)]


def test_a_csv_file_has_crlf_and_a_heading_for_each_launch(tmp_path: Path) -> None:
    path = tmp_path / "Train_Samples_train_loss.csv"
    path.write_bytes(b"step,train_loss\r\n0,7.5\r\n4,7.25\r\nstep,train_loss\r\n4,7.0\r\n8,6.5\r\n")
    tables = read_log_tables(path)
    assert tables["sources"].select("log_format", "step_lines", "known_lines").row(0) == (
        "deepspeed-csv",
        4,
        2,
    )
    assert tables["runs"]["first_line"].to_list() == [1, 4]
    steps = tables["steps"].select("step", "consumed_samples", "loss").rows()
    assert steps == [(1, 4, 7.5), (2, 8, 7.25), (2, 8, 7.0), (3, 12, 6.5)]


def test_a_value_that_is_no_number_is_unread(parse: Parse) -> None:
    parsed = parse("deepspeed-csv", ["step,lr", "8,0.1", "16,oops", "junk", "24,0.1"])
    assert [u["line"] for u in parsed.unread] == [3]
    assert (parsed.step_lines, parsed.known_lines, parsed.other_lines) == (2, 1, 1)


def test_a_folder_s_walk_takes_the_losses_only(tmp_path: Path) -> None:
    for tag in ("train_loss", "lr", "elapsed_time_ms_step"):
        (tmp_path / f"Train_Samples_{tag}.csv").write_text(f"step,{tag}\n8,1\n16,1\n")
    found = [Path(one.path).name for one in FileWalk(BUILT_IN_FORMATS, ()).of(tmp_path)]
    assert found == ["Train_Samples_train_loss.csv"]
    assert read_log_tables(tmp_path / "Train_Samples_lr.csv")["steps"].height == 2


def event(tag: str, samples: int, at: float, value: float) -> str:
    return (
        f'{{"tag": "Train/Samples/{tag}", "step": {samples}, "wall_time": {at}, "value": {value}}}'
    )


def events_of(steps: int, batch: int, seconds: float, scale: float = 1.0) -> list[str]:
    out = []
    for n in range(1, steps + 1):
        at = 1795187300.0 + n * seconds
        out.append(event("lr", n * batch, at, 0.1))
        for part, share in (("forward", 0.3), ("backward", 0.5), ("step", 0.1)):
            tag = f"elapsed_time_ms_{part}"
            out.append(event(tag, n * batch, at + 0.001, share * seconds * 1000 * scale))
    return out


def test_the_rate_of_an_event_file_is_that_of_its_stamps(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "events.log"
    path.write_text("\n".join([*events_of(20, batch=16, seconds=2.0), ""]))
    facts = {"gpus": "8", "seq_len": "1024", "packed": "true"}
    extra = [{"name": k, "value": v, "origin": "flag", "line": None} for k, v in facts.items()]
    store.add([read_log_tables(path, flag_facts=extra)])
    tables = {name: store.table(name) for name in ("runs", "facts", "steps", "events", "sources")}
    row = analyse(tables | {"unread": store.table("unread")}, ()).metrics.row(0, named=True)
    assert row["tgs"] == pytest.approx(16 * 1024 / 8 / 2.0)
    assert (row["time_basis"], row["steps"]) == ("stamp", 20)


def test_the_parts_make_up_a_step_unless_they_are_longer_than_it(parse: Parse) -> None:
    (launch,) = parse("deepspeed-tensorboard", events_of(4, batch=16, seconds=2.0)).launches
    assert [row["elapsed_s"] for row in launch.rows] == pytest.approx([1.8] * 4)
    wrong = events_of(4, batch=16, seconds=2.0, scale=1000.0)
    (launch,) = parse("deepspeed-tensorboard", wrong).launches
    assert [row.get("elapsed_s") for row in launch.rows] == [None] * 4


def test_lines_of_one_step_are_one_row_and_all_are_counted(parse: Parse) -> None:
    texts = events_of(3, batch=16, seconds=2.0)
    parsed = parse("deepspeed-tensorboard", [*texts, "junk", '{"tag": "Train/Samples/lr"'])
    assert (parsed.lines, parsed.step_lines, parsed.other_lines) == (14, 12, 2)
    assert [row["line"] for row in parsed.launches[0].rows] == [1, 5, 9]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"forward": 1.5, "backward": 2.5, "step": 0.5, "latency": 4.5, "FLOPS_per_gpu": 7.5, '
            '"throughput": 3.5, "rank": 0}',
            "a DeepSpeed autotuning experiment",
        ),
        ('{"num_params": 8, "activation_mem_per_gpu": 9, "rank": 0}', "measurements of the model"),
        ("| tuning_space | num_experiments | best_metric_val |", "the summary of DeepSpeed's"),
        ('{\n  "train_micro_batch_size_per_gpu": 4\n}', "a DeepSpeed config"),
    ],
)
def test_what_holds_no_step_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(text)
    with pytest.raises(UnknownFormatError, match=says) as error:
        read_log_tables(path)
    assert not error.value.recognised
