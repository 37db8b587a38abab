"""A log's runs: their names, ranks, dates and ends; of several files each by itself."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.core.errors import UnknownFormatError, UnreadableSourceError
from fairmfu.ingest.core.spill import Spool, collect_rows
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.extract.log_tables import read_log, read_log_files, read_log_tables
from fairmfu.ingest.extract.table_batches import LogRows
from fairmfu.ingest.facts.facts import facts_from_flags
from tests.support.error_kinds import of_kind

Titan = Callable[..., str]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("exp/a/lr3.log", "lr3"),
        ("exp/a/lr.3.log", "lr.3"),
        ("exp/a/lr3.log.gz", "lr3"),
        ("exp/a/run.log", "exp/a"),
        ("exp/a/logs/train.txt", "exp/a"),
        ("exp/a/20260102_030405/run.log", "exp/a"),
        ("exp/a/rank_3/stdout", "exp/a"),
        ("exp/a/myrun.log", "myrun"),
        ("exp/a/none_x/attempt_0/3/stdout.log", "a/none_x"),
    ],
)
def test_a_run_is_called_by_what_tells_it_from_others(
    path: str, name: str, tmp_path: Path, titan: Titan
) -> None:
    """The file's name, else the two folders around it that say something."""
    log = tmp_path / path
    log.parent.mkdir(parents=True)
    if path.endswith(".gz"):
        log.write_bytes(gzip.compress(titan().encode()))
    else:
        log.write_text(titan())
    assert read_log_tables(log)["runs"]["name"].to_list() == [name]


def test_launches_of_one_file_are_told_apart(tmp_path: Path, titan: Titan) -> None:
    log = tmp_path / "lr3.log"
    log.write_text(titan() + titan(loss=4.0).replace("03:04:", "05:04:"))
    runs = read_log_tables(log)["runs"]
    assert runs["name"].to_list() == ["lr3#1", "lr3#2"]
    assert runs["launch"].to_list() == [1, 2]


def test_the_same_run_twice_in_a_file_has_two_ids(tmp_path: Path, titan: Titan) -> None:
    log, header = tmp_path / "lr3.log", "[titan] Starting job: debug\n"
    log.write_text((header + titan()) * 3)
    ids = read_log_tables(log)["runs"]["run_id"].to_list()
    assert ids == [ids[0], f"{ids[0]}-2", f"{ids[0]}-3"]


@pytest.mark.parametrize(
    ("path", "tag", "ranks"),
    [
        ("none_x/attempt_0/3/stdout.log", "", {"3"}),
        ("none_x/attempt_0/3/stdout.log", "[rank7]:", {"7"}),  # the line's own words win
        ("none_x/attempt_0/3/other.log", "", {None}),
        ("a/3/stdout.log", "", {None}),
    ],
)
def test_the_rank_of_a_file_is_that_of_its_folder_where_no_line_says_it(
    path: str, tag: str, ranks: set[str | None], tmp_path: Path, titan: Titan
) -> None:
    log = tmp_path / path
    log.parent.mkdir(parents=True)
    log.write_text("".join(tag + line for line in titan().splitlines(keepends=True)))
    assert set(read_log_tables(log)["steps"]["rank"]) == ranks


def test_the_planned_steps_are_those_of_the_log(tmp_path: Path, titan: Titan) -> None:
    """Of what stands beside it, where it says none."""
    log = tmp_path / "lr3.log"
    log.write_text(titan(3))

    def outcome(*flags: str) -> list[str]:
        tables = read_log_tables(log, flag_facts=facts_from_flags(flags))
        return tables["runs"]["outcome"].to_list()

    assert outcome() == ["incomplete"]
    assert outcome("total_steps=3") == ["completed"]
    assert outcome("total_steps=4") == ["incomplete"]
    header = (
        "[titan] Trainer is initialized with local batch size 2, sequence length 256, "
        "total steps {} (warmup 2)\n"
    )
    log.write_text(header.format(4) + titan(3))
    assert outcome("total_steps=3") == ["incomplete"]
    log.write_text(header.format(3) + titan(3))
    assert outcome("total_steps=4") == ["completed"]


@pytest.mark.parametrize(
    ("days", "years"),
    [
        (["12/30", "12/31", "01/01", "01/02"], [2024, 2024, 2025, 2025]),
        (["01/01", "06/30", "12/31", "01/01"], [2024, 2024, 2024, 2025]),
        (["05/04", "05/03", "05/05"], [2024, 2024, 2024]),  # a rank's line, a day late
        (["12/31", "01/01", "12/31", "01/01"], [2024, 2025, 2025, 2026]),
    ],
)
def test_stamps_without_a_year_go_on_over_new_year(
    days: list[str], years: list[int], tmp_path: Path
) -> None:
    log = tmp_path / "lr3.log"
    began = f"cfg_2024{days[0].replace('/', '')}_090000"
    lines = [f"{days[0]} 09:00:00 - mmengine - INFO - Exp name: {began}"]
    lines += [
        f"{day} 10:00:{n:02} - mmengine - INFO - Iter(train) [{n}/9]  time: 0.5  loss: 1.5"
        for n, day in enumerate(days, 1)
    ]
    lines.append(f"{days[-1]} 10:01:00 - mmengine - INFO - Saving checkpoint at 9 iterations")
    log.write_text("\n".join([*lines, ""]))
    tables = read_log_tables(log)
    assert tables["steps"]["logged_at"].dt.year().to_list() == years
    assert set(tables["events"]["logged_at"].dt.year().drop_nulls()) <= {years[-1]}


DICT = "{'loss': 2.5, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}"
ENGINE = (
    "[2026-11-20 15:01:25,144] [INFO] [logging.py:123:log_dist] [Rank 0] step=5, skipped=0, "
    "lr=[0.0005], mom=[(0.9, 0.95)]"
)
MEGATRON = " iteration       10/ 100 | elapsed time per iteration (ms): 2349.1 | lm loss: 1.1E+01 |"
WITH_SAMPLES = MEGATRON + " samples per second: 20.434 |"


@pytest.mark.parametrize(
    ("lines", "framework"),
    [
        ([DICT, DICT], "transformers"),
        ([ENGINE, DICT], "deepspeed"),  # the engine below the Trainer
        ([ENGINE], "deepspeed"),
        ([MEGATRON], "megatron"),  # with or without an engine
        ([WITH_SAMPLES], "deepspeed"),  # a field that is printed with it alone
        ([ENGINE, MEGATRON], "deepspeed"),
    ],
)
def test_the_framework_is_the_engine_that_trains(
    lines: list[str], framework: str, tmp_path: Path
) -> None:
    log = tmp_path / "lr3.log"
    log.write_text("\n".join([*lines, ""]))
    assert read_log_tables(log)["runs"]["framework"].to_list() == [framework]


# -- several files -----------------------------------------------------------------------------


def rows(log: LogRows) -> dict[str, object]:
    return {name: collect_rows(table) for name, table in log.tables(Spool()).items()}


@pytest.mark.parametrize("small", [True, False])
def test_files_are_read_together_as_each_alone(
    tmp_path: Path, titan: Titan, monkeypatch: pytest.MonkeyPatch, *, small: bool
) -> None:
    """One that is no log, or is not there, takes no other with it."""
    if not small:
        monkeypatch.setattr(log_tables, "MAX_SMALL_BYTES", 0)
    for name, text in (
        ("a", titan(3)),
        ("b", "hello\n"),
        ("c", titan(4, loss=4.0)),
        ("page", "```\n" + titan(3) + "```\ntext\n```\n" + titan(3, loss=3.0) + "```\n"),
    ):
        (tmp_path / f"{name}.log").write_text(text)
    (tmp_path / "c.log.facts.toml").write_text("gpus = 4\n")
    (tmp_path / "bad.log").write_text(titan(3))
    (tmp_path / "bad.log.facts.toml").write_text("gpu = 4\n")
    asked = [tmp_path / f"{name}.log" for name in ("c", "b", "none", "a", "page", "bad")]
    by_path = facts_from_flags(["seq_len=64"])
    found = read_log_files([(path, by_path) for path in asked], Spool())
    assert [isinstance(one, Exception) for one in found] == [False, True, True, False, False, True]
    assert isinstance(found[1], UnknownFormatError)
    assert "Did you mean gpus" in str(found[5])
    for path, one in zip(asked, found, strict=True):
        if isinstance(one, LogRows):
            alone = rows(read_log(path, Spool(), path_facts=by_path))
            for name, table in rows(one).items():
                assert_frame_equal(table, alone[name])
    given = [
        [f["value"] for f in one.rows["facts"] if f["name"] == "gpus"]
        for one in found
        if isinstance(one, LogRows)
    ]
    assert given == [["4"], [], []]


@pytest.mark.parametrize("fast", [True, False])
def test_lines_newest_first_are_refused(tmp_path: Path, *, fast: bool) -> None:
    line = (
        '{{"log":"[titan] step: {}  loss: 5.0  memory: 1.50GiB(3.00%)  tps: 1,000  mfu: 0.40%\\n",'
        '"stream":"stdout","time":"2026-01-02T03:{:02}:00.000000Z"}}\n'
    )
    log = tmp_path / "lr3.log"
    log.write_text("".join(line.format(step, step) for step in range(1, 40)))
    assert read_log_tables(log, use_fast_path=fast)["steps"].height == 39
    log.write_text("".join(line.format(step, step) for step in range(39, 0, -1)))
    with pytest.raises(UnreadableSourceError, check=of_kind("newest-first")):
        read_log_tables(log, use_fast_path=fast)
