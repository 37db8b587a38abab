"""The part of one run on the page: everything that is known of it, down to the line of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..charts.tooltips import accelerator_name
from ..text import bridge_text
from ..text.run_narrative import seconds_text
from ..text.verdict import count_noun, plural
from .html_cells import (
    audit_cell,
    convention_cell,
    field_span,
    figure_block,
    interval_cell,
    keep_units_together,
    percent_cell,
    run_select_cell,
    scientific_cell,
    significant_cell,
    static_span,
    unread_table,
)
from .html_document import DASH, Column, Sheet, esc, number, run_attributes, table
from .report_data import Json, ReportContent

Row = Mapping[str, Any]

MAX_FACT_SUMMARY: Final = 160
"""Characters of a fact's value before it is folded."""
MAX_RUNS_PER_FOLD: Final = 40
"""Runs from which on they are folded so many together."""
MAX_LISTED_EVENTS: Final = 40
"""Events that a table lists."""


def run_folds(sheet: Sheet, content: ReportContent) -> str:
    """A fold per run; of many runs, folds of so many."""
    folds = [_run(sheet, content, run_id) for run_id in content.data["runs"]]
    if not folds:
        return ""
    if len(folds) > MAX_RUNS_PER_FOLD:
        folds = [
            _together(sheet, content, folds, at) for at in range(0, len(folds), MAX_RUNS_PER_FOLD)
        ]
    words = (
        f"Curves have at most {field_span('bins', number(content.data['bins']))} points a run; "
        "what falls into one is summed first, so no stall is lost, only its place is coarser."
    )
    if not content.data["in_full"]:
        words += (
            " As the runs are many, each has this one chart, and the steps from the log's figure "
            "to ours and the quoted lines of its facts and events are left out: "
            "<code>fairmfu report RUN…</code> tells of a few runs in full."
        )
    return f'<h2>Each run</h2><p class="note">{words}</p>{"".join(folds)}'


def _together(sheet: Sheet, content: ReportContent, folds: Sequence[str], at: int) -> str:
    """Some runs in one fold that names the first and the last of them."""
    part = folds[at : at + MAX_RUNS_PER_FOLD]
    ids = list(content.data["runs"])[at : at + MAX_RUNS_PER_FOLD]
    names = [esc(content.data["runs"][run_id]["label"]) for run_id in (ids[0], ids[-1])]
    count = f"{at + 1:,} to {at + len(part):,}"
    return sheet.fold(
        static_span(f'{count}: <span class="name">{names[0]}</span> … {names[1]}'),
        "".join(part),
        attributes=f'data-holds="{" ".join(ids)}"',
    )


def _run(sheet: Sheet, content: ReportContent, run_id: str) -> str:
    run = content.data["runs"][run_id]

    def here(*parts: str) -> str:
        """HTML whose fields are of this run; charts and unread lines have places of their own."""
        within = "".join(parts)
        return f'<div data-at="runs.{esc(run_id)}">{within}</div>' if within else ""

    def drawn(kind: str) -> str:
        return figure_block(sheet, content, f"{kind}:{run_id}")

    pair = drawn("time_lost") + drawn("step_times")
    parts = [
        here(_warnings(run), f'<p class="note">{_word(run, "went")}</p>'),
        drawn("course"),
        here(_card(run)),
        f'<div class="pair">{pair}</div>' if pair else "",
        here(_time(run), _claim(run)),
        drawn("waterfall"),
        here(_steps(run["bridges"]) if content.data["in_full"] else "", _proof(run)),
        drawn("operators"),
        here(_operators(run)),
        drawn("ranks"),
        here(
            _missing(run),
            _facts(run, lines=content.data["in_full"]),
            _events(run, lines=content.data["in_full"]),
        ),
        _unread(content, run),
        here(_read_from(run)),
    ]
    place = run_attributes(run_id, run["model"], accelerator_name(run))
    return sheet.fold(_in_short(run), "".join(parts), name=f"run-{run_id}", attributes=place)


def _warnings(run: Json) -> str:
    return "".join(
        f'<p class="warning" data-of="warnings.{n}">{esc(words)}</p>'
        for n, words in enumerate(run["warnings"])
    )


def _in_short(run: Json) -> str:
    known = (
        [f"{field_span('tgs', number(run['tgs']))} tokens/s/GPU"] if run["tgs"] is not None else []
    )
    if run["mfu"] is not None or run["mfu_full_own"] is not None:
        known.append(f"MFU {convention_cell(run, 'mfu')}")
    if run["outcome"] not in ("completed", None):
        known.append(esc(str(run["outcome"]).replace("_", " ")))
    if run["warnings"]:
        known.append(f"{static_span(count_noun(len(run['warnings']), 'warning'))}")
    text = ", ".join(known) or "no figures"
    return (
        f'<span data-at="runs.{esc(run["run_id"])}">'
        f'<span data-of="label">{run_select_cell(run)}</span> '
        f'<span class="figures">{esc(run["framework"])}: {text}</span></span>'
    )


# --- the figure card ----------------------------------------------------------------------

Line = tuple[str, str, str]
"""What a line of the card says, all HTML: figure, value, and its unit and convention."""


def _card(run: Json) -> str:
    """All figures of one run that are known, each with its unit and convention."""
    lines = [*_rates(run), *_utilisations(run), *_work(run), *_printed(run)]
    rows = [{"lines": line} for line in lines if line[1]]
    return table("Figures", CARD_COLUMNS, rows)


CARD_COLUMNS: Final = (
    Column("Figure", lambda row: row["lines"][0]),
    Column("Value", lambda row: row["lines"][1], "number"),
    Column("Unit and convention", lambda row: row["lines"][2], "text"),
)


def _number(run: Json, field: str, digits: int = 0) -> str:
    return "" if run[field] is None else field_span(field, number(run[field], digits))


def _percent(run: Json, field: str) -> str:
    return "" if run[field] is None else field_span(field, percent_cell(run[field]))


def _scientific(run: Json, field: str) -> str:
    return "" if run[field] is None else field_span(field, scientific_cell(run[field]))


def _word(run: Json, field: str) -> str:
    return field_span(f"words.{field}", esc(run["words"][field]))


def _rates(run: Json) -> list[Line]:
    interval = interval_cell(run, "tgs_low", "tgs_high", number)
    basis = f"{esc(run['token_basis'])} tokens, time by {esc(run['time_basis'])}"
    causes = ", ".join(
        field_span(f"excluded_causes.{n}", esc(cause))
        for n, cause in enumerate(run["excluded_causes"] or [])
    )
    return [
        ("TGS", _number(run, "tgs", 1), f"tokens/s/GPU, steady, {basis}"),
        (
            static_span("TGS, 95 % interval"),
            interval or ("none" if run["no_interval"] else ""),
            f"tokens/s/GPU, {_word(run, 'sure')}",
        ),
        (
            "TGS, end to end",
            _number(run, "tgs_end_to_end", 1),
            f"tokens/s/GPU, {_word(run, 'end_to_end')}",
        ),
        ("Goodput", _number(run, "goodput", 1), f"tokens/s/GPU, {_word(run, 'goodput')}"),
        ("TGS, with padding", _number(run, "tgs_slots", 1), "token slots/s/GPU, steady"),
        (
            "Tokens/s",
            _number(run, "tokens_per_second"),
            f"over {_number(run, 'gpus') or 'unknown'} {plural('GPU', run['gpus'] or 0)}",
        ),
        (
            "Time left out",
            _percent(run, "excluded_share"),
            f"of the time logged, in whole windows: {causes or 'nothing'}",
        ),
    ]


def _utilisations(run: Json) -> list[Line]:
    hfu = interval_cell(run, "hfu_low", "hfu_high", percent_cell)
    own = "each operator at its own dtype's peak"
    bf16 = static_span("all operators at the BF16 peak")
    return [
        ("MFU (exact attention)", _percent(run, "mfu_exact_own"), own),
        ("MFU (full attention)", _percent(run, "mfu_full_own"), f"{own}; as most papers print it"),
        (static_span("MFU, BF16 (exact attention)"), _percent(run, "mfu_exact_bf16"), bf16),
        (static_span("MFU, BF16 (full attention)"), _percent(run, "mfu_full_bf16"), bf16),
        (
            "MFU, conservative",
            _percent(run, "mfu_conservative"),
            "all at the fastest dtype's peak, exact attention",
        ),
        ("HFU", hfu, f"with recomputation ({esc(run['recompute'])}), exact attention"),
        ("Implied MFU", _percent(run, "implied"), "impossible: an input is wrong"),
    ]


def _work(run: Json) -> list[Line]:
    by = f"model FLOPs, {field_span('formula', esc(run['formula']))}"
    peak = field_span("peak_source", esc(run["peak_source"] or ""))
    return [
        ("FLOPs per token (exact attention)", _scientific(run, "flops_per_token"), by),
        (
            "FLOPs per token (full attention)",
            _scientific(run, "flops_per_token_full_attention"),
            by,
        ),
        ("TFLOP/s (exact attention)", _significant(run, "tflops_exact"), "per GPU, ours"),
        ("TFLOP/s (full attention)", _significant(run, "tflops_full"), "per GPU, ours"),
        (
            "Peak, own dtype",
            _number(run, "peak_own", 1),
            "dense TFLOP/s of one device, weighted by what ran in which dtype"
            + (f"; {peak}" if peak else ""),
        ),
        (
            static_span("Peak, BF16"),
            _number(run, "peak_bf16", 1) if run["peak_bf16"] != run["peak_own"] else "",
            "dense TFLOP/s of one device",
        ),
        ("Parameters", _number(run, "params_total"), "all of the model"),
    ]


def _significant(run: Json, field: str) -> str:
    return "" if run[field] is None else field_span(field, significant_cell(run[field]))


def _printed(run: Json) -> list[Line]:
    by = "claimed by the log, by the framework's own formula"
    if run["claim"] is None:
        return []
    return [
        ("Logged TGS", _number(run, "logged_tgs", 1), "tokens/s/GPU, claimed by the log"),
        ("Logged TFLOP/s", _significant(run, "logged_tflops"), f"per GPU, {by}"),
        ("Logged MFU", _percent(run, "logged_mfu"), by),
        (
            "Claim, by its own formula",
            audit_cell(run),
            field_span("audit.why", esc(run["audit"]["why"])),
        ),
    ]


# --- where the time went, and the FLOPs ---------------------------------------------------


def _time(run: Json) -> str:
    """What the wall time of the launch went to."""
    if not run["time"]:
        return ""
    wall = field_span("wall_s", seconds_text(run["wall_s"]))
    note = (
        "Each cause: what its windows took beyond the steady pace. Stalls and garbage collection "
        "stay in the steady rate."
    )
    caption = f"What the wall time of {wall} went to"
    return table(caption, TIME_HTML_COLUMNS, run["time"], note, json_path="time")


TIME_HTML_COLUMNS: Final = (
    Column("Went to", lambda line: esc(line["cause"]), field="cause"),
    Column("Windows", lambda line: number(line["windows"]), "number", field="windows"),
    Column("Time", lambda line: seconds_text(line["seconds"]), "number", field="seconds"),
    Column("Share", lambda line: percent_cell(line["share"]), "number", field="share"),
)


def _operators(run: Json) -> str:
    if not run["operators"]:
        return ""
    caption = "FLOPs per token by operator, forward and backward"
    whole = table(caption, OPERATOR_HTML_COLUMNS, run["operators"], json_path="operators")
    return f"<details><summary>{caption}</summary>{whole}</details>"


OPERATOR_HTML_COLUMNS: Final = (
    Column("Operator", lambda row: esc(row["operator"]), field="operator"),
    Column("Layers", lambda row: number(row["layers"]), "number", field="layers"),
    Column("Computed in", lambda row: esc(row["dtype"] or DASH), field="dtype"),
    Column(
        "Forward (exact attention)",
        lambda row: scientific_cell(row["forward_flops_per_token"]),
        "number",
        field="forward_flops_per_token",
    ),
    Column(
        "All (exact attention)",
        lambda row: scientific_cell(row["flops_per_token"]),
        "number",
        field="flops_per_token",
    ),
    Column(
        "All (full attention)",
        lambda row: scientific_cell(row["flops_per_token_full_attention"]),
        "number",
        field="flops_per_token_full_attention",
    ),
    Column(
        "Share (exact attention)", lambda row: percent_cell(row["share"]), "number", field="share"
    ),
)


# --- from the log's figure to ours ----------------------------------------------------------


def _claim(run: Json) -> str:
    """What the log prints, whether its own formula gives it, and why it is not ours."""
    sentence = keep_units_together(esc(run["words"]["claim"]))
    heading = "Why the log's figure is not ours" if run["bridges"] else "The log's own figure"
    return f'<h3>{heading}</h3><p data-of="words.claim">{sentence}</p>'


def _proof(run: Json) -> str:
    return "".join(
        f'<p class="note" data-of="words.proof.{n}">{esc(text)}</p>'
        for n, text in enumerate(run["words"]["proof"])
    )


def _steps(bridges: Sequence[Json]) -> str:
    """The steps of every figure that the log prints, folded."""
    if not bridges:
        return ""
    tables = [
        table(
            f"{one['name']} from the log's to ours",
            STEP_COLUMNS,
            [step | {"figure": one["figure"]} for step in one["steps"]],
            json_path=f"bridges.{n}.steps",
        )
        for n, one in enumerate(bridges)
    ]
    names = ", ".join(one["name"] for one in bridges)
    return f"<details><summary>Step by step: {names}</summary>{''.join(tables)}</details>"


def _factor(step: Row) -> str:
    if step["factor"] is None:
        return ""
    bounds = field_span("bounds", esc(step["bounds"] or ""))
    within = f'<span class="small">print: {bounds}</span>' if bounds else ""
    return f"x {field_span('factor', bridge_text.format_factor(step['factor']))}{within}"


def _after(step: Row) -> str:
    return field_span("after", bridge_text.value_text(step["figure"], step["after"], precise=True))


STEP_COLUMNS: Final = (
    Column("Step", lambda step: esc(step["what"]), field="what"),
    Column("Factor", _factor, "number"),
    Column("Then", _after, "number"),
)


# --- what it follows from -----------------------------------------------------------------


def _fact_value(fact: Row) -> str:
    """The value with its unit; a long one is folded."""
    value = str(fact["value"])
    if len(value) > MAX_FACT_SUMMARY:
        short = f"<summary data-static>{esc(value[:MAX_FACT_SUMMARY])} …</summary>"
        return f'<details>{short}<code data-of="value">{esc(value)}</code></details>'
    unit = f' <span class="note">{esc(fact["unit"])}</span>' if fact["unit"] else ""
    return f"{field_span('value', esc(value))}{unit}"


def _origin(fact: Row) -> str:
    """Where it comes from, and the line of the log that says so."""
    if not fact["text"]:
        return field_span("origin", esc(fact["origin"]))
    quoted = f'<code class="log" data-of="text">{esc(fact["text"])}</code>'
    return f"{field_span('origin', esc(fact['origin']))}<br>{quoted}"


def _facts(run: Json, *, lines: bool) -> str:
    facts = run["facts"] if lines else [fact | {"text": None} for fact in run["facts"]]
    return table("Facts, each with its origin", FACT_HTML_COLUMNS, facts, json_path="facts")


FACT_HTML_COLUMNS: Final = (
    Column("Fact", lambda fact: esc(fact["name"]), field="name"),
    Column("Value", _fact_value, "text"),
    Column("Origin", _origin, "text"),
)


def _missing(run: Json) -> str:
    """Facts that nothing gives, and the command that does."""
    if not run["complete_with"]:
        return ""
    command = f"<code>{field_span('complete_command', esc(run['complete_command']))}</code>"
    items = "".join(
        f'<li><code data-of="complete_with.{n}.name">{esc(one["name"])}</code> '
        f'<span class="note" data-of="complete_with.{n}.meaning">{esc(one["meaning"])}</span></li>'
        for n, one in enumerate(run["complete_with"])
    )
    return f"<h3>What is missing, and how to give it</h3><p>{command}</p><ul>{items}</ul>"


def _events(run: Json, *, lines: bool) -> str:
    """How often each kind of event happened, and the first of them with their lines."""
    if not run["event_counts"]:
        return ""
    counts = ", ".join(
        f"{field_span(f'event_counts.{n}.count', number(one['count']))} "
        f"{esc(one['kind'].replace('_', ' '))}"
        for n, one in enumerate(run["event_counts"])
    )
    shown = run["events"][:MAX_LISTED_EVENTS] if lines else []
    left = len(run["events"]) - len(shown)
    note = (
        static_span(f"The first {len(shown):,}; {left:,} more are drawn above.") if left > 0 else ""
    )
    whole = table("Events that are drawn", EVENT_COLUMNS, shown, note, json_path="events")
    body = f"<details><summary>Their lines</summary>{whole}</details>" if shown else ""
    return f"<h3>Events</h3><p>{counts}</p>{body}"


EVENT_COLUMNS: Final = (
    Column("Event", lambda row: esc(row["kind"]), field="kind"),
    Column("Step", lambda row: number(row["step"]), "number", field="step"),
    Column("Line", lambda row: number(row["line"]), "number", field="line"),
    Column(
        "Text",
        lambda row: f'<span class="log">{esc(row["text"] or "")}</span>',
        "text",
        field="text",
    ),
)


def _unread(content: ReportContent, run: Json) -> str:
    """Lines of its logs that look like steps and could not be read."""
    mine = set(run["source_places"])
    lines = [
        row | {"place": n} for n, row in enumerate(content.data["unread"]) if row["source"] in mine
    ]
    return unread_table(lines)


def _read_from(run: Json) -> str:
    sources = ", ".join(
        field_span(f"sources.{n}", esc(path)) for n, path in enumerate(run["sources"])
    )
    return (
        f'<p class="note">Read from {sources} '
        f"as {field_span('log_format', esc(run['log_format']))}; "
        f"run {field_span('run_id', esc(run['run_id']))}.</p>"
    )
