"""Hostile inputs: a short run of the targets that `make fuzz` runs long, and what it found."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.ingest.facts.project_config import ProjectConfig, SeriesConfig
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.torchtitan.console import TORCHTITAN
from fairmfu.ingest.launches.launch import MAX_STEP
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.metrics.utilization.formula_inputs import integer_fact
from tests.support.cited import COUNTS, lines_of, uncited, uncounted
from tests.support.effort import THOROUGH
from tests.support.fuzz_targets import BY_NAME, TARGETS, TITAN, Target, mutated, read_rows

INPUTS: Final = int(os.environ.get("FAIRMFU_FUZZ") or (400 if THOROUGH else 12))
"""Of each target; those of `COSTLY` get fewer."""
COSTLY: Final = {"store": 10, "report": 10, "metrics": 10, "facts": 2, "events": 2}


def tried(target: Target, data: bytes, folder: Path) -> str:
    """What is wrong with an input, empty where nothing is."""
    _loaded(target.name)
    finding = target.watched(data, folder).finding
    return f"{finding.kind}: {finding.text}\n{data[:2000]!r}" if finding else ""


@cache
def _loaded(name: str) -> None:
    """Libraries that a target loads at its first input are no cost of that one."""
    with TemporaryDirectory() as folder:
        BY_NAME[name].check(BY_NAME[name].seeds()[0], Path(folder))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_mutated_inputs_find_nothing(target: Target, tmp_path: Path) -> None:
    draw = Random(target.name)  # noqa: S311 - no secret
    seeds, words = target.seeds(), list(target.words())
    count = INPUTS // COSTLY.get(target.name, 1)
    for _ in range(count):
        data = mutated(draw.choice(seeds), draw, words)[: target.longest]
        assert tried(target, data, tmp_path) == ""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_find_nothing(target: Target, tmp_path: Path) -> None:
    """Nor is a check vain: they are what the program reads. Each fifth; `make thorough`: each."""
    for seed in target.seeds()[:: COSTLY.get(target.name, 1) * (1 if THOROUGH else 5)]:
        assert tried(target, seed, tmp_path) == ""


# -- values of any kind where another was meant ------------------------------------------------

scalars = (
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["llama", "qwen3_moe", "deepseek_v3", "kimi_linear", "bf16", "full", "8"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
MODEL_KEYS: Final = sorted(
    {key for seed in BY_NAME["models"].seeds() for key in json.loads(seed[1:])}
)
CONFIG_KEYS: Final = sorted(
    field.name for kind in (ProjectConfig, SeriesConfig) for field in fields(kind)
)


def toml(value: Any) -> str:
    """A value as TOML has it; JSON, but for tables and what is no number."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(k)} = {toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value).replace("Infinity", "inf").replace("NaN", "nan")


def finds_nothing(name: str, data: bytes) -> None:
    with TemporaryDirectory() as folder:
        assert tried(BY_NAME[name], data, Path(folder)) == ""


@settings(max_examples=INPUTS)
@given(
    st.sampled_from(BY_NAME["models"].seeds()), st.dictionaries(st.sampled_from(MODEL_KEYS), values)
)
def test_any_value_in_a_model_config_finds_nothing(seed: bytes, change: dict[str, Any]) -> None:
    text = json.dumps(json.loads(seed[1:]) | change).encode("utf-8", "replace")
    finds_nothing("models", seed[:1] + text)


@settings(max_examples=INPUTS)
@given(st.integers(0, 1), st.dictionaries(st.sampled_from(sorted(FACT_NAMES)), values))
def test_any_value_in_a_sidecar_finds_nothing(place: int, said: dict[str, Any]) -> None:
    text = "".join(f"{name} = {toml(value)}\n" for name, value in said.items())
    finds_nothing("facts", bytes([place]) + text.encode("utf-8", "replace"))


@settings(max_examples=INPUTS)
@given(st.dictionaries(st.sampled_from(CONFIG_KEYS), values))
def test_any_value_in_a_configuration_finds_nothing(said: dict[str, Any]) -> None:
    text = "".join(f"{name} = {toml(value)}\n" for name, value in said.items())
    finds_nothing("config", b"\0" + text.encode("utf-8", "replace"))


# -- what was found ----------------------------------------------------------------------------

LONG: Final = b"9" * 5000
"""More digits than Python makes a number of, or prints of one."""
DEEP: Final = b"[" * 5000
OWN: Final = rb"""name = "own"
framework = "torchtitan"
looks_like_step = 'it \d+'
evidence = ["rate"]
rate_covers = "step"
[[steps]]
regex = '%s'
columns = { step = "step", tgs = "logged_tgs" }
example = "it 3 |tgs| 12.5"
"""
STEP: Final = rb"it (?P<step>\d+) .tgs. (?P<tgs>[\d.]+)"
SHAPE: Final = b"""\0{"model_type": "%s", "hidden_size": 64, "num_hidden_layers": %s,
"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
"vocab_size": 100, "num_experts": 8, "num_experts_per_tok": %s, "moe_intermediate_size": 48,
"mlp_only_layers": %s, "tie_word_embeddings": false}"""
V1: Final = b"".join(
    b"[XTuner][2025-07-24 09:41:%d][INFO] Step %d/40 data_time: 0.01 lr: 2e-05 text_tokens: 3906.0 "
    b"total_loss: 2.9 reduced_llm_loss: 2.9 max_memory: 31.25 GB grad_norm: 1.8 tgs: 4767.0 \n"
    % (10 + step, step)
    for step in range(1, 6)
)
FOUND: Final = (
    # whole numbers that Python refuses to read or to print, tables in tables without an end
    *(("facts", beside + b"gpus = " + LONG) for beside in (b"\0", b"\1", b"\5")),
    ("facts", b"\0gpus = 0x" + b"f" * 5000),
    ("facts", b"\4seq_len: {value: " + LONG + b"}"),
    ("facts", b"\4seq_len: {value: 0x" + b"f" * 5000 + b"}"),
    ("facts", b"\0gpus = " + DEEP),
    *(("config", b"\0wait = " + value) for value in (LONG, b"0x" + b"f" * 5000, DEEP)),
    *(
        ("config", b"\1[[accelerator]]\nname = " + value)
        for value in (LONG, b"0x" + b"f" * 5000, DEEP)
    ),
    (
        "config",
        b'\1[[accelerator]]\nname = "a"\nunit = "b"\nsource = "c"\npeaks = { bf16 = 1%s }'
        % (b"0" * 400),
    ),
    ("formats", b"name = " + LONG),
    # what can be no path
    *(("config", b'\0store = "' + path + b'"') for path in (b"~nosuchuser/x", b"a\\u0000b")),
    *(("config", b'\0sources = ["' + path + b'"]') for path in (b"~nosuchuser/x", b"\\u0000*")),
    # patterns that do not stand beside others
    ("formats", OWN % rb"(?i)IT (?P<step>\d+) .tgs. (?P<tgs>[\d.]+)"),
    ("formats", OWN % rb"it (?P<step>\d+) (?P<q>.)tgs(?P=q) (?P<tgs>[\d.]+)"),
    ("formats", OWN.replace(rb"'it \d+'", rb"'(?i)it \d+'") % rb"it (?P<step>\d+) .+ (?P<tgs>\S+)"),
    # half a character in a pattern, a date where a configuration may have a table
    ("formats", OWN.replace(rb"[[steps]]", b"launch = '\\ud800'\n[[steps]]") % STEP),
    ("config", b'\0[[facts]]\npaths = ["*"]\nmodel_config.day = 1979-05-27'),
    # a text that begins as a JSON object does
    ("facts", b'\0torchtitan_arguments = [{"" = ""}]'),
    # a pair without key and value
    (
        "formats",
        (OWN % rb"it (?P<step>\d+) (?P<pairs>.*)").replace(
            b"columns", b"pair = '.tgs. (?P<key>x)|(?P<value>\\d+)'\ncolumns"
        ),
    ),
    # shapes of no model: layers by the billion, more experts for a token than there are
    *(("models", SHAPE % (b"qwen3", layers, b"2", b"[]")) for layers in (b"1000000000", b"1" * 60)),
    ("models", SHAPE % (b"qwen3_moe", b"6", b"1000000000", b"[]")),
    ("models", SHAPE % (b"qwen3_moe", b"6", b"2", b"[[5]]")),
    *(
        (
            "models",
            b'\2{"dim": 4, "n_layers": 2, "n_heads": 4, "vocab_size": 10, "multiple_of": 8, '
            b'"ffn_dim_multiplier": %s}' % factor,
        )
        for factor in (b"1e307", b"1e308")
    ),
    (
        "models",
        b'\1{"hidden_size": 4, "num_layers": 2, "vocab_size": -437, "num_attention_heads": 4, '
        b'"max_position_embeddings": 28}',
    ),
    # counts of tokens that are none: an infinite TGS
    *(("metrics", V1.replace(b"3906.0", tokens)) for tokens in (b"1e400", b"-5", b"1e308")),
    # a character that no SVG holds: the library that draws ended the process
    *(("report", text) for text in (b"\0\n\0\n\0\n\0", b"\x1b[0m\na\nb\nc", b"\xef\xbf\xbe")),
)


@pytest.mark.parametrize(
    ("name", "data"), FOUND, ids=[f"{n}-{i}" for i, (n, _) in enumerate(FOUND)]
)
def test_what_was_found_is_mended(name: str, data: bytes, tmp_path: Path) -> None:
    assert tried(BY_NAME[name], data, tmp_path) == ""


@pytest.mark.parametrize("value", ["9223372036854775808", "9" * 400, "1e400", "nan", "eight"])
def test_a_count_that_no_table_holds_is_none(value: str) -> None:
    """A log may state one: its facts are not checked as those that are given are."""
    assert integer_fact({"gpus": {"value": value}}, "gpus") is None


def test_a_long_set_in_a_pattern_of_ones_own_is_told_at_once(tmp_path: Path) -> None:
    """That its example does not match, and how far."""
    data = OWN % (rb"it (?P<step>\d+) .tgs. (?P<tgs>[\d.]+)[" + b"f" * 1000 + b"]")
    assert BY_NAME["formats"].watched(data, tmp_path).seconds < 0.5


# -- what logs are held to ----------------------------------------------------------------------


def told(tmp_path: Path) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    path = tmp_path / "run.log"
    path.write_text(TITAN + "Traceback (most recent call last):\nValueError: 3\n")
    rows = {name: [dict(row) for row in said] for name, said in read_rows(path).items()}
    return rows, lines_of(path.read_bytes())


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("steps", {"loss": 4.9899}),
        ("steps", {"line": 2}),
        ("steps", {"line": 99}),
        ("steps", {"step": 77}),
        ("steps", {"peak_memory_bytes": 1.5}),
        ("steps", {"extra": '{"share": "3.01"}'}),
        ("steps", {"logged_at": datetime(2026, 1, 2, 3, 4, 9)}),
        ("events", {"line": 1}),
        ("events", {"text": "ValueError: 4"}),
    ],
)
def test_a_value_that_its_line_does_not_print_is_seen(
    table: str, change: dict[str, Any], tmp_path: Path
) -> None:
    rows, lines = told(tmp_path)
    assert list(uncited(rows, lines, TORCHTITAN)) == []
    rows[table][0] |= change
    assert len(list(uncited(rows, lines, TORCHTITAN))) >= 1


@pytest.mark.parametrize("count", [*COUNTS, "lines"])
def test_a_line_that_is_counted_twice_or_never_is_seen(count: str, tmp_path: Path) -> None:
    rows, lines = told(tmp_path)
    assert list(uncounted(rows, len(lines))) == []
    rows["sources"][0][count] += 1
    assert len(list(uncounted(rows, len(lines)))) >= 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("deepspeed", b"steps: 5 loss: 7.0552 iter time (s): 0.138 samples/sec: 1E-05"),
        (
            "torchtitan",
            b"[titan] 2026-11-20 15:34:16,731 - root - INFO - step: 10  loss:  6.27853  "
            b"grad_norm:  2.7734  memory:  0.71GiB(3.00%)  tps: 415  tflops: 1e4  mfu: 0.01%",
        ),
        (
            "xtuner-v1",
            b"[XTuner][2025-08-07 09:41:13][INFO] Step 2/40 data_time: 0.0,9 total_loss: 2.914 "
            b"reduced_llm_loss: 2.902 max_memory: 31.25 GB grad_norm: 1.875 tgs: 52,345 "
            b"e2e_tgs: 1209.4 ",
        ),
        ("hf-trainer", b"{'loss': 2.4,417, 'learning_rate': 3e-05, 'epoch': 0.2}"),
        ("hf-trainer", b"{'loss': '6.795', 'grad_norm': '2.,812', 'epoch': '0.0293'}"),
        ("hf-trainer", b"{'loss': 2.4417, 'learning_rate': 2,e-05, 'epoch': 0.4}"),
        (
            "torchtitan",
            b"2024-02-27 11:22:33,456 - root - INFO - step: 10  loss:  8.1234  iter:  1.2345  "
            b"data: -,5  lr: 0.00024",
        ),
        ("domino", b"iteration: 12 | loss: 9.875 | iteration time (ms): 412,.25  "),
        ("deepspeed-chat", b"Epoch: 0, Step: 0, Rank: 1, loss = 2.60937_runtime"),
        (
            "mlperf",
            b':::MLLOG {"namespace": "", "time_ms": 1715200000123, "event_type": "POINT_IN_TIME", '
            b'"key": "train_loss", "value": 1.4283, "metadata": {"file": "a.py", "lineno": 102, '
            b'"samples_count": 8.50001}} (step 40)',
        ),
        (
            "mlperf",
            b':::MLLOG {"namespace": "", "time_ms": 1715200000123, "event_type": "POINT_IN_TIME", '
            b'"key": "train_loss", "value": 1.4,283, "metadata": {"file": "a.py", "lineno": 102, '
            b'"samples_count": 320}} (step 40)',
        ),
    ],
)
def test_of_a_number_no_half_is_read(name: str, line: bytes, tmp_path: Path) -> None:
    place = next(n for n, form in enumerate(BUILT_IN_FORMATS) if form.name == name)
    assert tried(BY_NAME["lines"], bytes([2 * place]) + line + b"\n", tmp_path) == ""


@pytest.mark.parametrize("damaged", ["170140656918007111997215", "7"])
def test_a_bar_that_is_beyond_its_end_is_none(
    damaged: str, parse: Callable[..., ParsedSource]
) -> None:
    bar = "\r 33%|###  | {}/3 [0{}:05<02:10, 65.12s/it]"
    lines = ["Total optimization steps = 3", bar.format(1, 1) + bar.format(damaged, 2)]
    found = parse("hf-trainer", lines)
    assert [row["step"] for row in found.launches[0].rows] == [1]
    assert found.unread == []


@pytest.mark.parametrize(
    "text", ["-,5", ",5", "5,", "1,23", "1234,567", "1,234,56", "1,,234", "1.5,000", "1_000"]
)
def test_commas_stand_between_thousands(text: str, parse: Callable[..., ParsedSource]) -> None:
    head = "[titan] 2026-11-20 15:34:16,731 - root - INFO - step: 10  loss:  6.27853  "
    line = head + "memory:  0.71GiB(3.00%)  tps: {}  mfu: 0.01%"
    read, damaged = (parse("torchtitan", [line.format(said)]) for said in ("1,234,567", text))
    assert [row["logged_tgs"] for row in read.launches[0].rows] == [1_234_567]
    assert len(damaged.unread) == 1
    assert not damaged.launches[0].rows


def test_steps_are_counted_no_further_than_the_store_has_room(
    parse: Callable[..., ParsedSource],
) -> None:
    line = "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}"
    bar = f"  1%|##   | {MAX_STEP}/{MAX_STEP} [00:31<00:10,  1.00s/it]"
    found = parse("hf-trainer", [line, bar, line, "other", line])
    assert {row["step"] for launch in found.launches for row in launch.rows} == {MAX_STEP}


def test_a_damaged_step_takes_no_value_of_the_line_behind_it(
    parse: Callable[..., ParsedSource],
) -> None:
    """Which may print the same step: of a validation."""
    head = "[titan] 2026-11-20 15:26:38,159 - root - INFO - "
    rest = "memory:  0.73GiB(3.11%)  tps: 183  tflops: 0.01  mfu: 0.00%"
    damaged = f"{head}step: 10  loss:  6.25683  grad_norm:  2.1591  {rest[1:]}"
    found = parse("torchtitan", [damaged, f"{head}validate step: 10  loss:  5.8919  {rest}"])
    assert not found.launches[-1].rows
    assert [one["line"] for one in found.unread] == [1]
