"""Texts and charts of runs: who is faster, why logs disagree, charts, the page.

    from fairmfu.reports import compare, current_metrics, draw, explain, per_step
    from fairmfu.reports import query, report, save_report

    compare(analysis).sentences

current_metrics  metrics of a store's runs, kept between calls
query            SQL over a store and these metrics
compare          who is faster, by how much, with what confidence
explain          a run: the formula with numbers, and steps from the log's figure to ours
per_step         the pace at each logged step
report           all contents of the page, as data, with charts
draw             a chart of a report, for a notebook or further work in Altair
save_report      the page, Markdown or JSON as a file

All by task: docs/python.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairmfu.reports.charts.run_series import per_step
    from fairmfu.reports.comparison.comparison import compare
    from fairmfu.reports.page.chart_export import draw
    from fairmfu.reports.page.output_files import save_report
    from fairmfu.reports.page.report_data import report
    from fairmfu.reports.store.metrics_store import current_metrics, query
    from fairmfu.reports.text.run_explained import explain
else:
    from fairmfu.ingest.core.lazy_exports import on_demand

    __getattr__ = on_demand(
        __name__,
        {
            "compare": ".comparison.comparison",
            "current_metrics": ".store.metrics_store",
            "draw": ".page.chart_export",
            "explain": ".text.run_explained",
            "per_step": ".charts.run_series",
            "query": ".store.metrics_store",
            "report": ".page.report_data",
            "save_report": ".page.output_files",
        },
    )

__all__ = [
    "compare",
    "current_metrics",
    "draw",
    "explain",
    "per_step",
    "query",
    "report",
    "save_report",
]
