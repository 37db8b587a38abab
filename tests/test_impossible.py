"""Values that no run can have are told with where they stand, and change no figure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ingest.intake import ingest
from ingest.store import Store
from metrics.utilization import analyse

LOG = Path(__file__).parents[1] / "sample_logs/synthetic/torchtitan/llama3-8b-8xh100-torchtitan.log"
STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
Change = Callable[[int, str], str]


def told(tmp_path: Path, change: Change) -> tuple[list[str], float | None]:
    """Warnings of the sample with its step lines changed, and its TGS."""
    tmp_path.mkdir(exist_ok=True)
    count, lines = 0, []
    for line in LOG.read_text().splitlines():
        changed = change(count, line) if "step:" in line else line
        count += "step:" in line
        lines.append(changed)
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    store = Store(tmp_path / "store")
    ingest([tmp_path / "run.log"], store)
    row = analyse(store.tables()).metrics.row(0, named=True)
    return row["warnings"], row["tgs"]


def rate(text: str, *at: int) -> Change:
    return lambda n, line: re.sub(r"tps: [\d,]+", f"tps: {text}", line) if n in at else line


def moved(by: timedelta, after: int) -> Change:
    def change(n: int, line: str) -> str:
        if n < after:
            return line
        found = STAMP.search(line)
        assert found is not None
        then = datetime.strptime(found[0], "%Y-%m-%d %H:%M:%S,%f") + by
        return line.replace(found[0], f"{then:%Y-%m-%d %H:%M:%S},{then.microsecond // 1000:03}")

    return change


def mfu(n: int, line: str) -> str:
    return re.sub(r"mfu: [\d.]+%", "mfu: 117.20%", line) if n == 3 else line


def test_a_log_as_it_was_has_no_such_warning(tmp_path: Path) -> None:
    warnings, _ = told(tmp_path, lambda _, line: line)
    assert not [
        one for one in warnings if re.search("not above 0|go back|above 100|no number", one)
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rate("0", 7), r"a rate that is not above 0 is printed \(line \d+, step \d+\)"),
        (rate("0", 7, 9, 11), r"a rate that is not above 0 is printed \(3 lines, the first line"),
        (mfu, r"an MFU above 100 % is printed \(line \d+, step \d+\)"),
        (moved(-timedelta(hours=10), 12), r"time stamps go back .* \(9 lines, the first line"),
    ],
)
def test_it_is_told_with_where_it_stands(change: Change, said: str, tmp_path: Path) -> None:
    warnings, tgs = told(tmp_path / "changed", change)
    assert [one for one in warnings if re.match(said, one)], warnings
    _, before = told(tmp_path / "as-it-was", lambda _, line: line)
    assert tgs == pytest.approx(before, rel=2e-3)


def test_a_stamp_a_little_behind_another_is_no_wonder(tmp_path: Path) -> None:
    warnings, _ = told(tmp_path, lambda n, x: moved(-timedelta(seconds=8), 0)(n, x) if n % 2 else x)
    assert not [one for one in warnings if "go back" in one]
