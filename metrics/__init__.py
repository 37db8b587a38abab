"""Throughput and utilisation of runs from their tables, and the formula alone.

    from fairmfu.metrics import analyse, answer, ask, choose, price

    analysis = analyse(tables)
    analysis.metrics.select("name", "tgs", "mfu")

analyse  metrics, per-step windows, FLOPs by operator and bridges from tables of runs
choose   rows of some runs, by name
ask      a question to the formula: model, sequence length, accelerator
answer   FLOPs per token, rates, MFU and time
price    a GPU-hour price from its usual spelling

See docs/python.md for all tasks.
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
