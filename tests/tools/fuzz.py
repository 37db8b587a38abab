"""`make fuzz`: every target of tests/support/fuzz_targets.py, with coverage as the guide (atheris).

    python tests/tools/fuzz.py [--seconds N] [--jobs N] [--corpus DIR] [TARGET …]

One process a target, as many at once as there are cores. What was found stands in DIR/findings,
one file an input with its reason beside it; the table of the run is printed as Markdown.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.support.folders import ROOT

OWN: Final = ("fairmfu.ingest", "fairmfu.metrics", "fairmfu.reports")
"""Packages whose branches guide the fuzzer."""
MEASURED_BYTES: Final = 512
"""Of smaller inputs what a call costs is told, not what a byte does."""
OF_ONE_KIND: Final = 3
"""Inputs that are kept of each finding."""
TOLD_EVERY_S: Final = 2.0
LONGEST_WORD: Final = 64
"""Bytes that a dictionary of libFuzzer takes."""


@dataclass
class Tally:
    """What a run of a target came to; times are CPU seconds of one input."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    per_byte: float = 0.0
    peak: int = 0
    grown: int = 0
    features: int = 0
    corpus: int = 0
    broke: str = ""
    findings: dict[str, int] = field(default_factory=dict)


def _one(name: str, seconds: int, folder: Path) -> None:
    """Fuzz a target in this process, which ends with it."""
    import atheris  # noqa: PLC0415 - an extra of its own

    with atheris.instrument_imports(include=OWN):
        from tests.support import fuzz_targets  # noqa: PLC0415 - what it imports is counted
    target = fuzz_targets.BY_NAME[name]
    words, seeds = list(target.words()), list(target.seeds())
    corpus = folder / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:20]).write_bytes(seed[: target.longest])
    dictionary = folder / f"{name}.dict"
    known = [word for word in words if len(word) <= LONGEST_WORD] or [b"\0"]
    dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in known))

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        draw = Random(seed)  # noqa: S311 - no secret
        if draw.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return fuzz_targets.mutated(data, draw, words)[:most]

    arguments = [
        *(name, str(corpus), f"-dict={dictionary}", f"-max_total_time={seconds}", "-timeout=120"),
        *("-rss_limit_mb=4096", f"-max_len={target.longest}", "-print_final_stats=1", "-seed=1"),
    ]
    runner = _Runner(target, folder, len(seeds))
    atheris.Setup(arguments, runner.test, custom_mutator=mutate)
    atheris.Fuzz()


class _Runner:
    """Tries the inputs of one target, and writes down what they came to."""

    def __init__(self, target: Any, folder: Path, seeds: int) -> None:
        self.target, self.folder, self.seeds = target, folder, seeds
        shelf = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
        self.place = Path(tempfile.mkdtemp(prefix="fuzz-", dir=shelf if shelf.is_dir() else None))
        self.tally, self.began, self.told = Tally(), time.monotonic(), 0.0

    def test(self, data: bytes) -> None:
        done, tally = self.target.watched(data, self.place), self.tally
        tally.inputs += 1
        tally.slowest = max(tally.slowest, done.seconds)
        if len(data) >= MEASURED_BYTES:
            tally.per_byte = max(tally.per_byte, done.seconds / len(data))
        if tally.inputs > self.seeds:  # behind what is made ready once
            tally.grown = max(tally.grown, done.grown)
        if (found := done.finding) is not None:
            count = tally.findings[found.kind] = tally.findings.get(found.kind, 0) + 1
            if count <= OF_ONE_KIND:
                _keep(self.folder / "findings" / self.target.name, data, found)
        if time.monotonic() - self.told > TOLD_EVERY_S:
            self.tell()

    def tell(self) -> None:
        self.told = time.monotonic()
        self.tally.seconds = self.told - self.began
        self.tally.peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (self.folder / f"{self.target.name}.json").write_text(json.dumps(asdict(self.tally)))


def _escaped(word: bytes) -> str:
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\x{b:02x}" for b in word)
    return "".join(plain)


def _keep(folder: Path, data: bytes, found: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    path.with_suffix(".txt").write_text(f"{found.kind}\n{found.text}\n")


def _run(name: str, seconds: int, folder: Path) -> Tally:
    """A target in a process of its own."""
    here = [sys.executable, "-m", "tests.tools.fuzz", "--one", name]
    here += ["--seconds", str(seconds), "--corpus", str(folder)]
    path = str(ROOT)
    environment = {**os.environ, "POLARS_MAX_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(here, capture_output=True, cwd=ROOT, env=environment, check=False)  # noqa: S603
    log = done.stderr.decode("utf-8", "replace")
    (folder / f"{name}.log").write_text(log)
    told = folder / f"{name}.json"
    tally = Tally(**json.loads(told.read_text())) if told.is_file() else Tally()
    units = re.findall(r"stat::number_of_executed_units: (\d+)", log)
    tally.inputs = int(units[-1]) if units else tally.inputs
    seen = re.findall(r"cov: \d+ ft: (\d+) corp: (\d+)", log)
    tally.features, tally.corpus = map(int, seen[-1]) if seen else (0, 0)
    if done.returncode:
        tally.broke = f"ended with {done.returncode}: {log.strip().splitlines()[-1:]}"
    print(f"{name}: {tally.inputs:,} inputs, {len(tally.findings)} findings {tally.broke}")
    return tally


HEADINGS: Final = (
    *("target", "inputs", "s", "coverage features", "kept", "slowest input (ms)"),
    *("worst µs a byte", "peak memory (MiB)", "findings"),
)


def table(tallies: dict[str, Tally]) -> str:
    """The tallies as Markdown."""
    rows = [HEADINGS, tuple("---" if n == 0 else "---:" for n in range(len(HEADINGS)))]
    for name, one in tallies.items():
        figures = (one.inputs, one.seconds, one.features, one.corpus)
        costs = (one.slowest * 1e3, one.per_byte * 1e6, one.peak / 2**20)
        found = str(len(one.findings)) + (" and an end before its time" if one.broke else "")
        rows.append((name, *(f"{figure:,.0f}" for figure in (*figures, *costs)), found))
    inputs = sum(one.inputs for one in tallies.values())
    found = sum(len(one.findings) for one in tallies.values())
    seconds = sum(one.seconds for one in tallies.values())
    rows.append(("all", f"{inputs:,}", f"{seconds:,.0f}", *[""] * 5, str(found)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    """Fuzz; 1 where anything was found."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    options.add_argument("targets", nargs="*")
    options.add_argument("--seconds", type=int, default=600, help="of each target")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--corpus", type=Path, default=ROOT / ".fuzz")
    options.add_argument("--one", help=argparse.SUPPRESS)
    given = options.parse_args()
    given.corpus.mkdir(parents=True, exist_ok=True)
    if given.one:
        _one(given.one, given.seconds, given.corpus)
        return 0
    from tests.support.fuzz_targets import BY_NAME  # noqa: PLC0415 - not before atheris has counted it

    names = given.targets or list(BY_NAME)
    run = partial(_run, seconds=given.seconds, folder=given.corpus)
    with ThreadPoolExecutor(given.jobs) as pool:
        tallies = dict(zip(names, pool.map(run, names), strict=True))
    print(f"\n{table(tallies)}\n")
    for name, one in tallies.items():
        for kind, count in one.findings.items():
            print(f"{name}: {count:,} x {kind}")
    return int(any(one.findings or one.broke for one in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
