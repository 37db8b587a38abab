"""NovaTrain, a framework that nobody knows, as formats beside the built-in ones.

Run as a program it puts them into the registry before anything else is imported, reads each `*.log`
of a folder with the facts of the `.json` beside it, and prints the rows of metrics by name. So all
that is made of the registry on import is made of NovaTrain, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from fairmfu.ingest.formats import registry
from fairmfu.ingest.formats.spec import LogFormat, StepLine

_RATES: Final = r"(?:(?P<rate>\d+) tok/s/gpu|(?P<samples>\d+) samples/s)"
_TOKENS: Final = r"(?P<time>[\d.]+) s/it \| (?:(?P<total>\d+) tok in all|(?P<tokens>\d+) tok)$"


def _nova(tag: str, quirk: str, evidence: str, field: str, columns: dict[str, str]) -> LogFormat:
    return LogFormat(
        name=tag,
        framework="novatrain",
        versions="1.0",
        signature=rf"\[{tag}\] it \d+/\d+ \| loss ",
        looks_like_step=rf"\[{tag}\] it \d+",
        evidence=(evidence,),
        elapsed_covers="step",
        rate_covers="interval",
        quirks=(quirk,),
        steps=(
            StepLine(
                anchor=f"[{tag}] it ",
                regex=rf"\[{tag}\] it (?P<step>\d+)/\d+ \| loss (?P<loss>[\d.]+) \| {field}",
                columns={"step": "step", "loss": "loss", **columns},
                example=f"[{tag}] it 120/5000 | loss 2.31 | ",
                printed_by="nova/train.py",
            ),
        ),
    )


_RATE_COLUMNS: Final = {"rate": "logged_tgs", "samples": "logged_samples_per_second"}
_TOKEN_COLUMNS: Final = {
    "time": "elapsed_s",
    "tokens": "step_tokens",
    "total": "consumed_tokens",
}
NOVA_FORMATS: Final = (
    _nova("nova-rates", "rates_rounded", "rate", _RATES, _RATE_COLUMNS),
    _nova("nova-processes", "tokens_of_processes", "elapsed", _TOKENS, _TOKEN_COLUMNS),
    _nova("nova-ranks", "tokens_of_ranks", "elapsed", _TOKENS, _TOKEN_COLUMNS),
)
SHOWN: Final = (
    *("log_format", "quirks", "tgs", "tgs_low", "tgs_high", "missing"),
    *("warnings", "warning_kinds"),
)


def _main(folder: Path) -> None:
    registry.BUILT_IN_FORMATS = (*registry.BUILT_IN_FORMATS, *NOVA_FORMATS)  # type: ignore[misc]
    from fairmfu.metrics import analyse  # noqa: PLC0415
    from tests.support.one_log import tables_of  # noqa: PLC0415 - imports all that reads formats

    rows = {}
    for log in sorted(folder.glob("*.log")):
        facts = json.loads(log.with_suffix(".json").read_text())
        row = analyse(tables_of(log, facts=facts)).metrics.row(0, named=True)
        rows[log.stem] = {name: row[name] for name in SHOWN if name in row}
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
