"""What the report costs where it is largest: one run of a million steps, a store of 2,000 runs.

    python -m benchmarks.report [--quick] [-h]

Logs are simulated (tests/support/nights.py), and read, computed and set as the commands do it. Each
page is held against what is true of its logs, and has to say what it aggregated. Then it is opened
in Chromium from the disk, by turns with two empty pages, one that has the same library and one that
also draws a single point.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import altair as alt
import numpy as np
from playwright.sync_api import Browser

from benchmarks.harness import (
    MB,
    Bench,
    Cost,
    Goal,
    Row,
    Size,
    WrongResultError,
    longer,
    main,
    rounds,
    skipped,
)
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.reports.page import html_report
from fairmfu.reports.page.html_document import Sheet, bundle
from fairmfu.reports.page.report_data import build_content
from tests.support.browser import chromium, launched, opened
from tests.support.nights import (
    MARK,
    SLOW_STEPS,
    STEP_NOISE,
    Plan,
    SimulatedRun,
    torchtitan,
    write_night,
)

LARGEST: Final = Goal(3, at_least=False, unit="MB")
AS_LONG: Final = Goal(2, at_least=False)
"""Of the time that a page takes over that of an empty one."""
OFF: Final = 0.002
"""Share by which a median rate may miss the truth: some logs have time stamps of whole seconds."""
CHECKPOINT_EVERY: Final = 5_000
"""Steps of the long run."""
SAVING_S: Final = 8.0
SAVED: Final = "[titan] Finished saving the checkpoint at step {step} in {seconds} seconds"
SEED: Final = 11


# --- the logs, and what is true of them -----------------------------------------------------


class EachStep(SimulatedRun):
    """A run whose logger prints every step."""

    @property
    def logged_steps(self) -> range:
        """All but the first, which is printed anyway."""
        return range(2, self.steps + 1)


def write_long(folder: Path, steps: int) -> dict[str, float]:
    """The log of one run of so many steps, with a checkpoint now and then; its rate by name."""
    random = np.random.default_rng(SEED)
    short = Plan(seed=SEED).run(0, 1)
    step_s = short.of.seq_len / short.of.tgs
    pace = step_s * np.exp(STEP_NOISE * random.standard_normal(steps))
    pace[:SLOW_STEPS] *= 1.5
    saved = range(CHECKPOINT_EVERY, steps, CHECKPOINT_EVERY)
    pace[saved] += SAVING_S  # a checkpoint's time is in the step behind it
    losses = 1.8 + 9 * np.exp(-np.arange(steps) / 20_000) + 0.03 * random.random(steps)
    rates = {"long": short.of.seq_len / float(np.median(pace))}
    path = folder / "long.log"
    if path.exists():
        return rates
    run = EachStep(of=short.of, began=short.began, pace=pace, losses=losses)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as log:
        log.write(f"{MARK}\n")
        for line in torchtitan(run):
            log.write(f"{line}\n")
            step = line.partition(" step: ")[2].split(maxsplit=1)
            if step and int(step[0]) in saved:
                log.write(f"{SAVED.format(step=step[0], seconds=SAVING_S)}\n")
    return rates


def write_many(folder: Path, runs: int) -> dict[str, float]:
    """Logs of so many runs, 20 a night; the rate of each by name."""
    plan = Plan(seed=SEED)
    rates: dict[str, float] = {}
    for night in range(1, -(-runs // len(plan.series)) + 1):
        left = runs - len(rates)
        places = range(len(plan.series))[:left]
        for place, path in zip(places, write_night(folder, night, plan, only=places), strict=True):
            rates[path.stem] = plan.rate(place, night)
    return rates


# --- the pages ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Made:
    """A page, what it took to make it in s, and the true rate of each run by name [tokens/s/GPU].

    says: a pattern of the captions' words on what was aggregated; names: of the runs by id
    """

    title: str
    path: Path
    says: str
    rates: Mapping[str, float]
    names: Mapping[str, str]
    took: Mapping[str, Cost]


def made(title: str, folder: Path, write: Callable[[Path], dict[str, float]], *, says: str) -> Made:
    """Write the logs and make the page of them."""
    watch = _Watch(title)
    rates = write(folder / "logs")
    watch.lap("write")
    store = Store(folder / "store")
    outcomes = ingest_run.ingest_paths([folder / "logs"], store)
    assert {one.status for one in outcomes} <= {"read", "known", "unchanged"}  # noqa: S101
    watch.lap("read")
    tables = store.tables()
    analysis = analyse(tables)
    watch.lap("compute")
    told = build_content(analysis, analysis.metrics, tables, title, None, "benchmark")
    watch.lap("content")
    path = folder / "report.html"
    path.write_text(html_report.render_page(told), encoding="utf-8")
    watch.lap("render")
    names = {row["run_id"]: row["name"] for row in told.rows}
    return Made(title=title, path=path, says=says, rates=rates, names=names, took=watch.took)


class _Watch:
    def __init__(self, title: str) -> None:
        self.title, self.took = title, dict[str, Cost]()
        self._since = time.perf_counter(), time.process_time()

    def lap(self, name: str) -> None:
        now = time.perf_counter(), time.process_time()
        wall_s, cpu_s = (then - since for then, since in zip(now, self._since, strict=True))
        self.took[name], self._since = Cost(wall_s, cpu_s), now
        print(f"{self.title}: {name} {wall_s:.1f} s", file=sys.stderr, flush=True)


EMPTY, POINT = "empty, with the library", "empty, draws one point"


def empty_pages(folder: Path) -> dict[str, Path]:
    """One that only has the library's script, and one that draws a point by our script."""
    sheet = Sheet()
    spec = alt.Chart(alt.InlineData([{"x": 1}])).mark_point().encode(x="x:Q").to_dict()
    spec.pop("config")
    pages = {
        EMPTY: f"<!doctype html><title>empty</title><script>{bundle()}</script>",
        POINT: sheet.html(POINT, sheet.figure({"description": "a point", **spec})),
    }
    paths = {title: folder / f"empty-{n}.html" for n, title in enumerate(pages)}
    for title, path in paths.items():
        path.write_text(pages[title], encoding="utf-8")
    return paths


# --- whether they are right -----------------------------------------------------------------

UNFOLD: Final = """async () => {
  for (const fold of document.querySelectorAll("details[data-holds]")) fold.open = true;
  while (document.querySelector("details[open][data-packed], [aria-busy=true]"))
    await new Promise((then) => setTimeout(then, 20));
}"""
"""Opens the folds that hold some runs together."""

RATES: Final = """() => [...document.querySelectorAll("details[data-run]")].map((run) => [
  run.dataset.run, run.querySelector("summary [data-of=tgs]").textContent
])"""
"""The TGS that stands in the line of each run."""

CAPTIONS: Final = """async () => {
  document.querySelector("details[data-run]").open = true;
  while (document.querySelector("details[open][data-packed], [aria-busy=true]"))
    await new Promise((then) => setTimeout(then, 20));
  return [...document.querySelectorAll("figcaption")].map((caption) => caption.textContent);
}"""
"""Of all figures but those of the runs behind the first."""


def wrong(one: Made, browser: Browser) -> Iterator[str]:
    """What the page has wrong of its runs, as it is read in the browser."""
    with opened(browser, one.path) as tab:
        tab.ask(UNFOLD)
        shown = {run_id: float(tgs.replace(",", "")) for run_id, tgs in tab.ask(RATES)}
        captions = " ".join(tab.ask(CAPTIONS))
        yield from tab.trouble
    if not re.search(one.says, captions):
        yield f"no caption says what was aggregated: {one.says}"
    if missing := len(set(one.names) - set(shown)):
        yield f"{missing:,} of {len(one.names):,} runs have no line of their own"
    by_series = defaultdict(list)
    for run_id, tgs in shown.items():
        name = one.names[run_id]
        by_series[re.sub(DAY, "", name)].append(tgs / one.rates[name])
    for series, ratios in by_series.items():
        if abs((off := statistics.median(ratios)) - 1) > OFF:
            yield f"{series}: the median TGS is {off:.4f} of the true one"


DAY: Final = r"-\d{4}-\d\d-\d\d$"


# --- how long they take to open -------------------------------------------------------------

WATCH: Final = """
window.seen = {};
const drawn = (figure) => figure.querySelector(".chart svg .role-mark");
const inView = (figure) => {
  const box = figure.getBoundingClientRect();
  return box.height && box.top < innerHeight && box.bottom > 0;
};
const look = () => {
  const figures = [...document.querySelectorAll("figure")];
  if (figures.some(drawn)) seen.first ??= performance.now();
  if (document.readyState === "complete" && figures.filter(inView).every(drawn)) {
    seen.screen ??= performance.now();
    if (seen.first || !figures.length) return;
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
"""Notes in ms since the navigation began: the first chart, and the first screen without a gap."""

DONE: Final = "() => seen.screen && (seen.first || !document.querySelector('figure'))"
TIMES: Final = """() => ({
  load: performance.getEntriesByType("navigation")[0].loadEventEnd, ...seen
})"""
AGAINST: Final = {"load": EMPTY, "first": POINT, "screen": POINT}
"""What a moment of a page is set against: to have loaded, to have drawn something."""
MOMENTS: Final = {"load": "load event", "first": "first chart", "screen": "first screen"}


def seen(browser: Browser, path: Path) -> Cost:
    """Open a page in a profile of its own; by moment what it took, in ms, as JSON."""
    began = time.perf_counter()
    with opened(browser, path, script_before=WATCH) as tab:
        tab.until(DONE)
        said = json.dumps(tab.ask(TIMES))
    return Cost(time.perf_counter() - began, said=said)


def opening(pages: Sequence[Made], empty: Mapping[str, Path], repeats: int) -> Iterator[Row]:
    """How long pages take to open, beside empty ones."""
    shown = {**empty, **{one.title: one.path for one in pages}}
    with launched() as browser:
        faults = [f"{one.title}: {what}" for one in pages for what in wrong(one, browser)]
        if faults:
            raise WrongResultError("\n".join(faults))
        runs = {title: partial(seen, browser, path) for title, path in shown.items()}
        rounds(runs, 1)  # the first of a browser is slower
        costs = rounds(runs, repeats)
    for one in pages:
        for moment, words in MOMENTS.items():
            at = {title: _until(moment, costs[title]) for title in (one.title, AGAINST[moment])}
            yield longer(f"{one.title}: {words}", at, one.title, AGAINST[moment], AS_LONG)


def _until(moment: str, costs: Sequence[Cost]) -> list[Cost]:
    return [replace(cost, wall_s=json.loads(cost.said)[moment] / 1000) for cost in costs]


# --- the rows -------------------------------------------------------------------------------


def pages(bench: Bench) -> Iterator[Row]:
    """Both pages: what they hold, what they take to be made, and to be opened."""
    steps, runs = bench.sizes["steps"], bench.sizes["runs"]
    both = [
        made(
            f"one run of {steps:,} steps",
            bench.folder / "long",
            lambda logs: write_long(logs, steps),
            says=r"covers up to [\d,]+ windows",
        ),
        made(
            f"{runs:,} runs",
            bench.folder / "many",
            lambda logs: write_many(logs, runs),
            says=r"of [\d,]+ runs are drawn, [\d,]+ are not",
        ),
    ]
    for one in both:
        data = one.path.read_bytes()
        yield Row(f"{one.title}: page", "", [len(data) / MB], LARGEST, unit="MB")
        yield Row(f"{one.title}: page, gzipped", "", [len(gzip.compress(data)) / MB], unit="MB")
        for lap in ("compute", "content", "render"):
            took = one.took[lap]
            yield Row(f"{one.title}: {lap}", "", [took.wall_s], unit="s", cost=[took])
    if chromium() is None:
        yield skipped("opening the pages", "Chromium is not installed", AS_LONG)
    else:
        yield from opening(both, empty_pages(bench.folder), bench.repeats)


WORKS: Final = (pages,)
SIZES: Final = {
    "steps": Size(100_000, 1_000_000, "steps of the long run"),
    "runs": Size(500, 2_000, "runs of the large store"),
}

if __name__ == "__main__":
    main(__doc__, WORKS, Bench, SIZES, repeats=Size(3, 7, "how often each page is opened"))
