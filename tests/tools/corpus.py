"""`make corpus`: what is read of every public and every generated log, against a plain count.

For each file its format, launches, ranks, steps read, lines that look like steps to `LOOKS` and to
us, lines unread, facts, events and how its launches ended. `LOOKS` is what a person would grep for:
literals only, written from the descriptions of the formats, so that a parser's own pattern cannot
hide what it skips. The folders are $FAIRMFU_CORPUS and $FAIRMFU_GENERATED, or lie beside the
project. Exit code 1 where a count differs without a reason in golden/corpus.tsv.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.decode.line_reader import Source
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.store.store import Tables
from tests.support.folders import ROOT, TESTS

SHARED: Final = ROOT.parent / "shared"
CORPUS: Final = Path(os.environ.get("FAIRMFU_CORPUS") or SHARED / "logs")
GENERATED: Final = Path(os.environ.get("FAIRMFU_GENERATED") or SHARED / "generated")
COUNTED: Final = TESTS / "golden" / "corpus.tsv"


@cache
def public_tables(path: str) -> Tables:
    """What is read of a file of the corpus; tests that look at one file share it."""
    return read_log_tables(CORPUS / path)


@dataclass(frozen=True, slots=True)
class Grep:
    """Lines that hold all of some literals and none of others."""

    every: Sequence[str]
    none: Sequence[str] = ()

    def finds(self, line: str) -> bool:
        return all(x in line for x in self.every) and not any(x in line for x in self.none)


ITERATION: Final = (Grep(("iteration", "elapsed", "per", "iteration", "|")),)
LOOKS: Final[dict[str, Sequence[Grep]]] = {
    "torchtitan": (
        Grep(("tps: ",), ("validate",)),  # a wrapped line counts by its second half
        Grep(("wps: ",)),
        Grep(("step=", "throughput(tps)=")),
    ),
    "torchtitan-tensorboard": (Grep(('"tag": "throughput(tps)"',)),),
    "torchtitan-spans": (Grep(('"log_type_name": "collect_dist_metrics_end"',)),),
    "xtuner": (Grep(("(train)", " time: ")),),
    "xtuner-scalars": (Grep(('"data_time": ', '"iter": ')),),
    "xtuner-tensorboard": (Grep(('"tag": "loss"',)),),
    "xtuner-v1": (Grep(("[XTuner]", "Step ", "lr: ")),),
    "xtuner-v1-tracker": (Grep(('"time/step_time"',)),),
    "xtuner-v1-tensorboard": (Grep(('"tag": "time/step_time"',)),),
    "megatron-deepspeed": ITERATION,
    "megatron-deepspeed-tensorboard": (Grep(('"tag": "iteration-time/iteration-time"',)),),
    "megatron-lm-tensorboard": (Grep(('"tag": "iteration-time"',)),),
    "mindspeed-mm": ITERATION,
    "mindspeed-llm": ITERATION,
    "gpt-neox": ITERATION,
    "gpt-neox-tensorboard": (Grep(('"tag": "runtime/iteration_time"',)),),
    "hf-trainer": (Grep(("'loss': ",), ("eval_loss",)),),
    "hf-trainer-state": (Grep(('"loss": ',)),),
    "hf-trainer-tensorboard": tuple(
        Grep((f'"tag": "train/{tag}"',))
        for tag in ("loss", "grad_norm", "learning_rate", "num_input_tokens_seen")
    ),
    "llamafactory": (Grep(('"current_steps": ', '"loss": '), ('"loss": null',)),),
    "ms-swift": (
        Grep(('{"loss": ', '"global_step/max_steps": ')),
        Grep(('{"loss": ', '"iteration": "')),
    ),
    "tqdm": (),
    "mlperf": (Grep(('"train_loss"',)),),
    "domino": (Grep(("iteration time (ms)",)),),
    "deepspeed-timers": (Grep(("time (ms) |", " step: "), ("microstep",)),),
    "deepspeed-chat": (Grep(("Latency: ", "Samples/sec: ")),),
    "deepspeed-chat-rlhf": (
        Grep(("|E2E latency=",)),
        Grep(("act_loss: ",)),
        Grep(("verage reward score: ",)),
    ),
    "deepspeed-tensorboard": (Grep(('"tag": "Train/Samples/lr"',)),),
    "deepspeed-csv": (Grep((",",), ("step,",)),),
    "deepspeed": (
        Grep(("skipped=", "lr=[", "mom="), ("step=0,",)),
        Grep(("SamplesPerSec=",), ("CurSamplesPerSec",)),
        Grep(("iter time (s)",)),
    ),
}
"""What the steps of a format look like to somebody who has read what it prints: one line a step."""


def step_like(path: Path, log_format: str) -> int:
    """Lines of a file that look like steps of a format."""
    greps = LOOKS[log_format]
    return sum(any(g.finds(line.text) for g in greps) for line in Source(path).lines())


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of one file; of one that is refused, why."""

    path: str
    log_format: str = ""
    launches: int = 0
    ranks: int = 0
    steps: int = 0
    looks: int = 0
    unread: int = 0
    facts: int = 0
    events: int = 0
    outcomes: str = ""
    refused: str = ""


def read(path: Path, folder: Path) -> Reading:
    name = str(path.relative_to(folder))
    try:
        tables = read_log_tables(path)
    except FairmfuError as error:
        return Reading(name, refused=str(error).partition(": ")[2].partition("\n")[0])
    return reading(path, name, tables)


def reading(path: Path, name: str, tables: Tables) -> Reading:
    """What was read of a file."""
    source = tables["sources"].row(0, named=True)
    ended = tables["runs"].group_by("outcome").len().sort("outcome").iter_rows()
    return Reading(
        path=name,
        log_format=source["log_format"],
        launches=tables["runs"].height,
        ranks=tables["steps"]["rank"].n_unique(),
        steps=tables["steps"].height,
        looks=step_like(path, source["log_format"]),
        unread=source["unread_lines"],
        facts=tables["facts"].select("run_id", "name").n_unique(),
        events=tables["events"].height,
        outcomes=", ".join(f"{count} {outcome}" for outcome, count in ended),
    )


def countable(reading: Reading) -> bool:
    """Whether LOOKS counts it: progress bars alone, several on a line, are counted by hand."""
    return reading.log_format not in ("hf-trainer", "tqdm") or reading.looks > 0


def reasons() -> dict[str, str]:
    """Path: why its count is not LOOKS' own, as golden/corpus.tsv says."""
    lines = COUNTED.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader((x for x in lines if not x.startswith("#")), delimiter="\t")
    return {row["path"]: row["why"] for row in rows if row.get("why")}


def readings(folder: Path) -> Iterator[Reading]:
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        yield read(path, folder)


def main() -> int:
    """Print the table; 1 where something that looks like a step is not read, without a reason."""
    known, bad = reasons(), 0
    heads = ("format", "launches", "ranks", "steps", "look", "unread", "facts", "events", "ended")
    print("\t".join((*heads, "path")))
    for folder in (CORPUS, GENERATED):
        if not folder.is_dir():
            print(f"# no folder {folder}", file=sys.stderr)
        for r in readings(folder):
            if r.refused:
                print(f"# not read: {r.path}: {r.refused}")
                continue
            counts = (r.launches, r.ranks, r.steps, r.looks, r.unread, r.facts, r.events)
            wrong = countable(r) and (r.steps != r.looks or r.unread) and r.path not in known
            bad += wrong
            row = (r.log_format, *map(str, counts), r.outcomes, r.path)
            print("\t".join(row) + (f"\t{known.get(r.path, 'DIFFERS')}" if wrong else ""))
    print(f"# {bad} files differ without a reason", file=sys.stderr)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
