"""Throughput and utilisation of runs from their tables, by one formula; and the formula alone.

    from metrics import analyse, answer, ask, choose, price

    analysis = analyse(tables)
    analysis.metrics.select("name", "tgs", "mfu")

analyse  tables of runs to their metrics, per-step windows, FLOPs by operator, bridges
choose   rows of some runs, by name
ask      a question to the formula: a model, a length, a device
answer   what follows: FLOPs per token, rates, MFU, time
price    what a GPU-hour costs, as people write it

All of it by task: docs/python.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metrics.analysis import analyse
    from metrics.calculator import answer, ask
    from metrics.choice import choose
    from metrics.cost import price
else:
    from ingest.on_demand import on_demand

    __getattr__ = on_demand(
        __name__,
        {
            "analyse": "metrics.analysis",
            "answer": "metrics.calculator",
            "ask": "metrics.calculator",
            "choose": "metrics.choice",
            "price": "metrics.cost",
        },
    )

__all__ = ["analyse", "answer", "ask", "choose", "price"]
