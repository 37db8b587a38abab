"""How fast scalars are read: event files, JSON lines and dicts beside what reads each by itself.

    python -m benchmarks.scalars [--quick] [--repeats N] [--only WORD] [--folder DIR]

Files are generated into a temporary folder. Timed is a file to typed rows in memory
(`ingest.extract.log_tables.read_log_tables`: detection, hash, facts and all) inside its process,
against the same file's values read by TensorBoard's EventAccumulator, `json.loads` or
`ast.literal_eval` of each line. Before anything is timed, the steps and losses that are read have
to be those written. Of lines a row more has the least that such a reader takes: the file read,
hashed, and made columns by Polars' own JSON reader, which decides nothing and keeps no text.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import random
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import (
    PYTHON,
    Goal,
    Row,
    WrongResultError,
    child,
    conclude,
    faster,
    inside,
    ready_to_read,
    rounds,
)

WORK: Final = (PYTHON, "-m", "benchmarks.scalars", "--work")
EVENTS: Final = ("torchtitan events", "hf events")
JSON_LINES: Final = ("mmengine scalars.json", "xtuner v1 tracker.jsonl")
DICTS: Final = "hf dicts"
LEAST: Final = "the least that such a reader takes"
NAMES: Final = {
    "torchtitan events": "events.out.tfevents.titan",
    "hf events": "events.out.tfevents.hf",
    "mmengine scalars.json": "scalars.json",
    "xtuner v1 tracker.jsonl": "tracker.jsonl",
    DICTS: "train.log",
}
GOALS: Final = {**dict.fromkeys(EVENTS, 15.0), **dict.fromkeys(JSON_LINES, 5.0), DICTS: 15.0}
TITAN_TAGS: Final = (
    *("loss_metrics/global_avg_loss", "loss_metrics/global_max_loss", "grad_norm"),
    *("throughput(tps)", "tflops", "mfu(%)", "time_metrics/end_to_end(s)", "lr"),
    *("time_metrics/data_loading(s)", "memory/max_reserved(GiB)"),
)
HF_TAGS: Final = ("train/loss", "train/grad_norm", "train/learning_rate", "train/epoch")

# -- files ------------------------------------------------------------------------------------


def _values(count: int) -> Iterator[tuple[int, float, float, random.Random]]:
    """Step, loss and learning rate of so many steps, and what draws the rest."""
    draw = random.Random(7)  # noqa: S311 - no secret
    for step in range(1, count + 1):
        loss = 2 + 6 * math.exp(-4 * step / count) + draw.gauss(0, 0.05)
        yield step, loss, 2e-4 * (1 + math.cos(math.pi * step / count)), draw


def _scalars_json(count: int) -> Iterator[dict[str, Any]]:
    for step, loss, rate, draw in _values(count):
        seconds = 0.08 + abs(draw.gauss(0, 0.004))
        head = {"lr": rate, "data_time": 0.002 + draw.random() / 1000, "loss": loss}
        flops = {"time": seconds, "tflops": draw.uniform(0.4, 0.6), "tokens_per_sec": 640 / seconds}
        yield {**head, **flops, "iter": step, "step": step}


def _tracker(count: int) -> Iterator[dict[str, Any]]:
    total = 0
    for step, loss, rate, draw in _values(count):
        tokens, seconds = draw.randint(60_000, 65_536), round(draw.uniform(0.7, 0.8), 4)
        total += tokens
        yield {
            "lr": rate,
            "time/data_time": round(draw.uniform(0.004, 0.006), 4),
            "time/step_time": seconds,
            "runtime_info/text_tokens": tokens,
            "runtime_info/seqlen_tokens": 65_536,
            "runtime_info/approximate_total_consumed_tokens": total,
            "runtime_info/tgs": tokens / seconds,
            "memory/max_memory_GB": 61.27,
            "grad_norm": draw.uniform(0.5, 1.5),
            "loss/reduced_llm_loss": loss,
            "step": step,
        }


def _dicts(count: int) -> Iterator[dict[str, Any]]:
    for step, loss, rate, draw in _values(count):
        norm = draw.uniform(0.5, 1.5)
        epoch = round(step / 1000, 2)
        yield {"loss": round(loss, 4), "grad_norm": norm, "learning_rate": rate, "epoch": epoch}


def _events(path: Path, tags: tuple[str, ...], count: int) -> Iterator[float]:
    """Writes the records of SummaryWriter; the losses, which are the first of the tags."""
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - an extra
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415 - an extra
    from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415 - an extra

    with path.open("wb") as file:
        out = RecordWriter(file)
        first = Event(wall_time=1795188127.5, file_version="brain.Event:2")
        out.write(first.SerializeToString())
        for step, loss, rate, draw in _values(count // len(tags)):
            for place, tag in enumerate(tags):
                value = loss if place == 0 else rate if "lr" in tag else draw.uniform(0, 10)
                said = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                at = 1795188127.5 + 0.55 * step + 1e-4 * place
                out.write(Event(wall_time=at, step=step, summary=said).SerializeToString())
            yield struct.unpack("f", struct.pack("f", loss))[0]


def write(kind: str, folder: Path, count: int) -> None:
    """A file of so many scalars or lines, and the losses that are in it."""
    path = folder / NAMES[kind]
    losses: list[float]
    if kind in EVENTS:
        losses = list(_events(path, HF_TAGS if kind == "hf events" else TITAN_TAGS, count))
    else:
        lines = {"mmengine scalars.json": _scalars_json, DICTS: _dicts}.get(kind, _tracker)(count)
        losses = []
        with path.open("w") as out:
            for line in lines:
                losses.append(line.get("loss", line.get("loss/reduced_llm_loss")))
                out.write((str(line) if kind == DICTS else json.dumps(line)) + "\n")
    path.with_name("truth.json").write_text(json.dumps(losses))


# -- readers ----------------------------------------------------------------------------------


def ours(path: Path) -> Any:  # noqa: ANN401
    """Tables."""
    from fairmfu.ingest.extract.log_tables import read_log_tables  # noqa: PLC0415 - a large import

    return read_log_tables(path)


def accumulator(path: Path) -> Any:  # noqa: ANN401
    """TensorBoard's own, of all values."""
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
        EventAccumulator,
    )

    found = EventAccumulator(str(path), size_guidance={"scalars": 0})
    found.Reload()
    return found


def least(path: Path) -> Any:  # noqa: ANN401
    """Columns of all lines, and what the file is known by; a dict's quotes are made JSON's."""
    import polars as pl  # noqa: PLC0415 - others are timed without it

    data = path.read_bytes()
    hashlib.sha256(data)
    return pl.read_ndjson(data.replace(b"'", b'"') if path.name == NAMES[DICTS] else data)


def _each(parse: Callable[[str], object]) -> Callable[[Path], int]:
    def read(path: Path) -> int:
        with path.open() as file:
            return sum(parse(line) is not None for line in file)

    return read


READERS: Final[dict[str, Callable[[Path], Any]]] = {
    "ours": ours,
    LEAST: least,
    "EventAccumulator": accumulator,
    "json.loads": _each(json.loads),
    "ast.literal_eval": _each(ast.literal_eval),
}


def read(reader: str, path: Path) -> None:
    """Time one reader without its imports."""
    ready_to_read()
    if reader == "ours":
        import fairmfu.ingest.pipeline.ingest_run  # noqa: F401, PLC0415
    elif reader == "EventAccumulator":
        import tensorboard.backend.event_processing.event_accumulator  # noqa: F401, PLC0415
    elif reader == LEAST:
        import polars as pl  # noqa: PLC0415

        pl.read_ndjson(b"{}\n")  # has its threads started
    wall, cpu = time.perf_counter(), time.process_time()
    found = READERS[reader](path)
    took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    if reader == "ours":
        _check(found["steps"], json.loads(path.with_name("truth.json").read_text()))
    elif reader == "EventAccumulator":
        tag = next(t for t in (TITAN_TAGS[0], HF_TAGS[0]) if t in found.Tags()["scalars"])
        truth = json.loads(path.with_name("truth.json").read_text())
        if [event.value for event in found.Scalars(tag)] != truth:
            sys.exit("EventAccumulator: not the losses that were written")
    print(json.dumps(took))


def _check(steps: Any, truth: list[float]) -> None:  # noqa: ANN401 - a frame
    """The losses are those written, in single precision where a file keeps that; steps count."""
    rows = steps.drop_nulls("loss").sort("step")
    losses = rows["loss"].to_list()
    single = [struct.unpack("f", struct.pack("f", loss))[0] for loss in losses]
    if rows["step"].to_list() != list(range(1, len(truth) + 1)) or truth not in (losses, single):
        sys.exit(f"{len(losses)} losses, not the {len(truth)} that were written")


# -- rows -------------------------------------------------------------------------------------


def compared(kind: str, folder: Path, count: int, repeats: int) -> Iterable[Row]:
    """Ours beside what reads each value or line, and the least beside it."""
    goal = Goal(GOALS[kind])
    work = f"{count:,} {'scalars' if kind in EVENTS else 'lines'}, {kind}"
    if kind in EVENTS and find_spec("tensorboard") is None:
        why = "tensorboard is not installed"
        print(f"SKIPPED: {work}: {why}", file=sys.stderr)
        return [Row(work, "", (), goal, note=f"skipped: {why}")]
    own = folder / NAMES[kind].replace(".", "_")
    own.mkdir()
    child([*WORK, "write", kind, own, str(count)])
    path = own / NAMES[kind]
    lines = "ast.literal_eval" if kind == DICTS else "json.loads"
    other, also = ("EventAccumulator", []) if kind in EVENTS else (lines, [LEAST])
    runs = {
        name: lambda name=name: inside([*WORK, "read", name, path])  # type: ignore[misc]
        for name in ("ours", other, *also)
    }
    for run in runs.values():
        run()  # each checks what it has read; warm in the page cache
    costs = rounds(runs, repeats)
    beside = [faster(f"{one}: read, hashed, `pl.read_ndjson`", costs, one, other) for one in also]
    return [faster(work, costs, "ours", other, goal), *beside]


def main() -> None:
    """Print the table; exit 1 where a result is wrong."""
    if sys.argv[1:2] == ["--work"]:
        what, name, path, *count = sys.argv[2:]
        if what == "write":
            write(name, Path(path), int(count[0]))
        else:
            read(name, Path(path))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the values")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of each timing (3)")
    parser.add_argument("--only", action="append", choices=list(GOALS), help="some of the works")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=given.folder) as aside:
        for kind in given.only or GOALS:
            count = 100_000 if given.quick else 1_000_000
            print(f"{kind} …", file=sys.stderr, flush=True)
            try:
                rows += compared(kind, Path(aside), count, given.repeats)
            except WrongResultError as error:
                raise SystemExit(f"WRONG: {error}") from error
    conclude("Reading scalars", rows)


if __name__ == "__main__":
    main()
