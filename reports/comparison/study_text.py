"""Studies in words: the answer in a sentence, a table of settings, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from fairmfu.metrics.compare.comparability import COLUMN_LABELS, REPEAT_KEY_COLUMNS
from fairmfu.metrics.compare.comparison_row import STATED_BY_SOME, ComparisonRow
from fairmfu.metrics.compare.repeated_runs import MIN_REPEATS, SpeedRatio, speed_ratio
from fairmfu.metrics.compare.scaling import (
    SAME_SIZE,
    ScalePoint,
    batch_growth,
    one_doubling_ahead,
    scale_points,
)
from fairmfu.metrics.compare.studies import (
    BATCH,
    DEVICE,
    FACTS,
    FOLLOWS,
    GPUS,
    LAYOUT,
    SOFTWARE,
    Change,
    Effect,
    Setting,
    Study,
    partly_stated,
    value_words,
)
from fairmfu.metrics.core.run_table import not_null, short_doubt, value_of

from ..text.claims_text import join_words, rate_doubts
from ..text.markdown import MARKDOWN_STYLE
from ..text.run_narrative import BAD_OUTCOMES, OUTCOME_LABELS
from ..text.runs_table import Columns
from ..text.tabular import (
    GIB,
    count,
    count_noun,
    decimal,
    percent,
    printable,
    render_frame,
    wrapped,
)
from ..text.verdict import PLAIN_STYLE, gap_sentence, price_words, ratio_words

MAX_NAMED_FACTS: Final = 4
"""Most facts that a heading and a sentence name."""
MAX_NAMED_EFFECTS: Final = 4
"""Most effects of single facts in the first sentence; the table has all."""
COMMON_FACTS: Final = ("seq_len", "precision", GPUS, DEVICE)
"""Facts that a heading names, if all runs share them."""
BATCH_WORDS: Final = {
    "weak": "weak scaling: the batch grows with the GPUs",
    "strong": "strong scaling: the batch stays the same",
    "mixed": "the batch per GPU changes too",
}


def study_heading(study: Study) -> str:
    """Return the question, the model and the shared facts."""
    first = study.baseline.first
    made_up = " [synthetic]" if first["synthetic"] else ""
    settings = [effect.setting for effect in study.effects]
    shared = [_fact_words(name, first) for name in COMMON_FACTS if _is_shared(name, settings)]
    model = first["model"] or ("one model" if first["work"] else "unnamed model")
    about = ", ".join([f"{model} ({first['log_format']})", *filter(None, shared)])
    few = len(study.by) <= MAX_NAMED_FACTS
    by = _facts(study.by) if few else f"{len(study.by)} facts"
    return f"{QUESTIONS[study.kind].format(by=by)}: {about}{made_up}"


QUESTIONS: Final = {
    "repeats": "Repeats",
    "change": "Change of {by}",
    "knobs": "Effect of {by}",
    "scale": "Scale",
    "accelerators": "Accelerators",
}


def _facts(names: Sequence[str]) -> str:
    return join_words([COLUMN_LABELS.get(name, name) for name in names])


def _is_shared(name: str, settings: Sequence[Setting]) -> bool:
    return len({setting.values[name] for setting in settings}) == 1


def _fact_words(name: str, row: ComparisonRow) -> str:
    value = value_of(row, name)
    if value is None:
        return ""
    nouns = {"seq_len": " tokens", GPUS: " GPU" if value == 1 else " GPUs"}
    return f"{value:,}{nouns[name]}" if name in nouns else str(value)


def shown_studies(rows: Sequence[ComparisonRow], studies: Sequence[Study]) -> list[Study]:
    """Return the studies that say more than the verdicts on like-for-like runs.

    Two set-ups of one framework that are like for like have a verdict of their own.
    """
    group_of = {row["run_id"]: row["group"] for row in rows}
    return [study for study in studies if _says_more(study, group_of)]


def _says_more(study: Study, group_of: Mapping[str, str | None]) -> bool:
    groups = {group_of[run] for effect in study.effects for run in _rated(effect.setting)}
    if study.kind in ("scale", "accelerators"):
        return True
    return len(study.effects) > 2 or len(groups) > 1 or None in groups  # noqa: PLR2004 - a pair


# --- the answer ---------------------------------------------------------------------------


def study_sentence(study: Study) -> str:
    """Return the answer of a study; the heading says of which runs."""
    told = {
        "repeats": _of_repeats,
        "scale": _of_scale,
        "accelerators": _of_accelerators,
    }.get(study.kind, _of_knobs)
    settings = [effect.setting for effect in study.effects]
    doubted = [study.baseline, *(one for one in settings if one is not study.baseline)]
    doubts = study_doubts(doubted)
    return f"{told(study)}{doubts and f' {doubts}'}{_assumed(study)}"


def study_doubts(settings: Sequence[Setting]) -> str:
    """Return the doubts about rates that have an interval, as a sentence, or nothing.

    settings: the baseline first
    """
    sides = [one.side for one in settings if one.side is not None]
    is_pair = len(sides) == len(settings) == 2  # noqa: PLR2004 - a baseline and an effect
    ratio = sides[1].rate / sides[0].rate if is_pair else None
    return rate_doubts(sides, ratio, PLAIN_STYLE.name)


ASSUMED: Final = (DEVICE, GPUS, "precision", "seq_len", "recompute")
"""Facts that decide a speed, and are assumed to be equal where no log of a study states them."""


UNREAD_OPTIONS: Final = " Options that fairmfu does not read may differ too."
"""Doubt about an effect of a version, beside which logs print many options."""


def _assumed(study: Study) -> str:
    if study.kind == "repeats":
        return ""
    settings = [effect.setting for effect in study.effects]
    unknown = [n for n in ASSUMED if all(setting.values[n] is None for setting in settings)]
    first = study.baseline.first
    unknown = unknown if first["work"] or first["model"] else ["model", *unknown]
    partly = partly_stated(settings)
    told = UNREAD_OPTIONS if study.kind == "change" else ""
    told += f" This assumes equal {_facts(unknown)}, which no log states." if unknown else ""
    also = f" Unknown for some, and may differ: {_facts(partly)}." if partly else ""
    return told + also


def _of_repeats(study: Study) -> str:
    side = not_null(study.baseline.side)
    rates = [not_null(row["ranked_rate"]) for row in side.rows]
    spread = percent(max(rates) / min(rates) - 1)
    estimate = side.estimate
    ends = "" if estimate is None else f" ({count(estimate.low)} to {count(estimate.high)})"
    return (
        f"{side.repeats} runs of one set-up have {count(side.rate)}{ends} {side.unit} on average, "
        f"and differ by {spread}."
    )


def _of_knobs(study: Study) -> str:
    single = [effect for effect in study.effects if len(effect.changes) == 1 and effect.ratio]
    steps = [effect for effect in study.effects if effect.step_ratio is not None]
    best = max(
        (effect for effect in study.effects if effect.ratio is not None),
        key=lambda effect: not_null(effect.ratio).ratio,
        default=None,
    )
    if best is None or best.ratio is None:
        return f"No ratio: {_why_no_ratio(study)}."
    told = [_gain(effect.changes[0], not_null(effect.ratio)) for effect in single]
    told += [_step(effect, study) for effect in steps]
    shown = told[:MAX_NAMED_EFFECTS]
    more = len(told) - len(shown)
    listed = "; ".join([*shown, *([f"{more} more in the table"] if more else [])])
    if all(len(effect.changes) <= 1 for effect in study.effects):
        return f"{listed}."
    base = next(effect for effect in study.effects if effect.setting is study.baseline)
    of_base = _label(base, study)
    if len(study.by) > MAX_NAMED_FACTS:
        of_base = str(base.setting.first["label"])
    ahead = f"Against {of_base}, the best is {_label(best, study)}. It "
    if best.ratio.ratio < 1:
        of_base = "the fastest"
        first, second = (_whole_label(one, study, (base, best)) for one in (base, best))
        ahead = f"Fastest is {first}. Next is {second}. It "
    one = f" Settings that differ in one fact only: {listed}." if listed else ""
    how = f"is {_apart(best.ratio)}{_as_fast_as(best, study)}."
    return f"{ahead}{how}{one}{_confounded(study, of_base)}"


def _as_fast_as(best: Effect, study: Study) -> str:
    """Return how many other settings the data cannot tell from the best."""
    fastest = best.setting.side
    others = [e.setting.side for e in study.effects if e is not best and e.ratio is not None]
    if fastest is None:
        return ""
    tied = [side for side in others if side is not None and speed_ratio(fastest, side).is_tied]
    return f", with no clear difference to {count_noun(len(tied), 'other setting')}" if tied else ""


def _gain(change: Change, ratio: SpeedRatio) -> str:
    return _effect_words(change, ratio)


def _step(effect: Effect, study: Study) -> str:
    """Return the effect of the last fact of a setting, and the other facts beside it."""
    change, ratio = not_null(effect.step_change), not_null(effect.step_ratio)
    beside = [c for c in effect.changes if c.name != change.name]
    few = beside and len(study.by) <= MAX_NAMED_FACTS
    at = f"at {join_words([*map(_after, beside)])}, " if few else ""
    return at + _effect_words(change, ratio)


def _effect_words(change: Change, ratio: SpeedRatio) -> str:
    """Return a change in words, with its effect."""
    label = COLUMN_LABELS.get(change.name, change.name)
    before, after = value_words(change.before), value_words(change.after)
    if change.before is None or change.after is None:  # not stated is no value
        return f"{label} {after} is {_apart(ratio, f' as {label} {before}')}"
    return f"{_change_words(change)}: {_apart(ratio)}"


def _apart(ratio: SpeedRatio, than: str = "") -> str:
    """Return a ratio with its confidence.

    than: the words after `as fast`
    """
    told = f"{ratio_words(ratio)} as fast{than}"
    if ratio.no_interval_reason is not None:
        return f"{told}, no interval ({ratio.no_interval_reason})"
    if not ratio.is_tied:
        return told
    least = ratio.smallest_difference
    shows = "" if least is None or least >= 1 else f"; {percent(least)} or more would be visible"
    return f"{told} (no clear effect: the interval contains 1{shows})"


def _after(change: Change) -> str:
    return f"{COLUMN_LABELS.get(change.name, change.name)} {value_words(change.after)}"


def _confounded(study: Study, base: str) -> str:
    """Return the settings in which several facts changed at once.

    base: the setting that they are compared with
    """
    several = [effect for effect in study.confounded if effect.ratio is not None]
    if not several:
        return ""
    if len(several) == 1:
        changes = join_words([*map(_change_words, several[0].changes)])
        return f" Confounded: {changes} change together, so the effect of each is unknown."
    names = dict.fromkeys(COLUMN_LABELS.get(c.name, c.name) for e in several for c in e.changes)
    return (
        f" Confounded: {len(several)} settings differ from {base} in several facts at once "
        f"({', '.join(names)}), so the effect of each fact is unknown."
    )


def _change_words(change: Change) -> str:
    label = COLUMN_LABELS.get(change.name, change.name)
    return f"{label} {value_words(change.before)} -> {value_words(change.after)}"


def _why_no_ratio(study: Study) -> str:
    bad = [e.setting.first for e in study.effects if e.setting.side is None]
    return (
        "no rate of " + join_words([str(row["label"]) for row in bad[:3]])
        if bad
        else ("the tokens are not counted alike")
    )


def _of_scale(study: Study) -> str:
    points = scale_points(study)
    first, last = points[0], points[-1]
    if last.efficiency is None:
        return f"Only {first.gpus} GPUs have a rate."
    growth = batch_growth(study)
    how = f" ({BATCH_WORDS[growth]}{_also(first, last)})" if growth else ""
    ratio = last.efficiency
    ends = ""
    if ratio.low is not None and ratio.high is not None:
        ends = f" (95 % interval {100 * ratio.low:.1f} to {100 * ratio.high:.1f})"
    text = (
        f"On {last.gpus:,} GPUs each has {percent(ratio.ratio)}{ends} of its speed on "
        f"{first.gpus:,}{how}."
    )
    worst = min(points[1:], key=lambda point: not_null(point.per_doubling))
    if len(points) > 2:  # noqa: PLR2004 - more than one step
        before = points[points.index(worst) - 1]
        text += (
            f" The costliest step is {before.gpus:,} to {worst.gpus:,}: "
            f"{percent(not_null(worst.per_doubling))} kept per doubling."
        )
    ahead = one_doubling_ahead(study)
    if ahead is not None:
        text += (
            f" On {ahead.gpus:,} GPUs expect {100 * ahead.low:.0f} to {percent(ahead.high)} of the "
            f"speed on {first.gpus:,} (90 % interval)."
        )
    if ratio.ratio > 1 + SAME_SIZE:
        return f"{text} Above 100 %: the run on {first.gpus:,} is no fair baseline."
    gap = gap_sentence(last.effect.setting.first, first.effect.setting.first)
    return f"{text} {gap}".strip()


def _also(first: ScalePoint, last: ScalePoint) -> str:
    """Return the facts that change with the GPUs from the fewest to the most."""
    changes = [c for c in last.effect.changes if c.name != GPUS] if first is not last else []
    told = [
        f"{COLUMN_LABELS.get(c.name, c.name)} {value_words(c.before)} -> {value_words(c.after)}"
        for c in changes
    ]
    return f"; also {', '.join(told)}" if changes else ""


def _of_accelerators(study: Study) -> str:
    others = (e for e in study.effects if any(c.name == DEVICE for c in e.changes))
    rated = [effect for effect in others if effect.ratio is not None]
    if not rated:
        return f"No ratio: {_why_no_ratio(study)}."
    base = value_words(study.baseline.values[DEVICE])
    told = []
    for effect in rated[:MAX_NAMED_EFFECTS]:
        ratio, name = not_null(effect.ratio), value_words(effect.setting.values[DEVICE])
        doubted = study_doubts([study.baseline, effect.setting])
        is_fair = {change.name for change in effect.changes} <= OFFER_FACTS
        price = price_words(ratio) if is_fair and not doubted else ""
        told.append(f"{name} is {_apart(ratio, f' per GPU as {base}')}{price and f', {price}'}")
    offers = "A comparison of offers: set-ups may differ."
    return f"{'; '.join(told)}.{_costs(study)} {offers}{_confounded(study, base)}"


OFFER_FACTS: Final = {DEVICE, GPUS, *BATCH, *LAYOUT, *SOFTWARE}
"""Facts that follow from an offer. With others, the offer is not all that differs."""


def _costs(study: Study) -> str:
    """Return what 1 billion tokens cost on each accelerator; empty without prices."""
    settings = [effect.setting for effect in study.effects if effect.setting.side is not None]
    told = [
        f"{cost:,.2f} on {one.values[DEVICE]} (at {one.first['price_per_gpu_hour']})"
        for one in settings
        if (cost := one.pooled("cost_per_billion_tokens")) is not None
    ]
    return f" 1 billion tokens cost {join_words(told)}." if told else ""


# --- tables and notes ---------------------------------------------------------------------

Order = Mapping[str, int] | None
"""Place of each run_id in tables; None: the order of the study."""


def study_text(study: Study, output: str, order: Order = None, *, headed: bool = True) -> str:
    """Return heading, table and notes of a study, as in a terminal."""
    blocks = [f"{printable(study_heading(study))}"] if headed else []
    blocks.append(study_table(study, output, order))
    blocks += [wrapped(f"- {printable(note)}") for note in study_notes(study)]
    return "\n".join(blocks)


def study_markdown(study: Study, order: Order = None) -> str:
    """Return heading, sentence, table and notes of a study as Markdown."""
    plain = MARKDOWN_STYLE.plain
    notes = "\n".join(f"- {plain(note)}" for note in study_notes(study))
    told = f"{plain(study_sentence(study))}"
    table = study_table(study, "markdown", order)
    parts = (f"### {plain(study_heading(study))}", told, table, notes)
    return "\n\n".join(filter(None, parts))


def study_table(study: Study, output: str, order: Order = None) -> str:
    """Return the table of a study."""
    frame = study_frame(study, order)
    columns = SCALE_COLUMNS if study.kind == "scale" else SETTING_COLUMNS
    filled = {n: how for n, how in columns.items() if frame[n].null_count() < frame.height}
    return render_frame(frame, output, filled, droppable=DROPPABLE_COLUMNS)


_COSTS: Final[Columns] = {
    "gpu_hours_per_billion_tokens": ("GPU-h per\n1 billion tokens", decimal),
    "cost_per_billion_tokens": ("cost of\n1 billion tokens", "{:,.2f}".format),
    "kwh_per_billion_tokens": ("kWh per\n1 billion tokens", decimal),
}
_USE: Final[Columns] = {
    "mfu": ("MFU exact\nattention", percent),
    "peak_memory_bytes": ("peak\nGiB", lambda memory: f"{memory / GIB:.1f}"),
    "seconds_per_step": ("s a\nstep", "{:.3g}".format),
}
_DOUBTS: Final[Columns] = {"doubt": ("doubt", str), "outcome": ("outcome", str)}
SETTING_COLUMNS: Final[Columns] = {
    "setting": ("setting", str),
    "runs": ("runs", str),
    "tgs": ("TGS", count),
    "samples_per_second": ("samples/s", count),
    "against_baseline": ("against baseline", str),
    "one_fact": ("this change alone", str),
    **_USE,
    "tokens_per_update": ("tokens per\nupdate", count),
    **_COSTS,
    **_DOUBTS,
}
SCALE_COLUMNS: Final[Columns] = {
    "gpus": ("GPUs", count),
    "runs": ("runs", str),
    "tgs": ("TGS", count),
    "tokens_per_second": ("tokens/s\nof all GPUs", count),
    "samples_per_second": ("samples/s\nof all GPUs", count),
    "efficiency": ("efficiency", str),
    "per_doubling": ("kept per\ndoubling", percent),
    **_USE,
    **_COSTS,
    "setting": ("also differs", str),
    **_DOUBTS,
}
DROPPABLE_COLUMNS: Final = (
    *(
        "one_fact",
        "tokens_per_update",
        "seconds_per_step",
        "gpu_hours_per_billion_tokens",
        "tokens_per_second",
    ),
    *("per_doubling", "peak_memory_bytes"),
)
"""Columns that a narrow terminal omits, in this order."""


def study_frame(study: Study, order: Order = None) -> pl.DataFrame:
    """Return a row per setting of a study, columns of STUDY_SCHEMA.

    order: a setting has the place of its fastest run

    setting: what differs from the baseline; run: its fastest run; runs: their number
    tgs [tokens/s/GPU], samples_per_second: the pooled rate; ratio, ratio_low, ratio_high: to the
        baseline; one_fact: the effect of the one fact by which a setting nearer to the baseline
        differs; efficiency and per_doubling: of a study of scale
    """
    points = {point.gpus: point for point in scale_points(study)} if study.kind == "scale" else {}
    effects = list(study.effects)
    if order is not None:
        effects.sort(key=lambda effect: order[effect.setting.first["run_id"]])
    rows = [_frame_row(study, effect, points) for effect in effects]
    return pl.DataFrame(rows, schema=STUDY_SCHEMA, strict=False)


STUDY_SCHEMA: Final = pl.Schema(
    {
        "question": pl.String,
        "setting": pl.String,
        "run": pl.String,
        "runs": pl.Int64,
        GPUS: pl.Int64,
        "tgs": pl.Float64,
        "samples_per_second": pl.Float64,
        "tokens_per_second": pl.Float64,
        "ratio": pl.Float64,
        "ratio_low": pl.Float64,
        "ratio_high": pl.Float64,
        "against_baseline": pl.String,
        "one_fact": pl.String,
        "efficiency": pl.String,
        "per_doubling": pl.Float64,
        "mfu": pl.Float64,
        "peak_memory_bytes": pl.Float64,
        "seconds_per_step": pl.Float64,
        "tokens_per_update": pl.Float64,
        "gpu_hours_per_billion_tokens": pl.Float64,
        "cost_per_billion_tokens": pl.Float64,
        "kwh_per_billion_tokens": pl.Float64,
        "doubt": pl.String,
        "outcome": pl.String,
    }
)


def _frame_row(study: Study, effect: Effect, points: dict[int, ScalePoint]) -> dict[str, Any]:
    setting, first = effect.setting, effect.setting.first
    ratio, tgs, gpus = effect.ratio, setting.tgs, first["gpus"]
    point = points.get(gpus) if gpus is not None else None
    shown = point is not None and point.effect is effect
    bad = [row["outcome"] for row in setting.rows if row["outcome"] in BAD_OUTCOMES]
    step = effect.step_change
    return {
        "question": study_heading(study),
        "setting": _label(effect, study),
        "run": first["label"],
        "runs": len(setting.rows),
        GPUS: gpus,
        "tgs": tgs,
        "samples_per_second": setting.samples_per_second,
        "tokens_per_second": tgs * gpus if tgs is not None and gpus else None,
        "ratio": ratio and ratio.ratio,
        "ratio_low": ratio and ratio.low,
        "ratio_high": ratio and ratio.high,
        "against_baseline": ratio_words(ratio) if ratio else None,
        "one_fact": f"{_after(step)}: {ratio_words(effect.step_ratio)}"
        if step and effect.step_ratio
        else None,
        "efficiency": _efficiency(point) if shown and point else None,
        "per_doubling": point.per_doubling if shown and point else None,
        "mfu": setting.mfu,
        "doubt": _table_doubt(setting),
        "outcome": ", ".join(dict.fromkeys(OUTCOME_LABELS[one] for one in bad)) or None,
        "peak_memory_bytes": setting.most("peak_memory_bytes"),
        "tokens_per_update": setting.common("tokens_per_update"),
        **{name: setting.pooled(name) for name in POOLED_COLUMNS},
    }


POOLED_COLUMNS: Final = (
    *("seconds_per_step", "gpu_hours_per_billion_tokens", "cost_per_billion_tokens"),
    "kwh_per_billion_tokens",
)
"""Figures of a setting that are means over the same runs as its rate."""


def _table_doubt(setting: Setting) -> str | None:
    """Return the commonest doubt of the runs of a setting; None without doubts."""
    doubts = [short_doubt(row["doubts"]) for row in setting.rated]
    found = Counter(doubt for doubt in doubts if doubt is not None).most_common(1)
    if not found:
        return None
    doubt, times = found[0]
    return (
        doubt if times == len(doubts) else f"{doubt} ({times} of {count_noun(len(doubts), 'run')})"
    )


def _efficiency(point: ScalePoint) -> str:
    ratio = point.efficiency
    if ratio is None:
        return "100 %"
    if ratio.low is None or ratio.high is None:
        return percent(ratio.ratio)
    return f"{percent(ratio.ratio)} ({100 * ratio.low:.1f} to {100 * ratio.high:.1f})"


def _label(effect: Effect, study: Study) -> str:
    """Return the differences from the baseline; for the baseline, its facts."""
    setting = effect.setting
    if setting is study.baseline:
        pairs = [(name, setting.values[name]) for name in study.by]
        pairs = [(name, value) for name, value in pairs if value is not None]
    else:
        pairs = [(change.name, change.after) for change in effect.changes]
    hidden = GPUS if study.kind == "scale" else None
    told = [_after(Change(name, None, value)) for name, value in pairs if name != hidden]
    return ", ".join(told) or ("" if study.kind == "scale" else "no stated difference")


def _whole_label(effect: Effect, study: Study, among: Iterable[Effect]) -> str:
    """Return the facts of a setting that any setting `among` some states.

    The run's name if the facts are many.
    """
    if len(study.by) > MAX_NAMED_FACTS:
        return str(effect.setting.first["label"])
    stated = [n for n in study.by if any(one.setting.values[n] is not None for one in among)]
    return ", ".join(_after(Change(n, None, effect.setting.values[n])) for n in stated)


def study_notes(study: Study) -> list[str]:
    """Return runs without a rate, and doubts about the intervals and the facts."""
    notes = (_speed_alone(study), _failed(study), _once(study), _unlike(study))
    return [note for note in notes if note]


def _speed_alone(study: Study) -> str:
    """Return that losses are not compared, where a setting may train otherwise."""
    if not {"precision", "samples_per_update", "micro_batch_size"}.intersection(study.by):
        return ""
    return "This is speed alone: losses are not compared."


def _failed(study: Study) -> str:
    """Return the runs without a rate, with their outcome or the reason."""
    told = []
    for effect in study.effects:
        for row in effect.setting.rows:
            if effect.setting.side is None or row["run_id"] not in _rated(effect.setting):
                bad = row["outcome"] in BAD_OUTCOMES
                why = OUTCOME_LABELS[row["outcome"] or ""] if bad else row["not_ranked"][0]
                told.append(f"{row['label']} ({why})")
    shown = told[:MAX_NAMED_EFFECTS]
    more = f" and {len(told) - len(shown)} more" if len(told) > len(shown) else ""
    return f"Without a rate: {', '.join(shown)}{more}." if told else ""


def _rated(setting: Setting) -> set[str]:
    return set() if setting.side is None else {row["run_id"] for row in setting.side.rows}


def _once(study: Study) -> str:
    """Return that the noise between runs is unknown, and the remedy."""
    sides = [effect.setting.side for effect in study.effects if effect.setting.side is not None]
    once = [side for side in sides if not side.has_run_interval]
    if not once:
        return ""
    every = len(once) == len(sides)
    who = "All intervals leave" if every else f"{count_noun(len(once), 'interval')} leave"
    leave = f"{who if every or len(once) > 1 else f'{who}s'} out the noise between runs"
    if all(side.estimate is None for side in sides):
        leave = "The noise between runs is unknown"
    silent = [row for side in once if len(side.rows) >= MIN_REPEATS for row in side.rows]
    unknown = [n for n in REPEAT_KEY_COLUMNS if any(value_of(row, n) is None for row in silent)]
    if unknown:
        return (
            f"{leave}, because {_facts(unknown)} "
            f"{'is' if len(unknown) == 1 else 'are'} unknown, and runs may not repeat each other. "
            f"Fix: fairmfu set RUN {' '.join(f'{name}=VALUE' for name in unknown)}"
        )
    return (
        f"{leave}, because the settings have fewer than {MIN_REPEATS} runs. Fix: run each setting "
        "three times."
    )


def _unlike(study: Study) -> str:
    """Return facts that only some settings state, and that therefore may differ."""
    settings = [effect.setting for effect in study.effects]
    partly = [
        COLUMN_LABELS.get(name, name)
        for name in FACTS
        if name not in study.by
        and name not in FOLLOWS
        and any(setting.values[name] is None for setting in settings)
        and any(setting.values[name] is not None for setting in settings)
    ]
    return f"{STATED_BY_SOME}{', '.join(partly)}." if partly else ""
