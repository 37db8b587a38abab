"""One offline HTML page: who is faster, by how much, how sure, and why the logs disagree.

`render` returns the page; nothing is fetched, now or when it is read: its content policy forbids
the network and runs only the scripts whose hashes it names. Every text that came from a log goes
through `esc`, or into JSON with each '<' escaped. No clock and no random id: the same frames give
the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from ingest.schema import FACT_NAMES
from metrics.fairness import (
    LABELS,
    SAME_WORK,
    varying,
    written,
)
from metrics.flops import FORMULA
from metrics.logged import Audit
from metrics.reconcile import Bridge
from metrics.repeats import sides
from metrics.utilization import METRICS
from reports import bridge, charts, course
from reports.charts import Chart
from reports.document import DASH, DOT, Column, Sheet, esc, number, table
from reports.logs import listed
from reports.tables import decimal
from reports.theme import ACCENT, FRAMEWORK_COLOURS
from reports.verdict import NONE_RANKED, Said, Style, between, counted, groups, joined, verdict

Row = Mapping[str, Any]

WHOLE: Final = 100
"""From here on a figure needs no decimals."""
LONG: Final = 160
"""Characters of a fact's value before it is folded."""
MOST_UNREAD: Final = 20
"""Lines per source that the page quotes; the store has all of them."""


def render(  # noqa: PLR0913 - the frames of one store
    *,
    title: str,
    metrics: pl.DataFrame,
    comparison: pl.DataFrame,
    windows: pl.DataFrame,
    facts_held: pl.DataFrame,
    operators: Mapping[str, pl.DataFrame],
    sources: pl.DataFrame,
    unread: pl.DataFrame,
    others: Mapping[str, pl.DataFrame],
    audits: Mapping[str, Audit],
    bridges: Mapping[str, Sequence[Bridge]],
    version: str,
) -> str:
    """The page as HTML text.

    metrics: metrics.utilization.run_metrics; comparison: metrics.fairness.compare of it; windows:
    metrics.windows.windows; facts_held: metrics.inputs.holding; operators: by run_id,
    metrics.utilization.operator_table; sources, unread: as in ingest.schema; others: by model and
    length, metrics.utilization.Analysis.others; audits, bridges: by run_id, as Analysis has them.
    """
    rows = [row | {"audit": audits[row["run_id"]]} for row in joined(metrics, comparison, bridges)]
    body = [
        _header(title, metrics, sources, version),
        _first_screen(rows),
        *_comparison_charts(metrics, comparison),
        _not_ranked([row for row in rows if row["rank"] is None]),
        _runs(rows, metrics, windows, facts_held, operators),
        _sources(sources, unread),
        METHOD,
        _appendix(others),
    ]
    return Sheet().html(title, body)


# --- words and numbers --------------------------------------------------------------------


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.1%}".replace("%", " %")


def _significant(value: float | None) -> str:
    """Three or more figures, whatever the size."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= WHOLE else f"{value:.3g}"


def _range(low: float | None, high: float | None, text: Callable[[float | None], str]) -> str:
    """low to high; one figure where both read the same, nothing where one is unknown."""
    if low is None or high is None:
        return ""
    return f"{text(low)}{DASH}{text(high)}" if text(low) != text(high) else text(low)


def _synthetic(row: Row) -> str:
    return ' <span class="tag">synthetic</span>' if row["synthetic"] else ""


def _name(row: Row) -> str:
    """A run's name behind a dot in its framework's colour; synthetic runs say so."""
    colour = FRAMEWORK_COLOURS.get(row["framework"], ACCENT)
    dot = f'<span style="color:{colour}" aria-hidden="true">{DOT}</span>'
    return f'<span class="name">{dot}&nbsp;{esc(row["label"])}</span>{_synthetic(row)}'


# --- the first screen ---------------------------------------------------------------------


def _header(title: str, metrics: pl.DataFrame, sources: pl.DataFrame, version: str) -> str:
    held = f"{counted(metrics.height, 'run')} from {counted(sources.height, 'log')}"
    about = f"{held} · formula {FORMULA} · fairmfu {version}"
    banner = (
        '<p class="banner"><strong>Synthetic</strong> runs stand on this page, each marked so: '
        "their logs were composed, not run, and say nothing of any framework's speed.</p>"
    )
    shown = banner if metrics["synthetic"].any() else ""
    return f"<header><h1>{esc(title)}</h1><p>{esc(about)}</p>{shown}</header>"


def _first_screen(rows: Sequence[Row]) -> str:
    """Who is faster, by how much and how sure; then the table of each group."""
    found = groups(rows)
    several = sorted((g for g in found if len(g) > 1), key=lambda g: -len(_frameworks(g)))
    alone = [group[0] for group in found if len(group) == 1]
    verdicts = [_verdict(group) for group in several] or [_no_verdict(rows, alone)]
    tables = [_group_table(group) for group in several]
    if alone:
        tables.append(table("Runs that no other is like", ALONE_COLUMNS, alone, ALONE_NOTE))
    return "".join([*verdicts, "<h2>The figures</h2>" if tables else "", *tables])


def _frameworks(group: Iterable[Row]) -> set[str]:
    return {row["framework"] for row in group}


def _no_verdict(rows: Sequence[Row], alone: Sequence[Row]) -> str:
    """What the first line says where no two runs may be compared."""
    if len(rows) == 2:  # noqa: PLR2004 - a pair
        return spoken(between(rows[0], rows[1], HTML))
    if not rows:
        says, note = "The store holds no run.", "Read some with: fairmfu ingest LOG…"
    elif alone:
        says = "No two runs are like for like, so none is faster than another."
        note = (
            f"{len(alone)} of {counted(len(rows), 'run')} can be ranked, "
            "each in a group of its own."
        )
    else:
        says = NONE_RANKED
        note = "What would complete each run stands below."
    return spoken(Said("", says, (note,)))


def _verdict(group: Sequence[Row]) -> str:
    """One group in a sentence. Where all its runs are synthetic, that stands once, above."""
    made_up = all(row["synthetic"] for row in group)
    tag = '<span class="tag">synthetic runs</span> ' if made_up else ""
    told = [{**row, "synthetic": False} for row in group] if made_up else group
    return spoken(verdict(told, HTML), tag)


def spoken(said: Said, tag: str = "", kind: str = "") -> str:
    """The sentence with its notes; those are HTML already. kind: a class of the style sheet."""
    on = f'<p class="on">{tag}{esc(said.label)}</p>' if said.label else ""
    notes = "".join(f'<p class="note">{note}</p>' for note in (*said.notes, said.differs) if note)
    says = said.says.removeprefix("all ")
    says = said.says if says == said.says else f"All {says}"
    kinds = f"verdict {kind}".strip()
    return f'<section class="{kinds}">{on}<p class="says">{says}</p>{notes}</section>'


HTML: Final = Style(
    name=_name,
    strong=lambda text: f"<strong>{text}</strong>",
    quiet=lambda text: f'<span class="sure">{text}</span>',
    aside=lambda text: f'<span class="aside">{text}</span>',
    plain=esc,
)


# --- tables -------------------------------------------------------------------------------


def _group_table(group: Sequence[Row]) -> str:
    rows = [{**row, "among": group} for row in group]
    between_runs = any(side.clustered for side in sides(group))
    note = GROUP_NOTE + (BETWEEN_RUNS if between_runs else WITHIN_RUNS)
    speeds = table(esc(group[0]["group"]), GROUP_COLUMNS, rows, note)
    return speeds + table("Cost, loss and setup", _setup_columns(rows), rows, _setup_note(group))


def _setup_columns(rows: Sequence[Row]) -> list[Column]:
    """Without the TGS at equal FLOPs where no group has other ones."""
    if rows[0]["equal_flops"] is not None:
        return list(SETUP_COLUMNS)
    return [column for column in SETUP_COLUMNS if "FLOPs" not in column.heading]


def _setup_note(group: Sequence[Row]) -> str:
    at = next((row["equal_tokens"] for row in group if row["equal_tokens"]), None)
    words = [
        "Runs of one letter are repeats: their logs say the same of all that may change the speed. "
        "A run whose log leaves out GPUs, recomputation or version has a letter of its own."
    ]
    words += [] if at is None else [f"Losses are at {at:,.0f} tokens."]
    if group[0]["equal_flops"] is not None:
        words.append(
            f"TGS at {group[0]['equal_flops']:.4g} FLOPs per token is what the same MFU would give "
            "with the FLOPs of another group: for no ranking."
        )
    return " ".join(words)


def _tgs(row: Row) -> str:
    if row["tgs"] is None:
        return DASH
    interval = _range(row["tgs_low"], row["tgs_high"], number) or "no interval"
    return f'<strong>{number(row["tgs"])}</strong><span class="small">{interval}</span>'


def _against_best(row: Row) -> str:
    if row["rank"] == 1:
        return "1.00x"
    low, high = row["relative_low"], row["relative_high"]
    sure = _range(low, high, lambda value: f"{value:.2f}") or "no interval"
    if low is None and row["tied_with_best"]:
        sure = "of one setup"  # a repeat of the best: the setup is one side
    tied = ", tied" if row["tied_with_best"] and low is not None else ""
    return f'{row["relative_tgs"]:.2f}x<span class="small">{sure}{tied}</span>'


def _by_logs(row: Row) -> str:
    """The rank that the logs give; where it is not ours, it stands out."""
    if row["logged_rank"] is None:
        return DASH
    mine = sum(
        other["logged_rank"] is not None for other in row["among"] if other["rank"] < row["rank"]
    )
    alike = sum(other["logged_rank"] == row["logged_rank"] for other in row["among"])
    theirs = range(row["logged_rank"], row["logged_rank"] + alike)
    return str(row["logged_rank"]) if mine + 1 in theirs else f"<strong>{theirs.start}</strong>"


def _gpu_hours(row: Row) -> str:
    """Steady, with the money where a price is known, and end to end beneath."""
    steady, whole = (row[f"gpu_hours_per_billion_tokens{end}"] for end in ("", "_end_to_end"))
    paid = row["cost_per_billion_tokens"]
    price = esc(row["price_per_gpu_hour"])
    money = "" if paid is None else f'<span class="small">costs {paid:,.2f} at {price}</span>'
    ends = f'<span class="small">{decimal(whole)} end to end</span>' if whole else ""
    return f"{DASH if steady is None else decimal(steady)}{money}{ends}"


def _loss(row: Row) -> str:
    if row["loss_at_equal_tokens"] is None:
        return f'<span class="muted">{esc(row["no_loss"] or DASH)}</span>'
    apart = "" if row["same_loss"] else '<span class="small warning">apart</span>'
    return f"{row['loss_at_equal_tokens']:#.4g}{apart}"


def _pair(row: Row) -> tuple[float | None, float | None, Callable[[float | None], str], str]:
    """What the log printed, ours, how to write them and the unit: TFLOP/s, or else MFU, or TGS."""
    if row["logged_tflops"] is None and row["logged_mfu"] is None and row["logged_tgs"] is not None:
        return row["logged_tgs"], row["tgs"], number, "TGS"
    if row["logged_tflops"] is None and row["logged_mfu"] is not None:
        return row["logged_mfu"], row["mfu"], _percent, "MFU"
    return row["logged_tflops"], row["tflops"], _significant, "TFLOP/s"


def _logged(row: Row) -> str:
    logged, _, text, unit = _pair(row)
    if logged is None:
        return '<span class="muted">nothing</span>'
    both = unit != "MFU" and row["logged_mfu"] is not None
    more = f'<span class="small">MFU {_percent(row["logged_mfu"])}</span>' if both else ""
    return f"{text(logged)} {unit}{more}{_checked(row)}"


def _checked(row: Row) -> str:
    """Whether the framework's own formula gives what its log printed; why stands behind it."""
    word, why = bridge.verdict(row["audit"])
    kind = "small warning" if row["logged_reproduced"] is False else "small"
    return f'<span class="{kind}"><abbr title="{esc(why)}">{esc(word)}</abbr></span>'


def _ours(row: Row) -> str:
    _, ours, text, unit = _pair(row)
    return DASH if ours is None else f"{text(ours)} {unit}"


def _ratio(row: Row) -> str:
    logged, ours, _, _ = _pair(row)
    return f"<strong>{logged / ours:.2f}x</strong>" if logged is not None and ours else DASH


def _what_differs(row: Row) -> str:
    """The run's own side of what is not the same in its group."""
    group = row["among"]
    names = [name for name in varying(group) if name != "framework"]
    said = [f"{LABELS.get(n, n)} {'unknown' if row[n] is None else written(row[n])}" for n in names]
    return esc(", ".join(said)) or "nothing that is logged"


RUN_COLUMNS: Final = (
    Column("Run", _name),
    Column("Framework", lambda row: esc(row["framework"])),
    Column("TGS [tokens/s/GPU]<br>95 % interval", _tgs, "number"),
)
FIGURE_COLUMNS: Final = (
    Column("MFU (exact<br>attention)", lambda row: _percent(row["mfu"]), "number"),
    Column("MFU (full<br>attention)", lambda row: _percent(row["mfu_full_attention"]), "number"),
    Column("The log<br>printed", _logged, "number"),
    Column("Ours (exact<br>attention)", _ours, "number"),
    Column("Logged<br>/ ours", _ratio, "number"),
)
GROUP_COLUMNS: Final = (
    *RUN_COLUMNS,
    Column("Of the<br>best", _against_best, "number"),
    *FIGURE_COLUMNS,
    Column("By the<br>logs #", _by_logs, "number"),
)
SETUP_COLUMNS: Final = (
    Column("Run", _name),
    Column("Setup", lambda row: esc(row["setup"])),
    Column("GPU-hours per<br>10^9 tokens", _gpu_hours, "number"),
    Column(
        "TGS at equal<br>FLOPs per token", lambda row: number(row["tgs_at_equal_flops"]), "number"
    ),
    Column("Loss at<br>equal tokens", _loss, "number"),
    Column("What differs", _what_differs, "text"),
)
ALONE_COLUMNS: Final = (
    *RUN_COLUMNS,
    *FIGURE_COLUMNS,
    Column("What it ran", lambda row: esc(row["group"]), "text"),
)
GROUP_NOTE: Final = "Like for like, best TGS first. Under each figure its 95 % interval. "
WITHIN_RUNS: Final = "Intervals cover the windows of these very runs, not another night or node."
BETWEEN_RUNS: Final = (
    "Those of the TGS cover the windows of one run; those of a ratio cover the differences between "
    "runs, where a setup has three or more."
)
ALONE_NOTE: Final = (
    "Their speeds can't be set against each other; what each ran stands at the right."
)


def _comparison_charts(metrics: pl.DataFrame, comparison: pl.DataFrame) -> list[str]:
    """The charts of all runs; one that would be empty is left out."""
    together = comparison.filter(pl.col("group").count().over("group") > 1)
    both = (pl.col(f"logged_{name}") * pl.col(name) for name in ("tflops", "mfu"))
    figures = []
    if comparison.select(pl.coalesce(*both).is_not_null().any()).item():
        figures.append(figure(charts.logged_against_recomputed(comparison, metrics)))
    if together.height:
        figures.append(figure(charts.tgs_by_run(together, metrics)))
    if metrics["mfu_full_attention"].drop_nulls().len():
        figures.append(figure(charts.mfu_by_run(metrics)))
    return ["<h2>The pictures</h2>", *figures] if figures else []


def _not_ranked(rows: Sequence[Row]) -> str:
    """Runs without a rank: why, and what would give them one."""
    if not rows:
        return ""
    caption = "Runs that can't stand in a comparison yet"
    shown = table(caption, NOT_RANKED_COLUMNS, rows)
    asked = dict.fromkeys(name for row in rows for name in _to_set(row))
    if not asked:
        return f"<h2>Not ranked, and why</h2>{shown}"
    words = "".join(f"<li><code>{name}</code> {esc(_meaning(name))}</li>" for name in asked)
    how = "Give what a log lacks with <code>fairmfu set RUN NAME=VALUE…</code>:"
    return f"<h2>Not ranked, and why</h2>{shown}<p>{how}</p><ul>{words}</ul>"


def _to_set(row: Row) -> list[str]:
    """Names of the facts that would complete a run."""
    unknown = [name for name in SAME_WORK if name in METRICS and row[name] is None]
    asked = dict.fromkeys([*row["missing"], *unknown])
    return [name for name in asked if name in FACT_NAMES and name != "params_total"]


def _completing(row: Row) -> str:
    return "<br>".join(f"<code>--set {esc(name)}=…</code>" for name in _to_set(row)) or DASH


def _meaning(name: str) -> str:
    """What a fact is, its unit, and the words that it may be."""
    fact = FACT_NAMES[name]
    unit = f" [{fact.unit}]" if fact.unit else ""
    return f"{fact.meaning}{unit}" + (f": {', '.join(fact.choices)}" if fact.choices else "")


NOT_RANKED_COLUMNS: Final = (
    *RUN_COLUMNS,
    Column("Why not", lambda row: "<br>".join(map(esc, row["not_ranked"])), "text"),
    Column("What would complete it", _completing),
)


# --- one run ------------------------------------------------------------------------------


def _runs(
    rows: Sequence[Row],
    metrics: pl.DataFrame,
    windows: pl.DataFrame,
    facts: pl.DataFrame,
    operators: Mapping[str, pl.DataFrame],
) -> str:
    shown = [
        _run(
            row,
            metrics.filter(run_id=row["run_id"]),
            windows.filter(run_id=row["run_id"]),
            facts.filter(run_id=row["run_id"]),
            operators.get(row["run_id"]),
        )
        for row in rows
    ]
    return "\n".join(["<h2>Each run</h2>", *shown]) if shown else ""


def _run(
    row: Row,
    metrics: pl.DataFrame,
    windows: pl.DataFrame,
    facts: pl.DataFrame,
    operators: pl.DataFrame | None,
) -> str:
    parts = [
        "".join(f'<p class="warning">{esc(words)}</p>' for words in row["warnings"]),
        f'<p class="note">{esc(course.how_it_went(row))}</p>',
        figure(charts.steps_over_time(windows, metrics)) if windows.height else "",
        _card(row),
        _time(row),
        _why_not_ours(row),
        _operators(operators) if operators is not None and operators.height else "",
        table("Facts, each with its origin", FACT_COLUMNS, facts.iter_rows(named=True)),
        f'<p class="note">Read from {esc(listed(row["sources"]))} as {esc(row["log_format"])}; '
        f"run {esc(row['run_id'])}.</p>",
    ]
    return f"<details><summary>{_in_short(row)}</summary>{''.join(parts)}</details>"


def _in_short(row: Row) -> str:
    known = [f"{number(row['tgs'])} tokens/s/GPU"] if row["tgs"] is not None else []
    if row["mfu"] is not None:
        known.append(f"MFU {_percent(row['mfu'])} (exact attention)")
    if row["warnings"]:
        known.append(counted(len(row["warnings"]), "warning"))
    text = ", ".join(known) or "no figures"
    return f'{_name(row)} <span class="figures">{esc(row["framework"])}: {esc(text)}</span>'


def _card(row: Row) -> str:
    """All figures of one run that are known, each with its unit and convention."""
    lines = [{"name": name, "value": value, "means": means} for name, value, means in _figures(row)]
    return table("Figures", CARD_COLUMNS, [x for x in lines if x["value"] not in ("", DASH)])


def _time(row: Row) -> str:
    """What the wall time of the launch went to."""
    rows = course.time_rows(row)
    if not rows:
        return ""
    caption = f"What the wall time of {course.seconds_text(row['wall_s'])} went to"
    return table(caption, TIME_COLUMNS, rows, TIME_NOTE)


TIME_NOTE: Final = (
    "Each cause: what its windows took beyond the steady pace. Stalls and garbage collection stay "
    "in the steady rate."
)
TIME_COLUMNS: Final = (
    Column("Went to", lambda line: esc(line["cause"])),
    Column("Windows", lambda line: line["windows"], "number"),
    Column("Time", lambda line: line["time"], "number"),
    Column("Share", lambda line: line["share"], "number"),
)

CARD_COLUMNS: Final = (
    Column("Figure", lambda line: esc(line["name"])),
    Column("Value", lambda line: esc(line["value"]), "number"),
    Column("Unit and convention", lambda line: esc(line["means"]), "text"),
)


def _figures(row: Row) -> list[tuple[str, str, str]]:
    exact, full = (row["flops_per_token"], row["flops_per_token_full_attention"])
    peak = None if row["peak_flops"] is None else row["peak_flops"] / 1e12
    return [
        *_rates(row),
        *_utilisations(row),
        ("FLOPs per token (exact attention)", _flops(exact), f"model FLOPs, {row['formula']}"),
        ("FLOPs per token (full attention)", _flops(full), f"model FLOPs, {row['formula']}"),
        ("TFLOP/s (exact attention)", _significant(row["tflops"]), "per GPU, ours"),
        (
            "Peak",
            number(peak, 1),
            "dense TFLOP/s of one device, weighted by what ran in which dtype",
        ),
        ("Parameters", number(row["params_total"]), "all of the model"),
        *_printed(row),
    ]


def _rates(row: Row) -> list[tuple[str, str, str]]:
    interval = _range(row["tgs_low"], row["tgs_high"], number)
    basis = f"{row['token_basis']} tokens, time by {row['time_basis']}"
    left_out = ", ".join(row["excluded_causes"] or [])
    return [
        ("TGS", number(row["tgs"], 1), f"tokens/s/GPU, steady, {basis}"),
        (
            "TGS, 95 % interval",
            interval or ("none" if row["no_interval"] else ""),
            f"tokens/s/GPU, {course.sureness(row)}",
        ),
        (
            "TGS, end to end",
            number(row["tgs_end_to_end"], 1),
            f"tokens/s/GPU, {course.end_to_end_words(row)}",
        ),
        ("Goodput", number(row["goodput"], 1), f"tokens/s/GPU, {course.goodput_words(row)}"),
        ("TGS, with padding", number(row["tgs_slots"], 1), "token slots/s/GPU, steady"),
        ("Tokens/s", number(row["tokens_per_second"]), f"over {row['gpus']} GPUs"),
        (
            "Time left out",
            _percent(row["excluded_share"]),
            f"of the time logged, in whole windows: {left_out}",
        ),
    ]


def _utilisations(row: Row) -> list[tuple[str, str, str]]:
    hfu = _range(row["hfu_low"], row["hfu_high"], _percent)
    return [
        ("MFU (exact attention)", _percent(row["mfu"]), "each operator at its own dtype's peak"),
        ("MFU (full attention)", _percent(row["mfu_full_attention"]), "as most papers print it"),
        ("MFU, conservative", _percent(row["mfu_conservative"]), "all at the fastest dtype's peak"),
        ("MFU, BF16", _percent(row["mfu_bf16"]), "all at the BF16 peak, exact attention"),
        ("HFU", hfu, f"with recomputation ({row['recompute']}), exact attention"),
        ("Implied MFU", _percent(row["implied"]), "impossible: an input is wrong"),
    ]


def _printed(row: Row) -> list[tuple[str, str, str]]:
    claim = "claimed by the log, by the framework's own formula"
    printed = any(row[name] is not None for name in bridge.UNITS)
    reproduced, why = bridge.verdict(row["audit"]) if printed else ("", "")
    return [
        ("Logged TGS", number(row["logged_tgs"], 1), "tokens/s/GPU, claimed by the log"),
        ("Logged TFLOP/s", _significant(row["logged_tflops"]), f"per GPU, {claim}"),
        ("Logged MFU", _percent(row["logged_mfu"]), claim),
        ("Claim, by its own formula", reproduced, why),
    ]


# --- from the log's figure to ours ----------------------------------------------------------


def _why_not_ours(row: Row) -> str:
    """What the log prints, whether its own formula gives it, and how it becomes ours."""
    audit, found = row["audit"], row["bridges"]
    drawn = ""
    if found:  # all figures of a log take the same steps, but for unit and peak
        drawn = figure(charts.waterfall(found[0], row["framework"], row["logged_formula"]))
        drawn += _in_figures(found)
    proof = "".join(f'<p class="note">{esc(words)}</p>' for words in bridge.proof(audit))
    told = esc(bridge.sentence(row, audit, found)).replace("(x ", "(x&nbsp;")  # one word
    heading = "Why the log's figure is not ours" if found else "The log's own figure"
    return f"<h3>{heading}</h3><p>{told}</p>{drawn}{proof}"


def _in_figures(found: Sequence[Bridge]) -> str:
    """The steps of every figure that the log prints, folded."""
    tables = [
        table(
            f"{bridge.UNITS[one.figure].name} from the log's to ours",
            STEP_COLUMNS,
            [step | {"figure": one.figure} for step in bridge.steps(one).iter_rows(named=True)],
        )
        for one in found
    ]
    names = listed([bridge.UNITS[one.figure].name for one in found])
    return f"<details><summary>Step by step: {names}</summary>{''.join(tables)}</details>"


def _factor(step: Row) -> str:
    if step["factor"] is None:
        return ""
    within = f'<span class="small">print: {esc(step["bounds"])}</span>' if step["bounds"] else ""
    return f"x {bridge.times(step['factor'])}{within}"


def _after(step: Row) -> str:
    text = bridge.value_text(step["figure"], step["after"], finely=True)
    unit = bridge.UNITS[step["figure"]].text
    return text if step["figure"] == "logged_mfu" else f"{text} {unit}"


STEP_COLUMNS: Final = (
    Column("Step", lambda step: esc(step["what"])),
    Column("Factor", _factor, "number"),
    Column("Then", _after, "number"),
)


def _flops(value: float | None) -> str:
    return DASH if value is None else f"{value:.4g}"


def _operators(operators: pl.DataFrame) -> str:
    caption = "FLOPs per token by operator, forward and backward"
    rows = operators.iter_rows(named=True)
    return figure(charts.operators(operators)) + table(caption, OPERATOR_COLUMNS, rows)


OPERATOR_COLUMNS: Final = (
    Column("Operator", lambda row: esc(row["operator"])),
    Column("Layers", lambda row: number(row["layers"]), "number"),
    Column("Computed in", lambda row: esc(row["dtype"] or DASH)),
    Column(
        "Forward (exact attention)", lambda row: _flops(row["forward_flops_per_token"]), "number"
    ),
    Column("All (exact attention)", lambda row: _flops(row["flops_per_token"]), "number"),
    Column(
        "All (full attention)", lambda row: _flops(row["flops_per_token_full_attention"]), "number"
    ),
    Column("Share (exact attention)", lambda row: _percent(row["share"]), "number"),
)


def _fact_value(fact: Row) -> str:
    """The value with its unit; a long one is folded."""
    value = str(fact["value"])
    if len(value) > LONG:
        short = esc(value[:LONG])
        return f"<details><summary>{short} …</summary><code>{esc(value)}</code></details>"
    known = FACT_NAMES.get(fact["name"])
    unit = f' <span class="note">{esc(known.unit)}</span>' if known and known.unit else ""
    return f"{esc(value)}{unit}"


FACT_COLUMNS: Final = (
    Column("Fact", lambda fact: esc(fact["name"])),
    Column("Value", _fact_value, "text"),
    Column("Origin", lambda fact: esc(fact["origin"]), "text"),
)


# --- sources ------------------------------------------------------------------------------


def _sources(sources: pl.DataFrame, unread: pl.DataFrame) -> str:
    """How much of each log was read, and examples of what was not."""
    if not sources.height:
        return ""
    rows = list(sources.sort("path", "sha256").iter_rows(named=True))
    left = [_left_over(row, unread.filter(sha256=row["sha256"]).sort("line")) for row in rows]
    counts = table("Lines of each log", SOURCE_COLUMNS, rows, "Every line is counted once.")
    return "\n".join(["<h2>What was read, and what was not</h2>", counts, *left])


def _lines(heading: str, name: str) -> Column:
    return Column(heading, lambda row: number(row[name]), "number")


SOURCE_COLUMNS: Final = (
    Column("Log", lambda row: f'<span class="name">{esc(row["path"])}</span>'),
    Column("Format", lambda row: esc(row["log_format"])),
    _lines("Lines", "lines"),
    _lines("Steps", "step_lines"),
    _lines("Facts, events,<br>blank", "known_lines"),
    _lines("Of companion<br>formats", "companion_lines"),
    _lines("Other", "other_lines"),
    _lines("Unread", "unread_lines"),
)


def _left_over(source: Row, unread: pl.DataFrame) -> str:
    """The lines of one log that were not read: steps that could not be, and others by kind."""
    kinds = source["other_kinds"] or []
    if not kinds and not unread.height:
        return ""
    summary = (
        f'<span class="name">{esc(source["path"])}</span> <span class="figures">'
        f"{counted(source['unread_lines'] or 0, 'unread line')}, "
        f"{counted(source['other_lines'] or 0, 'other line')}</span>"
    )
    first = f"The first {MOST_UNREAD} of {unread.height:,}." if unread.height > MOST_UNREAD else ""
    rows = unread.head(MOST_UNREAD).iter_rows(named=True)
    quoted = table("Look like steps and could not be read", UNREAD_COLUMNS, rows, first)
    other = table("Other lines, an example of each kind", OTHER_COLUMNS, kinds)
    shown = (quoted if unread.height else "") + (other if kinds else "")
    return f"<details><summary>{summary}</summary>{shown}</details>"


UNREAD_COLUMNS: Final = (
    Column("Line", lambda row: number(row["line"])),
    Column("Why", lambda row: esc(row["reason"]), "text"),
    Column("Text", lambda row: f'<span class="log">{esc(row["text"])}</span>', "text"),
)
OTHER_COLUMNS: Final = (
    Column("Line", lambda row: number(row["line"])),
    Column("How many", lambda row: number(row["count"]), "number"),
    Column("Example", lambda row: f'<span class="log">{esc(row["example"])}</span>', "text"),
)

METHOD: Final = f"""<h2>How these numbers are made</h2>
<p>One formula for every run of every framework. What a log says of its own speed is shown, and
never used.</p>
<pre class="formula">MFU = ideal time per token / actual time per token
    = TGS x sum over operators o of F_o / P(dtype_o)

TGS    tokens / (elapsed seconds x GPUs)
F_o    model FLOPs per token of operator o: matmuls only, forward and backward, no recomputation
P      dense peak of one device for the number format that the operator ran in</pre>
<ul>
<li><strong>MFU (exact attention)</strong> counts the attended pairs as masked: causal, windows,
documents. It is the headline: only so can runs of different length stand side by side.</li>
<li><strong>MFU (full attention)</strong> lets every token attend to the whole sequence, as PaLM
and most papers do. It is for setting a figure beside a published one.</li>
<li><strong>Steady</strong> figures leave out start-up, checkpoints, evaluation and profiling, and
say how much time that was. Stalls and all that is unexplained stay in.</li>
<li><strong>95 % intervals</strong> are of a run's windows, and say nothing of another night or
node; of a setup that ran three times or more they are between its runs. Two runs are told apart
where the interval of their ratio leaves 1 out.</li>
<li><strong>Ranked</strong> are only runs of the same model, length, number format, trained
weights, device and way of counting tokens.</li>
</ul>
<p class="note">Formula {FORMULA}.</p>"""


# --- why the logs disagree ----------------------------------------------------------------

MOST_MODELS: Final = 6
"""Models whose other formulas the page shows; `fairmfu flops --against-others` has any."""


def _appendix(others: Mapping[str, pl.DataFrame]) -> str:
    """What other tools' formulas make of each model: why loggers disagree about one run."""
    if not others:
        return ""
    shown = "".join(_other_formulas(*item) for item in list(others.items())[:MOST_MODELS])
    words = (
        "Each tool prints TFLOP/s or MFU by a formula of its own. This is what each would count "
        "for the models on this page."
    )
    return f"<h2>Appendix: one model, many formulas</h2><p>{words}</p>{shown}"


def _other_formulas(label: str, rows: pl.DataFrame) -> str:
    whole = table(f"{esc(label)}", OTHER_FORMULA_COLUMNS, rows.iter_rows(named=True))
    return f"<details><summary>{esc(label)}</summary>{figure(charts.others(rows))}{whole}</details>"


OTHER_FORMULA_COLUMNS: Final = (
    Column("Formula", lambda row: esc(row["name"])),
    Column("FLOPs per token", lambda row: _flops(row["flops_per_token"]), "number"),
    Column("/ ours", lambda row: number(row["ratio_to_ours"], 3), "number"),
    Column("What it does otherwise", lambda row: esc(row["why"]), "text"),
)


def figure(chart: Chart) -> str:
    """A place for a chart with its whole spec beside it."""
    spec = chart.to_dict(validate=False)  # the tests validate each kind; here: half the time
    for shared in ("config", "$schema"):
        del spec[shared]
    return Sheet().figure(spec)
