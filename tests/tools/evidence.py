"""`make evidence`: time stamps against logged rates and times, and tokens against tokens.

Each public and each generated log is ingested by itself, the facts that it lacks are given as in
`make audit`, and every two kinds of time evidence of a run, and every count of its tokens beside
the one that is used, get a row. golden/evidence.tsv holds those of time, golden/tokens.tsv those of
tokens; their heads say how a row is checked by hand. The folders are $FAIRMFU_CORPUS and
$FAIRMFU_GENERATED, or lie beside the project. Exit code 1 where a row differs from its golden.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.throughput import resolved_facts, time_evidence, token_counts
from fairmfu.metrics.throughput.windows import build_windows
from tests.tools import audit
from tests.tools.corpus import CORPUS, GENERATED

TIME: Final = audit.GOLDEN / "evidence.tsv"
TOKENS: Final = audit.GOLDEN / "tokens.tsv"

Row = dict[str, str]
Key = tuple[str, ...]


def of_time(frame: pl.DataFrame, run: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each two kinds of time evidence of one run."""
    for one in time_evidence.compare_evidence(RunArrays(frame), run):
        how = "single steps" if one.sampled else "same steps"
        cause = (one.cause or "NONE") if one.disagrees else "-"
        yield {
            "basis": run["evidence"][0] if run["evidence"] else "-",
            "kind": one.kind,
            "other": one.other,
            "ratio": f"{one.ratio:.4f}",
            "windows": str(one.windows),
            "seconds": f"{one.seconds:.1f}",
            "resolution_s": "-" if one.resolution is None else f"{one.resolution:g}",
            "allowed": f"{one.tolerance:.2%}",
            "how": how if one.fitted_tokens is None else f"{how}, fitted: {one.fitted_tokens:,.1f}",
            "cause": f"NOT RANKED: {cause}" if one.contradicts else cause,
        }


def of_tokens(frame: pl.DataFrame, facts: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each count of one run's tokens beside the one that is used."""
    for one in token_counts.compare_counts(RunArrays(frame), facts):
        apart = abs(one.gap) > one.tolerance
        cause = (one.cause or "NONE") if apart else "-"
        yield {
            "used": one.used.name,
            "tokens": f"{one.other_mean / (1 + one.gap):.1f}",
            "other": one.other.name,
            "other_tokens": f"{one.other_mean:.1f}",
            "gap": f"{one.gap:+.2%}",
            "steps": str(one.steps),
            "allowed": f"{one.tolerance:.2%}",
            "cause": f"NOT RANKED: {cause}" if one.contradicts else cause,
        }


def every_row() -> tuple[list[Row], list[Row]]:
    """The rows of time and those of tokens, of what is at hand of the logs."""
    facts = audit.given()
    time: list[Row] = []
    counts: list[Row] = []
    for folder in (CORPUS, GENERATED):
        for tables, named in audit.each_file(folder, facts) if folder.is_dir() else ():
            of_file = _of_file(tables, named)
            time += of_file[0]
            counts += of_file[1]
    return sorted(time, key=_place), sorted(counts, key=_place)


def _place(row: Row) -> tuple[str, int]:
    return row["path"], int(row["launch"])


def _of_file(tables: audit.Tables, named: audit.Names) -> tuple[list[Row], list[Row]]:
    held = resolved_facts.typed_facts(resolved_facts.resolve_facts(tables["facts"]))
    every = build_windows(tables["steps"], tables["runs"], held, tables["events"])
    facts = {row["run_id"]: row for row in held.iter_rows(named=True)}
    time: list[Row] = []
    counts: list[Row] = []
    for run in tables["runs"].iter_rows(named=True):
        frame = every.filter(run_id=run["run_id"])
        path, launch = named[run["run_id"]]
        name = {"path": path, "launch": str(launch)}
        if frame.height:
            time += [name | row for row in of_time(frame, run)]
            counts += [name | row for row in of_tokens(frame, facts.get(run["run_id"], {}))]
    return time, counts


HEADS: Final = {
    TIME: """\
# Two kinds of time evidence of each run that has them: `make evidence`.
# pytest tests/metrics/throughput/test_time_evidence.py --update-golden rewrites it; read the diff.
# basis: what its format prefers for rates. ratio: tokens per second by `other` over that by `kind`,
# which is the time of the same steps by `kind` over that by `other`. windows: logged lines that are
# clean under both (not the first; no checkpoint, evaluation or profiler since the line before).
# seconds: their time by `kind`. resolution_s: of the stamps or the clock. allowed: 1 %, and what
# that and the last printed digit leave open; of `single steps`, which stand for all between two
# lines, three standard errors of the mean as well. fitted: the log does not say the tokens (or
# samples) of a step; with so many most windows agree, and the ratio shows if the others do.
# cause: why the ratio is further from 1, as the code derives it.
# By hand: steps between the stamps of two lines x tokens of a step / the seconds between them is
# tokens per second by `stamp`; by `elapsed` it is tokens of a step / the printed seconds; `rate` is
# printed, its seconds are tokens / rate. `engine` are stamps of DeepSpeed's lines beside another
# format's, `timer` its SamplesPerSec there, `runtime` what the end of the run prints.
""",
    TOKENS: """\
# Every count of a run's tokens beside the one that is used: `make evidence`.
# pytest tests/metrics/throughput/test_time_evidence.py --update-golden rewrites it; read the diff.
# tokens, other_tokens: of one step on one GPU, the mean over `steps` logged lines that have both,
# the first left out. gap: other / used - 1. allowed: 1 %, and what the last printed digits leave
# open. cause: why the gap is wider, as the code derives it.
# By hand: consumed tokens: their difference between two lines / steps / gpus; samples x seq_len /
# gpus; micro-batches: micro_batch_size x gradient_accumulation x seq_len / (tensor x pipeline x
# context parallel); logged rate x time: both as printed on one line.
""",
}


def keyed(rows: Sequence[Row]) -> dict[Key, Row]:
    """Rows by path, launch and what is compared."""
    return {(r["path"], r["launch"], r.get("kind", r.get("used", "")), r["other"]): r for r in rows}


def golden(path: Path) -> dict[Key, Row]:
    """The rows of a golden table, by what they compare."""
    return keyed(audit.table(path))


def write(rows: Sequence[Row], path: Path) -> None:
    """Rewrite a golden table."""
    body = "\n".join("\t".join(row.values()) for row in rows)
    path.write_text(HEADS[path] + "\t".join(rows[0]) + "\n" + body + "\n", encoding="utf-8")


def main() -> int:
    """Print both tables; 1 where a row is not as its golden has it."""
    bad = 0
    for rows, path in zip(every_row(), (TIME, TOKENS), strict=True):
        expected = golden(path)
        for place, (key, row) in enumerate(keyed(rows).items()):
            if place == 0:
                print("\t".join(row))
            differs = expected.get(key) != row
            bad += differs
            print("\t".join(row.values()) + ("\tDIFFERS" if differs else ""))
        apart = [row["cause"] for row in rows if row["cause"] != "-"]
        lost = sum(cause.startswith("NOT RANKED") for cause in apart)
        print(f"# {len(rows)} rows, {len(apart)} apart, {lost} not ranked", file=sys.stderr)
    print(f"# {bad} rows differ from the golden tables", file=sys.stderr)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
