"""What `benchmarks.ingest` has done in processes of their own: it stays small itself.

python -m benchmarks.ingest_work write|many|line|pack|check|count|parse ...
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import ready_to_read

BUFFER: Final = 1 << 20


def write(given: argparse.Namespace) -> None:
    """A log of one format, with its rows beside it."""
    from tests.support.log_lines import BY_NAME, write_log  # noqa: PLC0415 - large imports, here and below

    log = Path(given.log)
    rows = write_log(
        log, BY_NAME[given.form], given.bytes, truth=log.with_suffix(".rows"), density=given.density
    )
    print(rows)


def many(given: argparse.Namespace) -> None:
    """Logs of all formats in turn, in a folder; how many rows."""
    from tests.support.log_lines import KINDS, Style, noise, write_log  # noqa: PLC0415

    rows = 0
    for number in range(given.files):
        kind = KINDS[number % len(KINDS)]
        folder = Path(given.folder) / f"{number % 20:02}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{kind.log_format}_{number:05}.log"
        between = noise(kind, Style(), 0)
        rows += write_log(path, kind, given.bytes, seed=number, between=between, at_once=200)
    print(rows)


def line(given: argparse.Namespace) -> None:
    """A copy of a log with a line of so many bytes in its middle, and its rows."""
    import polars as pl  # noqa: PLC0415

    source, log = Path(given.source), Path(given.log)
    half, passed = source.stat().st_size // 2, 0
    with source.open("rb") as read, log.open("wb") as out:
        while passed < half:
            passed += out.write(read.readline())
            before = out.tell()
        out.write(b"x" * given.bytes + b"\n")
        while block := read.read(BUFFER):
            out.write(block)
    number = _newlines(source, before)
    moved = pl.when(pl.col("line") > number).then(pl.col("line") + 1).otherwise("line")
    rows = pl.read_parquet(source.with_suffix(".rows"))
    rows.with_columns(line=moved).write_parquet(log.with_suffix(".rows"))


def steplike(given: argparse.Namespace) -> None:
    """A log with four lines behind each that hold words of a step and are none, and its rows."""
    from random import Random  # noqa: PLC0415

    import polars as pl  # noqa: PLC0415

    source, log, draw = Path(given.source), Path(given.log), Random(0)  # noqa: S311 - no secret
    with source.open() as read, log.open("w") as out:
        for number, text in enumerate(read):
            out.write(text)
            out.writelines(
                f"[data] worker {worker} fetched batch for step: {number} shard "
                f"{draw.randrange(10**6)} loss: pending key={draw.getrandbits(64):016x}\n"
                for worker in range(4)
            )
    moved = (pl.col("line") - 1) * 5 + 1
    rows = pl.read_parquet(source.with_suffix(".rows")).with_columns(line=moved)
    rows.write_parquet(log.with_suffix(".rows"))


def _newlines(path: Path, end: int) -> int:
    count = 0
    with path.open("rb") as log:
        while end > 0 and (block := log.read(min(BUFFER, end))):
            count, end = count + block.count(b"\n"), end - len(block)
    return count


def pack(given: argparse.Namespace) -> None:
    """The log compressed, by the ending of the other path, as gzip and zstd do by default."""
    import gzip  # noqa: PLC0415

    import pyarrow as pa  # noqa: PLC0415

    out = Path(given.packed)
    with Path(given.log).open("rb") as log, out.open("wb") as raw:
        into: Any = (
            gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6)
            if out.suffix == ".gz"
            else pa.CompressedOutputStream(pa.PythonFile(raw), "zstd")
        )
        while block := log.read(BUFFER):
            into.write(block)
        into.close()


def check(given: argparse.Namespace) -> None:
    """Every row of a store is what was written, value by value; column by column, in order."""
    import polars as pl  # noqa: PLC0415

    from fairmfu.ingest.store.store import Store  # noqa: PLC0415

    store = Store(Path(given.store))
    truth = Path(given.truth)
    for name in pl.read_parquet_schema(truth):
        written = pl.read_parquet(truth, columns=[name])[name]
        read = store.query(f"select {name} from steps order by line")[name]  # noqa: S608
        if not read.equals(written, check_dtypes=False, null_equal=True):
            near = zip(read[:2].to_list(), written[:2].to_list(), strict=False)
            counts = f"{len(read):,} rows, {len(written):,} written, the first {list(near)}"
            sys.exit(f"{given.store}: {name} is not what was written: {counts}")
    print(len(written))


def count(given: argparse.Namespace) -> None:
    """A store has so many runs and steps."""
    from fairmfu.ingest.store.store import Store  # noqa: PLC0415

    store = Store(Path(given.store))
    found = store.query("select (select count(*) from runs), (select count(*) from steps)").row(0)
    if found != (given.runs, given.rows):
        sys.exit(f"{given.store}: {found} runs and steps, not {(given.runs, given.rows)}")


def parse(given: argparse.Namespace) -> None:
    """The rows of a log in memory; seconds, how many rows, the sum of their steps."""
    ready_to_read()
    path = Path(given.log)
    read: Callable[[], Any]
    if given.reader == "fairmfu":
        from fairmfu.ingest.extract.log_tables import read_log_tables  # noqa: PLC0415

        read = lambda: read_log_tables(path)  # noqa: E731
    else:
        from benchmarks import plain  # noqa: PLC0415

        reader = plain.plain if given.reader == "plain" else plain.careful
        read = lambda: reader(path, given.form)  # noqa: E731
    wall, cpu = time.perf_counter(), time.process_time()
    found = read()
    took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    print(json.dumps({**took, **_summary(given.reader, found)}))


def _summary(reader: str, found: Any) -> dict[str, int]:  # noqa: ANN401
    if reader == "fairmfu":
        steps = found["steps"]["step"].to_list()
    elif reader == "plain":
        steps = [row["step"] for row in found]
    else:
        steps = [step for table in found for step in table["step"]]
    return {"rows": len(steps), "steps": sum(steps)}


def steps(given: argparse.Namespace) -> None:
    """What `parse` has to find."""
    import polars as pl  # noqa: PLC0415

    written = pl.read_parquet(given.truth, columns=["step"])["step"]
    print(json.dumps({"rows": len(written), "steps": int(written.sum())}))


def main() -> None:
    """Do one piece of work."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    for work, arguments in (
        (write, ("form", "log", "bytes", "density")),
        (many, ("folder", "files", "bytes")),
        (line, ("source", "log", "bytes")),
        (steplike, ("source", "log")),
        (pack, ("log", "packed")),
        (check, ("store", "truth")),
        (count, ("store", "runs", "rows")),
        (parse, ("reader", "form", "log")),
        (steps, ("truth",)),
    ):
        one = commands.add_parser(work.__name__, help=work.__doc__)
        one.set_defaults(work=work)
        for name in arguments:
            kind = {"bytes": int, "files": int, "runs": int, "rows": int, "density": float}
            one.add_argument(name, type=kind.get(name, str))
    given = parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
