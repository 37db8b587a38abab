"""A format is data: the frameworks' own step lines in TOML, and what is said of wrong files."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.ingest.core.errors import FormatFileError
from fairmfu.ingest.decode.line_reader import Chunk, NumberedLine, Source
from fairmfu.ingest.decode.text_cleaning import Cleaner
from fairmfu.ingest.detect.detection import detect_format
from fairmfu.ingest.detect.format_lookup import (
    FORMATS_FOLDER_VARIABLE,
    FormatCatalog,
    load_format_catalog,
)
from fairmfu.ingest.detect.user_formats import UNIT_FACTORS, load_user_format
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import EventLine, FactLine, LogFormat, StepLine
from fairmfu.ingest.parse.line_parser import parse_lines
from tests.support.error_kinds import of_kind
from tests.support.folders import ROOT

OWN = {path.stem: path for path in sorted((ROOT / "tests" / "own_formats").glob("*.toml"))}
BUILT_IN = {f.name: f for f in BUILT_IN_FORMATS}
SAMPLES = sorted((ROOT / "sample_logs").rglob("*.log"))

FORK = """
name = "titan-fork"
extends = "torchtitan"
[[steps]]
regex = 'step: *(?P<step>\\d+) loss: (?P<loss>\\S+) mem: (?P<mem>[\\d.]+)GiB'
columns = { step = "step", loss = "loss", mem = ["peak_memory_bytes", "GiB"] }
example = "step: 10 loss: 6.27853 mem: 0.71GiB"
[[facts]]
regex = 'world (?P<gpus>\\d+)'
example = "world 8"
[[events]]
regex = 'saved (?P<what>\\w+) at (?P<step>\\d+) in (?P<seconds>[\\d.]+) ms'
kind = "checkpoint"
factors = { seconds = "ms" }
example = "saved model at 10 in 12.5 ms"
"""
ALONE = """
name = "mine"
framework = "torchtitan"
evidence = ["elapsed"]
elapsed_covers = "step"
looks_like_step = 'mine step'
[[steps]]
regex = 'mine step (?P<step>\\d+) loss (?P<loss>\\S+) took (?P<took>[\\d.]+)'
columns = { step = "step", loss = "loss", took = ["elapsed_s", 0.001] }
example = "mine step 3 loss 1.5 took 250"
"""
LOG = """world 4
saved model at 1 in 100 ms
step: 2 loss: 6.27853 mem: 0.5GiB
step: 3 loss: 6.1 mom: 0.5GiB
something else
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "fork.toml"
    path.write_text(FORK)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "run.log"
    path.parent.mkdir()
    path.write_text(LOG)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def said_of(text: str, folder: Path) -> str:
    path = folder / "wrong.toml"
    path.write_text(text)
    with pytest.raises(FormatFileError) as error:
        load_user_format(path)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value)


# -- the frameworks' last step lines, in TOML ------------------------------------------------


def step_texts(name: str, log_format: LogFormat) -> list[str]:
    """Lines of the samples, and the built-in examples, that are steps of the file's variant."""
    cleaner = Cleaner(log_format.noise)
    texts = [s.example for s in (*BUILT_IN[name].steps, *log_format.steps)]
    for sample in SAMPLES:
        if detect_format(sample, Source(sample).chunks())[0].name == name:
            texts += [line.text for line in Source(sample).lines()]
    steps = [re.compile(step.regex) for step in log_format.steps]
    return [t for t in texts if any(regex.search(cleaner.strip(t)) for regex in steps)]


def rows(log_format: LogFormat, text: str) -> list[dict[str, Any]]:
    parsed = parse_lines([NumberedLine(1, text, cut=False)], log_format)
    beside = ("extra", "says")  # what has no column depends on how a line is cut
    every = [row for launch in parsed.launches for row in launch.rows]
    return [{k: v for k, v in row.items() if k not in beside and v is not None} for row in every]


@pytest.mark.parametrize("name", OWN)
def test_a_framework_s_step_lines_need_no_code(name: str) -> None:
    log_format = load_user_format(OWN[name]).log_format
    texts = step_texts(name, log_format)
    mine = [rows(log_format, text) for text in texts]
    assert mine == [rows(BUILT_IN[name], text) for text in texts]
    assert sum(map(len, mine)) >= 6


@pytest.mark.parametrize("name", OWN)
def test_what_a_file_says_of_time_is_what_the_built_in_format_says(name: str) -> None:
    mine, theirs = load_user_format(OWN[name]).log_format, BUILT_IN[name]
    fields = ["step_unit", "rate_covers", "rate_excludes_data", "framework", "precedence"]
    if "elapsed" in mine.evidence:
        fields.append("elapsed_excludes_data")
    for field in fields:
        assert getattr(mine, field) == getattr(theirs, field), field


@pytest.mark.parametrize("name", OWN)
def test_a_copy_of_a_built_in_format_is_refused_by_name(name: str) -> None:
    with pytest.raises(FormatFileError, match=rf"signature: .*{name}.* extends = '{name}'"):
        FormatCatalog().with_user_format(load_user_format(OWN[name]))


# -- files that are right --------------------------------------------------------------------


def test_a_format_that_extends_another_reads_both(own: Path) -> None:
    log_format = load_user_format(own).log_format
    theirs = next(s for s in BUILT_IN["torchtitan"].steps if not s.composed).example
    assert [r["loss"] for r in rows(log_format, theirs)] == [6.27853]
    (row,) = rows(log_format, "step: 2 loss: 6.5 mem: 0.5GiB")
    assert (row["step"], row["loss"], row["peak_memory_bytes"]) == (2, 6.5, 2.0**29)
    assert log_format.versions == BUILT_IN["torchtitan"].versions


def test_a_format_of_its_own_needs_no_signature_and_no_anchor(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(ALONE)
    log_format = load_user_format(path).log_format
    line = "[rank0]: mine step 4 loss 1.25 took 500"
    chunk = Chunk(1, line.encode() + b"\n")
    assert detect_format(path, [chunk], (*BUILT_IN_FORMATS, log_format)) == (log_format, ())
    assert rows(log_format, line)[0]["elapsed_s"] == 0.5


def test_a_clock_may_match_without_a_stamp(tmp_path: Path) -> None:
    """Such a line has no time; it is no error."""
    path = tmp_path / "mine.toml"
    clock = r"clock = '(?P<stamp>\d{4}-\d\d-\d\d)|]'"
    path.write_text(ALONE.replace("evidence", f"{clock}\nevidence"))
    (row,) = rows(load_user_format(path).log_format, "] mine step 3 loss 1.5 took 250")
    assert row.get("logged_at") is None


@pytest.mark.parametrize("end", ["", ","])
def test_values_may_be_parted_by_commas_alone(end: str, tmp_path: Path) -> None:
    """What stands behind the first of them is no rest of its number."""
    path, mine = tmp_path / "mine.toml", ALONE
    for spaced, close in (
        ("'mine step'", "'mine,'"),
        ("mine step (?P<step>", "mine,(?P<step>"),
        (" loss (?P<loss>\\S+) took (?P<took>[\\d.]+)", rf",(?P<loss>[^,]+),(?P<took>[\d.]+){end}"),
        ("mine step 3 loss 1.5 took 250", f"mine,3,1.5,250{end}"),
    ):
        assert spaced in mine
        mine = mine.replace(spaced, close)
    path.write_text(mine)
    (row,) = rows(load_user_format(path).log_format, f"mine,4,1.25,500{end and ',7'}")
    assert (row["step"], row["loss"], row["elapsed_s"]) == (4, 1.25, 0.5)


def test_an_extension_takes_the_place_of_what_it_extends(own: Path) -> None:
    every = FormatCatalog().with_user_format(load_user_format(own))
    assert [f.name for f in every.formats] == [
        "titan-fork",
        *(f.name for f in BUILT_IN_FORMATS[1:]),
    ]
    assert every.origin("titan-fork") == str(own)
    assert every.origin("xtuner") == "built-in"
    tried = every.tried(["torchtitan"])
    assert tried.wanted == {"titan-fork"}


def test_named_formats_keep_their_companions() -> None:
    tried = FormatCatalog().tried(["megatron-deepspeed"])
    assert tried.wanted == {"megatron-deepspeed"}
    names = {f.name for f in tried.formats}
    assert "deepspeed" in names
    assert "torchtitan" not in names


# -- files that are wrong --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("name = ", "nam = ", ["nam: unknown key. Did you mean name?", "name: is missing."]),
        ("name = ", "name = = ", ["not a TOML file", "line 2"]),
        ("'mine step'", '"\\d"', ["not a TOML file", "single quotes"]),
        ('framework = "torchtitan"', "", ["framework: is missing."]),
        ('name = "mine"', 'name = "a/b"', ["name: may only contain letters"]),
        (
            '"elapsed"]',
            '"elapse"]',
            ["evidence: 'elapse' is unknown. One of: elapsed, rate, clock, stamp."],
        ),
        ('"elapsed"]', '"rate"]', ["evidence: has 'rate', but no line fills logged_tgs"]),
        ('"elapsed"]', '"stamp"]', ["evidence: has 'stamp', but there is no clock"]),
        ('elapsed_covers = "step"', "", ["elapsed_covers: is missing", "step, interval, last_10"]),
        ("(?P<took>", "(?P<took", ["[[steps]] 1, regex: does not compile at character 53, before"]),
        ("loss (", f"loss{{{5000 * '9'}}} (", ["[[steps]] 1, regex: does not compile: Exceeds"]),
        (
            'loss = "loss"',
            'loss = "los"',
            ["columns.loss: no column is called 'los'. Did you mean"],
        ),
        ('loss = "loss"', 'loss = "logged_at"', ["The clock of the format gives it."]),
        (
            "0.001]",
            '"msec"]',
            ["columns.took: 'msec' is not a factor to s: write", "ms, us"],
        ),
        ('step = "step"', 'step = ["step", 2]', ["step is a whole number: it can have no factor"]),
        ('step = "step", ', "", ["columns: no group fills", "numbered = true"]),
        ("took = [", "tok = [", ["columns.tok: the regex has no group 'tok'. Did you mean took?"]),
        ("loss 1.5", "lost 1.5", ['example: the regex matches it up to "mine step 3 los" only']),
        ("took 250", "took 2.5.0", ["took is '2.5.0': not a number"]),
        ("[[steps]]", '[[steps]]\npair = "x"', ["pair: has no group 'key': write (?P<key>"]),
        ("[[steps]]", '[[steps]]\nanchor = "x"', ["anchor: 'x' is not in the example"]),
        ("[[steps]]", '[[steps]]\nread = "x"', ["read: needs code"]),
        ("[[steps]]", "[steps]", ["steps: write [[steps]] above each of its tables"]),
        ("[[steps]]", "complete = 1\n[[steps]]", ["complete: needs code"]),
        (
            "[[steps]]",
            "clock = '\\d+'\n[[steps]]",
            ["clock: has no group 'stamp': write (?P<stamp>"],
        ),
        ("[[steps]]", "utc = 1\n[[steps]]", ["utc: is 1: write true or false."]),
        ("[[steps]]", "rank_in_path = 'x'\n[[steps]]", ["rank_in_path: needs one group"]),
        ("[[steps]]", 'extends = "titan"\n[[steps]]', ["no format is called 'titan'"]),
        ("[[steps]]", "signature = 'x'\n[[steps]]", ["the signature does not match it."]),
        ("'mine step'", "'no'", ["[[steps]] 1, example: the looks_like_step does not match it."]),
        (
            "[[steps]]",
            '[[facts]]\nregex = "(?P<gpu>x)"\nexample = "x"\n[[steps]]',
            ["[[facts]] 1, regex, group: no fact is called 'gpu'. Did you mean gpus?"],
        ),
        (
            "[[steps]]",
            '[[facts]]\nregex = "(?P<gpus>x)"\nexample = "x"\n[[steps]]',
            ["[[facts]] 1, example: gpus='x' is not a number [accelerators]."],
        ),
        (
            "[[steps]]",
            '[[facts]]\nregex = "x"\nexample = "x"\nconstants = { precision = "b" }\n[[steps]]',
            ["[[facts]] 1, constants.precision: precision='b': write one of fp32, tf32"],
        ),
        (
            "[[steps]]",
            '[[events]]\nregex = "x"\nexample = "x"\nkind = "checkpint"\n[[steps]]',
            ["[[events]] 1, kind: no event is called 'checkpint'. Did you mean checkpoint?"],
        ),
        (
            "[[steps]]",
            '[[events]]\nregex = "mine"\nexample = "mine"\nkind = "end"\n[[steps]]',
            ["[[steps]] 1, example: is read as an event (end)."],
        ),
        ("0.001]", "0]", ["columns.took: 0 is not a factor to s: write a number, or one of s, ms"]),
        ("0.001]", "true]", ["columns.took: True is not a factor to s"]),
        ('loss = "loss"', 'loss = ["loss", "ms"]', ["'ms' is not a factor to a fraction: write"]),
        (
            "[[steps]]",
            '[[facts]]\nregex = "mine (?P<gpus>x)"\nexample = "mine x"\n'
            "factors = { gpus = 2, seq_len = 2 }\n[[steps]]",
            [
                "[[facts]] 1, factors.gpus: only a group for a fact with a fraction can have",
                "[[facts]] 1, factors.seq_len: only a group for a fact with a fraction can",
            ],
        ),
        (
            "[[steps]]",
            '[[events]]\nregex = "(?P<x>y)"\nexample = "y"\nkind = "end"\n'
            "factors = { x = 2 }\n[[steps]]",
            ["[[events]] 1, factors.x: only the group seconds can have a factor."],
        ),
        (
            "[[steps]]",
            "[implies]\npacked = true\n[[steps]]",
            ["implies.packed: write [value, why it follows"],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    old: str, new: str, says: list[str], tmp_path: Path
) -> None:
    assert ALONE.count(old) >= 1
    message = said_of(ALONE.replace(old, new, 1), tmp_path)
    assert [text for text in says if text not in message] == []


def test_words_for_units_are_what_they_mean() -> None:
    """1 h = 60 min = 3600 s; 1 GB = 1000 MB, 1 GiB = 1024 MiB; 1 PFLOP/s = 1000 TFLOP/s."""
    time, size = UNIT_FACTORS["s"], UNIT_FACTORS["bytes"]
    assert time["s"] == size["bytes"] == UNIT_FACTORS["TFLOP/s/GPU"]["TFLOP/s"] == 1
    assert time["h"] == 60 * time["min"] == 3600 * time["s"]
    assert time["s"] == pytest.approx(1000 * time["ms"]) == pytest.approx(1e6 * time["us"])
    assert size["GB"] == 1000 * size["MB"] == 1000**2 * size["kB"] == 1000**3
    assert size["GiB"] == 1024 * size["MiB"] == 1024**2 * size["KiB"] == 1024**3
    assert UNIT_FACTORS["FLOP/s"]["GFLOP/s"] == 1e9
    for flops in (UNIT_FACTORS["TFLOP/s/GPU"], UNIT_FACTORS["FLOP/s"]):
        assert flops["PFLOP/s"] == 1000 * flops["TFLOP/s"] == pytest.approx(1e6 * flops["GFLOP/s"])
    for count in (UNIT_FACTORS[unit] for unit in ("tokens", "tokens/s/GPU", "sequences/s")):
        assert count["billion"] == 1000 * count["million"] == 1000**2 * count["thousand"] == 1e9
    assert 100 * UNIT_FACTORS[""]["%"] == 1


def test_a_fact_that_a_line_implies_says_from_what(tmp_path: Path) -> None:
    (path := tmp_path / "mine.toml").write_text(
        ALONE
        + "[[facts]]\nregex = 'mine runs in bf16'\nexample = 'mine runs in bf16'\n"
        + 'constants = { precision = "bf16" }\ninferred = "its name"\n'
        + "[[facts]]\nregex = 'mine peak (?P<peak_flops>\\d+)'\nexample = 'mine peak 989'\n"
        + 'factors = { peak_flops = "TFLOP/s" }\n'
    )
    lines = ["mine runs in bf16", "mine peak 989", "mine step 1 loss 1.5 took 250"]
    numbered = [NumberedLine(n, text, cut=False) for n, text in enumerate(lines, 1)]
    (launch,) = parse_lines(numbered, load_user_format(path).log_format).launches
    told = {
        fact["name"]: (
            float(fact["value"]) if fact["name"] == "peak_flops" else fact["value"],
            fact["origin"],
        )
        for fact in launch.stated
    }
    assert told["precision"] == ("bf16", "inferred: its name (log:1)")
    assert told["peak_flops"] == (989e12, "log:2")


def test_a_name_that_is_taken_and_a_second_extension_are_refused(own: Path) -> None:
    namesake = own.with_name("namesake.toml")
    namesake.write_text(FORK.replace("titan-fork", "xtuner"))
    with pytest.raises(FormatFileError, check=of_kind("format-name-taken")):
        FormatCatalog().with_user_format(load_user_format(namesake))
    second = own.with_name("second.toml")
    second.write_text(FORK.replace("titan-fork", "other"))
    with pytest.raises(FormatFileError, match=r"fork\.toml extends torchtitan too"):
        FormatCatalog().with_user_format(load_user_format(own)).with_user_format(
            load_user_format(second)
        )


# -- commands --------------------------------------------------------------------------------


def test_formats_lists_a_user_s_own_with_its_file(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORMATS_FOLDER_VARIABLE, str(own.parent))
    listed = {
        row["format"]: row["origin"]
        for row in json.loads(run("formats", "--format", "json").stdout)
    }
    assert listed["titan-fork"] == str(own)
    assert listed["xtuner"] == "built-in"
    monkeypatch.setenv(FORMATS_FOLDER_VARIABLE, str(own.parent / "nothing"))
    result = run("formats")
    assert result.exit_code == 1
    assert "no such folder" in result.stderr


def test_the_folder_is_the_user_s_configuration(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "config" / "fairmfu" / "formats"
    folder.mkdir(parents=True)
    (folder / "fork.toml").write_text(own.read_text())
    monkeypatch.delenv(FORMATS_FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert [o.log_format.name for o in load_format_catalog().own] == ["titan-fork"]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert load_format_catalog() == FormatCatalog()


def test_a_log_is_read_with_the_format_that_is_named(own: Path, log: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert run("ingest", log, "--store", store).exit_code == 1
    result = run("ingest", log, "--store", store, "--log-format", own)
    assert result.exit_code == 0, result.output
    assert "titan-fork, 1 step line, 1 unread, 1 other line" in result.stderr
    query = "select log_format, gpus, steps from metrics"
    (row,) = json.loads(run("query", query, "--store", store, "--format", "json").stdout)
    assert row == {"log_format": "titan-fork", "gpus": 4, "steps": 1}


def test_a_stored_log_is_not_passed_off_as_read_with_another_format(
    own: Path, log: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    run("ingest", log, "--store", store, "--log-format", own)
    again = run("ingest", log, "--store", store, "--log-format", own)
    assert (again.exit_code, "known already" in again.stderr) == (0, True)
    other = run("ingest", log, "--store", store, "--log-format", "torchtitan")
    assert other.exit_code == 1
    assert "stored already, read as titan-fork" in other.stderr


def test_one_of_two_formats_in_a_file_can_be_named(tmp_path: Path) -> None:
    log = tmp_path / "two.log"
    texts = [BUILT_IN[name].steps[0].example for name in ("torchtitan", "xtuner-v1", "deepspeed")]
    log.write_text("\n".join([*texts, ""]))
    refused = run("ingest", log, "--store", tmp_path / "a")
    assert "choose a format with --log-format" in refused.stderr
    taken = run("ingest", log, "--store", tmp_path / "b", "--log-format", "xtuner-v1")
    assert "xtuner-v1, 1 step line" in taken.stderr


def test_a_named_format_that_is_not_in_the_file_is_not_replaced(log: Path, tmp_path: Path) -> None:
    result = run("ingest", log, "--store", tmp_path / "s", "--log-format", "megatron-deepspeed")
    assert result.exit_code == 1
    assert "unknown format" in result.stderr
    wrong = run("ingest", log, "--store", tmp_path / "s", "--log-format", "torchtita")
    assert "No format is called 'torchtita'. Did you mean torchtitan" in wrong.stderr


def test_lines_that_look_like_steps_are_shown_with_how_far_they_are_understood(
    log: Path, tmp_path: Path
) -> None:
    result = run("ingest", log, "--store", tmp_path / "s")
    assert "nearest: torchtitan: 2 lines look like its steps, but none can be read" in result.stderr
    assert (
        "line 3 matches up to the mark >>>: step: 2 loss: 6.27853 mem>>>: 0.5GiB" in result.stderr
    )
    forced = run("ingest", log, "--store", tmp_path / "s", "--log-format", "torchtitan")
    assert "torchtitan, 0 step lines, 2 unread" in forced.stderr


def test_check_tells_line_by_line_what_a_format_takes(own: Path, log: Path) -> None:
    result = run("formats", "--check", own, log, "--format", "json")
    assert result.exit_code == 0, result.output
    whole = json.loads(result.stdout)
    counts = {"lines": 5, "step_lines": 1, "known_lines": 2, "unread_lines": 1, "other_lines": 1}
    assert whole["counts"] == counts
    lines = {row["line"]: (row["is"], row["by"], row["says"]) for row in whole["lines"]}
    saved = {"kind": "checkpoint", "step": 1, "seconds": 0.1, "extra": {"what": "model"}}
    assert lines[1] == ("fact", "[[facts]] 1", {"gpus": "4"})
    assert lines[2] == ("event", "[[events]] 1", saved)
    step = {"step": 2, "loss": 6.27853, "peak_memory_bytes": 2.0**29}
    assert lines[3] == ("step", "[[steps]] 1", step)
    assert lines[4][0] == "unread"
    assert "step: 3 loss: 6.1 m" in lines[4][2]["reason"]
    assert [kind["example"] for kind in whole["other_kinds"]] == ["something else"]
    taken = {row["pattern"]: row["lines"] for row in whole["patterns"]}
    assert (taken["[[steps]] 1"], taken["torchtitan steps 1"]) == (1, 0)


def test_a_key_of_a_step_may_tell_a_fact_by_being_there(tmp_path: Path) -> None:
    said = ALONE.replace("took (?P<took>[\\d.]+)", "took (?P<took>[\\d.]+)(?P<ahead> ahead)?")
    (path := tmp_path / "mine.toml").write_text(said + 'tells = { ahead = ["mtp_modules", 1] }\n')
    (log := tmp_path / "mine.log").write_text(
        "mine step 1 loss 1.5 took 250\nmine step 2 loss 1.5 took 250 ahead\n"
    )
    whole = json.loads(run("formats", "--check", path, log, "--format", "json").stdout)
    told = [(row["line"], row["says"]) for row in whole["lines"] if row["is"] == "fact"]
    assert told == [(2, {"mtp_modules": "1"})]
    for wrong, message in (
        ('ahead = ["mtp_moduls", 1]', "no fact is called 'mtp_moduls'"),
        ('ahead = ["mtp_modules", "one"]', "is not a number"),
        ("ahead = 1", "write [fact, value]"),
        ('behind = ["mtp_modules", 1]', "the regex has no group 'behind'"),
    ):
        path.write_text(said + f"tells = {{ {wrong} }}\n")
        assert message in run("formats", "--check", path).output


@pytest.mark.parametrize("output", ["table", "markdown", "csv"])
def test_check_is_readable(output: str, own: Path, log: Path) -> None:
    result = run("formats", "--check", own, log, "--format", output)
    assert result.exit_code == 0
    for text in ("peak", "536870912", "understood up to", "gpus=4"):
        assert text in result.stdout.replace("\\", "")


def test_check_of_a_long_log_shows_a_few_lines_of_each_kind(own: Path, log: Path) -> None:
    log.write_text("".join(f"step: {n} loss: 1.5 mem: 0.5GiB\n" for n in range(1, 101)))
    result = run("formats", "--check", own, log)
    assert "and 92 more" in result.stdout
    assert len(result.stdout.splitlines()) < 40


def test_check_fails_where_nothing_matches(log: Path) -> None:
    result = run("formats", "--check", "xtuner", log)
    assert result.exit_code == 1
    assert "no line matches xtuner" in result.stderr
    assert run("formats", log).exit_code == 2


def test_check_without_a_log_says_whether_a_file_is_a_format(own: Path) -> None:
    assert "titan-fork is a valid format" in run("formats", "--check", own).stdout
    result = run("formats", "--check", OWN["xtuner"])
    assert result.exit_code == 1
    assert "matches a step line of xtuner too" in result.stderr


def test_the_help_shows_a_format_that_is_one(tmp_path: Path) -> None:
    text = run("formats", "-h").stdout
    shown = [line.strip() for line in text.splitlines()]
    begin, end = (
        next(n for n, x in enumerate(shown) if x.startswith(w)) for w in ("name =", "exam")
    )
    path = tmp_path / "shown.toml"
    path.write_text("\n".join(shown[begin : end + 1]))
    assert load_user_format(path).log_format.name == "titan-fork"


def test_advice_on_lines_that_lack_what_tells_the_format(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("[XTuner][RANK 0][2026-11-20 11:30:15][INFO] Step 1/32 lr: 0.1 grad_norm: 2.5\n")
    said = run("ingest", log, "--store", tmp_path / "a").stderr
    assert "1 lines could be its steps (first: line 1), but lack the marks" in said
    taken = run("ingest", log, "--store", tmp_path / "a", "--log-format", "xtuner-v1")
    assert "xtuner-v1, 1 step line" in taken.stderr


def test_a_start_of_the_engine_is_no_step_of_it(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(BUILT_IN["deepspeed"].events[0].example + "\n1,2\n")
    said = run("ingest", log, "--store", tmp_path / "a").stderr
    assert "nearest" not in said


def test_a_tag_of_ones_own_says_the_global_rank(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "name = 'mine'\nframework = 'mine'\nlooks_like_step = 'it '\nevidence = ['elapsed']\n"
        "rank_tag = '<r(?P<rank>\\d+)>'\nelapsed_covers = 'step'\n[[steps]]\n"
        "regex = 'it (?P<step>\\d+) took (?P<s>\\S+)'\n"
        "columns = { step = 'step', s = 'elapsed_s' }\nexample = '<r3> it 1 took 0.5'\n"
    )
    lines = ["1: <r3> it 1 took 0.5", "1: [rank2]: it 1 took 0.5", "it 1 took 0.5"]
    numbered = [NumberedLine(n, line, cut=False) for n, line in enumerate(lines, 1)]
    (launch,) = parse_lines(numbered, load_user_format(path).log_format).launches
    assert [row["rank"] for row in launch.rows] == ["3", "1:2", None]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_format_can_be_extended(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f"name = 'mine'\nextends = '{name}'\n[[events]]\nregex = 'ZZZ done'\nkind = 'end'\n"
        "example = 'ZZZ done'\n"
    )
    mine = load_user_format(path).log_format
    assert mine.evidence == BUILT_IN[name].evidence
    assert mine.infer_sizes is BUILT_IN[name].infer_sizes
    assert mine.finish is BUILT_IN[name].finish


@pytest.mark.parametrize(
    ("table", "kind"),
    [("", LogFormat), ("[[steps]]", StepLine), ("[[facts]]", FactLine), ("[[events]]", EventLine)],
)
def test_no_key_is_taken_and_passed_over(tmp_path: Path, table: str, kind: type) -> None:
    """A key of the dataclass that the file may have is read: then a date is wrong in any."""
    path = tmp_path / "mine.toml"
    for field in fields(kind):
        path.write_text(f"{table}\n{field.name} = 2026-11-20\n")
        with pytest.raises(FormatFileError, match=rf"\b{field.name}: (?:is |needs |holds |write )"):
            load_user_format(path)


def test_a_counter_of_its_own_and_the_clock_can_be_described(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        ALONE.replace('["elapsed"]', '["clock"]')
        .replace('["elapsed_s", 0.001]', '"since_start_s"')
        .replace('elapsed_covers = "step"', 'as_companion = "timers"\nheader = "mine begins"')
        .replace("[[steps]]", '[[steps]]\ncounts = "launch_steps"')
    )
    mine = load_user_format(path).log_format
    assert (mine.evidence, mine.as_companion, mine.header) == (("clock",), "timers", "mine begins")
    assert mine.steps[0].counts == "launch_steps"
