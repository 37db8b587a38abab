"""Logs with every nuisance, read by the product and by a plain loop that shares no code with it.

The loop is meant to be obvious: split at newlines, take the colours out, one regex, float().
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.core.schema import frame_schema
from fairmfu.ingest.extract.log_tables import read_log_tables
from tests.support.log_lines import BY_NAME, Style, blocks, noise

Row = dict[str, Any]

LINES = 1_500
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONGEST = 262_144


def texts(log: bytes) -> Iterator[tuple[int, str]]:
    """Number and text of each line; NUL bytes are nothing, no-break spaces are spaces."""
    for number, raw in enumerate(log.split(b"\n"), start=1):
        if len(raw) <= LONGEST:
            text = raw.decode("utf-8", "replace").replace("\0", "").replace("\xa0", " ")
            yield number, COLOUR.sub("", text)


THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(?![\d,])[^,]*$")


def number(text: str) -> float | None:
    """A printed number; null where the framework prints that there is none.

    Commas stand between thousands; an underscore is Python's, no log prints one in a number.
    """
    if text in ("N/A", "None", "null", ""):
        return None
    if "_" in text or ("," in text and not THOUSANDS.match(text)):
        raise ValueError(text)
    return float(text.replace(",", "").rstrip("%"))


def stamp(text: str) -> datetime | None:
    try:
        return datetime.strptime(text + "000", "%Y-%m-%d %H:%M:%S,%f")
    except ValueError:
        return None


TITAN = re.compile(
    r"step: *(\d+) +loss: +(\S+) +grad_norm: +(\S+) +memory: +([\d.]+)GiB\(([\d.]+)%\) +"
    r"tps: +([\d,]+) +tflops: +([\d.,]+) +mfu: +(N/A|[\d.]+%)"
)


def torchtitan(log: bytes) -> Iterator[Row]:
    for line, text in texts(log):
        match = TITAN.search(text)
        if match is None or "validate step" in text:
            continue
        step, loss, norm, memory, share, tps, tflops, mfu = match.groups()
        before = text[: match.start()]
        stamps = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", before)
        try:
            percent = number(mfu)
            yield {
                "line": line,
                "rank": rank(before),
                "step": int(step),
                "logged_at": stamp(stamps[-1]) if stamps else None,
                "loss": number(loss),
                "grad_norm": number(norm),
                "peak_memory_bytes": float(memory) * 1024.0**3,
                "logged_tgs": number(tps),
                "logged_tflops": number(tflops),
                "logged_mfu": None if percent is None else percent * 0.01,
                "extra": json.dumps({"share": share}),
            }
        except ValueError:  # a loss that is no number: the line cannot be read
            continue


def rank(before: str) -> str | None:
    """The launchers' tags, outermost first."""
    return ":".join(dict.fromkeys(re.findall(r"\[rank(\d+)\]:", before))) or None


MEGATRON = re.compile(r"iteration +(\d+)/ *(\d+) \| (.*)")
COLUMNS = {
    "consumed samples": "consumed_samples",
    "consumed tokens": "consumed_tokens",
    "elapsed time per iteration (ms)": "elapsed_s",
    "learning rate": "learning_rate",
    "global batch size": "samples",
    "lm loss": "loss",
    "loss scale": "loss_scale",
    "grad norm": "grad_norm",
    "actual seqlen": "sequence_length",
    "number of skipped iterations": "skipped_steps",
    "samples per second": "logged_samples_per_second",
    "tokens per gpu per second (tgs)": "logged_tgs",
    "TFLOPs": "logged_tflops",
}
WHOLE = ("consumed_samples", "samples", "sequence_length", "skipped_steps")


def megatron_deepspeed(log: bytes) -> Iterator[Row]:
    for line, text in texts(log):
        match = MEGATRON.search(text)
        if match is None:
            continue
        row: Row = {"line": line, "rank": rank(text[: match.start()]), "step": int(match[1])}
        rest: dict[str, str] = {}
        try:
            for field in filter(str.strip, match[3].split("|")):
                key, _, value = (part.strip() for part in field.partition(":"))
                if COLUMNS.get(key) in WHOLE:
                    row[COLUMNS[key]] = whole(value)
                elif key in COLUMNS:
                    row[COLUMNS[key]] = number(value)
                elif ":" in field:
                    rest[key] = value
        except ValueError:
            continue
        if row["elapsed_s"] is not None:
            row["elapsed_s"] *= 0.001
        yield {**row, "extra": json.dumps(rest)}


def whole(text: str) -> int | None:
    """A printed count, which may be as large as 64 bits hold."""
    value, plain = number(text), text.replace(",", "")
    if plain.isdigit():
        return int(plain)
    if value is not None and (not math.isfinite(value) or value != int(value)):
        raise ValueError(text)
    return None if value is None else int(value)


# -- nuisances ------------------------------------------------------------------------------

Nuisance = Callable[[bytes, Random], bytes]


def number_for(pattern: bytes) -> Nuisance:
    """Another text for the value that the pattern finds."""
    values = (
        *(b"nan", b"inf", b"-inf", b"N/A", b"None", b"1.5e-3", b"2E+4", b"-0.25", b"0.1", b"7"),
        *(b"1,234.5", b"3.14159265358979", b"0.30000000000000004", b"12345678.87654321", b"lots"),
        *(b"9007199254740993", b"1e400", b"1_000.5", b"..", b"00012.500", b"1,23", b"12,345"),
    )
    return lambda line, draw: re.sub(pattern, lambda m: m[1] + draw.choice(values), line, count=1)


def either_end(line: bytes, draw: Random) -> bytes:
    front = (
        b"",
        b"[rank7]:",
        b"  4%|#     | 4/99 [00:01<00:20]\r",
        b"\x1b[34m",
        b"\xff\xfe",
        b"\r",
    )
    back = (b"", b"\r", b" ", b"\0", b"\x1b[0m", b"\xc2\xa0", b" \t", b"\xe2\x80")
    return draw.choice(front) + line + draw.choice(back)


def inside(line: bytes, draw: Random) -> bytes:
    """NUL bytes anywhere, colours between words."""
    blank = [match.start() for match in re.finditer(rb" ", line)]
    anywhere = draw.randrange(len(line) + 1)
    place, what = draw.choice(
        ((anywhere, b"\0"), (draw.choice(blank or [0]), draw.choice((b"\x1b[1;31m", b"\x1b[m"))))
    )
    return line[:place] + what + line[place:]


def blanks(line: bytes, draw: Random) -> bytes:
    changes = ((b"  ", b" "), (b"  ", b"    "), (b": ", b":    "), (b" ", b"\xc2\xa0"))
    old, new = draw.choice(changes)
    return line.replace(old, new)


def date(line: bytes, draw: Random) -> bytes:
    months = (b"2026-13-01", b"2026-02-30", b"2028-02-29", b"0000-01-01", b"2027-12-31")
    return re.sub(rb"\d{4}-\d\d-\d\d", draw.choice(months), line, count=1)


def clock(line: bytes, draw: Random) -> bytes:
    times = (b"24:00:00", b"23:59:60", b"23:60:00", b"00:00:00", b"12:34:56")
    return re.sub(rb"\d\d:\d\d:\d\d", draw.choice(times), line, count=1)


def long(line: bytes, draw: Random) -> bytes:
    return line + b"x" * draw.choice((LONGEST, LONGEST - len(line), LONGEST - len(line) + 1))


def glued(log: list[bytes], draw: Random) -> None:
    """Lines out of order, twice, and what is no text at all."""
    for _ in range(len(log) // 50):
        place = draw.randrange(len(log) - 1)
        log[place], log[place + 1] = log[place + 1], log[place]
        log.insert(place, draw.choice((b"", b"\r", b"\xc3\x28", log[draw.randrange(len(log))])))


MEANT: dict[str, tuple[Callable[[bytes], Iterator[Row]], tuple[Nuisance, ...]]] = {
    "torchtitan": (
        torchtitan,
        (
            number_for(rb"(loss:(?:\x1b\[[\d;]*m| )*)[\d.]+"),
            number_for(rb"(norm:  ?)[\d.]+"),
            lambda line, _: re.sub(rb"mfu: [\d.]+%", b"mfu: N/A", line),
        ),
    ),
    "megatron-deepspeed": (
        megatron_deepspeed,
        (
            number_for(rb"(lm loss: )[^|]+(?= )"),
            number_for(rb"(per second: )[^|]+(?= )"),
            number_for(rb"(consumed samples: +)\d+"),
            number_for(rb"(actual seqlen: +)\d+"),
        ),
    ),
}
EVERY: tuple[Nuisance, ...] = (either_end, either_end, inside, blanks, date, clock, long)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "line by line"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("log_format", MEANT)
def test_the_product_reads_what_a_plain_loop_reads(
    log_format: str, seed: int, *, fast: bool, tmp_path: Path
) -> None:
    plain, more = MEANT[log_format]
    draw = Random(f"{log_format} {seed}")  # noqa: S311 - no secret
    style = Style(ansi=seed % 3 != 1, ranks=(8, 1, 2)[seed % 3])
    kind = BY_NAME[log_format]
    between = noise(kind, style, 0, 2_000)
    made = blocks(kind, seed=seed, style=style, between=between, at_once=50)
    lines = (line for block, _ in made for line in block)
    log = [line.encode() for line in islice(lines, LINES)]
    for place in range(20, len(log)):
        if draw.random() < 0.3:
            rare = (*EVERY[:-1], *more) if draw.random() < 0.99 else EVERY
            log[place] = draw.choice(rare)(log[place], draw)
    glued(log, draw)
    data = b"\n".join(log) + b"\n"
    path = tmp_path / "run.log"
    path.write_bytes(data)
    expected = list(plain(data))
    schema = frame_schema("steps")
    columns = {name: [row.get(name) for row in expected] for name in schema if name != "run_id"}
    frame = pl.DataFrame(columns, {name: schema[name] for name in columns})
    steps = read_log_tables(path, use_fast_path=fast)["steps"].sort("line").drop("run_id")
    assert frame.height > LINES / 5
    assert_frame_equal(steps, frame, check_exact=True)
