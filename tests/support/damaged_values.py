"""Runs with one value damaged beside good ones: nothing is raised, and these stay the same.

An input is a log with what lies beside it (facts.toml, config.json), of which one value is
dropped, has a digit changed, or is 0, negative, huge, no number or a text. Many are read into one
set of tables, so that they cost little more than their reading; where a good run's answer changes,
they are halved until the one that does it is found.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import polars as pl

from fairmfu.ingest.core.errors import FairmfuError, ReadingFaultError
from fairmfu.ingest.core.spill import Spool, collect_rows
from fairmfu.ingest.extract.log_tables import facts_from_files, read_log_files, read_log_tables
from fairmfu.ingest.formats.launch_view import Fact
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.reports.page.report_data import build_content, report_json
from fairmfu.reports.text.run_explained import explain
from tests.support.folders import ROOT
from tests.support.nights import Plan, write_night

SAMPLES: Final = ROOT / "sample_logs" / "synthetic"
VARIANTS: Final = ROOT / "tests" / "variants"
SAMPLE_BASES: Final = 40
SAMPLE_SHARE: Final = 0.4
"""The first bases, of the samples, and how often one of them is chosen."""
MAX_LINES: Final = 40
"""Lines of a log: its header, and some steps."""
GOOD_SERIES: Final = (1, 3, 4, 6, 7, 9, 11, 12, 13, 15, 16, 18)
"""Series of tests.support.nights with other models, lengths or sizes than the damaged logs."""

Tables = Mapping[str, pl.DataFrame]
Files = Mapping[str, str]

LLAMA: Final = """{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256,
"head_dim": 128, "tie_word_embeddings": false}"""
MIXTRAL: Final = """{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 32000,
"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 4096}"""
DEEPSEEK: Final = """{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
"moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
"num_key_value_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1,
"num_experts_per_tok": 8,
"first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
"num_nextn_predict_layers": 1}"""
QWEN_NEXT: Final = """{"model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120,
"num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
"linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
"shared_expert_intermediate_size": 512, "decoder_sparse_step": 1, "vocab_size": 151936}"""
ALL_FACTS: Final = """gpus = 8
accelerator = "NVIDIA H100 80GB HBM3"
seq_len = 8192
micro_batch_size = 1
global_batch_size = 8
gradient_accumulation = 1
data_parallel = 8
tensor_parallel = 1
pipeline_parallel = 1
context_parallel = 1
precision = "bf16"
recompute = "full"
trainable = "full"
packed = true
document_mask = false
attended_pairs = 4096.5
vocab_size = 128256
padded_vocab_size = 128256
params_total = 8030261248
mtp_modules = 0
zero_stage = 3
log_interval = 10
average_window = 1
total_steps = 200
peak_flops = 9.89e14
logged_peak_flops = 9.89e14
profiled_steps = 3
total_samples = 100000
replicas = 1
replica_groups = 1
expert_parallel = 1
lora_rank = 16
lora_targets = "q_proj,v_proj"
"""


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """The files of one run, and what was done to them."""

    files: Files
    damage: str


@cache
def bases() -> tuple[Files, ...]:
    """Logs with what lies beside them: run.log, facts.toml, config.json.

    The samples with several files beside each, and an excerpt of each variant of each format.
    """
    found = []
    for log in sorted(SAMPLES.rglob("*.log")):
        lines = log.read_text().splitlines(keepends=True)[:MAX_LINES]
        beside = log.with_name("facts.toml")
        files = {"run.log": "".join(lines)}
        facts = beside.read_text() if beside.exists() else ""
        found.append(files | {"facts.toml": facts})
        found.append(
            files | {"facts.toml": facts + 'model = "llama3-8b"\n' * ("model" not in facts)}
        )
        found.append({**files, "facts.toml": ALL_FACTS})
        lora = ALL_FACTS.replace('trainable = "full"', 'trainable = "lora"')
        found.append({**files, "facts.toml": lora, "config.json": LLAMA})
        plain = "".join(
            line for line in facts.splitlines(keepends=True) if not line.startswith("model")
        )
        found += [
            {**files, "facts.toml": plain, "config.json": config}
            for config in (LLAMA, MIXTRAL, DEEPSEEK, QWEN_NEXT)
        ]
    for variant in sorted(VARIANTS.rglob("*.txt")):
        lines = variant.read_text().splitlines(keepends=True)[1 : MAX_LINES + 1]
        found.append({"run.log": "".join(lines), "facts.toml": ALL_FACTS})
    return tuple(found)


# -- damages -----------------------------------------------------------------------------------

VALUE: Final = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
HOSTILE: Final = (
    *("0", "-1", "1", "3", "0.5", "1e308", "-1e308", "1e-308", "4294967296", "9223372036854775807"),
    *("1" + "0" * 30, "nan", "NaN", "inf", "-inf", "Infinity", "null", "true", "eight", "", "''"),
    *("1e18", "1e12", "1e9", "2147483648", "1e16", "7", "1e5", "99999999"),
)


def damaged(draw: Random) -> DamagedRun:
    """A run with one value damaged, in a line of its header, of a step, or beside its log."""
    every = bases()
    files = dict(draw.choice(every[:SAMPLE_BASES] if draw.random() < SAMPLE_SHARE else every))
    name = draw.choice([name for name, text in files.items() if text])
    text = files[name]
    if name == "run.log" and draw.random() < 0.2:
        files[name], what = _everywhere(text, draw)
        return DamagedRun(files, f"{name}: {what}")
    values = list(VALUE.finditer(text))
    if name == "run.log" and draw.random() < 0.5:  # a header is short beside its steps
        values = values[: max(1, len(values) // 4)]
    if not values:
        return DamagedRun(files, "nothing")
    match = draw.choice(values)
    new = _other(match.group(), draw)
    files[name] = text[: match.start()] + new + text[match.end() :]
    line = text.count("\n", 0, match.start()) + 1
    return DamagedRun(files, f"{name}, line {line}: {match.group()} -> {new}")


def _other(value: str, draw: Random) -> str:
    how = draw.random()
    if how < 0.3:
        at = draw.choice([i for i, char in enumerate(value) if char.isdigit()])
        return value[:at] + draw.choice("0123456789") + value[at + 1 :]
    if how < 0.4:
        return "-" + value
    if how < 0.5:
        return value + draw.choice(("0", "00", "000000", "e5", ".5", "e300"))
    return draw.choice(HOSTILE)


FIELD: Final = re.compile(r"(\w[\w ]{2,20})[:=] *([-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)")


def _everywhere(text: str, draw: Random) -> tuple[str, str]:
    """One field of all lines that have it, or of all behind one, with another value."""
    names = sorted({match[1] for match in FIELD.finditer(text)})
    if not names:
        return text, "nothing"
    name, new = draw.choice(names), draw.choice(HOSTILE)
    first = draw.choice((0, len(text) // 2))
    pattern = re.compile(rf"({re.escape(name)}[:=] *)[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
    changed = pattern.sub(lambda match: match[1] + new, text[first:])
    return text[:first] + changed, f"{name} -> {new} from {first}"


# -- beside good runs --------------------------------------------------------------------------


def read_runs(runs: Sequence[DamagedRun]) -> dict[int, Tables]:
    """The tables of damaged runs by their place, each as of another day; not of those refused.

    A log that is whole is read once, whatever lies beside it.
    """
    with tempfile.TemporaryDirectory(prefix="runs-") as folder:
        logs = [Path(folder) / str(place) / "run.log" for place in range(len(runs))]
        for log, run in zip(logs, runs, strict=True):
            log.parent.mkdir()
            for name, text in run.files.items():
                log.with_name(name).write_text(text)
        read: dict[int, Tables] = {}
        whole = {place for place, run in enumerate(runs) if not run.damage.startswith("run.log")}
        for place in sorted(whole):
            with suppress(FairmfuError):
                facts = facts_from_files(logs[place])
                log_tables = dict(_undamaged(runs[place].files["run.log"]))
                log_tables["facts"] = _with_facts(log_tables, facts)
                read[place] = log_tables
        changed = [place for place in range(len(runs)) if place not in whole]
        spool = Spool(max_held_bytes=math.inf)
        found = read_log_files([(logs[place], ()) for place in changed], spool)
        for place, log_rows in zip(changed, found, strict=True):
            if not isinstance(log_rows, Exception):
                tables = log_rows.tables(spool).items()
                read[place] = {name: collect_rows(rows) for name, rows in tables}
            elif isinstance(log_rows, ReadingFaultError) or not isinstance(log_rows, FairmfuError):
                raise log_rows
        return {place: _on_its_own(read[place], place) for place in sorted(read)}


@cache
def _undamaged(log: str) -> Tables:
    """The tables of a log that nothing lies beside."""
    with tempfile.TemporaryDirectory(prefix="log-") as folder:
        path = Path(folder) / "run.log"
        path.write_text(log)
        return read_log_tables(path)


def _with_facts(tables: Tables, facts: Sequence[Fact]) -> pl.DataFrame:
    """The facts of a log, and those of the files beside it."""
    rows = [
        {"run_id": run_id, "text": None, "sequence": 1000 + at, **one}
        for run_id in tables["runs"]["run_id"]
        for at, one in enumerate(facts)
    ]
    return pl.concat([tables["facts"], pl.DataFrame(rows, schema=tables["facts"].schema)])


def _on_its_own(tables: Tables, place: int) -> Tables:
    """Tables of a run as of another day than others, and with ids of its own."""
    shift, mark = timedelta(days=3 * place + 400), f"-bad{place}"
    return {
        name: table.with_columns(
            *(pl.col(key) + mark for key in ("run_id", "sha256") if key in table.columns),
            *(pl.col(key) + shift for key in ("logged_at", "started_at") if key in table.columns),
            *([pl.lit(f"bad/{place}/run.log").alias("path")] if "path" in table.columns else []),
        )
        for name, table in tables.items()
    }


def together(parts: Sequence[Tables]) -> Tables:
    """The tables of several runs."""
    return {name: pl.concat([part[name] for part in parts]) for name in parts[0]}


@cache
def good_runs(count: int) -> tuple[Tables, Analysis]:
    """Tables and analysis of so many good runs."""
    plan = Plan(seed=5, first=date(2020, 1, 1))  # none of the others began before
    folder = Path(tempfile.mkdtemp(prefix="good-"))
    parts = []
    for night in range(1, 2 + count // len(GOOD_SERIES)):
        only = GOOD_SERIES[: count - len(parts)]
        parts += [read_log_tables(path) for path in write_night(folder, night, plan, only=only)]
    shutil.rmtree(folder)
    tables = together(parts)
    return tables, analyse(tables)


def findings(runs: Sequence[DamagedRun], good: int, *, page: bool = False) -> Iterator[str]:
    """What is wrong with damaged runs beside good ones, a sentence each.

    good: how many of these. page: make the report of them, too.
    """
    tables, alone = good_runs(good)
    read = read_runs(runs)
    if not read:
        return
    whole = together([tables, *read.values()])
    analysis = analyse(whole)
    metrics = analysis.metrics
    for run_id, error in (
        metrics.filter(pl.col("error").is_not_null()).select("run_id", "error").iter_rows()
    ):
        place = int(run_id.rpartition("-bad")[2]) if "-bad" in run_id else -1
        yield f"failed: {runs[place].damage if place >= 0 else run_id}: {error}"
    if not _same(alone, analysis):
        culprits = list(_culprits(tables, alone, read))
        for place in culprits or [-1]:
            yield f"changes others: {runs[place].damage if place >= 0 else 'several'}"
    if page:
        told = build_content(analysis, metrics, whole, "title", None, "1.2.3")
        report_json(told)
        for row in told.data["runs"].values():
            if row["error"] is not None:
                yield f"report: {row['run_id']}: {row['error']}"
    for run_id in metrics["run_id"].to_list()[:: 1 if page else 25]:
        explain(analysis, run_id)
        explain(analysis, run_id, output="json")


def _same(alone: Analysis, beside: Analysis) -> bool:
    """Whether good runs have the same rows, windows and facts in both.

    The rows of a run stay in their order; which run's come first says nothing.
    """
    mine = pl.col("run_id").is_in(alone.metrics["run_id"].to_list())
    tables = ("metrics", "windows", "resolved_facts", "events", "rank_times")
    both = [(getattr(alone, name), getattr(beside, name).filter(mine)) for name in tables]
    both = [(own, seen.select(own.columns)) for own, seen in both]
    return all(
        seen.sort("run_id", maintain_order=True).equals(own.sort("run_id", maintain_order=True))
        for own, seen in both
    )


def _culprits(tables: Tables, alone: Analysis, read: Mapping[int, Tables]) -> Iterator[int]:
    """Which of the damaged runs change the answer of a good one."""
    if _same(alone, analyse(together([tables, *read.values()]))):
        return
    if len(read) == 1:
        yield from read
        return
    places = list(read)
    for half in (places[: len(places) // 2], places[len(places) // 2 :]):
        yield from _culprits(tables, alone, {place: read[place] for place in half})
