"""Results of an audit: facts that logged figures prove, and factors to ours.

metrics.audit.audit and metrics.audit.bridge compute them. What only shows them imports no formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .formula_checks import FormulaFacts
    from .formula_era import Era


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of reproducing one run.

    reproduced: None if nothing was compared; `not_compared_reason` says why
    lines: lines of the column that most lines print; reproduced_lines: these less the lines that
        the worst column fails
    lines_by_column: column to (lines, reproduced)
    proven: facts of which no other usual value reproduces the run
    flops_per_token: by the framework's formula; flops_low, flops_high: bounds implied by the
        printed figures
    peak_flops: the framework's divisor for MFU [FLOP/s]; unit: the framework's extra factor on
        TFLOP/s
    unexplained: printed over predicted, the median; unexplained_low, unexplained_high: bounds from
        the rounding
    hypothesis: a change that reproduces all lines, if any; suspect: the fact that the hypothesis
        changes
    rate: median tokens/s of one device that the figures imply; rate_rounding: half of the last
        digit, as a fraction
    rounding: half of the last digit of each column, in the column's unit
    lengths: sequence lengths of the lines, if they differ [tokens]; solved_lengths: length of every
        line in order, if solved from the figures alone
    formula_facts: the formula's inputs, unstated ones filled in
    inferred: facts for which the figures leave a single value; fitting: facts that fit without
        proof, with an alternative that fits as well
    """

    era: Era | None = None
    reproduced: bool | None = None
    lines_by_column: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    proven: tuple[str, ...] = ()
    flops_per_token: float | None = None
    flops_low: float | None = None
    flops_high: float | None = None
    peak_flops: float | None = None
    unit: float = 1.0
    unexplained: float | None = None
    unexplained_low: float | None = None
    unexplained_high: float | None = None
    hypothesis: str | None = None
    suspect: str | None = None
    not_compared_reason: str = ""
    rate: float | None = None
    rate_rounding: float = 0.0
    rounding: Mapping[str, float] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    solved_lengths: tuple[int, ...] = ()
    formula_facts: FormulaFacts | None = None
    inferred: Mapping[str, str] = field(default_factory=dict)
    fitting: Mapping[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """Number of lines compared."""
        return max((lines for lines, _ in self.lines_by_column.values()), default=0)

    @property
    def fitting_text(self) -> str:
        """Text of the unproven facts that fit, with alternatives; may be empty."""
        shown = (name for name in SHOWN_FITTING if name in self.fitting)
        return ", ".join(f"{name} (so would {self.fitting[name]})" for name in shown)

    @property
    def reproduced_lines(self) -> int:
        """Number of lines less the failures of the worst column."""
        return self.lines - max((n - ok for n, ok in self.lines_by_column.values()), default=0)


SHOWN_FITTING: Final = ("model", "seq_len", "gpus", "global_batch_size", "recompute")
"""Facts whose alternatives are shown: our figures depend on them."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Reason why the log's figure is not ours, with its factor.

    cause: of metrics.audit.formula_era.GAP_CAUSES; text: explanation
    factor: multiplies the figure towards ours
    """

    cause: str
    text: str
    factor: float


@dataclass(frozen=True, slots=True)
class Bridge:
    """Path from a logged figure to ours: logged x every factor / unexplained = ours.

    figure: logged_mfu, logged_tflops [TFLOP/s per GPU] or logged_tgs [tokens/s/GPU]
    logged: the median over the steady windows; ours: by the one formula, exact attention
    unexplained: the logged figure over the framework's formula; low, high: bounds from the print's
        rounding, with 1 in between if the formula is the right one
    explained: only rounding is left, and no line of the run failed
    """

    figure: str
    logged: float
    ours: float
    factors: tuple[Factor, ...]
    unexplained: float
    low: float
    high: float
    explained: bool


def inferred_facts(run_id: str, audited: Audit) -> list[dict[str, Any]]:
    """Return facts that only the log's figures determine, as rows of facts."""
    origin = "inferred: by no other do the log's own figures come out"
    return [
        {
            "run_id": run_id,
            "name": name,
            "value": value,
            "origin": origin,
            "line": None,
            "text": None,
        }
        for name, value in audited.inferred.items()
    ]
