"""`make audit`: what every run printed of its own speed, reproduced by its framework's own formula.

Each public and each generated log is ingested, the facts that it lacks are given as `fairmfu set`
gives them, and each run that printed a figure of its own gets a row: lines compared and
reproduced, what is left unexplained and how exactly the print tells, facts proven, the nearest
hypothesis, and why something was not compared. golden/audit_facts.tsv holds the facts and where
each is from, golden/audit.tsv what came of them. The folders are $FAIRMFU_CORPUS and
$FAIRMFU_GENERATED, or lie beside the project. Exit code 1 where a run differs from the golden.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import polars as pl

from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.audit.audit_results import Audit, Bridge
from fairmfu.metrics.audit.explanations import matching_models
from fairmfu.metrics.audit.formula_checks import FormulaFacts, formula_facts_of
from fairmfu.metrics.formula.model_shapes import ModelShape
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.folders import TESTS
from tests.tools.corpus import CORPUS, GENERATED

GOLDEN: Final = TESTS / "golden"
FACTS: Final = GOLDEN / "audit_facts.tsv"
AUDIT: Final = GOLDEN / "audit.tsv"

INFERRED: Final = "inferred from its figures"
"""How a source begins whose fact nothing states: it follows from the FLOPs per token alone."""

PEAK_OF: Final = frozenset({"accelerator", "logged_peak_flops"})
"""Facts that figures identify by another way: TFLOP/s over MFU is the peak."""

NARROW: Final = 1e-3
"""Figures identify a model only where they tell its FLOPs per token within this fraction."""


@dataclass(frozen=True, slots=True)
class Given:
    """Facts of one run that its log lacks, as `NAME=VALUE`; or why it can have none.

    path: relative to its folder, a pattern as in a shell; launches: empty for all of the file
    """

    path: str
    launches: frozenset[int]
    fact: str
    source: str

    def speaks_of(self, path: str, launch: int) -> bool:
        """Whether it is of this launch of this file."""
        return fnmatchcase(path, self.path) and (not self.launches or launch in self.launches)

    @property
    def name(self) -> str:
        """The fact's name."""
        return self.fact.partition("=")[0]

    @property
    def refuses(self) -> bool:
        """Whether it gives no fact but says why there is none."""
        return not self.fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one run that printed a figure of its own.

    known_by: the `log`; `stated` elsewhere; `identified`: its figures leave only these of the
        known models and lengths, or only this peak; `ambiguous`: they leave others, too
    figures: column to (lines compared, reproduced)
    day: of its first stamp; release: the framework's, as the log names it
    bridges: from the log's figures to ours
    """

    path: str
    launch: int
    framework: str
    known_by: str
    audit: Audit
    figures: Mapping[str, tuple[int, int]]
    day: date | None
    release: str | None
    bridges: Sequence[Bridge] = ()
    refusal: str = ""

    @property
    def lines(self) -> int:
        """Lines compared; of a run that is only said to be identified, none."""
        return 0 if self.known_by == "ambiguous" else self.audit.lines

    @property
    def reproduced(self) -> int:
        """Lines of which every compared figure came out."""
        return self.audit.reproduced_lines if self.lines else 0

    @property
    def why(self) -> str:
        """Why not all was compared, or not all came out."""
        whys = [self.refusal or self.audit.not_compared_reason]
        if self.known_by == "ambiguous":
            whys.append("its figures leave several models")
        if self.reproduced < self.lines:
            whys.append(f"nearest: {self.audit.hypothesis or 'nothing that was tried'}")
        return "; ".join(why for why in whys if why)

    def golden(self) -> dict[str, str]:
        """The columns that golden/audit.tsv keeps."""
        era = self.audit.era
        shown = {name.removeprefix("logged_"): pair for name, pair in self.figures.items()}
        return {
            "path": self.path,
            "launch": str(self.launch),
            "era": era.name if era and self.lines else "-",
            "known_by": self.known_by,
            "lines": str(self.lines),
            "reproduced": str(self.reproduced),
            "figures": ", ".join(f"{name} {ok}/{n}" for name, (n, ok) in shown.items()) or "-",
            "why": self.why or "-",
        }

    def columns(self) -> dict[str, str]:
        """All that the report shows."""
        audit = self.audit
        bounds = (audit.unexplained_low, audit.unexplained_high)
        told = "" if None in bounds else f"{bounds[0]:.6f}..{bounds[1]:.6f}"
        middle = "-" if audit.unexplained is None else f"{audit.unexplained:.6f} ({told})"
        more = {
            "framework": self.framework,
            "not": str(self.lines - self.reproduced),
            "unexplained": middle,
            "proven": ",".join(audit.proven) or "-",
        }
        return self.golden() | more


def given(path: Path = FACTS) -> list[Given]:
    """The rows of golden/audit_facts.tsv."""
    return [
        Given(
            row["path"],
            frozenset(int(n) for n in row["launches"].split(",") if n != "*"),
            "" if row["fact"] == "-" else row["fact"],
            row["source"],
        )
        for row in table(path)
    ]


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a table whose head is behind its comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader((x for x in lines if not x.startswith("#")), delimiter="\t", quoting=3)
    return [dict(row) for row in rows]


def golden(path: Path = AUDIT) -> dict[tuple[str, int], dict[str, str]]:
    """The rows of golden/audit.tsv by path and launch."""
    return {(row["path"], int(row["launch"])): row for row in table(path)}


def _named(path: Path) -> str:
    """A file's path in the table, without the folder that a trainer was given to work in."""
    return "/".join(part for part in path.parts if part != "work")


Tables = Mapping[str, pl.DataFrame]
Names = Mapping[str, tuple[str, int]]


def each_file(folder: Path, facts: Sequence[Given]) -> Iterator[tuple[Tables, Names]]:
    """The tables of each of a folder's files, given facts held, and path and launch of its runs."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    with tempfile.TemporaryDirectory() as place:
        store = Store(Path(place) / "store")
        ingest_paths(files, store)
        runs = store.table("runs").join(
            store.table("sources").select("sha256", "path"), on="sha256"
        )
        named = {
            run["run_id"]: (_named(Path(run["path"]).relative_to(folder)), run["launch"])
            for run in runs.iter_rows(named=True)
        }
        own = {run: of_run(facts, name) for run, name in named.items()}
        store.give_facts(
            {
                run: facts_from_flags(f.fact for f in mine if not f.refuses)
                for run, mine in own.items()
            }
        )
        tables = {name: store.table(name) for name in ("runs", "facts", "steps", "events")}
        sources = store.table("sources")
    for source in sources.iter_rows(named=True):
        of_file = tables["runs"].filter(sha256=source["sha256"])
        kept = {name: t.join(of_file, on="run_id", how="semi") for name, t in tables.items()}
        kept["sources"] = sources.filter(sha256=source["sha256"])
        yield kept, named


def of_run(facts: Sequence[Given], name: tuple[str, int]) -> list[Given]:
    """The facts that are given of a run."""
    return [fact for fact in facts if fact.speaks_of(*name)]


def rows_of(folder: Path, facts: Sequence[Given]) -> list[Row]:
    """A row for each run of a folder's files that printed a figure of its own."""
    found: list[Row] = []
    for tables, named in each_file(folder, facts):
        found += _rows(tables, named, facts)
    return sorted(found, key=lambda row: (row.path, row.launch))


def _rows(tables: Tables, named: Names, facts: Sequence[Given]) -> Iterator[Row]:
    """The rows of one file."""
    analysis = analyse(tables)
    for run in tables["runs"].iter_rows(named=True):
        audit = analysis.audits.get(run["run_id"])
        if audit is None or not (audit.lines_by_column or audit.not_compared_reason):
            continue  # no figure of its own, or none that follows from anything
        path, launch = named[run["run_id"]]
        known = formula_facts_of(run, analysis.facts(run["run_id"]))
        mine = of_run(facts, (path, launch))
        yield Row(
            path=path,
            launch=launch,
            framework=run["framework"],
            known_by=_known_by(known, audit, mine),
            audit=audit,
            figures=audit.lines_by_column,
            day=known.day,
            release=known.version,
            bridges=analysis.bridges(run["run_id"]),
            refusal="; ".join(f.source for f in mine if f.refuses),
        )


def _known_by(known: FormulaFacts, audit: Audit, mine: Sequence[Given]) -> str:
    facts = [f for f in mine if not f.refuses]
    if not facts:
        return "log"
    inferred = {f.name for f in facts if f.source.startswith(INFERRED)}
    if not inferred:
        return "stated"
    alone = "logged_peak_flops" in audit.proven or not inferred & PEAK_OF
    if inferred - PEAK_OF:
        alone = alone and len(candidates(audit, known)) == 1
    return "identified" if alone else "ambiguous"


def candidates(audit: Audit, known: FormulaFacts) -> set[tuple[ModelShape, int]]:
    """Known models, and the given one, with lengths whose FLOPs per token the figures allow.

    (shape without its name, length); none where the figures are not narrow enough to tell.
    """
    low, high, era = audit.flops_low, audit.flops_high, audit.era
    if low is None or high is None or era is None or not 0 < high - low <= NARROW * low:
        return set()
    return matching_models(era, known._replace(params=None, line_length=None), low, high)


def every_row() -> list[Row]:
    """The rows of the public and the generated logs, of what is at hand of them."""
    facts = given()
    return [
        row for folder in (CORPUS, GENERATED) if folder.is_dir() for row in rows_of(folder, facts)
    ]


HEAD: Final = (
    "# What came of reproducing the figures that public and generated logs print of themselves:"
    " `make audit`.\n# pytest tests/metrics/audit/test_audit.py --update-golden rewrites it;"
    " read the diff.\n"
)


def write_golden(rows: Sequence[Row]) -> None:
    """Rewrite golden/audit.tsv."""
    lines = [row.golden() for row in rows]
    heads = "\t".join(lines[0])
    body = "\n".join("\t".join(line.values()) for line in lines)
    AUDIT.write_text(f"{HEAD}{heads}\n{body}\n", encoding="utf-8")


def totals(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each framework: runs, and lines compared, reproduced and not."""
    for framework in sorted({row.framework for row in rows}):
        mine = [row for row in rows if row.framework == framework]
        compared = [row for row in mine if row.lines]
        lines, good = sum(r.lines for r in mine), sum(r.reproduced for r in mine)
        how = Counter(row.known_by for row in compared)
        yield (
            f"# {framework}: {len(mine)} runs printed figures, {len(compared)} compared; of"
            f" {lines:,} lines {good:,} reproduced, {lines - good:,} not; known by "
            + ", ".join(f"{name} {count}" for name, count in sorted(how.items()))
        )


def main() -> int:
    """Print the table; 1 where a run is not as golden/audit.tsv has it."""
    for folder in (CORPUS, GENERATED):
        if not folder.is_dir():
            print(f"# no folder {folder}", file=sys.stderr)
    rows, expected, bad = every_row(), golden(), 0
    for place, row in enumerate(rows):
        columns = row.columns()
        if place == 0:
            print("\t".join(columns))
        differs = expected.get((row.path, row.launch)) != row.golden()
        bad += differs
        print("\t".join(columns.values()) + ("\tDIFFERS" if differs else ""))
    for line in totals(rows):
        print(line)
    print(f"# {bad} runs differ from {AUDIT.name}", file=sys.stderr)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
