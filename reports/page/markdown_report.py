"""Report as Markdown, with charts as SVG files: for a pull request, a wiki, mail.

Every number is the one of `--format json`. Log text passes `tabular.markdown_text`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from fairmfu.metrics.core.run_table import short_doubt

from ..charts.charts import Figure
from ..text import bridge_text
from ..text.markdown import MARKDOWN_STYLE, svg_name
from ..text.tabular import count, count_noun, percent, ratio
from . import chart_export
from .redaction import REDACTED
from .report_data import ReportContent

Row = Mapping[str, Any]

MAX_GROUPS: Final = 8
"""Most groups with a table and a chart; JSON has all."""
MAX_TABLE_ROWS: Final = 100
"""Most rows of a table; JSON has all."""
MAX_EXPLAINED_LOGS: Final = 20
"""Most runs with an explanation of the log's figure."""
MAX_DRAWN_RUNS: Final = 4
"""Most runs with drawn steps and waterfall: the first of the first groups."""
EMPTY_CELL: Final = "-"

_safe = MARKDOWN_STYLE.plain


@dataclass(frozen=True, slots=True)
class MarkdownReport:
    """Markdown, with its pictures as file names to SVG."""

    text: str
    pictures: Mapping[str, str]


def markdown_report(content: ReportContent, folder: str) -> MarkdownReport:
    """Return the report; its pictures belong in `folder`, beside the text."""
    album = _Album(folder)
    parts = [
        _head(content),
        _verdicts(content),
        _comparison(content, album),
        _apart(content),
        _disagreement(content, album),
        _across(content, album),
        _courses(content, album),
        _eras(content),
        METHOD_MARKDOWN.format(formula=_safe(content.data["formula"])),
    ]
    return MarkdownReport("\n\n".join(filter(None, parts)) + "\n", album.pictures)


def picture_names(text: str, folder: str) -> list[str]:
    """Return names of the pictures in `folder` that a Markdown report shows."""
    return re.findall(rf"\]\({re.escape(quote(folder))}/([a-z0-9_-]+\.svg)\)", text)


@dataclass(frozen=True, slots=True)
class _Album:
    """Pictures by file name, collected while the text is written."""

    folder: str
    pictures: dict[str, str] = field(default_factory=dict)

    def put(self, content: ReportContent, key: str, of: str) -> str:
        """Return the figure of a key with its caption; empty if there is none.

        of: subject, for the file name
        """
        figure = content.figures.get(key)
        kind = key.partition(":")[0]
        return "" if figure is None else self._paste(kind, chart_export.with_convention(figure), of)

    def _paste(self, name: str, figure: Figure, of: str) -> str:
        file = f"{name}-{svg_name(of)}"
        self.pictures[file] = chart_export.svg(figure)
        caption = _safe(" ".join([f"{figure.title}.", *figure.notes]))
        return f"![{_safe(figure.description)}]({quote(self.folder)}/{file})\n\n*{caption}*"


# --- sections -------------------------------------------------------------------------------


def _head(content: ReportContent) -> str:
    data = content.data
    held = (
        f"{count_noun(data['counts']['runs'], 'run')} "
        f"from {count_noun(data['counts']['logs'], 'log')}"
    )
    about = f"{held} · formula {_safe(data['formula'])} · fairmfu {_safe(data['fairmfu'])}"
    about += f" · {REDACTED}" if data["redacted"] else ""
    made_up = f"\n\n> {SYNTHETIC_NOTE}" if data["synthetic"] else ""
    return f"# {_safe(data['title'])}\n\n{about}{made_up}"


SYNTHETIC_NOTE: Final = (
    "**Synthetic** runs in this report are marked. Their logs were made up, so they say nothing "
    "about any framework's speed."
)


def _verdicts(content: ReportContent) -> str:
    said = content.verdicts(MARKDOWN_STYLE)
    parts = []
    for one in said[:MAX_GROUPS]:
        head = f"### {_safe(one.label)}\n\n" if one.label else ""
        notes = "".join(f"\n- {note}" for note in (*one.notes, one.differs) if note)
        parts.append(f"{head}{one.sentence}{chr(10) if notes else ''}{notes}")
    parts += _rest(len(said), MAX_GROUPS, "group")
    return "\n\n".join(parts)


def _comparison(content: ReportContent, album: _Album) -> str:
    several = [group for group in content.groups if len(group) > 1]
    alone = [group[0] for group in content.groups if len(group) == 1]
    parts = []
    for place, group in enumerate(several[:MAX_GROUPS]):
        best = group[0]
        picture = album.put(content, f"comparison:{place}", f"{best['group']} {best['run_id']}")
        parts += [f"### {_safe(str(best['group']))}", picture, _figures(content, group)]
    parts += _rest(len(several), MAX_GROUPS, "group")
    if alone:
        parts += ["### Runs without a comparable run", _figures(content, alone)]
    return "\n\n".join(["## Comparison", *filter(None, parts), CONVENTION_NOTE]) if parts else ""


CONVENTION_NOTE: Final = (
    "*TGS: tokens/s/GPU in steady state with its 95 % interval. MFU: share of the dense peak in "
    "the run's own precision, unless another peak is named. Exact attention counts only "
    "token pairs that the mask allows, full attention all pairs. Ours beside a logged figure uses "
    "exact attention.*"
)


def _apart(content: ReportContent) -> str:
    if not content.data["apart"]:
        return ""
    runs = [content.data["runs"][run_id] for run_id in content.data["apart"]]
    columns: CellColumns = {
        "run": _name,
        "reason": lambda run: _safe("; ".join(run["not_ranked"])) or EMPTY_CELL,
        "missing facts": lambda run: (
            _safe(", ".join(one["name"] for one in run["complete_with"])) or EMPTY_CELL
        ),
    }
    meanings = [
        f"- {_safe(one['name'])}: {_safe(one['meaning'])}" for one in content.data["to_give"]
    ]
    give = [f"Set missing facts with `fairmfu set RUN NAME=VALUE`:\n\n{chr(10).join(meanings)}"]
    parts = ["## Not comparable, and why", *_table(columns, runs), *(give if meanings else [])]
    return "\n\n".join(parts)


def _disagreement(content: ReportContent, album: _Album) -> str:
    """Return a line per run with the ratio, a sentence per run, and some waterfalls."""
    runs = [run for run in content.data["runs"].values() if run["claim"] is not None]
    if not runs:
        return ""
    columns: CellColumns = {
        "run": _name,
        "logged": lambda run: _claimed(run, "logged"),
        "ours": lambda run: _claimed(run, "ours_exact_own"),
        "logged / ours": lambda run: _number(run["claim"]["ratio_exact_own"], ratio),
        "framework's formula": lambda run: _safe(run["audit"]["word"]),
    }
    said = [f"- {_name(run)}: {_safe(run['words']['claim'])}" for run in runs[:MAX_EXPLAINED_LOGS]]
    said += [f"- {line}" for line in _rest(len(runs), MAX_EXPLAINED_LOGS, "log")]
    first = [row for row in content.rows if row["bridges"]][:MAX_DRAWN_RUNS]
    drawn = [album.put(content, f"waterfall:{row['run_id']}", _of(row)) for row in first]
    head = ["## Why the logs disagree", *_table(columns, runs)]
    return "\n\n".join([*head, "\n".join(said), *drawn])


def _across(content: ReportContent, album: _Album) -> str:
    charts = [chart for chart in chart_export.CHARTS if chart.of == "all runs"]
    drawn = [album.put(content, chart.name, "all runs") for chart in charts]
    found = [picture for picture in drawn if picture]
    return "\n\n".join(["## Charts across all runs", *found]) if found else ""


def _courses(content: ReportContent, album: _Album) -> str:
    parts = []
    for row in content.rows[:MAX_DRAWN_RUNS]:
        run = content.data["runs"][row["run_id"]]
        said = "\n".join(f"- {_safe(line)}" for line in _words(run))
        keys = [f"{name}:{row['run_id']}" for name in ("course", "time_lost")]
        pictures = [album.put(content, key, _of(row)) for key in keys]
        parts.append("\n\n".join([f"### {_name(run)}", said, *filter(None, pictures)]))
    parts += _rest(len(content.rows), MAX_DRAWN_RUNS, "run")
    return "\n\n".join(["## Each run", *parts]) if content.rows else ""


def _words(run: Row) -> list[str]:
    """Return the outcome of a run, and its rates with their scope."""
    words, lines = run["words"], [run["words"]["went"]]
    if run["tgs"] is not None:
        interval = "" if _interval(run) == EMPTY_CELL else f"95 % interval {_interval(run)}, "
        lines.append(f"{count(run['tgs'])} tokens/s/GPU in steady state: {interval}{words['sure']}")
    for name in ("tgs_end_to_end", "goodput"):
        noun, covers = name.removeprefix("tgs_").replace("_", " "), words[name.removeprefix("tgs_")]
        if run[name] is not None:
            lines.append(f"{count(run[name])} tokens/s/GPU {noun}: {covers}")
    return [*lines, *(f"Warning: {warning}" for warning in run["warnings"])]


def _eras(content: ReportContent) -> str:
    columns: CellColumns = {
        "formula": lambda era: _safe(era["name"]),
        "since": lambda era: _safe(era["since"] or EMPTY_CELL),
        "until": lambda era: _safe(era["until"] or EMPTY_CELL),
        "FLOPs per token": lambda era: _safe(era["formula"]),
        "runs": lambda era: f"{len(era['runs']):,}",
        "reproduced": lambda era: f"{era['reproduced']:,} of {era['compared']:,}",
    }
    if not content.data["eras"]:
        return ""
    return "\n\n".join(["## Formulas of the frameworks", *_table(columns, content.data["eras"])])


METHOD_MARKDOWN: Final = (
    "## Method\n\nOne formula, {formula}, for all runs: MFU = TGS x FLOPs per token / dense peak "
    "of the GPU. TGS is tokens over time, each summed over the steady windows. FLOPs are those of "
    "every matrix product from the model's shape: forward once, backward twice as many. The second "
    "forward of activation checkpointing does not count. Logged MFU and TFLOP/s are not used in "
    "our formula. `fairmfu report` writes a page with the origin of every number. `fairmfu explain "
    "RUN` shows the formula with a run's numbers."
)


# --- tables ---------------------------------------------------------------------------------

CellColumns = dict[str, Callable[[Row], str]]
"""Headings to the cell text of a row, already escaped."""


def _figures(content: ReportContent, group: Sequence[Row]) -> str:
    """Return a table with the figures of some runs, without empty columns."""
    runs = [content.data["runs"][row["run_id"]] for row in group]
    columns: CellColumns = {
        "#": lambda run: _number(run["rank"], str),
        "run": _name,
        "framework": lambda run: _safe(run["framework"]),
        "TGS": lambda run: _number(run["tgs"], count),
        "samples/s": lambda run: EMPTY_CELL if run["tgs"] else _number(run["ranked_rate"], count),
        "95 % interval": _interval,
        "doubt": lambda run: _safe(short_doubt(run["doubts"]) or EMPTY_CELL),
        "relative to best": lambda run: _number(run["relative_tgs"], percent),
        "MFU exact attention": lambda run: _number(run["mfu_exact_own"], percent),
        "MFU full attention": lambda run: _number(run["mfu_full_own"], percent),
        "given FLOPs": lambda run: _safe(run["flops_source"] or EMPTY_CELL),
        "MFU exact, BF16 peak": lambda run: _number(run["mfu_exact_bf16"], percent),
        "MFU full, BF16 peak": lambda run: _number(run["mfu_full_bf16"], percent),
        "logged": lambda run: _claimed(run, "logged"),
        "ours": lambda run: _claimed(run, "ours_exact_own"),
        "logged / ours": lambda run: _number((run["claim"] or {}).get("ratio_exact_own"), ratio),
        "rank by logged figures": lambda run: _number(run["logged_rank"], str),
    }
    if len(runs) == 1 or all(run["rank"] == 1 for run in runs):
        for heading in ("#", "relative to best", "rank by logged figures"):
            del columns[heading]
    if all(run[f"mfu_{a}_own"] == run[f"mfu_{a}_bf16"] for run in runs for a in ("exact", "full")):
        del columns["MFU exact, BF16 peak"], columns["MFU full, BF16 peak"]
    filled = {
        h: cell for h, cell in columns.items() if any(cell(run) != EMPTY_CELL for run in runs)
    }
    return "\n\n".join(_table(filled, runs))


def _table(columns: CellColumns, rows: Sequence[Row]) -> list[str]:
    """Return a table of at most MAX_TABLE_ROWS, and the number of omitted rows."""
    lines = [_line(columns), _line(["---"] * len(columns))]
    lines += [_line(cell(row) for cell in columns.values()) for row in rows[:MAX_TABLE_ROWS]]
    return ["\n".join(lines), *_rest(len(rows), MAX_TABLE_ROWS, "row")]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rest(held: int, shown: int, noun: str) -> list[str]:
    """Return a note on the number of omitted items."""
    return [f"*Not shown: {count_noun(held - shown, noun)}; JSON has all.*"] if held > shown else []


def _name(run: Row) -> str:
    return _safe(str(run["label"])) + (" (synthetic)" if run["synthetic"] else "")


def _of(row: Row) -> str:
    """Return the subject of a run's pictures: name and id, as names may repeat."""
    return f"{row['name']} {row['run_id']}"


def _number(value: Any, text: Callable[[Any], str]) -> str:  # noqa: ANN401 - a cell
    return EMPTY_CELL if value is None else text(value)


def _interval(run: Row) -> str:
    low, high = run["ranked_low"], run["ranked_high"]
    return EMPTY_CELL if low is None or high is None else f"{count(low)} to {count(high)}"


def _claimed(run: Row, side: str) -> str:
    claim = run["claim"]
    if claim is None or claim[side] is None:
        return EMPTY_CELL
    return _safe(bridge_text.figure_text(claim["figure"], claim[side]))
