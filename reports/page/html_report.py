"""The report as one offline HTML page.

It shows who is faster, by how much, how sure that is, and why logs disagree.

`render_page` sets what reports.page.report_data says. Each number stands in an element that names
its place there, `data-of`, as seen from the `data-at` around it; prose that is always the same may
be marked `data-static`. The section of a single run is in reports.page.html_run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fairmfu.metrics.formula.flops import FORMULA_VERSION

from ..charts.tooltips import accelerator_name
from ..text.tabular import decimal
from ..text.verdict import Style, Verdict, count_noun, plural
from .html_cells import (
    CONVENTION_NOTE_HTML,
    LOGGED_COLUMN,
    NAME_COLUMN,
    OURS_COLUMN,
    RATIO_COLUMN,
    audit_cell,
    convention_cell,
    field_span,
    figure_block,
    folded_table,
    interval_cell,
    keep_units_together,
    run_label,
    run_link_cell,
    run_select_cell,
    scientific_cell,
    static_span,
    tgs_cell,
    unread_table,
)
from .html_document import DASH, Column, Sheet, controls, esc, legend, number, packaged, table
from .html_run import run_folds
from .redaction import REDACTED
from .report_data import MAX_FORMULA_MODELS, Json, ReportContent

Row = Mapping[str, Any]

OPEN_GROUPS: Final = 4
"""Groups whose comparison stands open; the others are folded."""
MAX_EXPLAINED_RUNS: Final = 100
"""On a page of very many runs, those whose logs are explained before each run's own part."""
MAX_WATERFALLS: Final = 4
"""Runs whose way from the log's figure to ours is drawn before each run's own part."""


def render_page(content: ReportContent) -> str:
    """The page as HTML_STYLE text."""
    sheet = Sheet()
    data = content.data
    body = [
        _header(data),
        *_groups(sheet, content),
        _apart(sheet, content),
        _why(sheet, content),
        _across(sheet, content),
        run_folds(sheet, content),
        _sources(sheet, content),
        METHOD_HTML,
    ]
    style = packaged("report.css")
    return sheet.html(data["title"], body, controls=_controls(data), style=style)


def table_runs(report_data: Json, run_ids: Sequence[str]) -> list[Json]:
    """Runs as tables take them: with the device under the name that the filter knows it by."""
    runs = (report_data["runs"][run_id] for run_id in run_ids)
    return [run | {"accelerator": accelerator_name(run)} for run in runs]


# --- the first screen ---------------------------------------------------------------------


def _header(data: Json) -> str:
    counts = data["counts"]
    held = (
        f"{field_span('counts.runs', number(counts['runs']))} {plural('run', counts['runs'])} from "
        f"{field_span('counts.logs', number(counts['logs']))} {plural('log', counts['logs'])}"
    )
    about = (
        f"{held} · formula {field_span('formula', FORMULA_VERSION)} · "
        f"fairmfu {field_span('fairmfu', data['fairmfu'])}"
    )
    about += f" · {REDACTED}" if data["redacted"] else ""
    banner = (
        '<p class="banner"><strong>Synthetic</strong> runs stand on this page, each marked so: '
        "their logs were composed, not run, and say nothing of any framework's speed.</p>"
    )
    title = f'<h1 data-of="title">{esc(data["title"])}</h1>'
    return f"<header>{title}<p>{about}</p>{banner if data['synthetic'] else ''}</header>"


def _controls(data: Json) -> str:
    """Toggles, filters, and the key to the marks of every chart."""
    runs = table_runs(data, list(data["runs"]))
    if not runs:
        return ""
    counts: dict[tuple[str, str], int] = {}
    for run in runs:
        pair = (run["model"] or "", run["accelerator"] or "")
        counts[pair] = counts.get(pair, 0) + 1
    models, accelerators = (sorted({pair[at] for pair in counts} - {""}) for at in (0, 1))
    marks = '<p class="marks"><span>● recomputed</span> <span>◇ as the log printed it</span></p>'
    key = f"{legend(dict.fromkeys(run['framework'] for run in runs))}{marks}"
    return f'<div data-static class="bar">{controls(models, accelerators, counts)}{key}</div>'


def _groups(sheet: Sheet, content: ReportContent) -> list[str]:
    """For each group of like-for-like runs its sentence, its picture and its figures."""
    data = content.data
    said = content.verdicts(SELECTABLE_STYLE)
    several = [group for group in data["groups"] if len(group["runs"]) > 1]
    parts = [_group(sheet, content, n, said[n]) for n in range(len(several))]
    if not several:
        parts = [verdict_html(one, json_path=f"verdicts.{n}") for n, one in enumerate(said)]
    first, rest = parts[:OPEN_GROUPS], parts[OPEN_GROUPS:]
    folded = [
        sheet.fold(_group_in_short(several[n], n), part)
        for n, part in enumerate(rest, start=OPEN_GROUPS)
    ]
    if folded:
        heading = f"<h2>{static_span(count_noun(len(folded), 'more group'))}</h2>"
        folded = [heading, *_in_dozens(sheet, folded, "Groups")]
    return [*first, *folded, _alone(sheet, content)]


def _in_dozens(sheet: Sheet, folds: Sequence[str], of_what: str) -> list[str]:
    """Many folds in folds. of_what: what they are, ahead of which of them a fold holds."""
    if len(folds) <= MAX_FOLDS_PER_LEVEL:
        return [*folds]
    return [
        sheet.fold(
            static_span(
                f"{of_what} {n + 1:,} to {min(n + MAX_FOLDS_PER_LEVEL, len(folds)):,} "
                f"of {len(folds):,}"
            ),
            "".join(folds[n : n + MAX_FOLDS_PER_LEVEL]),
        )
        for n in range(0, len(folds), MAX_FOLDS_PER_LEVEL)
    ]


MAX_FOLDS_PER_LEVEL: Final = 24


def _group_in_short(group: Json, n: int) -> str:
    count = static_span(count_noun(len(group["runs"]), "run"))
    return (
        f'<span data-at="groups.{n}">{field_span("group", esc(group["group"]))}</span> '
        f'<span class="figures">{count}</span>'
    )


def _group(sheet: Sheet, content: ReportContent, n: int, said: Verdict) -> str:
    data = content.data
    group = data["groups"][n]
    runs = [run | {"among": group} for run in table_runs(data, group["runs"])]
    parts = [
        verdict_html(said, SYNTHETIC_TAG if group["synthetic"] else "", json_path=f"verdicts.{n}"),
        figure_block(sheet, content, f"comparison:{n}"),
        folded_table(
            sheet, content, "The same in figures", GROUP_COLUMNS, runs, static_span(GROUP_NOTE)
        ),
        sheet.fold(
            "Cost, loss and setup of these runs",
            folded_table(
                sheet,
                content,
                "Cost, loss and setup",
                _setup_columns(runs),
                runs,
                _setup_note(n, group),
            ),
        ),
    ]
    return f'<section class="group">{"".join(parts)}</section>'


def verdict_html(verdict: Verdict, tag: str = "", css_class: str = "", json_path: str = "") -> str:
    """The sentence with its notes; those are HTML_STYLE already.

    tag: HTML_STYLE before its label; css_class: a class of the style sheet; json_path: where the
    content has it.
    """

    def here(field: str) -> str:
        return f' data-of="{field}"' if json_path else ""

    on = f'<p class="on">{tag}<span{here("label")}>{esc(verdict.label)}</span></p>'
    notes = "".join(
        f'<p class="note"{here(f"notes.{n}")}>{keep_units_together(note)}</p>'
        for n, note in enumerate(verdict.notes)
    )
    notes += f'<p class="note"{here("differs")}>{verdict.differs}</p>' if verdict.differs else ""
    place = f' data-at="{json_path}"' if json_path else ""
    return (
        f'<section class="{f"verdict {css_class}".strip()}"{place}>{on if verdict.label else ""}'
        f'<p class="says"{here("says")}>{keep_units_together(verdict.sentence)}</p>'
        f'<div class="notes">{notes}</div></section>'
    )


SYNTHETIC_TAG: Final = '<span class="tag" data-static>synthetic runs</span> '

HTML_STYLE: Final = Style(
    name=run_label,
    strong=lambda text: f"<strong>{text}</strong>",
    quiet=lambda text: f'<span class="sure">{text}</span>',
    aside=lambda text: f'<span class="aside">{text}</span>',
    plain=esc,
)
SELECTABLE_STYLE: Final = replace(HTML_STYLE, name=run_select_cell)
"""The style of HTML_STYLE on a page whose runs can be marked."""


# --- one group ----------------------------------------------------------------------------


def _against_best(run: Row) -> str:
    if run["rank"] == 1:
        best = f"{run['relative_tgs']:.2f}x"
        return field_span("relative_tgs", best) + (
            "" if best == "1.00x" else '<span class="small">of its setup</span>'
        )
    sure = interval_cell(run, "relative_low", "relative_high", lambda value: f"{value:.2f}")
    if run["relative_low"] is None:
        # a repeat of the best: the setup is one side
        sure = "of one setup" if run["tied_with_best"] else "no interval"
    tied = ", tied" if run["tied_with_best"] and run["relative_low"] is not None else ""
    ratio = field_span("relative_tgs", f"{run['relative_tgs']:.2f}x")
    return f'{ratio}<span class="small">{sure}{tied}</span>'


def _by_logs(run: Row) -> str:
    return field_span("logged_rank", number(run["logged_rank"]))


def _gpu_hours(run: Row) -> str:
    """Steady, with the money where a price is known, and end to end beneath."""
    names = [f"gpu_hours_per_billion_tokens{end}" for end in ("", "_end_to_end")]
    steady, whole = (run[name] for name in names)
    paid = run["cost_per_billion_tokens"]
    price = field_span("price_per_gpu_hour", esc(run["price_per_gpu_hour"]))
    cost = field_span("cost_per_billion_tokens", number(paid, 2))
    money = "" if paid is None else f'<span class="small">costs {cost} at {price}</span>'
    ends = (
        f'<span class="small">{field_span(names[1], decimal(whole))} end to end</span>'
        if whole
        else ""
    )
    return f"{field_span(names[0], DASH if steady is None else decimal(steady))}{money}{ends}"


def _loss(run: Row) -> str:
    if run["loss_at_equal_tokens"] is None:
        return f'<span class="muted">{field_span("no_loss", esc(run["no_loss"] or DASH))}</span>'
    apart = "" if run["same_loss"] else '<span class="small warning">apart</span>'
    return (
        f"{field_span('loss_at_equal_tokens', format(run['loss_at_equal_tokens'], '#.4g'))}{apart}"
    )


def _differs(run: Row) -> str:
    return field_span("words.differs", esc(run["words"]["differs"])) or "nothing that is logged"


def _setup_columns(runs: Sequence[Row]) -> list[Column]:
    """Without the TGS at equal FLOPs where no group has other ones."""
    if runs[0]["equal_flops"] is not None:
        return list(SETUP_COLUMNS)
    return [column for column in SETUP_COLUMNS if column.field != "tgs_at_equal_flops"]


def _setup_note(n: int, group: Json) -> str:
    words = [
        "Runs of one letter are repeats: their logs say the same of all that may change the speed. "
        "A run whose log leaves out GPUs, recomputation or version has a letter of its own."
    ]
    if group["equal_tokens"] is not None:
        words.append(
            f"Losses are at {field_span('equal_tokens', number(group['equal_tokens']))} tokens."
        )
    if group["equal_flops"] is not None:
        flops = field_span("equal_flops", f"{group['equal_flops']:.4g}")
        words.append(
            f"TGS at {flops} FLOPs per token is what the same MFU would give with the FLOPs of "
            "another group: for no ranking."
        )
    return f'<span data-at="groups.{n}">{" ".join(words)}</span>'


GROUP_COLUMNS: Final = (
    NAME_COLUMN,
    Column(static_span("TGS [tokens/s/GPU]<br>95 % interval"), tgs_cell, "number"),
    Column("Of the<br>best", _against_best, "number"),
    Column("MFU", lambda run: convention_cell(run, "mfu"), "number"),
    LOGGED_COLUMN,
    OURS_COLUMN,
    RATIO_COLUMN,
    Column("By the<br>logs #", _by_logs, "number"),
)
SETUP_COLUMNS: Final = (
    NAME_COLUMN,
    Column("Setup", lambda run: esc(run["setup"]), field="setup"),
    Column(static_span("GPU-hours per<br>10^9 tokens"), _gpu_hours, "number"),
    Column(
        "TGS at equal<br>FLOPs per token",
        lambda run: number(run["tgs_at_equal_flops"]),
        "number",
        field="tgs_at_equal_flops",
    ),
    Column("Loss at<br>equal tokens", _loss, "number"),
    Column("What differs", _differs, "text"),
)
GROUP_NOTE: Final = (
    f"Like for like, the best run, or setup, first. {CONVENTION_NOTE_HTML} Intervals (95 %) of a "
    "TGS cover the windows of that run, not another night or node; of a ratio the differences "
    "between runs, where a setup ran three times or more."
)


# --- what can't be compared ---------------------------------------------------------------


def _alone(sheet: Sheet, content: ReportContent) -> str:
    """Runs that could be ranked, each in a group of its own."""
    data = content.data
    alone = [group["runs"][0] for group in data["groups"] if len(group["runs"]) == 1]
    if not alone:
        return ""
    runs = table_runs(data, alone)
    heading = "<h2>Runs that no other is like</h2>"
    note = static_span(
        "Their speeds can't be set against each other; what each ran stands at the right. "
        f"{CONVENTION_NOTE_HTML}"
    )
    drawn = figure_block(sheet, content, "logged")
    return (
        heading
        + drawn
        + folded_table(sheet, content, "Each by itself", SINGLE_RUN_COLUMNS, runs, note)
    )


SINGLE_RUN_COLUMNS: Final = (
    *GROUP_COLUMNS[:2],
    *GROUP_COLUMNS[3:7],
    Column("What it ran", lambda run: esc(run["group"]), "text", field="group"),
)


def _apart(sheet: Sheet, content: ReportContent) -> str:
    """Runs without a rank: why, and what would give them one."""
    data = content.data
    if not data["apart"]:
        return ""
    runs = table_runs(data, data["apart"])
    caption = f"{static_span(count_noun(len(runs), 'run'))} that can't stand in a comparison yet"
    body = folded_table(sheet, content, caption, UNRANKED_COLUMNS, runs)
    if data["to_give"]:
        words = "".join(
            f'<li data-at="to_give.{n}"><code data-of="name">{esc(fact["name"])}</code> '
            f"{field_span('meaning', esc(fact['meaning']))}</li>"
            for n, fact in enumerate(data["to_give"])
        )
        body += sheet.fold("What these facts are", f"<ul>{words}</ul>")
    return f"<h2>What can't be compared, and why</h2>{body}"


def _why_apart(run: Row) -> str:
    return _lines("not_ranked", run["not_ranked"])


def _lines(name_: str, texts: Sequence[str]) -> str:
    return "<br>".join(field_span(f"{name_}.{n}", esc(text)) for n, text in enumerate(texts))


def _to_give(run: Row) -> str:
    command = run["complete_command"]
    return (
        f"<code>{field_span('complete_command', esc(command))}</code>" if command else NO_FACT_HELPS
    )


NO_FACT_HELPS: Final = "nothing that a fact could give"

UNRANKED_COLUMNS: Final = (
    NAME_COLUMN,
    Column("Framework", lambda run: esc(run["framework"])),
    Column(static_span("TGS [tokens/s/GPU]<br>95 % interval"), tgs_cell, "number"),
    Column("Why not", _why_apart, "text"),
    Column("What would complete it", _to_give, "text"),
)


# --- why the logs disagree ----------------------------------------------------------------


def _why(sheet: Sheet, content: ReportContent) -> str:
    """From each log's figure to ours, with the causes; other formulas; own formulas in use."""
    data = content.data
    printed = [run_id for run_id, run in data["runs"].items() if run["claim"]]
    if not printed and not data["formulas"]:
        return ""
    parts = ["<h2>Why the logs disagree</h2>"]
    if not data["in_full"]:
        printed = printed[:MAX_EXPLAINED_RUNS]
    if printed:
        parts += [
            "<p>What a log says of its own speed is by its own formula, peak and clock. Each is "
            "recomputed by that formula of that version first; then cause by cause it becomes "
            "ours.</p>",
            folded_table(
                sheet,
                content,
                "From the log's figure to ours",
                DISAGREEMENT_COLUMNS,
                table_runs(data, printed),
            ),
            *_waterfalls(sheet, content),
        ]
    return "".join([*parts, _eras(data), _other_formulas(sheet, content)])


def _waterfalls(sheet: Sheet, content: ReportContent) -> list[str]:
    """Waterfalls of the first group's runs: from the log's figure to ours."""
    first = content.data["groups"][0]["runs"] if content.data["groups"] else []
    keys = [f"waterfall:{run_id}" for run_id in first]
    drawn = [key for key in keys if key in content.figures][:MAX_WATERFALLS]
    if not drawn:
        return []
    heads = table_runs(content.data, [key.partition(":")[2] for key in drawn])
    parts = [
        f'<h3 data-at="runs.{esc(run["run_id"])}">'
        f'<span data-of="label">{run_link_cell(run)}</span></h3>'
        f"{figure_block(sheet, content, key)}"
        for run, key in zip(heads, drawn, strict=True)
    ]
    more = sum(key.startswith("waterfall:") for key in content.figures) > len(drawn)
    rest = '<p class="note">Those of all other runs stand in each run\'s part.</p>'
    return [*parts, rest] if more else parts


def _causes(run: Row) -> str:
    items = "".join(
        f'<li data-of="causes.{n}">{keep_units_together(esc(cause))}</li>'
        for n, cause in enumerate(run["causes"])
    )
    return f'<ul class="plain">{items}</ul>'


DISAGREEMENT_COLUMNS: Final = (
    NAME_COLUMN,
    LOGGED_COLUMN,
    OURS_COLUMN,
    RATIO_COLUMN,
    Column("By its own<br>formula", audit_cell),
    Column("Why it is not ours", _causes, "text"),
)


def _eras(data: Json) -> str:
    """Which versions of the frameworks' own formulas are in use."""
    if not data["eras"]:
        return ""
    note = static_span(
        "A framework's own formula changes with its versions; runs of two eras do not compare by "
        "their logs."
    )
    return table("Own formulas in use", ERA_COLUMNS, data["eras"], note, json_path="eras")


def _span(era: Row) -> str:
    since, until = (
        field_span(end, esc(era[end])) if era[end] else "" for end in ("since", "until")
    )
    if not since and not until:
        return "not known"
    return f"{since or 'the beginning'} to {until or 'now'}"


def _reproduced(era: Row) -> str:
    ok, compared = (field_span(key, number(era[key])) for key in ("reproduced", "compared"))
    return f"{ok} of {compared} compared"


ERA_COLUMNS: Final = (
    Column("Own formula", lambda era: esc(era["name"]), field="name"),
    Column("In use", _span, "when"),
    Column(
        "Closed form", lambda era: f"<code>{esc(era['formula'])}</code>", "text", field="formula"
    ),
    Column(
        "Code",
        lambda era: (
            f"{field_span('code', esc(era['code']))} at {field_span('commit', esc(era['commit']))}"
        ),
        "text",
    ),
    Column("Runs<br>reproduced", _reproduced, "number"),
)


def _other_formulas(sheet: Sheet, content: ReportContent) -> str:
    """What other tools' formulas make of each model: why loggers disagree about one run."""
    if not content.data["formulas"]:
        return ""
    shown_ = [
        sheet.fold(
            f'<span data-of="formulas.{n}.label">{esc(one["label"])}</span>',
            figure_block(sheet, content, f"others:{n}")
            + table(
                "The same in figures",
                FORMULA_COLUMNS,
                one["formulas"],
                json_path=f"formulas.{n}.formulas",
            ),
        )
        for n, one in enumerate(content.data["formulas"])
    ]
    words = (
        "Each tool prints TFLOP/s or MFU by a formula of its own. This is what each would count "
        f"for models on this page, {MAX_FORMULA_MODELS} at most; for any: "
        "<code>fairmfu flops --against-others</code>."
    )
    return f"<h3>One model, many formulas</h3><p>{static_span(words)}</p>{''.join(shown_)}"


FORMULA_COLUMNS: Final = (
    Column("Formula", lambda row: esc(row["name"]), field="name"),
    Column(
        "FLOPs per token",
        lambda row: scientific_cell(row["flops_per_token"]),
        "number",
        field="flops_per_token",
    ),
    Column("/ ours", lambda row: number(row["ratio_to_ours"], 3), "number", field="ratio_to_ours"),
    Column("What it does otherwise", lambda row: esc(row["why"]), "text", field="why"),
)


# --- across runs --------------------------------------------------------------------------

CROSS_RUN_CHARTS: Final = (
    "scaling",
    "mfu_by_length",
    "mfu_by_precision",
    "mfu_by_recompute",
    "mfu_by_run",
)


def _across(sheet: Sheet, content: ReportContent) -> str:
    drawn = [
        figure_block(sheet, content, key) for key in CROSS_RUN_CHARTS if key in content.figures
    ]
    return "".join(["<h2>Across all runs</h2>", *drawn]) if drawn else ""


# --- sources ------------------------------------------------------------------------------


def _sources(sheet: Sheet, content: ReportContent) -> str:
    """How much of each log was read, and examples of what was not."""
    data = content.data
    if not data["sources"]:
        return ""
    rows = [source | {"place": n} for n, source in enumerate(data["sources"])]
    counts = folded_table(
        sheet,
        content,
        "Lines of each log",
        SOURCE_COLUMNS,
        rows,
        "Every line is counted once.",
        json_path="sources",
    )
    only = "" if data["in_full"] else "<p>Below stand only logs with lines that were not read.</p>"
    quoted = [row for row in rows if data["in_full"] or row["unread_lines"]]
    left = [fold for source in quoted if (fold := _left_over(sheet, source, data["unread"]))]
    folds = _in_dozens(sheet, left, "What was not read of logs")
    return "".join(["<h2>What was read, and what was not</h2>", counts, only, *folds])


def _counted(heading: str, name_: str) -> Column:
    return Column(heading, lambda row: number(row[name_]), "number", field=name_)


SOURCE_COLUMNS: Final = (
    Column("Log", lambda row: f'<span class="name">{esc(row["path"])}</span>', field="path"),
    Column("Format", lambda row: esc(row["log_format"]), field="log_format"),
    _counted("Lines", "lines"),
    _counted("Steps", "step_lines"),
    _counted("Facts, events,<br>blank", "known_lines"),
    _counted("Of companion<br>formats", "companion_lines"),
    _counted("Other", "other_lines"),
    _counted("Unread", "unread_lines"),
)


def _left_over(sheet: Sheet, source: Row, unread: Sequence[Json]) -> str:
    """The lines of one log that were not read: steps that could not be, and others by kind."""
    kinds = source["other_kinds"] or []
    lines = [row | {"place": n} for n, row in enumerate(unread) if row["source"] == source["place"]]
    if not kinds and not lines:
        return ""
    at = f"sources.{source['place']}"
    summary = (
        f'<span data-at="{at}"><span class="name" data-of="path">{esc(source["path"])}</span> '
        f'<span class="figures">'
        f"{field_span('unread_lines', number(source['unread_lines']))} unread, "
        f"{field_span('other_lines', number(source['other_lines']))} other</span></span>"
    )
    quoted = unread_table(lines)
    other = table(
        "Other lines, an example of each kind",
        OTHER_LINE_COLUMNS,
        kinds,
        json_path=f"{at}.other_kinds",
    )
    return sheet.fold(summary, quoted + (other if kinds else ""))


OTHER_LINE_COLUMNS: Final = (
    Column("Line", lambda row: number(row["line"]), field="line"),
    Column("How many", lambda row: number(row["count"]), "number", field="count"),
    Column(
        "Example", lambda row: f'<span class="log">{esc(row["example"])}</span>', "text", "example"
    ),
)

METHOD_HTML: Final = f"""<section data-static><h2>How these numbers are made</h2>
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
<li><strong>Peak: own dtype</strong> holds each operator against the peak of the number format that
it ran in; <strong>BF16</strong> holds all of them against the BF16 peak, as older reports do.</li>
<li><strong>Steady</strong> figures leave out start-up, checkpoints, evaluation and profiling, and
say how much time that was. Stalls and all that is unexplained stay in.</li>
<li><strong>95 % intervals</strong> are of a run's windows, and say nothing of another night or
node; of a setup that ran three times or more they are between its runs. Two runs are told apart
where the interval of their ratio leaves 1 out.</li>
<li><strong>Ranked</strong> are only runs of the same model, length, number format, trained
weights, device and way of counting tokens.</li>
</ul>
<p class="note">Formula {FORMULA_VERSION}.</p></section>"""
