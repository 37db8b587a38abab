"""Runs in words: outcome, confidence in the rate, lost time."""

from __future__ import annotations

import re
from typing import Final

from fairmfu.ingest.core.schema import OUTCOMES, THEN_FAILED
from fairmfu.metrics.core.run_table import MetricsRow, PhaseTime, TimeLost, not_null
from fairmfu.metrics.core.run_words import EVIDENCE_LABELS, SLOWER_SPEED, timed_word
from fairmfu.metrics.diagnosis.phase_gap import REST

from .tabular import percent

MIN_RANK_STEPS: Final = 20
"""Fewest steps of all ranks for a meaningful share of the slowest rank."""
MIN_STANDARD_ERRORS: Final = 4.0
"""Standard errors above chance of the share of a rank that is named. Of hundreds of equal ranks,
one is above 3."""


def outcome_sentence(row: MetricsRow) -> str:
    """Return the outcome of a launch, its predecessor, repeated steps and rank spread."""
    said = f' ("{text}")' if (text := last_words(row)) else ""
    parts = [f"Outcome: {_outcome_label(row)}{said}{_last_step(row)}"]
    if row["continues"]:
        parts.append(f"continues run {row['continues']}")
    if row["repeated_steps"]:
        parts.append(f"{row['repeated_steps']:,} of its logged steps were trained again later")
    if row["rank_spread"] is not None:
        parts.append(_ranks(row))
    return "; ".join(parts) + "."


def outcome_words(row: MetricsRow) -> str:
    """Return the outcome of a launch and its last step, without the words of the log."""
    return f"{_outcome_label(row)}{_last_step(row)}"


def last_words(row: MetricsRow) -> str:
    """Return the log's words on a bad end or a later failure, cut if long."""
    text = row["outcome_text"] or ""
    if row["outcome"] == "completed":
        text = text.partition(THEN_FAILED)[2]
    return _cut(text)


def collective_timeout(text: str | None) -> str:
    """Return the last words as `NCCL timeout (_ALLGATHER_BASE, rank 3)`.

    Empty if the log has other last words.
    """
    match = _COLLECTIVE_TIMEOUT.search(text or "")
    if match is None:
        return ""
    where = [match["operation"], *([f"rank {match['rank']}"] if match["rank"] else [])]
    return f"{match['library']} timeout ({', '.join(where)})"


_COLLECTIVE_TIMEOUT: Final = re.compile(
    r"(?:\bRank (?P<rank>\d+)\] )?Watchdog caught collective operation timeout: "
    r"Work(?P<library>\w+)\([^()]*\bOpType=(?P<operation>\w+)"
)


def _outcome_label(row: MetricsRow) -> str:
    label = OUTCOME_LABELS.get(row["outcome"] or "", "unknown")
    if row["outcome"] == "completed" and THEN_FAILED in (row["outcome_text"] or ""):
        return f"{label}; a process failed after the end of training"
    timeout = collective_timeout(row["outcome_text"]) if row["outcome"] == "crashed" else ""
    return f"{label}: {timeout}" if timeout else label


def _last_step(row: MetricsRow) -> str:
    """Return the last step of a launch that ended before its time, or may have."""
    last, whole, lines = row["last_step"], row["total_steps"], row["steps"]
    if last is None:
        return ""
    left = 0 if whole is None else whole - last
    if row["outcome"] != "completed":
        return f", last step {last:,}{f' of {whole:,}' if left > 0 else ''}"
    # what follows the last logged step prints nothing, if it is less than the usual distance
    if left > 0 and lines and left >= last / lines and lines > 1:
        return f" at step {last:,}, before the planned {whole:,}"
    return ""


def _cut(text: str) -> str:
    """Return a long line without its middle, cut at words.

    Launchers print the cause last.
    """
    if len(text) <= MAX_OUTCOME_TEXT:
        return text
    end = MAX_OUTCOME_TEXT // 4
    begin = text[: MAX_OUTCOME_TEXT - end - 3].rpartition(" ")[0]
    return f"{begin} … {text[-end:].partition(' ')[2] or text[-end:]}"


def _ranks(row: MetricsRow) -> str:
    ranks, steps = not_null(row["ranks"]), row["rank_steps"]
    spread = percent(not_null(row["rank_spread"]))
    text = f"step times of {ranks} logged ranks differ by {spread}"
    if row["slowest_rank"] is None or not_null(steps) < MIN_RANK_STEPS:
        return text
    share, chance = not_null(row["slowest_share"]), 1 / ranks
    noise = (chance * (1 - chance) / not_null(steps)) ** 0.5
    if share - chance < MIN_STANDARD_ERRORS * noise:
        return text
    return (
        f"{text}, and rank {row['slowest_rank']} is slowest in {whole_percent(share)} of {steps:,} "
        f"steps ({whole_percent(chance)} by chance)"
    )


OUTCOME_LABELS: Final = {
    "completed": "completed",
    "out_of_memory": "out of memory",
    "crashed": "crashed",
    "killed": "killed",
    "nan_loss": "loss or gradients became NaN",
    "incomplete": "incomplete (no end message, no error)",
}
BAD_OUTCOMES: Final = tuple(one for one in OUTCOMES if one not in ("completed", "incomplete"))
"""Outcomes that a first line names; `incomplete` may still run."""

MAX_OUTCOME_TEXT: Final = 320

TOKEN_BASES: Final = {
    "packed": "tokens without padding",
    "slots": "tokens including padding",
    "non_padding": "tokens without padding",
    "given": "tokens by a mean, not step by step",
}
"""Values of `token_basis` in words."""

END_TO_END: Final = {
    "stamp and first line": (
        "from the start of training; the first step timed by its logged duration, later steps by "
        "time stamps"
    ),
    "runtime": "over the logged run time",
    "printed samples/s": "from the samples/s of the last line, start-up included",
}


def end_to_end_words(row: MetricsRow) -> str:
    """Return the scope of the end-to-end rate."""
    basis = row["end_to_end_basis"] or ""
    kind, from_start, _ = basis.partition(" from start")
    since = "the start of training" if from_start else "the first step line"
    return END_TO_END.get(basis, f"from {since}, timed by {EVIDENCE_LABELS.get(kind, kind)}")


def confidence_text(row: MetricsRow) -> str:
    """Return how many windows the interval comes from, or why there is none."""
    if row["no_interval"] is not None:
        return f"no interval: {row['no_interval']}"
    if row["effective_windows"] is None:
        return ""
    windows, effective = f"{row['windows']:,}", f"{row['effective_windows']:,.0f}"
    if windows == effective:
        return f"{windows} windows"
    return f"{windows} windows (effective sample size {effective})"


def goodput_words(row: MetricsRow) -> str:
    """Return the scope of the goodput: one launch, or a chain of launches."""
    count = row["goodput_launches"]
    chain = f" over {count:,} launches up to this one" if count and count > 1 else ""
    lost = ""
    if row["lost_to_restarts_s"]:
        lost = f"; {seconds_text(row['lost_to_restarts_s'])} lost to restarts"
    share, slow = "", (row["tgs_without_spikes"] or 0.0) > (row["tgs"] or 0.0)
    if row["goodput_share"] is not None:
        usual = "the rate without slow time of unknown cause" if slow else "steady"
        share = f"{percent(row['goodput_share'])} of {usual}; "
    return f"{share}useful tokens / the whole wall time{chain}{lost}"


def mostly_slower(row: MetricsRow) -> bool:
    """Return whether most steps were slower than faster ones before them.

    Lost time is against the faster speed, which is then not the usual one.
    """
    windows = sum(level["windows"] for level in row["levels"] or [])
    slower = (
        each["windows"] or 0 for each in row["time_lost"] or [] if each["cause"] == SLOWER_SPEED
    )
    return sum(slower) > MAX_SLOWER_SHARE * windows


MAX_SLOWER_SHARE: Final = 1 / 2
"""Largest share of the windows that are slower than the usual speed."""


def undisturbed_steps(row: MetricsRow) -> str:
    """Return the part of the wall time that is not lost, in words."""
    speed = "the fastest speed before them" if mostly_slower(row) else "their usual speed"
    return f"all steps at {speed}"


def time_spent(row: MetricsRow) -> list[TimeLost]:
    """Return the wall time by cause: windows, seconds and share.

    Steady training comes first.
    """
    lost = row["time_lost"] or []
    if row["wall_s"] is None or not lost:
        return []
    share = 1 - sum(each["share"] for each in lost)
    seconds = share * row["wall_s"]
    steady: TimeLost = {
        "cause": undisturbed_steps(row),
        "windows": None,
        "seconds": seconds,
        "share": share,
    }
    return [steady, *lost]


def time_rows(row: MetricsRow) -> list[dict[str, str]]:
    """Return the rows of `time_spent` as texts."""
    return [
        {
            "cause": each["cause"],
            "windows": f"{each['windows']:,}" if each["windows"] else "",
            "time": seconds_text(each["seconds"]),
            "share": percent(each["share"]),
        }
        for each in time_spent(row)
    ]


PHASE_LABELS: Final = {"forward_backward": "forward and backward"}
"""Phases whose name is not their word."""

BESIDE: Final = {"step": "", "wall": ", averaged over all steps"}
SHARE_SCOPES: Final = {"step": "", "wall": " of wall time"}


def phase_label(phase: str) -> str:
    """Return a phase of a step in words."""
    return PHASE_LABELS.get(phase, phase)


def timed_phases(row: MetricsRow) -> list[PhaseTime]:
    """Return the phases of a step; empty if the log times none, so that all is rest."""
    phases = row["phases"] or []
    of_step = {each["phase"] for each in phases if each["share_of"] == "step"}
    return phases if of_step - {REST} else []


def phase_rows(row: MetricsRow) -> list[dict[str, str]]:
    """Return the phases of a step as texts."""
    return [
        {
            "phase": f"{phase_label(each['phase'])}{BESIDE[each['share_of']]}",
            "seconds": UNKNOWN if each["seconds"] is None else step_seconds(each["seconds"]),
            "share": UNKNOWN
            if each["share"] is None
            else percent(each["share"]) + SHARE_SCOPES[each["share_of"]],
            "windows": f"{each['windows']:,}",
            "source": each["source"],
        }
        for each in timed_phases(row)
    ]


UNKNOWN: Final = "unknown"


def step_seconds(seconds: float) -> str:
    """Return a part of a step with four digits: 597.5 ms, 12.54 s."""
    return f"{seconds:,.4g} s" if seconds >= 1 else f"{1e3 * seconds:.4g} ms"


def whole_percent(share: float) -> str:
    """Return 0.254 as 25 %."""
    return f"{100 * share:.0f} %"


MINUTE: Final = 60.0
HOUR: Final = 3600.0


def step_time(row: MetricsRow) -> str:
    """Return the time of a step, with a wide interval unless a TGS has one."""
    seconds, low, high = (
        row["seconds_per_step"],
        row["seconds_per_step_low"],
        row["seconds_per_step_high"],
    )
    text = f"{seconds_text(not_null(seconds))} a {timed_word(row)}"
    if row["tgs"] is not None or low is None or high is None:
        return text
    is_wide = high - low > MIN_SHOWN_INTERVAL * not_null(seconds)
    return f"{text} ({seconds_text(low)} to {seconds_text(high)})" if is_wide else text


MIN_SHOWN_INTERVAL: Final = 0.1
"""Width of an interval, as a share, from which a time of a step shows it."""


def seconds_text(seconds: float) -> str:
    """Return a time in its usual unit: 8.41 s, 12.3 min, 31.0 h."""
    if seconds >= HOUR:
        return f"{seconds / HOUR:,.1f} h"
    if seconds >= MINUTE:
        return f"{seconds / MINUTE:.1f} min"
    return f"{seconds:.3g} s"
