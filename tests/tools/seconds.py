"""`make seconds`: the seconds of each test file, from the XML that pytest writes."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from tests.support.folders import ROOT
from tests.tools.affected import SECONDS


def test_file(classname: str) -> str:
    """Return the test file of a dotted name, which may end in a class."""
    parts = classname.split(".")
    for end in range(len(parts), 0, -1):
        path = f"{'/'.join(parts[:end])}.py"
        if (ROOT / path).is_file():
            return path
    raise LookupError(f"{classname}: no test file of this project")


def main() -> None:
    """Write tests/golden/seconds.tsv from the file that is given."""
    seconds: Counter[str] = Counter()
    for case in ET.parse(Path(sys.argv[1])).iter("testcase"):  # noqa: S314 - written by ourselves
        if case.get("classname", "").startswith("tests."):  # else it is an error of pytest itself
            seconds[test_file(case.attrib["classname"])] += float(case.attrib["time"])
    rows = (f"{name}\t{taken:.1f}\n" for name, taken in sorted(seconds.items()))
    SECONDS.write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
