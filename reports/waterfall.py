"""From a log's figure to ours, as a chart."""

from __future__ import annotations

from metrics.reconcile import Bridge
from reports.figure import Figure


def waterfall(bridge: Bridge, framework: str, formula: str | None) -> Figure:
    """From the log's figure to ours, a bar for each factor; what is unexplained stands last.

    formula: name of the framework's own, None where none is known. The axis begins at 0, so that a
    step is as long as its share of the figure; it is logarithmic only where the figure moves by
    more than `FAR`.
    """
    raise NotImplementedError
