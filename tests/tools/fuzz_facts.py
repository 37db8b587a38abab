"""`make fuzz-facts`: runs with one damaged value, beside good ones (tests.support.damaged_values).

    python -m tests.tools.fuzz_facts [--inputs N] [--seed N] [--good N] [--batch N] [--pages N]

Prints each finding with the seed of its batch; exit code 1 where there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter
from random import Random

from tests.support.damaged_values import damaged, findings


def main() -> int:
    """Try so many inputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--good", type=int, default=50)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--pages", type=int, default=10, help="a report of each so many batches")
    given = parser.parse_args()
    warnings.simplefilter("error")
    found: Counter[str] = Counter()
    begun = time.monotonic()
    for done in range(0, given.inputs, given.batch):
        seed = given.seed + done
        draw = Random(seed)  # noqa: S311 - no secret
        runs = [damaged(draw) for _ in range(min(given.batch, given.inputs - done))]
        page = done // given.batch % given.pages == 0
        try:
            told = list(findings(runs, given.good, page=page))
        except Exception:  # noqa: BLE001 - what nothing held back
            told = [f"raised: {traceback.format_exc()}"]
        for words in told:
            found[words.split(":")[0]] += 1
            print(f"seed {seed}: {words}", flush=True)
        if done // given.batch % 10 == 0:
            seconds = time.monotonic() - begun
            print(f"{done + len(runs):,} inputs, {seconds:.0f} s, {dict(found)}", flush=True)
    print(f"{given.inputs:,} inputs, findings: {dict(found) or 'none'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
