"""The report as one offline HTML page: who is faster, by how much, how sure, and why logs disagree.

`render` sets what reports.page.report_data says. Each number stands in an element that names its
place there, `data-of`, as seen from the `data-at` around it; prose that is always the same may be
marked `data-static`. The section of a single run is in reports.page.html_run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fairmfu.metrics.formula.flops import FORMULA

from ..charts.tooltips import device
from ..text.tabular import decimal
from ..text.verdict import Said, Style, counted, plural
from .html_cells import (
    CONVENTION,
    NAME,
    OURS,
    PRINTED,
    RATIO,
    checked,
    chosen,
    figure,
    linked,
    name,
    named,
    of,
    range_of,
    scientific,
    split,
    static,
    tgs,
    unread_table,
    whole,
)
from .html_document import DASH, Column, Sheet, controls, esc, legend, number, packaged, table
from .html_run import each_run
from .redaction import REDACTED
from .report_data import MOST_MODELS, Content, Json

Row = Mapping[str, Any]

OPEN_GROUPS: Final = 4
"""Groups whose comparison stands open; the others are folded."""
MOST_EXPLAINED: Final = 100
"""On a page of very many runs, those whose logs are explained before each run's own part."""
MOST_WATERFALLS: Final = 4
"""Runs whose way from the log's figure to ours is drawn before each run's own part."""


def render(told: Content) -> str:
    """The page as HTML text."""
    sheet = Sheet()
    data = told.data
    body = [
        _header(data),
        *_groups(sheet, told),
        _apart(sheet, told),
        _why(sheet, told),
        _across(sheet, told),
        each_run(sheet, told),
        _sources(sheet, told),
        METHOD,
    ]
    style = packaged("report.css")
    return sheet.html(data["title"], body, controls=_controls(data), style=style)


def shown(data: Json, run_ids: Sequence[str]) -> list[Json]:
    """Runs as tables take them: with the device under the name that the filter knows it by."""
    runs = (data["runs"][run_id] for run_id in run_ids)
    return [run | {"accelerator": device(run)} for run in runs]


# --- the first screen ---------------------------------------------------------------------


def _header(data: Json) -> str:
    counts = data["counts"]
    held = (
        f"{of('counts.runs', number(counts['runs']))} {plural('run', counts['runs'])} from "
        f"{of('counts.logs', number(counts['logs']))} {plural('log', counts['logs'])}"
    )
    about = f"{held} · formula {of('formula', FORMULA)} · fairmfu {of('fairmfu', data['fairmfu'])}"
    about += f" · {REDACTED}" if data["redacted"] else ""
    banner = (
        '<p class="banner"><strong>Synthetic</strong> runs stand on this page, each marked so: '
        "their logs were composed, not run, and say nothing of any framework's speed.</p>"
    )
    title = f'<h1 data-of="title">{esc(data["title"])}</h1>'
    return f"<header>{title}<p>{about}</p>{banner if data['synthetic'] else ''}</header>"


def _controls(data: Json) -> str:
    """Toggles, filters, and the key to the marks of every chart."""
    runs = shown(data, list(data["runs"]))
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


def _groups(sheet: Sheet, told: Content) -> list[str]:
    """For each group of like-for-like runs its sentence, its picture and its figures."""
    data = told.data
    said = told.verdicts(PICKED)
    several = [group for group in data["groups"] if len(group["runs"]) > 1]
    parts = [_group(sheet, told, n, said[n]) for n in range(len(several))]
    if not several:
        parts = [spoken(one, at=f"verdicts.{n}") for n, one in enumerate(said)]
    first, rest = parts[:OPEN_GROUPS], parts[OPEN_GROUPS:]
    folded = [
        sheet.fold(_group_in_short(several[n], n), part)
        for n, part in enumerate(rest, start=OPEN_GROUPS)
    ]
    if folded:
        heading = f"<h2>{static(counted(len(folded), 'more group'))}</h2>"
        folded = [heading, *_in_dozens(sheet, folded, "Groups")]
    return [*first, *folded, _alone(sheet, told)]


def _in_dozens(sheet: Sheet, folds: Sequence[str], of_what: str) -> list[str]:
    """Many folds in folds. of_what: what they are, ahead of which of them a fold holds."""
    if len(folds) <= MANY:
        return [*folds]
    return [
        sheet.fold(
            static(f"{of_what} {n + 1:,} to {min(n + MANY, len(folds)):,} of {len(folds):,}"),
            "".join(folds[n : n + MANY]),
        )
        for n in range(0, len(folds), MANY)
    ]


MANY: Final = 24


def _group_in_short(group: Json, n: int) -> str:
    count = static(counted(len(group["runs"]), "run"))
    return (
        f'<span data-at="groups.{n}">{of("group", esc(group["group"]))}</span> '
        f'<span class="figures">{count}</span>'
    )


def _group(sheet: Sheet, told: Content, n: int, said: Said) -> str:
    data = told.data
    group = data["groups"][n]
    runs = [run | {"among": group} for run in shown(data, group["runs"])]
    parts = [
        spoken(said, SYNTHETIC if group["synthetic"] else "", at=f"verdicts.{n}"),
        figure(sheet, told, f"comparison:{n}"),
        split(sheet, told, "The same in figures", GROUP_COLUMNS, runs, static(GROUP_NOTE)),
        sheet.fold(
            "Cost, loss and setup of these runs",
            split(
                sheet,
                told,
                "Cost, loss and setup",
                _setup_columns(runs),
                runs,
                _setup_note(n, group),
            ),
        ),
    ]
    return f'<section class="group">{"".join(parts)}</section>'


def spoken(said: Said, tag: str = "", kind: str = "", at: str = "") -> str:
    """The sentence with its notes; those are HTML already.

    tag: HTML before its label; kind: a class of the style sheet; at: where the content has it.
    """

    def here(field: str) -> str:
        return f' data-of="{field}"' if at else ""

    on = f'<p class="on">{tag}<span{here("label")}>{esc(said.label)}</span></p>'
    notes = "".join(
        f'<p class="note"{here(f"notes.{n}")}>{whole(note)}</p>'
        for n, note in enumerate(said.notes)
    )
    notes += f'<p class="note"{here("differs")}>{said.differs}</p>' if said.differs else ""
    place = f' data-at="{at}"' if at else ""
    return (
        f'<section class="{f"verdict {kind}".strip()}"{place}>{on if said.label else ""}'
        f'<p class="says"{here("says")}>{whole(said.sentence)}</p>'
        f'<div class="notes">{notes}</div></section>'
    )


SYNTHETIC: Final = '<span class="tag" data-static>synthetic runs</span> '

HTML: Final = Style(
    name=named,
    strong=lambda text: f"<strong>{text}</strong>",
    quiet=lambda text: f'<span class="sure">{text}</span>',
    aside=lambda text: f'<span class="aside">{text}</span>',
    plain=esc,
)
PICKED: Final = replace(HTML, name=name)
"""The style of HTML on a page whose runs can be marked."""


# --- one group ----------------------------------------------------------------------------


def _against_best(run: Row) -> str:
    if run["rank"] == 1:
        best = f"{run['relative_tgs']:.2f}x"
        return of("relative_tgs", best) + (
            "" if best == "1.00x" else '<span class="small">of its setup</span>'
        )
    sure = range_of(run, "relative_low", "relative_high", lambda value: f"{value:.2f}")
    if run["relative_low"] is None:
        # a repeat of the best: the setup is one side
        sure = "of one setup" if run["tied_with_best"] else "no interval"
    tied = ", tied" if run["tied_with_best"] and run["relative_low"] is not None else ""
    ratio = of("relative_tgs", f"{run['relative_tgs']:.2f}x")
    return f'{ratio}<span class="small">{sure}{tied}</span>'


def _by_logs(run: Row) -> str:
    return of("logged_rank", number(run["logged_rank"]))


def _gpu_hours(run: Row) -> str:
    """Steady, with the money where a price is known, and end to end beneath."""
    names = [f"gpu_hours_per_billion_tokens{end}" for end in ("", "_end_to_end")]
    steady, whole = (run[name] for name in names)
    paid = run["cost_per_billion_tokens"]
    price = of("price_per_gpu_hour", esc(run["price_per_gpu_hour"]))
    cost = of("cost_per_billion_tokens", number(paid, 2))
    money = "" if paid is None else f'<span class="small">costs {cost} at {price}</span>'
    ends = f'<span class="small">{of(names[1], decimal(whole))} end to end</span>' if whole else ""
    return f"{of(names[0], DASH if steady is None else decimal(steady))}{money}{ends}"


def _loss(run: Row) -> str:
    if run["loss_at_equal_tokens"] is None:
        return f'<span class="muted">{of("no_loss", esc(run["no_loss"] or DASH))}</span>'
    apart = "" if run["same_loss"] else '<span class="small warning">apart</span>'
    return f"{of('loss_at_equal_tokens', format(run['loss_at_equal_tokens'], '#.4g'))}{apart}"


def _differs(run: Row) -> str:
    return of("words.differs", esc(run["words"]["differs"])) or "nothing that is logged"


def _setup_columns(runs: Sequence[Row]) -> list[Column]:
    """Without the TGS at equal FLOPs where no group has other ones."""
    if runs[0]["equal_flops"] is not None:
        return list(SETUP_COLUMNS)
    return [column for column in SETUP_COLUMNS if column.of != "tgs_at_equal_flops"]


def _setup_note(n: int, group: Json) -> str:
    words = [
        "Runs of one letter are repeats: their logs say the same of all that may change the speed. "
        "A run whose log leaves out GPUs, recomputation or version has a letter of its own."
    ]
    if group["equal_tokens"] is not None:
        words.append(f"Losses are at {of('equal_tokens', number(group['equal_tokens']))} tokens.")
    if group["equal_flops"] is not None:
        flops = of("equal_flops", f"{group['equal_flops']:.4g}")
        words.append(
            f"TGS at {flops} FLOPs per token is what the same MFU would give with the FLOPs of "
            "another group: for no ranking."
        )
    return f'<span data-at="groups.{n}">{" ".join(words)}</span>'


GROUP_COLUMNS: Final = (
    NAME,
    Column(static("TGS [tokens/s/GPU]<br>95 % interval"), tgs, "number"),
    Column("Of the<br>best", _against_best, "number"),
    Column("MFU", lambda run: chosen(run, "mfu"), "number"),
    PRINTED,
    OURS,
    RATIO,
    Column("By the<br>logs #", _by_logs, "number"),
)
SETUP_COLUMNS: Final = (
    NAME,
    Column("Setup", lambda run: esc(run["setup"]), of="setup"),
    Column(static("GPU-hours per<br>10^9 tokens"), _gpu_hours, "number"),
    Column(
        "TGS at equal<br>FLOPs per token",
        lambda run: number(run["tgs_at_equal_flops"]),
        "number",
        of="tgs_at_equal_flops",
    ),
    Column("Loss at<br>equal tokens", _loss, "number"),
    Column("What differs", _differs, "text"),
)
GROUP_NOTE: Final = (
    f"Like for like, the best run, or setup, first. {CONVENTION} Intervals (95 %) of a TGS cover "
    "the windows of that run, not another night or node; of a ratio the differences between runs, "
    "where a setup ran three times or more."
)


# --- what can't be compared ---------------------------------------------------------------


def _alone(sheet: Sheet, told: Content) -> str:
    """Runs that could be ranked, each in a group of its own."""
    data = told.data
    alone = [group["runs"][0] for group in data["groups"] if len(group["runs"]) == 1]
    if not alone:
        return ""
    runs = shown(data, alone)
    heading = "<h2>Runs that no other is like</h2>"
    note = static(
        "Their speeds can't be set against each other; what each ran stands at the right. "
        f"{CONVENTION}"
    )
    drawn = figure(sheet, told, "logged")
    return heading + drawn + split(sheet, told, "Each by itself", ALONE_COLUMNS, runs, note)


ALONE_COLUMNS: Final = (
    *GROUP_COLUMNS[:2],
    *GROUP_COLUMNS[3:7],
    Column("What it ran", lambda run: esc(run["group"]), "text", of="group"),
)


def _apart(sheet: Sheet, told: Content) -> str:
    """Runs without a rank: why, and what would give them one."""
    data = told.data
    if not data["apart"]:
        return ""
    runs = shown(data, data["apart"])
    caption = f"{static(counted(len(runs), 'run'))} that can't stand in a comparison yet"
    body = split(sheet, told, caption, APART_COLUMNS, runs)
    if data["to_give"]:
        words = "".join(
            f'<li data-at="to_give.{n}"><code data-of="name">{esc(fact["name"])}</code> '
            f"{of('meaning', esc(fact['meaning']))}</li>"
            for n, fact in enumerate(data["to_give"])
        )
        body += sheet.fold("What these facts are", f"<ul>{words}</ul>")
    return f"<h2>What can't be compared, and why</h2>{body}"


def _why_apart(run: Row) -> str:
    return _lines("not_ranked", run["not_ranked"])


def _lines(name_: str, texts: Sequence[str]) -> str:
    return "<br>".join(of(f"{name_}.{n}", esc(text)) for n, text in enumerate(texts))


def _to_give(run: Row) -> str:
    command = run["complete_command"]
    return f"<code>{of('complete_command', esc(command))}</code>" if command else NOTHING_TO_GIVE


NOTHING_TO_GIVE: Final = "nothing that a fact could give"

APART_COLUMNS: Final = (
    NAME,
    Column("Framework", lambda run: esc(run["framework"])),
    Column(static("TGS [tokens/s/GPU]<br>95 % interval"), tgs, "number"),
    Column("Why not", _why_apart, "text"),
    Column("What would complete it", _to_give, "text"),
)


# --- why the logs disagree ----------------------------------------------------------------


def _why(sheet: Sheet, told: Content) -> str:
    """From each log's figure to ours, with the causes; other formulas; own formulas in use."""
    data = told.data
    printed = [run_id for run_id, run in data["runs"].items() if run["claim"]]
    if not printed and not data["formulas"]:
        return ""
    parts = ["<h2>Why the logs disagree</h2>"]
    if not data["in_full"]:
        printed = printed[:MOST_EXPLAINED]
    if printed:
        parts += [
            "<p>What a log says of its own speed is by its own formula, peak and clock. Each is "
            "recomputed by that formula of that version first; then cause by cause it becomes "
            "ours.</p>",
            split(sheet, told, "From the log's figure to ours", WHY_COLUMNS, shown(data, printed)),
            *_waterfalls(sheet, told),
        ]
    return "".join([*parts, _eras(data), _other_formulas(sheet, told)])


def _waterfalls(sheet: Sheet, told: Content) -> list[str]:
    """Waterfalls of the first group's runs: from the log's figure to ours."""
    first = told.data["groups"][0]["runs"] if told.data["groups"] else []
    keys = [f"waterfall:{run_id}" for run_id in first]
    drawn = [key for key in keys if key in told.figures][:MOST_WATERFALLS]
    if not drawn:
        return []
    heads = shown(told.data, [key.partition(":")[2] for key in drawn])
    parts = [
        f'<h3 data-at="runs.{esc(run["run_id"])}"><span data-of="label">{linked(run)}</span></h3>'
        f"{figure(sheet, told, key)}"
        for run, key in zip(heads, drawn, strict=True)
    ]
    more = sum(key.startswith("waterfall:") for key in told.figures) > len(drawn)
    rest = '<p class="note">Those of all other runs stand in each run\'s part.</p>'
    return [*parts, rest] if more else parts


def _causes(run: Row) -> str:
    items = "".join(
        f'<li data-of="causes.{n}">{whole(esc(cause))}</li>'
        for n, cause in enumerate(run["causes"])
    )
    return f'<ul class="plain">{items}</ul>'


WHY_COLUMNS: Final = (
    NAME,
    PRINTED,
    OURS,
    RATIO,
    Column("By its own<br>formula", checked),
    Column("Why it is not ours", _causes, "text"),
)


def _eras(data: Json) -> str:
    """Which versions of the frameworks' own formulas are in use."""
    if not data["eras"]:
        return ""
    note = static(
        "A framework's own formula changes with its versions; runs of two eras do not compare by "
        "their logs."
    )
    return table("Own formulas in use", ERA_COLUMNS, data["eras"], note, at="eras")


def _span(era: Row) -> str:
    since, until = (of(end, esc(era[end])) if era[end] else "" for end in ("since", "until"))
    if not since and not until:
        return "not known"
    return f"{since or 'the beginning'} to {until or 'now'}"


def _reproduced(era: Row) -> str:
    ok, compared = (of(key, number(era[key])) for key in ("reproduced", "compared"))
    return f"{ok} of {compared} compared"


ERA_COLUMNS: Final = (
    Column("Own formula", lambda era: esc(era["name"]), of="name"),
    Column("In use", _span, "when"),
    Column("Closed form", lambda era: f"<code>{esc(era['formula'])}</code>", "text", of="formula"),
    Column(
        "Code",
        lambda era: f"{of('code', esc(era['code']))} at {of('commit', esc(era['commit']))}",
        "text",
    ),
    Column("Runs<br>reproduced", _reproduced, "number"),
)


def _other_formulas(sheet: Sheet, told: Content) -> str:
    """What other tools' formulas make of each model: why loggers disagree about one run."""
    if not told.data["formulas"]:
        return ""
    shown_ = [
        sheet.fold(
            f'<span data-of="formulas.{n}.label">{esc(one["label"])}</span>',
            figure(sheet, told, f"others:{n}")
            + table(
                "The same in figures",
                FORMULA_COLUMNS,
                one["formulas"],
                at=f"formulas.{n}.formulas",
            ),
        )
        for n, one in enumerate(told.data["formulas"])
    ]
    words = (
        "Each tool prints TFLOP/s or MFU by a formula of its own. This is what each would count "
        f"for models on this page, {MOST_MODELS} at most; for any: "
        "<code>fairmfu flops --against-others</code>."
    )
    return f"<h3>One model, many formulas</h3><p>{static(words)}</p>{''.join(shown_)}"


FORMULA_COLUMNS: Final = (
    Column("Formula", lambda row: esc(row["name"]), of="name"),
    Column(
        "FLOPs per token",
        lambda row: scientific(row["flops_per_token"]),
        "number",
        of="flops_per_token",
    ),
    Column("/ ours", lambda row: number(row["ratio_to_ours"], 3), "number", of="ratio_to_ours"),
    Column("What it does otherwise", lambda row: esc(row["why"]), "text", of="why"),
)


# --- across runs --------------------------------------------------------------------------

ACROSS: Final = ("scaling", "mfu_by_length", "mfu_by_precision", "mfu_by_recompute", "mfu_by_run")


def _across(sheet: Sheet, told: Content) -> str:
    drawn = [figure(sheet, told, key) for key in ACROSS if key in told.figures]
    return "".join(["<h2>Across all runs</h2>", *drawn]) if drawn else ""


# --- sources ------------------------------------------------------------------------------


def _sources(sheet: Sheet, told: Content) -> str:
    """How much of each log was read, and examples of what was not."""
    data = told.data
    if not data["sources"]:
        return ""
    rows = [source | {"place": n} for n, source in enumerate(data["sources"])]
    counts = split(
        sheet,
        told,
        "Lines of each log",
        SOURCE_COLUMNS,
        rows,
        "Every line is counted once.",
        at="sources",
    )
    only = "" if data["in_full"] else "<p>Below stand only logs with lines that were not read.</p>"
    quoted = [row for row in rows if data["in_full"] or row["unread_lines"]]
    left = [fold for source in quoted if (fold := _left_over(sheet, source, data["unread"]))]
    folds = _in_dozens(sheet, left, "What was not read of logs")
    return "".join(["<h2>What was read, and what was not</h2>", counts, only, *folds])


def _counted(heading: str, name_: str) -> Column:
    return Column(heading, lambda row: number(row[name_]), "number", of=name_)


SOURCE_COLUMNS: Final = (
    Column("Log", lambda row: f'<span class="name">{esc(row["path"])}</span>', of="path"),
    Column("Format", lambda row: esc(row["log_format"]), of="log_format"),
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
        f'<span class="figures">{of("unread_lines", number(source["unread_lines"]))} unread, '
        f"{of('other_lines', number(source['other_lines']))} other</span></span>"
    )
    quoted = unread_table(lines)
    other = table(
        "Other lines, an example of each kind", OTHER_COLUMNS, kinds, at=f"{at}.other_kinds"
    )
    return sheet.fold(summary, quoted + (other if kinds else ""))


OTHER_COLUMNS: Final = (
    Column("Line", lambda row: number(row["line"]), of="line"),
    Column("How many", lambda row: number(row["count"]), "number", of="count"),
    Column(
        "Example", lambda row: f'<span class="log">{esc(row["example"])}</span>', "text", "example"
    ),
)

METHOD: Final = f"""<section data-static><h2>How these numbers are made</h2>
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
<p class="note">Formula {FORMULA}.</p></section>"""
