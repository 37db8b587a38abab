"""What a user would write to read a log, and what a careful one would: the baselines of ingest.

    python -m benchmarks.plain plain|careful FORMAT LOG PARQUET

`plain` decodes each line, strips colours, tries the regexes and makes a dict of what they find.
`careful` stays with bytes, tries a regex only where a literal stands, and fills lists by column.
Both serve any format that `FORMATS` tells by regexes and the types of their groups; both trust the
log: no line numbers, restarts, damage or facts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]

ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
ANSI_BYTES: Final = re.compile(rb"\x1b\[[0-9;]*m")
WITH_MS: Final = "%Y-%m-%d %H:%M:%S,%f"
INTEGERS: Final = frozenset(
    {"step", "epoch", "skipped", "micro_step", "total", "memory_mb", "samples", "tokens", "batch"}
)
TEXTS: Final = frozenset({"rank", "eta"})


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a step: a literal that it has, its regex, and how its group `stamp` is printed."""

    anchor: str
    regex: str
    stamp: str = WITH_MS
    colours: bool = False


NUMBER: Final = r"[-+\d.eE]+"
DATE: Final = r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})"
FORMATS: Final[Mapping[str, tuple[Line, ...]]] = {
    "torchtitan": (
        Line(
            anchor="mfu: ",
            regex=rf"\[rank(?P<rank>\d+)\]:\[titan\] {DATE} - root - INFO - step: *(?P<step>\d+)  "
            r"loss: *(?P<loss>[\d.]+)  grad_norm: *(?P<grad_norm>[\d.]+)  "
            r"memory: *(?P<memory>[\d.]+)GiB\((?P<share>[\d.]+)%\)  tps: (?P<tps>[\d,]+)  "
            r"tflops: (?P<tflops>[\d.,]+)  mfu: (?P<mfu>[\d.]+)%",
            colours=True,
        ),
    ),
    "xtuner": (
        Line(
            anchor="Iter(train)",
            regex=r"(?P<stamp>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) - mmengine - INFO - Iter\(train\) "
            rf"\[ *(?P<step>\d+)/(?P<total>\d+)\]  lr: (?P<lr>{NUMBER})  eta: (?P<eta>.+?)  "
            rf"time: (?P<time>{NUMBER})  data_time: (?P<data_time>{NUMBER})  "
            rf"memory: (?P<memory_mb>\d+)  loss: (?P<loss>{NUMBER})  "
            rf"grad_norm: (?P<grad_norm>{NUMBER})  tflops: (?P<tflops>{NUMBER})  "
            rf"tokens_per_sec: (?P<tgs>{NUMBER})",
            stamp="%Y/%m/%d %H:%M:%S",
        ),
    ),
    "xtuner-v1": (
        Line(
            anchor=" Step ",
            regex=r"\[XTuner\]\[RANK (?P<rank>\d+)\]\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\]"
            r"\[INFO\] Epoch (?P<epoch>\d+) Step (?P<step>\d+)/(?P<total>\d+) "
            rf"data_time: (?P<data_time>{NUMBER}) lr: (?P<lr>{NUMBER}) time: (?P<time>{NUMBER}) "
            rf"text_tokens: (?P<tokens>\d+) seqlen_tokens: (?P<slots>{NUMBER}) img_tokens: \S+ "
            rf"approximate_total_consumed_tokens: (?P<total_tokens>{NUMBER}) "
            rf"reduced_llm_loss: (?P<loss>{NUMBER}), local_loss: (?P<local_loss>{NUMBER}) "
            rf"step_consumed_tokens: (?P<step_tokens>{NUMBER}), step_seqlen_tokens: \S+, "
            rf"step_consumed_img_tokens: \S+, efficient_attn_ratio: (?P<ratio>{NUMBER}), "
            r"img_efficient_attn_ratio: \S+ local_base_loss: \S+ "
            rf"grad_norm: (?P<grad_norm>{NUMBER}) max_memory: (?P<memory>{NUMBER}) GB "
            rf"reserved_memory: \S+ GB tgs: (?P<tgs>{NUMBER}) ",
            stamp="%Y-%m-%d %H:%M:%S",
        ),
    ),
    "megatron-deepspeed": (
        Line(
            anchor=" iteration ",
            regex=r" iteration +(?P<step>\d+)/ *(?P<total>\d+) \| consumed samples: +"
            r"(?P<samples>\d+) \| consumed tokens: +(?P<tokens>\d+) \| elapsed time per iteration "
            rf"\(ms\): (?P<ms>{NUMBER}) \| learning rate: (?P<lr>{NUMBER}) \| global batch size: +"
            rf"(?P<batch>\d+) \| lm loss: (?P<loss>{NUMBER}) \| loss scale: (?P<scale>{NUMBER}) \| "
            rf"grad norm: (?P<grad_norm>{NUMBER}) \| actual seqlen: +(?P<length>\d+) \| number of "
            r"skipped iterations: +(?P<skipped>\d+) \| number of nan iterations: +\d+ \| samples "
            rf"per second: (?P<rate>{NUMBER}) \| tokens per gpu per second \(tgs\): "
            rf"(?P<tgs>{NUMBER}) \| TFLOPs: (?P<tflops>{NUMBER}) \|",
        ),
    ),
    "deepspeed": (
        Line(
            anchor=", skipped=",
            regex=rf"\[{DATE}\] \[INFO\] \[logging\.py:\d+:log_dist\] \[Rank 0\] "
            rf"step=(?P<step>\d+), skipped=(?P<skipped>\d+), lr=\[(?P<lr>{NUMBER})\]",
        ),
        Line(
            anchor="/global_step=",
            regex=rf"\[{DATE}\] \[INFO\] \[timer\.py:\d+:stop\] epoch=(?P<epoch>\d+)/"
            r"micro_step=(?P<micro_step>\d+)/global_step=(?P<step>\d+), "
            rf"RunningAvgSamplesPerSec=(?P<average>{NUMBER}), "
            rf"CurrSamplesPerSec=(?P<rate>{NUMBER}), "
            rf"MemAllocated=(?P<memory>[\d.]+)GB, MaxMemAllocated=(?P<peak>[\d.]+)GB",
        ),
    ),
}


def plain(path: Path, log_format: str) -> list[Row]:
    """The rows of a log, as a user's script makes them."""
    patterns = [(re.compile(line.regex), line.stamp) for line in FORMATS[log_format]]
    rows = []
    with path.open(encoding="utf-8", errors="replace") as log:
        for text in log:
            stripped = ANSI.sub("", text)
            for pattern, stamp in patterns:
                if match := pattern.search(stripped):
                    rows.append(_row(match.groupdict(), stamp))
                    break
    return rows


def _row(said: Mapping[str, str], stamp: str) -> Row:
    row: Row = {}
    for name, text in said.items():
        if name == "stamp":
            row[name] = datetime.strptime(text, stamp)  # noqa: DTZ007 - of no zone
        elif name in TEXTS:
            row[name] = text
        elif name in INTEGERS:
            row[name] = int(text)
        else:
            row[name] = float(text.replace(",", ""))
    return row


Columns = dict[str, list[Any]]


def careful(path: Path, log_format: str) -> list[Columns]:
    """The columns of a log, a table for each kind of line."""
    lines = FORMATS[log_format]
    tables: list[Columns] = [{} for _ in lines]
    readers = [
        (line.anchor.encode(), re.compile(line.regex.encode()), line.colours, _appends(line, table))
        for line, table in zip(lines, tables, strict=True)
    ]
    with path.open("rb") as log:
        for raw in log:
            for anchor, pattern, colours, appends in readers:
                if anchor in raw:
                    match = pattern.search(ANSI_BYTES.sub(b"", raw) if colours else raw)
                    if match:
                        for (append, convert), text in zip(appends, match.groups(), strict=True):
                            append(convert(text))
                        break
    return tables


Append = tuple[Callable[[Any], None], Callable[[bytes], Any]]


def _appends(line: Line, table: Columns) -> list[Append]:
    """Of each group of the regex in order: where its value goes, and how it is read."""
    out: list[Append] = []
    for name in re.compile(line.regex).groupindex:
        column = table.setdefault(name, [])
        if name == "stamp":
            convert: Callable[[bytes], Any] = _iso
        elif name in TEXTS:
            convert = bytes.decode
        else:
            convert = int if name in INTEGERS else _number
        out.append((column.append, convert))
    return out


def _iso(text: bytes) -> datetime:
    return datetime.fromisoformat(text.decode().replace("/", "-").replace(",", "."))


def _number(text: bytes) -> float:
    return float(text.replace(b",", b""))


def logs(path: Path, log_format: str = "") -> list[tuple[Path, str]]:
    """A log, or all of a folder, each with its format: that one, or what its name begins with."""
    paths = sorted(path.rglob("*.log")) if path.is_dir() else [path]
    return [(one, log_format or one.stem.split("_")[0]) for one in paths]


def main() -> None:
    """Read logs by one of the parsers, and write what was found."""
    import polars as pl  # noqa: PLC0415 - not in the time of those who only parse

    parser, log_format, log, out = sys.argv[1:]
    each = logs(Path(log), log_format)
    if parser == "careful":
        tables = [pl.DataFrame(one) for log in each for one in careful(*log) if any(one.values())]
        found = pl.concat(tables, how="diagonal_relaxed")
    else:
        rows = [row for log in each for row in plain(*log)]
        found = pl.DataFrame(rows, infer_schema_length=None)
    found.write_parquet(out)
    print(found.height)


if __name__ == "__main__":
    main()
