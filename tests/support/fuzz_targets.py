"""What a fuzzer gives the program, and what has to hold whatever it gives.

A target takes bytes, hands them to a part of the program as a file or a value, and raises `Wrong`
where what comes back is not true of them; an error of the program's own (ingest.core.errors) is an
answer, any other exception a finding. `watched` bounds time and memory besides. tests/tools/fuzz.py
runs the targets with coverage as its guide, tests/end_to_end/test_fuzz.py for some seconds.
"""

from __future__ import annotations

import gzip
import json
import re
import resource
import shutil
import signal
import struct
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final

import polars as pl
import pyarrow as pa
from tensorboard.summary.writer.record_writer import RecordWriter

from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.prefilter import required_clauses
from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.ingest.core.spill import Spool
from fairmfu.ingest.decode.line_reader import NumberedLine, Source
from fairmfu.ingest.decode.line_text import decode_line
from fairmfu.ingest.decode.tfevents import is_event_file, read_event_values
from fairmfu.ingest.detect.detection import BUILT_IN_CHOICE, FormatChoice
from fairmfu.ingest.detect.format_lookup import FormatCatalog
from fairmfu.ingest.detect.user_formats import load_user_format as load_format
from fairmfu.ingest.extract.log_tables import read_log, read_log_tables
from fairmfu.ingest.facts import facts as given
from fairmfu.ingest.facts.companion_files import facts_from_companions, shared_fact_files
from fairmfu.ingest.facts.project_config import load_config
from fairmfu.ingest.formats.deepspeed.engine import DEEPSPEED
from fairmfu.ingest.formats.launch_view import Fact
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import ENGINE_PRECEDENCE, LogFormat
from fairmfu.ingest.launches.step_rows import STEP_SCHEMA
from fairmfu.ingest.parse import partial_match
from fairmfu.ingest.parse.line_matcher import line_matcher
from fairmfu.ingest.parse.line_parser import parse_lines
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.store import Store, Tables
from fairmfu.metrics.formula import vision
from fairmfu.metrics.formula.accelerators import OverlayError, load_overlay
from fairmfu.metrics.formula.flops import flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import (
    ShapeError,
    from_hugging_face,
    from_megatron,
    from_torchtitan,
)
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.reports.page import html_report, markdown_report
from fairmfu.reports.page.report_data import ReportContent, build_content, report_json
from tests.metrics.formula import test_model_shapes
from tests.reports.page import test_html_document as test_document
from tests.support.cited import COUNTS, lines_of, uncited, uncounted
from tests.support.damaged_events import TAGS, damaged_events
from tests.support.damaged_lines import DAMAGES, damaged_log
from tests.support.folders import ROOT
from tests.support.packs import Read, unpacked

SAMPLES: Final = ROOT / "sample_logs"
VARIANTS: Final = ROOT / "tests" / "variants"

SECONDS: Final = 4.0
SECONDS_PER_BYTE: Final = 2e-4
"""CPU time that an input may take, with what a fuzzer adds to count coverage."""
MEMORY: Final = 256 * 1024 * 1024
MEMORY_PER_BYTE: Final = 4096
"""Bytes by which an input may raise the most that the process ever held."""
GIVEN_UP_S: Final = 30.0
"""CPU time after which an input is stopped."""
TEXT_BYTES: Final = 4096


class Wrong(AssertionError):  # noqa: N818 - a verdict on the program
    """What the program answered is not true of its input."""


class Hang(BaseException):
    """An input took GIVEN_UP_S."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with an input; `kind` is alike for inputs that show the same."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Watched:
    """What an input cost: CPU seconds, and bytes by which the process's peak rose."""

    seconds: float
    grown: int
    finding: Finding | None


@dataclass(frozen=True, slots=True)
class Target:
    """A part of the program; words: what its inputs are made of. longest: bytes of an input."""

    name: str
    what: str
    check: Callable[[bytes, Path], None]
    seeds: Callable[[], Sequence[bytes]]
    words: Callable[[], Iterable[bytes]] = tuple
    longest: int = TEXT_BYTES

    def watched(self, data: bytes, folder: Path) -> Watched:
        """The input tried in an empty folder, which is empty again behind it."""
        begun, peak, finding = time.process_time(), _peak(), None
        old = signal.signal(signal.SIGPROF, _give_up)
        signal.setitimer(signal.ITIMER_PROF, GIVEN_UP_S)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.check(data, folder)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of Polars is no Exception
            finding = _finding(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, old)
        seconds, grown = time.process_time() - begun, _peak() - peak
        if finding is None and seconds > SECONDS + SECONDS_PER_BYTE * len(data):
            finding = Finding("slow", f"{seconds:.1f} s for {len(data)} bytes")
        if finding is None and grown > MEMORY + MEMORY_PER_BYTE * len(data):
            finding = Finding("memory", f"{grown / 2**20:.0f} MiB for {len(data)} bytes")
        _emptied(folder)
        return Watched(seconds, grown, finding)


def _emptied(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _give_up(_signal: int, _frame: FrameType | None) -> None:
    raise Hang


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _finding(error: BaseException) -> Finding:
    """Its kind: the error and the last lines of the program that it came by."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if str(ROOT) in f.filename]
    own = [f for f in frames if "/tests/" not in f.filename] or frames
    places = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(own[-2:]))
    kind = f"{type(error).__name__} {places}"
    if isinstance(error, Wrong):
        kind = f"Wrong {re.sub(r'[^A-Za-z_ ]+', '#', str(error))[:60]}"
    told = "".join(traceback.format_exception(error))[-3000:]
    return Finding(kind, f"{str(error)[:2000]}\n{told}")


# -- logs -------------------------------------------------------------------------------------

Said = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows of tables by their names."""


def _held(tables: Said, log: bytes, form: LogFormat) -> None:
    """Lines are counted once each, and rows cite lines that hold their values."""
    lines = lines_of(log)
    for wrong in (*uncounted(tables, len(lines)), *uncited(tables, lines, form)):
        raise Wrong(f"{form.name}: {wrong}")


def read_text(data: bytes, folder: Path) -> None:
    """A file through the detector and the reader; one of an odd size line by line."""
    path = folder / "run.log"
    path.write_bytes(data)
    try:
        tables = read_rows(path, fast=len(data) % 2 == 0)
    except FairmfuError:
        return
    if not is_event_file(data[:64]):
        _held(tables, _content(path), _form(tables))


def read_rows(path: Path, *, fast: bool = True, tried: FormatChoice = BUILT_IN_CHOICE) -> Said:
    """What is read of a file, before it is frames."""
    log = read_log(path, Spool(), use_fast_path=fast, format_choice=tried)
    steps = [
        row
        for _, rows in log.steps
        for frame in rows.frames(*STEP_SCHEMA)
        for row in frame.to_dicts()
    ]
    events = [event for _, events in log.events for event in events]
    return {**log.rows, "steps": steps, "events": events}


def _content(path: Path) -> bytes:
    with Source(path) as source:
        return b"".join(chunk.data for chunk in source.chunks())


def _form(tables: Said) -> LogFormat:
    name = tables["sources"][0]["log_format"]
    return next(form for form in BUILT_IN_FORMATS if form.name == name)


def read_lines(data: bytes, _folder: Path) -> None:
    """Lines through the parser of a format, which the first byte chooses."""
    first, log = (data[0], data[1:] or b"\n") if data else (0, b"\n")
    form = BUILT_IN_FORMATS[first // 2 % len(BUILT_IN_FORMATS)]
    companions = [DEEPSPEED] if first % 2 and form.precedence > ENGINE_PRECEDENCE else []
    texts = map(decode_line, log.removesuffix(b"\n").split(b"\n"))
    lines = [NumberedLine(number, text, cut=False) for number, text in enumerate(texts, 1)]
    lines[-1] = lines[-1]._replace(ended=log.endswith(b"\n"))
    parsed = parse_lines(lines, form, companions)
    launches = parsed.launches
    frames = (frame for one in launches if one.rows for frame in one.rows.frames(*STEP_SCHEMA))
    tables = {
        "sources": [{name: getattr(parsed, name) for name in (*COUNTS, "lines")}],
        "steps": [row for frame in frames for row in frame.to_dicts()],
        "unread": parsed.unread,
        "events": [event for one in launches for event in one.events],
        "facts": [fact for one in launches for fact in one.stated],
    }
    _held(tables, log, form)


def _format_seeds() -> list[bytes]:
    """The variants and examples of each format, with the byte that chooses it before them."""
    seeds = []
    for number, form in enumerate(BUILT_IN_FORMATS):
        first = bytes([2 * number])
        seeds += [first + path.read_bytes()[:2000] for path in _variants(form)]
        examples = [line.example for line in (*form.steps, *form.events, *form.facts)]
        seeds.append(first + "\n".join(examples).encode()[:2000])
    return seeds


def _variants(form: LogFormat) -> list[Path]:
    return sorted((VARIANTS / form.name).glob("*.txt"))


def _text_seeds() -> list[bytes]:
    """Sample logs, variants, and logs that are damaged already."""
    logs = [path.read_bytes()[:TEXT_BYTES] for path in sorted(SAMPLES.rglob("*.log"))]
    variants = [
        path.read_bytes()[:TEXT_BYTES] for form in BUILT_IN_FORMATS for path in _variants(form)
    ]
    by_line = [form for form in BUILT_IN_FORMATS if form.join is None or form.addition is not None]
    damaged = [damaged_log(form, seed, 40)[:TEXT_BYTES] for form in by_line for seed in (1, 2)]
    return [*logs, *variants, *damaged]


def _json_seeds() -> list[bytes]:
    """Of formats whose lines are JSON, or are made of lines of JSON or CSV."""
    return [seed for seed in _format_seeds() if b"{" in seed[:400] or seed[1:5] == b"step"]


@cache
def _literals() -> tuple[bytes, ...]:
    """What the patterns of all formats need, as the prefilter knows it."""
    words = set[str]()
    for form in BUILT_IN_FORMATS:
        lines = (*form.steps, *form.facts, *form.events)
        patterns = [*(line.regex for line in lines), form.signature, form.looks_like_step]
        words |= {word for one in patterns for clause in required_clauses(one) for word in clause}
        words |= {line.anchor for line in lines}
    return tuple(word.encode() for word in sorted(words) if 1 < len(word.encode()) <= 60)


# -- event files ------------------------------------------------------------------------------


def read_events(data: bytes, folder: Path) -> None:
    """An event file: as it is where the first byte is even, else of records with true checksums."""
    path = folder / "events.out.tfevents.1"
    if data[:1] and data[0] % 2:
        with path.open("wb") as file:
            out = RecordWriter(file)
            for record in _records(data[1:]):
                out.write(record)
    else:
        path.write_bytes(data[1:])
    try:
        tables = read_rows(path, fast=len(data) % 2 == 0)
    except FairmfuError:
        return
    if is_event_file(path.read_bytes()[:64]):
        lines = [text for values in read_event_values(path) for text in values.texts]
        _held(tables, "\n".join(lines).encode() + b"\n", _form(tables))


def _records(data: bytes) -> Iterator[bytes]:
    """Each with its length before it, in two bytes."""
    at = 0
    while at + 2 <= len(data):
        (size,) = struct.unpack_from("<H", data, at)
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def _event_seeds() -> list[bytes]:
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events"
        for name in TAGS:
            for seed in (0, 3):
                damaged_events(path, name, seed, 8)
                whole = path.read_bytes()
                seeds += [b"\0" + whole, b"\1" + b"".join(_framed(whole))]
    return seeds


def _framed(file: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(file):
        (size,) = struct.unpack_from("<Q", file, at)
        yield struct.pack("<H", size) + file[at + 12 : at + 12 + size]
        at += size + 16


# -- compressed files -------------------------------------------------------------------------

MOST_AT_ONCE: Final = 16 * 1024 * 1024
"""Bytes of a chunk, however small the file that it was packed in."""


def read_stream(data: bytes, folder: Path) -> None:
    """A file that is compressed, or begins as one: its lines, and its size behind them."""
    path = folder / "run.log.gz"
    path.write_bytes(data)
    try:
        with Source(path) as source:
            number = 1
            for chunk in source.chunks():
                if len(chunk.data) > MOST_AT_ONCE or chunk.number != number:
                    raise Wrong(f"a chunk of {len(chunk.data)} bytes, line {chunk.number}")
                number += max(1, chunk.data.count(b"\n"))
            if source.bytes != len(data) and not source.is_event_file():
                raise Wrong(f"{source.bytes} bytes of {len(data)}")
    except FairmfuError:
        return


def _stream_seeds() -> list[bytes]:
    texts = [b"", b"line\n" * 3, b"no newline", *_text_seeds()[:4]]
    zstd = pa.Codec("zstd")
    packed = [gzip.compress(text, mtime=0) for text in texts]
    packed += [zstd.compress(text).to_pybytes() for text in texts]
    bomb = gzip.compress(b"x" * 600_000, mtime=0)
    return [*packed, packed[1] + packed[2] + bytes(9), bomb, *texts[1:]]


# -- what stands beside a log -----------------------------------------------------------------

BESIDE: Final = (
    *("run.log.facts.toml", "facts.toml", "config.json", "ds_config.json", "config.yaml"),
    *("job.toml", "vis_data/config.py", "wandb/run-1/files/config.yaml", "flags"),
    *("args.json", "adapter_config.json", "wandb-metadata.json", "sft.yaml", "run_system.json"),
    *("job.sbatch",),
)


def read_beside(data: bytes, folder: Path) -> None:
    """A file that gives facts, by the first byte; then what the formula makes of them."""
    name = BESIDE[data[0] % len(BESIDE)] if data else BESIDE[0]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    log = (path.parent if name.startswith("vis_data") else folder) / "run.log"
    log.write_text(TITAN)
    try:
        if name == "flags":
            facts = given.facts_from_flags(data[1:].decode("utf-8", "replace").split("\n"))
        else:
            path.write_bytes(data[1:])
            facts = [*given.facts_from_sidecars(log), *facts_from_companions(log)]
        given.files_named_in_sidecars(log)
        shared_fact_files(folder, None)
        if facts and len(data) % 4 == 0:  # not always: it takes fifty times as long
            _reckoned(facts)
        elif len(data) % 128 == 1:
            for file in ingest_paths([log], Store(folder / "store")):
                if "fairmfu failed" in file.message:
                    raise Wrong(file.message)
    except FairmfuError:
        return


def read_metrics(data: bytes, folder: Path) -> None:
    """A log to its metrics; its last byte chooses whether the report is made of them too."""
    path = folder / "run.log"
    path.write_bytes(data)
    try:
        tables = read_log_tables(path)
    except FairmfuError:
        return
    analysis = analyse(tables)
    _possible(analysis.metrics)
    if data[-1] % 16 == 0:
        told = build_content(analysis, analysis.metrics, tables, "title", None, "1.2.3")
        json.dumps(report_json(told), allow_nan=False)
        html_report.render_page(told)


def _possible(metrics: pl.DataFrame) -> None:
    """No run failed; rates and shares are finite and not negative, or null."""
    for error in metrics["error"].drop_nulls():
        raise Wrong(error)
    for name in ("mfu", "tgs", "tokens_per_second", "hfu_low", "hfu_high"):
        for value in metrics[name].drop_nulls():
            if not 0 <= value < float("inf"):
                raise Wrong(f"{name} of {value}")


def _numbers_seeds() -> list[bytes]:
    """Logs with facts from which an MFU follows, cut to some of their steps."""
    logs = [path.read_bytes() for path in sorted((SAMPLES / "synthetic").rglob("*.log"))]
    variants = [
        path.read_bytes()[:2000] for form in BUILT_IN_FORMATS for path in _variants(form)[:2]
    ]
    return [*(log[:TEXT_BYTES] for log in logs), *variants]


def _reckoned(facts: Sequence[Fact]) -> None:
    """The metrics of a log with these facts: null where they can't be, never an exception."""
    tables = dict(_small_tables())
    run_id = tables["runs"]["run_id"][0]
    rows = [
        {"run_id": run_id, "sequence": 1_000 + n, **fact, "text": None}
        for n, fact in enumerate(facts)
    ]
    more = pl.DataFrame(rows, schema=tables["facts"].schema)
    _possible(analyse(tables | {"facts": pl.concat([tables["facts"], more])}).metrics)


TITAN: Final = "".join(
    f"[titan] 2026-01-02 03:04:{step:02},000 - root - INFO - step: {step:2}  "
    f"loss: {5 - step / 100:8.5f}  grad_norm:  1.2000  memory:  1.50GiB(3.00%)  "
    f"tps: 1,{step:03}  tflops: 1.25  mfu: 0.40%\n"
    for step in range(1, 25)
)


@cache
def _small_tables() -> Tables:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_text(TITAN)
        return read_log_tables(path)


def _beside_seeds() -> list[bytes]:
    def found(pattern: str) -> list[bytes]:
        return [path.read_bytes()[:4000] for path in sorted(SAMPLES.rglob(pattern))]

    wandb = [b"wandb_version: 1\nseq_len:\n  value: 4096\nmicro_batch_size: {value: 2}\n"]
    every = "".join(f"{name} = {_example(name)}\n" for name in FACT_NAMES).encode()
    chip = b'accelerator = "NVIDIA H100 80GB HBM3"\ngpus = 8\nmodel = "llama3-8b"\n'
    flags = "\n".join(f"{name}={_example(name).strip(chr(34))}" for name in FACT_NAMES).encode()
    by_place = (
        [*found("facts.toml"), every, b'gpus = 8\nmodel_config = "config.json"\n'],
        [every, chip + b'seq_len = 8192\nprecision = "bf16"\n'],
        [*found("config.json")[:3], json.dumps(_JOB).encode()],
        [*found("ds_*.json"), b'{"train_batch_size": 64, "bf16": {"enabled": true}}'],
        wandb,
        found("job*.toml"),
        [(SAMPLES / "recipes/xtuner/cfg.py").read_bytes()[:4000]],
        wandb,
        [flags, b"gpus=8\nseq_len=8192"],
    )
    return [bytes([place]) + text for place, texts in enumerate(by_place) for text in texts]


_JOB: Final = {
    "training": {"local_batch_size": 2, "seq_len": 4096, "steps": 100, "global_batch_size": -1},
    "optimizer": {"name": "AdamW"},
    "parallelism": {"tensor_parallel_degree": 1, "pipeline_parallel_degree": 1},
    "model": {"name": "llama3", "flavor": "8B"},
}


def _example(name: str) -> str:
    known = FACT_NAMES[name]
    if known.choices:
        return f'"{known.choices[0]}"'
    return {"int": "8", "float": "1.5", "bool": "true", "text": '"llama3-8b"', "json": '"{}"'}[
        known.kind
    ]


HOSTILE: Final = (
    *(b"0", b"-1", b"1e400", b"nan", b"inf", b"true", b'""', b"[]", b"{}", b"null", b'"\\u0000"'),
    *(
        b"9223372036854775808",
        b"1" * 60,
        b"0x" + b"f" * 60,
        b"1e308",
        b'"~nosuchuser/x"',
        b"[[",
        b"]]",
    ),
    *(b'"""', b"2026-02-30", b"1979-05-27T07:32:00Z", b"'", b"\\", b"&a", b"*a", b"!!python/none"),
    *(b"9" * 5000, b"0x" + b"f" * 5000, b"[" * 2000, b"1000000000", b"0.1", b'"\\ud800"', b"-0.0"),
)
"""Values that a file may hold where another was meant."""


def _fact_words() -> Iterable[bytes]:
    return (*(name.encode() for name in FACT_NAMES), *HOSTILE, b'"llama3-8b"')


# -- files of the user's own ------------------------------------------------------------------


def read_config(data: bytes, folder: Path) -> None:
    """fairmfu.toml, or by the first byte a file of accelerators."""
    path = folder / "fairmfu.toml"
    path.write_bytes(data[1:])
    if data[:1] and data[0] % 2:
        with suppress(OverlayError):
            load_overlay(data[1:].decode("utf-8", "replace"))
        return
    with suppress(FairmfuError):
        config = load_config(path, ("model", "accelerator"), float)
        config.facts_of(str(folder / "h100" / "run.log"))
        config.unmatched([folder / "run.log"])
        for named in (config.store, config.out, *config.sources):
            with suppress(OSError):
                named.stat()


def _config_seeds() -> list[bytes]:
    text = (ROOT / "docs/fairmfu.toml").read_bytes()
    overlay = b"""[[accelerator]]
name = "Own Chip"
unit = "one card"
peaks = { bf16 = 1.0e15, fp8 = 2e15 }
source = "its data sheet"
names = ["Own Chip 80GB"]
"""
    plain = re.sub(rb"(?m)^# ?(?=[\w\[])", b"", text)
    return [b"\0" + text, b"\0" + plain, b"\1" + overlay]


def read_format(data: bytes, folder: Path) -> None:
    """A format of the user's own, and a log of its examples as it reads that."""
    path = folder / "own.toml"
    path.write_bytes(data)
    partial_match._prefix.cache_clear()  # of every pattern that it ever saw
    line_matcher.cache_clear()
    try:
        own = load_format(path)
        tried = FormatCatalog().with_user_format(own).tried([own.log_format.name])
        form = own.log_format
        texts = [line.example for line in (*form.steps, *form.events, *form.facts)]
        log = folder / "run.log"
        log.write_bytes("\n".join([*texts[:20], "other", *texts[:20], ""]).encode())
        tables = read_rows(log, tried=tried)
    except FairmfuError:
        return
    for wrong in uncounted(tables, len(lines_of(log.read_bytes()))):
        raise Wrong(wrong)


def _own_seeds() -> list[bytes]:
    few = rb"""name = "titan-fork"
extends = "torchtitan"
[[steps]]
regex = 'step (?P<step>\d+) loss (?P<loss>\S+) mem (?P<mem>[\d.]+)GiB'
columns = { step = "step", loss = "loss", mem = ["peak_memory_bytes", "GiB"] }
example = "step 10 loss 6.27853 mem 0.71GiB"
"""
    alone = rb"""name = "own"
framework = "torchtitan"
looks_like_step = 'it \d+'
evidence = ["rate"]
rate_covers = "step"
clock = '(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)'
[[steps]]
regex = 'it (?P<step>\d+) tgs (?P<tgs>[\d.]+)'
columns = { step = "step", tgs = "logged_tgs" }
example = "2026-01-01 10:00:00 it 3 tgs 12.5"
[[facts]]
regex = 'world (?P<gpus>\d+)'
example = "world 8"
[[events]]
regex = 'saved in (?P<seconds>[\d.]+)'
kind = "checkpoint"
example = "saved in 3.5"
"""
    paths = sorted((ROOT / "tests/own_formats").glob("*.toml"))
    return [few, alone, *(path.read_bytes()[:8192] for path in paths)]


def _regex_words() -> Iterable[bytes]:
    keys = ("steps", "facts", "events", "columns", "regex", "example", "anchor", "pair", "implies")
    regexes = (b"(?P<", b"(?P=step)", b"(?i)", b"(?(1)a|b)", b"(?<=", b"\\d+", b"[\\d.]+", b"{9}")
    return (*(key.encode() for key in keys), *regexes, b"[[steps]]", *HOSTILE)


# -- model shapes -----------------------------------------------------------------------------


def read_model(data: bytes, _folder: Path) -> None:
    """A config.json, or by the first byte arguments as another framework prints them, to FLOPs."""
    try:
        values = json.loads(data[1:])
    except (ValueError, RecursionError):
        return
    if not isinstance(values, dict):
        return
    texts = {key: str(value) for key, value in values.items()}
    try:
        match data[0] % 4:
            case 1:
                shape = from_megatron(texts)
            case 2:
                shape = from_torchtitan("llama3 8B", texts)
            case _:
                shape = from_hugging_face(values)
                vision.from_hugging_face(values)
        every = operators(shape, 4096)
    except ShapeError:
        return
    flops, total = flops_per_token(every), shape.params_total
    if not 0 < flops < float("inf") or not 0 < shape.params_active <= total:
        raise Wrong(f"{flops} FLOPs of {shape.params_active} of {total} parameters")


def _model_seeds() -> list[bytes]:
    said = [value for value in vars(test_model_shapes).values() if isinstance(value, dict)]
    configs = [json.dumps(one).encode() for one in said if "model_type" in one]
    configs += [path.read_bytes() for path in sorted(SAMPLES.rglob("config.json"))]
    arguments: dict[str, object] = {"hidden_size": 64, "num_layers": 2, "vocab_size": 100}
    arguments |= {"num_attention_heads": 4, "ffn_hidden_size": 256, "num_experts": "[4]"}
    arguments["max_position_embeddings"] = 128
    titan = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 100}
    return [
        *(b"\0" + text for text in configs),
        b"\1" + json.dumps(arguments).encode(),
        b"\2" + json.dumps({**titan, "multiple_of": 8, "ffn_dim_multiplier": 1.3}).encode(),
    ]


# -- the store --------------------------------------------------------------------------------


def read_store(data: bytes, folder: Path) -> None:
    """A store one file of which, by the first byte, has other bytes: rows, or a clear error."""
    shutil.copytree(_stored(), folder / "store")
    store = Store(folder / "store")
    path = _files(store)[data[0] % len(_files(store))] if data else _files(store)[0]
    path.write_bytes(data[1:])
    for act in (store.tables, lambda: examine_store(store), lambda: _rebuilt(store)):
        try:
            act()
        except FairmfuError as error:
            if str(store.path) not in str(error):
                raise Wrong(f"an error that names no file: {error}") from error


def _rebuilt(store: Store) -> None:
    """A store made anew says what it said, or that it can't."""
    store.rebuild()
    before = _stored_tables()
    for name, frame in store.tables().items():
        if not frame.equals(before[name]):
            raise Wrong(f"{name} made anew are others")


@cache
def _stored_tables() -> Tables:
    return Store(_stored()).tables()


def _files(store: Store) -> list[Path]:
    return sorted((store.path / "parts").rglob("*.parquet"))


@cache
def _stored() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-store-"))
    (folder / "run.log").write_text(TITAN)
    ingest_paths([folder / "run.log"], Store(folder / "store"))
    return folder / "store"


def _store_seeds() -> list[bytes]:
    files = _files(Store(_stored()))
    return [bytes([place]) + path.read_bytes() for place, path in enumerate(files)]


# -- the report -------------------------------------------------------------------------------

FORBIDDEN: Final = frozenset({"img", "iframe", "object", "embed", "base", "form", "link"})


def read_report(data: bytes, _folder: Path) -> None:
    """A report whose texts are the input's lines: a page on which nothing runs, JSON, Markdown."""
    texts = data.decode("utf-8", "replace").split("\n")
    told = _told(*(texts * 4)[:4])
    json.dumps(report_json(told), allow_nan=False)
    markdown_report.markdown_report(told, "charts")
    read, harmless = Read(unpacked(html_report.render_page(told))), _harmless()
    strange = FORBIDDEN.intersection(read.tags) - set(harmless.tags)
    if strange or read.addresses != harmless.addresses or len(read.run) != len(harmless.run):
        raise Wrong(f"a page with {strange or read.addresses or 'scripts of the text'}")


def _told(name: str, fact: str, line: str, path: str) -> ReportContent:
    tables = dict(_small_tables())
    run, sha = tables["runs"]["run_id"][0], tables["sources"]["sha256"][0]
    tables["runs"] = tables["runs"].with_columns(name=pl.lit(name))
    tables["sources"] = tables["sources"].with_columns(path=pl.lit(path))
    stated = [
        {"run_id": run, "name": n, "value": fact, "origin": f"sidecar:{path}", "sequence": 99}
        for n in ("optimizer", "accelerator", "model", "framework_version", "attention")
    ]
    event = {"run_id": run, "line": 3, "kind": "error", "text": line}
    unread = {"sha256": sha, "line": 4, "reason": line, "text": line}
    for table, rows in (("facts", stated), ("events", [event]), ("unread", [unread])):
        more = pl.DataFrame(rows)
        tables[table] = pl.concat([tables[table], more], how="diagonal_relaxed")
    analysis = analyse(tables)
    return build_content(analysis, analysis.metrics, tables, name, None, "1.2.3")


@cache
def _harmless() -> Read:
    return Read(unpacked(html_report.render_page(_told("a", "b", "c", "d"))))


def _report_seeds() -> list[bytes]:
    markdown_report.markdown_report(
        _told("a", "b", "c", "d"), "charts"
    )  # what draws takes seconds to begin
    return ["\n".join([text] * 4).encode() for text in test_document.HOSTILE]


# -- all of them ------------------------------------------------------------------------------

TARGETS: Final = (
    Target("text", "logs: detector and reader", read_text, _text_seeds, _literals),
    Target("lines", "each format's parser", read_lines, _format_seeds, _literals, 2048),
    Target("json-lines", "parsers of JSON and CSV", read_lines, _json_seeds, _literals, 2048),
    Target("metrics", "hostile numbers to metrics", read_metrics, _numbers_seeds, _literals),
    Target("events", "TensorBoard event files", read_events, _event_seeds, longest=8192),
    Target("streams", "gzip and Zstandard", read_stream, _stream_seeds, longest=65_536),
    Target("facts", "sidecars, companions, flags", read_beside, _beside_seeds, _fact_words, 8192),
    Target("config", "fairmfu.toml, accelerators", read_config, _config_seeds, _fact_words, 8192),
    Target("formats", "formats of one's own", read_format, _own_seeds, _regex_words, 8192),
    Target("models", "config.json to FLOPs", read_model, _model_seeds, _fact_words, 8192),
    Target("store", "parts of a store", read_store, _store_seeds, longest=65_536),
    Target("report", "page, JSON and Markdown", read_report, _report_seeds, longest=2048),
)
BY_NAME: Final = {target.name: target for target in TARGETS}


def mutated(data: bytes, draw: Random, words: Sequence[bytes] = ()) -> bytes:
    """The input with a few changes: lines as damaged_lines damages them, words, values."""
    lines = data.split(b"\n")
    for _ in range(draw.choice((1, 1, 2, 4))):
        place, how = draw.randrange(len(lines)), draw.random()
        if how < 0.5:
            lines[place] = draw.choice(DAMAGES)(lines[place], draw)
        elif how < 0.65 and words:
            at = draw.randrange(len(lines[place]) + 1)
            lines[place] = lines[place][:at] + draw.choice(words) + lines[place][at:]
        elif how < 0.85:
            lines[place] = _other_value(lines[place], draw)
        elif how < 0.9:
            lines.insert(draw.randrange(len(lines)), lines[place])
        elif how < 0.95 and len(lines) > 1:
            del lines[place]
        else:
            lines = b"\n".join(lines)[: draw.randrange(len(data) + 1)].split(b"\n")
    return b"\n".join(lines)


VALUE: Final = re.compile(rb"(?<=[=:]) *(?:\"[^\"]*\"|[\w.+-]+)")
"""What is given to a key."""


def _other_value(line: bytes, draw: Random) -> bytes:
    found = list(VALUE.finditer(line))
    if not found:
        return line
    match = draw.choice(found)
    return line[: match.start()] + b" " + draw.choice(HOSTILE) + line[match.end() :]
