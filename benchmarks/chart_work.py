"""What `benchmarks.chart` has done in processes of their own.

python -m benchmarks.chart_work ours|raw|least LOG POINTS SVG

LOG: of a short run; its windows, repeated to so many points, with another noise for each, are drawn
into SVG. Prints JSON: seconds of the drawing, without imports and points, of `least` without what
is computed; how many points the drawing tells of, and the least and most of them [tokens/s/GPU].
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import altair as alt
import numpy as np
import polars as pl

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.runs.step_bins import WINDOW_COUNTED
from fairmfu.reports.charts import charts, render_process
from fairmfu.reports.charts.figure import Figure
from fairmfu.reports.page import chart_export
from fairmfu.reports.page.report_data import build_content

SEED: Final = 7


@dataclass(frozen=True)
class Points:
    """windows: as windows has them; metrics, row, events: of their run, as reports take it.

    raw: step and tokens/s/GPU of the same windows.
    """

    windows: pl.DataFrame
    metrics: pl.DataFrame
    row: dict[str, Any]
    events: pl.DataFrame

    @classmethod
    def of(cls, log: Path, count: int) -> Points:
        """So many windows of one run, by its short log."""
        tables = read_log_tables(log)
        analysis = analyse(tables)
        told = build_content(analysis, analysis.metrics, tables, "chart", None, "benchmark")
        evidence = analysis.metrics["time_basis"].item()
        steady = analysis.windows.filter(pl.col("warming").not_(), pl.col("first").not_())
        noise = np.exp(0.01 * np.random.default_rng(SEED).standard_normal(count))
        step = pl.int_range(1, count + 1, eager=True)
        windows = (
            pl.concat([steady] * (count // steady.height + 1))[:count]
            .rechunk()
            .with_columns(
                (pl.col(f"{evidence}_time") * pl.Series(noise)).alias(f"{evidence}_time"),
                step=step,
                line=step + 100,
                loss=pl.Series(2 + 9 / np.sqrt(step.to_numpy())),
            )
        )
        return cls(windows, analysis.metrics, dict(told.rows[0]), tables["events"].clear())

    @cached_property
    def course(self) -> tuple[pl.DataFrame, Figure]:
        """Of bins of steps, and as a figure."""
        series = charts.bin_windows(self.windows, self.metrics)
        marks = charts.event_marks(self.events, self.windows)
        figure = charts.course(series, marks, self.row)
        assert figure is not None  # noqa: S101 - there are windows
        return series, figure

    @property
    def raw(self) -> pl.DataFrame:
        """Step and tokens/s/GPU of each window."""
        evidence = self.row["time_basis"]
        tokens = pl.col(f"{evidence}_span") * pl.col("tokens_per_gpu")
        return self.windows.select("step", tgs=tokens / pl.col(f"{evidence}_time"))


def ours(points: Points, out: Path) -> Sequence[float]:
    """The course of a run as the report has it: TGS, MFU, loss and memory by bins of steps."""
    render_process.start_drawing("svg")
    return least(points, out)


def raw(points: Points, out: Path) -> Sequence[float]:
    """A line through the TGS of all of them, as Altair draws it: one panel of ours.

    Lines through their losses and memory beside it end vl_convert, which has no room for them.
    """
    alt.data_transformers.disable_max_rows()
    frame = points.raw
    alt.Chart(frame).mark_line().encode(x="step:Q", y="tgs:Q").save(out, format="svg")
    longest = max(re.findall(r' d="([^"]*)"', out.read_text(encoding="utf-8")), key=len)
    return _told(len(re.findall("[ML]", longest)), frame["tgs"].min(), frame["tgs"].max())


def least(points: Points, out: Path) -> Sequence[float]:
    """The same where the figure is made before: the library starts and draws."""
    series, figure = points.course
    out.write_text(chart_export.svg(figure), encoding="utf-8")
    counted = series.filter(pl.col("window") == WINDOW_COUNTED)
    return _told(counted["windows"].sum(), counted["low"].min(), counted["high"].max())


def _told(count: Any, least: Any, most: Any) -> list[float]:  # noqa: ANN401 - of a column
    return [float(count), float(least), float(most)]


def _processor() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def main() -> None:
    """Draw once."""
    name, log, count, out = sys.argv[1:]
    points = Points.of(Path(log), int(count))
    if name == "least":
        _ = points.course
    wall, cpu = time.perf_counter(), _processor()
    told = {"ours": ours, "raw": raw, "least": least}[name](points, Path(out))
    wall = time.perf_counter() - wall
    render_process.stop_drawing()  # so that its processor time counts
    took = {"wall_s": wall, "cpu_s": _processor() - cpu}
    print(json.dumps({**took, "told": told}))


if __name__ == "__main__":
    main()
