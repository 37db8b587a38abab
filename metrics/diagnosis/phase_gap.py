"""Phase that makes most of the difference in step time between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..core.run_table import MetricsRow

REST: Final = "rest"


@dataclass(frozen=True, slots=True)
class PhaseGap:
    """Largest part of a difference between two runs.

    phase: one of ingest.core.schema.PHASES
    seconds, baseline_seconds: per step of the baseline's size, in the other run and the baseline
    gap_s: difference of the step times; share: part of this difference in the phase
    timed: phases that both logs time
    """

    phase: str
    seconds: float
    baseline_seconds: float
    gap_s: float
    share: float
    timed: tuple[str, ...]


def phase_gap(run: MetricsRow, baseline: MetricsRow) -> PhaseGap | None:
    """Return the phase with the largest part of the gap; None if it is unknown.

    Compared are times of equal tokens per GPU, or of equal samples if no log states tokens. A phase
    that only one of the two logs times counts as rest. Unknown without both, without a phase that
    both logs time, or if the timers of a run exceed its step.
    """
    ours, theirs = _of_step(run), _of_step(baseline)
    (work, unit), (baseline_work, baseline_unit) = map(work_per_gpu, (run, baseline))
    if not (ours and theirs and work and baseline_work) or unit != baseline_unit:
        return None
    if ("forward_backward" in ours) != ("forward_backward" in theirs):
        ours, theirs = _joined(ours), _joined(theirs)
    both = [phase for phase in theirs if phase in ours and phase != REST]
    if not both:
        return None
    scale = baseline_work / work
    ours = {phase: scale * seconds for phase, seconds in _merged(ours, both).items()}
    theirs = _merged(theirs, both)
    gap = sum(ours.values()) - sum(theirs.values())
    if not gap:
        return None
    phase = max(ours, key=lambda name: (ours[name] - theirs[name]) / gap)
    share = (ours[phase] - theirs[phase]) / gap
    return PhaseGap(phase, ours[phase], theirs[phase], gap, share, tuple(both))


def work_per_gpu(row: MetricsRow) -> tuple[float | None, str]:
    """Return the tokens of a step of one GPU, and the unit; samples without tokens."""
    if row["tokens_per_gpu_step"] or row["tgs"] is not None:
        return row["tokens_per_gpu_step"], "tokens"
    batch, gpus = row["samples_per_update"], row["gpus"]
    return (batch / gpus if batch and gpus else None), "samples"


def phase_share(row: MetricsRow, phase: str) -> float:
    """Return the share of a typical step in a phase; 0 if it is not timed."""
    return sum(each["share"] or 0.0 for each in row["phases"] or [] if each["phase"] == phase)


def _of_step(row: MetricsRow) -> dict[str, float]:
    """Return the seconds of a step by phase; empty if any is unknown."""
    rows = [each for each in row["phases"] or [] if each["share_of"] == "step"]
    if any(each["seconds"] is None for each in rows):
        return {}
    return {each["phase"]: each["seconds"] or 0.0 for each in rows}


def _joined(seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds with forward and backward as one phase."""
    parts = ("forward", "backward", "forward_backward")
    found = [seconds[name] for name in parts if name in seconds]
    others = {name: of for name, of in seconds.items() if name not in parts}
    return ({"forward_backward": sum(found)} if found else {}) | others


def _merged(seconds: dict[str, float], kept: list[str]) -> dict[str, float]:
    """Return the kept phases; all others are rest."""
    rest = sum(of for name, of in seconds.items() if name not in kept)
    return {name: seconds[name] for name in kept} | {REST: rest}
