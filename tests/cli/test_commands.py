"""The commands as a user types them: output, errors, exit codes."""

import csv
import io
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import click
import polars as pl
import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.metrics.core.run_messages import RunNameError
from fairmfu.metrics.core.run_selection import choose
from fairmfu.metrics.formula.precision import BELOW_16_BITS, SIXTEEN_BITS_OR_MORE
from tests.repository.test_docs import printed
from tests.support.error_kinds import of_kind
from tests.support.folders import ROOT

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
COMMANDS = sorted(main.commands)

# The JSON keys of `runs` that others rely on (the contract).
# fmt: off
RUN_KEYS = frozenset([
    "run_id", "name", "framework", "log_format", "framework_version", "model", "accelerator",
    "gpus", "seq_len", "precision", "recompute", "trainable", "steps", "tokens_per_second",
    "tgs", "tgs_low", "tgs_high", "tgs_slots", "tgs_end_to_end", "mfu", "mfu_full_attention",
    "mfu_conservative", "mfu_bf16", "mfu_bf16_full_attention", "hfu_low", "hfu_high",
    "hfu_language_model_low", "hfu_language_model_high", "implied",
    "flops_per_token", "peak_flops", "peak_source", "token_basis", "time_basis",
    "excluded_share", "formula", "logged_tgs", "logged_tflops", "logged_mfu",
    "logged_reproduced", "proven", "missing", "warnings", "sources",
])
# fmt: on


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("readings_are_timed")
def test_ingest_says_how_lines_were_read_and_how_fast(tmp_path: Path) -> None:
    """The table `sources` says the same."""
    (log,) = (SYNTHETIC / "torchtitan").rglob("*.log")
    plain = run("ingest", log, "--store", tmp_path / "plain")
    assert "MB/s" not in plain.stderr
    said = run("ingest", log, "--store", tmp_path / "store", "--verbose").stderr
    query = "select bytes, read_s, read_mb_per_s, lines, block_lines, cached_lines, regex_lines"
    found = run("query", f"{query} from sources", "--store", tmp_path / "store", "--format", "json")
    (source,) = json.loads(found.stdout)
    ways = [source[name] for name in ("block_lines", "cached_lines", "regex_lines")]
    assert sum(ways) == source["lines"] == log.read_bytes().count(b"\n")
    assert f"{ways[0]:,} many at once, {ways[1]:,} from the cache, {ways[2]:,} one by one" in said
    assert source["read_mb_per_s"] == pytest.approx(source["bytes"] / 1e6 / source["read_s"])


@pytest.mark.parametrize("fact", ["precision", "trainable", "recompute"])
def test_an_option_takes_what_the_fact_of_its_name_may_be(fact: str) -> None:
    """Help imports no table of facts, so the command line has these words a second time."""
    (option,) = (one for one in main.commands["flops"].params if one.name == fact)
    assert isinstance(option.type, click.Choice)
    of_megatron = {"selective_attention"}
    taken = tuple(word for word in FACT_NAMES[fact].choices if word not in of_megatron)
    assert tuple(option.type.choices) == taken


def test_each_precision_has_its_number_formats() -> None:
    assert (*SIXTEEN_BITS_OR_MORE, *BELOW_16_BITS) == FACT_NAMES["precision"].choices


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "store"
    result = run("ingest", SYNTHETIC, "--store", path)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the run of XTuner, of which nothing has been computed."""
    path = tmp_path_factory.mktemp("one") / "store"
    assert run("ingest", SYNTHETIC / "xtuner", "--store", path).exit_code == 0
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_says_what_it_takes(name: str) -> None:
    result = run(name, "-h")
    assert result.exit_code == 0
    assert main.commands[name].help
    for parameter in main.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help


def test_every_option_has_a_variable_of_its_own_name() -> None:
    """As docs/reference/commands.md says; click's own are of the parameters' names."""
    for name, command in main.commands.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.show_envvar:
                longest = max(option.opts, key=len).removeprefix("--").replace("-", "_")
                assert option.envvar == f"FAIRMFU_{name}_{longest}".replace("-", "_").upper()


def test_a_variable_stands_for_an_option(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRMFU_RUNS_FORMAT", "json")
    assert json.loads(run("runs", "--store", store).stdout)


def test_runs_as_json_has_the_keys_of_the_contract(store: Path) -> None:
    rows = json.loads(run("runs", "--format", "json", "--store", store).stdout)
    assert len(rows) == 5
    for row in rows:
        assert set(row) >= RUN_KEYS
        assert row["missing"] == []
        assert isinstance(row["warnings"], list)
        assert [Path(path).suffix for path in row["sources"]] == [".log"]


def test_runs_as_csv_parses_back(store: Path) -> None:
    rows = list(
        csv.DictReader(io.StringIO(run("runs", "--format", "csv", "--store", store).stdout))
    )
    assert {row["name"] for row in rows} >= {"llama3-8b-8xh100-torchtitan"}
    assert all(float(row["tgs"]) == pytest.approx(6398.2, abs=0.1) for row in rows)


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_compare_says_the_verdict_and_what_differs(store: Path, output: str) -> None:
    result = run("compare", "--format", output, "--store", store)
    said = result.stdout.replace("**", "")
    assert result.exit_code == 0
    assert "are equally fast, within 0.1 %" in said
    assert "although their logs print 371, 481 and 474 TFLOP/s per GPU" in said
    assert "(synthetic)" in said
    (named,) = re.findall(r"framework \((\w+ vs \w+ vs \w+)\),", said.replace("\n", " "))
    assert set(named.split(" vs ")) == {"deepspeed", "torchtitan", "xtuner"}


def test_compare_takes_runs_by_name(store: Path) -> None:
    names = ("llama3-8b-8xh100-xtuner", "llama3-8b-8xh100-torchtitan")
    rows = json.loads(run("compare", *names, "--format", "json", "--store", store).stdout)
    assert sorted(row["name"] for row in rows) == sorted(names)
    runs = json.loads(run("runs", "--format", "json", "--store", store).stdout)
    paths = [path for row in runs if row["name"] in names for path in row["sources"]]
    by_path = run("compare", *paths, "--format", "json", "--store", store).stdout
    assert json.loads(by_path) == rows


def test_an_unknown_run_names_the_nearest(store: Path) -> None:
    result = run("explain", "llama3-8b-8xh100-xtunr", "--store", store)
    assert result.exit_code == 1
    assert "llama3-8b-8xh100-xtuner" in result.stderr


def test_explain_as_json_has_operators_and_facts(store: Path) -> None:
    result = run("explain", "llama3-8b-8xh100-xtuner", "--format", "json", "--store", store)
    whole = json.loads(result.stdout)
    assert sum(row["share"] for row in whole["operators"]) == pytest.approx(1.0)
    assert {fact["name"]: fact["origin"] for fact in whole["facts"]}["gpus"] == "log:15"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "torchtitan",
            " % of the logged time. A window that contains start-up or warm-up is left out "
            "completely",
        ),
        ("deepspeed", "start-up (duration: see the wall time above)"),
    ],
)
def test_explain_says_what_is_left_out_of_steady(store: Path, name: str, words: str) -> None:
    """DeepSpeed's engine stamps its first line when that step is done, so nothing times it."""
    said = run("explain", f"llama3-8b-8xh100-{name}", "--store", store).stdout
    (line,) = (line for line in said.splitlines() if "not in TGS" in line)
    assert line.endswith(words)
    assert "\nWall time " in said


def test_an_excerpt_leaves_out_its_first_line_and_no_start_up(tmp_path: Path) -> None:
    """Its table has no start-up, so nothing refers to it."""
    lines = (
        f"[rank0]:[titan] 2026-06-01 09:{n:02d}:00,000 - root - INFO - step: {500 + 10 * n}  "
        "loss: 4.50000  grad_norm:  1.2000  memory: 44.21GiB(55.88%)  tps: 6,400  "
        "tflops: 370.65  mfu: 37.48%\n"
        for n in range(5)
    )
    (tmp_path / "cut.log").write_text("".join(lines))
    run("ingest", tmp_path / "cut.log", "--store", tmp_path / "store")
    said = run("explain", "cut", "--store", tmp_path / "store").stdout
    assert "not in TGS: the first line (duration not in the log)" in said
    assert "start-up" not in said


def test_explain_shows_that_a_value_is_cut(store: Path) -> None:
    said = run("explain", "llama3-8b-8xh100-megatron-deepspeed", "--store", store).stdout
    (arguments,) = (line for line in said.splitlines() if line.startswith(" megatron_arguments"))
    assert "…   log:" in arguments
    assert said.count("…") == 1


def test_explain_says_an_hfu_that_is_one_figure_once(tmp_path: Path) -> None:
    log = SYNTHETIC / "torchtitan" / "llama3-8b-8xh100-torchtitan.log"
    run("ingest", log, "--store", tmp_path, "--set", "recompute=none")
    said = run("explain", "llama3-8b-8xh100-torchtitan", "--store", tmp_path).stdout
    assert "\nHFU    33.3 %, recompute none\n" in said


def test_json_is_json_on_a_terminal_too(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    run_ = ["explain", "llama3-8b-8xh100-xtuner", "--store", str(store), "--format"]
    whole, _ = printed([*run_, "json"])
    assert json.loads(whole)["run"]["framework"] == "xtuner"
    table, _ = printed([*run_, "table"])
    prose = table[: table.index("Wall time")]
    assert max(map(len, prose.splitlines())) <= 60


def test_report_writes_one_page_without_a_network(store: Path, tmp_path: Path) -> None:
    page = tmp_path / "out" / "page.html"
    assert run("report", "--store", store, "--out", page, "--title", "A & B").exit_code == 0
    html = page.read_text(encoding="utf-8")
    assert "A &amp; B" in html
    assert list(page.parent.iterdir()) == [page]


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["--out", "a.md"], "# "),
        (["--out", "a.json"], "{"),
        (["--out", "a.html"], "<!doctype html>"),
        (["--out", "a", "--format", "json"], "{"),
        (["--out", "a.pdf"], None),
        (["--out", "a"], None),
    ],
)
def test_a_report_is_what_its_name_ends_in(
    words: list[str], begins: str | None, store: Path, tmp_path: Path
) -> None:
    out = tmp_path / words[1]
    result = run("report", "--store", store, "--out", out, *words[2:])
    if begins is None:
        assert (result.exit_code, out.exists()) == (1, False)
        assert f"{out}: the suffix must be one of .html, .md, .json" in result.stderr
    else:
        assert out.read_text(encoding="utf-8").startswith(begins)


def test_a_report_of_one_kind_is_not_written_under_the_ending_of_another(
    store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.html"
    result = run("report", "--store", store, "--out", out, "--format", "md")
    assert (result.exit_code, out.exists()) == (1, False)
    assert f"{out}: suffix .html contradicts --format md" in result.stderr


def test_an_unknown_run_is_told_what_there_is(store: Path) -> None:
    begun = run("explain", "llama3-8b-8xh100-xt", "--store", store)
    assert "Nearest: llama3-8b-8xh100-xtuner, llama3-8b-8xh100-xtuner-v1" in begun.stderr
    few = pl.DataFrame({"run_id": ["a1", "b2"], "name": ["titan", "xtuner"]})
    there = of_kind("unknown-run", "'qqq'", "There are: titan, xtuner.")
    with pytest.raises(RunNameError, check=there):
        choose(few, "qqq")


def test_help_begins_with_what_one_begins_with() -> None:
    commands = re.findall(r"^  (\w+)  ", run("-h").stdout.split("Commands:")[1], re.MULTILINE)
    assert commands[:5] == ["ingest", "set", "runs", "compare", "explain"]
    assert set(commands) == set(main.commands)


def test_query_reads_every_view(store: Path) -> None:
    for view in ("runs", "facts", "steps", "events", "unread", "sources", "metrics"):
        result = run("query", f"from {view}", "--format", "json", "--store", store)
        assert result.exit_code == 0, result.output
        assert isinstance(json.loads(result.stdout), list)


def test_query_writes_nothing(store: Path) -> None:
    result = run("query", "delete from runs", "--store", store)
    assert result.exit_code == 1
    assert "read-only" in result.stderr


def test_set_corrects_a_fact_of_a_stored_run(tmp_path: Path) -> None:
    store = tmp_path / "store"
    run("ingest", SYNTHETIC / "torchtitan", "--store", store)
    name = "llama3-8b-8xh100-torchtitan"
    assert run("set", name, "accelerator=NVIDIA B200", "--store", store).exit_code == 0
    row = json.loads(run("runs", "--format", "json", "--store", store).stdout)[0]
    assert row["accelerator"] == "NVIDIA B200"
    assert any("accelerator" in warning for warning in row["warnings"])
    assert run("rebuild", "--store", store).exit_code == 0
    assert json.loads(run("runs", "--format", "json", "--store", store).stdout) == [row]


def test_a_misspelt_fact_is_an_error_with_a_hint(tmp_path: Path) -> None:
    log = next(SYNTHETIC.glob("torchtitan/*.log"))
    result = run("ingest", log, "--set", "gpu=8", "--store", tmp_path / "store")
    assert result.exit_code == 1
    assert "Did you mean gpus" in result.stderr


def test_exit_codes_tell_some_from_none(tmp_path: Path) -> None:
    junk = tmp_path / "junk.log"
    junk.write_text("step by step, nothing of ours\n", encoding="utf-8")
    good = next(SYNTHETIC.glob("xtuner/*.log"))
    assert run("ingest", junk, "--store", tmp_path / "a").exit_code == 1
    both = run("ingest", junk, good, "--store", tmp_path / "b")
    assert both.exit_code == 4
    assert "unknown format" in both.stderr
    assert "1 read, 1 not read" in both.stderr
    assert run("ingest", "--store", tmp_path / "c").exit_code == 2


def test_strict_makes_an_unread_line_an_error(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    text = next(SYNTHETIC.glob("torchtitan/*.log")).read_text(encoding="utf-8")
    log.write_text(text + "[rank0]:[titan] step:  7  loss:  oh no\n", encoding="utf-8")
    loose = run("ingest", log, "--store", tmp_path / "loose")
    assert loose.exit_code == 0
    assert "1 unread" in loose.stderr
    strict = run("ingest", log, "--strict", "--store", tmp_path / "strict")
    assert strict.exit_code == 1
    assert "looks like a step of torchtitan" in strict.stderr


def test_no_store_says_how_to_make_one(tmp_path: Path) -> None:
    result = run("runs", "--store", tmp_path / "nothing")
    assert result.exit_code == 1
    assert "fairmfu ingest" in result.stderr


@pytest.mark.parametrize("name", ["formats", "models", "accelerators"])
def test_support_tables_come_from_the_code(name: str) -> None:
    assert len(json.loads(run(name, "--format", "json").stdout)) >= 5


def test_standard_input_is_a_log_too(tmp_path: Path) -> None:
    log = next(SYNTHETIC.glob("torchtitan/*.log"))
    arguments = shlex.split(f"ingest - --store {tmp_path / 'store'}")
    result = CliRunner().invoke(main, arguments, input=log.read_bytes())
    assert result.exit_code == 0, result.output
    rows = json.loads(run("runs", "--format", "json", "--store", tmp_path / "store").stdout)
    assert rows[0]["name"] == "stdin"


def test_a_terminal_never_obeys_a_log(tmp_path: Path) -> None:
    log = tmp_path / "hostile\x1b]0;named\x07.log"
    text = next(SYNTHETIC.glob("torchtitan/*.log")).read_text(encoding="utf-8")
    half = "".join(text.splitlines(keepends=True)[:20]).replace(
        "NVIDIA H100", "\x1b]0;owned\x07H100"
    )
    log.write_text(f"{half}RuntimeError: \x1b]0;owned\x07\n", encoding="utf-8")
    (tmp_path / "broken\x1b]0;named\x07.log").write_bytes(b"")
    sql = "select name, path, text from runs join sources using (sha256), events"
    for command in (
        *(("ingest", tmp_path), ("ingest", log), ("runs",), ("runs", "--format", "csv")),
        *(("runs", "--format", "json"), ("query", sql), ("query", sql, "--format", "csv")),
        *(("query", "select \x1b]0;x"), ("compare",), ("doctor",), ("remove", "\x1b]0;x")),
        ("explain", "hostile\x1b]0;named\x07"),
    ):
        assert "\x1b" not in (said := run(*command, "--store", tmp_path / "store").output), command
    assert 'Outcome: crashed ("RuntimeError: ' in said


def test_a_users_devices_go_before_the_table(store: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "devices.toml"
    overlay.write_text(
        '[[accelerator]]\nname = "NVIDIA H100 80GB HBM3"\nunit = "GPU"\nsource = "me"\n'
        "peaks = { bf16 = 500e12 }\n",
        encoding="utf-8",
    )
    arguments = ("--accelerators", overlay, "runs", "--format", "json", "--store", store)
    rows = json.loads(run(*arguments).stdout)
    assert [row["peak_flops"] for row in rows] == pytest.approx([500e12] * 5)
    overlay.write_text("[[accelerator]]\nname = 3\n", encoding="utf-8")
    broken = run(*arguments)
    assert broken.exit_code == 1
    assert str(overlay) in broken.stderr


def test_what_is_above_100_percent_is_said_and_not_shown(one_run: Path, tmp_path: Path) -> None:
    """Full attention alone is: of a device that is too small for the rate."""
    mine = shutil.copytree(one_run, tmp_path / "store")
    told = run(
        "set", "llama3-8b-8xh100-xtuner", "accelerator=", "peak_flops=340e12", "--store", mine
    )
    assert told.exit_code == 0, told.output
    explained = run("explain", "llama3-8b-8xh100-xtuner", "--store", mine)
    assert explained.exit_code == 0, explained.output
    assert "(exact attention); above 100 % (full attention)" in explained.stdout
    compared = run("compare", "--store", mine)
    assert "MFU (full attention) would be 109% and is hidden" in compared.stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("h100", "h100 is treated as NVIDIA H100 SXM, 989.4 TFLOP/s dense in bf16."),
        ("NVIDIA H100 SXM", None),
        ("a100", None),
    ],
)
def test_a_short_name_says_which_device_it_is(
    given: str, says: str | None, one_run: Path, tmp_path: Path
) -> None:
    mine = shutil.copytree(one_run, tmp_path / "store")
    told = run("set", "llama3-8b-8xh100-xtuner", f"accelerator={given}", "--store", mine)
    assert told.stderr.splitlines()[:-1] == ([says] if says else [])
    explained = run("explain", "llama3-8b-8xh100-xtuner", "--store", mine).stdout
    assert ("TFLOP/s dense, NVIDIA H100 SXM (h100)" in explained) == (given == "h100")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("flops llama3-8b --seq-len 8192 --tgs nan", "nan is not a finite number"),
        ("flops llama3-8b --seq-len 8192 --tgs -5", "not in the range"),
        ("flops llama3-8b --seq-len 8192 --mfu nan", "nan is not a finite number"),
        (f"flops llama3-8b --seq-len {'9' * 400}", "not in the range"),
        ("nightly --wait nan", "nan is not a finite number"),
        ("runs --store ", "the path is empty"),
        ("ingest ", "the path is empty"),
        ("nightly --out ", "the path is empty"),
    ],
)
def test_a_number_is_one_and_an_empty_path_is_none(arguments: str, said: str) -> None:
    result = run(*arguments.split(" "))
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_is_no_regular_file_is_called_that(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    for name, said in (("pipe", "not a regular file"), ("circle", "a broken or circular link")):
        result = run("ingest", tmp_path / name, "--store", tmp_path / "store")
        assert result.exit_code == 1
        assert f"{tmp_path / name}: {said}" in result.stderr


def test_a_pattern_for_all_reads_no_store_as_a_log(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "all" / "fairmfu-store")
    result = run("ingest", tmp_path / "all" / "**", "--store", tmp_path / "other")
    assert "catalogue.duckdb" not in result.output


def test_an_interval_is_asked_to_be_cast(store: Path) -> None:
    result = run("query", "select max(logged_at) - min(logged_at) from steps", "--store", store)
    assert result.exit_code == 1
    assert "cast it" in result.stderr
    cast = "select epoch(max(logged_at) - min(logged_at)) from steps"
    assert run("query", cast, "--store", store).exit_code == 0
