"""Throughput and utilisation of runs from their tables, by one formula; and the formula alone.

    from fairmfu.metrics import analyse, answer, ask, choose, price

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
    from fairmfu.metrics.compare.cost import price
    from fairmfu.metrics.core.run_selection import choose
    from fairmfu.metrics.pipeline.analysis import analyse
    from fairmfu.metrics.pipeline.calculator import answer, ask
else:
    from fairmfu.ingest.core.lazy_exports import on_demand

    __getattr__ = on_demand(
        __name__,
        {
            "analyse": ".pipeline.analysis",
            "answer": ".pipeline.calculator",
            "ask": ".pipeline.calculator",
            "choose": ".core.run_selection",
            "price": ".compare.cost",
        },
    )

__all__ = ["analyse", "answer", "ask", "choose", "price"]
