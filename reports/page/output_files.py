"""Reports as files, each moved into place when complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from fairmfu.ingest.core.errors import explain_write_error
from fairmfu.ingest.core.progress import note_progress

from . import html_report, markdown_report, messages
from .report_data import ReportContent, report_json

TEMPORARY_SUFFIX: Final = ".writing"
"""Suffix of a file name during writing."""
REPORT_FORMATS: Final = ("html", "md", "json")
"""Formats of a report."""


def save_report(content: ReportContent, out: str | Path, kind: str | None = None) -> list[Path]:
    """Write a report; return the written files, the report first, then its pictures.

    content: of `report`. kind: html, a page that needs no network; md, Markdown with charts as SVG
        in NAME_files/ beside it; json, the report as data by docs/report.schema.json, units in the
        names of its keys or beside them ([tokens/s/GPU], [fraction], [s]). Without a kind, the
        suffix of `out` decides.

    An existing file at `out` is replaced once the new file is complete. Raises UnknownKindError if
    `out` has another suffix, FairmfuError if a file cannot be written.

    >>> save_report(report(tables), "report.html")
    """
    out = Path(out)
    kind = report_format(out, kind)
    note_progress("Writing the report")
    if kind == "md":
        return _save_markdown(content, out)
    write_file(out, content.render(html_report.render_page if kind == "html" else _json).encode())
    return [out]


def report_format(out: Path, kind: str | None = None) -> str:
    """Return the format of a report: `kind`, else the suffix of `out`.

    Raises UnknownKindError for an unknown format, or if the two disagree: other programs open a
    file by its suffix.
    """
    end = out.suffix.removeprefix(".")
    if kind and end in REPORT_FORMATS and end != kind:
        raise messages.SUFFIX_CONTRADICTS(out=out, suffix=end, format=kind)
    kind = kind or end
    if kind not in REPORT_FORMATS:
        ends = ", ".join(f".{one}" for one in REPORT_FORMATS)
        raise messages.UNKNOWN_REPORT_SUFFIX(out=out, suffixes=ends)
    return kind


def _json(content: ReportContent) -> str:
    return json.dumps(report_json(content), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _save_markdown(content: ReportContent, out: Path) -> list[Path]:
    """Write pictures, then the text, then delete pictures of the previous report."""
    folder = out.with_name(f"{out.stem}_files")
    report = content.render(lambda one: markdown_report.markdown_report(one, folder.name))
    before = out.read_text(encoding="utf-8", errors="replace") if out.is_file() else ""
    for name, drawn in report.pictures.items():
        write_file(folder / name, drawn.encode())
    write_file(out, report.text.encode())
    for name in set(markdown_report.picture_names(before, folder.name)) - set(report.pictures):
        (folder / name).unlink(missing_ok=True)
    return [out, *(folder / name for name in report.pictures)]


def replace_file(path: Path, data: bytes) -> None:
    """Write a temporary file, then move it into place: readers never see half a file."""
    aside = path.with_name(f"{path.name}{TEMPORARY_SUFFIX}")
    aside.unlink(missing_ok=True)  # a link here would be written through
    aside.write_bytes(data)
    aside.replace(path)


def write_file(out: Path, data: bytes) -> None:
    """Write a file and the folders above; raise FairmfuError if that fails."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, data)
    except OSError as error:
        why, todo = explain_write_error(error, "--out")
        raise messages.FILE_NOT_WRITABLE(out=out, why=why, remedy=todo) from error
