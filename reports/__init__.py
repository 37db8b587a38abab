"""What is said and drawn of runs: who is faster, why a log says otherwise, charts, the page.

    from reports import compare, current_metrics, draw, explain, per_step
    from reports import query, report, save_report

    compare(analysis).sentences

current_metrics  metrics of a store's runs, kept from one look to the next
query            SQL over a store and these metrics
compare          who is faster, by how much, how sure
explain          one run: the formula with its numbers, and from the log's figure to ours
per_step         the pace at each logged step
report           all that the page says, as data, with its charts
draw             one of these charts, which a notebook shows and Altair goes on with
save_report      the page, Markdown or JSON as a file

All of it by task: docs/python.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.comparison import compare
    from reports.content import report
    from reports.export import draw
    from reports.files import save_report
    from reports.run_series import per_step
    from reports.scores import current_metrics, query
    from reports.summary import explain
else:
    from ingest.on_demand import on_demand

    __getattr__ = on_demand(
        __name__,
        {
            "compare": "reports.comparison",
            "current_metrics": "reports.scores",
            "draw": "reports.export",
            "explain": "reports.summary",
            "per_step": "reports.run_series",
            "query": "reports.scores",
            "report": "reports.content",
            "save_report": "reports.files",
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
